//! Rows whose own cells are damaged. They wait apart, so that they hold nobody up.
//!
//! A parked row is `pending` and due at the end of all time. A start makes it due again: if somebody has
//! mended it by then it goes out, otherwise it is parked once more.

use rusqlite::{Connection, params};

use crate::error::StoreError;
use crate::store::Store;

/// The due time of a parked row. The statements of the outbox spell it out.
pub(crate) const NEVER: i64 = i64::MAX;

/// The due time of an op while it waits: out of reach for the drain of messages, which has nothing to
/// do with ops. When they are due is said in `op_outbox`. The statements spell this one out as well.
pub(crate) const OP_DUE: i64 = NEVER - 1;

pub(crate) const PARK: &str =
    "UPDATE outbox SET due_mono_ms = ?2, last_error = ?3 WHERE arrival = ?1";

// By mesh, so that the index leads straight to them.
pub(crate) const COUNT: &str = "
    SELECT count(*) FROM outbox
    WHERE status = 'pending' AND mesh_id IN (SELECT mesh_id FROM outbox_sender)
        AND due_mono_ms = 9223372036854775807";

impl Store {
    /// Rows that wait because they are damaged.
    pub async fn outbox_parked(&self) -> Result<u64, StoreError> {
        self.read(|connection| {
            let found: i64 = connection
                .prepare_cached(COUNT)?
                .query_row([], |row| row.get(0))?;
            Ok(u64::try_from(found).unwrap_or(0))
        })
        .await
    }
}

pub(crate) fn park(
    connection: &Connection,
    arrival: i64,
    why: &StoreError,
) -> Result<(), StoreError> {
    tracing::error!(arrival, %why, "an outbox row is damaged and waits until it is mended; the others go on");
    connection
        .prepare_cached(PARK)?
        .execute(params![arrival, NEVER, format!("damaged: {why}")])?;
    Ok(())
}
