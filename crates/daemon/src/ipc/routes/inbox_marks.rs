//! `POST /v1/inbox/ack`, `shown` and `seen`: how far an item, or a session, has come.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_core::limits::PAGE_ROWS_MAX;
use heddle_core::names::{AgentName, SessionName};
use heddle_store::SessionKey;
use heddle_wire::from_wire;
use heddle_wire::ipc::{AckAnswer, AckBody, SeenAnswer, SeenBody, ShownAnswer, ShownBody};
use heddle_wire::problem::Problem;

use super::inbox::must_be_own;
use super::send::agent;
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::shared::store_problem;

/// The items that a body names.
struct Named {
    arrivals: Vec<i64>,
    owner: Option<AgentName>,
    /// Ids that no item can have.
    strange: Vec<String>,
}

fn named(ipc: &Ipc, ids: Vec<String>, owner: Option<&str>) -> Result<Named, Problem> {
    if ids.len() > PAGE_ROWS_MAX {
        return Err(from_wire::invalid(format!(
            "at most {PAGE_ROWS_MAX} ids at once"
        )));
    }
    let mut named = Named {
        arrivals: Vec::new(),
        owner: owner.map(|name| agent(ipc, Some(name))).transpose()?,
        strange: Vec::new(),
    };
    for id in ids {
        match id.parse() {
            Ok(arrival) => named.arrivals.push(arrival),
            Err(_) => named.strange.push(id),
        }
    }
    Ok(named)
}

fn unknown(strange: Vec<String>, arrivals: &[i64]) -> Vec<String> {
    let not_found = arrivals.iter().map(ToString::to_string);
    strange.into_iter().chain(not_found).collect()
}

/// Somebody's receipts changed: the links look at their queues.
fn hint_links(ipc: &Ipc) {
    for mesh in &ipc.shared.meshes {
        mesh.receipts.hint.notify_one();
    }
}

pub(super) async fn ack(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: AckBody = body::read(&parts, incoming).await?;
    let named = named(&ipc, body.ids, body.agent.as_deref())?;
    let now = ipc.shared.clock.wall();
    let store = &ipc.shared.store;
    let (damaged, whole) = ipc.shared.damage.split(&named.arrivals);
    let acked = store.inbox_ack(whole, named.owner.clone(), now).await;
    let mut acked = acked.map_err(|error| store_problem(&error))?;
    if !damaged.is_empty() {
        let let_go = store.inbox_let_go(damaged, named.owner, now).await;
        let let_go = let_go.map_err(|error| store_problem(&error))?;
        acked.acked += let_go.acked;
        acked.already += let_go.already;
        acked.unknown.extend(let_go.unknown);
    }
    let is_acked = |arrival: &i64| !acked.unknown.contains(arrival);
    let arrivals = named.arrivals.into_iter().filter(is_acked);
    ipc.shared.damage.forget(&arrivals.collect::<Vec<_>>());
    hint_links(&ipc);
    ok(&AckAnswer {
        duplicate: false,
        acked: acked.acked,
        already: acked.already,
        unknown: unknown(named.strange, &acked.unknown),
    })
}

pub(super) async fn shown(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: ShownBody = body::read(&parts, incoming).await?;
    let named = named(&ipc, body.ids, body.agent.as_deref())?;
    let now = ipc.shared.clock.wall();
    let store = &ipc.shared.store;
    // What cannot be read was shown to nobody, whoever was told so.
    let (_, whole) = ipc.shared.damage.split(&named.arrivals);
    let shown = store.inbox_shown(whole, named.owner, now).await;
    let shown = shown.map_err(|error| store_problem(&error))?;
    hint_links(&ipc);
    ok(&ShownAnswer {
        duplicate: false,
        shown: shown.acked,
        already: shown.already,
        unknown: unknown(named.strange, &shown.unknown),
    })
}

pub(super) async fn seen(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: SeenBody = body::read(&parts, incoming).await?;
    let mesh = ipc.shared.mesh(body.mesh.as_deref())?;
    let owner = agent(&ipc, body.agent.as_deref())?;
    must_be_own(mesh, &owner)?;
    let session = SessionName::parse(&body.session);
    let session = session.map_err(|error| from_wire::invalid(error.to_string()))?;
    let through = body.through.parse::<i64>();
    let through = through.map_err(|_| {
        from_wire::invalid("through is neither the cursor of a page nor an item's id")
    })?;
    let key = SessionKey {
        mesh: mesh.mesh.mesh,
        agent: owner.clone(),
        session: session.clone(),
    };
    let now = ipc.shared.clock.wall();
    let moved = ipc.shared.store.inbox_seen(key, through, now).await;
    let moved = moved.map_err(|error| store_problem(&error))?;
    ok(&SeenAnswer {
        duplicate: false,
        session: session.to_string(),
        agent: owner.to_string(),
        cursor: moved.read_through.to_string(),
    })
}
