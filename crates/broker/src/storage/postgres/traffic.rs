//! Counters of traffic, made from the history. For dashboards: no decision reads them (RL-10).

use std::collections::BTreeMap;

use deadpool_postgres::Transaction;
use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, MeshId};

use super::super::upkeep::traffic_hour;
use super::columns::{Columns, integer, mesh_key};
use super::error::JobError;
use super::roster::require_mesh;
use super::sql::{execute, query, query_opt};

/// Messages counted in one transaction.
const COUNT_ROWS_MAX: i64 = 2_000;

const COUNTED: &str = "SELECT epoch, seq FROM rate_limit_counted WHERE mesh_id = $1";

// By LATERAL, as in `accept/facts`.
pub(super) const NEXT: &str = "
SELECT h.epoch, h.seq, m.accepted_at FROM message_history h
LEFT JOIN LATERAL (SELECT b.* FROM message b
    WHERE b.mesh_id = $1 AND b.broker_message_id = h.broker_message_id OFFSET 0) AS m ON TRUE
WHERE h.mesh_id = $1 AND (h.epoch, h.seq) > ($2, $3)
ORDER BY h.epoch, h.seq LIMIT $4";

// A counter that was spoilt is no reason to stop: it is capped, and nobody decides by it.
const ADD: &str = "
INSERT INTO rate_limit_counter (mesh_id, hour, accepted)
SELECT $1, n.* FROM unnest($2::bigint[], $3::bigint[]) AS n
ON CONFLICT (mesh_id, hour) DO UPDATE
SET accepted = least(greatest(rate_limit_counter.accepted, 0), 4611686018427387904) + excluded.accepted";

const KEEP: &str = "
INSERT INTO rate_limit_counted (mesh_id, epoch, seq) VALUES ($1, $2, $3)
ON CONFLICT (mesh_id) DO UPDATE SET epoch = excluded.epoch, seq = excluded.seq";

const HOURS: &str = "
SELECT hour, greatest(accepted, 0) FROM rate_limit_counter WHERE mesh_id = $1 ORDER BY hour";

/// Counts the next messages; 0 when there are no more.
pub(super) async fn count(transaction: &Transaction<'_>, mesh: MeshId) -> Result<u64, JobError> {
    let key = mesh_key(mesh);
    let counted = match query_opt(transaction, COUNTED, &[&key]).await? {
        None => HistoryId::ZERO,
        Some(row) => Columns::of(&row).history_id()?,
    };
    let (epoch, seq) = (integer(counted.epoch), integer(counted.seq));
    let found = query(transaction, NEXT, &[&key, &epoch, &seq, &COUNT_ROWS_MAX]).await?;
    let mut hours: BTreeMap<WallMs, i64> = BTreeMap::new();
    let mut last = None;
    for row in &found {
        let mut columns = Columns::of(row);
        last = Some(columns.history_id()?);
        if let Some(at) = columns.maybe_wall()? {
            *hours.entry(traffic_hour(at)).or_default() += 1;
        }
    }
    let Some(last) = last else {
        return Ok(0);
    };
    let (starts, counts): (Vec<i64>, Vec<i64>) = hours
        .into_iter()
        .map(|(hour, count)| (hour.0, count))
        .unzip();
    execute(transaction, ADD, &[&key, &starts, &counts]).await?;
    let (epoch, seq) = (integer(last.epoch), integer(last.seq));
    execute(transaction, KEEP, &[&key, &epoch, &seq]).await?;
    Ok(u64::try_from(found.len()).unwrap_or(u64::MAX))
}

pub(super) async fn read(
    transaction: &Transaction<'_>,
    mesh: MeshId,
) -> Result<Vec<(WallMs, u64)>, JobError> {
    require_mesh(transaction, mesh).await?;
    let found = query(transaction, HOURS, &[&mesh_key(mesh)]).await?;
    found
        .iter()
        .map(|row| {
            let mut columns = Columns::of(row);
            Ok((columns.wall()?, columns.number()?))
        })
        .collect()
}
