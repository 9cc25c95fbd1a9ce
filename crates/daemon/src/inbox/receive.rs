//! Deliveries into the inbox: commit first, ack after (IN-02), then the hint to readers.

use heddle_core::clock::WallMs;
use heddle_core::envelope::{DestinationKind, Priority};
use heddle_core::fingerprint::Fingerprint;
use heddle_core::names::TopicName;
use heddle_core::witness::Witness;
use heddle_store::{NewInboxRow, Received};
use heddle_wire::broker::{AckItem, Delivery, Envelope};
use tokio::sync::mpsc;

use super::damage;
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
        match keep(shared, mesh, live, batch).await {
            // Not acknowledged, so the broker pushes them again on the next connection.
            Err(error) => return format!("the inbox cannot take messages: {error}"),
            Ok(found) if !found.is_empty() => {
                let count = u64::try_from(found.len()).unwrap_or(u64::MAX);
                metrics::counter!("heddle_inbox_places_given_twice_total").increment(count);
                if mesh.displaced.note(&found, shared.clock.mono()) {
                    return "the broker has given places of its history out twice; it is told so"
                        .to_owned();
                }
            }
            Ok(_) => {}
        }
    }
    "the session ended".to_owned()
}

/// Which other messages stood at places of the batch.
async fn keep(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
    batch: Vec<Delivery>,
) -> Result<Vec<Witness>, heddle_store::StoreError> {
    let acks: Vec<AckItem> = batch
        .iter()
        .map(|delivery| AckItem {
            history_id: delivery.history_id,
            agent: delivery.agent.clone(),
        })
        .collect();
    let mut accepted = Vec::with_capacity(batch.len());
    let mut rows = Vec::with_capacity(batch.len());
    for delivery in batch {
        let at = WallMs(delivery.accepted_at);
        if let Some(row) = row(shared, delivery) {
            accepted.push((at, row.differs));
            rows.push(row.row);
        }
    }
    let received = shared.store.receive(mesh.mesh.mesh, rows).await?;
    let way = metrics::histogram!("heddle_delivery_seconds");
    let now = shared.clock.wall();
    live.ack(acks).await;
    let (mut newest, mut displaced) = (None, Vec::new());
    for (outcome, (accepted_at, differs)) in received.into_iter().zip(accepted) {
        match outcome {
            Received::Stored(arrival) | Received::Displacing(arrival, _) => {
                if let Received::Displacing(_, before) = outcome {
                    displaced.push(before);
                }
                if differs {
                    shared.damage.note(arrival, false);
                }
                way.record(crate::metrics::seconds_between(accepted_at, now));
                metrics::counter!("heddle_inbox_received_total").increment(1);
                newest = newest.max(Some(arrival));
            }
            Received::Duplicate => {
                // It may have come again to a broker that does not know yet that it was shown.
                mesh.receipts.hint.notify_one();
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
    Ok(displaced)
}

/// A malformed message is counted and refused (IN-06). It is acknowledged all the same: pushing it
/// again would not mend it, and it must not hold up the ones behind it.
///
/// One that is not what its broker accepted is kept, but never shown as true: its row says what was accepted, and every
/// reader compares (`damage`).
pub(super) fn row(shared: &Shared, delivery: Delivery) -> Option<Row> {
    let refuse = |why: String| {
        metrics::counter!("heddle_inbox_malformed_total").increment(1);
        tracing::warn!(history_id = %delivery.history_id, %why, "an inbound message was refused");
    };
    if !delivery.history_id.is_possible() {
        refuse("no broker gives such a place".to_owned());
        return None;
    }
    let claimed = delivery.wire_fingerprint.as_deref();
    let claimed = claimed.and_then(Fingerprint::parse_hex);
    let envelope = match Envelope::parse(delivery.envelope.get().as_bytes()) {
        Ok(envelope) => Some(envelope),
        // What was accepted was one: the bytes have changed since.
        Err(_) if claimed.is_some() => None,
        Err(error) => {
            refuse(error.to_string());
            return None;
        }
    };
    let found = envelope.as_ref().map(Envelope::wire_fingerprint);
    let found = found.and_then(Result::ok);
    let differs = claimed.is_some() && claimed != found;
    if differs {
        damage::count(delivery.history_id, &delivery.client_message_id);
    }
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
    let row = NewInboxRow {
        history_id: delivery.history_id,
        agent: delivery.agent,
        sender: delivery.from.party,
        sender_name: delivery.from.member_name,
        client_message_id: delivery.client_message_id,
        broker_message_id: delivery.broker_message_id,
        topic,
        priority: envelope.map_or(Priority::Next, |envelope| envelope.priority),
        envelope: delivery.envelope.get().as_bytes().to_vec(),
        fingerprint: claimed.or(found),
        received_at: shared.clock.wall(),
    };
    Some(Row { row, differs })
}

/// A delivery as it is kept.
pub(super) struct Row {
    pub(super) row: NewInboxRow,
    /// It is not what its broker accepted.
    pub(super) differs: bool,
}
