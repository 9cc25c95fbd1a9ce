//! A large publish goes to the broker in parts, which lie apart there until the last of them is there (LF-34).
//!
//! The cursor is the broker's: every tick asks it where the upload stands and goes on behind that, so a part whose
//! answer was lost, a kill on either side and an upload that the broker has swept are one and the same case. The ops
//! stay in the outbox until they come back through the log; one that the broker left out goes the ordinary way.

use heddle_core::error_code::{ErrorCode, Retry};
use heddle_core::limits::{BATCH_BYTES_MAX, BATCH_ITEMS_MAX, UPLOAD_COMMIT_TIMEOUT};
use heddle_store::{DueOp, Publish, SnapshotStep, StoreError};
use heddle_wire::broker::{EnvelopeBytes, ReplyResult, Request, UploadItem};

use super::{Exchange, publish};
use crate::link::Live;
use crate::mesh::MeshState;
use crate::shared::Shared;

/// Parts of one tick; behind them what came meanwhile is applied.
const PARTS_MAX: usize = 16;

/// `None`: nothing of this mesh is uploaded.
pub(super) async fn run(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
) -> Result<Option<Exchange>, StoreError> {
    let id = mesh.mesh.mesh;
    let publish = shared.store.publish(id).await?;
    let Some(open) = publish.filter(|publish| publish.snapshot == SnapshotStep::Staged) else {
        return Ok(None);
    };
    if shared.store.sync_head(id).await?.paused {
        return Ok(Some(Exchange::Done(false)));
    }
    let snapshot = publish::of(mesh, open);
    let mut reply = live.request(Request::UploadBegin { snapshot }).await;
    let mut last = None;
    let mut is_committing = false;
    for _ in 0..PARTS_MAX {
        let through = match stand(reply) {
            Stand::Through(through) => through,
            Stand::Shown => {
                publish::shown(shared, mesh, open).await?;
                return Ok(Some(Exchange::More));
            }
            Stand::Later(why) => return Ok(Some(Exchange::Later(why))),
            Stand::Never(why) => return give_up(shared, mesh, live, (open, &why)).await.map(Some),
        };
        let ops = shared
            .store
            .upload_ops(id, through, BATCH_ITEMS_MAX, BATCH_BYTES_MAX);
        let ops = ops.await?;
        if ops.is_empty() && open.finished_at.is_none() {
            // The next rows become ops in the next tick.
            return Ok(Some(Exchange::Done(last.is_some())));
        }
        if is_committing {
            // It has accepted some of them, and is not through.
            return Ok(Some(Exchange::More));
        }
        if last == Some(through) {
            // It took nothing of the last part, and says no word about it.
            let why = "the broker stands still with an upload".to_owned();
            return Ok(Some(Exchange::Later(why)));
        }
        last = Some(through);
        is_committing = ops.is_empty();
        reply = if is_committing {
            let commit = Request::UploadCommit { snapshot, through };
            live.request_within(commit, UPLOAD_COMMIT_TIMEOUT).await
        } else {
            let (after, items) = (through, ops.into_iter().map(item).collect());
            live.request(Request::UploadChunk {
                snapshot,
                after,
                items,
            })
            .await
        };
    }
    Ok(Some(Exchange::More))
}

fn item(op: DueOp) -> UploadItem {
    UploadItem {
        at: u64::try_from(op.arrival).unwrap_or(0),
        agent: op.agent,
        client_message_id: op.client_message_id,
        envelope: EnvelopeBytes(op.payload),
    }
}

/// What an answer says about the upload.
enum Stand {
    Through(u64),
    Shown,
    Later(String),
    Never(String),
}

fn stand(reply: Option<ReplyResult>) -> Stand {
    match reply {
        Some(ReplyResult::Upload { first: Some(_), .. }) => Stand::Shown,
        Some(ReplyResult::Upload {
            through: Some(through),
            ..
        }) => Stand::Through(through),
        Some(ReplyResult::Refused(refused)) => {
            let code = ErrorCode::parse(&refused.code);
            // Swept, or lost with an older copy: the next tick begins it again.
            let is_lost = code == Some(ErrorCode::NotFound);
            // A broker of before takes so many rows and no more, however often it is asked.
            if code == Some(ErrorCode::PayloadTooLarge) {
                Stand::Never(refused.detail)
            } else if is_lost || code.is_none_or(|code| code.retry() == Retry::SameId) {
                Stand::Later(refused.detail)
            } else {
                Stand::Never(refused.detail)
            }
        }
        Some(_) => Stand::Never("the broker answers an upload with something else".to_owned()),
        None => Stand::Later("no answer from the broker".to_owned()),
    }
}

/// The broker will not have it in parts: the same ops go out one by one, behind a fence.
async fn give_up(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
    (open, why): (Publish, &str),
) -> Result<Exchange, StoreError> {
    tracing::warn!(mesh = %mesh.mesh.name, why, "the mesh cannot be uploaded in parts; its rows are sent one by one");
    Ok(if publish::fence(shared, mesh, live, open).await? {
        Exchange::More
    } else {
        Exchange::Later(why.to_owned())
    })
}
