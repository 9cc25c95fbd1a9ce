//! What waits in the inbox of ops goes into the data, a few at a time, with or without a broker.

use heddle_core::limits::OPS_APPLIED_AT_ONCE;
use heddle_store::{AppliedOps, StoreError};

use crate::mesh::MeshState;
use crate::shared::Shared;

/// Batches of one tick: the rest waits for the next one, so that sending gets its turn.
const BATCHES_MAX: usize = 50;

/// True if something was applied.
pub(super) async fn run(shared: &Shared, mesh: &MeshState) -> Result<bool, StoreError> {
    let id = mesh.mesh.mesh;
    let mut did = false;
    for _ in 0..BATCHES_MAX {
        if !shared.store.has_waiting_ops(id).await? {
            break;
        }
        let now = shared.clock.wall();
        let report = shared.store.apply_ops(id, OPS_APPLIED_AT_ONCE, now).await?;
        did = true;
        count(mesh, &report);
        if !report.more {
            break;
        }
    }
    Ok(did)
}

pub(super) fn count(mesh: &MeshState, report: &AppliedOps) {
    for (outcome, count) in [
        ("applied", report.applied),
        ("passed", report.passed),
        ("parked", report.parked),
        ("quarantined", report.quarantined),
    ] {
        metrics::counter!("heddle_sync_applied_total", "outcome" => outcome).increment(count);
    }
    if report.quarantined > 0 {
        tracing::warn!(
            count = report.quarantined,
            mesh = %mesh.mesh.name,
            "ops were set aside; `heddle doctor` lists them"
        );
    }
}
