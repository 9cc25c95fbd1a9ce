//! That this home has decided about effects. Their own file says about which; this one only that there were some.

use std::path::Path;

use rusqlite::Connection;

use crate::error::StoreError;
use crate::park::open_old;
use crate::store::Store;

const USED: &str = "SELECT effects_used FROM store_state WHERE only_row = 1";
const USE: &str = "UPDATE store_state SET effects_used = 1 WHERE only_row = 1 AND effects_used = 0";
const FORGET: &str = "UPDATE store_state SET effects_used = 0 WHERE only_row = 1";

impl Store {
    pub async fn effects_used(&self) -> Result<bool, StoreError> {
        self.read(|connection| Ok(is_used(connection)?)).await
    }

    /// Before the first effect is written: from here on the loss of their file is noticed.
    pub async fn use_effects(&self) -> Result<(), StoreError> {
        self.write(|connection| {
            connection.execute(USE, [])?;
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

fn is_used(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row(USED, [], |row| row.get(0))
}

/// The same of a store that nobody has opened. One that cannot be read, or is older, says nothing.
pub fn had_effects(data: &Path) -> bool {
    let Ok(data) = std::path::absolute(data) else {
        return false;
    };
    open_old(&data).is_ok_and(|connection| is_used(&connection).unwrap_or(false))
}
