//! Tells how a command ended; and where nobody can be told, says all that is known of it.

use std::time::Duration;

use heddle_core::error_code::{ErrorCode, ErrorKind};
use heddle_wire::client::ClientError;
use heddle_wire::ipc::{EffectEndBody, EffectView};
use serde_json::json;

use super::lock::Held;
use super::next_step;
use crate::cli::error::exit;
use crate::cli::spelled::quoted;
use crate::cli::{CliError, Context};

/// The daemon may be restarting. What it does not hear now lies beside the lock.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(100);

/// An end that was not taken as such.
pub(super) struct Untold {
    error: ClientError,
    /// Whether it lies beside the lock.
    is_kept: bool,
}

impl Untold {
    /// The daemon keeps it for a broker that is away.
    pub(super) fn waits(&self) -> bool {
        match &self.error {
            ClientError::Problem(problem) => problem.extra.get("waiting") == Some(&json!(true)),
            _ => false,
        }
    }

    /// It waits for a broker that is connected, and has not answered in time.
    pub(super) fn was_asked(&self) -> bool {
        match &self.error {
            ClientError::Problem(problem) => {
                self.waits() && problem.extra.get("asked") == Some(&json!(true))
            }
            _ => false,
        }
    }

    /// Nobody has it but the file beside the lock.
    fn is_left_here(&self) -> bool {
        match &self.error {
            ClientError::Problem(problem) => {
                let code = problem.known_code();
                let may_pass = code.is_none_or(|code| {
                    code.kind() == ErrorKind::Busy || code == ErrorCode::StorageUnavailable
                });
                may_pass && !self.waits()
            }
            _ => true,
        }
    }
}

fn tell(
    held: &Held,
    send: impl Fn() -> Result<EffectView, ClientError>,
) -> Result<EffectView, Untold> {
    let mut pause = PAUSE;
    for tries_left in (0..TRIES).rev() {
        let untold = match send() {
            Ok(view) => {
                held.told();
                return Ok(view);
            }
            Err(error) => Untold {
                error,
                is_kept: held.keeps_end(),
            },
        };
        if !untold.is_left_here() {
            held.told();
            return Err(untold);
        }
        if tries_left == 0 {
            return Err(untold);
        }
        std::thread::sleep(pause);
        pause *= 2;
    }
    Err(Untold {
        error: ClientError::Silent,
        is_kept: held.keeps_end(),
    })
}

pub(super) fn finished(
    context: &Context,
    held: &Held,
    body: &EffectEndBody,
) -> Result<EffectView, Untold> {
    tell(held, || context.client().finish_effect(body))
}

pub(super) fn compensated(
    context: &Context,
    held: &Held,
    body: &EffectEndBody,
) -> Result<EffectView, CliError> {
    let told = tell(held, || context.client().compensated_effect(body));
    told.map_err(|untold| of(untold, body, None))
}

/// How a command ended, in words.
fn in_words(exit_code: Option<i32>) -> String {
    match exit_code {
        Some(code) => format!("ended with exit code {code}"),
        None => "was ended by a signal".to_owned(),
    }
}

/// The contract's shape of a run that ended and has no verdict on record.
struct Unjudged<'a> {
    view: &'a EffectView,
    status: &'static str,
    /// What was found here, and is recorded nowhere yet.
    verdict: Option<bool>,
    code: Option<String>,
    why: &'a str,
    /// Whether a verdict waits here for the broker.
    waits: bool,
}

impl Unjudged<'_> {
    fn error(self, exit_code: u8, but: &str, next: String) -> CliError {
        let view = self.view;
        let key = &view.logical_request_key;
        let answer = json!({
            "logical_request_key": key,
            "state": view.state,
            "status": self.status,
            "duplicate": view.duplicate,
            "attempt_id": view.attempt_id,
            "exit_code": view.exit_code,
            "stdout": view.stdout,
            "stderr": view.stderr,
            "truncated": view.truncated,
            "verified": null,
            "verdict": self.verdict,
            "code": self.code,
            "detail": self.why,
            "waiting": self.waits,
        });
        let ended = in_words(view.exit_code);
        let sentence = format!(
            "{key}: the command ran and {ended}, but {but}: {}",
            self.why
        );
        CliError::new(exit_code, sentence).next(next).answer(answer)
    }
}

/// The command ran, and whoever decides has heard how it ended; only the verdict did not arrive.
pub(super) fn not_judged(error: &CliError, view: &EffectView, passed: bool) -> CliError {
    let problem = error.problem.as_ref();
    let waits = problem.is_some_and(|it| it.extra.get("waiting") == Some(&json!(true)));
    let key = quoted(&view.logical_request_key);
    let unjudged = Unjudged {
        view,
        status: if waits {
            "waiting_for_broker"
        } else {
            "finished"
        },
        verdict: Some(passed),
        code: problem.map(|problem| problem.code.clone()),
        why: &error.message,
        waits,
    };
    let (code, next) = if waits {
        let next = format!(
            "The verdict is kept and told by itself when the broker is back; `heddle effect status {key}` says when."
        );
        (exit::UNREACHABLE, next)
    } else {
        let next = format!(
            "Exit code and output are kept with the effect: `heddle effect status {key}` shows them when the daemon is up (`heddle up`). The same call again verifies it and runs nothing."
        );
        (error.code, next)
    };
    unjudged.error(code, "its verdict is not recorded yet", next)
}

/// The command ran, and its verifier did not end: nobody knows whether it is as it should be, and nothing says so.
pub(super) fn no_verdict(view: &EffectView, why: &str) -> CliError {
    let unjudged = Unjudged {
        view,
        status: "finished",
        verdict: None,
        code: Some("verify_timeout".to_owned()),
        why,
        waits: false,
    };
    let next = format!(
        "The same call again, with a longer --verify-timeout, verifies it and runs nothing; or {}.",
        next_step::verdict(&view.logical_request_key)
    );
    unjudged.error(exit::CONFLICT, "it is not verified", next)
}

/// The contract's shape, with what the command did: it ran, whoever has heard of it.
pub(super) fn of(untold: Untold, body: &EffectEndBody, verified: Option<bool>) -> CliError {
    let (waits, is_left_here) = (untold.waits(), untold.is_left_here());
    let is_kept = untold.is_kept;
    let why = untold.error.to_string();
    let error = CliError::from(untold.error);
    let status = match (waits, is_left_here) {
        (true, _) => "waiting_for_broker",
        (_, true) => "not_told",
        _ => "refused",
    };
    let answer = json!({
        "logical_request_key": body.key,
        "status": status,
        "duplicate": false,
        "attempt_id": body.attempt_id,
        "exit_code": body.exit_code,
        "stdout": body.stdout,
        "stderr": body.stderr,
        "truncated": body.truncated,
        "not_started": body.not_started,
        "verified": verified,
        "code": error.problem.as_ref().map(|problem| problem.code.clone()),
        "detail": why,
        "waiting": waits || is_left_here,
    });
    let ended = match &body.not_started {
        Some(why) => format!("the command could not be started ({why})"),
        None => format!("the command ran and {}", in_words(body.exit_code)),
    };
    let (key, named) = (&body.key, quoted(&body.key));
    let (sentence, next) = if waits {
        (
            "the broker that decides could not be told",
            format!(
                "It is kept and told by itself when the broker is back; `heddle effect status {named}` says when."
            ),
        )
    } else if is_left_here && !is_kept {
        (
            "that could neither be told nor kept, and is known from here only",
            format!(
                "Note what it printed. Free room on the disk, start the daemon with `heddle up` and look at the target; `heddle effect status {named}` says how to tell what came of it."
            ),
        )
    } else if is_left_here {
        (
            "the daemon could not be told",
            format!(
                "It is kept beside the lock. Start the daemon with `heddle up`, which takes it by itself; then `heddle effect status {named}` shows it."
            ),
        )
    } else {
        (
            "that was not taken",
            format!("`heddle effect status {named}` says what stands."),
        )
    };
    let code = if waits || is_left_here {
        exit::UNREACHABLE
    } else {
        error.code
    };
    CliError::new(code, format!("{key}: {ended}, but {sentence}: {why}"))
        .next(next)
        .answer(answer)
}
