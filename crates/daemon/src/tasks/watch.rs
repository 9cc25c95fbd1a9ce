//! The watch over leases: renews those of active holders, ends those that have run out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use heddle_core::data::change_fingerprint;
use heddle_core::ids::{ClientMessageId, OpId, Party};
use heddle_core::names::AgentName;
use heddle_core::task::lease::{Moment, is_renewal_due, left};
use heddle_store::{Applied, ChangeKey, HeldTask, StoreError, TaskWish};
use serde_json::json;

use crate::mesh::MeshState;
use crate::shared::Shared;

/// Longest and shortest pause between two looks.
const PAUSE_MAX: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// How much longer a home waits for a claim of another home, whose own daemon ends it first.
const FOREIGN_GRACE: Duration = Duration::from_secs(60);

/// Until the daemon stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let pause = look(&shared).await;
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.tasks.wake.notified() => {}
            () = shared.shutdown.cancelled() => return,
        }
    }
}

/// One look at all claims; how long the next one can wait.
async fn look(shared: &Shared) -> Duration {
    let now = shared.tasks.now(shared.clock.as_ref());
    let mut holders = BTreeSet::new();
    let mut pause = PAUSE_MAX;
    for mesh in &shared.meshes {
        match look_at(shared, mesh, now, &mut holders).await {
            Ok(soonest) => pause = pause.min(soonest),
            // Leases last longer by that, and are looked at again.
            Err(error) => {
                tracing::warn!(%error, mesh = %mesh.mesh.name, "leases could not be looked at");
            }
        }
    }
    shared.tasks.set_holders(&holders);
    pause.max(PAUSE_MIN)
}

async fn look_at(
    shared: &Shared,
    mesh: &MeshState,
    now: Moment,
    holders: &mut BTreeSet<AgentName>,
) -> Result<Duration, StoreError> {
    let id = mesh.mesh.mesh;
    shared.store.see_leases(id, now).await?;
    let mut soonest = PAUSE_MAX;
    for held in shared.store.held_tasks(id).await? {
        let lease = held.claim.lease;
        let own = own_agent(mesh, &held);
        let grace = own.as_ref().map_or(FOREIGN_GRACE, |_| Duration::ZERO);
        if let Some(agent) = own {
            soonest = soonest.min(Duration::from_millis(lease.get() / 3));
            let is_active = shared.tasks.is_active_since(&agent, held.seen);
            holders.insert(agent.clone());
            if is_active && is_renewal_due(lease, held.seen, now) {
                renew(shared, mesh, agent, &held, now).await?;
                continue;
            }
        }
        let left = left(lease, held.seen, now).saturating_add(grace);
        let past = now.since(held.seen);
        if past >= Duration::from_millis(lease.get()).saturating_add(grace) {
            if let Some(issuer) = issuer(shared, mesh, &held) {
                end(shared, mesh, mesh.party(issuer), &held, now).await?;
            }
        } else {
            soonest = soonest.min(left);
        }
    }
    Ok(soonest)
}

/// The agent of this home that holds it, if one does.
fn own_agent(mesh: &MeshState, held: &HeldTask) -> Option<AgentName> {
    let (member, agent) = held.claim.by.as_str().split_once('/')?;
    if member != mesh.mesh.member.to_string() {
        return None;
    }
    AgentName::parse(agent).ok()
}

/// Whose word it is when the daemon acts by itself: whose home it is, else who held the task, else anybody here.
///
/// IMPORTANT: only a mailbox of this mesh. A member may be called otherwise here than at home, and a broker refuses what
/// nobody that it knows has signed.
fn issuer(shared: &Shared, mesh: &MeshState, held: &HeldTask) -> Option<AgentName> {
    let member = AgentName::parse(mesh.mesh.member_name.as_str()).ok();
    let known = [member, Some(shared.person.clone()), own_agent(mesh, held)];
    let known = known.into_iter().flatten().find(|one| mesh.is_own(one));
    known.or_else(|| mesh.own_agents().pop_first())
}

async fn renew(
    shared: &Shared,
    mesh: &MeshState,
    agent: AgentName,
    held: &HeldTask,
    now: Moment,
) -> Result<(), StoreError> {
    let fence = held.claim.fence;
    let wish = TaskWish::Renew { fence };
    if step(shared, mesh, mesh.party(agent), held, wish, now).await? {
        metrics::counter!("heddle_task_leases_total", "outcome" => "renewed").increment(1);
    }
    Ok(())
}

/// Ends a claim whose lease has run out, by an op that every replica folds the same way. Whether it did.
pub(crate) async fn end(
    shared: &Shared,
    mesh: &MeshState,
    issuer: Party,
    held: &HeldTask,
    now: Moment,
) -> Result<bool, StoreError> {
    let claim = &held.claim;
    let wish = TaskWish::Expire {
        holder: claim.by.clone(),
        fence: claim.fence,
        renewed: claim.renewed,
    };
    let is_ended = step(shared, mesh, issuer, held, wish, now).await?;
    if is_ended {
        metrics::counter!("heddle_task_leases_total", "outcome" => "expired").increment(1);
    }
    Ok(is_ended)
}

/// Under a key of its own: what is asked twice is refused the second time by the task's own state.
async fn step(
    shared: &Shared,
    mesh: &MeshState,
    peer: Party,
    held: &HeldTask,
    wish: TaskWish,
    now: Moment,
) -> Result<bool, StoreError> {
    let fields = json!({"id": held.id.to_string(), "fence": held.claim.fence});
    let fingerprint = change_fingerprint("task.lease", &fields)
        .map_err(|error| StoreError::Corrupt(error.to_string()))?;
    let key = ChangeKey {
        mesh: mesh.mesh.mesh,
        peer,
        id: ClientMessageId::minted(shared.ids.ulid()),
        fingerprint,
        op: OpId(shared.ids.uuid_v7()),
        now: shared.clock.wall(),
    };
    let applied = shared
        .store
        .step_task::<()>(key, held.id, wish, now, Ok(()))
        .await?;
    Ok(matches!(applied, Applied::Fresh(_)))
}
