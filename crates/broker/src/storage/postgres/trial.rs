//! Whether the tables take anything now: tried where a write has failed for no fault of its own.
//!
//! A server whose disk is full, or whose tables somebody holds, answers every question as if nothing were wrong. So what
//! became of the last writes is noted, and while the last one failed whoever asks makes a trial: the locks of an accept and
//! more room than one takes, all of it undone. It costs nothing while all is well, and it ends by itself: with the first
//! accept or the first trial that works, whichever comes first, because a broker that is not ready may get no accepts.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_postgres::{Object, Transaction};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;

use super::super::error::StorageError;
use super::error::JobError;

/// How long a trial may take; whoever asks whether the broker is ready does not wait much longer.
const TRIAL_WAIT: Duration = Duration::from_millis(1500);

/// What every accept needs. Nobody who only reads, dumps or vacuums is in the way of it.
const LOCKS: &str = "SET LOCAL statement_timeout = '1s'; SET LOCAL lock_timeout = '500ms'; \
    LOCK TABLE mesh, client_message_dedupe, message, message_history, delivery_queue IN ROW EXCLUSIVE MODE";

/// Room, where the tables are, for a table of 2 MB that nobody else sees and that leaves nothing behind; among the tables
/// themselves for a role that may make no temporary ones.
const ROOMS: [&str; 2] = [
    "SET LOCAL temp_tablespaces = ''; CREATE TEMPORARY TABLE heddle_trial AS \
        SELECT repeat('.', 1000) AS room FROM generate_series(1, 2000)",
    "DO $$ BEGIN EXECUTE format('CREATE UNLOGGED TABLE heddle_trial_%s AS \
        SELECT repeat(''.'', 1000) AS room FROM generate_series(1, 2000)', pg_backend_pid()); END $$",
];

/// Why the last write failed, as long as none has worked since.
#[derive(Default)]
pub(super) struct Trouble {
    last: Mutex<Option<String>>,
    /// One trial at a time: many may ask at once.
    turn: tokio::sync::Mutex<()>,
}

impl Trouble {
    /// What became of a group of writes. Only one with accepts shows that there is room for accepts.
    pub(super) fn note(&self, tried: &Result<(), JobError>, has_accepts: bool) {
        match tried {
            Ok(()) if has_accepts => self.over("an accept"),
            Err(error) if !error.is_refusal() && !error.spares_others() => {
                self.failed(error.to_string());
            }
            _ => {}
        }
    }

    /// Whether the tables take something, where that is in doubt.
    pub(super) async fn look(&self, client: &mut Object) -> Result<(), StorageError> {
        if self.lock().is_none() {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        // Somebody else may have found out meanwhile.
        let Some(last) = self.lock().clone() else {
            return Ok(());
        };
        let tried = timeout(TRIAL_WAIT, trial(client)).await;
        let tried = tried.unwrap_or(Err(JobError::TimedOut(TRIAL_WAIT.as_secs())));
        match tried {
            Ok(()) => {
                self.over("a trial");
                Ok(())
            }
            Err(error) if has_code(&error, &SqlState::LOCK_NOT_AVAILABLE) => {
                Err(StorageError::Held)
            }
            Err(error) => Err(match StorageError::from(error) {
                StorageError::Unavailable(why) => StorageError::Unavailable(format!(
                    "a write failed ({last}), and a trial fails as well: {why}"
                )),
                other => other,
            }),
        }
    }

    fn failed(&self, why: String) {
        let mut last = self.lock();
        if last.is_none() {
            tracing::warn!(%why, "a write failed; the broker is ready again when one works");
        }
        *last = Some(why);
    }

    fn over(&self, what: &'static str) {
        if self.lock().take().is_some() {
            tracing::info!(what, "the database takes writes again");
        }
    }

    /// Nothing that can panic half way runs under this lock.
    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn trial(client: &mut Object) -> Result<(), JobError> {
    let transaction = client.transaction().await?;
    let tried = steps(&transaction).await;
    let undone = transaction.rollback().await;
    tried?;
    Ok(undone?)
}

async fn steps(transaction: &Transaction<'_>) -> Result<(), JobError> {
    transaction.batch_execute(LOCKS).await?;
    for room in ROOMS {
        transaction.batch_execute("SAVEPOINT room").await?;
        match transaction
            .batch_execute(room)
            .await
            .map_err(JobError::from)
        {
            Err(error) if has_code(&error, &SqlState::INSUFFICIENT_PRIVILEGE) => {
                transaction.batch_execute("ROLLBACK TO room").await?;
            }
            tried => return tried,
        }
    }
    // Whose role may make no table at all cannot try that: the next accept tells.
    Ok(())
}

fn has_code(error: &JobError, code: &SqlState) -> bool {
    matches!(error, JobError::Sql(sql) if sql.code() == Some(code))
}
