//! Calls that wait for the broker of their mesh. Nothing is assumed meanwhile: what an authority has not
//! said is not so.
//!
//! A request for approval can wait, and so can the news of how a command ended: they are kept on disk, and
//! told in their order, each under an id that makes it one call however often it is told. A registration or
//! a run cannot: whoever asks for these is told that the broker is away.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use heddle_core::error_code::ErrorCode;
use heddle_core::ids::ClientMessageId;
use heddle_core::names::AgentName;
use heddle_registrar::binding::LogicalKey;
use heddle_registrar::storage::sqlite::{Waited, Waiting};
use heddle_wire::broker::{EffectAnswer, EffectCall};
use heddle_wire::ipc::{EffectRequestAnswer, EffectRequestBody, EffectStory, EffectView};
use heddle_wire::problem::Problem;

use super::ask::{Scope, is_passing};
use super::desk::effect_of;
use super::keep::waiting_of;
use super::{Effects, NAME, ended, storage_problem, story, view};
use crate::mesh::MeshState;
use crate::shared::{Shared, lock};

const LOOK: Duration = Duration::from_secs(1);
/// Looks that are left out, at most, while ends lie here that nobody can take.
const LOOKS_LEFT_OUT_MAX: u32 = 63;
/// Told at a time.
const CALLS_MAX: usize = 64;

fn can_wait(call: &EffectCall) -> bool {
    matches!(
        call,
        EffectCall::Request(_)
            | EffectCall::Finish(_)
            | EffectCall::Compensated(_)
            | EffectCall::Verify(_)
    )
}

/// Whether it went out, and the answer to it never came: who decides may have heard it.
fn was_sent(problem: &Problem) -> bool {
    let is_unanswered = problem.known_code() == Some(ErrorCode::NotConnected);
    is_unanswered && problem.extra.get("asked") == Some(&true.into())
}

/// Nobody here knows whether it was recorded, so neither is said. What stands, who decides tells by the key (C14).
fn outcome_unknown(call: &EffectCall, problem: Problem) -> Problem {
    let next = match call {
        EffectCall::Approve(_) => {
            "It was sent, and its answer is lost: it may have been recorded. When `heddle status` says connected, `heddle effect list` says what stands; said once more, it grants a further nonce, which authorises no second effect."
        }
        EffectCall::Deny(_) => {
            "It was sent, and its answer is lost: it may have been recorded. When `heddle status` says connected, `heddle effect list` says what stands; said once more, it is refused where it was recorded."
        }
        _ => {
            "It was sent, and its answer is lost: it may have been recorded, and this call ran nothing. When `heddle status` says connected, ask `heddle effect status KEY` what stands before anything else; the key decides, however often it is tried."
        }
    };
    problem.with("outcome", "unknown").next(next)
}

impl Effects {
    /// What waits comes first: the authority must hear of things in the order in which they happened.
    pub(super) async fn elsewhere(
        &self,
        scope: &Scope<'_>,
        id: Option<String>,
        call: EffectCall,
    ) -> Result<EffectAnswer, Problem> {
        let (mesh, shared) = (scope.mesh, scope.shared);
        let is_named = id.is_some();
        let id = match (id, call.is_change()) {
            (None, true) => Some(ClientMessageId::minted(shared.ids.ulid()).to_string()),
            (id, _) => id,
        };
        let (asked, is_lost) = match self.tell(shared, mesh).await {
            Ok(()) => {
                let asked = self.asked(scope, id.clone(), &call).await;
                let is_lost = asked.as_ref().is_err_and(was_sent);
                (asked, is_lost)
            }
            // What waits here was not told, and this call not even sent.
            Err(problem) => (Err(problem), false),
        };
        match (asked, id) {
            (Err(problem), Some(id)) if is_passing(&problem) && can_wait(&call) => {
                self.kept_for_later(scope, (id, is_named), call, problem)
                    .await
            }
            (Err(problem), _) if is_lost && call.is_change() => {
                Err(outcome_unknown(&call, problem))
            }
            (Err(problem), _) if is_passing(&problem) => self.unheard(mesh, &call, problem).await,
            (Err(problem), _) if problem.known_code() == Some(ErrorCode::EffectNotFound) => {
                self.with_last_word(mesh, &call, problem).await
            }
            (Ok(EffectAnswer::View(mut view)), _) if matches!(call, EffectCall::Status { .. }) => {
                let refused = self.refused(mesh, call.key()).await?;
                view.waited = refused.map(|refused| refused.outcome);
                Ok(EffectAnswer::View(view))
            }
            // The authority knows that somebody was refused, and not what was asked.
            (Ok(EffectAnswer::Story(mut story)), _) if story.effect.operation.is_empty() => {
                let key = story.effect.logical_request_key.clone();
                if let Some(refused) = self.refused(mesh, Some(&key)).await? {
                    story::refused(&mut story, &refused);
                }
                Ok(EffectAnswer::Story(story))
            }
            (asked, _) => asked,
        }
    }

    /// Keeps what the broker cannot be told now; it is told by itself when that is back. A request that nobody has named
    /// and that waits already is the same one.
    async fn kept_for_later(
        &self,
        scope: &Scope<'_>,
        (id, is_named): (String, bool),
        call: EffectCall,
        problem: Problem,
    ) -> Result<EffectAnswer, Problem> {
        let mesh = scope.mesh;
        if let EffectCall::Request(body) = &call {
            // What nobody could ever approve is not kept either.
            effect_of(body)?;
        }
        let waiting = waiting_of(scope, id, &call)?;
        let mut is_known = self.is_kept(mesh, &waiting, &problem).await?;
        if let EffectCall::Request(body) = &call {
            let waits = self.refuse_a_conflict(mesh, body, &waiting.caller).await?;
            is_known |= waits && !is_named;
        }
        if !is_known {
            is_known = !self.keep(mesh, waiting, &problem).await?;
        }
        match call {
            EffectCall::Request(_) => Ok(EffectAnswer::Requested(EffectRequestAnswer {
                request_id: String::new(),
                status: "waiting_for_broker".to_owned(),
                replay_key: String::new(),
                duplicate: is_known,
                expires_at: String::new(),
                approvers: Vec::new(),
                mesh_id: mesh.mesh.mesh.to_string(),
            })),
            _ => Err(problem.with("waiting", true).next(
                "It is kept here and told by itself when the broker is back; `heddle effect status KEY` says when.",
            )),
        }
    }

    /// The broker's answer. How an effect stands is asked once for all who ask it at once.
    async fn asked(
        &self,
        scope: &Scope<'_>,
        id: Option<String>,
        call: &EffectCall,
    ) -> Result<EffectAnswer, Problem> {
        let mesh = scope.mesh;
        let ask = || self.through_broker(mesh, scope.agent, id, call.clone());
        match call {
            EffectCall::Status { key } => {
                let question = (mesh.mesh.mesh, scope.agent.clone(), key.clone());
                self.looks.told(question, ask).await
            }
            _ => ask().await,
        }
    }

    /// Nobody who decides has answered: what this home knows by itself, or that it knows nothing.
    async fn unheard(
        &self,
        mesh: &MeshState,
        call: &EffectCall,
        mut problem: Problem,
    ) -> Result<EffectAnswer, Problem> {
        match call {
            EffectCall::Status { key } => {
                if let Some(view) = self.not_asked_yet(mesh, key).await? {
                    return Ok(EffectAnswer::View(Box::new(view)));
                }
                // No view: how it ended says nothing of what stands at who decides, and who waits for that goes on asking.
                if let Some(ended) = self.ended_here(mesh, key).await? {
                    problem = ended::with(problem, ended);
                }
            }
            EffectCall::Story { id } => {
                if let Some(view) = self.known_here(mesh, id).await? {
                    let story = story::waiting(id, view);
                    return Ok(EffectAnswer::Story(Box::new(story)));
                }
            }
            _ => {}
        }
        // A word about a request names no key, and is not kept: a person says it to who decides.
        let is_word = matches!(call, EffectCall::Approve(_) | EffectCall::Deny(_));
        let kept = if is_word {
            Vec::new()
        } else {
            self.kept(mesh, call.key()).await?
        };
        let next = if is_word {
            "Nothing was recorded, and nothing is kept: the request stands as it did. Say it again when `heddle status` says connected."
        } else if kept.iter().any(|verb| verb != "request") {
            "How a command ended here is kept and told by itself when the broker is back; this call did nothing. Try again when `heddle status` says connected."
        } else if !call.is_change() {
            "Nobody else knows what stands. Ask again when `heddle status` says connected."
        } else if kept.is_empty() {
            "This call ran nothing, and nothing of it is kept. Try again when `heddle status` says connected: the key decides, however often it is tried."
        } else {
            "This call ran nothing. The request that waits here is made by itself when the broker is back; try again when `heddle status` says connected."
        };
        let problem = problem.with("waiting", kept);
        // An authority that can be reached and decides nothing says itself what to do.
        match problem.known_code() {
            Some(ErrorCode::StorageUnavailable) => Err(problem),
            _ => Err(problem.next(next)),
        }
    }

    /// Of two requests that wait here and mean different things under one key, one is refused for certain. Whether the
    /// same one of this caller waits.
    async fn refuse_a_conflict(
        &self,
        mesh: &MeshState,
        body: &EffectRequestBody,
        caller: &str,
    ) -> Result<bool, Problem> {
        let what = |body: &EffectRequestBody| {
            let more = (body.artifact_hash.clone(), body.run.clone());
            (body.op.clone(), body.target.clone(), more)
        };
        let mut waits = false;
        for waiting in self.about(mesh, &body.key).await? {
            let Ok(EffectCall::Request(first)) = serde_json::from_str(&waiting.call) else {
                continue;
            };
            if what(&first) != what(body) {
                let detail = format!(
                    "{}: {} {} waits here under this key for the broker, and this is another effect",
                    body.key, first.op, first.target
                );
                return Err(Problem::new(ErrorCode::ReplayBindingMismatch, detail)
                    .with("conflict", "waiting_for_broker"));
            }
            waits |= waiting.caller == caller;
        }
        Ok(waits)
    }

    /// What waits here about a key.
    async fn about(&self, mesh: &MeshState, key: &str) -> Result<Vec<Waiting>, Problem> {
        let found = self.storage().waiting(mesh.mesh.mesh, CALLS_MAX).await;
        let found = found.map_err(|error| storage_problem(&error))?;
        // What was changed since is nobody's word, and nothing is shown by it.
        let whole = found.into_iter().filter(|kept| !kept.is_changed);
        let waiting = whole.map(|kept| kept.call);
        Ok(waiting.filter(|waiting| waiting.key == key).collect())
    }

    /// The last call about this key that waited here, if it was refused then.
    async fn refused(
        &self,
        mesh: &MeshState,
        key: Option<&str>,
    ) -> Result<Option<Waited>, Problem> {
        let Some(key) = key.and_then(|key| LogicalKey::parse(key).ok()) else {
            return Ok(None);
        };
        let waited = self.storage().last_waited(mesh.mesh.mesh, &key).await;
        let waited = waited.map_err(|error| storage_problem(&error))?;
        Ok(waited.filter(|waited| waited.outcome != ANSWERED))
    }

    /// A request that waited and was then refused left no trace at the authority; here it did.
    async fn with_last_word(
        &self,
        mesh: &MeshState,
        call: &EffectCall,
        mut problem: Problem,
    ) -> Result<EffectAnswer, Problem> {
        let key = match call {
            EffectCall::Story { id } => Some(id.as_str()),
            other => other.key(),
        };
        let Some(refused) = self.refused(mesh, key).await? else {
            return Err(problem);
        };
        let key = key.unwrap_or_default();
        if matches!(call, EffectCall::Story { .. }) {
            let story = story::of_refused(key, &refused);
            return Ok(EffectAnswer::Story(Box::new(story)));
        }
        let at = refused.call.since.to_rfc3339();
        problem.detail = format!(
            "{key}: nothing was registered under it; what was asked for here at {at} waited for the broker and was refused then: {}",
            refused.outcome
        );
        let asked = match serde_json::from_str(&refused.call.call) {
            Ok(EffectCall::Request(body)) => effect_of(&body).ok(),
            _ => None,
        };
        let next = format!(
            "Mend what it names and ask again with `{}`; the key is still free.",
            view::request_command(asked.as_ref())
        );
        Err(problem
            .with("approval", "refused")
            .with("waited", refused.outcome)
            .next(next))
    }

    /// A request that has not left this home: that it waits is what there is to say of its key. Anything
    /// more the authority alone knows.
    async fn not_asked_yet(
        &self,
        mesh: &MeshState,
        key: &str,
    ) -> Result<Option<EffectView>, Problem> {
        let about = self.about(mesh, key).await?;
        let request = |waiting: &Waiting| match serde_json::from_str(&waiting.call) {
            Ok(EffectCall::Request(body)) => Some(view::waiting(waiting, body)),
            _ => None,
        };
        let views: Option<Vec<EffectView>> = about.iter().map(request).collect();
        Ok(views.and_then(|views| views.into_iter().next()))
    }

    /// How a command ended in this home that the authority has not heard of.
    async fn ended_here(&self, mesh: &MeshState, key: &str) -> Result<Option<EffectView>, Problem> {
        let about = self.about(mesh, key).await?;
        let ended = |waiting: &Waiting| match serde_json::from_str(&waiting.call) {
            Ok(EffectCall::Finish(body) | EffectCall::Compensated(body)) => {
                Some(ended::view(waiting, body))
            }
            _ => None,
        };
        Ok(about.iter().rev().find_map(ended))
    }

    /// All that this home knows by itself of a key.
    async fn known_here(&self, mesh: &MeshState, key: &str) -> Result<Option<EffectView>, Problem> {
        match self.not_asked_yet(mesh, key).await? {
            None => self.ended_here(mesh, key).await,
            asked => Ok(asked),
        }
    }

    /// The story of a request that waits for whichever broker.
    pub(crate) async fn waits_somewhere(
        &self,
        shared: &Shared,
        id: &str,
    ) -> Result<Option<EffectStory>, Problem> {
        let key = id.strip_prefix("effect:").unwrap_or(id);
        for mesh in &shared.meshes {
            let mut story = match self.known_here(mesh, key).await? {
                Some(view) => story::waiting(key, view),
                None => match self.refused(mesh, Some(key)).await? {
                    Some(refused) => story::of_refused(key, &refused),
                    None => continue,
                },
            };
            story.mesh = mesh.mesh.name.to_string();
            return Ok(Some(story));
        }
        Ok(None)
    }

    /// The verbs about this key that wait.
    async fn kept(&self, mesh: &MeshState, key: Option<&str>) -> Result<Vec<String>, Problem> {
        let found = self.storage().waiting(mesh.mesh.mesh, CALLS_MAX).await;
        let found = found.map_err(|error| storage_problem(&error))?;
        let calls = found.into_iter().map(|kept| kept.call);
        let about = calls.filter(|call| key.is_none_or(|key| key == call.key));
        Ok(about.map(|call| call.verb).collect())
    }

    /// Tells the broker everything that waits for it. An answer is an answer, a refusal too.
    pub(super) async fn tell(&self, shared: &Shared, mesh: &MeshState) -> Result<(), Problem> {
        // What was decided before comes before what happened since.
        self.hand_over(shared, mesh).await?;
        let _one = self.telling.lock().await;
        let storage = self.storage();
        loop {
            let waiting = storage.waiting(mesh.mesh.mesh, CALLS_MAX).await;
            let waiting = waiting.map_err(|error| storage_problem(&error))?;
            if waiting.is_empty() {
                return Ok(());
            }
            for one in waiting {
                let outcome = if one.is_changed {
                    self.not_told(mesh, &one.call)
                } else {
                    self.tell_one(mesh, one.call).await?
                };
                let waited = storage.waited(one.seq, outcome, shared.clock.wall());
                waited.await.map_err(|error| storage_problem(&error))?;
            }
        }
    }

    /// What was changed here since it was kept is told to nobody: of a command's end that leaves it unknown, for a person. What
    /// waits behind it goes on.
    fn not_told(&self, mesh: &MeshState, one: &Waiting) -> String {
        let says = heddle_registrar::storage::sqlite::in_words(&one.key);
        tracing::error!(mesh = %mesh.mesh.name, verb = one.verb, "{NAME}: {says}");
        let mut changed = lock(&self.changed);
        if !changed.contains(&says) {
            changed.push(says.clone());
        }
        says
    }

    /// What to write down: that it was answered, or the refusal. An error means that it still waits.
    async fn tell_one(&self, mesh: &MeshState, one: Waiting) -> Result<String, Problem> {
        let (Ok(call), Ok(agent)) = (
            serde_json::from_str::<EffectCall>(&one.call),
            AgentName::parse(&one.caller),
        ) else {
            return Ok("cannot be read".to_owned());
        };
        match self
            .through_broker(mesh, &agent, Some(one.call_id), call)
            .await
        {
            Ok(_) => Ok(ANSWERED.to_owned()),
            Err(problem) if is_passing(&problem) => Err(problem),
            Err(problem) => {
                tracing::warn!(mesh = %mesh.mesh.name, verb = one.verb, code = problem.code, "a call about an effect waited for its broker and was refused");
                Ok(format!("{}: {}", problem.code, problem.detail))
            }
        }
    }
}

pub(super) const ANSWERED: &str = "answered";

/// An end is left in its place, for the next look.
pub(super) fn look_again(effects: &Effects) {
    effects.may_end.store(true, Ordering::Relaxed);
}

/// Tells what waits as soon as a broker is back.
pub(crate) async fn run(shared: Arc<Shared>, effects: Arc<Effects>) {
    let (mut left_out, mut to_leave_out) = (0, 0);
    effects.look_kept().await;
    loop {
        tokio::select! {
            () = shared.shutdown.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        if left_out < to_leave_out {
            left_out += 1;
        } else if effects.may_end.swap(false, Ordering::Relaxed) {
            left_out = 0;
            if effects.hand_in_all(&shared).await {
                to_leave_out = 0;
            } else {
                // What stays may stay for long: twice as rarely each time.
                to_leave_out = (to_leave_out * 2 + 1).min(LOOKS_LEFT_OUT_MAX);
                look_again(&effects);
            }
        }
        for mesh in shared.meshes.iter().filter(|mesh| mesh.is_connected()) {
            if let Err(problem) = effects.hand_over(&shared, mesh).await {
                tracing::debug!(mesh = %mesh.mesh.name, why = problem.detail, "not handed over yet");
            }
        }
        if !effects.may_wait.swap(false, Ordering::Relaxed) {
            continue;
        }
        for mesh in &shared.meshes {
            if matches!(effects.is_decided_here(&shared, mesh).await, Ok(true)) {
                continue;
            }
            let told = if mesh.is_connected() {
                effects.tell(&shared, mesh).await.is_ok()
            } else {
                let kept = effects.kept(mesh, None).await;
                kept.is_ok_and(|kept| kept.is_empty())
            };
            if !told {
                effects.may_wait.store(true, Ordering::Relaxed);
            }
        }
    }
}
