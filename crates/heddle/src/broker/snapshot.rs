//! The upload of a snapshot over HTTP (local-first §9.3): `POST …/snapshot/begin`, `…/snapshot/ID/chunk` and
//! `…/snapshot/ID/commit`. The same room as the one behind the WebSocket, for an operator who names the owner.

use heddle_broker::Principal;
use heddle_broker::accept::Unfit;
use heddle_broker::storage::{Storage as _, Upkeep as _};
use heddle_broker::upload::{self, Uploaded};
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::{MemberId, OpId};
use heddle_core::limits::{BATCH_ITEMS_MAX, FRAME_BYTES_MAX, REQUEST_BYTES_MAX};
use heddle_core::names::MeshName;
use heddle_wire::broker::{
    SnapshotAnswer, SnapshotBeginBody, SnapshotChunkBody, SnapshotCommitBody,
};
use heddle_wire::problem::Problem;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};

use super::api::{Answered, NextIs as _, broken, no, read, shown};
use super::door::Door;

/// What is asked, with the text of the upload's id.
#[derive(Clone, Copy)]
pub(super) enum Step<'p> {
    Begin,
    Chunk(&'p str),
    Commit(&'p str),
}

impl<'p> Step<'p> {
    /// What stands behind `snapshot/`.
    pub(super) fn of(rest: &'p str) -> Option<Self> {
        if rest == "begin" {
            return Some(Self::Begin);
        }
        match rest.split_once('/')? {
            (id, "chunk") => Some(Self::Chunk(id)),
            (id, "commit") => Some(Self::Commit(id)),
            _ => None,
        }
    }
}

pub(super) async fn answer(
    door: &Door,
    slug: MeshName,
    step: Step<'_>,
    request: Request<Incoming>,
) -> Answered {
    let accept = door.broker.accept();
    let (id, principal, uploaded) = match step {
        Step::Begin => {
            let body: SnapshotBeginBody = read(request, REQUEST_BYTES_MAX).await?;
            let id = match &body.snapshot_id {
                Some(text) => parsed(text)?,
                None => OpId::from_bytes(accept.ids.ulid().to_bytes()),
            };
            let principal = owner(door, slug, body.member).await?;
            let begun = upload::begin(accept, &principal, id).await;
            (id, principal, begun)
        }
        Step::Chunk(text) => {
            let body: SnapshotChunkBody = read(request, FRAME_BYTES_MAX).await?;
            if body.items.len() > BATCH_ITEMS_MAX {
                let why = format!("a chunk has at most {BATCH_ITEMS_MAX} items");
                return Err(no(ErrorCode::PayloadTooLarge, why));
            }
            let principal = owner(door, slug, body.member).await?;
            let (id, part) = (parsed(text)?, (body.cursor, body.items));
            let taken = upload::chunk(accept, &principal, id, part, Unfit::Named).await;
            (id, principal, taken)
        }
        Step::Commit(text) => {
            let body: SnapshotCommitBody = read(request, REQUEST_BYTES_MAX).await?;
            let principal = owner(door, slug, body.member).await?;
            let id = parsed(text)?;
            let done = upload::commit(accept, &principal, id, body.cursor).await;
            (id, principal, done)
        }
    };
    let uploaded = uploaded.map_err(|refusal| match refusal.code {
        ErrorCode::NotOwner => not_owner(&refusal.detail),
        code => no(code, refusal.detail),
    })?;
    if matches!(uploaded, Uploaded::Shown { is_fresh: true, .. }) {
        door.broker.log_grew(principal.mesh);
    }
    Ok(shown(
        StatusCode::OK,
        &view(id, uploaded),
        "application/json",
    ))
}

fn parsed(text: &str) -> Result<OpId, Box<Problem>> {
    let why = |error| no(ErrorCode::InvalidRequest, format!("{text:?}: {error}"));
    text.parse().map_err(why)
}

fn view(snapshot_id: OpId, uploaded: Uploaded) -> SnapshotAnswer {
    let open = SnapshotAnswer {
        snapshot_id,
        committed: false,
        next_cursor: None,
        left_out: None,
        left_out_items: Vec::new(),
        waits: None,
        broker_epoch: None,
        broker_seq_start: None,
        rows: None,
        duplicate: None,
    };
    match uploaded {
        Uploaded::Open {
            through,
            left_out,
            waits,
        } => SnapshotAnswer {
            next_cursor: Some(through),
            left_out: Some(left_out.count),
            left_out_items: left_out.items,
            waits,
            ..open
        },
        Uploaded::Shown {
            shown,
            is_fresh,
            left_out,
        } => SnapshotAnswer {
            committed: true,
            left_out: Some(left_out.count),
            left_out_items: left_out.items,
            broker_epoch: Some(shown.first.epoch),
            broker_seq_start: Some(shown.first.seq),
            rows: Some(shown.row_count),
            duplicate: Some(!is_fresh),
            ..open
        },
    }
}

/// It is the operator who asks, and names the owner.
fn not_owner(why: &str) -> Box<Problem> {
    no(ErrorCode::NotOwner, why).next_is(
        "Name an owner of the mesh in `member`: `heddle broker members --json` shows who that is, with ids.",
    )
}

/// The member for whom it is, as the mesh knows it.
async fn owner(door: &Door, slug: MeshName, member: MemberId) -> Result<Principal, Box<Problem>> {
    let tables = door.broker.accept().storage.as_ref();
    let mut meshes = tables.meshes().await.map_err(broken)?.into_iter();
    let Some((mesh, _)) = meshes.find(|(_, name)| *name == slug) else {
        return Err(no(ErrorCode::NotFound, format!("there is no mesh {slug}")));
    };
    let roster = tables.roster(mesh).await.map_err(broken)?;
    let mut members = roster.members.into_iter();
    let Some((member, member_name)) = members.find(|(id, _)| *id == member) else {
        return Err(not_owner("the mesh has no such member"));
    };
    Ok(Principal {
        mesh,
        member,
        member_name,
    })
}
