//! Deliveries into the inbox: commit first, ack after (IN-02), then the hint to readers.

use heddle_core::clock::WallMs;
use heddle_core::envelope::DestinationKind;
use heddle_core::names::TopicName;
use heddle_store::{NewInboxRow, Received};
use heddle_wire::broker::{AckItem, Delivery, Envelope};
use tokio::sync::mpsc;

use crate::link::Live;
use crate::mesh::MeshState;
use crate::shared::Shared;

/// Deliveries that share one commit.
const COMMIT_ITEMS_MAX: usize = 1024;

/// Runs until the connection or the store fails; the text says which and why.
pub(crate) async fn run(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
    mut deliveries: mpsc::Receiver<Vec<Delivery>>,
) -> String {
    while let Some(mut batch) = deliveries.recv().await {
        while batch.len() < COMMIT_ITEMS_MAX {
            match deliveries.try_recv() {
                Ok(more) => batch.extend(more),
                Err(_) => break,
            }
        }
        if let Err(error) = keep(shared, mesh, live, batch).await {
            // Not acknowledged, so the broker pushes them again on the next connection.
            return format!("the inbox cannot take messages: {error}");
        }
    }
    "the session ended".to_owned()
}

async fn keep(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
    batch: Vec<Delivery>,
) -> Result<(), heddle_store::StoreError> {
    let acks: Vec<AckItem> = batch
        .iter()
        .map(|delivery| AckItem {
            history_id: delivery.history_id,
            agent: delivery.agent.clone(),
        })
        .collect();
    let (accepted, rows): (Vec<WallMs>, Vec<NewInboxRow>) = batch
        .into_iter()
        .filter_map(|d| Some((WallMs(d.accepted_at), row(shared, d)?)))
        .unzip();
    let received = shared.store.receive(mesh.mesh.mesh, rows).await?;
    let way = metrics::histogram!("heddle_delivery_seconds");
    let now = shared.clock.wall();
    live.ack(acks).await;
    let mut newest = None;
    for (outcome, accepted_at) in received.into_iter().zip(accepted) {
        match outcome {
            Received::Stored(arrival) => {
                way.record(crate::metrics::seconds_between(accepted_at, now));
                metrics::counter!("heddle_inbox_received_total").increment(1);
                newest = newest.max(Some(arrival));
            }
            Received::Duplicate => {
                metrics::counter!("heddle_inbox_duplicates_total").increment(1);
            }
        }
    }
    if let Some(newest) = newest {
        shared.arrivals.send_if_modified(|last| {
            let is_newer = newest > *last;
            *last = newest.max(*last);
            is_newer
        });
    }
    Ok(())
}

/// A malformed message is counted and refused (IN-06). It is acknowledged all the same: pushing it
/// again would not mend it, and it must not hold up the ones behind it.
pub(super) fn row(shared: &Shared, delivery: Delivery) -> Option<NewInboxRow> {
    let refuse = |why: String| {
        metrics::counter!("heddle_inbox_malformed_total").increment(1);
        tracing::warn!(history_id = %delivery.history_id, %why, "an inbound message was refused");
    };
    if !delivery.history_id.is_possible() {
        refuse("no broker gives such a place".to_owned());
        return None;
    }
    let envelope = match Envelope::parse(delivery.envelope.get().as_bytes()) {
        Ok(envelope) => envelope,
        Err(error) => {
            refuse(error.to_string());
            return None;
        }
    };
    let topic = match delivery.destination_kind {
        DestinationKind::Topic => match TopicName::parse(&delivery.destination_ref) {
            Ok(topic) => Some(topic),
            Err(error) => {
                refuse(error.to_string());
                return None;
            }
        },
        DestinationKind::Dm | DestinationKind::Queue => None,
        DestinationKind::Log => {
            refuse("an op came as a delivery".to_owned());
            return None;
        }
    };
    Some(NewInboxRow {
        history_id: delivery.history_id,
        agent: delivery.agent,
        sender: delivery.from.party,
        sender_name: delivery.from.member_name,
        client_message_id: delivery.client_message_id,
        broker_message_id: delivery.broker_message_id,
        topic,
        priority: envelope.priority,
        envelope: delivery.envelope.get().as_bytes().to_vec(),
        received_at: shared.clock.wall(),
    })
}
