//! The log at the door: pages of ops, within a frame's bounds.

use heddle_core::ids::{HistoryId, MeshId};
use heddle_core::limits::{BATCH_BYTES_MAX, LOG_PAGE_MAX};
use heddle_core::sync::is_gap;
use heddle_wire::broker::{LogItem, ReplyResult};
use serde_json::value::RawValue;

use super::{Shared, snapshots};
use crate::limiter::Limiter;
use crate::principal::Principal;
use crate::storage::{LogPage, LogRow, MendedLog, PageLimit, Storage, StorageError};

pub(super) async fn read<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    after: HistoryId,
    limit: u32,
) -> Result<ReplyResult, StorageError> {
    let limit = PageLimit {
        rows_max: usize::try_from(limit).map_or(LOG_PAGE_MAX, |max| max.clamp(1, LOG_PAGE_MAX)),
        bytes_max: BATCH_BYTES_MAX,
    };
    let (page, misses) = page(shared, principal, after, limit).await?;
    let lost = misses.then_some(after).or_else(|| gap(after, &page.1));
    let (epoch, items) = match lost {
        Some(at) if mend(shared, principal.mesh, at).await => {
            self::page(shared, principal, after, limit).await?.0
        }
        _ => page,
    };
    let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
    metrics::counter!("heddle_broker_log_read_total").increment(count);
    Ok(ReplyResult::Log { epoch, items })
}

/// The first op of a page whose reader would miss the one before it: this log has lost it (LF-15).
fn gap(after: HistoryId, items: &[LogItem]) -> Option<HistoryId> {
    let mut through = after;
    let found = items.iter().find(|item| {
        let is_gap = is_gap(through, item.previous);
        through = item.history_id;
        is_gap
    });
    found.map(|item| item.history_id)
}

/// True if the page is to be read again. A log that cannot be mended is served as it is: its reader sees the gap and says so.
async fn mend<S: Storage, L: Limiter>(shared: &Shared<S, L>, mesh: MeshId, at: HistoryId) -> bool {
    match shared.storage().mend_log(mesh, at).await {
        // Another reader was faster.
        Ok(None) => true,
        Ok(Some(mended)) => {
            let MendedLog {
                epoch,
                found,
                holes,
            } = mended;
            tracing::error!(%mesh, epoch, found, holes = holes.len(), "the log had lost ops; a new epoch began, and the homes that made them send them again");
            true
        }
        Err(error) => {
            tracing::error!(%mesh, %error, "the log has lost ops and could not be mended");
            false
        }
    }
}

/// The epoch and the ops; and whether the one that the reader has read last is lost.
async fn page<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    after: HistoryId,
    limit: PageLimit,
) -> Result<((u64, Vec<LogItem>), bool), StorageError> {
    let mesh = principal.mesh;
    let LogPage {
        epoch,
        mut rows,
        misses,
    } = shared.storage().log_after(mesh, after, limit).await?;
    // LF-34: what others publish is seen wholly or not at all. IMPORTANT: behind the read. A snapshot that began before
    // these rows were read still hides them now, or has been shown, and then the next pages hold the rest of it.
    let readable = snapshots::readable(shared, principal).await?;
    rows.retain(|row| row.history_id <= readable);
    let mut items = Vec::with_capacity(rows.len());
    for row in rows {
        let place = row.history_id;
        match item(row) {
            Ok(item) => items.push(item),
            // The reader sees a gap and says so; the ops behind it must not wait.
            Err(error) => tracing::error!(%error, %place, "a stored envelope is not JSON"),
        }
    }
    Ok(((epoch, items), misses))
}

fn item(row: LogRow) -> Result<LogItem, serde_json::Error> {
    Ok(LogItem {
        history_id: row.history_id,
        previous: row.previous,
        from: row.sender,
        client_message_id: row.client_message_id,
        envelope: RawValue::from_string(row.envelope.into())?,
    })
}
