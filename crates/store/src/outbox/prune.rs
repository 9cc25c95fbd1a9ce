//! Prune: gives the bytes of payloads back and nothing else. Ids, fingerprints, states and chains stay
//! for ever (C33, OB-10). Dead rows can be retired besides, where an operator says so: they are aborted then,
//! without a successor, and their ids stay taken.
//!
//! The pages that become free are used again by later writes; the file itself does not shrink. `usage`
//! therefore counts the pages in use.

use std::collections::BTreeMap;

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use heddle_core::limits::PRUNE_LOOK_MAX;
use heddle_core::outbox_status::OutboxStatus;
use rusqlite::{Row, params};
use ulid::Ulid;

use crate::error::StoreError;
use crate::store::Store;

/// Which rows give up their payloads. Rows that still need theirs are never among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PruneFilter {
    /// Of `done`, `dead` and `aborted`; others are ignored.
    pub statuses: Vec<OutboxStatus>,
    /// Accepted before this time.
    pub before: WallMs,
    /// Also rows that have no payload any more.
    pub with_empty: bool,
}

/// A stretch of the outbox, looked through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PruneLook {
    /// Rows with a payload to give up, and its bytes, in order of arrival.
    pub rows: Vec<(i64, usize)>,
    /// Where the next stretch begins; `None` at the end.
    pub next: Option<i64>,
}

/// Bytes of the store's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub used_bytes: u64,
    pub spare_bytes: u64,
}

pub(crate) const LOOK: &str = "
    SELECT arrival, length(payload) FROM outbox
    WHERE arrival > ?1 AND arrival <= ?2 AND (?7 OR length(payload) > 0) AND enqueued_at < ?3
        AND ((?4 AND status = 'done') OR (?5 AND status = 'dead') OR (?6 AND status = 'aborted'))
    ORDER BY arrival";

// The state is asked again: what was looked up may have moved since. What the broker has lost is needed once more.
pub(crate) const EMPTY: &str = "
    UPDATE outbox SET payload = x'' WHERE arrival = ?1 AND length(payload) > 0
        AND (status = 'done' OR status = 'dead' OR status = 'aborted')
        AND NOT EXISTS (SELECT 1 FROM outbox_lost WHERE outbox_lost.arrival = outbox.arrival
            AND (state = 'waiting' OR state = 'held' OR state = 'refused'))";

pub(crate) const RETIRE: &str = "
    UPDATE outbox SET status = 'aborted', aborted_at = ?2, aborted_by = ?3, payload = x''
    WHERE arrival = ?1 AND status = 'dead'";

// The length of a blob stands in the head of its row: its pages are not read.
pub(crate) const PAYLOAD_BYTES: &str = "
    SELECT max(arrival), mesh_id, sum(length(payload))
    FROM (SELECT arrival, mesh_id, payload FROM outbox WHERE arrival > ?1 ORDER BY arrival LIMIT 5000)
    GROUP BY mesh_id";

// A prune would give something back. Delivered rows are given back under pressure without one.
pub(crate) const HAS_DEAD: &str = "
    SELECT EXISTS (SELECT 1 FROM outbox WHERE status = 'dead' AND length(payload) > 0)
        OR EXISTS (SELECT 1 FROM outbox WHERE status = 'aborted' AND length(payload) > 0)";

// Two indexes, so two statements.
pub(crate) const PENDING_BYTES: &str = "
    SELECT count(*), ifnull(sum(length(payload)), 0) FROM outbox INDEXED BY outbox_due
    WHERE mesh_id = ?1 AND status = 'pending'";

pub(crate) const INFLIGHT_BYTES: &str = "
    SELECT count(*), ifnull(sum(length(payload)), 0) FROM outbox WHERE mesh_id = ?1 AND status = 'inflight'";

impl Store {
    /// Looks through one stretch behind `after` (0 to begin with).
    pub async fn prune_look(
        &self,
        filter: PruneFilter,
        after: i64,
    ) -> Result<PruneLook, StoreError> {
        self.read(move |connection| {
            let end = after.saturating_add(PRUNE_LOOK_MAX);
            let newest: Option<i64> = connection
                .prepare_cached(super::age::NEWEST_ROW)?
                .query_row([], |row| row.get(0))?;
            let wants = |status| filter.statuses.contains(&status);
            let mut statement = connection.prepare_cached(LOOK)?;
            let mut rows = statement.query(params![
                after,
                end,
                filter.before.0,
                wants(OutboxStatus::Done),
                wants(OutboxStatus::Dead),
                wants(OutboxStatus::Aborted),
                filter.with_empty,
            ])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let bytes: i64 = row.get(1)?;
                found.push((row.get(0)?, usize::try_from(bytes).unwrap_or(0)));
            }
            Ok(PruneLook {
                rows: found,
                next: newest.filter(|newest| *newest > end).map(|_| end),
            })
        })
        .await
    }

    /// Empties the payloads of these rows in one transaction; how many that were.
    pub async fn prune(&self, arrivals: Vec<i64>) -> Result<u64, StoreError> {
        self.write(move |connection| {
            let mut statement = connection.prepare_cached(EMPTY)?;
            let mut emptied = 0;
            for arrival in arrivals {
                emptied += statement.execute([arrival])?;
            }
            Ok(u64::try_from(emptied).unwrap_or(u64::MAX))
        })
        .await
    }

    /// Retires these rows as far as they are dead, in one transaction, and empties their payloads; how many that were.
    pub async fn retire(
        &self,
        arrivals: Vec<i64>,
        by: &'static str,
        at: WallMs,
    ) -> Result<u64, StoreError> {
        self.write(move |connection| {
            let mut statement = connection.prepare_cached(RETIRE)?;
            let mut retired = 0;
            for arrival in arrivals {
                retired += statement.execute(params![arrival, at.0, by])?;
            }
            Ok(u64::try_from(retired).unwrap_or(u64::MAX))
        })
        .await
    }

    /// Bytes of the payloads behind this arrival that were not given back, by mesh, and the last arrival that was
    /// looked at. From 0 on it goes through the whole outbox, a stretch at a time.
    pub async fn outbox_payload_bytes(
        &self,
        mut after: i64,
    ) -> Result<(BTreeMap<MeshId, u64>, i64), StoreError> {
        let mut held: BTreeMap<MeshId, u64> = BTreeMap::new();
        loop {
            let stretch: Vec<(i64, [u8; 16], i64)> = self
                .read(move |connection| {
                    let mut statement = connection.prepare_cached(PAYLOAD_BYTES)?;
                    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
                    let found = statement.query_map(params![after], read)?;
                    Ok(found.collect::<rusqlite::Result<_>>()?)
                })
                .await?;
            let Some(through) = stretch.iter().map(|(arrival, ..)| *arrival).max() else {
                return Ok((held, after));
            };
            for (_, mesh, bytes) in stretch {
                let held = held.entry(MeshId(Ulid::from_bytes(mesh))).or_default();
                *held = held.saturating_add(u64::try_from(bytes).unwrap_or(0));
            }
            after = through;
        }
    }

    /// How much of the file is in use, and how much waits to be used again.
    pub async fn usage(&self) -> Result<Usage, StoreError> {
        self.read(|connection| {
            let value = |name: &str| -> Result<u64, StoreError> {
                let found: i64 = connection.pragma_query_value(None, name, |row| row.get(0))?;
                Ok(u64::try_from(found).unwrap_or(0))
            };
            let (pages, spare) = (value("page_count")?, value("freelist_count")?);
            let page_bytes = value("page_size")?;
            Ok(Usage {
                used_bytes: pages.saturating_sub(spare).saturating_mul(page_bytes),
                spare_bytes: spare.saturating_mul(page_bytes),
            })
        })
        .await
    }

    /// From now on the file grows by no more than this: what would need more finds the disk full. `None`
    /// lets it grow as it likes. It never shrinks.
    pub async fn bound_growth(&self, bytes: Option<u64>) -> Result<(), StoreError> {
        self.write_relaxed(move |connection| Ok(heddle_sqlite::bound_growth(connection, bytes)?))
            .await
    }

    /// Whether rows that will not be sent any more still have payloads.
    pub async fn outbox_has_dead_payloads(&self) -> Result<bool, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(HAS_DEAD)?;
            Ok(statement.query_row([], |row| row.get(0))?)
        })
        .await
    }

    /// What a mesh has still to send, in rows and bytes of their payloads.
    pub async fn outbox_waiting(&self, mesh: MeshId) -> Result<(u64, u64), StoreError> {
        self.read(move |connection| {
            let mut waiting = (0, 0);
            for sql in [PENDING_BYTES, INFLIGHT_BYTES] {
                let mut statement = connection.prepare_cached(sql)?;
                let (rows, bytes): (i64, i64) = statement
                    .query_row([mesh.0.to_bytes()], |row| Ok((row.get(0)?, row.get(1)?)))?;
                waiting.0 += u64::try_from(rows).unwrap_or(0);
                waiting.1 += u64::try_from(bytes).unwrap_or(0);
            }
            Ok(waiting)
        })
        .await
    }
}
