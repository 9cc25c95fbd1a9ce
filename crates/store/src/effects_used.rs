//! That this home has decided about effects, and how far their own file had come. Which ones, only that file says.

use std::path::Path;

use rusqlite::Connection;

use crate::error::StoreError;
use crate::park::open_old;
use crate::store::Store;

/// 0 where there were none; otherwise one more than the rows that their file was seen with.
const USED: &str = "SELECT effects_used FROM store_state WHERE only_row = 1";
const USE: &str =
    "UPDATE store_state SET effects_used = ?1 WHERE only_row = 1 AND effects_used < ?1";
const FORGET: &str = "UPDATE store_state SET effects_used = 0 WHERE only_row = 1";

impl Store {
    /// How many rows their file was seen with; none where nothing was ever decided here.
    pub async fn effects_used(&self) -> Result<Option<u64>, StoreError> {
        self.read(|connection| Ok(used(connection)?)).await
    }

    /// Before the first effect is written, and before anybody is told of what was written since: from here on the
    /// loss of their file, or an older one in its place, is noticed.
    pub async fn use_effects(&self, rows: u64) -> Result<(), StoreError> {
        let mark = i64::try_from(rows).unwrap_or(i64::MAX).saturating_add(1);
        self.write(move |connection| {
            connection.execute(USE, [mark])?;
            Ok(())
        })
        .await
    }

    /// A person's word: what was decided before is given up.
    pub async fn forget_effects(&self) -> Result<(), StoreError> {
        self.write(|connection| {
            connection.execute(FORGET, [])?;
            Ok(())
        })
        .await
    }
}

fn used(connection: &Connection) -> rusqlite::Result<Option<u64>> {
    let mark: i64 = connection.query_row(USED, [], |row| row.get(0))?;
    Ok(u64::try_from(mark)
        .ok()
        .and_then(|mark| mark.checked_sub(1)))
}

/// The same of a store that nobody has opened. One that cannot be read, or is older, says nothing.
pub fn had_effects(data: &Path) -> Option<u64> {
    let data = std::path::absolute(data).ok()?;
    let connection = open_old(&data).ok()?;
    used(&connection).unwrap_or(None)
}
