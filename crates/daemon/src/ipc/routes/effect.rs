//! `/v1/effect/…`: effects that happen once. The registrar decides; this translates.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_core::error_code::ErrorCode;
use heddle_registrar::authority::Nonce;
use heddle_registrar::binding::{BindingError, Effect, LogicalKey};
use heddle_registrar::code::Code;
use heddle_registrar::command::{Applied, Kind};
use heddle_registrar::facts::Facts;
use heddle_registrar::life::Stage;
use heddle_registrar::registrar::{Caller, RegisterAsk};
use heddle_registrar::rows::{Outcome, Purpose};
use heddle_registrar::storage::StorageError;
use heddle_wire::from_wire;
use heddle_wire::ipc::{
    EffectApproveAnswer, EffectApproveBody, EffectCompensateBody, EffectCriterion, EffectEndBody,
    EffectList, EffectLog, EffectLogLine, EffectRegisterBody, EffectRequestAnswer,
    EffectRequestBody, EffectResolveBody, EffectStartBody, EffectSurface, EffectVerifyBody,
    EffectView,
};
use heddle_wire::problem::Problem;
use serde::Deserialize;

use super::effect_view::{answer, view};
use super::send::agent;
use crate::effects::{Effects, refusal, storage_problem};
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};

/// Kept of what a command prints, of each of its two streams.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// A person's note, or a verifier's words.
const NOTE_BYTES_MAX: usize = 4 << 10;
const WINDOW_MINUTES_MAX: u32 = 7 * 24 * 60;

/// Who asks. Only this home's own mesh is decided here; a shared one is its broker's to decide.
fn caller(ipc: &Ipc, mesh: Option<&str>, name: Option<&str>) -> Result<Caller, Problem> {
    let agent = agent(ipc, name)?;
    let mesh = ipc.shared.mesh(mesh)?;
    if mesh.mesh.mesh != ipc.effects.mesh {
        let detail = format!(
            "mesh {} is hosted elsewhere, and its broker decides about effects; this version does not ask it yet",
            mesh.mesh.name
        );
        return Err(Problem::new(ErrorCode::UnknownMesh, detail)
            .next("Name this home's own mesh with --mesh, or leave it out."));
    }
    Ok(Caller {
        agent: agent.to_string(),
        person: mesh.mesh.member_name.to_string(),
    })
}

fn invalid(error: BindingError) -> Problem {
    from_wire::invalid(error.to_string())
}

fn key(text: &str) -> Result<LogicalKey, Problem> {
    LogicalKey::parse(text).map_err(invalid)
}

fn bounded(name: &str, text: &str, bytes_max: usize) -> Result<(), Problem> {
    if text.len() <= bytes_max {
        return Ok(());
    }
    let detail = format!("{name} is longer than {bytes_max} bytes");
    Err(from_wire::invalid(detail))
}

type Applying = Result<Applied, StorageError>;

async fn answered(effects: &Effects, key: &LogicalKey, applied: Applying) -> Answered {
    let applied = applied.map_err(|error| storage_problem(&error))?;
    let mut answer = answer(effects, key, &applied)?;
    if answer.status == "running" {
        // As it stands now: who asked may have been overtaken by the end of the run.
        let (duplicate, code, state) = (answer.duplicate, answer.code, answer.state);
        answer = standing(effects, key).await?.1;
        (answer.duplicate, answer.code, answer.state) = (duplicate, code, state);
    }
    ok(&answer)
}

/// The facts and their view. IMPORTANT: rows, then the lock, then the rows again: a runner writes its end
/// before it lets go, so a run that is free and still shows no end has lost its runner.
async fn standing(effects: &Effects, key: &LogicalKey) -> Result<(Facts, EffectView), Problem> {
    let load = async || {
        let facts = effects.registrar.facts(key).await;
        facts.map_err(|error| storage_problem(&error))
    };
    let before = load().await?;
    if before.stage() != Stage::Running || effects.is_held(key) {
        let view = view(effects, key, &before, false)?;
        return Ok((before, view));
    }
    let after = load().await?;
    let is_lost = after.round() == before.round();
    let view = view(effects, key, &after, is_lost)?;
    Ok((after, view))
}

pub(super) async fn request(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: EffectRequestBody = body::read(&parts, incoming).await?;
    let by = caller(&ipc, body.mesh.as_deref(), body.agent.as_deref())?;
    let effect = Effect::new(
        &body.key,
        &body.op,
        &body.target,
        body.artifact_hash.as_deref().unwrap_or_default(),
        body.run.as_deref().unwrap_or_default(),
    )
    .map_err(invalid)?;
    let registrar = &ipc.effects.registrar;
    let applied = registrar.request(effect.clone(), &by).await;
    let applied = applied.map_err(|error| storage_problem(&error))?;
    if applied.kind == Kind::Refused {
        answer(&ipc.effects, &effect.key, &applied)?;
    }
    let now = registrar.now();
    // What was consumed under an older envelope is answered with that one.
    let consumed = applied
        .facts
        .consumed
        .as_ref()
        .map(|row| row.approval.as_str());
    let standing = match consumed {
        Some(approval) => applied.facts.envelope(approval),
        None => applied.facts.live_envelope(now),
    };
    let Some(envelope) = standing else {
        let detail = format!("{}: the request is not there", effect.key);
        return Err(Problem::new(ErrorCode::Internal, detail).into());
    };
    ok(&EffectRequestAnswer {
        request_id: envelope.row.envelope_id.clone(),
        status: envelope.status(now).to_owned(),
        replay_key: envelope.row.replay_key.to_hex(),
        duplicate: applied.kind == Kind::Prior,
        expires_at: envelope.row.expires_at.to_rfc3339(),
    })
}

pub(super) async fn approve(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: EffectApproveBody = body::read(&parts, incoming).await?;
    let by = caller(&ipc, body.mesh.as_deref(), body.agent.as_deref())?;
    if body
        .window_minutes
        .is_some_and(|m| m == 0 || m > WINDOW_MINUTES_MAX)
    {
        let detail = format!("a window lasts from 1 to {WINDOW_MINUTES_MAX} minutes");
        return Err(from_wire::invalid(detail).into());
    }
    let purpose = if body.compensation == Some(true) {
        Purpose::Compensate
    } else {
        Purpose::Register
    };
    let id = &body.request_id;
    let approved = ipc
        .effects
        .registrar
        .approve(id, &by, purpose, body.window_minutes)
        .await
        .map_err(|error| storage_problem(&error))?
        .map_err(|code| refused(id, &by, code))?;
    ok(&EffectApproveAnswer {
        request_id: id.clone(),
        nonce: approved.nonce.reveal().to_owned(),
        expires_at: approved.expires_at.to_rfc3339(),
    })
}

fn refused(id: &str, by: &Caller, code: Code) -> Problem {
    let words = match code {
        Code::NotFound => "there is no such request".to_owned(),
        Code::ApprovalRefused => {
            format!(
                "{} may not decide about it, or it was turned down",
                by.agent
            )
        }
        Code::ReplayStaleRequest => "it was asked for too long ago".to_owned(),
        _ => "it has been used, or turned down, already".to_owned(),
    };
    refusal(code, format!("{id}: {words}"))
}

pub(super) async fn deny(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: EffectApproveBody = body::read(&parts, incoming).await?;
    let by = caller(&ipc, body.mesh.as_deref(), body.agent.as_deref())?;
    let id = &body.request_id;
    let registrar = &ipc.effects.registrar;
    let applied = registrar
        .turn_down(id, &by)
        .await
        .map_err(|error| storage_problem(&error))?
        .map_err(|code| refused(id, &by, code))?;
    let key = registrar.key_of(id).await;
    let key = key.map_err(|error| storage_problem(&error))?;
    let key = key.ok_or_else(|| refused(id, &by, Code::NotFound))?;
    ok(&answer(&ipc.effects, &key, &applied)?)
}

pub(super) async fn register(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: EffectRegisterBody = body::read(&parts, incoming).await?;
    let by = caller(&ipc, body.mesh.as_deref(), body.agent.as_deref())?;
    let attempt = body.attempt_id.as_deref().map(key).transpose()?;
    let effect = Effect::new(
        &body.key,
        &body.op,
        &body.target,
        body.artifact_hash.as_deref().unwrap_or_default(),
        body.run.as_deref().unwrap_or_default(),
    )
    .map_err(invalid)?;
    let key = effect.key.clone();
    let ask = RegisterAsk {
        effect,
        approval: body.request_id,
        nonce: body.nonce.as_deref().map(Nonce::presented),
        said_attempt: attempt.map(|attempt| attempt.to_string()),
    };
    let applied = ipc.effects.registrar.register(ask, &by).await;
    answered(&ipc.effects, &key, applied).await
}

pub(super) async fn start(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: EffectStartBody = body::read(&parts, incoming).await?;
    let by = caller(&ipc, body.mesh.as_deref(), body.agent.as_deref())?;
    let (attempt, key) = (key(&body.attempt_id)?, key(&body.key)?);
    let registrar = &ipc.effects.registrar;
    let applied = registrar.start(key.clone(), attempt.to_string(), &by).await;
    answered(&ipc.effects, &key, applied).await
}

fn outcome(body: EffectEndBody) -> Result<Outcome, Problem> {
    bounded("stdout", &body.stdout, OUTPUT_BYTES_MAX)?;
    bounded("stderr", &body.stderr, OUTPUT_BYTES_MAX)?;
    Ok(Outcome {
        exit_code: body.exit_code,
        stdout: body.stdout,
        stderr: body.stderr,
        truncated: body.truncated,
    })
}

pub(super) async fn finish(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: EffectEndBody = body::read(&parts, incoming).await?;
    let by = caller(&ipc, body.mesh.as_deref(), body.agent.as_deref())?;
    let (attempt, key) = (key(&body.attempt_id)?, key(&body.key)?);
    let registrar = &ipc.effects.registrar;
    let applied = registrar
        .finish(key.clone(), attempt.to_string(), outcome(body)?, &by)
        .await;
    answered(&ipc.effects, &key, applied).await
}

/// A run that somebody still holds is not one to resolve.
pub(super) async fn resolve(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: EffectResolveBody = body::read(&parts, incoming).await?;
    let by = caller(&ipc, body.mesh.as_deref(), body.agent.as_deref())?;
    bounded("the note", &body.note, NOTE_BYTES_MAX)?;
    let key = key(&body.key)?;
    if ipc.effects.is_held(&key) {
        let detail = format!("{key}: its command is still running");
        return Err(Problem::new(ErrorCode::EffectStepRefused, detail)
            .next("Wait for its end; `heddle effect status KEY` says when that is.")
            .into());
    }
    let registrar = &ipc.effects.registrar;
    let applied = registrar
        .resolve(key.clone(), body.again, body.note, &by)
        .await;
    answered(&ipc.effects, &key, applied).await
}

pub(super) async fn verify(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: EffectVerifyBody = body::read(&parts, incoming).await?;
    let by = caller(&ipc, body.mesh.as_deref(), body.agent.as_deref())?;
    bounded("the detail", &body.detail, NOTE_BYTES_MAX)?;
    let key = key(&body.key)?;
    let registrar = &ipc.effects.registrar;
    let applied = registrar
        .verify(key.clone(), body.passed, body.detail, &by)
        .await;
    answered(&ipc.effects, &key, applied).await
}

pub(super) async fn compensate(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: EffectCompensateBody = body::read(&parts, incoming).await?;
    let by = caller(&ipc, body.mesh.as_deref(), body.agent.as_deref())?;
    let key = key(&body.key)?;
    let nonce = body.nonce.as_deref().map(Nonce::presented);
    let registrar = &ipc.effects.registrar;
    let applied = registrar.compensate(key.clone(), nonce, &by).await;
    answered(&ipc.effects, &key, applied).await
}

pub(super) async fn compensated(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: EffectEndBody = body::read(&parts, incoming).await?;
    let by = caller(&ipc, body.mesh.as_deref(), body.agent.as_deref())?;
    let (attempt, key) = (key(&body.attempt_id)?, key(&body.key)?);
    let registrar = &ipc.effects.registrar;
    let applied = registrar
        .compensation_done(key.clone(), attempt.to_string(), outcome(body)?, &by)
        .await;
    answered(&ipc.effects, &key, applied).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusQuery {
    key: String,
    mesh: Option<String>,
    agent: Option<String>,
}

/// What became of a key: the way back after a lost answer (C14). 404 when it was never consumed.
pub(super) async fn status(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: StatusQuery = body::query(&request.into_parts().0)?;
    caller(&ipc, query.mesh.as_deref(), query.agent.as_deref())?;
    let key = key(&query.key)?;
    let (facts, view) = standing(&ipc.effects, &key).await?;
    if facts.consumed.is_some() {
        return ok(&view);
    }
    let status = if facts.envelopes.is_empty() {
        "never_requested"
    } else {
        view.status.as_str()
    };
    let detail = format!("{key}: nothing was registered under it ({status})");
    Err(Problem::new(ErrorCode::EffectNotFound, detail)
        .with("logical_request_key", key.as_str())
        .with("state", "S0")
        .with("approval", status)
        .with("request_id", view.request_id.clone())
        .into())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    limit: Option<usize>,
    mesh: Option<String>,
    agent: Option<String>,
}

pub(super) async fn list(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: ListQuery = body::query(&request.into_parts().0)?;
    caller(&ipc, query.mesh.as_deref(), query.agent.as_deref())?;
    let limit = body::page_rows(query.limit)?;
    let registrar = &ipc.effects.registrar;
    let listed = registrar.list(limit).await;
    let mut effects = Vec::new();
    for one in listed.map_err(|error| storage_problem(&error))? {
        let (_, mut view) = standing(&ipc.effects, &one.key).await?;
        // What was printed is in the status of each.
        (view.stdout, view.stderr) = (None, None);
        effects.push(view);
    }
    ok(&EffectList { effects })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogQuery {
    key: Option<String>,
    limit: Option<usize>,
    mesh: Option<String>,
    agent: Option<String>,
}

pub(super) async fn log(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: LogQuery = body::query(&request.into_parts().0)?;
    caller(&ipc, query.mesh.as_deref(), query.agent.as_deref())?;
    let limit = body::page_rows(query.limit)?;
    let key = query.key.as_deref().map(key).transpose()?;
    let lines = ipc.effects.registrar.log(key.as_ref(), limit).await;
    let lines = lines.map_err(|error| storage_problem(&error))?;
    let line = |line: heddle_registrar::storage::LoggedLine| EffectLogLine {
        at: line.row.at.to_rfc3339(),
        key: line.row.key,
        event: line.row.event,
        code: line.row.code,
        attempt_id: line.row.attempt_id,
        by: line.row.by,
        detail: line.row.detail,
    };
    ok(&EffectLog {
        lines: lines.into_iter().map(line).collect(),
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SurfaceQuery {
    mesh: Option<String>,
    agent: Option<String>,
}

pub(super) async fn surface_check(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: SurfaceQuery = body::query(&request.into_parts().0)?;
    caller(&ipc, query.mesh.as_deref(), query.agent.as_deref())?;
    let criteria = ipc.effects.registrar.surface_check().await;
    let criteria = criteria.map_err(|error| storage_problem(&error))?;
    ok(&EffectSurface {
        fit: criteria.iter().all(|criterion| criterion.is_met),
        criteria: criteria
            .iter()
            .map(|criterion| EffectCriterion {
                letter: criterion.letter.to_string(),
                asks: criterion.asks.to_owned(),
                met: criterion.is_met,
            })
            .collect(),
    })
}
