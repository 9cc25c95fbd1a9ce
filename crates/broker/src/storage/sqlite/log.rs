//! The log in SQL: appending in the accept transaction, reading by cursor.

use heddle_core::ids::{BrokerMessageId, HistoryId, MeshId};
use heddle_core::witness::Witness;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::error::StorageError;
use super::super::log::{Epochs, Log, LogPage, LogRow, MendedLog, may_miss, mend_all};
use super::super::parting::Parted;
use super::super::rows::PageLimit;
use super::SqliteStorage;
use super::columns::{Columns, integer, mesh_key, message_key};
use super::error::JobError;
use super::history::Line;
use super::{mend, parting, queues};

const LAST: &str = "
SELECT epoch, seq FROM log_row WHERE mesh_id = ?1 ORDER BY epoch DESC, seq DESC LIMIT 1";

const APPEND: &str = "
INSERT INTO log_row (mesh_id, epoch, seq, previous_epoch, previous_seq, broker_message_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

const AFTER: &str = "
SELECT l.epoch, l.seq, l.previous_epoch, l.previous_seq, m.sender_member, m.sender_agent,
    m.client_message_id, m.accepted_at, m.envelope
FROM log_row l
JOIN message m ON m.mesh_id = l.mesh_id AND m.broker_message_id = l.broker_message_id
WHERE l.mesh_id = ?1 AND (l.epoch, l.seq) > (?2, ?3)
ORDER BY l.epoch, l.seq LIMIT ?4";

// One step of a walk from epoch to epoch: two look-ups each, however long the history is.
const END_BEFORE: &str = "
SELECT epoch, seq FROM message_history WHERE mesh_id = ?1 AND epoch < ?2
ORDER BY epoch DESC, seq DESC LIMIT 1";

const BUMP: &str = "UPDATE mesh SET epoch = epoch + 1, next_seq = 1 WHERE mesh_id = ?1";

/// The statements above, for the test that looks at their plans.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[LAST, APPEND, AFTER, END_BEFORE];

pub(super) fn append(
    connection: &Connection,
    mesh: [u8; 16],
    at: HistoryId,
    id: BrokerMessageId,
) -> rusqlite::Result<usize> {
    let last = connection
        .prepare_cached(LAST)?
        .query_row([mesh], |row| Columns::of(row).history_id())
        .optional()?;
    let previous = last.unwrap_or(HistoryId::ZERO);
    connection.prepare_cached(APPEND)?.execute(params![
        mesh,
        integer(at.epoch),
        integer(at.seq),
        integer(previous.epoch),
        integer(previous.seq),
        message_key(id),
    ])
}

fn after(
    connection: &Connection,
    mesh: MeshId,
    after: HistoryId,
    limit: PageLimit,
) -> Result<Vec<LogRow>, JobError> {
    let mut statement = connection.prepare_cached(AFTER)?;
    let mut found = statement.query(params![
        mesh_key(mesh),
        integer(after.epoch),
        integer(after.seq),
        super::upkeep::rows(limit.rows_max),
    ])?;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while let Some(row) = found.next()? {
        let row = match read(row) {
            Ok(row) => row,
            // Its names are none any more. The reader sees a gap and says so; the ops behind it must not wait.
            Err(error) => {
                tracing::error!(%error, "a stored op cannot be read and is passed over");
                continue;
            }
        };
        bytes += row.envelope.len();
        if bytes > limit.bytes_max && !rows.is_empty() {
            break;
        }
        rows.push(row);
    }
    Ok(rows)
}

/// The columns of [`AFTER`].
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<LogRow> {
    let mut columns = Columns::of(row);
    Ok(LogRow {
        history_id: columns.history_id()?,
        previous: columns.history_id()?,
        sender: columns.party()?,
        client_message_id: columns.client_message_id()?,
        accepted_at: columns.wall()?,
        envelope: columns.op_envelope()?,
    })
}

pub(super) fn ends(connection: &Connection, mesh: MeshId) -> Result<Vec<HistoryId>, JobError> {
    let mut statement = connection.prepare_cached(END_BEFORE)?;
    let (mut ends, mut before) = (Vec::new(), u64::MAX);
    loop {
        let end = statement
            .query_row(params![mesh_key(mesh), integer(before)], |row| {
                Columns::of(row).history_id()
            })
            .optional()?;
        let Some(end) = end else {
            ends.reverse();
            return Ok(ends);
        };
        before = end.epoch;
        ends.push(end);
    }
}

pub(super) fn epoch(connection: &Connection, mesh: MeshId) -> Result<u64, JobError> {
    let line = Line::of(connection, mesh)?;
    let line = line.ok_or(StorageError::UnknownMesh(mesh))?;
    Ok(line.epoch)
}

pub(super) fn bump(connection: &Connection, mesh: MeshId) -> Result<u64, JobError> {
    connection.prepare_cached(BUMP)?.execute([mesh_key(mesh)])?;
    queues::end_leases(connection, mesh)?;
    epoch(connection, mesh)
}

impl Log for SqliteStorage {
    async fn log_after(
        &self,
        mesh: MeshId,
        from: HistoryId,
        limit: PageLimit,
    ) -> Result<LogPage, StorageError> {
        self.read(mesh, move |c| {
            let rows = after(c, mesh, from, limit)?;
            Ok(LogPage {
                epoch: epoch(c, mesh)?,
                misses: may_miss(from, &rows) && mend::misses(c, mesh, from)?,
                rows,
            })
        })
        .await
    }

    async fn epochs(&self, mesh: MeshId) -> Result<Epochs, StorageError> {
        self.read(mesh, move |c| {
            Ok(Epochs {
                epoch: epoch(c, mesh)?,
                ends: ends(c, mesh)?,
                holes: mend::holes(c, mesh)?,
            })
        })
        .await
    }

    async fn bump_epoch(&self, mesh: MeshId) -> Result<u64, StorageError> {
        self.write(mesh, move |c| bump(c, mesh)).await
    }

    async fn part(&self, mesh: MeshId, seen: Vec<Witness>) -> Result<Option<Parted>, StorageError> {
        let (seen, look) = (seen.clone(), seen);
        let found = self.read(mesh, move |c| parting::find(c, mesh, &look));
        if found.await?.is_none() {
            return Ok(None);
        }
        self.write(mesh, move |c| parting::part(c, mesh, &seen))
            .await
    }

    async fn mend_log(
        &self,
        mesh: MeshId,
        at: HistoryId,
    ) -> Result<Option<MendedLog>, StorageError> {
        let this = self.clone();
        mend_all(at, move |mending| {
            let this = this.clone();
            async move {
                let piece = this.write(mesh, move |c| mend::piece(c, mesh, mending));
                piece.await
            }
        })
        .await
    }
}
