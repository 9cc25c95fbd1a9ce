//! The upload of a snapshot by the owner of a mesh: one room for the WebSocket and for the HTTP door.
//!
//! What it promises is written at [`crate::storage::Uploads`]. A commit of many rows is many short transactions: the
//! request goes on with them for a while and then says where the upload stands, as if nothing had been asked. Whoever
//! cannot read on meanwhile lends a hand, so that nobody waits for an owner who is gone.

use std::time::Duration;

use heddle_core::error_code::ErrorCode;
use heddle_core::ids::{MemberId, MeshId, OpId};
use heddle_core::limits::{UPLOAD_COMMIT_TURN, UPLOAD_HELP_TURN};
use heddle_wire::broker::{SendItem, UploadItem};
use serde_json::value::RawValue;

use crate::accept::{Accept, Refusal, Staged};
use crate::limiter::Limiter;
use crate::principal::Principal;
use crate::storage::{Shown, Storage, StorageError, UploadEnd, UploadPart, UploadVerdict};

/// How far an upload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uploaded {
    /// Everything up to this cursor is here.
    Open { through: u64, left_out: u64 },
    /// Everybody sees it; since now, if `is_fresh`.
    Shown { shown: Shown, is_fresh: bool },
}

pub async fn begin<S: Storage, L: Limiter>(
    accept: &Accept<S, L>,
    by: &Principal,
    id: OpId,
) -> Result<Uploaded, Refusal> {
    owner(accept, by).await?;
    // Stores know it as the id of what is being thrown away.
    if id.to_bytes() == [0; 16] {
        return Err(no(
            ErrorCode::InvalidRequest,
            "a snapshot id is not all zeros",
        ));
    }
    let until = accept.clock.mono() + UPLOAD_COMMIT_TURN;
    loop {
        let now = accept.clock.wall();
        let begun = accept.storage.begin_upload(by.mesh, by.member, id, now);
        let verdict = begun.await.map_err(Refusal::from)?;
        let is_over = accept.clock.mono() >= until;
        match verdict {
            UploadVerdict::Going if !is_over => {}
            UploadVerdict::Ending(other, through) if !is_over => {
                steps(accept, by, (other, through), until).await?;
            }
            verdict => return answer(verdict, 0),
        }
    }
}

/// Some more rows behind a cursor. As many of them as there is budget for are taken.
pub async fn chunk<S: Storage, L: Limiter>(
    accept: &Accept<S, L>,
    by: &Principal,
    id: OpId,
    (after, items): (u64, Vec<UploadItem>),
) -> Result<Uploaded, Refusal> {
    owner(accept, by).await?;
    let rises = std::iter::once(after)
        .chain(items.iter().map(|item| item.at))
        .is_sorted_by(|one, next| one < next);
    if !rises {
        return misplaced(accept, by, id, after).await;
    }
    let places: Vec<u64> = items.iter().map(|item| item.at).collect();
    let items: Option<Vec<SendItem>> = items.into_iter().map(sent).collect();
    let items = items.ok_or_else(|| no(ErrorCode::InvalidRequest, "an envelope is not JSON"))?;
    let staged = accept.stage(by, items).await;
    let Staged {
        messages, waits, ..
    } = staged;
    let through = match (staged.taken.checked_sub(1), waits) {
        (Some(end), _) => places.get(end).copied().unwrap_or(after),
        (None, Some(refusal)) => return Err(refusal),
        (None, None) => after,
    };
    let part = UploadPart {
        after,
        through,
        rows: messages,
        now: accept.clock.wall(),
    };
    let left_out = u64::try_from(staged.left_out).unwrap_or(u64::MAX);
    let kept = accept.storage.stage_upload(by.mesh, by.member, id, part);
    answer(kept.await.map_err(Refusal::from)?, left_out)
}

/// Items that do not rise from their cursor: whoever named another one than that of the upload has lost its place, and is told
/// it; whoever named the right one sends what nobody can keep.
async fn misplaced<S: Storage, L: Limiter>(
    accept: &Accept<S, L>,
    by: &Principal,
    id: OpId,
    after: u64,
) -> Result<Uploaded, Refusal> {
    let nothing = UploadPart {
        after,
        through: after,
        rows: Vec::new(),
        now: accept.clock.wall(),
    };
    let stands = accept
        .storage
        .stage_upload(by.mesh, by.member, id, nothing)
        .await;
    match stands.map_err(Refusal::from)? {
        UploadVerdict::Through(through) if through == after => Err(no(
            ErrorCode::InvalidRequest,
            "the places of the items must rise",
        )),
        verdict => answer(verdict, 0),
    }
}

/// All of it becomes ops of the log, which everybody sees at once. `Open` where that takes longer than one request.
pub async fn commit<S: Storage, L: Limiter>(
    accept: &Accept<S, L>,
    by: &Principal,
    id: OpId,
    through: u64,
) -> Result<Uploaded, Refusal> {
    owner(accept, by).await?;
    let until = accept.clock.mono() + UPLOAD_COMMIT_TURN;
    match steps(accept, by, (id, through), until).await? {
        UploadVerdict::Going => Ok(Uploaded::Open {
            through,
            left_out: 0,
        }),
        verdict => answer(verdict, 0),
    }
}

/// Somebody waits for a commit that has begun: some more of it. True if it came to its end now.
pub async fn help<S: Storage, L: Limiter>(
    accept: &Accept<S, L>,
    mesh: MeshId,
    member: MemberId,
) -> Result<bool, StorageError> {
    let storage = &accept.storage;
    let Some(ending) = storage.ending_upload(mesh, member).await? else {
        return Ok(false);
    };
    let mut members = storage.roster(mesh).await?.members.into_iter();
    let Some((_, member_name)) = members.find(|(id, _)| *id == member) else {
        return Ok(false);
    };
    let by = Principal {
        mesh,
        member,
        member_name,
    };
    let until = accept.clock.mono() + UPLOAD_HELP_TURN;
    let verdict = take_steps(accept, &by, ending, until).await?;
    Ok(matches!(verdict, UploadVerdict::Committed(_)))
}

async fn steps<S: Storage, L: Limiter>(
    accept: &Accept<S, L>,
    by: &Principal,
    which: (OpId, u64),
    until: Duration,
) -> Result<UploadVerdict, Refusal> {
    let taken = take_steps(accept, by, which, until).await;
    taken.map_err(Refusal::from)
}

/// Steps of a commit, one at least, until it is over or the time is.
async fn take_steps<S: Storage, L: Limiter>(
    accept: &Accept<S, L>,
    by: &Principal,
    (id, through): (OpId, u64),
    until: Duration,
) -> Result<UploadVerdict, StorageError> {
    loop {
        let at = accept.clock.wall();
        let end = UploadEnd {
            through,
            sender_name: by.member_name.clone(),
            at,
            expires_at: accept.expires_at(at),
        };
        let step = accept.storage.commit_upload(by.mesh, by.member, id, end);
        let verdict = step.await?;
        if verdict != UploadVerdict::Going || accept.clock.mono() >= until {
            return Ok(verdict);
        }
    }
}

/// Rows that others get as one are for an owner to send.
async fn owner<S: Storage, L: Limiter>(
    accept: &Accept<S, L>,
    by: &Principal,
) -> Result<(), Refusal> {
    let found = accept.storage.credentials(by.mesh, by.member).await;
    let standing = found.map_err(Refusal::from)?.standing;
    if standing.is_some_and(|standing| standing.is_owner()) {
        return Ok(());
    }
    Err(no(
        ErrorCode::NotOwner,
        "only an owner publishes a snapshot",
    ))
}

fn sent(item: UploadItem) -> Option<SendItem> {
    let text = String::from_utf8(item.envelope.0).ok()?;
    Some(SendItem {
        agent: item.agent,
        client_message_id: item.client_message_id,
        epoch: None,
        envelope: RawValue::from_string(text).ok()?,
    })
}

fn answer(verdict: UploadVerdict, left_out: u64) -> Result<Uploaded, Refusal> {
    match verdict {
        UploadVerdict::Through(through) => Ok(Uploaded::Open { through, left_out }),
        UploadVerdict::Committed(shown) => {
            metrics::counter!("heddle_broker_uploads_committed_total").increment(1);
            Ok(Uploaded::Shown {
                shown,
                is_fresh: true,
            })
        }
        UploadVerdict::Shown(shown) => Ok(Uploaded::Shown {
            shown,
            is_fresh: false,
        }),
        UploadVerdict::Unknown => Err(no(
            ErrorCode::NotFound,
            "there is no such upload; begin it again",
        )),
        UploadVerdict::Going | UploadVerdict::Ending(..) => Err(no(
            ErrorCode::DaemonBusy,
            "the upload of before is not over yet; ask again",
        )),
        UploadVerdict::Waits => Err(no(
            ErrorCode::DaemonBusy,
            "somebody else's snapshot of the mesh is being shown; ask again",
        )),
        UploadVerdict::Barred => Err(no(
            ErrorCode::MemberRevoked,
            "the sender is not heard in the mesh",
        )),
    }
}

fn no(code: ErrorCode, detail: &str) -> Refusal {
    let detail = detail.to_owned();
    Refusal::new(code, detail)
}
