//! A call that has to wait for its broker, and is kept under its id: once, and no other one in its place.

use std::sync::atomic::Ordering;

use heddle_core::error_code::ErrorCode;
use heddle_registrar::code::Code;
use heddle_registrar::storage::sqlite::Waiting;
use heddle_wire::broker::EffectCall;
use heddle_wire::problem::Problem;

use super::ask::Scope;
use super::waiting::ANSWERED;
use super::{Effects, refusal, storage_problem};
use crate::mesh::MeshState;

/// The call as it is kept.
pub(super) fn waiting_of(
    scope: &Scope<'_>,
    id: String,
    call: &EffectCall,
) -> Result<Waiting, Problem> {
    let text = serde_json::to_string(&call.clone().without_scope());
    let text = text.map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))?;
    Ok(Waiting {
        key: call.key().unwrap_or_default().to_owned(),
        caller: scope.agent.to_string(),
        call_id: id,
        verb: call.verb().to_owned(),
        call: text,
        since: scope.shared.clock.wall(),
    })
}

impl Effects {
    /// Whether this very call waits here under its id. Another one under it is refused, as who decides would: to take
    /// it and forget it would be a lie.
    pub(super) async fn is_kept(
        &self,
        mesh: &MeshState,
        call: &Waiting,
        away: &Problem,
    ) -> Result<bool, Problem> {
        let known = self.storage();
        let known = known.known_waiting(mesh.mesh.mesh, &call.caller, &call.call_id);
        match known.await.map_err(|error| storage_problem(&error))? {
            None => Ok(false),
            // A refusal uses no id up, but a row is kept once.
            Some((_, Some(outcome))) if outcome != ANSWERED => Err(away.clone().with("waited", outcome).next(
                "What waited here under this id was refused, and nothing more is kept under it: say it with another id, or again when `heddle status` says connected.",
            )),
            Some((first, _)) if (&first.verb, &first.call) != (&call.verb, &call.call) => {
                let detail = format!(
                    "the Idempotency-Key was used for another request: {} of {}",
                    first.verb, first.key
                );
                Err(refusal(Code::CallReused, detail))
            }
            Some((_, None)) => Ok(true),
            // It waits no more, and an id is kept once: only who decides can say what stands.
            Some((_, Some(outcome))) => Err(away.clone().with("waited", outcome).next(
                "It was made under this id before, and the broker has answered it since: nothing more is kept. Ask `heddle effect status KEY` when `heddle status` says connected.",
            )),
        }
    }

    /// False where the same call was kept meanwhile.
    pub(super) async fn keep(
        &self,
        mesh: &MeshState,
        waiting: Waiting,
        away: &Problem,
    ) -> Result<bool, Problem> {
        let kept = self.storage().wait(mesh.mesh.mesh, waiting.clone());
        if !kept.await.map_err(|error| storage_problem(&error))? {
            self.is_kept(mesh, &waiting, away).await?;
            return Ok(false);
        }
        metrics::counter!("heddle_effect_waited_total").increment(1);
        self.may_wait.store(true, Ordering::Relaxed);
        Ok(true)
    }
}
