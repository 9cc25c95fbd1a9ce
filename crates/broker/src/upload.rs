//! The upload of a snapshot by the owner of a mesh: one room for the WebSocket and for the HTTP door.
//!
//! What it promises is written at [`crate::storage::Uploads`]. A commit of many rows is many short transactions: the
//! request goes on with them for a while and then says where the upload stands, as if nothing had been asked. Whoever
//! cannot read on meanwhile lends a hand, so that nobody waits for an owner who is gone.

use std::time::Duration;

use heddle_core::error_code::ErrorCode;
use heddle_core::ids::{ClientMessageId, MemberId, MeshId, OpId};
use heddle_core::limits::{UPLOAD_COMMIT_TURN, UPLOAD_HELP_TURN};
use heddle_core::names::AgentName;
use heddle_wire::broker::{LeftOutItem, SendItem, UploadItem};
use serde_json::value::RawValue;

use crate::accept::{Accept, Refusal, Staged, Unfit, reused};
use crate::limiter::Limiter;
use crate::principal::Principal;
use crate::storage::{LeftOut, Shown, Storage, StorageError, UploadEnd, UploadPart, UploadVerdict};

/// How far an upload is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uploaded {
    /// Everything up to this cursor is here, but for items of this part that cannot be taken.
    Open {
        through: u64,
        left_out: NotTaken,
        /// The first item behind it that was sent and has to come again, and why.
        waits: Option<LeftOutItem>,
    },
    /// Everybody sees it; since now, if `is_fresh`. But for rows of which the commit found that they cannot be.
    Shown {
        shown: Shown,
        is_fresh: bool,
        left_out: NotTaken,
    },
}

/// What is missing of what was sent: how many items, and the first of them by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotTaken {
    pub count: u64,
    pub items: Vec<LeftOutItem>,
}

impl From<LeftOut> for NotTaken {
    fn from(left_out: LeftOut) -> Self {
        let named = left_out.named.into_iter().map(|row| LeftOutItem {
            at: None,
            agent: row.agent,
            client_message_id: row.client_message_id,
            code: row.code.as_str().to_owned(),
            detail: if row.code == ErrorCode::IdempotencyKeyReused {
                reused().detail
            } else {
                "the tables did not take it; upload it again by itself".to_owned()
            },
        });
        Self {
            count: left_out.count,
            items: named.collect(),
        }
    }
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
            verdict => return answer(accept, by, id, verdict).await,
        }
    }
}

/// Some more rows behind a cursor. As many of them as there is budget for are taken.
pub async fn chunk<S: Storage, L: Limiter>(
    accept: &Accept<S, L>,
    by: &Principal,
    id: OpId,
    (after, items): (u64, Vec<UploadItem>),
    unfit: Unfit,
) -> Result<Uploaded, Refusal> {
    owner(accept, by).await?;
    let rises = std::iter::once(after)
        .chain(items.iter().map(|item| item.at))
        .is_sorted_by(|one, next| one < next);
    if !rises {
        return misplaced(accept, by, id, after).await;
    }
    let names: Vec<_> = items.iter().map(Named::of).collect();
    let (sent, no_json) = readable(items);
    if unfit == Unfit::InTheWay && !no_json.is_empty() {
        return Err(not_json());
    }
    let (numbers, sent): (Vec<usize>, Vec<SendItem>) = sent.into_iter().unzip();
    let Staged {
        messages,
        taken,
        left_out,
        waits,
    } = accept.stage(by, sent, unfit).await;
    // Where nothing waits all of them are settled, those that are no JSON too.
    let settled = match numbers.get(taken) {
        Some(number) if waits.is_some() => *number,
        _ => names.len(),
    };
    let through = match (settled.checked_sub(1), &waits) {
        (Some(end), _) => names.get(end).map_or(after, |name| name.at),
        (None, Some(refusal)) => return Err(refusal.clone()),
        (None, None) => after,
    };
    let part = UploadPart {
        after,
        through,
        rows: messages,
        now: accept.clock.wall(),
    };
    let known = left_out.into_iter();
    let known = known.filter_map(|(taken, why)| Some((*numbers.get(taken)?, why)));
    let unread = no_json.into_iter().filter(|number| *number < settled);
    let unread = unread.map(|number| (number, not_json()));
    let items = missing(&names, known.chain(unread).collect());
    let kept = accept.storage.stage_upload(by.mesh, by.member, id, part);
    let verdict = kept.await.map_err(Refusal::from)?;
    let is_taken = verdict == UploadVerdict::Through(through);
    let mut uploaded = answer(accept, by, id, verdict).await?;
    if let Uploaded::Open {
        left_out,
        waits: next,
        ..
    } = &mut uploaded
    {
        let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
        *left_out = NotTaken { count, items };
        *next = waits
            .filter(|_| is_taken)
            .and_then(|why| Some(names.get(settled)?.because(why)));
    }
    Ok(uploaded)
}

/// By what whoever sent an item knows it.
struct Named {
    at: u64,
    agent: AgentName,
    client_message_id: ClientMessageId,
}

impl Named {
    fn of(item: &UploadItem) -> Self {
        Self {
            at: item.at,
            agent: item.agent.clone(),
            client_message_id: item.client_message_id.clone(),
        }
    }

    fn because(&self, why: Refusal) -> LeftOutItem {
        LeftOutItem {
            at: Some(self.at),
            agent: self.agent.clone(),
            client_message_id: self.client_message_id.clone(),
            code: why.code.as_str().to_owned(),
            detail: why.detail,
        }
    }
}

/// In the order in which they were sent.
fn missing(names: &[Named], mut why: Vec<(usize, Refusal)>) -> Vec<LeftOutItem> {
    why.sort_by_key(|(number, _)| *number);
    let missing = why.into_iter();
    let missing = missing.filter_map(|(number, why)| Some(names.get(number)?.because(why)));
    missing.collect()
}

/// Items that can be staged, each with its number, and the numbers of those whose envelope is no JSON.
fn readable(items: Vec<UploadItem>) -> (Vec<(usize, SendItem)>, Vec<usize>) {
    let (mut readable, mut no_json) = (Vec::new(), Vec::new());
    for (number, item) in items.into_iter().enumerate() {
        match sent(item) {
            Some(item) => readable.push((number, item)),
            None => no_json.push(number),
        }
    }
    (readable, no_json)
}

fn not_json() -> Refusal {
    no(ErrorCode::InvalidRequest, "an envelope is not JSON")
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
        verdict => answer(accept, by, id, verdict).await,
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
            left_out: NotTaken::default(),
            waits: None,
        }),
        verdict => answer(accept, by, id, verdict).await,
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

async fn answer<S: Storage, L: Limiter>(
    accept: &Accept<S, L>,
    by: &Principal,
    id: OpId,
    verdict: UploadVerdict,
) -> Result<Uploaded, Refusal> {
    let is_fresh = matches!(verdict, UploadVerdict::Committed(_));
    match verdict {
        UploadVerdict::Through(through) => Ok(Uploaded::Open {
            through,
            left_out: NotTaken::default(),
            waits: None,
        }),
        UploadVerdict::Committed(shown) | UploadVerdict::Shown(shown) => {
            if is_fresh {
                metrics::counter!("heddle_broker_uploads_committed_total").increment(1);
            }
            let passed = accept.storage.upload_left_out(by.mesh, by.member, id);
            let left_out = passed.await.map_err(Refusal::from)?;
            if is_fresh && !left_out.is_empty() {
                let (mesh, rows) = (by.mesh, left_out.count);
                tracing::warn!(%mesh, upload = %id, rows, "a snapshot is shown without rows whose ids are other rows'");
            }
            Ok(Uploaded::Shown {
                shown,
                is_fresh,
                left_out: left_out.into(),
            })
        }
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
