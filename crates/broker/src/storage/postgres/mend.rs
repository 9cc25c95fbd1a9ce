//! Mending a log that has lost ops, in SQL: one transaction over the whole log, where a damaged database made it needed.

use deadpool_postgres::{GenericClient, Transaction};
use heddle_core::ids::{HistoryId, MeshId};
use heddle_core::sync::LogHole;

use super::super::log::{MendedLog, bounded};
use super::columns::{Columns, integer, mesh_key};
use super::error::JobError;
use super::history;
use super::sql::{execute, exists, query};

const HOLES: &str = "
SELECT after_epoch, after_seq, through_epoch, through_seq FROM log_hole WHERE mesh_id = $1";

// Nobody takes a place of the mesh meanwhile, at this broker or another one.
const LOCK: &str = "SELECT 1 FROM mesh WHERE mesh_id = $1 FOR UPDATE";

const BROKEN: &str = "
SELECT 1 FROM log_row l
WHERE l.mesh_id = $1 AND l.epoch = $2 AND l.seq = $3 AND NOT EXISTS (
    SELECT 1 FROM log_row b
    JOIN message m ON m.mesh_id = b.mesh_id AND m.broker_message_id = b.broker_message_id
    WHERE b.mesh_id = l.mesh_id AND (b.epoch, b.seq) = (l.previous_epoch, l.previous_seq))
  AND (l.previous_epoch, l.previous_seq) > (0, 0)";

// What stood before it is not known: at most the place before its own, which makes whatever is missing there a hole.
const RELINK: &str = "
INSERT INTO log_row (mesh_id, epoch, seq, previous_epoch, previous_seq, broker_message_id)
SELECT h.mesh_id, h.epoch, h.seq, h.epoch, h.seq - 1, h.broker_message_id
FROM message_history h
JOIN message m ON m.mesh_id = h.mesh_id AND m.broker_message_id = h.broker_message_id
WHERE h.mesh_id = $1 AND m.destination_kind = 'log' AND NOT EXISTS (
    SELECT 1 FROM log_row l WHERE l.mesh_id = h.mesh_id AND l.epoch = h.epoch AND l.seq = h.seq)";

const UNLINK: &str = "
DELETE FROM log_row l WHERE l.mesh_id = $1 AND NOT EXISTS (
    SELECT 1 FROM message m WHERE m.mesh_id = l.mesh_id AND m.broker_message_id = l.broker_message_id)";

// Every op names the one before it that is there; the holes are the differences.
const CHAIN: &str = "
UPDATE log_row l SET previous_epoch = c.before_epoch, previous_seq = c.before_seq
FROM (
    SELECT epoch, seq, previous_epoch, previous_seq,
        coalesce(lag(epoch) OVER place, 0) AS before_epoch, coalesce(lag(seq) OVER place, 0) AS before_seq
    FROM log_row WHERE mesh_id = $1 WINDOW place AS (ORDER BY epoch, seq)
) c
WHERE l.mesh_id = $1 AND l.epoch = c.epoch AND l.seq = c.seq
  AND (c.previous_epoch, c.previous_seq) > (c.before_epoch, c.before_seq)
RETURNING c.before_epoch, c.before_seq, c.previous_epoch, c.previous_seq";

// Ids of ops that are in no log, each with the op before its place.
const LOST_IDS: &str = "
SELECT coalesce(b.epoch, 0), coalesce(b.seq, 0), d.epoch, d.seq
FROM client_message_dedupe d
LEFT JOIN LATERAL (SELECT l.epoch, l.seq FROM log_row l
    WHERE l.mesh_id = $1 AND (l.epoch, l.seq) < (d.epoch, d.seq)
    ORDER BY l.epoch DESC, l.seq DESC LIMIT 1) b ON TRUE
WHERE d.mesh_id = $1 AND d.destination_kind = 'log' AND NOT EXISTS (
    SELECT 1 FROM log_row l WHERE l.mesh_id = d.mesh_id AND l.epoch = d.epoch AND l.seq = d.seq)";

// A place whose id is forgotten is as the sweep of ids leaves it.
const FORGET: &str = "
WITH lost AS (
    DELETE FROM client_message_dedupe d
    WHERE d.mesh_id = $1 AND d.destination_kind = 'log' AND NOT EXISTS (
        SELECT 1 FROM log_row l WHERE l.mesh_id = d.mesh_id AND l.epoch = d.epoch AND l.seq = d.seq)
    RETURNING d.epoch, d.seq)
UPDATE message_history h SET is_expired = TRUE FROM lost
WHERE h.mesh_id = $1 AND h.epoch = lost.epoch AND h.seq = lost.seq";

const NOTE: &str = "
INSERT INTO log_hole AS o (mesh_id, after_epoch, after_seq, through_epoch, through_seq)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (mesh_id, after_epoch, after_seq) DO UPDATE SET
    through_epoch = excluded.through_epoch, through_seq = excluded.through_seq
WHERE (excluded.through_epoch, excluded.through_seq) > (o.through_epoch, o.through_seq)";

pub(super) async fn holes<C: GenericClient>(
    client: &C,
    mesh: MeshId,
) -> Result<Vec<LogHole>, JobError> {
    Ok(bounded(found(client, HOLES, mesh).await?))
}

async fn found<C: GenericClient>(
    client: &C,
    sql: &str,
    mesh: MeshId,
) -> Result<Vec<LogHole>, JobError> {
    let rows = query(client, sql, &[&mesh_key(mesh)]).await?;
    let read = |row| {
        let mut columns = Columns::of(row);
        Ok(LogHole {
            after: columns.history_id()?,
            through: columns.history_id()?,
        })
    };
    rows.iter().map(read).collect()
}

pub(super) async fn mend(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    at: HistoryId,
) -> Result<Option<MendedLog>, JobError> {
    let key = mesh_key(mesh);
    exists(transaction, LOCK, &[&key]).await?;
    let place: (i64, i64) = (integer(at.epoch), integer(at.seq));
    if !exists(transaction, BROKEN, &[&key, &place.0, &place.1]).await? {
        return Ok(None);
    }
    let linked = execute(transaction, RELINK, &[&key]).await?;
    execute(transaction, UNLINK, &[&key]).await?;
    let mut lost = found(transaction, CHAIN, mesh).await?;
    lost.extend(found(transaction, LOST_IDS, mesh).await?);
    execute(transaction, FORGET, &[&key]).await?;
    for LogHole { after, through } in bounded(lost) {
        let (after, through) = (
            (integer(after.epoch), integer(after.seq)),
            (integer(through.epoch), integer(through.seq)),
        );
        let cells: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&key, &after.0, &after.1, &through.0, &through.1];
        execute(transaction, NOTE, &cells).await?;
    }
    Ok(Some(MendedLog {
        epoch: history::bump(transaction, mesh).await?,
        found: linked,
        holes: holes(transaction, mesh).await?,
    }))
}
