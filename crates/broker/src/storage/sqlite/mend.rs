//! Mending a log that has lost ops, in SQL: one transaction over the whole log, where a damaged file made it needed.

use heddle_core::ids::{HistoryId, MeshId};
use heddle_core::sync::LogHole;
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::value::RawValue;

use super::super::log::{MendedLog, bounded};
use super::columns::{Columns, integer, mesh_key};
use super::error::JobError;
use super::log;

pub(super) const SCHEMA: &str = "
-- Behind the first place, through the second one: ops were there, and were lost.
CREATE TABLE log_hole (
    mesh_id BLOB NOT NULL REFERENCES mesh (mesh_id),
    after_epoch INTEGER NOT NULL,
    after_seq INTEGER NOT NULL,
    through_epoch INTEGER NOT NULL,
    through_seq INTEGER NOT NULL,
    PRIMARY KEY (mesh_id, after_epoch, after_seq)
) STRICT, WITHOUT ROWID;
";

const HOLES: &str = "
SELECT after_epoch, after_seq, through_epoch, through_seq FROM log_hole WHERE mesh_id = ?1";

const NOTE: &str = "
INSERT INTO log_hole (mesh_id, after_epoch, after_seq, through_epoch, through_seq)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (mesh_id, after_epoch, after_seq) DO UPDATE SET
    through_epoch = excluded.through_epoch, through_seq = excluded.through_seq
WHERE (excluded.through_epoch, excluded.through_seq) > (through_epoch, through_seq)";

const ONE: &str = "
SELECT previous_epoch, previous_seq FROM log_row WHERE mesh_id = ?1 AND epoch = ?2 AND seq = ?3";

// The columns of `log::read`, of the row right before a place.
const BEFORE: &str = "
SELECT l.epoch, l.seq, l.previous_epoch, l.previous_seq, m.sender_member, m.sender_agent,
    m.client_message_id, m.accepted_at, m.envelope
FROM log_row l
LEFT JOIN message m ON m.mesh_id = l.mesh_id AND m.broker_message_id = l.broker_message_id
WHERE l.mesh_id = ?1 AND (l.epoch, l.seq) < (?2, ?3)
ORDER BY l.epoch DESC, l.seq DESC LIMIT 1";

const ALL: &str = "
SELECT l.epoch, l.seq, l.previous_epoch, l.previous_seq, m.sender_member, m.sender_agent,
    m.client_message_id, m.accepted_at, m.envelope
FROM log_row l
LEFT JOIN message m ON m.mesh_id = l.mesh_id AND m.broker_message_id = l.broker_message_id
WHERE l.mesh_id = ?1 ORDER BY l.epoch, l.seq";

// What stood before it is not known: at most the place before its own, which makes whatever is missing there a hole.
const RELINK: &str = "
INSERT INTO log_row (mesh_id, epoch, seq, previous_epoch, previous_seq, broker_message_id)
SELECT h.mesh_id, h.epoch, h.seq, h.epoch, h.seq - 1, h.broker_message_id
FROM message_history h
JOIN message m ON m.mesh_id = h.mesh_id AND m.broker_message_id = h.broker_message_id
WHERE h.mesh_id = ?1 AND m.destination_kind = 'log' AND NOT EXISTS (
    SELECT 1 FROM log_row l WHERE l.mesh_id = h.mesh_id AND l.epoch = h.epoch AND l.seq = h.seq)";

const UNLINK: &str = "DELETE FROM log_row WHERE mesh_id = ?1 AND epoch = ?2 AND seq = ?3";

const PREVIOUS: &str = "
UPDATE log_row SET previous_epoch = ?4, previous_seq = ?5
WHERE mesh_id = ?1 AND epoch = ?2 AND seq = ?3";

// Ids of ops that are in no log, and the op before their place.
const LOST_IDS: &str = "
SELECT d.epoch, d.seq,
    coalesce((SELECT l.epoch FROM log_row l WHERE l.mesh_id = ?1 AND (l.epoch, l.seq) < (d.epoch, d.seq)
        ORDER BY l.epoch DESC, l.seq DESC LIMIT 1), 0),
    coalesce((SELECT l.seq FROM log_row l WHERE l.mesh_id = ?1 AND (l.epoch, l.seq) < (d.epoch, d.seq)
        ORDER BY l.epoch DESC, l.seq DESC LIMIT 1), 0)
FROM client_message_dedupe d
WHERE d.mesh_id = ?1 AND d.destination_kind = 'log' AND NOT EXISTS (
    SELECT 1 FROM log_row l WHERE l.mesh_id = d.mesh_id AND l.epoch = d.epoch AND l.seq = d.seq)";

// As the sweep of ids leaves a place whose id it has forgotten.
const FORGET_PLACES: &str = "
UPDATE message_history SET is_expired = 1 WHERE mesh_id = ?1 AND (epoch, seq) IN (
    SELECT d.epoch, d.seq FROM client_message_dedupe d
    WHERE d.mesh_id = ?1 AND d.destination_kind = 'log' AND NOT EXISTS (
        SELECT 1 FROM log_row l WHERE l.mesh_id = d.mesh_id AND l.epoch = d.epoch AND l.seq = d.seq))";

const FORGET_IDS: &str = "
DELETE FROM client_message_dedupe
WHERE mesh_id = ?1 AND destination_kind = 'log' AND NOT EXISTS (
    SELECT 1 FROM log_row l WHERE l.mesh_id = client_message_dedupe.mesh_id
        AND l.epoch = client_message_dedupe.epoch AND l.seq = client_message_dedupe.seq)";

pub(super) fn holes(connection: &Connection, mesh: MeshId) -> Result<Vec<LogHole>, JobError> {
    let mut statement = connection.prepare_cached(HOLES)?;
    let found = statement.query_map([mesh_key(mesh)], |row| {
        let mut columns = Columns::of(row);
        Ok(LogHole {
            after: columns.history_id()?,
            through: columns.history_id()?,
        })
    })?;
    Ok(bounded(found.collect::<rusqlite::Result<_>>()?))
}

pub(super) fn mend(
    connection: &Connection,
    mesh: MeshId,
    at: HistoryId,
) -> Result<Option<MendedLog>, JobError> {
    if !is_broken(connection, mesh, at)? {
        return Ok(None);
    }
    let key = mesh_key(mesh);
    let linked = connection.prepare(RELINK)?.execute([key])?;
    let (mut holes, unread) = chain(connection, mesh)?;
    let mut lost = connection.prepare(LOST_IDS)?;
    let found = lost.query_map([key], |row| {
        let mut columns = Columns::of(row);
        let through = columns.history_id()?;
        let after = columns.history_id()?;
        Ok(LogHole { after, through })
    })?;
    for hole in found {
        holes.push(hole?);
    }
    connection.prepare(FORGET_PLACES)?.execute([key])?;
    connection.prepare(FORGET_IDS)?.execute([key])?;
    for LogHole { after, through } in bounded(holes) {
        connection.prepare_cached(NOTE)?.execute(params![
            key,
            integer(after.epoch),
            integer(after.seq),
            integer(through.epoch),
            integer(through.seq),
        ])?;
    }
    Ok(Some(MendedLog {
        epoch: log::bump(connection, mesh)?,
        found: u64::try_from(linked).unwrap_or(0).saturating_sub(unread),
        holes: self::holes(connection, mesh)?,
    }))
}

/// Whether the op at this place names one before it that cannot be read here.
fn is_broken(connection: &Connection, mesh: MeshId, at: HistoryId) -> Result<bool, JobError> {
    let place = params![mesh_key(mesh), integer(at.epoch), integer(at.seq)];
    let previous = connection
        .prepare_cached(ONE)?
        .query_row(place, |row| Columns::of(row).history_id())
        .optional()?;
    let mut before = connection.prepare_cached(BEFORE)?;
    let mut rows = before.query(place)?;
    let actual = match rows.next()? {
        None => HistoryId::ZERO,
        Some(row) if is_whole(row) => Columns::of(row).history_id()?,
        Some(_) => return Ok(true),
    };
    Ok(previous.is_some_and(|previous| previous > actual))
}

/// Every op names the one before it that is there; what cannot be read is in the log no more. The holes, and how many
/// were taken out although their message is there.
fn chain(connection: &Connection, mesh: MeshId) -> Result<(Vec<LogHole>, u64), JobError> {
    let key = mesh_key(mesh);
    let (mut holes, mut unread, mut fixes, mut gone) = (Vec::new(), 0, Vec::new(), Vec::new());
    let mut before = HistoryId::ZERO;
    let mut all = connection.prepare(ALL)?;
    let mut rows = all.query([key])?;
    while let Some(row) = rows.next()? {
        let mut columns = Columns::of(row);
        let (at, previous) = (columns.history_id()?, columns.history_id()?);
        if !is_whole(row) {
            unread += u64::from(row.get_ref(4)? != rusqlite::types::ValueRef::Null);
            gone.push(at);
            continue;
        }
        if previous > before {
            holes.push(LogHole {
                after: before,
                through: previous,
            });
            fixes.push((at, before));
        }
        before = at;
    }
    drop(rows);
    for at in gone {
        let place = params![key, integer(at.epoch), integer(at.seq)];
        connection.prepare_cached(UNLINK)?.execute(place)?;
    }
    for (at, before) in fixes {
        connection.prepare_cached(PREVIOUS)?.execute(params![
            key,
            integer(at.epoch),
            integer(at.seq),
            integer(before.epoch),
            integer(before.seq),
        ])?;
    }
    Ok((holes, unread))
}

/// Whether a reader of the log gets it.
fn is_whole(row: &rusqlite::Row<'_>) -> bool {
    let read = log::read(row);
    read.is_ok_and(|op| serde_json::from_str::<&RawValue>(&op.envelope).is_ok())
}
