//! Counters of traffic, made from the history. For dashboards: no decision reads them (RL-10).

use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, MeshId};
use rusqlite::{Connection, OptionalExtension, params};

use super::super::upkeep::traffic_hour;
use super::columns::{Columns, integer, mesh_key};

/// Messages counted in one transaction.
const COUNT_ROWS_MAX: usize = 2_000;

const COUNTED: &str = "SELECT epoch, seq FROM rate_limit_counted WHERE mesh_id = ?1";

const NEXT: &str = "
SELECT h.epoch, h.seq, m.accepted_at FROM message_history h
LEFT JOIN message m ON m.mesh_id = h.mesh_id AND m.broker_message_id = h.broker_message_id
WHERE h.mesh_id = ?1 AND (h.epoch, h.seq) > (?2, ?3)
ORDER BY h.epoch, h.seq LIMIT ?4";

// A counter that was spoilt is no reason to stop: it is capped, and nobody decides by it.
const ADD: &str = "
INSERT INTO rate_limit_counter (mesh_id, hour, accepted) VALUES (?1, ?2, 1)
ON CONFLICT (mesh_id, hour) DO UPDATE SET accepted = min(max(accepted, 0), 4611686018427387904) + 1";

const KEEP: &str = "
INSERT INTO rate_limit_counted (mesh_id, epoch, seq) VALUES (?1, ?2, ?3)
ON CONFLICT (mesh_id) DO UPDATE SET epoch = excluded.epoch, seq = excluded.seq";

const HOURS: &str = "
SELECT hour, max(accepted, 0) FROM rate_limit_counter WHERE mesh_id = ?1 ORDER BY hour";

/// Counts the next messages; 0 when there are no more.
pub(super) fn count(connection: &Connection, mesh: MeshId) -> rusqlite::Result<u64> {
    let counted = connection
        .prepare_cached(COUNTED)?
        .query_row([mesh_key(mesh)], |row| Columns::of(row).history_id())
        .optional()?
        .unwrap_or(HistoryId::ZERO);
    let (epoch, seq) = (integer(counted.epoch), integer(counted.seq));
    let limit = super::upkeep::rows(COUNT_ROWS_MAX);
    let next = connection
        .prepare_cached(NEXT)?
        .query_map(params![mesh_key(mesh), epoch, seq, limit], |row| {
            let mut columns = Columns::of(row);
            Ok((columns.history_id()?, columns.maybe_wall()?))
        })?
        .collect::<rusqlite::Result<Vec<(HistoryId, Option<WallMs>)>>>()?;
    let mut add = connection.prepare_cached(ADD)?;
    for at in next.iter().filter_map(|(_, at)| *at) {
        add.execute(params![mesh_key(mesh), traffic_hour(at).0])?;
    }
    if let Some((last, _)) = next.last() {
        let place = params![mesh_key(mesh), integer(last.epoch), integer(last.seq)];
        connection.prepare_cached(KEEP)?.execute(place)?;
    }
    Ok(u64::try_from(next.len()).unwrap_or(u64::MAX))
}

pub(super) fn read(connection: &Connection, mesh: MeshId) -> rusqlite::Result<Vec<(WallMs, u64)>> {
    connection
        .prepare_cached(HOURS)?
        .query_map([mesh_key(mesh)], |row| {
            let mut columns = Columns::of(row);
            Ok((columns.wall()?, columns.number()?))
        })?
        .collect()
}
