//! An effect as the authority shows it: facts into words. Whether its runner still lives, the runner's own
//! home knows, and adds.

use heddle_core::approvers;
use heddle_core::clock::WallMs;
use heddle_core::error_code::ErrorCode;
use heddle_core::shell::{options, quoted};
use heddle_registrar::binding::{Effect, LogicalKey, ReplayKey};
use heddle_registrar::code::Code;
use heddle_registrar::command::{Applied, Kind};
use heddle_registrar::facts::{Envelope, Facts};
use heddle_registrar::life::Stage;
use heddle_registrar::refused;
use heddle_registrar::rows::{Outcome, RegistrationRow, Step, StepRow};
use heddle_registrar::storage::sqlite::Waiting;
use heddle_wire::ipc::{
    EffectDecision, EffectOpenRequest, EffectRequestBody, EffectStep, EffectView,
};
use heddle_wire::problem::Problem;
use serde_json::{Value, json};

use super::{differs, refusal};

/// Who is answered.
pub(super) struct Asker<'a> {
    pub(super) name: &'a str,
    /// Whether a word of theirs would be enough.
    pub(super) may_approve: bool,
    /// The policy says never, to everybody.
    pub(super) is_forbidden: bool,
    /// Whose word would be, as this one would name them.
    pub(super) approvers: Vec<String>,
    /// The id of the mesh.
    pub(super) mesh: String,
    /// The effect that they mean, where they say all of it.
    pub(super) asks: Option<&'a Effect>,
}

impl Asker<'_> {
    /// Whose word would be enough, in words.
    fn who(&self) -> String {
        approvers::in_words(&self.approvers, &self.mesh)
    }

    /// A command that is for them.
    fn theirs(&self, command: &str) -> String {
        approvers::run_by(&self.approvers, &self.mesh, command)
    }
}

/// The answer to a command: what stands now, or why not.
pub(super) fn answer(
    now: WallMs,
    key: &LogicalKey,
    applied: &Applied,
    asker: &Asker<'_>,
) -> Result<EffectView, Problem> {
    if applied.kind == Kind::Refused {
        return Err(refusal_of(now, key, applied, asker));
    }
    let mut view = view(now, key, &applied.facts)?;
    view.approvers.clone_from(&asker.approvers);
    view.duplicate = applied.kind == Kind::Prior;
    view.code = applied.code.map(|code| code.as_str().to_owned());
    if applied.code == Some(Code::AttemptCollision) {
        "S4".clone_into(&mut view.state);
        "lost the race: somebody else registered it, and this is what came of that"
            .clone_into(&mut view.state_means);
    }
    Ok(view)
}

fn refusal_of(now: WallMs, key: &LogicalKey, applied: &Applied, asker: &Asker<'_>) -> Problem {
    let code = applied.code.unwrap_or(Code::StepRefused);
    let facts = &applied.facts;
    let problem = refusal(code, sentence(now, code, key, facts, asker));
    if code == Code::ApprovalRefused && asker.is_forbidden {
        return problem.next(
            "Whoever keeps effects.toml can allow it. Nothing was run or changed by this call.",
        );
    }
    if code == Code::ApprovalRefused && facts.consumed.is_some() {
        let (whose, who) = (whose(facts), asker.who());
        let next = if whose == asker.name {
            format!("A person{who} does this; nothing was changed.")
        } else {
            format!("{whose} does this, or a person{who}; nothing was changed.")
        };
        return problem.next(next);
    }
    if let Some(next) = differs::next(code, facts, asker.asks) {
        return problem.next(next);
    }
    if code == Code::ReplayStaleRequest && facts.consumed.is_none() {
        return problem.next(format!(
            "Ask again with `{}`; nothing was registered, and the key is still free.",
            request_command(asker.asks)
        ));
    }
    let is_about_nonce = matches!(
        code,
        Code::ApprovalNeeded | Code::NonceUnbound | Code::ReplayNonceConsumed
    );
    if !is_about_nonce {
        return problem;
    }
    if let Some(consumed) = &facts.consumed {
        return needs_compensation(problem, key, (facts, &consumed.approval), asker);
    }
    needs_word(problem, (now, facts), asker)
}

/// What was not registered needs somebody's word, or has one that was not shown.
fn needs_word(problem: Problem, (now, facts): (WallMs, &Facts), asker: &Asker<'_>) -> Problem {
    let who = asker.who();
    let approve = |id: &str| asker.theirs(&format!("heddle effect approve {id}"));
    // An approval is for who asked: that of somebody else is of no use to this one.
    let own = |envelope: &&Envelope| asker.may_approve || envelope.row.requested_by == asker.name;
    match facts.envelopes.iter().rev().find(own) {
        Some(envelope) if envelope.status(now) == "approved" => {
            let id = &envelope.row.envelope_id;
            problem.with("request_id", id.as_str()).next(format!(
                "It is approved: run this again with the --nonce that was shown to who approved it; or a person{who} grants another one with `{}`. Nothing was registered, and the key is still free.",
                approve(id)
            ))
        }
        Some(envelope) if envelope.is_live(now) => {
            let id = &envelope.row.envelope_id;
            problem.with("request_id", id.as_str()).next(format!(
                "A person{who} runs `{}`; run this again with its --nonce. Nothing was registered, and the key is still free.",
                approve(id)
            ))
        }
        Some(envelope) => problem
            .with("request_id", envelope.row.envelope_id.as_str())
            .with("approval", envelope.status(now))
            .next(format!(
                "The last approval is {}: ask again with `{}`. Nothing was registered, and the key is still free.",
                envelope.status(now),
                request_command(asker.asks)
            )),
        None => problem.next(format!(
            "Ask for it with `{}`; when a person has approved that, run this again with its --nonce. Nothing was registered, and the key is still free.",
            request_command(asker.asks)
        )),
    }
}

/// What has happened needs a word of its own, for what makes up for it.
fn needs_compensation(
    problem: Problem,
    key: &LogicalKey,
    (facts, id): (&Facts, &str),
    asker: &Asker<'_>,
) -> Problem {
    let owner = facts
        .envelope(id)
        .map_or("", |it| it.row.requested_by.as_str());
    let runner = facts.runner().map_or("", |row| row.by.as_str());
    let who = asker.who();
    let approve = asker.theirs(&format!("heddle effect approve {id} --compensation"));
    let next = if asker.may_approve || [owner, runner].contains(&asker.name) {
        format!(
            "A person{who} runs `{approve}`; compensate with its --nonce. Nothing was run, and the key stays used."
        )
    } else {
        let compensate = format!(
            "heddle effect compensate {} -- COMMAND",
            quoted(key.as_str())
        );
        format!(
            "A person{who} runs `{}`; or {owner}, whose effect it is, does so with the nonce of `{approve}`. Nothing was run, and the key stays used.",
            asker.theirs(&compensate)
        )
    };
    problem.with("request_id", id).next(next)
}

/// The command that asks for this effect, as a shell takes it.
pub(super) fn request_command(asks: Option<&Effect>) -> String {
    let Some(effect) = asks else {
        return "heddle effect request".to_owned();
    };
    let artifact = match effect.artifact_hash.as_str() {
        "" => "",
        _ => "FILE",
    };
    let said = options(&[
        ("--key", effect.key.as_str()),
        ("--op", &effect.operation),
        ("--target", &effect.target),
        ("--run", &effect.run_id),
        ("--artifact", artifact),
    ]);
    format!("heddle effect request{said}")
}

/// Who has registered it.
fn whose(facts: &Facts) -> String {
    let registration = facts.registration.as_ref();
    registration.map_or_else(String::new, RegistrationRow::registered_by)
}

fn sentence(now: WallMs, code: Code, key: &LogicalKey, facts: &Facts, asker: &Asker<'_>) -> String {
    if let Some(why) = refused::why(code, (key, facts), asker.asks, (asker.name, now)) {
        return format!("{key}: {why}");
    }
    let words = match code {
        Code::ApprovalRefused if asker.is_forbidden => "effects.toml says never",
        Code::ApprovalNeeded if facts.consumed.is_some() => {
            "a person has to approve first what makes up for it"
        }
        Code::ApprovalNeeded => "a person has to approve it first",
        Code::ApprovalRefused => match facts.stage() {
            Stage::Registered => {
                return format!(
                    "{key}: {} has registered it, and {} is somebody else",
                    whose(facts),
                    asker.name
                );
            }
            Stage::Finished => {
                return format!(
                    "{key}: {} has run it, and its verdict is not {}'s to give",
                    facts.runner().map_or("nobody", |row| row.by.as_str()),
                    asker.name
                );
            }
            _ => "only who may approve it may say this",
        },
        Code::NotFound => "nothing is registered under it",
        Code::CallReused => "the Idempotency-Key was used for another request",
        Code::OutcomeUnknown => "its command began, and nobody knows how it ended",
        _ => return format!("{key}: not possible while it is {}", facts.stage().as_str()),
    };
    format!("{key}: {words}")
}

/// What the rows say.
pub(super) fn view(now: WallMs, key: &LogicalKey, facts: &Facts) -> Result<EffectView, Problem> {
    let consumed = facts.consumed.as_ref();
    let foremost = facts.foremost(now);
    let shown = foremost.map(|envelope| &envelope.row);
    let effect = consumed
        .map(|row| &row.effect)
        .or_else(|| shown.map(|row| &row.effect));
    let asked = consumed
        .and_then(|row| facts.envelope(&row.approval))
        .map_or(shown, |envelope| Some(&envelope.row));
    let receipt = facts.registration.as_ref().map(|row| row.receipt.as_str());
    let outcome = facts.outcome();
    let word = facts.persons_word();
    let verdict = verdict(facts);
    Ok(EffectView {
        logical_request_key: key.to_string(),
        state: facts.stage().state().to_owned(),
        state_means: facts.stage().means().to_owned(),
        status: match (facts.stage(), foremost) {
            (Stage::Issued, Some(envelope)) => envelope.status(now).to_owned(),
            (stage, _) => stage.as_str().to_owned(),
        },
        operation: effect.map(|e| e.operation.clone()).unwrap_or_default(),
        target: effect.map(|e| e.target.clone()).unwrap_or_default(),
        artifact_hash: effect.map(|e| e.artifact_hash.clone()).unwrap_or_default(),
        run: effect.map(|e| e.run_id.clone()).unwrap_or_default(),
        request_id: consumed
            .map(|row| row.approval.clone())
            .or_else(|| shown.map(|row| row.envelope_id.clone())),
        replay_key: consumed
            .map(|row| row.replay_key)
            .or_else(|| shown.map(|row| row.replay_key))
            .map(ReplayKey::to_hex),
        requested_by: asked.map(|row| row.requested_by.clone()),
        requested_at: asked.map(|row| row.requested_at.to_rfc3339()),
        decisions: facts.envelopes.iter().flat_map(decisions).collect(),
        attempt_id: consumed.map(|row| row.attempt_id.clone()),
        registration: receipt.map(stored_value).transpose()?,
        command_hash: facts.command_hash(),
        runner: facts.runner().map(|row| row.attempt_id.clone()),
        runs_at: match facts.stage() {
            Stage::Compensating => facts.compensator(),
            _ => facts.runner(),
        }
        .map(|row| row.by.clone()),
        round: match facts.stage() {
            Stage::Compensating | Stage::CompensationFailed => facts.compensation_round(),
            _ => facts.round(),
        },
        not_started: facts.steps.last().and_then(|row| match &row.step {
            Step::NotStarted { why } => Some(why.clone()),
            _ => None,
        }),
        exit_code: match word {
            Some((_, said)) => said,
            None => outcome.and_then(|outcome| outcome.exit_code),
        },
        resolved: word.map(|(good, _)| if good { "done" } else { "failed" }.to_owned()),
        stdout: outcome.map(|outcome| outcome.stdout.clone()),
        stderr: outcome.map(|outcome| outcome.stderr.clone()),
        truncated: outcome.is_some_and(|outcome| outcome.truncated),
        verified: verdict.as_ref().map(|(passed, _)| *passed),
        verify_detail: verdict.map(|(_, detail)| detail),
        compensation: compensation(facts),
        steps: facts.steps.iter().map(|row| step(facts, row)).collect(),
        requests: open_requests(now, facts),
        request_over: consumed.is_none() && foremost.is_some_and(|it| it.is_over(now)),
        ..EffectView::default()
    })
}

/// Those that wait for a word or have one, where that is more than the one that is shown.
fn open_requests(now: WallMs, facts: &Facts) -> Vec<EffectOpenRequest> {
    let open = facts.envelopes.iter().filter(|it| it.is_live(now));
    let open: Vec<_> = open
        .map(|envelope| EffectOpenRequest {
            request_id: envelope.row.envelope_id.clone(),
            requested_by: envelope.row.requested_by.clone(),
            requested_at: envelope.row.requested_at.to_rfc3339(),
            status: envelope.status(now).to_owned(),
        })
        .collect();
    if facts.consumed.is_some() || open.len() < 2 {
        return Vec::new();
    }
    open
}

/// An effect of which nothing can be told for certain but its key.
pub(super) fn changed(key: String) -> EffectView {
    EffectView {
        logical_request_key: key,
        state: "S2".to_owned(),
        state_means: "registered, and what is stored of it was changed after it was written; the key stays used".to_owned(),
        status: "changed".to_owned(),
        ..EffectView::default()
    }
}

/// A request that still waits for the broker of its mesh.
pub(super) fn waiting(waiting: &Waiting, body: EffectRequestBody) -> EffectView {
    EffectView {
        logical_request_key: body.key,
        // Whether the key is free is what nobody here can say.
        state: "unknown".to_owned(),
        state_means: "asked for: the broker that decides could not be asked yet, so nobody here knows whether the key is free".to_owned(),
        status: "waiting_for_broker".to_owned(),
        operation: body.op,
        target: body.target,
        artifact_hash: body.artifact_hash.unwrap_or_default(),
        run: body.run.unwrap_or_default(),
        requested_by: Some(waiting.caller.clone()),
        requested_at: Some(waiting.since.to_rfc3339()),
        ..EffectView::default()
    }
}

fn stored_value(text: &str) -> Result<Value, Problem> {
    serde_json::from_str(text).map_err(|error| {
        let detail = format!("a stored receipt is not JSON: {error}");
        Problem::new(ErrorCode::Internal, detail)
    })
}

fn verdict(facts: &Facts) -> Option<(bool, String)> {
    facts.steps.iter().find_map(|row| match &row.step {
        Step::Verified { passed, detail } => Some((*passed, detail.clone())),
        _ => None,
    })
}

fn compensation(facts: &Facts) -> Option<Value> {
    let begun = facts.compensator()?;
    let outcome = facts.compensation_outcome();
    Some(json!({
        "attempt_id": begun.attempt_id,
        "by": begun.by,
        "begun_at": begun.at.to_rfc3339(),
        "done": facts.stage() == Stage::Compensated,
        "exit_code": outcome.and_then(|outcome| outcome.exit_code),
        "stdout": outcome.map(|outcome| outcome.stdout.as_str()),
        "stderr": outcome.map(|outcome| outcome.stderr.as_str()),
        "truncated": outcome.is_some_and(|outcome| outcome.truncated),
    }))
}

fn decisions(envelope: &Envelope) -> Vec<EffectDecision> {
    let said = envelope.decisions.iter().map(|decision| EffectDecision {
        request_id: decision.envelope_id.clone(),
        ruling: decision.word().to_owned(),
        by: decision.by.clone(),
        at: decision.at.to_rfc3339(),
        purpose: decision
            .grant
            .map(|grant| grant.purpose.as_str().to_owned()),
        expires_at: decision.grant.map(|grant| grant.expires_at.to_rfc3339()),
    });
    said.collect()
}

pub(super) fn step(facts: &Facts, row: &StepRow) -> EffectStep {
    let mut before = facts
        .steps
        .iter()
        .take_while(|other| !std::ptr::eq(*other, row));
    // From there on a word is about what makes up for it; that it was run stands.
    let is_making_up = before.any(|row| matches!(row.step, Step::Compensating));
    let ended = |outcome: &Outcome| match outcome.exit_code {
        Some(code) => format!("exit code {code}"),
        None => "no exit code".to_owned(),
    };
    EffectStep {
        step: match &row.step {
            // Its end is told as what it was.
            Step::Compensated { outcome } if !outcome.is_good() => "compensation_failed",
            step => step.kind(),
        }
        .to_owned(),
        attempt_id: row.attempt_id.clone(),
        by: row.by.clone(),
        at: row.at.to_rfc3339(),
        detail: match &row.step {
            Step::Started { .. } | Step::Compensating => String::new(),
            Step::NotStarted { why } => format!("nothing ran: {why}"),
            Step::Finished { outcome } | Step::Compensated { outcome } => ended(outcome),
            Step::Resolved {
                again: true, note, ..
            } if is_making_up => format!("what makes up for it may run again; {note}"),
            Step::Resolved {
                again: true, note, ..
            } => {
                format!("did not happen, may run again; {note}")
            }
            Step::Resolved {
                failed: true,
                exit_code,
                note,
                ..
            } => match exit_code {
                Some(code) => format!("a person says that it failed with exit code {code}; {note}"),
                None => format!("a person says that it failed; {note}"),
            },
            Step::Resolved { note, .. } => format!("a person says that it happened; {note}"),
            Step::Verified {
                passed: true,
                detail,
            } => format!("passed; {detail}"),
            Step::Verified {
                passed: false,
                detail,
            } => format!("failed; {detail}"),
        },
    }
}
