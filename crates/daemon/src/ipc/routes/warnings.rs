//! What an agent lost since its last call, told with its next answer (DESIGN §13.6).

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_core::names::AgentName;
use heddle_store::{Loss, LossKind, LossSide};
use heddle_wire::ipc::{WarningSide, WarningView, WarningsView};
use serde::Deserialize;

use super::data::address;
use super::send::agent;
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Query {
    agent: Option<String>,
    mesh: Option<String>,
}

/// For whoever has sent: the answer to a send carries none, so that it costs nothing (ADR 9).
pub(super) async fn get(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: Query = body::query(&request.into_parts().0)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    let own = agent(&ipc, query.agent.as_deref())?;
    ok(&WarningsView {
        warnings: take(&ipc, mesh, &own).await,
    })
}

/// One look at an index for most calls. From here on they count as told, so the answer must carry them.
pub(super) async fn take(ipc: &Ipc, mesh: &MeshState, agent: &AgentName) -> Vec<WarningView> {
    let now = ipc.shared.clock.wall();
    let taken = ipc
        .shared
        .store
        .take_warnings(mesh.mesh.mesh, agent.clone(), now)
        .await;
    match taken {
        Ok(losses) => {
            let mut told = Vec::new();
            for loss in losses {
                let holder = holder(ipc, mesh, agent, &loss).await;
                told.push(view(mesh, loss, holder));
            }
            told
        }
        // The answer itself is worth more; what could not be read now is told later.
        Err(error) => {
            tracing::warn!(%error, "warnings could not be read");
            Vec::new()
        }
    }
}

/// Who else holds the task of an ended lease by now.
async fn holder(ipc: &Ipc, mesh: &MeshState, agent: &AgentName, loss: &Loss) -> Option<String> {
    if loss.kind != LossKind::LeaseExpired {
        return None;
    }
    let id = loss.task_id.parse().ok()?;
    let row = ipc.shared.store.task(mesh.mesh.mesh, id).await.ok()??;
    let by = row.task.claim?.by;
    let own = mesh.party(agent.clone()).to_string();
    (by.as_str() != own).then(|| address(mesh, by.as_str()))
}

fn view(mesh: &MeshState, loss: Loss, holder: Option<String>) -> WarningView {
    let by = address(mesh, &loss.theirs.peer);
    let title = format!("{:?}", loss.title);
    let (message, next) = match loss.kind {
        LossKind::ClaimSuperseded => (
            format!("your claim of {title} lost to the one of {by}, which came first"),
            "Stop working on it; `heddle task ready` shows what else can be begun.",
        ),
        LossKind::FinishedElsewhere => (
            format!("{title} was finished by {by} before your step counted"),
            "Look at the result with `heddle task show ID`; nothing is left to do on it.",
        ),
        LossKind::LeaseExpired if holder.is_some() => (
            format!(
                "your lease of {title} ran out and was ended by {by}; {} holds it now",
                holder.unwrap_or_default()
            ),
            "Stop working on it; `heddle task ready` shows what else can be begun.",
        ),
        LossKind::LeaseExpired => (
            format!("your lease of {title} ran out and was ended by {by}"),
            "Claim it again with `heddle task claim ID` before you go on, with a longer --lease.",
        ),
        LossKind::Cancelled => (
            format!("{title}, which you held, was cancelled by {by}"),
            "Stop working on it; `heddle task ready` shows what else can be begun.",
        ),
    };
    WarningView {
        kind: loss.kind.as_str().to_owned(),
        next: next.replace("ID", &loss.task_id),
        message,
        title: loss.title,
        by_peer: by,
        at_lamport: loss.theirs.lamport,
        yours: side(mesh, &loss.yours),
        theirs: side(mesh, &loss.theirs),
        task_id: loss.task_id,
    }
}

fn side(mesh: &MeshState, side: &LossSide) -> WarningSide {
    WarningSide {
        peer: address(mesh, &side.peer),
        lamport: side.lamport,
    }
}
