//! What retention takes, a chunk at a time. The ids stay behind, so that nothing comes back (IN-01).

use std::time::Duration;

use heddle_core::clock::WallMs;
use heddle_core::inbox_retention::{Age, Cutoff};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;

use crate::cells::Cells;
use crate::error::StoreError;
use crate::store::Store;

/// Items looked at in one step; each step is one short transaction at most.
const STEP_ITEMS_MAX: usize = 256;

/// One step of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PruneStep {
    pub taken: usize,
    /// Hand it back to go on; `None` ends the run.
    pub next: Option<i64>,
}

pub(crate) const LOOK: &str = "
    SELECT arrival, received_at, shown_at IS NOT NULL OR acked_at IS NOT NULL
    FROM inbox WHERE arrival > ?1 ORDER BY arrival LIMIT ?2";

pub(crate) const LEAVE_IDS: &str = "
    INSERT INTO inbox_past (agent, id_key, mesh_id, history_epoch, history_seq)
    SELECT agent, id_key, mesh_id, history_epoch, history_seq
    FROM inbox WHERE arrival IN (SELECT value FROM json_each(?1))
    ON CONFLICT DO NOTHING";

const COUNT_DOWN: &str = "
    UPDATE delivery SET item_count = item_count - (
        SELECT count(*) FROM json_each(?1) CROSS JOIN inbox ON inbox.arrival = value
        WHERE inbox.mesh_id = delivery.mesh_id
    )";

const FORGET_WORDS: &str = "DELETE FROM inbox_fts WHERE rowid IN (SELECT value FROM json_each(?1))";
pub(crate) const FORGET_HOOKS: &str =
    "DELETE FROM inbox_hook WHERE arrival IN (SELECT value FROM json_each(?1))";
pub(crate) const TAKE: &str =
    "DELETE FROM inbox WHERE arrival IN (SELECT value FROM json_each(?1))";
pub(crate) const MARK_PRUNED: &str =
    "UPDATE inbox_state SET pruned_through = max(pruned_through, ?1)";

pub(crate) const PRUNE_CUTOFF: &str = "SELECT prune_cutoff FROM inbox_state";
const SET_CUTOFF: &str = "UPDATE inbox_state SET prune_cutoff = ?1";
const DROP_SESSIONS: &str = "DELETE FROM inbox_session WHERE used_at < ?1";
const DROP_RECEIPTS: &str = "DELETE FROM inbox_receipt WHERE at < ?1";

impl Store {
    /// Begins a run: decides how far it goes and keeps that. Also drops what only waits for somebody
    /// who never came: cursors of sessions, receipts that no broker took.
    pub async fn inbox_prune_begin(
        &self,
        now: WallMs,
        elapsed: Duration,
        retention: Duration,
    ) -> Result<Cutoff, StoreError> {
        self.write_relaxed(move |connection| {
            let previous: Option<i64> = connection
                .prepare_cached(PRUNE_CUTOFF)?
                .query_row([], |row| row.get(0))?;
            let cutoff = Cutoff::next(previous.map(WallMs), now, elapsed, retention);
            connection
                .prepare_cached(SET_CUTOFF)?
                .execute([cutoff.shown.0])?;
            connection
                .prepare_cached(DROP_SESSIONS)?
                .execute([cutoff.shown.0])?;
            connection
                .prepare_cached(DROP_RECEIPTS)?
                .execute([cutoff.shown.0])?;
            Ok(cutoff)
        })
        .await
    }

    /// Looks at the items behind `from` and takes those that are due. Relaxed: a run that a power
    /// cut forgets is made again.
    pub async fn inbox_prune_step(
        &self,
        cutoff: Cutoff,
        from: i64,
    ) -> Result<PruneStep, StoreError> {
        let looked = self.read(move |connection| look(connection, from)).await?;
        let is_old = |(_, age): &&(i64, Age)| age.received_at < cutoff.shown;
        // The order of arrival is roughly that of time: a whole step of young items ends the run.
        let goes_on = looked.len() == STEP_ITEMS_MAX && looked.iter().any(|one| is_old(&one));
        let next = looked
            .last()
            .map(|(arrival, _)| *arrival)
            .filter(|_| goes_on);
        let due: Vec<i64> = looked
            .iter()
            .filter(|(_, age)| cutoff.takes(*age))
            .map(|(arrival, _)| *arrival)
            .collect();
        let taken = due.len();
        if taken > 0 {
            self.write_relaxed(move |connection| take(connection, &due))
                .await?;
        }
        Ok(PruneStep { taken, next })
    }

    /// The youngest arrival that retention ever took; a reader who resumes before it may have missed
    /// items.
    pub async fn inbox_pruned_through(&self) -> Result<i64, StoreError> {
        self.read(|connection| {
            let found = connection
                .prepare_cached("SELECT pruned_through FROM inbox_state")?
                .query_row([], |row| row.get(0))
                .optional()?;
            Ok(found.unwrap_or(0))
        })
        .await
    }
}

fn look(connection: &Connection, from: i64) -> Result<Vec<(i64, Age)>, StoreError> {
    let limit = i64::try_from(STEP_ITEMS_MAX).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(LOOK)?;
    let mut rows = statement.query([from, limit])?;
    let mut looked = Vec::new();
    while let Some(row) = rows.next()? {
        let mut cells = Cells::of("inbox", row);
        let arrival = cells.get()?;
        let age = Age {
            received_at: cells.wall()?,
            was_shown: cells.get()?,
        };
        looked.push((arrival, age));
    }
    Ok(looked)
}

/// IMPORTANT: ids first, items last, all in one transaction: at no moment is an id free.
fn take(connection: &Connection, due: &[i64]) -> Result<(), StoreError> {
    let list = Value::from(due).to_string();
    for sql in [LEAVE_IDS, COUNT_DOWN, FORGET_WORDS, FORGET_HOOKS, TAKE] {
        connection.prepare_cached(sql)?.execute([&list])?;
    }
    if let Some(youngest) = due.last() {
        connection
            .prepare_cached(MARK_PRUNED)?
            .execute(params![youngest])?;
    }
    Ok(())
}
