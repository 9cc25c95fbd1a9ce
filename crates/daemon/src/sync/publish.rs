//! A publish that has begun goes on, a few rows a tick, until the last row of before is an op (C21).
//!
//! A large one is a snapshot (LF-34): the broker gets its ops in parts (`upload.rs`) and shows them all at once. One
//! whose broker takes no parts, or not as many, goes out between a begin and a commit, and nobody else reads any of it
//! before the commit. Nobody has to ask for any of that again: a daemon that was killed goes on with it at its next
//! start.

use heddle_core::error_code::ErrorCode;
use heddle_core::ids::OpId;
use heddle_core::op::snapshot_id;
use heddle_store::{Publish, SnapshotStep, StoreError};
use heddle_wire::broker::{ReplyResult, Request};

use crate::link::Live;
use crate::mesh::MeshState;
use crate::shared::Shared;

/// Transactions of one tick; behind them what is in the outbox is sent.
const STEPS_MAX: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// There was nothing to publish, or it waits for the broker.
    Idle,
    Done,
    More,
}

pub(super) async fn run(
    shared: &Shared,
    mesh: &MeshState,
    live: Option<&Live>,
) -> Result<Step, StoreError> {
    let id = mesh.mesh.mesh;
    let Some(begun) = shared.store.publish(id).await? else {
        return Ok(Step::Idle);
    };
    if begun.finished_at.is_some() {
        return Ok(Step::Idle);
    }
    if begun.snapshot == SnapshotStep::Wanted && !begin(shared, mesh, live, begun).await? {
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

/// Commits a snapshot of which the broker has everything; true if that was done now.
pub(super) async fn commit(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
) -> Result<bool, StoreError> {
    let id = mesh.mesh.mesh;
    let publish = shared.store.publish(id).await?;
    let open = publish
        .filter(|publish| publish.snapshot == SnapshotStep::Open && publish.finished_at.is_some());
    let Some(open) = open else {
        return Ok(false);
    };
    if !shared.store.publish_is_sent(id).await? {
        return Ok(false);
    }
    let snapshot = of(mesh, open);
    match live.request(Request::SnapshotCommit { snapshot }).await {
        Some(ReplyResult::Ok { .. }) => shown(shared, mesh, open).await,
        // A broker that was put back from an older copy knows no such snapshot: then it hides nothing
        // either, unless it has begun one again.
        Some(ReplyResult::Refused(refused)) if is_final(&refused.code) => {
            tracing::warn!(mesh = %mesh.mesh.name, detail = refused.detail, "the broker knows nothing of the snapshot");
            let (from, to) = (SnapshotStep::Open, SnapshotStep::Committed);
            shared.store.step_snapshot(id, from, to).await
        }
        _ => Ok(false),
    }
}

/// The broker has shown it; true if that is news.
pub(super) async fn shown(
    shared: &Shared,
    mesh: &MeshState,
    publish: Publish,
) -> Result<bool, StoreError> {
    let (from, to) = (publish.snapshot, SnapshotStep::Committed);
    tracing::info!(mesh = %mesh.mesh.name, rows = publish.rows_total, "others see all rows of before from now on");
    shared.store.step_snapshot(mesh.mesh.mesh, from, to).await
}

/// Begins the snapshot; false while that cannot be done.
async fn begin(
    shared: &Shared,
    mesh: &MeshState,
    live: Option<&Live>,
    publish: Publish,
) -> Result<bool, StoreError> {
    let Some(live) = live else {
        return Ok(false);
    };
    if live.offers().uploads {
        let (from, to) = (SnapshotStep::Wanted, SnapshotStep::Staged);
        return shared.store.step_snapshot(mesh.mesh.mesh, from, to).await;
    }
    fence(shared, mesh, live, publish).await
}

/// The snapshot behind a fence; false while that cannot be done. A broker without snapshots gets row by row.
pub(super) async fn fence(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
    publish: Publish,
) -> Result<bool, StoreError> {
    let to = if live.offers().snapshots {
        let snapshot = of(mesh, publish);
        match live.request(Request::SnapshotBegin { snapshot }).await {
            Some(ReplyResult::Ok { .. }) => SnapshotStep::Open,
            Some(ReplyResult::Refused(refused)) if is_final(&refused.code) => {
                tracing::warn!(mesh = %mesh.mesh.name, detail = refused.detail, "the mesh is published without a snapshot");
                SnapshotStep::None
            }
            _ => return Ok(false),
        }
    } else {
        SnapshotStep::None
    };
    let id = mesh.mesh.mesh;
    shared.store.step_snapshot(id, publish.snapshot, to).await
}

pub(super) fn of(mesh: &MeshState, publish: Publish) -> OpId {
    snapshot_id(mesh.mesh.mesh, publish.through_lamport)
}

/// Asking again would not help.
fn is_final(code: &str) -> bool {
    let code = ErrorCode::parse(code);
    matches!(code, Some(ErrorCode::NotOwner | ErrorCode::InvalidRequest))
}
