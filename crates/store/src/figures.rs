//! How much there is of everything, without visiting every row.

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
pub(crate) const PENDING: &str = "SELECT count(*) FROM outbox WHERE status = 'pending'";
pub(crate) const INFLIGHT: &str = "SELECT count(*) FROM outbox WHERE status = 'inflight'";
pub(crate) const DEAD: &str = "SELECT count(*) FROM outbox WHERE status = 'dead'";
pub(crate) const ABORTED: &str = "SELECT count(*) FROM outbox WHERE status = 'aborted'";
pub(crate) const INBOX: &str = "SELECT coalesce(sum(item_count), 0) FROM delivery";
pub(crate) const UNREAD: &str = "SELECT count(*) FROM inbox WHERE acked_at IS NULL";

impl Store {
    pub async fn figures(&self) -> Result<Figures, StoreError> {
        self.read(|connection| {
            let [pending, inflight, dead, aborted] = [
                count(connection, PENDING)?,
                count(connection, INFLIGHT)?,
                count(connection, DEAD)?,
                count(connection, ABORTED)?,
            ];
            let others = pending + inflight + dead + aborted;
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

fn count(connection: &Connection, sql: &str) -> Result<u64, StoreError> {
    let found: i64 = connection
        .prepare_cached(sql)?
        .query_row([], |row| row.get(0))?;
    Ok(found.cast_unsigned())
}
