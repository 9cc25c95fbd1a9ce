//! Mending a log that has lost ops, in SQL, where a damaged database made it needed: piece by piece through the whole log, each
//! in a transaction of its own, so that nobody else waits for all of it. Every piece may be done twice.

use deadpool_postgres::{GenericClient, Transaction};
use heddle_core::ids::{HistoryId, MeshId};
use heddle_core::limits::LOG_HOLES_MAX;
use heddle_core::sync::LogHole;

use super::super::log::{MEND_ROWS, Mended, MendedLog, Mending, Piece, bounded};
use super::columns::{Columns, integer, mesh_key};
use super::error::JobError;
use super::history;
use super::sql::{Params, execute, exists, query, query_opt};

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

// A place that was given out, that somebody knows for an op, and that is in the log no more. One in a hole is known; one
// whose message is of another kind, or was swept (ops never are), is no op's.
const MISSED: &str = "
SELECT 1 FROM mesh WHERE mesh_id = $1 AND (
    (epoch = $2 AND next_seq > $3)
    OR EXISTS (SELECT 1 FROM message_history WHERE mesh_id = $1 AND epoch = $2 AND seq >= $3))
  AND NOT EXISTS (SELECT 1 FROM log_row l
    JOIN message m ON m.mesh_id = l.mesh_id AND m.broker_message_id = l.broker_message_id
    WHERE l.mesh_id = $1 AND l.epoch = $2 AND l.seq = $3)
  AND NOT EXISTS (SELECT 1 FROM log_hole WHERE mesh_id = $1
    AND (after_epoch, after_seq) < ($2, $3) AND (through_epoch, through_seq) >= ($2, $3))
  AND NOT EXISTS (SELECT 1 FROM message_history h
    LEFT JOIN message m ON m.mesh_id = h.mesh_id AND m.broker_message_id = h.broker_message_id
    WHERE h.mesh_id = $1 AND h.epoch = $2 AND h.seq = $3
      AND (h.is_expired OR m.destination_kind <> 'log'))";

const LAST_BEFORE: &str = "
SELECT epoch, seq FROM log_row WHERE mesh_id = $1 AND (epoch, seq) < ($2, $3)
ORDER BY epoch DESC, seq DESC LIMIT 1";

const PLACES: &str = "
SELECT epoch, seq FROM message_history WHERE mesh_id = $1 AND (epoch, seq) > ($2, $3)
ORDER BY epoch, seq LIMIT $4";

// What stood before it is not known: at most the place before its own, which makes whatever is missing there a hole.
const RELINK: &str = "
INSERT INTO log_row (mesh_id, epoch, seq, previous_epoch, previous_seq, broker_message_id)
SELECT h.mesh_id, h.epoch, h.seq, h.epoch, h.seq - 1, h.broker_message_id
FROM message_history h
JOIN message m ON m.mesh_id = h.mesh_id AND m.broker_message_id = h.broker_message_id
WHERE h.mesh_id = $1 AND (h.epoch, h.seq) > ($2, $3) AND (h.epoch, h.seq) <= ($4, $5)
  AND m.destination_kind = 'log' AND NOT EXISTS (
    SELECT 1 FROM log_row l WHERE l.mesh_id = h.mesh_id AND l.epoch = h.epoch AND l.seq = h.seq)";

const ROWS: &str = "
SELECT l.epoch, l.seq, l.previous_epoch, l.previous_seq, EXISTS (
    SELECT 1 FROM message m WHERE m.mesh_id = l.mesh_id AND m.broker_message_id = l.broker_message_id)
FROM log_row l WHERE l.mesh_id = $1 AND (l.epoch, l.seq) > ($2, $3) ORDER BY l.epoch, l.seq LIMIT $4";

const ONE: &str = "
SELECT previous_epoch, previous_seq FROM log_row WHERE mesh_id = $1 AND epoch = $2 AND seq = $3";

const UNLINK: &str = "DELETE FROM log_row WHERE mesh_id = $1 AND epoch = $2 AND seq = $3";

const PREVIOUS: &str = "
UPDATE log_row SET previous_epoch = $4, previous_seq = $5 WHERE mesh_id = $1 AND epoch = $2 AND seq = $3";

// Ids, each with its place and whether it is that of an op that is in no log.
const IDS: &str = "
SELECT d.epoch, d.seq, d.destination_kind = 'log' AND NOT EXISTS (
    SELECT 1 FROM log_row l WHERE l.mesh_id = d.mesh_id AND l.epoch = d.epoch AND l.seq = d.seq), d.id_key
FROM client_message_dedupe d WHERE d.mesh_id = $1 AND d.id_key > $2 ORDER BY d.id_key LIMIT $3";

// A place whose id is forgotten is as the sweep of ids leaves it.
const EXPIRE: &str = "
UPDATE message_history SET is_expired = TRUE WHERE mesh_id = $1 AND epoch = $2 AND seq = $3";

const FORGET: &str = "DELETE FROM client_message_dedupe WHERE mesh_id = $1 AND id_key = $2";

const FORGET_HOLES: &str = "DELETE FROM log_hole WHERE mesh_id = $1";

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

/// Whether the log has lost the op that was at this place.
pub(super) async fn misses(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    at: HistoryId,
) -> Result<bool, JobError> {
    let (key, epoch, seq) = (mesh_key(mesh), integer(at.epoch), integer(at.seq));
    exists(transaction, MISSED, &[&key, &epoch, &seq]).await
}

/// One piece of a mend, in a transaction of its own.
pub(super) async fn piece(
    tx: &Transaction<'_>,
    mesh: MeshId,
    mut mending: Mending,
) -> Result<Mended, JobError> {
    exists(tx, LOCK, &[&mesh_key(mesh)]).await?;
    let running = history::epoch(tx, mesh).await?;
    if mending.piece == Piece::First {
        mending.is_missed = misses(tx, mesh, mending.at).await?;
        if !mending.is_missed && !is_broken(tx, mesh, mending.at).await? {
            return Ok(Mended::Not);
        }
        mending.epoch = running;
    } else if mending.epoch != running {
        // Another reader was faster, at this broker or another one.
        return Ok(Mended::Not);
    }
    match mending.piece.clone() {
        Piece::First => mending.piece = Piece::Links(HistoryId::ZERO),
        Piece::Links(after) => links(tx, mesh, (after, &mut mending)).await?,
        Piece::Chain(after) => chain(tx, mesh, (after, &mut mending)).await?,
        Piece::Ids(after) => ids(tx, mesh, (after, &mut mending)).await?,
        Piece::Last => return Ok(Mended::Done(last(tx, mesh, &mending).await?)),
    }
    Ok(Mended::More(mending))
}

async fn is_broken(tx: &Transaction<'_>, mesh: MeshId, at: HistoryId) -> Result<bool, JobError> {
    let (key, epoch, seq) = (mesh_key(mesh), integer(at.epoch), integer(at.seq));
    exists(tx, BROKEN, &[&key, &epoch, &seq]).await
}

/// Ops whose messages are there come back into the log.
async fn links(
    tx: &Transaction<'_>,
    mesh: MeshId,
    (after, mending): (HistoryId, &mut Mending),
) -> Result<(), JobError> {
    let (key, from) = (mesh_key(mesh), (integer(after.epoch), integer(after.seq)));
    let places = query(tx, PLACES, &[&key, &from.0, &from.1, &MEND_ROWS]).await?;
    let Some(through) = places.last() else {
        mending.piece = Piece::Chain(HistoryId::ZERO);
        return Ok(());
    };
    let through = Columns::of(through).history_id()?;
    let last = (integer(through.epoch), integer(through.seq));
    let with: Params<'_> = &[&key, &from.0, &from.1, &last.0, &last.1];
    mending.found += execute(tx, RELINK, with).await?;
    mending.piece = Piece::Links(through);
    Ok(())
}

/// Every op names the one before it that is there. The op by which all this was found stays as it is until the end.
async fn chain(
    tx: &Transaction<'_>,
    mesh: MeshId,
    (after, mending): (HistoryId, &mut Mending),
) -> Result<(), JobError> {
    let (key, from) = (mesh_key(mesh), (integer(after.epoch), integer(after.seq)));
    let next = HistoryId {
        seq: after.seq.saturating_add(1),
        ..after
    };
    let mut before = last_before(tx, mesh, next).await?;
    let rows = query(tx, ROWS, &[&key, &from.0, &from.1, &MEND_ROWS]).await?;
    mending.piece = Piece::Ids(Vec::new());
    for row in &rows {
        let mut columns = Columns::of(row);
        let (at, previous) = (columns.history_id()?, columns.history_id()?);
        mending.piece = Piece::Chain(at);
        if !columns.flag()? {
            let place = (integer(at.epoch), integer(at.seq));
            execute(tx, UNLINK, &[&key, &place.0, &place.1]).await?;
            continue;
        }
        if previous > before && at != mending.at {
            name(tx, mesh, (at, before)).await?;
            let hole = LogHole {
                after: before,
                through: previous,
            };
            note(tx, mesh, hole).await?;
        }
        before = at;
    }
    Ok(())
}

/// Ids of ops that are in no log are new to B0; but for that of the op by which all this was found.
async fn ids(
    tx: &Transaction<'_>,
    mesh: MeshId,
    (after, mending): (Vec<u8>, &mut Mending),
) -> Result<(), JobError> {
    let found = query(tx, IDS, &[&mesh_key(mesh), &after, &MEND_ROWS]).await?;
    mending.piece = Piece::Last;
    for row in &found {
        let mut columns = Columns::of(row);
        let (at, is_lost) = (columns.history_id()?, columns.flag()?);
        let id: Vec<u8> = columns.plain()?;
        mending.piece = Piece::Ids(id.clone());
        if is_lost && at == mending.at {
            mending.own_id = Some(id);
        } else if is_lost {
            lose(tx, mesh, (at, &id)).await?;
        }
    }
    Ok(())
}

/// An op that is in no log: its place is in a hole, and its id is free.
async fn lose(
    tx: &Transaction<'_>,
    mesh: MeshId,
    (at, id): (HistoryId, &Vec<u8>),
) -> Result<(), JobError> {
    let (key, place) = (mesh_key(mesh), (integer(at.epoch), integer(at.seq)));
    let after = last_before(tx, mesh, at).await?;
    note(tx, mesh, LogHole { after, through: at }).await?;
    execute(tx, EXPIRE, &[&key, &place.0, &place.1]).await?;
    execute(tx, FORGET, &[&key, id]).await?;
    Ok(())
}

/// IMPORTANT: what all this was found by is mended together with the epoch that tells the homes of it. Whoever is killed
/// before leaves it as it was, and the next reader begins anew.
async fn last(
    tx: &Transaction<'_>,
    mesh: MeshId,
    mending: &Mending,
) -> Result<MendedLog, JobError> {
    let (key, at) = (mesh_key(mesh), mending.at);
    let place = (integer(at.epoch), integer(at.seq));
    let after = last_before(tx, mesh, at).await?;
    let own = query_opt(tx, ONE, &[&key, &place.0, &place.1]).await?;
    let previous = own.map(|row| Columns::of(&row).history_id()).transpose()?;
    match previous {
        Some(through) if through > after => {
            name(tx, mesh, (at, after)).await?;
            note(tx, mesh, LogHole { after, through }).await?;
        }
        None if mending.is_missed => {
            note(tx, mesh, LogHole { after, through: at }).await?;
        }
        _ => {}
    }
    if let Some(id) = &mending.own_id {
        lose(tx, mesh, (at, id)).await?;
    }
    let holes = holes(tx, mesh).await?;
    if holes.len() == LOG_HOLES_MAX {
        execute(tx, FORGET_HOLES, &[&key]).await?;
        for hole in &holes {
            note(tx, mesh, *hole).await?;
        }
    }
    Ok(MendedLog {
        epoch: history::bump(tx, mesh).await?,
        found: mending.found,
        holes,
    })
}

async fn note(tx: &Transaction<'_>, mesh: MeshId, hole: LogHole) -> Result<(), JobError> {
    let (key, after) = (
        mesh_key(mesh),
        (integer(hole.after.epoch), integer(hole.after.seq)),
    );
    let through = (integer(hole.through.epoch), integer(hole.through.seq));
    let cells: Params<'_> = &[&key, &after.0, &after.1, &through.0, &through.1];
    execute(tx, NOTE, cells).await?;
    Ok(())
}

/// From now on the op at the first place names the one at the second.
async fn name(
    tx: &Transaction<'_>,
    mesh: MeshId,
    (at, before): (HistoryId, HistoryId),
) -> Result<(), JobError> {
    let (key, place) = (mesh_key(mesh), (integer(at.epoch), integer(at.seq)));
    let before = (integer(before.epoch), integer(before.seq));
    let cells: Params<'_> = &[&key, &place.0, &place.1, &before.0, &before.1];
    execute(tx, PREVIOUS, cells).await?;
    Ok(())
}

/// The last op before this place, or the beginning.
async fn last_before(
    tx: &Transaction<'_>,
    mesh: MeshId,
    at: HistoryId,
) -> Result<HistoryId, JobError> {
    let (key, epoch, seq) = (mesh_key(mesh), integer(at.epoch), integer(at.seq));
    let last = query_opt(tx, LAST_BEFORE, &[&key, &epoch, &seq]).await?;
    let last = last.map(|row| Columns::of(&row).history_id()).transpose()?;
    Ok(last.unwrap_or(HistoryId::ZERO))
}
