//! A call of this home to whoever decides: its own desk, or the broker of a mesh hosted elsewhere; and the
//! answer as it is true here, where the runner lives or is gone.

use heddle_core::error_code::{ErrorCode, ErrorKind};
use heddle_core::names::AgentName;
use heddle_wire::broker::{EffectAnswer, EffectCall, ReplyResult, Request};
use heddle_wire::ipc::{EffectResolveBody, EffectView};
use heddle_wire::problem::Problem;

use super::alive::Holder;
use super::{END, Effects, with_key};
use crate::home::create_private_folder;
use crate::mesh::MeshState;
use crate::shared::{Shared, lock, store_problem};

/// Where a call goes, and for whom.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) mesh: &'a MeshState,
    pub(crate) agent: &'a AgentName,
}

impl Effects {
    pub(crate) async fn ask(
        &self,
        scope: &Scope<'_>,
        id: Option<String>,
        call: EffectCall,
    ) -> Result<EffectAnswer, Problem> {
        let key = call.key().map(ToOwned::to_owned);
        let answer = Box::pin(self.ask_for(scope, id, call)).await;
        answer.map_err(|problem| with_key(problem, key.as_deref()))
    }

    async fn ask_for(
        &self,
        scope: &Scope<'_>,
        id: Option<String>,
        mut call: EffectCall,
    ) -> Result<EffectAnswer, Problem> {
        let named = self.named(scope.mesh, scope.agent)?;
        let scope = &Scope {
            agent: &named,
            ..*scope
        };
        if let Some(key) = call.key() {
            self.hand_in(scope, key).await;
        }
        let is_taken = matches!(call, EffectCall::Start(_) | EffectCall::Compensate(_));
        if let EffectCall::Resolve(body) = &mut call {
            // IMPORTANT: this run and no other. One that somebody began since this look is alive.
            let seen = self.may_resolve(scope, body).await?;
            body.round = body.round.or(seen);
        }
        let forced = match &call {
            EffectCall::Resolve(body) if body.force => Some(body.key.clone()),
            _ => None,
        };
        let mut answer = self.put(scope, id, call).await?;
        let mesh = scope.mesh.mesh.mesh;
        // Now that it is said, by somebody whose word counts.
        if let Some(key) = forced.filter(|key| self.holder(mesh, key) != Holder::Run) {
            self.free(mesh, &key);
        }
        self.as_called_here(scope.mesh, &mut answer);
        Ok(match answer {
            // Whoever took it just now has it: what they do to keep it is theirs.
            EffectAnswer::View(mut view) if is_taken && !view.duplicate => {
                view.lock = self.lock_of(scope, &view);
                EffectAnswer::View(view)
            }
            EffectAnswer::View(view) => {
                let seen = self.as_seen_here(scope, *view).await?;
                EffectAnswer::View(Box::new(seen))
            }
            EffectAnswer::Story(mut story) => {
                story.mesh = scope.mesh.mesh.name.to_string();
                story.effect = self.as_seen_here(scope, story.effect).await?;
                EffectAnswer::Story(story)
            }
            EffectAnswer::List(mut list) => {
                for view in &mut list.effects {
                    *view = self.as_seen_here(scope, view.clone()).await?;
                    // What was printed is in the status of each.
                    (view.stdout, view.stderr) = (None, None);
                }
                EffectAnswer::List(list)
            }
            other => other,
        })
    }

    fn lock_of(&self, scope: &Scope<'_>, view: &EffectView) -> String {
        // Somebody may have removed the folder; whoever runs must be able to lock its file.
        if !self.locks.is_dir()
            && let Err(error) = create_private_folder(&self.locks)
        {
            tracing::warn!(%error, "the folder effects/ is gone and cannot be made again");
        }
        let lock = self.lock(scope.mesh.mesh.mesh, &view.logical_request_key);
        lock.display().to_string()
    }

    pub(super) async fn put(
        &self,
        scope: &Scope<'_>,
        id: Option<String>,
        call: EffectCall,
    ) -> Result<EffectAnswer, Problem> {
        if let Some(desk) = self.desks.of(scope.mesh.mesh.mesh)
            && !self.is_given(scope.shared, scope.mesh).await?
            && (self.is_decided_here(scope.shared, scope.mesh).await? || desk.knows(&call).await?)
        {
            self.desks.used.before(&call).await?;
            return desk.own(scope.agent, id, call).await;
        }
        self.elsewhere(scope, id, call).await
    }

    /// The home decides about its own meshes, unless one is shared through a broker elsewhere: then that one
    /// decides for all of them (DESIGN §9), and is told what was decided here before.
    pub(super) async fn is_decided_here(
        &self,
        shared: &Shared,
        mesh: &MeshState,
    ) -> Result<bool, Problem> {
        if !self.is_own(mesh.mesh.mesh) {
            return Ok(false);
        }
        if mesh.is_hosted_here() {
            return Ok(true);
        }
        let head = shared.store.sync_head(mesh.mesh.mesh).await;
        let head = head.map_err(|error| store_problem(&error))?;
        Ok(!head.kind.is_shared())
    }

    /// One call through the broker. What says `NotConnected` may have been heard: under the same id it is the
    /// same call.
    pub(super) async fn through_broker(
        &self,
        mesh: &MeshState,
        agent: &AgentName,
        id: Option<String>,
        call: EffectCall,
    ) -> Result<EffectAnswer, Problem> {
        let request = Request::Effect {
            agent: agent.clone(),
            id,
            seen: self.witness.seen(mesh.mesh.mesh),
            call: Box::new(call.without_scope()),
        };
        match mesh.ask(request).await? {
            ReplyResult::Effect { answer, proof } => {
                self.witness.keep(mesh.mesh.mesh, proof);
                lock(&self.undecided).remove(&mesh.mesh.mesh);
                Ok(*answer)
            }
            ReplyResult::EffectRefused { problem } => {
                let mut undecided = lock(&self.undecided);
                // One that answers and decides nothing, until it decides again.
                if problem.known_code() == Some(ErrorCode::StorageUnavailable) {
                    let says = format!(
                        "the broker of mesh {} decides about no effect: {}",
                        mesh.mesh.name, problem.detail
                    );
                    undecided.insert(mesh.mesh.mesh, says);
                } else {
                    undecided.remove(&mesh.mesh.mesh);
                }
                Err(of_broker(*problem))
            }
            _ => Err(unexpected()),
        }
    }

    /// A run that somebody still holds is not one to resolve; nor is one of another home, of which only
    /// that home knows whether it lives, unless a person says to know.
    async fn may_resolve(
        &self,
        scope: &Scope<'_>,
        body: &EffectResolveBody,
    ) -> Result<Option<i64>, Problem> {
        let key = &body.key;
        let view = match self.status(scope, key).await {
            Ok(view) => view,
            // What cannot be resolved, the authority says best.
            Err(problem) if problem.known_code() == Some(ErrorCode::EffectNotFound) => {
                return Ok(None);
            }
            Err(problem) => return Err(problem),
        };
        let refuse = |detail: String, next: &str| {
            Err(Problem::new(ErrorCode::EffectStepRefused, detail).next(next))
        };
        // A run that begins between this look and the word is not the one that was looked at, either.
        if !matches!(view.status.as_str(), "running" | "compensating") {
            return Ok(Some(view.round));
        }
        if !is_ours(scope.mesh, self.is_own(scope.mesh.mesh.mesh), &view) {
            if body.force {
                return Ok(Some(view.round));
            }
            let at = view.runs_at.unwrap_or_default();
            return refuse(
                format!(
                    "{key}: {at} has run it in another home, and only there it is known whether it still runs"
                ),
                "Have it resolved there; or, when nothing can be running there any more, say the same with --force.",
            );
        }
        let (mesh, attempt) = (scope.mesh.mesh.mesh, attempt_of(&view));
        let is_held = self.is_held(mesh, key, attempt.as_deref()).await;
        match self.holder(mesh, key) {
            Holder::Run if is_held => refuse(
                format!("{key}: its command is still running"),
                "Wait for its end; `heddle effect status KEY` says when that is.",
            ),
            Holder::LeftBehind if is_held && !body.force => refuse(
                format!(
                    "{key}: its command has ended, and something that it has started still runs"
                ),
                "End it, and say the same again; or, when it is only what was to be left running, say the same with --force.",
            ),
            Holder::Unknown if is_held && !body.force => refuse(
                format!(
                    "{key}: its runner was killed as it began, and its command still runs or something that the command has started"
                ),
                "Look which it is and wait for its end; or, when it is only what was to be left running, say the same with --force.",
            ),
            _ => Ok(Some(view.round)),
        }
    }

    async fn status(&self, scope: &Scope<'_>, key: &str) -> Result<EffectView, Problem> {
        let key = key.to_owned();
        match self.put(scope, None, EffectCall::Status { key }).await? {
            EffectAnswer::View(view) => Ok(*view),
            _ => Err(unexpected()),
        }
    }

    /// IMPORTANT: rows, then the lock, then the rows again: a runner writes its end before it lets go, so a
    /// run that is free and still shows no end has lost its runner.
    async fn as_seen_here(
        &self,
        scope: &Scope<'_>,
        mut view: EffectView,
    ) -> Result<EffectView, Problem> {
        let (mesh, key) = (scope.mesh.mesh.mesh, view.logical_request_key.clone());
        view.lock = self.lock_of(scope, &view);
        let is_under_way =
            |view: &EffectView| matches!(view.status.as_str(), "running" | "compensating");
        let is_ours = |view: &EffectView| is_ours(scope.mesh, self.is_own(mesh), view);
        view.runs_elsewhere = is_under_way(&view) && !is_ours(&view);
        let under_way = |view: &EffectView| is_under_way(view) && is_ours(view);
        let attempt = attempt_of(&view);
        if !under_way(&view) || self.is_held(mesh, &key, attempt.as_deref()).await {
            return Ok(view);
        }
        self.hand_in(scope, &key).await;
        let mut now = self.status(scope, &key).await?;
        if under_way(&now) && (now.round, &now.status) == (view.round, &view.status) {
            let lost = match now.status.as_str() {
                "running" => "unknown",
                _ => "compensation_unknown",
            };
            lost.clone_into(&mut now.status);
            let end = self.lock(mesh, &key).with_extension(END);
            now.waited = now.waited.or_else(|| self.unread.of(&end));
        }
        // As it stands now, told as the answer to what was asked.
        now.lock = view.lock;
        now.approvers = view.approvers;
        (now.duplicate, now.code) = (view.duplicate, view.code);
        (now.state, now.state_means) = (view.state, view.state_means);
        Ok(now)
    }
}

/// Who is at it, where somebody is.
fn attempt_of(view: &EffectView) -> Option<String> {
    match view.status.as_str() {
        "compensating" => {
            let begun = view.compensation.as_ref()?;
            Some(begun["attempt_id"].as_str()?.to_owned())
        }
        _ => view.runner.clone(),
    }
}

/// Whether the run is one of this home: the authority tells those of other homes by their member.
fn is_ours(mesh: &MeshState, is_own_mesh: bool, view: &EffectView) -> bool {
    let Some(at) = view.runs_at.as_deref() else {
        return false;
    };
    if !at.starts_with('@') {
        return is_own_mesh;
    }
    let own = format!("@{}/", mesh.mesh.member_name);
    at.starts_with(&own)
}

/// A store that fails there is not mended here: whose it is is said, and that who decides could not be asked.
fn of_broker(mut problem: Problem) -> Problem {
    if problem.known_code() != Some(ErrorCode::StorageUnavailable) {
        return problem;
    }
    if problem.next == ErrorCode::StorageUnavailable.next() {
        "`heddle effect surface-check` says whether it is fit; what was acknowledged is safe, and the same call again is."
            .clone_into(&mut problem.next);
    }
    problem.next += " The store is the broker's: whoever keeps the broker mends it.";
    problem.with("decides", "broker")
}

fn unexpected() -> Problem {
    Problem::new(ErrorCode::Internal, "the authority answered something else")
}

/// Whether trying again later can help, and nothing is known to have happened.
pub(crate) fn is_passing(problem: &Problem) -> bool {
    let code = problem.known_code();
    code.is_some_and(|code| code.kind() == ErrorKind::Busy || code == ErrorCode::StorageUnavailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_fails_at_the_broker_is_not_mended_by_restarting_this_home() {
        let unfit = Problem::new(ErrorCode::StorageUnavailable, "not fit");
        assert!(unfit.next.contains("heddle down"));
        let told = of_broker(unfit.clone());
        assert!(!told.next.contains("heddle down"), "{}", told.next);
        assert!(told.next.contains("whoever keeps the broker"));
        assert_eq!(told.extra["decides"], "broker");
        // Words of its own stay, and other refusals are left alone.
        let own = of_broker(unfit.next("Start the home of @ann."));
        assert!(own.next.starts_with("Start the home of @ann. The store"));
        let other = Problem::new(ErrorCode::ApprovalNeeded, "ask");
        assert_eq!(of_broker(other.clone()), other);
    }
}
