//! Mending a log that has lost ops, in SQL, where a damaged file made it needed: piece by piece through the whole log, each in
//! a transaction of its own, so that nobody else waits for all of it. Every piece may be done twice.

use heddle_core::ids::{HistoryId, MeshId};
use heddle_core::limits::LOG_HOLES_MAX;
use heddle_core::sync::LogHole;
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::value::RawValue;

use super::super::log::{MEND_ROWS, Mended, MendedLog, Mending, Piece, bounded};
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

// A place that was given out, that somebody knows for an op, and that is in the log no more. One in a hole is known; one
// whose message is of another kind, or was swept (ops never are), is no op's.
const MISSED: &str = "
SELECT 1 FROM mesh WHERE mesh_id = ?1 AND (
    (epoch = ?2 AND next_seq > ?3)
    OR EXISTS (SELECT 1 FROM message_history WHERE mesh_id = ?1 AND epoch = ?2 AND seq >= ?3))
  AND NOT EXISTS (SELECT 1 FROM log_row l
    JOIN message m ON m.mesh_id = l.mesh_id AND m.broker_message_id = l.broker_message_id
    WHERE l.mesh_id = ?1 AND l.epoch = ?2 AND l.seq = ?3)
  AND NOT EXISTS (SELECT 1 FROM log_hole WHERE mesh_id = ?1
    AND (after_epoch, after_seq) < (?2, ?3) AND (through_epoch, through_seq) >= (?2, ?3))
  AND NOT EXISTS (SELECT 1 FROM message_history h
    LEFT JOIN message m ON m.mesh_id = h.mesh_id AND m.broker_message_id = h.broker_message_id
    WHERE h.mesh_id = ?1 AND h.epoch = ?2 AND h.seq = ?3
      AND (h.is_expired = 1 OR m.destination_kind <> 'log'))";

const LAST_BEFORE: &str = "
SELECT epoch, seq FROM log_row WHERE mesh_id = ?1 AND (epoch, seq) < (?2, ?3)
ORDER BY epoch DESC, seq DESC LIMIT 1";

/// For the test that looks at their plans.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[MISSED, LAST_BEFORE, ROWS, PLACES, IDS, EXPIRE, FORGET];

// The columns of `log::read`, of the row right before a place.
const BEFORE: &str = "
SELECT l.epoch, l.seq, l.previous_epoch, l.previous_seq, m.sender_member, m.sender_agent,
    m.client_message_id, m.accepted_at, m.envelope
FROM log_row l
LEFT JOIN message m ON m.mesh_id = l.mesh_id AND m.broker_message_id = l.broker_message_id
WHERE l.mesh_id = ?1 AND (l.epoch, l.seq) < (?2, ?3)
ORDER BY l.epoch DESC, l.seq DESC LIMIT 1";

const ROWS: &str = "
SELECT l.epoch, l.seq, l.previous_epoch, l.previous_seq, m.sender_member, m.sender_agent,
    m.client_message_id, m.accepted_at, m.envelope
FROM log_row l
LEFT JOIN message m ON m.mesh_id = l.mesh_id AND m.broker_message_id = l.broker_message_id
WHERE l.mesh_id = ?1 AND (l.epoch, l.seq) > (?2, ?3) ORDER BY l.epoch, l.seq LIMIT ?4";

const PLACES: &str = "
SELECT epoch, seq FROM message_history WHERE mesh_id = ?1 AND (epoch, seq) > (?2, ?3)
ORDER BY epoch, seq LIMIT ?4";

// What stood before it is not known: at most the place before its own, which makes whatever is missing there a hole.
const RELINK: &str = "
INSERT INTO log_row (mesh_id, epoch, seq, previous_epoch, previous_seq, broker_message_id)
SELECT h.mesh_id, h.epoch, h.seq, h.epoch, h.seq - 1, h.broker_message_id
FROM message_history h
JOIN message m ON m.mesh_id = h.mesh_id AND m.broker_message_id = h.broker_message_id
WHERE h.mesh_id = ?1 AND (h.epoch, h.seq) > (?2, ?3) AND (h.epoch, h.seq) <= (?4, ?5)
  AND m.destination_kind = 'log' AND NOT EXISTS (
    SELECT 1 FROM log_row l WHERE l.mesh_id = h.mesh_id AND l.epoch = h.epoch AND l.seq = h.seq)";

const UNLINK: &str = "DELETE FROM log_row WHERE mesh_id = ?1 AND epoch = ?2 AND seq = ?3";

const PREVIOUS: &str = "
UPDATE log_row SET previous_epoch = ?4, previous_seq = ?5
WHERE mesh_id = ?1 AND epoch = ?2 AND seq = ?3";

// Ids, each with its place and whether it is that of an op that is in no log.
const IDS: &str = "
SELECT d.epoch, d.seq, d.destination_kind = 'log' AND NOT EXISTS (
    SELECT 1 FROM log_row l WHERE l.mesh_id = d.mesh_id AND l.epoch = d.epoch AND l.seq = d.seq), d.id_key
FROM client_message_dedupe d WHERE d.mesh_id = ?1 AND d.id_key > ?2 ORDER BY d.id_key LIMIT ?3";

// As the sweep of ids leaves a place whose id it has forgotten.
const EXPIRE: &str = "
UPDATE message_history SET is_expired = 1 WHERE mesh_id = ?1 AND epoch = ?2 AND seq = ?3";

const FORGET: &str = "DELETE FROM client_message_dedupe WHERE mesh_id = ?1 AND id_key = ?2";

const FORGET_HOLES: &str = "DELETE FROM log_hole WHERE mesh_id = ?1";

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

/// One piece of a mend, in a transaction of its own.
pub(super) fn piece(
    connection: &Connection,
    mesh: MeshId,
    mut mending: Mending,
) -> Result<Mended, JobError> {
    let running = log::epoch(connection, mesh)?;
    if mending.piece == Piece::First {
        mending.is_missed = misses(connection, mesh, mending.at)?;
        if !mending.is_missed && !is_broken(connection, mesh, mending.at)? {
            return Ok(Mended::Not);
        }
        mending.epoch = running;
    } else if mending.epoch != running {
        // Another reader was faster.
        return Ok(Mended::Not);
    }
    match mending.piece.clone() {
        Piece::First => mending.piece = Piece::Links(HistoryId::ZERO),
        Piece::Links(after) => links(connection, mesh, (after, &mut mending))?,
        Piece::Chain(after) => chain(connection, mesh, (after, &mut mending))?,
        Piece::Ids(after) => ids(connection, mesh, (&after, &mut mending))?,
        Piece::Last => return last(connection, mesh, &mending).map(Mended::Done),
    }
    Ok(Mended::More(mending))
}

/// Ops whose messages are there come back into the log.
fn links(
    connection: &Connection,
    mesh: MeshId,
    (after, mending): (HistoryId, &mut Mending),
) -> Result<(), JobError> {
    let (key, from) = (mesh_key(mesh), (integer(after.epoch), integer(after.seq)));
    let mut places = connection.prepare_cached(PLACES)?;
    let places = places.query_map(params![key, from.0, from.1, MEND_ROWS], |row| {
        Columns::of(row).history_id()
    })?;
    let places: Vec<HistoryId> = places.collect::<rusqlite::Result<_>>()?;
    let Some(through) = places.last() else {
        mending.piece = Piece::Chain(HistoryId::ZERO);
        return Ok(());
    };
    let linked = connection.prepare_cached(RELINK)?.execute(params![
        key,
        from.0,
        from.1,
        integer(through.epoch),
        integer(through.seq),
    ])?;
    mending.found += u64::try_from(linked).unwrap_or(0);
    mending.piece = Piece::Links(*through);
    Ok(())
}

/// Every op names the one before it that is there; what cannot be read is in the log no more. The op by which all this was
/// found stays as it is until the end.
fn chain(
    connection: &Connection,
    mesh: MeshId,
    (after, mending): (HistoryId, &mut Mending),
) -> Result<(), JobError> {
    let (key, from) = (mesh_key(mesh), (integer(after.epoch), integer(after.seq)));
    let (mut fixes, mut gone) = (Vec::new(), Vec::new());
    let mut before = last_through(connection, mesh, after)?;
    let mut reached = None;
    let mut some = connection.prepare_cached(ROWS)?;
    let mut rows = some.query(params![key, from.0, from.1, MEND_ROWS])?;
    while let Some(row) = rows.next()? {
        let mut columns = Columns::of(row);
        let (at, previous) = (columns.history_id()?, columns.history_id()?);
        reached = Some(at);
        if !is_whole(row) {
            let has_message = row.get_ref(4)? != rusqlite::types::ValueRef::Null;
            mending.found = mending.found.saturating_sub(u64::from(has_message));
            gone.push(at);
            continue;
        }
        if previous > before && at != mending.at {
            fixes.push((at, before, previous));
        }
        before = at;
    }
    drop(rows);
    for at in gone {
        let place = params![key, integer(at.epoch), integer(at.seq)];
        connection.prepare_cached(UNLINK)?.execute(place)?;
    }
    for (at, after, through) in fixes {
        name(connection, mesh, (at, after))?;
        note(connection, mesh, LogHole { after, through })?;
    }
    mending.piece = reached.map_or_else(|| Piece::Ids(Vec::new()), Piece::Chain);
    Ok(())
}

/// Ids of ops that are in no log are new to B0; but for that of the op by which all this was found.
fn ids(
    connection: &Connection,
    mesh: MeshId,
    (after, mending): (&[u8], &mut Mending),
) -> Result<(), JobError> {
    let mut some = connection.prepare_cached(IDS)?;
    let found = some.query_map(params![mesh_key(mesh), after, MEND_ROWS], |row| {
        let mut columns = Columns::of(row);
        Ok((
            columns.history_id()?,
            columns.flag()?,
            row.get::<_, Vec<u8>>(3)?,
        ))
    })?;
    let found: Vec<_> = found.collect::<rusqlite::Result<_>>()?;
    let Some((.., reached)) = found.last() else {
        mending.piece = Piece::Last;
        return Ok(());
    };
    mending.piece = Piece::Ids(reached.clone());
    for (at, is_lost, id) in found {
        if is_lost && at == mending.at {
            mending.own_id = Some(id);
        } else if is_lost {
            lose(connection, mesh, (at, &id))?;
        }
    }
    Ok(())
}

/// An op that is in no log: its place is in a hole, and its id is free.
fn lose(
    connection: &Connection,
    mesh: MeshId,
    (at, id): (HistoryId, &[u8]),
) -> Result<(), JobError> {
    let (key, place) = (mesh_key(mesh), (integer(at.epoch), integer(at.seq)));
    let after = last_before(connection, mesh, at)?;
    note(connection, mesh, LogHole { after, through: at })?;
    let mut expire = connection.prepare_cached(EXPIRE)?;
    expire.execute(params![key, place.0, place.1])?;
    let mut forget = connection.prepare_cached(FORGET)?;
    forget.execute(params![key, id])?;
    Ok(())
}

/// IMPORTANT: what all this was found by is mended together with the epoch that tells the homes of it. Whoever is killed
/// before leaves it as it was, and the next reader begins anew.
fn last(connection: &Connection, mesh: MeshId, mending: &Mending) -> Result<MendedLog, JobError> {
    let at = mending.at;
    let after = last_before(connection, mesh, at)?;
    match previous(connection, mesh, at)? {
        Some(previous) if previous > after => {
            name(connection, mesh, (at, after))?;
            let through = previous;
            note(connection, mesh, LogHole { after, through })?;
        }
        None if mending.is_missed => {
            note(connection, mesh, LogHole { after, through: at })?;
        }
        _ => {}
    }
    if let Some(id) = &mending.own_id {
        lose(connection, mesh, (at, id))?;
    }
    let holes = holes(connection, mesh)?;
    if holes.len() == LOG_HOLES_MAX {
        let mut forget = connection.prepare_cached(FORGET_HOLES)?;
        forget.execute([mesh_key(mesh)])?;
        for hole in &holes {
            note(connection, mesh, *hole)?;
        }
    }
    Ok(MendedLog {
        epoch: log::bump(connection, mesh)?,
        found: mending.found,
        holes,
    })
}

fn note(connection: &Connection, mesh: MeshId, hole: LogHole) -> Result<(), JobError> {
    connection.prepare_cached(NOTE)?.execute(params![
        mesh_key(mesh),
        integer(hole.after.epoch),
        integer(hole.after.seq),
        integer(hole.through.epoch),
        integer(hole.through.seq),
    ])?;
    Ok(())
}

/// From now on the op at the first place names the one at the second.
fn name(
    connection: &Connection,
    mesh: MeshId,
    (at, before): (HistoryId, HistoryId),
) -> Result<(), JobError> {
    connection.prepare_cached(PREVIOUS)?.execute(params![
        mesh_key(mesh),
        integer(at.epoch),
        integer(at.seq),
        integer(before.epoch),
        integer(before.seq),
    ])?;
    Ok(())
}

/// The last op before this place, or the beginning.
fn last_before(
    connection: &Connection,
    mesh: MeshId,
    at: HistoryId,
) -> Result<HistoryId, JobError> {
    let place = params![mesh_key(mesh), integer(at.epoch), integer(at.seq)];
    let last = connection
        .prepare_cached(LAST_BEFORE)?
        .query_row(place, |row| Columns::of(row).history_id())
        .optional()?;
    Ok(last.unwrap_or(HistoryId::ZERO))
}

/// The same, with this place.
fn last_through(
    connection: &Connection,
    mesh: MeshId,
    at: HistoryId,
) -> Result<HistoryId, JobError> {
    let next = HistoryId {
        seq: at.seq.saturating_add(1),
        ..at
    };
    last_before(connection, mesh, next)
}

/// The op that the one at this place names; none where there is none.
fn previous(
    connection: &Connection,
    mesh: MeshId,
    at: HistoryId,
) -> Result<Option<HistoryId>, JobError> {
    let place = params![mesh_key(mesh), integer(at.epoch), integer(at.seq)];
    Ok(connection
        .prepare_cached(ONE)?
        .query_row(place, |row| Columns::of(row).history_id())
        .optional()?)
}

/// Whether the log has lost the op that was at this place.
pub(super) fn misses(
    connection: &Connection,
    mesh: MeshId,
    at: HistoryId,
) -> Result<bool, JobError> {
    let place = params![mesh_key(mesh), integer(at.epoch), integer(at.seq)];
    Ok(connection.prepare_cached(MISSED)?.exists(place)?)
}

/// Whether the op at this place names one before it that cannot be read here.
fn is_broken(connection: &Connection, mesh: MeshId, at: HistoryId) -> Result<bool, JobError> {
    let place = params![mesh_key(mesh), integer(at.epoch), integer(at.seq)];
    let mut before = connection.prepare_cached(BEFORE)?;
    let mut rows = before.query(place)?;
    let actual = match rows.next()? {
        None => HistoryId::ZERO,
        Some(row) if is_whole(row) => Columns::of(row).history_id()?,
        Some(_) => return Ok(true),
    };
    Ok(previous(connection, mesh, at)?.is_some_and(|previous| previous > actual))
}

/// Whether a reader of the log gets it.
fn is_whole(row: &rusqlite::Row<'_>) -> bool {
    let read = log::read(row);
    read.is_ok_and(|op| serde_json::from_str::<&RawValue>(&op.envelope).is_ok())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::storage::{Log as _, Upkeep as _};
    use crate::test_support::{Gate, mesh, sqlite};

    /// What it was found by is mended last, with the epoch that tells the homes: killed behind any piece, it is done anew.
    #[tokio::test]
    async fn lf_15_a_mend_that_is_killed_behind_any_piece_is_done_by_the_next_reader() {
        let lost = "DELETE FROM message WHERE client_message_id = '2' OR client_message_id = '3';
            DELETE FROM log_row WHERE seq = 7;";
        let at = HistoryId { epoch: 1, seq: 4 };
        for pieces in 0.. {
            let disk = sqlite();
            let gate = Gate::open(Arc::new(disk.storage.clone())).await;
            gate.subscribe_all(&["a/one"]).await;
            for number in 1..=8 {
                gate.send("a/one", &number.to_string(), "log:ops", "{}")
                    .await;
            }
            disk.storage.batch(lost.to_owned()).await;
            let (mut mending, mut is_done) = (Mending::at(at), false);
            for _ in 0..pieces {
                let next = mending.clone();
                let done = disk
                    .storage
                    .write(mesh(1), move |c| piece(c, mesh(1), next));
                match done.await.unwrap() {
                    Mended::More(next) => mending = next,
                    Mended::Done(_) => is_done = true,
                    Mended::Not => panic!("{pieces}"),
                }
            }
            let again = disk.storage.mend_log(mesh(1), at).await.unwrap();
            assert_eq!(again.is_none(), is_done, "{pieces}: {again:?}");
            let epochs = disk.storage.epochs(mesh(1)).await.unwrap();
            let hole = LogHole {
                after: HistoryId { epoch: 1, seq: 1 },
                through: HistoryId { epoch: 1, seq: 3 },
            };
            assert_eq!((epochs.epoch, epochs.holes), (2, vec![hole]), "{pieces}");
            let orphans = disk.storage.orphan_check(mesh(1)).await.unwrap();
            assert_eq!(orphans, [], "{pieces}");
            if is_done {
                assert!(pieces > 8, "more than one piece each: {pieces}");
                break;
            }
        }
    }
}
