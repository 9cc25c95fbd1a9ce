//! What hooks owe (C45): planned once per stored item, run at least once, whatever crashes between.
//!
//! Only the state lives here. An item that came twice has one arrival, so a duplicate delivery is
//! never planned; the arrival is the event id by which a hook can tell a second run.

use heddle_core::clock::WallMs;
use rusqlite::{Connection, params};

use crate::cells::Cells;
use crate::error::StoreError;
use crate::inbox::cursor::last_arrival;
use crate::store::Store;

/// A hook that owes a run for an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwedHook {
    pub arrival: i64,
    pub hook: String,
    /// How often it was started before: more than none means that a run may be a repetition.
    pub attempts: u32,
}

pub(crate) const HOOKS_THROUGH: &str = "SELECT hooks_through FROM inbox_state";
const SET_HOOKS_THROUGH: &str = "UPDATE inbox_state SET hooks_through = ?1";

const PLAN: &str = "
    INSERT INTO inbox_hook (arrival, hook, state, changed_at) VALUES (?1, ?2, 'due', ?3)
    ON CONFLICT DO NOTHING";

pub(crate) const OWED: &str = "
    SELECT arrival, hook, attempts FROM inbox_hook INDEXED BY inbox_hook_open
    WHERE state = 'due' OR state = 'running' ORDER BY arrival LIMIT ?1";

pub(crate) const STARTED: &str = "
    UPDATE inbox_hook SET state = 'running', attempts = attempts + 1, changed_at = ?3
    WHERE arrival = ?1 AND hook = ?2 AND (state = 'due' OR state = 'running')";

pub(crate) const ENDED: &str = "
    UPDATE inbox_hook SET state = ?3, changed_at = ?4
    WHERE arrival = ?1 AND hook = ?2 AND state = 'running'";

const FORGET_MARK: &str =
    "UPDATE inbox_state SET hooks_through = NULL WHERE hooks_through IS NOT NULL";
pub(crate) const GIVE_UP: &str = "
    UPDATE inbox_hook INDEXED BY inbox_hook_open SET state = 'failed', changed_at = ?1
    WHERE state = 'due' OR state = 'running'";

impl Store {
    /// Hooks are switched off: nothing is owed any more, and what comes meanwhile will be old mail.
    pub async fn hooks_off(&self, now: WallMs) -> Result<(), StoreError> {
        self.write(move |connection| {
            connection.prepare_cached(FORGET_MARK)?.execute([])?;
            connection.prepare_cached(GIVE_UP)?.execute([now.0])?;
            Ok(())
        })
        .await
    }

    /// From which arrival on items are to be planned. The first call marks the present: hooks that
    /// are switched on do not run for old mail.
    pub async fn hooks_begin(&self) -> Result<i64, StoreError> {
        self.write(|connection| {
            if let Some(through) = hooks_through(connection)? {
                return Ok(through);
            }
            let through = last_arrival(connection)?;
            connection
                .prepare_cached(SET_HOOKS_THROUGH)?
                .execute([through])?;
            Ok(through)
        })
        .await
    }

    /// Plans the hooks of every item up to `through` (those without any included) and moves the
    /// mark, in one transaction. A plan that begins behind the mark is refused as `false`: somebody
    /// else made it.
    pub async fn hooks_plan(
        &self,
        from: i64,
        through: i64,
        owed: Vec<(i64, String)>,
        now: WallMs,
    ) -> Result<bool, StoreError> {
        self.write(move |connection| {
            if hooks_through(connection)? != Some(from) || through < from {
                return Ok(false);
            }
            let mut plan = connection.prepare_cached(PLAN)?;
            for (arrival, hook) in &owed {
                plan.execute(params![arrival, hook, now.0])?;
            }
            connection
                .prepare_cached(SET_HOOKS_THROUGH)?
                .execute([through])?;
            Ok(true)
        })
        .await
    }

    /// What is to be run, oldest first; after a crash also what was running.
    pub async fn hooks_owed(&self, limit: usize) -> Result<Vec<OwedHook>, StoreError> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(OWED)?;
            let mut rows = statement.query([i64::try_from(limit).unwrap_or(i64::MAX)])?;
            let mut owed = Vec::new();
            while let Some(row) = rows.next()? {
                let mut cells = Cells::of("inbox_hook", row);
                owed.push(OwedHook {
                    arrival: cells.get()?,
                    hook: cells.get()?,
                    attempts: cells.get()?,
                });
            }
            Ok(owed)
        })
        .await
    }

    /// To be called before the process is started. False if nothing is owed any more.
    pub async fn hook_started(
        &self,
        arrival: i64,
        hook: String,
        now: WallMs,
    ) -> Result<bool, StoreError> {
        self.write(move |connection| {
            let mut started = connection.prepare_cached(STARTED)?;
            Ok(started.execute(params![arrival, hook, now.0])? == 1)
        })
        .await
    }

    /// To be called after the process has ended; a failed hook is not tried again.
    pub async fn hook_ended(
        &self,
        arrival: i64,
        hook: String,
        succeeded: bool,
        now: WallMs,
    ) -> Result<bool, StoreError> {
        let state = if succeeded { "done" } else { "failed" };
        self.write(move |connection| {
            let mut ended = connection.prepare_cached(ENDED)?;
            Ok(ended.execute(params![arrival, hook, state, now.0])? == 1)
        })
        .await
    }
}

fn hooks_through(connection: &Connection) -> Result<Option<i64>, StoreError> {
    let mut statement = connection.prepare_cached(HOOKS_THROUGH)?;
    Ok(statement.query_row([], |row| row.get(0))?)
}
