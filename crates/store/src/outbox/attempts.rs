//! The log of a row's attempts: what became of those that did not succeed at once.
//!
//! It is written with the settle that it tells of, and bounded: the first few and the last few attempts
//! of a row. `attempts` on the row itself counts all of them.

use heddle_core::clock::WallMs;
use heddle_core::ids::RowId;
use heddle_core::limits::{ATTEMPTS_FIRST_KEPT, ATTEMPTS_LAST_KEPT};
use rusqlite::{Connection, params};

use crate::cells::Cells;
use crate::error::StoreError;
use crate::store::Store;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// From 1; gaps are attempts that the bound has dropped.
    pub number: u32,
    pub at: WallMs,
    /// `committed`, `no_answer`, `interrupted`, or the broker's code.
    pub outcome: String,
    pub detail: String,
}

// A number comes twice only if its first note was lost with its settle; the newer one is right.
pub(crate) const NOTE: &str = "
    INSERT OR REPLACE INTO outbox_attempt (row_id, number, at, outcome, detail)
    VALUES (?1, ?2, ?3, ?4, ?5)";

pub(crate) const TRIM: &str = "
    DELETE FROM outbox_attempt WHERE row_id = ?1 AND number > ?2 AND number <= ?3";

pub(crate) const OF_ROW: &str = "
    SELECT number, at, outcome, detail FROM outbox_attempt WHERE row_id = ?1 ORDER BY number";

impl Store {
    /// Oldest first; empty for a row that was delivered at once, or never tried.
    pub async fn outbox_attempts(&self, row: RowId) -> Result<Vec<Attempt>, StoreError> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(OF_ROW)?;
            let mut rows = statement.query([row.0.to_bytes()])?;
            let mut attempts = Vec::new();
            while let Some(row) = rows.next()? {
                let mut cells = Cells::of("outbox_attempt", row);
                attempts.push(Attempt {
                    number: cells.get()?,
                    at: cells.wall()?,
                    // For people: as far as it is text.
                    outcome: cells.or(1, Cells::get, |lossy| lossy)?,
                    detail: cells.or(1, Cells::get, |lossy| lossy)?,
                });
            }
            Ok(attempts)
        })
        .await
    }
}

pub(crate) fn note(
    connection: &Connection,
    row: RowId,
    number: u32,
    at: WallMs,
    (outcome, detail): (&str, &str),
) -> Result<(), StoreError> {
    let row = row.0.to_bytes();
    connection
        .prepare_cached(NOTE)?
        .execute(params![row, number, at.0, outcome, detail])?;
    if let Some(dropped) = number.checked_sub(ATTEMPTS_LAST_KEPT)
        && dropped > ATTEMPTS_FIRST_KEPT
    {
        connection
            .prepare_cached(TRIM)?
            .execute(params![row, ATTEMPTS_FIRST_KEPT, dropped])?;
    }
    Ok(())
}
