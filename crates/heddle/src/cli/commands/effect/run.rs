//! `heddle effect run`: registers, takes the run, runs the command, tells how it ended, verifies.
//!
//! Every step can be the last one of this process. Whoever comes next finds a key that was never consumed
//! (and registers), one whose run nobody took (and takes it), one whose outcome is unknown (and says so),
//! or one that ended (and prints what was stored).

use std::cell::Cell;
use std::time::Duration;

use clap::Args as ClapArgs;
use heddle_core::error_code::ErrorCode;
use heddle_wire::broker::EffectCall;
use heddle_wire::client::{Client, ClientError};
use heddle_wire::ipc::{
    EffectEndBody, EffectRegisterBody, EffectResolveBody, EffectStartBody, EffectVerifyPlan,
    EffectView,
};
use serde_json::json;

use super::answer::{finish, is_left, named, not_started, told_as, verifier, with_answer};
use super::check_url::{self, Url};
use super::record::Record;
use super::report::{self, Untold};
use super::verify::{self, Checks, Verdict};
use super::{EffectArgs, Resolve, command_hash, lock, process};
use crate::cli::error::exit;
use crate::cli::span::parse_seconds;
use crate::cli::{CliError, Context};

const POLL: Duration = Duration::from_millis(100);
const POLLS_PER_SECOND: u64 = 10;
/// How long whose it is may take to begin what they have just registered, before somebody else is refused.
const GRACE_POLLS: u64 = 5 * POLLS_PER_SECOND;

#[derive(Debug, ClapArgs)]
pub(super) struct RunArgs {
    #[command(flatten)]
    effect: EffectArgs,
    /// The nonce of the approval
    #[arg(long)]
    nonce: Option<String>,
    /// The attempt that this is, where the caller counts them
    #[arg(long)]
    attempt: Option<String>,
    /// A shell command that succeeds if the effect is as it should be (by default the exit code decides)
    #[arg(long, value_name = "CMD", conflicts_with = "verify_later")]
    verify: Option<String>,
    /// A URL that answers with 2xx if the effect is as it should be; http:// on this machine only
    #[arg(long, value_name = "URL", value_parser = check_url::parse, conflicts_with = "verify_later")]
    verify_url: Option<Url>,
    /// How long the --verify command may run [default: 10m], and the URL is asked again [default: 30s]
    #[arg(long, value_parser = parse_seconds)]
    verify_timeout: Option<u64>,
    /// Leave the verdict to `heddle effect verify`
    #[arg(long)]
    verify_later: bool,
    /// A person's word about a run whose outcome is unknown
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "again", value_name = "WORD")]
    resolve: Option<Resolve>,
    /// With --resolve=failed: the exit code of the command, where it is known
    #[arg(
        long,
        value_name = "CODE",
        requires = "resolve",
        allow_negative_numbers = true
    )]
    exit_code: Option<i32>,
    /// With --resolve: it was run in another home, and nothing can be running there any more
    #[arg(long, requires = "resolve")]
    force: bool,
    /// How long to wait for another process that runs it
    #[arg(long, default_value = "10m", value_parser = parse_seconds)]
    wait: u64,
    /// The command, behind --
    #[arg(last = true, required_unless_present = "resolve")]
    command: Vec<String>,
}

pub(super) fn run(context: &Context, args: &RunArgs) -> Result<(), CliError> {
    let run = Run {
        context,
        args,
        client: context.client(),
        record: Record::open(context),
        judges_not: Cell::new(false),
    };
    match run.to_the_end() {
        Ok(view) => {
            let own = command_hash(&args.command);
            finish(context, &view, &run.record, (args.verify_later, own))
        }
        Err(error) => Err(with_answer(error)),
    }
}

struct Run<'a> {
    context: &'a Context,
    args: &'a RunArgs,
    client: Client,
    record: Record,
    /// Its verdict is somebody else's to give, as we were told.
    judges_not: Cell<bool>,
}

impl Run<'_> {
    fn to_the_end(&self) -> Result<EffectView, CliError> {
        let artifact_hash = self.args.effect.artifact_hash()?;
        if let Some(word) = self.args.resolve {
            self.resolve(word)?;
        }
        self.refuse_what_cannot_start()?;
        let first = self.register(artifact_hash)?;
        let (mut view, mut has_run) = (first.clone(), false);
        let told = |view, has_run| if has_run { view } else { told_as(view, &first) };
        let mut polls_left = self.args.wait.saturating_mul(POLLS_PER_SECOND);
        let (mut refused, mut grace) = (None, polls_left.min(GRACE_POLLS));
        loop {
            let next = match view.status.as_str() {
                "registered" if self.args.command.is_empty() => return Ok(view),
                // Not ours to begin; whose it is may be about to.
                "registered" if refused.is_some() => None,
                "registered" => match self.take_and_run(&view) {
                    Err(error) if error.is(ErrorCode::ApprovalRefused) => {
                        refused = Some(error);
                        None
                    }
                    ran => {
                        let ran = ran?;
                        has_run |= ran.is_some();
                        ran
                    }
                },
                "finished" if self.is_left(&view) => return Ok(told(view, has_run)),
                "finished" if self.judges_not.get() => None,
                "finished" => self.verify(&view)?,
                "running" => None,
                _ => return Ok(told(view, has_run)),
            };
            if let Some(next) = next {
                view = next;
                continue;
            }
            if view.status == "registered"
                && let Some(error) = refused.take_if(|_| grace == 0)
            {
                return Err(error);
            }
            grace = grace.saturating_sub(1);
            // Somebody else is at it.
            if polls_left == 0 {
                return Ok(told(view, has_run));
            }
            polls_left -= 1;
            std::thread::sleep(POLL);
            view = self.status()?;
        }
    }

    fn resolve(&self, word: Resolve) -> Result<(), CliError> {
        let is_wrong = match (word, self.args.exit_code) {
            (Resolve::Failed, code) => code == Some(0),
            (_, code) => code.is_some(),
        };
        if is_wrong {
            let sentence = "--exit-code is how a command failed: not 0, and with --resolve=failed";
            return Err(CliError::new(exit::USAGE, sentence)
                .next("Say --resolve=done for one that went well; nothing was recorded."));
        }
        let body = EffectResolveBody {
            key: self.args.effect.key.clone(),
            again: word == Resolve::Again,
            failed: word == Resolve::Failed,
            exit_code: self.args.exit_code,
            note: String::new(),
            force: self.args.force,
            round: None,
            mesh: self.context.mesh.clone(),
            agent: self.context.agent.clone(),
        };
        self.client.resolve_effect(&body)?;
        self.note(word.step(), json!({}));
        Ok(())
    }

    /// A step in the journal of the repository that we are in.
    fn note(&self, step: &str, mut details: serde_json::Value) {
        details["operation"] = json!(self.args.effect.op);
        details["target"] = json!(self.args.effect.target);
        details["agent"] = json!(self.context.agent);
        self.record.step(&self.args.effect.key, step, details);
    }

    /// A mistyped command must not use up its key. What was done before is answered all the same: then
    /// nothing is to be started.
    fn refuse_what_cannot_start(&self) -> Result<(), CliError> {
        let words = &self.args.command;
        let path = self.context.environment.path.as_deref();
        let Err(why) = process::can_start(words, path) else {
            return Ok(());
        };
        if words.is_empty() {
            return Ok(());
        }
        let known = self.client.effect_status(&self.query());
        match known {
            Ok(view) if view.state != "S0" && view.status != "registered" => Ok(()),
            Ok(view) => {
                let is_registered = view.status == "registered";
                let key = &view.logical_request_key;
                Err(not_started(key, &why, (exit::USAGE, is_registered)))
            }
            Err(_) => {
                let key = &self.args.effect.key;
                Err(not_started(key, &why, (exit::USAGE, false)))
            }
        }
    }

    /// After a lost answer the status is asked first: what is committed is not asked for again (C14).
    fn register(&self, artifact_hash: Option<String>) -> Result<EffectView, CliError> {
        let effect = &self.args.effect;
        let body = EffectRegisterBody {
            key: effect.key.clone(),
            op: effect.op.clone(),
            target: effect.target.clone(),
            artifact_hash,
            run: effect.run.clone(),
            nonce: self.args.nonce.clone(),
            request_id: None,
            attempt_id: self.args.attempt.clone(),
            verify: self.plan(),
            command_hash: command_hash(&self.args.command),
            mesh: self.context.mesh.clone(),
            agent: self.context.agent.clone(),
        };
        let answer = self.register_until_heard(&body)?;
        if !answer.duplicate {
            let details = json!({"attempt_id": answer.attempt_id, "request_id": answer.request_id});
            self.note("registered", details);
        }
        Ok(answer)
    }

    fn register_until_heard(&self, body: &EffectRegisterBody) -> Result<EffectView, CliError> {
        match self.client.register_effect(body) {
            Err(ClientError::Broken(_) | ClientError::Silent) => {
                if let Err(ClientError::Problem(_)) = self.client.effect_status(&self.query()) {
                    tracing::debug!("the registration was lost before its commit");
                }
                // The key decides: a second registration is the first one's answer.
                Ok(self.client.register_effect(body)?)
            }
            answer => Ok(answer?),
        }
    }

    fn query(&self) -> Vec<(&str, &str)> {
        let mut query = vec![("key", self.args.effect.key.as_str())];
        query.extend(self.context.scope());
        query
    }

    fn status(&self) -> Result<EffectView, CliError> {
        Ok(self.client.effect_status(&self.query())?)
    }

    /// IMPORTANT: the lock, then the start, then the command. None if somebody else has it.
    fn take_and_run(&self, view: &EffectView) -> Result<Option<EffectView>, CliError> {
        let Some(held) = lock::take(&view.lock)? else {
            return Ok(None);
        };
        let attempt_id = match (&view.attempt_id, view.duplicate) {
            (Some(own), false) => own.clone(),
            _ => format!("att_{}", Context::mint_id()),
        };
        let body = EffectStartBody {
            key: self.args.effect.key.clone(),
            attempt_id: attempt_id.clone(),
            command_hash: command_hash(&self.args.command),
            mesh: self.context.mesh.clone(),
            agent: self.context.agent.clone(),
        };
        let started = match self.client.start_effect(&body) {
            Ok(started) => started,
            Err(error) => return Err(self.start_not_heard(&attempt_id, error)),
        };
        if started.duplicate {
            return Ok(None);
        }
        self.note("started", json!({"attempt_id": attempt_id}));
        let echo = !self.context.json;
        let whose = (body.key.as_str(), attempt_id.as_str());
        let ended = process::run(&self.args.command, whose, echo, |pid| held.begun(pid));
        let why = ended.not_started.clone();
        let end = self.end(&attempt_id, ended);
        held.ended(&EffectCall::Finish(end.clone()));
        let finished = match report::finished(self.context, &held, &end) {
            Ok(finished) => finished,
            Err(untold) => return Err(self.untold(view, &end, untold)),
        };
        if let Some(why) = why {
            self.note(
                "not_started",
                json!({"attempt_id": attempt_id, "detail": why}),
            );
            return Err(not_started(&body.key, &why, (exit::FAILED, true)));
        }
        let details = json!({"attempt_id": attempt_id, "exit_code": finished.exit_code});
        self.note("finished", details);
        // Still under the lock: whoever waits finds it verified, not just finished.
        let mut verified = if self.is_left(&finished) {
            finished
        } else {
            // The verdict of who ran it counts; only where that cannot be told there is none.
            self.verdict(&finished)?.unwrap_or(finished)
        };
        drop(held);
        verified.duplicate = false;
        verified.code = None;
        Ok(Some(verified))
    }

    /// The run may have been taken, but nothing was started: whoever decides is told, as far as possible.
    fn start_not_heard(&self, attempt_id: &str, error: ClientError) -> CliError {
        let is_refused = match &error {
            ClientError::Problem(problem) => matches!(
                problem.known_code(),
                Some(ErrorCode::ApprovalRefused | ErrorCode::ReplayBindingMismatch)
            ),
            ClientError::Broken(_) | ClientError::Silent => false,
            _ => true,
        };
        if !is_refused {
            let body = self.end(
                attempt_id,
                process::not_started("the answer to the start was lost".to_owned()),
            );
            let _ = self.client.finish_effect(&body);
        }
        error.into()
    }

    fn end(&self, attempt_id: &str, ended: process::Ended) -> EffectEndBody {
        EffectEndBody {
            key: self.args.effect.key.clone(),
            attempt_id: attempt_id.to_owned(),
            exit_code: ended.exit_code,
            stdout: ended.stdout,
            stderr: ended.stderr,
            truncated: ended.truncated,
            not_started: ended.not_started,
            mesh: self.context.mesh.clone(),
            agent: self.context.agent.clone(),
        }
    }

    /// Nobody who decides has heard how it ended. Where that waits for them, so does the verdict.
    fn untold(&self, view: &EffectView, body: &EffectEndBody, untold: Untold) -> CliError {
        let ended = EffectView {
            logical_request_key: body.key.clone(),
            registration: view.registration.clone(),
            runner: Some(body.attempt_id.clone()),
            exit_code: body.exit_code,
            stdout: Some(body.stdout.clone()),
            ..EffectView::default()
        };
        if !untold.waits() || body.not_started.is_some() || self.is_left(&ended) {
            return report::of(untold, body, None);
        }
        let verdict = Verdict::of(self.checks(), &ended);
        if let Some(passed) = verdict.passed() {
            // It waits behind the end.
            let _ = verify::send(self.context, &body.key, (passed, &verdict));
        }
        report::of(untold, body, verdict.passed())
    }

    /// How it is to be verified, for those who come later.
    fn plan(&self) -> Option<EffectVerifyPlan> {
        let args = self.args;
        let is_said = args.verify.is_some() || args.verify_url.is_some() || args.verify_later;
        is_said.then(|| EffectVerifyPlan {
            command: args.verify.clone(),
            url: args.verify_url.as_ref().map(ToString::to_string),
            later: args.verify_later,
        })
    }

    /// Whether the verdict is somebody else's: we were told so, or it was registered with a verifier that we
    /// do not have. The exit code is not enough then, and another one's command is not ours to run.
    fn is_left(&self, view: &EffectView) -> bool {
        let has_own = self.args.verify.is_some() || self.args.verify_url.is_some();
        // A person who says that it failed has given the verdict.
        if view.resolved.as_deref() == Some("failed") {
            return false;
        }
        let registered = verifier(view);
        let is_other = registered.is_some() && registered != self.plan().and_then(|it| named(&it));
        self.args.verify_later || is_other || !has_own && is_left(view)
    }

    /// For a run that ended without a verdict. The lock keeps two from judging at once.
    fn verify(&self, view: &EffectView) -> Result<Option<EffectView>, CliError> {
        match lock::take(&view.lock)? {
            None => Ok(None),
            Some(_held) => self.verdict(view),
        }
    }

    fn checks(&self) -> Checks<'_> {
        Checks {
            command: self.args.verify.as_deref(),
            url: self.args.verify_url.as_ref(),
            seconds: self.args.verify_timeout,
        }
    }

    /// None where it is not ours to give: then whose it is gives it.
    fn verdict(&self, view: &EffectView) -> Result<Option<EffectView>, CliError> {
        let verdict = Verdict::of(self.checks(), view);
        let Some(passed) = verdict.passed() else {
            return Err(report::no_verdict(view, verdict.detail()));
        };
        let sent = verify::send(self.context, &self.args.effect.key, (passed, &verdict));
        let verified = match sent {
            // Somebody was faster, and thought otherwise: theirs stands.
            Err(error) if error.is(ErrorCode::EffectStepRefused) => {
                return self.status().map(Some);
            }
            Err(error) if error.is(ErrorCode::ApprovalRefused) => {
                self.judges_not.set(true);
                return Ok(None);
            }
            Err(error) => return Err(report::not_judged(error, view, passed)),
            Ok(verified) => verified,
        };
        if !verified.duplicate {
            let details = json!({
                "attempt_id": verified.attempt_id,
                "exit_code": verified.exit_code,
                "detail": verified.verify_detail,
            });
            self.note(&verified.status, details);
        }
        Ok(Some(verified))
    }
}
