//! Status, health, version, metrics and the request to stop.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_wire::broker::BROKER_PROTOCOL;
use heddle_wire::ipc::{Health, InboxFigures, MeshStatus, OutboxFigures, StatusView, Version};
use heddle_wire::problem::Problem;
use http::StatusCode;
use serde::Deserialize;

use crate::config::HOME_MESH;
use crate::inbox::recover;
use crate::ipc::reply::{Answered, json, ok, with_body};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::outbox::lost;
use crate::shared::store_problem;

/// The version of the `/v1` routes.
pub(super) const IPC_VERSION: u32 = 1;

pub(super) async fn status(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    body::no_query(&request.into_parts().0)?;
    let figures = ipc.shared.store.figures().await;
    let figures = figures.map_err(|error| store_problem(&error))?;
    let mut meshes = Vec::new();
    for mesh in ipc.shared.meshes.iter() {
        meshes.push(mesh_status(&ipc, mesh).await?);
    }
    let parked = ipc.shared.store.outbox_parked().await;
    let parked = parked.map_err(|error| store_problem(&error))?;
    let mut degraded = ipc.shared.degraded();
    degraded.extend(lost_inboxes(&ipc).await?);
    degraded.extend(ipc.effects.trouble());
    let orphans = orphans(&ipc);
    degraded.extend(orphans_said(orphans));
    degraded.extend(meshes.iter().filter_map(set_aside));
    degraded.extend(meshes.iter().filter_map(members_lost));
    degraded.extend(meshes.iter().filter_map(|mesh| {
        Some(format!(
            "{}; `heddle doctor` says what to do",
            mesh.older.as_ref()?
        ))
    }));
    degraded.extend(meshes.iter().filter_map(|mesh| {
        Some(format!(
            "{}; `heddle doctor` says what to do",
            mesh.forgot.as_ref()?
        ))
    }));
    let unserved = unserved(&ipc).await?;
    degraded.extend(unserved.iter().map(|mesh| {
        format!("the data of mesh {mesh} is in the store, but config.toml does not name it; it is not served")
    }));
    if parked > 0 {
        degraded.push(damaged(parked));
    }
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
        degraded,
        notes: notes(&ipc).await?,
        disk: ipc.shared.disk.view(),
        orphans,
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

/// What has happened and needs nobody any more.
async fn notes(ipc: &Ipc) -> Result<Vec<String>, Problem> {
    let mut notes = Vec::new();
    for mesh in &ipc.shared.meshes {
        let said = lost::said(&ipc.shared, mesh).await;
        let said = said.map_err(|error| store_problem(&error))?;
        notes.extend(said.filter(|said| !said.is_open).map(|said| said.words));
    }
    Ok(notes)
}

fn damaged(parked: u64) -> String {
    let rows = match parked {
        1 => "1 damaged outbox row waits until it is mended: its bytes are not what was accepted, so it is not sent".to_owned(),
        parked => format!("{parked} damaged outbox rows wait until they are mended: their bytes are not what was accepted, so they are not sent"),
    };
    format!(
        "{rows}; the others go on. `heddle daemon outbox list` names them, `heddle daemon outbox requeue` with --patch-payload sends what was meant"
    )
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

fn orphans_said(count: usize) -> Option<String> {
    let rows = if count == 1 { "row" } else { "rows" };
    (count > 0).then(|| {
        format!("{count} {rows} of this home's broker did not fit together at its last check; `heddle broker orphan-check` names them")
    })
}

/// Changes of others that this home does not take: the data differs from theirs until somebody looks.
fn set_aside(mesh: &MeshStatus) -> Option<String> {
    let count = mesh.sync.as_ref().map_or(0, |sync| sync.in_quarantined);
    (count > 0).then(|| {
        format!(
            "{count} changes from others in mesh {} were set aside; `heddle doctor` says which and why",
            mesh.mesh
        )
    })
}

fn members_lost(mesh: &MeshStatus) -> Option<String> {
    (!mesh.members_lost.is_empty()).then(|| {
        format!(
            "the broker of mesh {} does not know @{} any more; `heddle doctor` says what to do",
            mesh.mesh,
            mesh.members_lost.join(", @")
        )
    })
}

/// Meshes of the store that nobody serves. A daemon without a broker of its own leaves the home's out on purpose.
async fn unserved(ipc: &Ipc) -> Result<Vec<String>, Problem> {
    let known = ipc.shared.store.meshes().await;
    let known = known.map_err(|error| store_problem(&error))?;
    let is_served = |name: &str| {
        let shared = &ipc.shared;
        let mut served = shared.meshes.iter().map(|mesh| &mesh.mesh.name);
        name == HOME_MESH
            || served.any(|mesh| mesh.as_str() == name)
            || shared.left.iter().any(|mesh| mesh.as_str() == name)
    };
    let names = known.iter().map(|mesh| mesh.name.to_string());
    Ok(names.filter(|name| !is_served(name)).collect())
}

/// What came back of an inbox that was lost, as long as the file that it was lost with lies there.
async fn lost_inboxes(ipc: &Ipc) -> Result<Vec<String>, Problem> {
    let mut said = Vec::new();
    if !ipc.shared.old_files.iter().any(|file| file.exists()) {
        return Ok(said);
    }
    for mesh in &ipc.shared.meshes {
        let lost = ipc.shared.store.inbox_lost(mesh.mesh.mesh).await;
        let lost = lost.map_err(|error| store_problem(&error))?;
        let name = mesh.mesh.name.as_str();
        said.extend(
            lost.map(|lost| format!("of the lost inbox, {}", recover::in_words(name, &lost))),
        );
    }
    Ok(said)
}

pub(super) async fn health(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    body::no_query(&request.into_parts().0)?;
    let mut degraded = ipc.shared.degraded();
    degraded.extend(ipc.effects.trouble());
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
    let status = if poisoned {
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
