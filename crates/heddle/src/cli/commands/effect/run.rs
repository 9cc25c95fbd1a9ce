//! `heddle effect run`: registers, takes the run, runs the command, tells how it ended, verifies.
//!
//! Every step can be the last one of this process. Whoever comes next finds a key that was never consumed
//! (and registers), one whose run nobody took (and takes it), one whose outcome is unknown (and says so),
//! or one that ended (and prints what was stored).

use std::fs::File;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use heddle_wire::client::{Client, ClientError};
use heddle_wire::ipc::{
    EffectEndBody, EffectRegisterBody, EffectResolveBody, EffectStartBody, EffectView,
};
use serde_json::json;

use super::verify::{self, Verdict};
use super::{EffectArgs, lock, process, text};
use crate::cli::error::exit;
use crate::cli::span::parse_seconds;
use crate::cli::{CliError, Context};

const POLL: Duration = Duration::from_millis(100);
const POLLS_PER_SECOND: u64 = 10;
/// The daemon may be restarting; how a command ended is worth some patience.
const REPORT_TRIES: u32 = 8;
const REPORT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Resolve {
    /// It did not happen: run it again
    Again,
    /// It happened: do not run it
    Done,
}

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
    /// Leave the verdict to `heddle effect verify`
    #[arg(long)]
    verify_later: bool,
    /// A person's word about a run whose outcome is unknown
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "again", value_name = "WORD")]
    resolve: Option<Resolve>,
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
    };
    match run.to_the_end() {
        Ok(view) => finish(context, &view),
        Err(error) => Err(with_answer(error)),
    }
}

struct Run<'a> {
    context: &'a Context,
    args: &'a RunArgs,
    client: Client,
}

impl Run<'_> {
    fn to_the_end(&self) -> Result<EffectView, CliError> {
        let artifact_hash = self.args.effect.artifact_hash()?;
        if let Some(word) = self.args.resolve {
            self.resolve(word)?;
        }
        let first = self.register(artifact_hash)?;
        let (mut view, mut has_run) = (first.clone(), false);
        let told = |view, has_run| if has_run { view } else { told_as(view, &first) };
        let mut polls_left = self.args.wait.saturating_mul(POLLS_PER_SECOND);
        loop {
            let next = match view.status.as_str() {
                "registered" if self.args.command.is_empty() => return Ok(view),
                "registered" => {
                    let ran = self.take_and_run(&view)?;
                    has_run |= ran.is_some();
                    ran
                }
                "finished" if self.args.verify_later => None,
                "finished" => self.verify(&view)?,
                "running" => None,
                _ => return Ok(told(view, has_run)),
            };
            if let Some(next) = next {
                view = next;
                continue;
            }
            // Somebody else is at it, or it is left to somebody else.
            if polls_left == 0 || view.status == "finished" && self.args.verify_later {
                return Ok(told(view, has_run));
            }
            polls_left -= 1;
            std::thread::sleep(POLL);
            view = self.status()?;
        }
    }

    fn resolve(&self, word: Resolve) -> Result<(), CliError> {
        let body = EffectResolveBody {
            key: self.args.effect.key.clone(),
            again: word == Resolve::Again,
            note: String::new(),
            mesh: self.context.mesh.clone(),
            agent: self.context.agent.clone(),
        };
        self.client.resolve_effect(&body)?;
        Ok(())
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
            mesh: self.context.mesh.clone(),
            agent: self.context.agent.clone(),
        };
        match self.client.register_effect(&body) {
            Err(ClientError::Broken(_) | ClientError::Silent) => {
                if let Err(ClientError::Problem(_)) = self.client.effect_status(&self.query()) {
                    tracing::debug!("the registration was lost before its commit");
                }
                // The key decides: a second registration is the first one's answer.
                Ok(self.client.register_effect(&body)?)
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
            mesh: self.context.mesh.clone(),
            agent: self.context.agent.clone(),
        };
        let started = self.client.start_effect(&body)?;
        if started.duplicate {
            return Ok(None);
        }
        let echo = !self.context.json;
        let ended = process::run(&self.args.command, &body.key, &attempt_id, echo);
        let finished = self.report(&attempt_id, ended)?;
        // Still under the lock: whoever waits finds it verified, not just finished.
        let mut verified = if self.args.verify_later {
            finished
        } else {
            self.verdict(&finished)?
        };
        drop(held);
        verified.duplicate = false;
        verified.code = None;
        Ok(Some(verified))
    }

    fn report(&self, attempt_id: &str, ended: process::Ended) -> Result<EffectView, CliError> {
        let exit_code = ended.exit_code;
        let body = EffectEndBody {
            key: self.args.effect.key.clone(),
            attempt_id: attempt_id.to_owned(),
            exit_code,
            stdout: ended.stdout,
            stderr: ended.stderr,
            truncated: ended.truncated,
            mesh: self.context.mesh.clone(),
            agent: self.context.agent.clone(),
        };
        let mut pause = REPORT_PAUSE;
        for _ in 1..REPORT_TRIES {
            match self.client.finish_effect(&body) {
                Err(ClientError::Problem(problem)) => {
                    return Err(ClientError::Problem(problem).into());
                }
                Err(_) => {
                    std::thread::sleep(pause);
                    pause *= 2;
                }
                Ok(view) => return Ok(view),
            }
        }
        self.client.finish_effect(&body).map_err(|error| {
            let ended = exit_code.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
            CliError::new(
                exit::UNREACHABLE,
                format!("the command ended with {ended}, but the daemon could not be told: {error}"),
            )
            .next("Start the daemon with `heddle up`; then say `heddle effect run --resolve=done` with the same options.")
        })
    }

    /// For a run that ended without a verdict. The lock keeps two from judging at once.
    fn verify(&self, view: &EffectView) -> Result<Option<EffectView>, CliError> {
        let held: Option<File> = lock::take(&view.lock)?;
        match held {
            None => Ok(None),
            Some(_held) => self.verdict(view).map(Some),
        }
    }

    fn verdict(&self, view: &EffectView) -> Result<EffectView, CliError> {
        let verdict = Verdict::of(self.args.verify.as_deref(), view);
        verify::send(self.context, &self.args.effect.key, &verdict)
    }
}

/// What others did is told as such, with the code of the first answer.
fn told_as(mut view: EffectView, first: &EffectView) -> EffectView {
    if first.duplicate {
        view.duplicate = true;
        view.code.clone_from(&first.code);
    }
    view
}

/// The contract's shape, and what is worth knowing beside it.
fn answer(view: &EffectView) -> serde_json::Value {
    json!({
        "logical_request_key": view.logical_request_key,
        "state": view.state,
        "status": view.status,
        "duplicate": view.duplicate,
        "attempt_id": view.attempt_id,
        "exit_code": view.exit_code,
        "stdout": view.stdout,
        "stderr": view.stderr,
        "truncated": view.truncated,
        "verified": view.verified,
        "verify_detail": view.verify_detail,
        "code": view.code,
        "request_id": view.request_id,
        "registration": view.registration,
    })
}

fn finish(context: &Context, view: &EffectView) -> Result<(), CliError> {
    let answer = answer(view);
    let key = &view.logical_request_key;
    let failed = |code, sentence: String, next: String| {
        Err(CliError::new(code, sentence)
            .next(next)
            .answer(answer.clone()))
    };
    match view.status.as_str() {
        "closed" | "finished" | "registered" => context.print(&answer, |_| text::ran(view)),
        "unknown" => failed(
            exit::CONFLICT,
            format!("{key}: the command began, and nobody knows how it ended; it was not run again"),
            "Look at the target. Then say `heddle effect run --resolve=done` or `--resolve=again`, with the same options.".to_owned(),
        ),
        "running" => failed(
            exit::FAILED,
            format!("{key}: another process is still running it"),
            format!("`heddle effect status {key}` says when it has ended."),
        ),
        status => failed(
            exit::FAILED,
            format!("{key}: {status}: {}", view.verify_detail.as_deref().unwrap_or_default()),
            format!("It is not run again. `heddle effect status {key}` shows what it printed, `heddle effect compensate {key}` makes up for it."),
        ),
    }
}

/// A refusal in the contract's shape, with the daemon's words beside it.
fn with_answer(error: CliError) -> CliError {
    let Some(problem) = &error.problem else {
        return error;
    };
    let mut answer = serde_json::to_value(problem).unwrap_or_default();
    answer["http_status"] = answer["status"].clone();
    answer["status"] = json!("refused");
    answer["duplicate"] = json!(false);
    for absent in ["attempt_id", "exit_code", "stdout"] {
        answer[absent] = json!(null);
    }
    error.answer(answer)
}
