//! Snapshots at the door: for the owner of a mesh who publishes it.

use heddle_core::error_code::ErrorCode;
use heddle_core::ids::{HistoryId, OpId};
use heddle_wire::broker::{ReplyResult, Request};

use super::Shared;
use crate::accept::{Refusal, Unfit, refused};
use crate::limiter::Limiter;
use crate::principal::Principal;
use crate::storage::{SnapshotVerdict, Storage, StorageError};
use crate::upload::{self, Uploaded};

/// Whether a snapshot begins or is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Begin,
    Commit,
}

/// Each to its room: behind a fence, or in parts.
pub(super) async fn answer<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    request: Request,
) -> Result<ReplyResult, StorageError> {
    match request {
        Request::SnapshotBegin { snapshot } => step(shared, principal, snapshot, Step::Begin).await,
        Request::SnapshotCommit { snapshot } => {
            step(shared, principal, snapshot, Step::Commit).await
        }
        parts => Ok(upload(shared, principal, parts).await),
    }
}

async fn step<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    id: OpId,
    step: Step,
) -> Result<ReplyResult, StorageError> {
    let (mesh, by) = (principal.mesh, principal.member);
    let storage = shared.storage();
    let standing = storage.credentials(mesh, by).await?.standing;
    // It hides ops of everybody: that is not for a guest.
    let is_owner = standing.is_some_and(|s| s.is_owner());
    if !is_owner {
        return Ok(no(
            ErrorCode::NotOwner,
            "only an owner publishes a snapshot",
        ));
    }
    let verdict = match step {
        Step::Begin => storage.begin_snapshot(mesh, id, by).await?,
        Step::Commit => storage.commit_snapshot(mesh, id, by).await?,
    };
    Ok(match verdict {
        SnapshotVerdict::Changed => {
            if step == Step::Commit {
                shared.log_grew(mesh);
            }
            ReplyResult::Ok { changed: true }
        }
        SnapshotVerdict::Same => ReplyResult::Ok { changed: false },
        SnapshotVerdict::Other => no(ErrorCode::InvalidRequest, "another snapshot is open"),
        SnapshotVerdict::Unsupported => {
            no(ErrorCode::InvalidRequest, "this broker has no snapshots")
        }
    })
}

/// The parts of an upload, in the words of a connection.
async fn upload<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    request: Request,
) -> ReplyResult {
    let accept = &shared.accept;
    let uploaded = match request {
        Request::UploadBegin { snapshot } => upload::begin(accept, principal, snapshot).await,
        Request::UploadChunk {
            snapshot,
            after,
            items,
        } => {
            // The answer has no room for names: an item that could be corrected is not passed over in silence.
            let part = (after, items);
            upload::chunk(accept, principal, snapshot, part, Unfit::InTheWay).await
        }
        Request::UploadCommit { snapshot, through } => {
            upload::commit(accept, principal, snapshot, through).await
        }
        // Nothing else is handed here.
        _ => return ReplyResult::Ok { changed: false },
    };
    match uploaded {
        Ok(Uploaded::Open { through, .. }) => ReplyResult::Upload {
            through: Some(through),
            first: None,
        },
        Ok(Uploaded::Shown {
            shown, is_fresh, ..
        }) => {
            if is_fresh {
                shared.log_grew(principal.mesh);
            }
            ReplyResult::Upload {
                through: None,
                first: Some(shown.first),
            }
        }
        Err(refusal) => ReplyResult::Refused(refused(refusal)),
    }
}

fn no(code: ErrorCode, detail: &str) -> ReplyResult {
    let detail = detail.to_owned();
    ReplyResult::Refused(refused(Refusal::new(code, detail)))
}

/// Up to where this member may read the log; everything where there is no snapshot of somebody else. What hides
/// something because a commit is under way is brought on: nobody waits for an owner who is gone.
pub(super) async fn readable<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
) -> Result<HistoryId, StorageError> {
    const EVERYTHING: HistoryId = HistoryId {
        epoch: u64::MAX,
        seq: u64::MAX,
    };
    let mesh = principal.mesh;
    let open = shared.storage().open_snapshot(mesh).await?;
    let Some(open) = open.filter(|open| open.by != principal.member) else {
        return Ok(EVERYTHING);
    };
    if upload::help(&shared.accept, mesh, open.by).await? {
        shared.log_grew(mesh);
        return Ok(EVERYTHING);
    }
    Ok(open.behind)
}
