//! Messages that look lost and are not: the broker has given them another place, because it had given the first one out twice.

use heddle_core::limits::{BATCH_BYTES_MAX, BATCH_ITEMS_MAX};
use heddle_store::{LostRow, LostSettle, LostState, StoreError};
use heddle_wire::broker::{ReplyResult, Request, Verdict};

use crate::link::Live;
use crate::mesh::MeshState;
use crate::shared::Shared;

/// Whether the broker has had it all along: it knows it under the id that it gave it then.
pub(super) fn was_there(row: &LostRow, verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Duplicate {
            broker_message_id, ..
        } => row.broker_message_id == Some(*broker_message_id),
        _ => false,
    }
}

/// Takes those off the list that nobody sends again by himself, and that need nobody. False if the broker does not answer.
pub(super) async fn find(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
) -> Result<bool, StoreError> {
    let id = mesh.mesh.mesh;
    let bounds = (BATCH_ITEMS_MAX, BATCH_BYTES_MAX);
    let mut after = 0;
    loop {
        let rows = shared
            .store
            .lost_rows(id, LostState::Held, after, bounds)
            .await?;
        let Some(last) = rows.last() else {
            return Ok(true);
        };
        after = last.arrival;
        let mut settled = Vec::new();
        for row in rows {
            let status = Request::MessageStatus {
                agent: row.agent.clone(),
                client_message_id: row.client_message_id.clone(),
            };
            match live.request(status).await {
                None => return Ok(false),
                Some(ReplyResult::Committed {
                    broker_message_id,
                    history_id,
                    ..
                }) if row.broker_message_id == Some(broker_message_id) => {
                    settled.push(LostSettle {
                        arrival: row.arrival,
                        state: LostState::Sent,
                        reason: String::new(),
                        place: Some((broker_message_id, history_id)),
                        was_there: true,
                    });
                }
                Some(_) => {}
            }
        }
        let now = shared.clock.wall();
        shared.store.settle_lost(id, settled, now).await?;
    }
}
