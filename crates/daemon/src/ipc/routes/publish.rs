//! Publishing a mesh: it begins here, the sync of the mesh does it, and the same call again says how far it is.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use heddle_store::BegunPublish;
use heddle_wire::from_wire::invalid;
use heddle_wire::ipc::{MeshPublishBody, MeshPublishView};
use heddle_wire::problem::Problem;

use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::membership::{self, Destination};
use crate::mesh::MeshState;
use crate::shared::store_problem;

const WAIT_SECONDS_MAX: u64 = 30;
/// Between two looks of an answer that waits.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub(super) async fn publish(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let asked: MeshPublishBody = body::read(&parts, incoming).await?;
    let wait = asked.wait_seconds.unwrap_or(0);
    if wait > WAIT_SECONDS_MAX {
        return Err(invalid(format!("wait_seconds is at most {WAIT_SECONDS_MAX}")).into());
    }
    let mesh = ipc.shared.mesh(asked.mesh.as_deref())?;
    let (mut name_at_broker, mut effects_damaged) = (None, Vec::new());
    if let Some(url) = asked.to {
        // Before it moves: then they are the broker's.
        effects_damaged = ipc.effects.damaged_of(mesh).await?;
        let to = Destination {
            url,
            token_file: asked.token_file.map(Into::into),
            ca_file: asked.ca_file.map(Into::into),
        };
        let moved = membership::publish_to(&ipc.shared, &ipc.home, mesh, to).await?;
        let other = moved.filter(|name| *name != mesh.mesh.name);
        name_at_broker = other.map(|name| name.to_string());
    }
    let fresh = begin(&ipc, mesh).await?;
    let end = ipc.shared.clock.mono() + Duration::from_secs(wait);
    loop {
        let mut view = view(&ipc, mesh, fresh).await?;
        if view.done || ipc.shared.clock.mono() >= end || ipc.shared.shutdown.is_cancelled() {
            view.name_at_broker = name_at_broker;
            view.effects_damaged = effects_damaged;
            return ok(&view);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Makes a personal mesh a shared one; true if it was personal until now.
pub(super) async fn begin(ipc: &Ipc, mesh: &MeshState) -> Result<bool, Problem> {
    let now = ipc.shared.clock.wall();
    let begun = ipc
        .shared
        .store
        .begin_publish_above(mesh.mesh.mesh, now, ipc.shared.snapshot_rows)
        .await;
    match begun.map_err(|error| store_problem(&error))? {
        BegunPublish::Fresh(publish) => {
            tracing::info!(mesh = %mesh.mesh.name, rows = publish.rows_total, "a personal mesh is shared from now on");
            mesh.sync.wake();
            Ok(true)
        }
        BegunPublish::Known(_) | BegunPublish::NothingToDo => Ok(false),
    }
}

async fn view(ipc: &Ipc, mesh: &MeshState, fresh: bool) -> Result<MeshPublishView, Problem> {
    let (store, id) = (&ipc.shared.store, mesh.mesh.mesh);
    let broken = |error| store_problem(&error);
    let publish = store.publish(id).await.map_err(broken)?;
    // IMPORTANT: after the publish, whose last rows are in the outbox by then.
    let figures = store.sync_figures(id).await.map_err(broken)?;
    let head = store.sync_head(id).await.map_err(broken)?;
    // A snapshot is there for others when it is committed, and not before.
    let is_queued = publish
        .is_none_or(|publish| publish.finished_at.is_some() && !publish.snapshot.is_under_way());
    let is_done = is_queued && figures.out_waiting == 0;
    // What cannot be read was passed over: it is not at the broker, and nobody is to believe so.
    let left_out = if is_done && publish.is_some() {
        let found = store.unreadable(id, u64::MAX).await.map_err(broken)?;
        ipc.shared.unreadable.suspect(!found.is_empty());
        found.iter().map(ToString::to_string).collect()
    } else {
        Vec::new()
    };
    Ok(MeshPublishView {
        mesh: mesh.mesh.name.to_string(),
        kind: head.kind.as_str().to_owned(),
        broker: mesh.broker(),
        name_at_broker: None,
        fresh,
        rows: publish.map_or(0, |publish| publish.rows_total),
        rows_done: publish.map_or(0, |publish| publish.rows_done),
        out_waiting: figures.out_waiting,
        done: is_done,
        left_out,
        effects_damaged: Vec::new(),
    })
}
