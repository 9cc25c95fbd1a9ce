//! The sync of a mesh's data: its clock, its dump, and what the doctor says and does about its ops.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_core::clock::WallMs;
use heddle_core::error_code::ErrorCode;
use heddle_core::limits::RESPONSE_BYTES_MAX;
use heddle_core::sync::SyncState;
use heddle_store::{Dropped, LostState, Retried};
use heddle_wire::from_wire;
use heddle_wire::ipc::{
    ClockView, DoctorAnswer, DumpView, Finding, OpBody, ResumeBody, StuckOp, SyncView,
};
use heddle_wire::problem::Problem;
use serde::Deserialize;

use super::kept;
use super::outbox::{FindQuery, find};
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::shared::{Shared, store_problem};
use crate::sync::{log_hole_next, set_aside, set_aside_next, split};

/// Ops that one look lists for a mesh.
const OPS_LISTED_MAX: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClockQuery {
    #[serde(default)]
    mesh: Option<String>,
}

pub(super) async fn clock(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: ClockQuery = body::query(&request.into_parts().0)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    let clock = ipc.shared.store.data_clock(mesh.mesh.mesh).await;
    let clock = clock.map_err(|error| store_problem(&error))?;
    let sync = view(&ipc.shared, mesh).await?;
    let is_offline = sync.state == SyncState::Reconnecting.as_str();
    ok(&ClockView {
        mesh: mesh.mesh.name.to_string(),
        lamport: clock.value,
        incarnation: clock.incarnation,
        sync_state: if is_offline {
            "offline".to_owned()
        } else {
            sync.state.clone()
        },
        last_sync_at: sync.last_sync_at.clone(),
        sync,
    })
}

/// As the tables have it now; only the state and the last error are the loop's own.
pub(super) async fn view(shared: &Shared, mesh: &MeshState) -> Result<SyncView, Problem> {
    let id = mesh.mesh.mesh;
    let head = shared.store.sync_head(id).await;
    let head = head.map_err(|error| store_problem(&error))?;
    let figures = shared.store.sync_figures(id).await;
    let figures = figures.map_err(|error| store_problem(&error))?;
    let seen = mesh.sync.view();
    let state = match seen.state {
        _ if !head.kind.is_shared() => SyncState::Local,
        _ if !mesh.is_answering() => SyncState::Reconnecting,
        _ if head.paused => SyncState::Paused,
        state => state,
    };
    Ok(SyncView {
        state: state.as_str().to_owned(),
        kind: head.kind.as_str().to_owned(),
        split: seen.split && !head.kind.is_shared(),
        paused: head.paused,
        needs_resync: head.needs_resync,
        broker_epoch: head.broker_epoch,
        log: head.log.to_string(),
        out_waiting: figures.out_waiting,
        out_refused: figures.out_refused,
        in_waiting: figures.in_waiting,
        in_parked: figures.in_parked,
        in_quarantined: figures.in_quarantined,
        in_own_refused: figures.in_own_refused,
        kept: mesh.sync.kept().of_others,
        last_sync_at: head.last_sync_at.map(WallMs::to_rfc3339),
        last_error: seen.last_error,
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DumpQuery {
    #[serde(default)]
    pub(super) mesh: Option<String>,
    #[serde(default)]
    pub(super) cursor: Option<String>,
}

pub(super) async fn dump(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: DumpQuery = body::query(&request.into_parts().0)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    let skip: u64 = match &query.cursor {
        None => 0,
        Some(text) => text
            .parse()
            .map_err(|_| from_wire::invalid("the cursor is not one of ours".to_owned()))?,
    };
    // A line is a string in the answer, in which every quote is escaped.
    let (store, left_out) = ipc.shared.store.leniently();
    let page = store.dump(mesh.mesh.mesh, skip, RESPONSE_BYTES_MAX / 4);
    let page = page.await.map_err(|error| store_problem(&error))?;
    let next = skip.saturating_add(u64::try_from(page.lines.len()).unwrap_or(u64::MAX));
    ok(&DumpView {
        mesh: mesh.mesh.name.to_string(),
        lines: page.lines,
        cursor: page.more.then(|| next.to_string()),
        left_out: ipc.shared.unreadable.left_out(&left_out),
    })
}

/// What is to be said of a mesh's sync.
pub(super) fn finding(mesh: &MeshState, sync: &SyncView) -> Finding {
    let name = &mesh.mesh.name;
    let (ok, says, next) = if let Some(barred) = mesh.standing.barred() {
        let says = format!(
            "no connection: {}; {} changes wait to be sent",
            barred.why, sync.out_waiting
        );
        (false, says, barred.next.to_owned())
    } else if sync.split {
        (
            false,
            split::says(name.as_str()),
            split::next(name.as_str()),
        )
    } else if sync.kind == "personal" {
        (
            true,
            "its data stays in this home".to_owned(),
            String::new(),
        )
    } else if sync.paused {
        let says =
            "its sync is paused: one op was refused too often; local work goes on".to_owned();
        let next = format!(
            "Look at the refused op below; `heddle doctor --retry ID` or `heddle doctor --drop ID`, then `heddle doctor --resume-sync {name}`."
        );
        (false, says, next)
    } else if sync.needs_resync {
        let says = "the broker's log has a gap; data of others may be missing here".to_owned();
        (false, says, log_hole_next(name.as_str()))
    } else if sync.in_quarantined > 0 {
        let (own, all) = (sync.in_own_refused, sync.in_quarantined);
        (false, set_aside(own, all), set_aside_next(own, all))
    } else if sync.out_refused > 0 {
        let says = format!(
            "{} of {} changes that wait to be sent were refused by its broker or are damaged; the others do not have them, everything else goes on",
            sync.out_refused, sync.out_waiting
        );
        let next = "They are tried again by themselves, ten times in all. The reason stands at the op below; when that is mended, `heddle doctor --retry ID` sends it at once, and `heddle doctor --drop ID` keeps the change in this home only.".to_owned();
        (false, says, next)
    } else if let Some(says) = mesh.kept_in_words() {
        (false, says, kept::next(mesh))
    } else if sync.state == SyncState::Reconnecting.as_str() {
        let says = format!(
            "no connection; {} changes wait to be sent, and will be",
            sync.out_waiting
        );
        (true, says, String::new())
    } else {
        let says = format!("{} changes wait to be sent", sync.out_waiting);
        (true, says, String::new())
    };
    Finding {
        check: format!("sync of mesh {name}"),
        ok,
        says,
        next,
    }
}

/// The ops of a mesh that wait for a person.
pub(super) async fn stuck(shared: &Shared, mesh: &MeshState) -> Result<Vec<StuckOp>, Problem> {
    let id = mesh.mesh.mesh;
    let name = mesh.mesh.name.to_string();
    let refused = shared.store.refused_ops(id, OPS_LISTED_MAX).await;
    let refused = refused.map_err(|error| store_problem(&error))?;
    let aside = shared.store.set_aside_ops(id, OPS_LISTED_MAX).await;
    let aside = aside.map_err(|error| store_problem(&error))?;
    let outgoing = refused.into_iter().map(|(id, attempts, reason)| StuckOp {
        id,
        mesh: name.clone(),
        way: "outgoing".to_owned(),
        state: "refused".to_owned(),
        attempts,
        reason,
        sender: None,
    });
    let incoming = aside.into_iter().map(|op| StuckOp {
        id: op.op_id,
        mesh: name.clone(),
        way: "incoming".to_owned(),
        state: op.state,
        attempts: 0,
        reason: op.reason,
        sender: Some(super::data::address(mesh, &op.sender)),
    });
    Ok(outgoing.chain(incoming).collect())
}

/// Messages that the broker of a mesh has lost and does not have again.
pub(super) async fn lost(shared: &Shared, mesh: &MeshState) -> Result<Vec<StuckOp>, Problem> {
    let open = shared.store.lost_open(mesh.mesh.mesh, OPS_LISTED_MAX).await;
    let open = open.map_err(|error| store_problem(&error))?;
    let stuck = open.into_iter().map(|one| StuckOp {
        id: one.client_message_id,
        mesh: mesh.mesh.name.to_string(),
        way: format!("message to {}", one.to),
        state: format!("lost by the broker ({}), {}", one.place, one.state.as_str()),
        attempts: 0,
        reason: one.reason,
        sender: None,
    });
    Ok(stuck.collect())
}

/// A person has decided about a message that the broker has lost; `None` where no such message is under this id.
async fn decide_lost(
    ipc: &Ipc,
    asked: &OpBody,
    state: LostState,
) -> Result<Option<DoctorAnswer>, Problem> {
    let scope = FindQuery::new(asked.mesh.clone(), None);
    let mut found = find(ipc, &asked.id, &scope).await;
    // Whose it is matters only where that is not clear: the op's id is all that most callers name.
    if found.is_err() && asked.agent.is_some() {
        let scope = FindQuery::new(asked.mesh.clone(), asked.agent.clone());
        found = find(ipc, &asked.id, &scope).await;
    }
    let row = match found {
        Ok(row) => row,
        Err(problem) if problem.known_code() == Some(ErrorCode::NotFound) => return Ok(None),
        Err(problem) => return Err(problem),
    };
    let shared = &ipc.shared;
    let Some(mesh) = shared.meshes.iter().find(|m| m.mesh.mesh == row.mesh) else {
        return Ok(None);
    };
    let lost = shared.store.lost_of(row.arrival).await;
    let Some(lost) = lost.map_err(|error| store_problem(&error))? else {
        return Ok(None);
    };
    let reason = match state {
        LostState::GivenUp => "a person said that it is well as it is",
        _ => "",
    };
    let now = shared.clock.wall();
    let decided = shared
        .store
        .decide_lost(row.arrival, state, reason, now)
        .await;
    if !decided.map_err(|error| store_problem(&error))? {
        let problem = match lost.state {
            LostState::Gone => Problem::new(
                ErrorCode::InvalidRequest,
                "its text was given back, so it cannot be sent again",
            )
            .next("Send it anew under another id, if anybody misses it; then `heddle doctor --drop ID`."),
            _ => Problem::new(
                ErrorCode::NotFound,
                format!("{:?} does not wait for anybody any more", asked.id),
            )
            .next("`heddle explain ID` tells what became of it."),
        };
        return Err(problem);
    }
    mesh.lost_again.notify_one();
    let says = match state {
        LostState::GivenUp => {
            "it is not sent again: the broker does not have it, and nobody is told of it any more"
        }
        _ => "it is sent again now, under its own id",
    };
    Ok(Some(answer(mesh, says)))
}

/// The meshes in which an op of that id may be.
fn meshes<'i>(ipc: &'i Ipc, name: Option<&str>) -> Result<Vec<&'i Arc<MeshState>>, Problem> {
    Ok(match name {
        Some(name) => vec![ipc.shared.mesh(Some(name))?],
        None => ipc.shared.meshes.iter().collect(),
    })
}

pub(super) async fn retry(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let asked: OpBody = body::read(&parts, incoming).await?;
    for mesh in meshes(&ipc, asked.mesh.as_deref())? {
        let done = ipc.shared.store.retry_op(mesh.mesh.mesh, asked.id.clone());
        let says = match done.await.map_err(|error| store_problem(&error))? {
            Retried::Unknown => continue,
            Retried::Outgoing => sent_again(&ipc, mesh).await?,
            Retried::Incoming => {
                "it is looked at again now; `heddle doctor` says so if it is set aside once more"
                    .to_owned()
            }
            Retried::ReadAgain => "the log is read again for it now; `heddle doctor` says so if it is set aside once more".to_owned(),
            Retried::ForGood => return Err(never_taken(&asked.id).into()),
        };
        mesh.sync.wake();
        return ok(&answer(mesh, &says));
    }
    match decide_lost(&ipc, &asked, LostState::Waiting).await? {
        Some(answer) => ok(&answer),
        None => Err(no_such_op(&asked.id).into()),
    }
}

/// A mesh that is paused sends nothing, also what is due again.
async fn sent_again(ipc: &Ipc, mesh: &MeshState) -> Result<String, Problem> {
    let head = ipc.shared.store.sync_head(mesh.mesh.mesh).await;
    if !head.map_err(|error| store_problem(&error))?.paused {
        return Ok("it is sent again now; its refusals are forgotten".to_owned());
    }
    Ok(format!(
        "its refusals are forgotten, but the sync of the mesh is paused: `heddle doctor --resume-sync {}` sends it",
        mesh.mesh.name
    ))
}

pub(super) async fn drop_op(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let asked: OpBody = body::read(&parts, incoming).await?;
    let now = ipc.shared.clock.wall();
    for mesh in meshes(&ipc, asked.mesh.as_deref())? {
        let done = ipc
            .shared
            .store
            .drop_op(mesh.mesh.mesh, asked.id.clone(), now);
        let says = match done.await.map_err(|error| store_problem(&error))? {
            Dropped::Unknown => continue,
            Dropped::Outgoing => {
                "it is never sent: this home keeps the change, the others do not get it; write the same key again to share it"
            }
            Dropped::Incoming => {
                "it is never applied in this home; others have the change if they could take it"
            }
        };
        mesh.sync.wake();
        return ok(&answer(mesh, says));
    }
    match decide_lost(&ipc, &asked, LostState::GivenUp).await? {
        Some(answer) => ok(&answer),
        None => Err(no_such_op(&asked.id).into()),
    }
}

pub(super) async fn resume(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let asked: ResumeBody = body::read(&parts, incoming).await?;
    let mesh = ipc.shared.mesh(Some(&asked.mesh))?;
    let (store, id) = (&ipc.shared.store, mesh.mesh.mesh);
    let resumed = store.resume_sync(id).await;
    let resumed = resumed.map_err(|error| store_problem(&error))?;
    let head = store.sync_head(id).await;
    let head = head.map_err(|error| store_problem(&error))?;
    let has_gap = head.needs_resync;
    // What is missing here of a log nobody may know: reading all of it again is what brings it.
    if head.kind.is_shared() {
        let reread = store.read_log_anew(id).await;
        reread.map_err(|error| store_problem(&error))?;
    }
    mesh.sync.wake();
    let mut says = if resumed {
        "the sync goes on; an op that is refused again pauses it again".to_owned()
    } else {
        "the sync was not paused; what waits is tried now".to_owned()
    };
    if has_gap {
        says.push_str(
            "; the log is read from its beginning, and told of again if it still has a gap",
        );
    } else if head.kind.is_shared() {
        says.push_str(
            "; the log is read from its beginning, and what is missing here of it comes back",
        );
    }
    ok(&DoctorAnswer {
        duplicate: false,
        mesh: mesh.mesh.name.to_string(),
        changed: resumed || head.kind.is_shared(),
        says,
    })
}

fn answer(mesh: &MeshState, says: &str) -> DoctorAnswer {
    DoctorAnswer {
        duplicate: false,
        mesh: mesh.mesh.name.to_string(),
        changed: true,
        says: says.to_owned(),
    }
}

/// Whether it is taken must not depend on when a home looks, so none looks again (C39).
fn never_taken(id: &str) -> Problem {
    Problem::new(
        ErrorCode::InvalidRequest,
        format!("{id:?} has a stamp that no home takes, now or later: its home's clock was far ahead when it was made"),
    )
    .next("The home that made it runs `heddle doctor --repair` and writes it anew; `heddle doctor --drop ID` takes it off this home's list.")
}

fn no_such_op(id: &str) -> Problem {
    Problem::new(
        ErrorCode::NotFound,
        format!("no op {id:?} waits for anybody"),
    )
    .next("`heddle doctor` lists the ops that do.")
}
