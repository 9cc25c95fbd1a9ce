//! Tells the broker which items were shown and acknowledged, until it confirms.
//!
//! The queue is in the store; a report that is lost is made again on the next connection, and the
//! broker takes a receipt as often as it comes. Receipts are never worth a connection: a broker that
//! refuses them, or hangs up on them, is left alone.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use heddle_core::limits::RECEIPT_ITEMS_MAX;
use heddle_store::{DueReceipt, ReceiptLevel as Level};
use heddle_wire::broker::{ReceiptItem, ReceiptLevel, ReplyResult, Request};
use tokio::sync::Notify;

use crate::link::Live;
use crate::mesh::MeshState;
use crate::shared::Shared;

/// Reports without any answer, after which the broker is taken for one that does not know them.
const STRIKES_MAX: u32 = 3;
/// How long such a broker is left alone.
const TRUCE: Duration = Duration::from_hours(1);
/// After a failure of our own store, or a broker that kept silent.
const RETRY: Duration = Duration::from_secs(5);

/// What a mesh remembers of it from one connection to the next.
#[derive(Debug, Default)]
pub(crate) struct Receipts {
    /// There is something to report. A hint: the table is the truth.
    pub(crate) hint: Notify,
    unanswered: AtomicU32,
}

enum Reported {
    Everything,
    More,
    Refused,
    Failed,
}

/// Runs as long as the connection; never ends by itself.
pub(crate) async fn run(shared: &Shared, mesh: &MeshState, live: &Live) -> Infallible {
    loop {
        if mesh.receipts.unanswered.load(Ordering::Relaxed) >= STRIKES_MAX {
            tokio::time::sleep(TRUCE).await;
        }
        match report(shared, mesh, live).await {
            Reported::More => {}
            Reported::Everything => mesh.receipts.hint.notified().await,
            Reported::Refused => std::future::pending().await,
            Reported::Failed => tokio::time::sleep(RETRY).await,
        }
    }
}

async fn report(shared: &Shared, mesh: &MeshState, live: &Live) -> Reported {
    let due = shared
        .store
        .receipts_due(mesh.mesh.mesh, RECEIPT_ITEMS_MAX)
        .await;
    let due = match due {
        Ok(due) if due.is_empty() => return Reported::Everything,
        Ok(due) => due,
        Err(error) => {
            tracing::warn!(%error, "receipts could not be read");
            return Reported::Failed;
        }
    };
    let items = due.iter().map(item).collect();
    mesh.receipts.unanswered.fetch_add(1, Ordering::Relaxed);
    let reply = live.request(Request::Receipts { items }).await;
    let Some(reply) = reply else {
        return Reported::Failed;
    };
    mesh.receipts.unanswered.store(0, Ordering::Relaxed);
    if let ReplyResult::Refused(refused) = reply {
        tracing::debug!(code = %refused.code, "the broker keeps no receipts");
        return Reported::Refused;
    }
    let count = u64::try_from(due.len()).unwrap_or(u64::MAX);
    match shared.store.receipts_confirmed(mesh.mesh.mesh, due).await {
        Ok(()) => {
            metrics::counter!("heddle_receipts_reported_total").increment(count);
            Reported::More
        }
        Err(error) => {
            tracing::warn!(%error, "confirmed receipts could not be taken off the queue");
            Reported::Failed
        }
    }
}

fn item(receipt: &DueReceipt) -> ReceiptItem {
    ReceiptItem {
        history_id: receipt.history_id,
        agent: receipt.agent.clone(),
        level: match receipt.level {
            Level::Shown => ReceiptLevel::Shown,
            Level::Acked => ReceiptLevel::Acked,
        },
        at: receipt.at.0,
    }
}
