//! An inbox that was lost is asked for again: whatever the broker still holds comes back, page by page.
//!
//! The mark and the place to go on from are in the store, so a lost connection or a crash only delays it.

use std::time::Duration;

use heddle_core::clock::WallMs;
use heddle_core::limits::BATCH_ITEMS_MAX;
use heddle_store::{LostInbox, RecoveredRow};
use heddle_wire::broker::{HeldCursor, HeldItem, ReplyResult, Request};

use super::receive;
use crate::link::Live;
use crate::mesh::MeshState;
use crate::shared::Shared;

/// After a failure of our own store, or a broker that did not answer.
const RETRY: Duration = Duration::from_secs(30);
/// Questions without an answer, after which the broker is taken for one that does not know this one.
const UNANSWERED_MAX: u32 = 3;

enum Asked {
    More,
    Over,
    /// The broker cannot or will not say.
    Refused,
    Failed,
}

/// Beside a connection: ends when nothing is left to ask for.
pub(crate) async fn run(shared: &Shared, mesh: &MeshState, live: &Live) {
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
    let mut row = receive::row(shared, item.delivery)?;
    row.received_at = WallMs(item.delivered_at);
    Some(RecoveredRow {
        row,
        shown_at: item.shown_at.map(WallMs),
        acked_at: item.acked_at.map(WallMs),
    })
}

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
