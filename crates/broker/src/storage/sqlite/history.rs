//! The line of a mesh (epoch and next seq) and reading its history.

use heddle_core::ids::{HistoryId, MeshId};
use rusqlite::{Connection, OptionalExtension, params};

use super::super::rows::HistoryRow;
use super::columns::{Columns, integer, mesh_key};
use super::error::JobError;

const LINE: &str = "SELECT epoch, next_seq FROM mesh WHERE mesh_id = ?1";

const KEEP: &str = "UPDATE mesh SET next_seq = ?2 WHERE mesh_id = ?1";

const AFTER: &str = "
SELECT h.epoch, h.seq, h.broker_message_id, h.is_expired, m.sender_member, m.sender_agent,
    m.client_message_id, m.envelope
FROM message_history h
LEFT JOIN message m ON m.mesh_id = h.mesh_id AND m.broker_message_id = h.broker_message_id
WHERE h.mesh_id = ?1 AND (h.epoch, h.seq) > (?2, ?3)
ORDER BY h.epoch, h.seq LIMIT ?4";

/// The statements of an accept above, for the test that looks at their plans.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[LINE, KEEP];

/// Where the next message of a mesh goes. Read and written back in the accept transaction, so commit
/// order is seq order and what is rolled back leaves no hole (C4).
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    pub(super) epoch: u64,
    next_seq: u64,
    taken: u64,
}

impl Line {
    /// `None`: there is no such mesh.
    pub(super) fn of(connection: &Connection, mesh: MeshId) -> rusqlite::Result<Option<Self>> {
        let mut statement = connection.prepare_cached(LINE)?;
        let line = statement.query_row([mesh_key(mesh)], |row| {
            let mut columns = Columns::of(row);
            Ok(Self {
                epoch: columns.number()?,
                next_seq: columns.number()?,
                taken: 0,
            })
        });
        line.optional()
    }

    pub(super) fn next(&self) -> HistoryId {
        HistoryId {
            epoch: self.epoch,
            seq: self.next_seq,
        }
    }

    /// The place is taken by a message that stays.
    pub(super) fn advance(&mut self) {
        self.next_seq += 1;
        self.taken += 1;
    }

    pub(super) fn keep(&self, connection: &Connection, mesh: MeshId) -> rusqlite::Result<()> {
        if self.taken > 0 {
            connection
                .prepare_cached(KEEP)?
                .execute(params![mesh_key(mesh), integer(self.next_seq)])?;
        }
        Ok(())
    }
}

pub(super) fn after(
    connection: &Connection,
    mesh: MeshId,
    after: HistoryId,
    rows_max: usize,
) -> Result<Vec<HistoryRow>, JobError> {
    let mut statement = connection.prepare_cached(AFTER)?;
    let rows = statement.query_map(
        params![
            mesh_key(mesh),
            integer(after.epoch),
            integer(after.seq),
            i64::try_from(rows_max).unwrap_or(i64::MAX)
        ],
        |row| {
            let mut columns = Columns::of(row);
            Ok(HistoryRow {
                history_id: columns.history_id()?,
                broker_message_id: columns.broker_message_id()?,
                is_expired: columns.flag()?,
                id: columns.maybe_send_id(),
                envelope: columns.maybe_envelope()?,
            })
        },
    )?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
