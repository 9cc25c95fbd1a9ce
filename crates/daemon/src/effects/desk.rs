//! The authority over the effects of a mesh: one call in, one answer out, whoever carries it here.
//!
//! A home asks for its own mesh directly; members elsewhere ask through the broker. The registrar decides,
//! this translates and counts.

use std::sync::Arc;

use heddle_core::clock::WallMs;
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::MeshId;
use heddle_core::names::{AgentName, MemberName};
use heddle_registrar::Registrar;
use heddle_registrar::authority::Nonce;
use heddle_registrar::binding::{BindingError, Effect, LogicalKey};
use heddle_registrar::code::Code;
use heddle_registrar::command::{Applied, Call, Kind};
use heddle_registrar::life::Stage;
use heddle_registrar::policy::Approval;
use heddle_registrar::registrar::{Caller, RegisterAsk};
use heddle_registrar::storage::{Storage, StorageError};
use heddle_wire::broker::{EffectAnswer, EffectCall, ReplyResult};
use heddle_wire::from_wire;
use heddle_wire::ipc::{EffectRegisterBody, EffectRequestAnswer, EffectRequestBody, EffectView};
use heddle_wire::problem::Problem;

use super::HighWater;
use super::policy_file::PolicyFile;
use super::said::{command_hash, fingerprint, plan};
use super::view::{Asker, answer, view};
use super::{attempts, count, policy_problem, refusal, storage_problem};

/// What the caller's own id can be; a home's door has checked it, other members have not.
const CALL_ID_BYTES_MAX: usize = 256;

pub struct Desk<S> {
    pub(super) registrar: Registrar<S>,
    mesh: MeshId,
    /// Whose mesh it is: asked wherever the policy names nobody else.
    pub(super) person: String,
    pub(super) policy: PolicyFile,
    high: Arc<HighWater>,
}

/// The state of a key that nothing was registered under.
const UNUSED: &str = "S0";

pub(super) fn invalid(error: BindingError) -> Problem {
    from_wire::invalid(error.to_string())
}

pub(super) fn key(text: &str) -> Result<LogicalKey, Problem> {
    LogicalKey::parse(text).map_err(invalid)
}

pub(super) fn attempt(text: &str) -> Result<LogicalKey, Problem> {
    LogicalKey::parse_as("the attempt", text).map_err(invalid)
}

/// What is asked for, if anybody could ever approve it.
pub(super) fn effect_of(body: &EffectRequestBody) -> Result<Effect, Problem> {
    let artifact = body.artifact_hash.as_deref().unwrap_or_default();
    let run = body.run.as_deref().unwrap_or_default();
    Effect::new(&body.key, &body.op, &body.target, artifact, run).map_err(invalid)
}

pub(super) fn failed(error: StorageError) -> Problem {
    storage_problem(&error)
}

impl<S: Storage> Desk<S> {
    /// `person` is a mailbox of the home, or `@member/member` where nobody calls but members elsewhere.
    pub(super) fn new(
        registrar: Registrar<S>,
        (mesh, person): (MeshId, String),
        (policy, high): (PolicyFile, Arc<HighWater>),
    ) -> Self {
        Self {
            registrar,
            mesh,
            person,
            policy,
            high,
        }
    }

    pub(super) fn is_of(&self, mesh: MeshId) -> bool {
        self.mesh == mesh
    }

    /// Whether nobody has asked for anything yet.
    pub(super) async fn is_empty(&self) -> Result<bool, StorageError> {
        Ok(self.registrar.list(1).await?.is_empty())
    }

    pub(crate) fn storage(&self) -> &S {
        self.registrar.storage()
    }

    /// A call of a member elsewhere, as the broker has proven it. Mailboxes of other members have other
    /// names than our own, so nobody is taken for somebody here.
    pub async fn guest(
        &self,
        (mesh, member): (MeshId, &MemberName),
        agent: &AgentName,
        (id, seen): (Option<String>, Option<String>),
        call: EffectCall,
    ) -> ReplyResult {
        if mesh != self.mesh {
            let detail = "this broker decides about the effects of another mesh";
            let problem = Problem::new(ErrorCode::UnknownMesh, detail);
            return refused_reply(problem);
        }
        let caller = Caller::new(format!("@{member}/{agent}"), self.person.clone());
        self.answer(caller, (id, seen), call).await
    }

    /// A call of whoever this is, answered as the broker carries it.
    pub(super) async fn answer(
        &self,
        caller: Caller,
        (id, seen): (Option<String>, Option<String>),
        call: EffectCall,
    ) -> ReplyResult {
        let (storage, by) = (self.storage(), caller.agent.clone());
        if let Err(problem) = self.high.witness(storage, seen.as_deref(), &by).await {
            return refused_reply(problem);
        }
        match self.call(caller, id, call).await {
            Ok(answer) => ReplyResult::Effect {
                answer: Box::new(self.of_mesh(answer)),
                proof: self.high.proof(storage).await,
            },
            Err(problem) => refused_reply(problem),
        }
    }

    /// A call of this home's own.
    pub(crate) async fn own(
        &self,
        agent: &AgentName,
        id: Option<String>,
        call: EffectCall,
    ) -> Result<EffectAnswer, Problem> {
        let caller = Caller::new(agent.to_string(), self.person.clone());
        let answer = self.call(caller, id, call).await?;
        Ok(self.of_mesh(answer))
    }

    /// With the one name of the mesh that is the same everywhere.
    fn of_mesh(&self, mut answer: EffectAnswer) -> EffectAnswer {
        let mesh_id = self.mesh.to_string();
        match &mut answer {
            EffectAnswer::Requested(asked) => asked.mesh_id = mesh_id,
            EffectAnswer::View(view) => view.mesh_id = mesh_id,
            EffectAnswer::Story(story) => story.effect.mesh_id = mesh_id,
            EffectAnswer::List(list) => {
                for view in &mut list.effects {
                    view.mesh_id.clone_from(&mesh_id);
                }
            }
            _ => {}
        }
        answer
    }

    /// Whether the effect that this call is about was asked for here.
    pub(super) async fn knows(&self, call: &EffectCall) -> Result<bool, Problem> {
        if let Some(text) = call.key() {
            let facts = self.registrar.facts(&key(text)?).await.map_err(failed)?;
            return Ok(!facts.envelopes.is_empty());
        }
        let Some(id) = call.named_id() else {
            return Ok(false);
        };
        let found = self.registrar.key_of(id).await.map_err(failed)?;
        let is_key = match LogicalKey::parse(id) {
            Ok(key) => !self
                .registrar
                .facts(&key)
                .await
                .map_err(failed)?
                .envelopes
                .is_empty(),
            Err(_) => false,
        };
        Ok(found.is_some() || is_key)
    }

    /// A request under an id of the caller's own goes through the gate before anything else.
    async fn call(
        &self,
        mut by: Caller,
        id: Option<String>,
        call: EffectCall,
    ) -> Result<EffectAnswer, Problem> {
        let call = call.without_scope();
        if call.is_change()
            && let Some(problem) = self.high.refusal()
        {
            return Err(problem);
        }
        if let Some(id) = id.filter(|_| call.is_change()) {
            if id.is_empty() || id.len() > CALL_ID_BYTES_MAX {
                return Err(from_wire::invalid("the id of the call cannot be one"));
            }
            let fingerprint = fingerprint(&call)?;
            by.call = Some(Call { id, fingerprint });
            let known = self.registrar.known_call(&by).await.map_err(failed)?;
            if known.is_some_and(|known| known.fingerprint != fingerprint) {
                let detail = "the Idempotency-Key was used for another request";
                return Err(refusal(Code::CallReused, detail.to_owned()));
            }
        }
        self.read_policy(&call).await?;
        if !call.is_change() {
            // What an earlier copy does not list has happened all the same, and it is no store to decide by.
            let is_whole = matches!(
                call,
                EffectCall::List { .. } | EffectCall::Log { .. } | EffectCall::SurfaceCheck
            );
            if is_whole && let Some(problem) = self.high.refusal() {
                return Err(problem);
            }
            let answer = self.read(&by, call).await;
            // An earlier copy knows nothing of what came after it: that is no answer.
            if says_free(&answer) {
                self.high.look(self.storage()).await?;
            }
            return answer;
        }
        self.high.look(self.storage()).await?;
        let answer = self.change(&by, call).await;
        // IMPORTANT: before anybody is told of it, and so before anything begins.
        let reached = self.registrar.reached().await.map_err(failed)?;
        self.high.raise(&reached).await?;
        answer
    }

    async fn change(&self, by: &Caller, call: EffectCall) -> Result<EffectAnswer, Problem> {
        match call {
            EffectCall::Request(body) => self.request(by, &body).await,
            EffectCall::Approve(body) => self.approve(by, &body).await,
            EffectCall::Deny(body) => self.deny(by, &body).await,
            EffectCall::Register(body) => self.register(by, &body).await,
            call @ (EffectCall::Start(_)
            | EffectCall::Finish(_)
            | EffectCall::Resolve(_)
            | EffectCall::Verify(_)
            | EffectCall::Compensate(_)
            | EffectCall::Compensated(_)) => self.step(by, call).await,
            EffectCall::HandOver { .. } => Err(refusal(
                Code::ApprovalRefused,
                "nothing is handed over to a home; its meshes begin there".to_owned(),
            )),
            // Nothing else changes anything.
            other => self.read(by, other).await,
        }
    }

    /// Whoever decides decides by the file as it is now. One that cannot be read allows nothing; how a
    /// command ended, and what has happened, is taken and told all the same.
    async fn read_policy(&self, call: &EffectCall) -> Result<(), Problem> {
        let is_decided = matches!(
            call,
            EffectCall::Request(_)
                | EffectCall::Approve(_)
                | EffectCall::Deny(_)
                | EffectCall::Register(_)
                | EffectCall::Start(_)
                | EffectCall::Resolve(_)
                | EffectCall::Compensate(_)
        );
        if !is_decided {
            return Ok(());
        }
        let error = match self.policy.read() {
            Ok(policy) => {
                self.registrar.set_policy(policy);
                return Ok(());
            }
            Err(error) => error,
        };
        if let EffectCall::Register(body) = call {
            let facts = self.registrar.facts(&key(&body.key)?).await;
            if facts.map_err(failed)?.consumed.is_some() {
                return Ok(());
            }
        }
        Err(policy_problem(&error))
    }

    pub(super) fn viewed(
        &self,
        by: &Caller,
        key: &LogicalKey,
        applied: Result<Applied, StorageError>,
    ) -> Result<EffectView, Problem> {
        let applied = applied.map_err(failed)?;
        let asker = self.asker(by, self.shown(&applied.facts));
        answer(self.registrar.now(), key, &applied, &asker)
    }

    /// The answer for who asks about this effect, by the rule that is for it.
    pub(super) fn told(
        &self,
        by: &Caller,
        effect: &Effect,
        applied: &Applied,
    ) -> Result<EffectView, Problem> {
        let asker = Asker {
            asks: Some(effect),
            ..self.asker(by, Some(effect))
        };
        answer(self.registrar.now(), &effect.key, applied, &asker)
    }

    fn asker<'a>(&self, by: &'a Caller, effect: Option<&Effect>) -> Asker<'a> {
        let ruled = effect.map(|effect| self.registrar.ruled(effect));
        let ruled = ruled.as_ref();
        Asker {
            name: &by.agent,
            may_approve: ruled.is_some_and(|ruled| ruled.may_approve(&by.agent, &by.person)),
            is_forbidden: ruled.is_some_and(|ruled| ruled.approval == Approval::Never),
            approvers: effect.map_or_else(Vec::new, |effect| self.approvers(by, effect)),
            mesh: self.mesh.to_string(),
            asks: None,
        }
    }

    async fn request(
        &self,
        by: &Caller,
        body: &EffectRequestBody,
    ) -> Result<EffectAnswer, Problem> {
        let effect = effect_of(body)?;
        let applied = self.registrar.request(effect.clone(), by).await;
        let applied = applied.map_err(failed)?;
        count::requested(&applied);
        if applied.kind == Kind::Refused {
            self.told(by, &effect, &applied)?;
        }
        let now = (by.agent.as_str(), self.registrar.now());
        let mut answer = requested(now, &effect.key, &applied)?;
        if answer.status == "awaiting_approval" {
            answer.approvers = self.approvers(by, &effect);
        }
        Ok(EffectAnswer::Requested(answer))
    }

    async fn register(
        &self,
        by: &Caller,
        body: &EffectRegisterBody,
    ) -> Result<EffectAnswer, Problem> {
        let attempt = body.attempt_id.as_deref().map(attempt).transpose()?;
        let effect = Effect::new(
            &body.key,
            &body.op,
            &body.target,
            body.artifact_hash.as_deref().unwrap_or_default(),
            body.run.as_deref().unwrap_or_default(),
        )
        .map_err(invalid)?;
        let ask = RegisterAsk {
            effect: effect.clone(),
            approval: body.request_id.clone(),
            nonce: body.nonce.as_deref().map(Nonce::presented),
            said_attempt: attempt.map(|attempt| attempt.to_string()),
            verify: body.verify.as_ref().map(plan).transpose()?,
            command_hash: command_hash(body.command_hash.as_ref())?,
        };
        let applied = self.registrar.register(ask, by).await;
        count::registered(&applied);
        let applied = applied.map_err(failed)?;
        let told = self.told(by, &effect, &applied);
        told.map(viewed)
    }

    /// What became of a key: the way back after a lost answer (C14). Where it only waits, that is the
    /// answer; 404 when nobody ever asked for it.
    pub(super) async fn status(&self, by: &Caller, text: &str) -> Result<EffectAnswer, Problem> {
        let key = key(text)?;
        let facts = self.registrar.facts(&key).await.map_err(failed)?;
        let lines = self.registrar.log(Some(&key), attempts::LINES_MAX).await;
        let lines = lines.map_err(failed)?;
        if let Some(effect) = self.shown(&facts) {
            let mut view = view(self.registrar.now(), &key, &facts)?;
            view.attempts = attempts::attempts(&facts, &lines);
            view.retries = attempts::retries(&self.registrar, &key);
            view.blocked = self.blocked(self.policy_of_now().as_deref(), &facts);
            view.approvers = self.approvers(by, effect);
            return Ok(viewed(view));
        }
        let detail = format!("{key}: nothing was registered under it, and nobody asked for it");
        Err(Problem::new(ErrorCode::EffectNotFound, detail)
            .with("logical_request_key", key.as_str())
            .with("state", "S0")
            .with("approval", "never_requested"))
    }
}

pub(super) fn refused_reply(problem: Problem) -> ReplyResult {
    ReplyResult::EffectRefused {
        problem: Box::new(problem),
    }
}

/// Whether an answer says of a key that nobody has used it: the one thing that only the newest store can say.
fn says_free(answer: &Result<EffectAnswer, Problem>) -> bool {
    match answer {
        Ok(EffectAnswer::View(view)) => view.state == UNUSED,
        Ok(EffectAnswer::Story(story)) => story.effect.state == UNUSED,
        Ok(_) => false,
        Err(problem) => problem.known_code() == Some(ErrorCode::EffectNotFound),
    }
}

pub(super) fn viewed(view: EffectView) -> EffectAnswer {
    EffectAnswer::View(Box::new(view))
}

/// What was consumed under an older envelope is answered with that one.
fn requested(
    (by, now): (&str, WallMs),
    key: &LogicalKey,
    applied: &Applied,
) -> Result<EffectRequestAnswer, Problem> {
    let facts = &applied.facts;
    let standing = match facts.consumed.as_ref() {
        Some(row) => facts.envelope(&row.approval),
        // A request repeated under its id may be over by now.
        None => {
            let mut own = facts.envelopes.iter().rev();
            let own = own.find(|envelope| envelope.row.requested_by == by);
            facts.live_envelope_of(by, now).or(own)
        }
    };
    let Some(envelope) = standing else {
        let detail = format!("{key}: the request is not there");
        return Err(Problem::new(ErrorCode::Internal, detail));
    };
    Ok(EffectRequestAnswer {
        request_id: envelope.row.envelope_id.clone(),
        // What was done is not "approved": nobody is to run it.
        status: match facts.stage() {
            Stage::Issued => envelope.status(now).to_owned(),
            stage => stage.as_str().to_owned(),
        },
        replay_key: envelope.row.replay_key.to_hex(),
        duplicate: applied.kind == Kind::Prior,
        expires_at: envelope.row.expires_at.to_rfc3339(),
        approvers: Vec::new(),
        mesh_id: String::new(),
    })
}
