//! Pushes deliveries from the table, by priority and in order, as fast as they are acknowledged.
//!
//! The table is the truth. A wake-up only says that a look is worth it; the pump also looks by itself.
//! It never drops a row: what this connection does not acknowledge, the next one is pushed again.

use std::sync::Arc;

use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{HistoryId, MeshId};
use heddle_core::limits::{BATCH_BYTES_MAX, BATCH_ITEMS_MAX};
use heddle_wire::broker::{Delivery as Pushed, Envelope, Sender, ServerFrame};
use serde_json::value::{RawValue, to_raw_value};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::config::{DELIVER_FRAMES_UNWRITTEN_MAX, PUSH_POLL};
use super::hub::Session;
use super::window::Window;
use super::writer::Outbox;
use crate::limiter::Limiter;
use crate::storage::{Ack, Delivery, DeliveryCursor, PageLimit, SendId, Storage};

pub(super) struct Pump<S, L> {
    pub(super) shared: Arc<Shared<S, L>>,
    pub(super) session: Arc<Session>,
    pub(super) window: Arc<Window>,
    pub(super) outbox: Outbox,
}

impl<S: Storage, L: Limiter> Pump<S, L> {
    /// Runs until `stop`, or until nobody writes any more.
    pub(super) async fn run(self, stop: CancellationToken) {
        let _ = stop.run_until_cancelled(self.push()).await;
    }

    async fn push(&self) {
        let unwritten = Arc::new(tokio::sync::Semaphore::new(DELIVER_FRAMES_UNWRITTEN_MAX));
        let mut cursor = DeliveryCursor::START;
        loop {
            let limit = PageLimit {
                rows_max: self.window.room().await.min(BATCH_ITEMS_MAX),
                bytes_max: BATCH_BYTES_MAX,
            };
            let Ok(permit) = Arc::clone(&unwritten).acquire_owned().await else {
                return;
            };
            let Some(page) = self.page(&cursor, limit).await else {
                drop(permit);
                self.wait().await;
                continue;
            };
            for delivery in &page {
                cursor.pass(delivery);
            }
            let frame = self.frame(page).await;
            if self.outbox.send_bulky(&frame, permit).await.is_err() {
                return;
            }
        }
    }

    /// The next deliveries; `None` if there are none, or none can be read now.
    async fn page(&self, cursor: &DeliveryCursor, limit: PageLimit) -> Option<Vec<Delivery>> {
        let (mesh, member) = (self.session.mesh, self.session.member);
        let storage = self.shared.storage();
        match storage
            .deliveries_after(mesh, member, cursor.clone(), limit)
            .await
        {
            Ok(page) => Some(page).filter(|page| !page.is_empty()),
            Err(error) => {
                tracing::warn!(%error, "deliveries could not be read");
                None
            }
        }
    }

    async fn wait(&self) {
        tokio::select! {
            () = self.session.wake.notified() => {}
            () = tokio::time::sleep(PUSH_POLL) => {}
        }
    }

    /// The page as a frame, and in flight from now on. A row that cannot be one is passed over, and
    /// stays where it is: it must not hold up those behind it.
    async fn frame(&self, page: Vec<Delivery>) -> ServerFrame {
        let mut items = Vec::with_capacity(page.len());
        let prints = fingerprints(self.shared.storage(), self.session.mesh, page.iter()).await;
        for (delivery, print) in page.into_iter().zip(prints) {
            let place = delivery.history_id;
            match pushed(delivery, print) {
                Ok(item) => items.push(item),
                Err(error) => tracing::error!(%error, %place, "a stored envelope is not JSON"),
            }
        }
        self.window.pushed(items.iter().map(|item| Ack {
            history_id: item.history_id,
            agent: item.agent.clone(),
        }));
        let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
        metrics::counter!("heddle_broker_deliveries_pushed_total").increment(count);
        ServerFrame::Deliver { items }
    }
}

/// What was accepted under the ids of these messages, for their receivers to compare. Not compared here: that would
/// take every envelope apart once more, and the receiver, who does so anyway, then knows of the whole way.
pub(super) async fn fingerprints<S: Storage>(
    storage: &S,
    mesh: MeshId,
    page: impl ExactSizeIterator<Item = &Delivery> + Clone,
) -> Vec<Option<Fingerprint>> {
    let ids = page.clone().map(|one| {
        let (sender, id) = (one.sender.clone(), one.client_message_id.clone());
        SendId::new(mesh, sender, id)
    });
    let looks = match storage.known(mesh, ids.collect()).await {
        Ok(looks) => looks,
        Err(error) => {
            tracing::warn!(%error, "what was accepted could not be read; messages go out without it");
            return vec![None; page.len()];
        }
    };
    let mut prints = Vec::with_capacity(page.len());
    for (one, look) in page.zip(looks) {
        // An id that was forgotten and used again is another message's.
        let own = look
            .consumed
            .filter(|consumed| consumed.broker_message_id == one.broker_message_id);
        prints.push(match own {
            Some(consumed) => Some(consumed.wire_fingerprint),
            None => nobodys(storage, mesh, one.history_id).await,
        });
    }
    prints
}

/// A message whose sender and id nobody has accepted: where the id of its place was not forgotten, they are not the ones
/// under which it was. It goes out with a fingerprint that nothing has, so that nobody takes it for what its row says (ADR 12).
async fn nobodys<S: Storage>(storage: &S, mesh: MeshId, at: HistoryId) -> Option<Fingerprint> {
    let rows = storage.history_after(mesh, at.before(), 1).await;
    let rows = rows.unwrap_or_else(|error| {
        tracing::warn!(%error, "what was accepted could not be read; a message goes out without it");
        Vec::new()
    });
    let its_own = rows.into_iter().find(|row| row.history_id == at);
    its_own
        .filter(|row| !row.is_expired)
        .map(|_| Fingerprint([0; 32]))
}

/// Whether a stored envelope still is what was accepted, as far as that is known.
pub(super) fn is_as_accepted(envelope: &str, accepted: Option<Fingerprint>) -> bool {
    let found = || {
        Envelope::parse(envelope.as_bytes())
            .ok()?
            .wire_fingerprint()
            .ok()
    };
    accepted.is_none_or(|accepted| found() == Some(accepted))
}

/// As it goes over the wire. What is no JSON any more goes as an empty text, where it is known what was accepted: its
/// receiver sees that it is not that, and says so, instead of never hearing of it (ADR 12).
pub(super) fn pushed(
    delivery: Delivery,
    print: Option<Fingerprint>,
) -> Result<Pushed, serde_json::Error> {
    let envelope = match RawValue::from_string(delivery.envelope.into()) {
        Err(error) if print.is_some() => {
            tracing::error!(%error, place = %delivery.history_id, "a stored envelope is not JSON");
            to_raw_value("")?
        }
        raw => raw?,
    };
    Ok(Pushed {
        history_id: delivery.history_id,
        agent: delivery.agent,
        from: Sender {
            party: delivery.sender,
            member_name: delivery.sender_name,
        },
        client_message_id: delivery.client_message_id,
        broker_message_id: delivery.broker_message_id,
        destination_kind: delivery.destination_kind,
        destination_ref: delivery.destination_ref,
        accepted_at: delivery.accepted_at.0,
        wire_fingerprint: print.map(Fingerprint::to_hex),
        envelope,
    })
}
