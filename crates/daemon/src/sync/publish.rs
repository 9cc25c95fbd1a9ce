//! A publish that has begun goes on, a few rows a tick, until the last row of before is an op (C21).
//!
//! Nobody has to ask for that again: a daemon that was killed goes on with it at its next start.

use heddle_store::StoreError;

use crate::mesh::MeshState;
use crate::shared::Shared;

/// Transactions of one tick; behind them what is in the outbox is sent.
const STEPS_MAX: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// There was nothing to publish.
    Idle,
    Done,
    More,
}

pub(super) async fn run(shared: &Shared, mesh: &MeshState) -> Result<Step, StoreError> {
    let id = mesh.mesh.mesh;
    let begun = shared.store.publish(id).await?;
    if begun.is_none_or(|publish| publish.finished_at.is_some()) {
        return Ok(Step::Idle);
    }
    for _ in 0..STEPS_MAX {
        let step = shared.store.step_publish(id, shared.clock.wall()).await?;
        if let Some(rows) = step.and_then(|publish| publish.finished_at.map(|_| publish.rows_total))
        {
            tracing::info!(mesh = %mesh.mesh.name, rows, "all rows of before are on their way to the others");
            return Ok(Step::Done);
        }
    }
    Ok(Step::More)
}
