//! How much there is of everything, without visiting every row.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rusqlite::Connection;

use crate::error::StoreError;
use crate::store::Store;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    pub pending: u64,
    pub inflight: u64,
    pub done: u64,
    pub dead: u64,
    pub aborted: u64,
    /// Items in all mailboxes, read or not.
    pub inbox: u64,
    pub unread: u64,
}

// Every one of these counts the entries of a partial index or reads one edge of a table. `done`,
// by far the largest, is what remains: arrival has no gaps but those that a repair left and counted,
// because nothing is ever deleted.
pub(crate) const OUTBOX_ROWS: &str = "
    SELECT coalesce(max(arrival), 0) - (SELECT outbox_missing FROM store_state WHERE only_row = 1)
    FROM outbox";
// What that number does not know of yet: a look at all of it counts them, a repair tells of them and notes them there.
pub(crate) const OUTBOX_GONE: &str = "
    SELECT coalesce(max(arrival), 0) - count(*)
        - (SELECT coalesce(max(outbox_missing), 0) FROM store_state WHERE only_row = 1)
    FROM outbox";
pub(crate) const PENDING: &str = "SELECT count(*) FROM outbox WHERE status = 'pending'";
pub(crate) const INFLIGHT: &str = "SELECT count(*) FROM outbox WHERE status = 'inflight'";
pub(crate) const DEAD: &str = "SELECT count(*) FROM outbox WHERE status = 'dead'";
pub(crate) const ABORTED: &str = "SELECT count(*) FROM outbox WHERE status = 'aborted'";
pub(crate) const INBOX: &str = "SELECT coalesce(sum(item_count), 0) FROM delivery";
pub(crate) const UNREAD: &str = "SELECT count(*) FROM inbox WHERE acked_at IS NULL";

impl Store {
    pub async fn figures(&self) -> Result<Figures, StoreError> {
        let gone = Arc::clone(&self.outbox_gone);
        self.read(move |connection| {
            let [pending, inflight, dead, aborted] = [
                count(connection, PENDING)?,
                count(connection, INFLIGHT)?,
                count(connection, DEAD)?,
                count(connection, ABORTED)?,
            ];
            let others = pending + inflight + dead + aborted + gone.load(Ordering::Relaxed);
            let Some(done) = count(connection, OUTBOX_ROWS)?.checked_sub(others) else {
                return Err(StoreError::Corrupt(
                    "the outbox has more entries in its indexes than rows".to_owned(),
                ));
            };
            Ok(Figures {
                pending,
                inflight,
                done,
                dead,
                aborted,
                inbox: count(connection, INBOX)?,
                unread: count(connection, UNREAD)?,
            })
        })
        .await
    }
}

impl Store {
    /// Rows that are gone from the outbox and that no repair has told of. From now on they do not count as done.
    pub async fn outbox_gone(&self) -> Result<u64, StoreError> {
        let gone = self.read(|connection| Ok(outbox_gone(connection)?)).await?;
        self.outbox_gone.store(gone, Ordering::Relaxed);
        Ok(gone)
    }

    /// The same as it was last counted.
    pub fn outbox_gone_known(&self) -> u64 {
        self.outbox_gone.load(Ordering::Relaxed)
    }
}

pub(crate) fn outbox_gone(connection: &Connection) -> rusqlite::Result<u64> {
    let gone: i64 = connection
        .prepare_cached(OUTBOX_GONE)?
        .query_row([], |row| row.get(0))?;
    Ok(u64::try_from(gone).unwrap_or(0))
}

fn count(connection: &Connection, sql: &str) -> Result<u64, StoreError> {
    let found: i64 = connection
        .prepare_cached(sql)?
        .query_row([], |row| row.get(0))?;
    Ok(found.cast_unsigned())
}
