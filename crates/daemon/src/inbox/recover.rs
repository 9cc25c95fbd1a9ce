//! An inbox that was lost is asked for again: whatever the broker still holds comes back, page by page.
//!
//! The mark and the place to go on from are in the store, so a lost connection or a crash only delays it.

use std::time::Duration;

use heddle_core::clock::WallMs;
use heddle_core::envelope::Priority;
use heddle_core::ids::HistoryId;
use heddle_core::limits::BATCH_ITEMS_MAX;
use heddle_store::{LostInbox, RecoveredRow, StoreError};
use heddle_wire::broker::{Delivery, Envelope, HeldCursor, HeldItem, ReplyResult, Request};

use super::receive;
use crate::link::Live;
use crate::mesh::{MeshState, Older};
use crate::shared::Shared;

/// After a failure of our own store, or a broker that did not answer.
const RETRY: Duration = Duration::from_secs(30);
/// Looks at one priority, while messages come in, before it is left at that.
const LOOKS_MAX: usize = 16;
/// Questions without an answer, after which the broker is taken for one that does not know this one.
const UNANSWERED_MAX: u32 = 3;

enum Asked {
    More,
    Over,
    /// The broker cannot or will not say.
    Refused,
    Failed,
}

/// Beside a connection: ends when nothing is left to ask for. `before`: how far this home had heard when it was made.
pub(crate) async fn run(shared: &Shared, mesh: &MeshState, live: &Live, before: HistoryId) {
    if let Err(error) = notice_older(shared, mesh, live, before).await {
        tracing::warn!(%error, "it could not be found out whether the store is an older one");
    }
    let mut unanswered = 0;
    loop {
        match ask(shared, mesh, live).await {
            Asked::More => unanswered = 0,
            Asked::Over | Asked::Refused => return,
            Asked::Failed => {
                unanswered += 1;
                if unanswered >= UNANSWERED_MAX {
                    return;
                }
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Whether the broker was told of more than is here. What is acknowledged was kept before (IN-02), so a store that
/// has not heard of it is an earlier copy of itself: somebody put it back, or runs a copy of this home.
///
/// IMPORTANT: by what lies here, and not by how far was heard by now. What came on this connection stands behind what is
/// missing, and must not hide it.
async fn notice_older(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
    before: HistoryId,
) -> Result<(), StoreError> {
    let id = mesh.mesh.mesh;
    let lost = shared.store.inbox_lost(id).await?;
    if lost.is_some_and(|lost| !lost.is_over) {
        return Ok(());
    }
    for priority in Priority::ALL {
        let mut here = before;
        for _ in 0..LOOKS_MAX {
            let Some(found) = held_beyond(live, priority, here).await else {
                return Ok(());
            };
            // Behind the last one of a priority stand the first ones of the next.
            let Some(delivery) = found.filter(|delivery| delivery.history_id > here) else {
                break;
            };
            let held = delivery.history_id;
            if is_missing(shared, mesh, delivery).await? {
                tracing::warn!(mesh = %mesh.mesh.name, %held, here = %before, "data.db is older than what its broker gave it");
                shared.store.inbox_ask_again(id).await?;
                mesh.set_older(Older { held, here: before });
                return Ok(());
            }
            here = held;
        }
    }
    Ok(())
}

/// Whether something that this home acknowledged does not lie here, though it could.
async fn is_missing(
    shared: &Shared,
    mesh: &MeshState,
    delivery: Delivery,
) -> Result<bool, StoreError> {
    // What cannot be read is acknowledged and not kept (IN-06).
    if Envelope::parse(delivery.envelope.get().as_bytes()).is_err() {
        return Ok(false);
    }
    let (senders, id) = (vec![delivery.from.party], delivery.client_message_id);
    let known = shared
        .store
        .inbox_knows(mesh.mesh.mesh, senders, id, delivery.agent);
    Ok(!known.await?)
}

/// The first delivery behind `here` that this home has acknowledged, or one before it if there is none of this priority,
/// or nothing at all; `None` where the broker does not say.
async fn held_beyond(live: &Live, priority: Priority, here: HistoryId) -> Option<Option<Delivery>> {
    let after = HeldCursor {
        priority: priority.rank(),
        // Every agent of the next place comes behind this.
        history_id: HistoryId {
            seq: here.seq.saturating_add(1),
            ..here
        },
        agent: String::new(),
    };
    match live.request(Request::Held { after, limit: 1 }).await? {
        ReplyResult::Held { items, .. } => Some(items.into_iter().next().map(|item| item.delivery)),
        _ => None,
    }
}

async fn ask(shared: &Shared, mesh: &MeshState, live: &Live) -> Asked {
    let lost = match shared.store.inbox_lost(mesh.mesh.mesh).await {
        Ok(Some(lost)) if !lost.is_over => lost,
        Ok(_) => return Asked::Over,
        Err(error) => {
            tracing::warn!(%error, "it could not be read what of the inbox was lost");
            return Asked::Failed;
        }
    };
    let cursor = lost.cursor.as_deref();
    let after = cursor.and_then(|text| serde_json::from_str(text).ok());
    let request = Request::Held {
        after: after.unwrap_or_default(),
        limit: u32::try_from(BATCH_ITEMS_MAX).unwrap_or(u32::MAX),
    };
    match live.request(request).await {
        Some(ReplyResult::Held { items, gone, next }) => {
            keep(shared, mesh, (items, gone, next)).await
        }
        Some(_) => Asked::Refused,
        None => Asked::Failed,
    }
}

async fn keep(
    shared: &Shared,
    mesh: &MeshState,
    (items, gone, next): (Vec<HeldItem>, u64, Option<HeldCursor>),
) -> Asked {
    let is_over = next.is_none();
    let next = next.and_then(|next| serde_json::to_string(&next).ok());
    let rows = items.into_iter().filter_map(|item| row(shared, item));
    let kept = shared
        .store
        .inbox_recovered(mesh.mesh.mesh, rows.collect(), gone, next)
        .await;
    match kept {
        Ok(arrivals) => {
            if let Some(newest) = arrivals.last() {
                shared.arrivals.send_if_modified(|last| {
                    let is_newer = newest > last;
                    *last = (*newest).max(*last);
                    is_newer
                });
            }
            let recovered = arrivals.len();
            tracing::info!(mesh = %mesh.mesh.name, recovered, gone, "messages of the lost inbox came back");
            if is_over { Asked::Over } else { Asked::More }
        }
        Err(error) => {
            tracing::warn!(%error, "messages of the lost inbox could not be kept");
            Asked::Failed
        }
    }
}

fn row(shared: &Shared, item: HeldItem) -> Option<RecoveredRow> {
    let mut row = receive::row(shared, item.delivery)?.row;
    row.received_at = WallMs(item.delivered_at);
    Some(RecoveredRow {
        row,
        shown_at: item.shown_at.map(WallMs),
        acked_at: item.acked_at.map(WallMs),
    })
}

/// What to say of a store that is an earlier copy; `None` where it is not.
pub(crate) async fn older(shared: &Shared, mesh: &MeshState) -> Result<Option<String>, StoreError> {
    let Some(Older { held, here }) = mesh.older() else {
        return Ok(None);
    };
    let name = mesh.mesh.name.as_str();
    let lost = shared.store.inbox_lost(mesh.mesh.mesh).await?;
    let back = lost.map_or_else(String::new, |lost| format!(" ({})", in_words(name, &lost)));
    Ok(Some(format!(
        "data.db is an earlier copy of itself: the broker of mesh {name} gave this home messages up to {held} at least, and it knew of none behind {here}. They are asked for again{back}; whatever else was written here since is missing"
    )))
}

/// What a person can do about that.
pub(crate) const OLDER_NEXT: &str = "If the newer data.db is still there, stop with `heddle down` and put it back with `heddle daemon restore FILE`. Otherwise go on with this one: the broker knows every id of the time since, so whatever is sent again under its old id lands once. After the next `heddle down` and `heddle up` this is not said any more.";

/// What became of a lost inbox, for the status.
pub(crate) fn in_words(name: &str, lost: &LostInbox) -> String {
    let LostInbox {
        recovered, gone, ..
    } = lost;
    let back = match (lost.is_over, recovered) {
        (false, 0) => format!("the broker of mesh {name} is to be asked for what it still holds"),
        (false, _) => {
            format!("{recovered} messages came back from the broker of mesh {name} so far")
        }
        (true, 0) => format!("the broker of mesh {name} holds none of its messages any more"),
        (true, 1) => format!("1 message came back from the broker of mesh {name}"),
        (true, _) => format!("{recovered} messages came back from the broker of mesh {name}"),
    };
    match gone {
        0 => back,
        gone => format!("{back}, {gone} are gone there, too"),
    }
}
