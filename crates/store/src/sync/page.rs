//! A page of the log that is kept and applied in one transaction, where it is its turn.
//!
//! An op whose effect is in the same commit never waits: its bytes are not written to be read and emptied a moment
//! later, and a page costs one commit (P21). Only where nothing waits before it and nothing is missing on it (LF-15); and
//! whatever an op of it is refused for by the tables is looked at the careful way, from its row (`apply`).

use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, MemberId, MeshId};
use heddle_core::sync::is_gap;
use rusqlite::{Connection, params};

use super::apply::{AppliedOps, Batch, Fate, Placed, Undo, any_waits, is_of_this_op};
use super::head;
use super::incoming::{NewOp, Page, ReceivedOps, Turn, receive};
use crate::cells::count_cell;
use crate::error::StoreError;
use crate::store::Store;

/// It is no op that was applied after all.
pub(crate) const NOT_APPLIED: &str = "
    UPDATE op_inbox SET state = 'waiting', applied_at = NULL, op = ?4
    WHERE mesh_id = ?1 AND epoch = ?2 AND seq = ?3";

impl Store {
    /// Keeps a page of the log as `receive_ops` does. Where its turn has come its ops are applied as well, or set aside;
    /// `None` where they wait for `apply_ops`.
    pub async fn take_page(
        &self,
        mesh: MeshId,
        own: MemberId,
        epoch: u64,
        ops: Vec<NewOp>,
        now: WallMs,
    ) -> Result<(ReceivedOps, Option<AppliedOps>), StoreError> {
        let page = Page::of(mesh, own, epoch, ops, now);
        // What a power cut takes is read again: cursor, rows and effects go together.
        self.write_relaxed(move |connection| match take(connection, &page)? {
            Some((received, applied)) => Ok((received, Some(applied))),
            None => Ok((receive(connection, &page, Turn::Waits)?.0, None)),
        })
        .await
    }
}

/// `None` if its turn has not come, or if one of its ops cannot be taken: nothing was written then.
fn take(
    connection: &Connection,
    page: &Page,
) -> Result<Option<(ReceivedOps, AppliedOps)>, StoreError> {
    let head = head::read(connection, page.mesh)?;
    if !is_whole(head.log, &page.ops) || any_waits(connection, page.mesh)? {
        return Ok(None);
    }
    let run = |sql| connection.prepare_cached(sql)?.execute([]);
    run("SAVEPOINT heddle_page")?;
    let taken = match take_all(connection, page) {
        Ok(taken) => Some(taken),
        Err(error) if is_of_this_op(&error) => {
            run("ROLLBACK TO heddle_page")?;
            None
        }
        // IMPORTANT: after any other error no statement may run; the whole page is undone.
        Err(error) => return Err(error),
    };
    run("RELEASE heddle_page")?;
    Ok(taken)
}

/// Whether none is missing on it.
fn is_whole(mut cursor: HistoryId, ops: &[NewOp]) -> bool {
    ops.iter().all(|op| {
        let gap = is_gap(cursor, op.previous);
        cursor = cursor.max(op.history_id);
        !gap
    })
}

fn take_all(connection: &Connection, page: &Page) -> Result<(ReceivedOps, AppliedOps), StoreError> {
    let (received, fresh) = receive(connection, page, Turn::Now)?;
    let mut batch = Batch::begin(connection, page.mesh, page.now, Undo::Batch)?;
    for op in fresh.iter().filter_map(|number| page.ops.get(*number)) {
        let Ok(bytes) = &op.op else {
            continue;
        };
        let sender = op.sender.to_string();
        let row = Placed {
            op_id: op.client_message_id.as_str(),
            epoch: count_cell(op.history_id.epoch)?,
            seq: count_cell(op.history_id.seq)?,
            sender: &sender,
            op: bytes,
        };
        let fate = batch.fate(row)?;
        if !matches!(fate, Fate::Applied { .. }) {
            let place = params![page.mesh.0.to_bytes(), row.epoch, row.seq, row.op];
            connection.prepare_cached(NOT_APPLIED)?.execute(place)?;
        }
        batch.settle(row, fate)?;
    }
    Ok((received, batch.end()?))
}
