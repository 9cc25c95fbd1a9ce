//! `heddle effect run`: registers, takes the run, runs the command, tells how it ended, verifies.
//!
//! Every step can be the last one of this process. Whoever comes next finds a key that was never consumed
//! (and registers), one whose run nobody took (and takes it), one whose outcome is unknown (and says so),
//! or one that ended (and prints what was stored).

mod given_back;
mod register;
mod verdict;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use clap::Args as ClapArgs;
use heddle_core::error_code::ErrorCode;
use heddle_wire::broker::EffectCall;
use heddle_wire::client::{Client, ClientError};
use heddle_wire::ipc::{EffectEndBody, EffectResolveBody, EffectStartBody, EffectView};
use heddle_wire::problem::Problem;
use serde_json::json;

use super::answer::{finish, not_started, ran_before, told_as, with_answer};
use super::check_url::{self, Url};
use super::patience::{ASKS_MAX, Pace, until_heard};
use super::record::Record;
use super::report::{self, Untold};
use super::signals::Signals;
use super::verify::{self, Verdict};
use super::{EffectArgs, Resolve, command_hash, lock, process};
use crate::cli::error::exit;
use crate::cli::span::parse_seconds;
use crate::cli::{CliError, Context};

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
    /// With --resolve: nothing runs in the other home any more that ran it, or here only what it was to leave running
    #[arg(long, requires = "resolve")]
    force: bool,
    /// How long to wait for another process that runs it
    #[arg(long, default_value = "10m", value_parser = parse_seconds)]
    wait: u64,
    /// The command, behind --
    #[arg(last = true, required_unless_present = "resolve")]
    command: Vec<String>,
}

impl RunArgs {
    pub(super) fn key(&self) -> &str {
        &self.effect.key
    }
}

pub(super) fn run(context: &Context, args: &RunArgs) -> Result<(), CliError> {
    let run = Run {
        context,
        args,
        client: context.client(),
        record: Record::open(context),
        judges_not: Cell::new(false),
        lost: RefCell::default(),
        given_back: Cell::new(0),
        signals: Signals::catch(&args.effect.key),
    };
    match run.to_the_end() {
        Ok(view) => {
            let own = command_hash(&args.command);
            finish(context, &view, &run.record, (args.verify_later, own))
        }
        Err(error) => Err(with_answer(args.effect.named_in(error))),
    }
}

struct Run<'a> {
    context: &'a Context,
    args: &'a RunArgs,
    client: Client,
    record: Record,
    /// Its verdict is somebody else's to give, as we were told.
    judges_not: Cell<bool>,
    /// The attempts whose start was sent and not answered: nothing was ever begun by them, and never will be.
    lost: RefCell<Vec<String>>,
    /// How often one of them was found to have the run.
    given_back: Cell<u32>,
    signals: Signals,
}

/// Between two looks whether what waits here was heard.
const HEARD_PAUSE: Duration = Duration::from_secs(1);

/// What came of taking a run.
enum Taken {
    /// By us, to its end.
    Ran(Box<EffectView>),
    /// Nobody knows whether it was taken, nothing ran, and who decides was told so: as it stands now.
    GivenBack(Box<EffectView>),
    BySomebody,
}

impl Run<'_> {
    fn to_the_end(&self) -> Result<EffectView, CliError> {
        let artifact_hash = self.args.effect.artifact_hash()?;
        if let Some(word) = self.args.resolve {
            self.resolve(word, artifact_hash.clone())?;
        }
        self.refuse_what_cannot_start()?;
        let first = self.register(artifact_hash)?;
        let (mut view, mut has_run) = (first.clone(), false);
        let told = |view, has_run| if has_run { view } else { told_as(view, &first) };
        // What is found begun or ended is another's, whatever becomes of this call.
        let failed = |error, view: &EffectView, has_run| {
            if has_run || view.status == "registered" {
                error
            } else {
                ran_before(self.args.effect.named_in(error))
            }
        };
        let (mut pace, mut refused) = (Pace::new(self.args.wait), None);
        loop {
            let next = match view.status.as_str() {
                // A word without a command: as it stands now, which nobody has done before.
                "registered" if self.args.command.is_empty() => return self.status(),
                // Not ours to begin; whose it is may be about to.
                "registered" if refused.is_some() => None,
                "registered" => match self.take_and_run(&view) {
                    Err(error) if error.is(ErrorCode::ApprovalRefused) => {
                        refused = Some(error);
                        None
                    }
                    taken => match taken? {
                        Taken::Ran(view) => {
                            has_run = true;
                            Some(*view)
                        }
                        Taken::GivenBack(view) => Some(*view),
                        Taken::BySomebody => None,
                    },
                },
                "finished" if self.is_left(&view) => return Ok(told(view, has_run)),
                "finished" if self.judges_not.get() => None,
                "finished" => {
                    let verified = self.verify(&view);
                    verified.map_err(|error| failed(error, &view, has_run))?
                }
                "running" | "unknown" if self.is_taken_late(&view) => Some(self.give_back(&view)?),
                "running" => None,
                _ => return Ok(told(view, has_run)),
            };
            if let Some(next) = next {
                view = next;
                continue;
            }
            if view.status == "registered"
                && let Some(error) = refused.take_if(|_| !pace.has_grace())
            {
                return Err(error);
            }
            // Somebody else is at it.
            let Some(pause) = pace.next() else {
                return Ok(told(view, has_run));
            };
            std::thread::sleep(pause);
            let now = self.status();
            view = now.map_err(|error| failed(error, &view, has_run))?;
        }
    }

    /// Names the whole effect: who decides refuses a word about another one than the key's.
    fn resolve(&self, word: Resolve, artifact_hash: Option<String>) -> Result<(), CliError> {
        let is_wrong = match (word, self.args.exit_code) {
            (Resolve::Failed, code) => code == Some(0),
            (_, code) => code.is_some(),
        };
        if is_wrong {
            let sentence = "--exit-code is how a command failed: not 0, and with --resolve=failed";
            return Err(CliError::new(exit::USAGE, sentence)
                .next("Say --resolve=done for one that went well; nothing was recorded."));
        }
        let effect = &self.args.effect;
        let body = EffectResolveBody {
            key: effect.key.clone(),
            op: Some(effect.op.clone()),
            target: Some(effect.target.clone()),
            artifact_hash,
            run: effect.run.clone(),
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

    fn query(&self) -> Vec<(&str, &str)> {
        let mut query = vec![("key", self.args.effect.key.as_str())];
        query.extend(self.context.scope());
        query
    }

    /// As who decides says. That a request waits here for them says nothing of what stands there.
    fn known(&self) -> Result<EffectView, ClientError> {
        let view = self.client.effect_status(&self.query())?;
        if view.status != "waiting_for_broker" {
            return Ok(view);
        }
        let why = "the broker that decides could not be asked, and a request waits here for it";
        let away = Problem::new(ErrorCode::NotConnected, why);
        Err(ClientError::Problem(Box::new(away)))
    }

    fn status(&self) -> Result<EffectView, CliError> {
        Ok(until_heard(|| self.known())?)
    }

    /// What stands, as soon as the broker has heard what waits here for it.
    fn status_when(&self, is_heard: impl Fn(&EffectView) -> bool) -> Option<EffectView> {
        for _ in 0..ASKS_MAX {
            match self.status() {
                Ok(view) if is_heard(&view) => return Some(view),
                Ok(_) => std::thread::sleep(HEARD_PAUSE),
                Err(_) => return None,
            }
        }
        None
    }

    /// IMPORTANT: the lock, then the start, then the command.
    fn take_and_run(&self, view: &EffectView) -> Result<Taken, CliError> {
        let Some(held) = lock::take(&view.lock)? else {
            return Ok(Taken::BySomebody);
        };
        let attempt_id = match (&view.attempt_id, view.duplicate) {
            (Some(own), false) if !self.is_lost(own) => own.clone(),
            _ => format!("att_{}", Context::mint_id()),
        };
        let body = EffectStartBody {
            key: self.args.effect.key.clone(),
            attempt_id: attempt_id.clone(),
            command_hash: command_hash(&self.args.command),
            mesh: self.context.mesh.clone(),
            agent: self.context.agent.clone(),
        };
        self.signals.taking();
        let started = match self.client.start_effect(&body) {
            Ok(started) => started,
            Err(error) => {
                let given_back = self.start_not_heard(&held, &attempt_id, error);
                self.signals.idle();
                return given_back;
            }
        };
        if started.duplicate {
            self.signals.idle();
            return Ok(Taken::BySomebody);
        }
        self.note("started", json!({"attempt_id": attempt_id}));
        let echo = !self.context.json;
        let whose = (body.key.as_str(), attempt_id.as_str());
        let ended = process::run(&self.args.command, whose, echo, |pid| {
            self.signals.begun(pid);
            held.begun(pid);
        });
        let why = ended.not_started.clone();
        let end = self.end(&attempt_id, ended);
        held.ended(&EffectCall::Finish(end.clone()));
        self.signals.kept();
        let finished = match report::finished(self.context, &held, &end) {
            Ok(finished) => finished,
            Err(untold) => match self.heard_at_last(&untold, &end) {
                Some(finished) => finished,
                None => return Err(self.untold(view, &end, untold)),
            },
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
        Ok(Taken::Ran(Box::new(verified)))
    }

    /// A broker that was asked and is slow hears of the end a little later: then there is nothing to wait for any more.
    fn heard_at_last(&self, untold: &Untold, end: &EffectEndBody) -> Option<EffectView> {
        if !untold.was_asked() || end.not_started.is_some() {
            return None;
        }
        let is_heard = |view: &EffectView| {
            let is_this = view.runner.as_ref() == Some(&end.attempt_id);
            is_this
                && matches!(
                    view.status.as_str(),
                    "finished" | "closed" | "verify_failed"
                )
        };
        self.status_when(is_heard)
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
}
