//! Status, health, version, metrics and the request to stop.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_wire::broker::BROKER_PROTOCOL;
use heddle_wire::ipc::{Health, InboxFigures, MeshStatus, OutboxFigures, StatusView, Version};
use heddle_wire::problem::Problem;
use http::StatusCode;
use serde::Deserialize;

use crate::config::HOME_MESH;
use crate::files::gone;
use crate::held::{self, Held};
use crate::inbox::recover;
use crate::ipc::reply::{Answered, json, ok, with_body};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::outbox::lost;
use crate::shared::store_problem;
use crate::standing::Wrong;
use crate::sync::set_aside as set_aside_ops;
use crate::upkeep::{Unserved, restored, unreadable};

/// The version of the `/v1` routes.
pub(super) const IPC_VERSION: u32 = 1;
/// What the doctor calls rows that nobody can read.
const ROWS: &str = "rows of data.db";

pub(super) async fn status(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    body::no_query(&request.into_parts().0)?;
    let figures = ipc.shared.store.figures().await;
    let figures = figures.map_err(|error| store_problem(&error))?;
    let mut meshes = Vec::new();
    for mesh in ipc.shared.meshes.iter() {
        meshes.push(mesh_status(&ipc, mesh).await?);
    }
    let unserved = unserved(&ipc).await?;
    let held = held::look(&ipc.shared, &ipc.effects).await;
    let wrong = wrong(&ipc, &meshes, &unserved, &held).await?;
    let unserved = unserved.into_iter().map(|(mesh, _)| mesh).collect();
    let has_unreadable = wrong.iter().any(|one| one.check == ROWS);
    let view = StatusView {
        running: true,
        connected: meshes.iter().all(|mesh| mesh.connected),
        meshes,
        outbox: OutboxFigures {
            pending: figures.pending,
            inflight: figures.inflight,
            done: figures.done,
            dead: figures.dead,
            aborted: figures.aborted,
        },
        inbox: InboxFigures {
            items: figures.inbox,
            unread: figures.unread,
        },
        durability: ipc.durability.to_owned(),
        degraded: wrong.into_iter().map(|one| one.says).collect(),
        held: held.iter().map(|held| held.file.to_owned()).collect(),
        needs_doctor: ipc.shared.has_wrong_files() || has_unreadable,
        notes: notes(&ipc).await?,
        disk: ipc.shared.disk.view(),
        orphans: orphans(&ipc),
        unserved,
        version: ipc.version.to_owned(),
        home: Some(ipc.home.display().to_string()),
        socket: Some(ipc.socket.display().to_string()),
        http: Some(format!("http://127.0.0.1:{}", ipc.tcp_port)),
        pid: Some(std::process::id()),
        agent: Some(ipc.default_agent.to_string()),
        cold_start_ms: ipc.shared.cold_start_ms.get().copied(),
        verdict: String::new(),
        next: String::new(),
    };
    ok(&view.judged())
}

/// Everything that is wrong, for the doctor as well.
pub(super) async fn all_wrong(ipc: &Ipc) -> Result<Vec<Wrong>, Problem> {
    let mut meshes = Vec::new();
    for mesh in ipc.shared.meshes.iter() {
        meshes.push(mesh_status(ipc, mesh).await?);
    }
    let unserved = unserved(ipc).await?;
    let held = held::look(&ipc.shared, &ipc.effects).await;
    wrong(ipc, &meshes, &unserved, &held).await
}

async fn wrong(
    ipc: &Ipc,
    meshes: &[MeshStatus],
    unserved: &[(String, Unserved)],
    held: &[Held],
) -> Result<Vec<Wrong>, Problem> {
    let figures = ipc.shared.store.figures().await;
    let figures = figures.map_err(|error| store_problem(&error))?;
    ipc.shared
        .disk
        .note_waiting(figures.pending + figures.inflight);
    let mut wrong: Vec<Wrong> = held.iter().map(|held| held.wrong(&ipc.shared)).collect();
    wrong.extend(ipc.shared.wrong());
    wrong.extend(lost_inboxes(ipc).await?);
    let unreadable = unreadable::degraded(&ipc.shared).await;
    wrong.extend(unreadable.map(|says| Wrong::new(ROWS, says, "")));
    let gone = gone::degraded(&ipc.shared).await;
    wrong.extend(gone.map(|says| Wrong::new("blobs", says, "")));
    wrong.extend(ipc.effects.wrong());
    wrong.extend(orphans_said(orphans(ipc)));
    for mesh in meshes {
        let named = |check: &str, says: String| {
            let says = format!("{says}; `heddle doctor` says what to do");
            Wrong::new(format!("{check} mesh {}", mesh.mesh), says, "")
        };
        wrong.extend(set_aside(mesh));
        wrong.extend(refused(mesh));
        wrong.extend(members_lost(mesh));
        wrong.extend(mesh.older.clone().map(|says| named("store and", says)));
        wrong.extend(mesh.forgot.clone().map(|says| named("broker of", says)));
    }
    let unserved = unserved.iter();
    wrong.extend(unserved.map(|(mesh, why)| Wrong::new("meshes", why.says(mesh), why.next())));
    let parked = ipc.shared.store.outbox_parked().await;
    let parked = parked.map_err(|error| store_problem(&error))?;
    if parked > 0 {
        wrong.push(damaged(parked));
    }
    Ok(wrong)
}

/// What has happened and needs nobody any more.
async fn notes(ipc: &Ipc) -> Result<Vec<String>, Problem> {
    let mut notes = ipc.shared.store.start_notes();
    let put_back = restored::read(&ipc.home);
    if let Some(note) = put_back.filter(|note| note.is_news(ipc.shared.clock.wall())) {
        let said = restored::said(&ipc.shared, &note).await;
        notes.push(said.map_err(|error| store_problem(&error))?);
    }
    for mesh in &ipc.shared.meshes {
        let said = lost::said(&ipc.shared, mesh).await;
        let said = said.map_err(|error| store_problem(&error))?;
        notes.extend(said.filter(|said| !said.is_open).map(|said| said.words));
    }
    Ok(notes)
}

fn damaged(parked: u64) -> Wrong {
    let rows = match parked {
        1 => "1 damaged outbox row waits until it is mended: its bytes are not what was accepted, so it is not sent".to_owned(),
        parked => format!("{parked} damaged outbox rows wait until they are mended: their bytes are not what was accepted, so they are not sent"),
    };
    let says = format!(
        "{rows}; the others go on. `heddle daemon outbox list` names them, `heddle daemon outbox requeue` with --patch-payload sends what was meant"
    );
    Wrong::new("damaged rows of the outbox", says, "")
}

/// How this home stands with one mesh.
async fn mesh_status(ipc: &Ipc, mesh: &MeshState) -> Result<MeshStatus, Problem> {
    Ok(MeshStatus {
        mesh: mesh.mesh.name.to_string(),
        mesh_id: mesh.mesh.mesh.to_string(),
        member: mesh.called(),
        broker: mesh.broker(),
        connected: mesh.is_answering(),
        as_of: mesh.as_of(),
        last_error: mesh
            .last_error()
            .or_else(|| mesh.out_of_reach().filter(|_| mesh.is_connected())),
        limited: mesh.refusals.limited(ipc.shared.clock.mono()),
        held_up: mesh.out_of_reach().is_none()
            && mesh.refusals.told(ipc.shared.clock.mono()).is_some(),
        older: recover::older(&ipc.shared, mesh)
            .await
            .map_err(|error| store_problem(&error))?,
        forgot: lost::said(&ipc.shared, mesh)
            .await
            .map_err(|error| store_problem(&error))?
            .filter(|said| said.is_open)
            .map(|said| said.words),
        refused: mesh.standing.barred().map(|barred| barred.why),
        members_lost: super::mesh::lost(&ipc.shared, mesh).await,
        unread: {
            let agents = ipc.shared.store.agents(mesh.mesh.mesh).await;
            let agents = agents.map_err(|error| store_problem(&error))?;
            agents.iter().map(|agent| agent.unread).sum()
        },
        sync: Some(super::sync::view(&ipc.shared, mesh).await?),
    })
}

/// One broker of this home's own serves all the meshes that name it.
fn orphans(ipc: &Ipc) -> usize {
    let counts = ipc.shared.meshes.iter().map(|mesh| mesh.orphans());
    counts.max().unwrap_or(0)
}

fn orphans_said(count: usize) -> Option<Wrong> {
    let rows = if count == 1 { "row" } else { "rows" };
    (count > 0).then(|| {
        let says = format!("{count} {rows} of this home's broker did not fit together at its last check; `heddle broker orphan-check` names them");
        Wrong::new("rows of broker.db", says, "`heddle broker orphan-check` names them and looks again.")
    })
}

/// Changes of others that this home does not take: the data differs from theirs until somebody looks.
fn set_aside(mesh: &MeshStatus) -> Option<Wrong> {
    let count = mesh.sync.as_ref().map_or(0, |sync| sync.in_quarantined);
    (count > 0).then(|| {
        let own = mesh.sync.as_ref().map_or(0, |sync| sync.in_own_refused);
        let says = format!(
            "in mesh {} {}; `heddle doctor` says which, why and what helps",
            mesh.mesh,
            set_aside_ops(own, count)
        );
        Wrong::new(format!("sync of mesh {}", mesh.mesh), says, "")
    })
}

/// Changes of this home that the others do not get. One that was refused too often is told as what it leads to.
fn refused(mesh: &MeshStatus) -> Option<Wrong> {
    let sync = mesh.sync.as_ref().filter(|sync| !sync.paused)?;
    let count = sync.out_refused;
    let changes = if count == 1 { "change" } else { "changes" };
    (count > 0).then(|| {
        let says = format!(
            "the broker of mesh {} refuses {count} {changes} of this home (or the bytes here are damaged), which the others do not have; `heddle doctor` says which and why",
            mesh.mesh
        );
        Wrong::new(format!("sync of mesh {}", mesh.mesh), says, "")
    })
}

fn members_lost(mesh: &MeshStatus) -> Option<Wrong> {
    (!mesh.members_lost.is_empty()).then(|| {
        let says = format!(
            "the broker of mesh {} does not know @{} any more; `heddle doctor` says what to do",
            mesh.mesh,
            mesh.members_lost.join(", @")
        );
        Wrong::new(format!("members of mesh {}", mesh.mesh), says, "")
    })
}

/// Meshes of the store that nobody serves. A daemon without a broker of its own leaves the home's out on purpose.
async fn unserved(ipc: &Ipc) -> Result<Vec<(String, Unserved)>, Problem> {
    let known = ipc.shared.store.meshes().await;
    let known = known.map_err(|error| store_problem(&error))?;
    let is_served = |name: &str| {
        let shared = &ipc.shared;
        let mut served = shared.meshes.iter().map(|mesh| &mesh.mesh.name);
        name == HOME_MESH
            || served.any(|mesh| mesh.as_str() == name)
            || shared.left.iter().any(|mesh| mesh.as_str() == name)
    };
    let named = known.iter().map(|mesh| {
        let why = Unserved::of(mesh.broker_url.is_none());
        (mesh.name.to_string(), why)
    });
    Ok(named.filter(|(name, _)| !is_served(name)).collect())
}

/// What came back of an inbox that was lost, as long as the file that it was lost with lies there: whoever moves it away
/// has looked at it.
async fn lost_inboxes(ipc: &Ipc) -> Result<Vec<Wrong>, Problem> {
    let mut said = Vec::new();
    let files = ipc.shared.old_files.iter().filter(|file| file.exists());
    let files: Vec<String> = files.map(|file| file.display().to_string()).collect();
    if files.is_empty() {
        return Ok(said);
    }
    let next = format!(
        "When you have looked at it, move {} away; nothing needs it, and this is not said any more.",
        files.join(" and ")
    );
    for mesh in &ipc.shared.meshes {
        let lost = ipc.shared.store.inbox_lost(mesh.mesh.mesh).await;
        let lost = lost.map_err(|error| store_problem(&error))?;
        let name = mesh.mesh.name.as_str();
        said.extend(lost.map(|lost| {
            let says = format!(
                "of the lost inbox, {}. {next}",
                recover::in_words(name, &lost)
            );
            Wrong::new(format!("lost inbox of mesh {name}"), says, "")
        }));
    }
    Ok(said)
}

pub(super) async fn health(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    body::no_query(&request.into_parts().0)?;
    let held = held::look(&ipc.shared, &ipc.effects).await;
    let is_without_store = held.iter().any(|held| held.stops_all());
    let held = held.iter().map(|held| held.wrong(&ipc.shared));
    let wrong = held.chain(ipc.shared.wrong()).chain(ipc.effects.wrong());
    let mut degraded: Vec<String> = wrong.map(|one| one.says).collect();
    degraded.extend(unreadable::degraded(&ipc.shared).await);
    degraded.extend(gone::degraded(&ipc.shared).await);
    let poisoned = ipc.shared.store.poisoned().is_some();
    let health = Health {
        status: if degraded.is_empty() {
            "ok"
        } else {
            "degraded"
        }
        .to_owned(),
        degraded,
    };
    // A daemon without its broker still does its work; one without its store does not.
    let status = if poisoned || is_without_store {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    Ok(json(status, &health))
}

pub(super) async fn version(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    body::no_query(&request.into_parts().0)?;
    ok(&Version {
        name: "heddle".to_owned(),
        version: ipc.version.to_owned(),
        ipc: IPC_VERSION,
        broker_protocol: BROKER_PROTOCOL,
    })
}

pub(super) async fn metrics(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    body::no_query(&request.into_parts().0)?;
    crate::metrics::observe(&ipc).await;
    let text = ipc.metrics.render();
    Ok(with_body(
        StatusCode::OK,
        "text/plain; version=0.0.4",
        text.into_bytes(),
    ))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShutdownBody {}

pub(super) async fn shutdown(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    body::no_query(&parts)?;
    let ShutdownBody {} = body::read(&parts, incoming).await?;
    tracing::info!("asked to stop");
    ipc.shared.shutdown.cancel();
    ok(&serde_json::json!({ "stopping": true, "pid": std::process::id() }))
}
