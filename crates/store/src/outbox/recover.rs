//! What a start makes of the rows that the last run left on their way.

use heddle_core::clock::WallMs;
use heddle_core::limits::BACKOFF_MS_MIN;
use rusqlite::params;

use crate::error::StoreError;
use crate::store::Store;

pub(crate) const RECOVER_INFLIGHT: &str = "
    UPDATE outbox SET status = 'pending', attempts = attempts + 1, due_mono_ms = ?1
    WHERE status = 'inflight'";

// Ops are due whenever they wait; what they were put off by was measured by a clock that has ended.
pub(crate) const RECOVER_OPS: &str = "UPDATE op_outbox SET due_mono_ms = 0 WHERE due_mono_ms > 0";

// Due times were read off a clock that ended with its process. Rows that a recovery has just put
// off are left alone, so that a second recovery ends in the same state (DR-18). Naming the meshes
// lets the index go straight to the rows that wait, past a backlog that does not.
pub(crate) const RECOVER_PENDING: &str = "
    UPDATE outbox SET due_mono_ms = 0
    WHERE status = 'pending' AND mesh_id IN (SELECT mesh_id FROM outbox_sender)
        AND due_mono_ms > 0 AND due_mono_ms <> ?1 AND due_mono_ms <> 9223372036854775806";

pub(crate) const NOTE_INTERRUPTED: &str = "
    INSERT OR REPLACE INTO outbox_attempt (row_id, number, at, outcome, detail)
    SELECT row_id, attempts + 1, ?1, 'interrupted', 'the daemon ended while the row was on its way'
    FROM outbox WHERE status = 'inflight'";

// What waits in the outbox is what waits to be sent: a note of it that a disk has lost or moved would keep an op here for ever,
// and nobody would be told.
pub(crate) const UNQUEUE_STRAYS: &str = "
    DELETE FROM op_outbox WHERE NOT EXISTS (SELECT 1 FROM outbox
        WHERE outbox.arrival = op_outbox.arrival AND outbox.mesh_id = op_outbox.mesh_id
            AND outbox.kind = 'op' AND outbox.status = 'pending')";
pub(crate) const QUEUE_LOST: &str = "
    INSERT OR IGNORE INTO op_outbox (mesh_id, arrival) SELECT mesh_id, arrival FROM outbox
    WHERE status = 'pending' AND mesh_id IN (SELECT mesh_id FROM outbox_sender) AND kind = 'op'";

impl Store {
    /// Run once after opening, before anything is drained. What was in flight may or may not have
    /// reached the broker: it waits again, one minimum backoff from the zero of the monotonic clock,
    /// which must be about the start of the process (DR-02). Returns how many rows that were.
    pub async fn recover(&self, now: WallMs) -> Result<u64, StoreError> {
        self.write(move |connection| {
            let put_off = i64::try_from(BACKOFF_MS_MIN).unwrap_or(i64::MAX);
            // IMPORTANT: in this order, or rows that were in flight could be due at once.
            connection
                .prepare_cached(RECOVER_PENDING)?
                .execute(params![put_off])?;
            connection.prepare_cached(RECOVER_OPS)?.execute([])?;
            connection
                .prepare_cached(NOTE_INTERRUPTED)?
                .execute([now.0])?;
            let recovered = connection
                .prepare_cached(RECOVER_INFLIGHT)?
                .execute(params![put_off])?;
            connection.prepare_cached(UNQUEUE_STRAYS)?.execute([])?;
            let queued = connection.prepare_cached(QUEUE_LOST)?.execute([])?;
            if queued > 0 {
                tracing::warn!(
                    queued,
                    "changes that wait were not noted as waiting to be sent; they are again"
                );
            }
            Ok(u64::try_from(recovered).unwrap_or(u64::MAX))
        })
        .await
    }
}
