//! `heddle effect verify`, and the verdict at the end of a run.

use std::time::Duration;

use clap::{ArgGroup, Args as ClapArgs};
use heddle_wire::ipc::{EffectVerifyBody, EffectView};
use serde_json::json;

use super::check_url::{self, Url};
use super::record::Record;
use super::{next_step, process, text};
use crate::cli::error::exit;
use crate::cli::span::parse_seconds;
use crate::cli::spelled::quoted;
use crate::cli::{CliError, Context};
use crate::system::SystemClock;

/// Kept of what a verifier prints.
const DETAIL_CHARS_MAX: usize = 500;

pub(super) struct Verdict {
    /// None where a verifier did not end or answer: then nobody knows, and nothing is recorded.
    passed: Option<bool>,
    detail: String,
}

/// Who is asked whether an effect is as it should be.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Checks<'a> {
    pub(super) command: Option<&'a str>,
    pub(super) url: Option<&'a Url>,
    /// How long each of them has; by default the command ten minutes, the URL half a minute.
    pub(super) seconds: Option<u64>,
}

const COMMAND_SECONDS: u64 = 600;
const URL_SECONDS: u64 = 30;

impl Verdict {
    /// The verifiers', who must agree, or where there is none the exit code's. A person's word that it
    /// happened stands.
    pub(super) fn of(checks: Checks<'_>, view: &EffectView) -> Self {
        if view.resolved.as_deref() == Some("failed") {
            let code = view.exit_code.map(|code| format!(" with exit code {code}"));
            let said = format!("a person says that it failed{}", code.unwrap_or_default());
            return Self::new(false, &said);
        }
        let command = checks.command.map(|command| {
            let seconds = checks.seconds.unwrap_or(COMMAND_SECONDS);
            Self::by(command, view, seconds)
        });
        let url = checks.url.map(|url| {
            let within = Duration::from_secs(checks.seconds.unwrap_or(URL_SECONDS));
            let (passed, said) = check_url::check(url, within, &SystemClock::start());
            let verdict = Self::new(passed == Some(true), &format!("the URL {said}"));
            Self { passed, ..verdict }
        });
        match (command, url) {
            (Some(command), Some(url)) => {
                let detail = format!("{}\n{}", command.detail, url.detail);
                let passed = match (command.passed, url.passed) {
                    // One who says no is enough, whatever the other would have said.
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                };
                Self { passed, detail }
            }
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => match (view.exit_code, &view.stdout) {
                (Some(0), _) => Self::new(true, "exit code 0"),
                (Some(code), _) => Self::new(false, &format!("exit code {code}")),
                (None, Some(_)) => Self::new(false, "ended by a signal"),
                (None, None) => Self::new(true, "a person says that it happened and went well"),
            },
        }
    }

    fn by(command: &str, view: &EffectView, seconds: u64) -> Self {
        let attempt = view.runner.as_deref().unwrap_or_default();
        let whose = (view.logical_request_key.as_str(), attempt);
        let (ended, is_over) = match process::shell_within(command, whose, seconds) {
            Ok(ended) => (ended, true),
            Err(timed_out) => (timed_out.so_far, false),
        };
        let printed: String = format!("{}{}", ended.stdout, ended.stderr)
            .chars()
            .take(DETAIL_CHARS_MAX)
            .collect();
        let by = match ended.exit_code {
            _ if !is_over => {
                format!("{command}: did not end within {seconds} s, and was ended")
            }
            Some(code) => format!("{command}: exit code {code}"),
            None => format!("{command}: ended by a signal"),
        };
        let detail = format!("{by}\n{printed}");
        let verdict = Self::new(ended.exit_code == Some(0), detail.trim_end());
        Self {
            passed: verdict.passed.filter(|_| is_over),
            ..verdict
        }
    }

    pub(super) fn passed(&self) -> Option<bool> {
        self.passed
    }

    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    fn new(passed: bool, detail: &str) -> Self {
        let detail = detail.chars().take(2 * DETAIL_CHARS_MAX).collect();
        Self {
            passed: Some(passed),
            detail,
        }
    }
}

pub(super) fn send(
    context: &Context,
    key: &str,
    (passed, verdict): (bool, &Verdict),
) -> Result<EffectView, CliError> {
    let body = EffectVerifyBody {
        key: key.to_owned(),
        passed,
        detail: verdict.detail.clone(),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    Ok(context.client().verify_effect(&body)?)
}

fn too_early(view: &EffectView) -> CliError {
    let key = &view.logical_request_key;
    let sentence = format!(
        "{key}: it is {}, and a verdict is given about what has ended; no verifier was asked",
        view.status
    );
    let next = if view.runs_elsewhere {
        next_step::elsewhere(view)
    } else {
        format!(
            "`heddle effect status {}` says when it has ended; nothing was recorded.",
            quoted(key)
        )
    };
    CliError::new(exit::CONFLICT, sentence)
        .next(next)
        .answer(serde_json::to_value(view).unwrap_or_default())
}

// A group, so that the usage names every way to say it.
#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("verdict").args(["pass", "fail", "command", "url"]).required(true).multiple(true))]
pub(super) struct VerifyArgs {
    /// The effect's key
    #[arg(allow_hyphen_values = true)]
    key: String,
    /// It is as it should be
    #[arg(long, conflicts_with_all = ["fail", "command", "url"])]
    pass: bool,
    /// It is not
    #[arg(long, conflicts_with_all = ["command", "url"])]
    fail: bool,
    /// A shell command that succeeds if it is
    #[arg(long, value_name = "CMD")]
    command: Option<String>,
    /// A URL that answers with 2xx if it is; http:// on this machine only
    #[arg(long, value_name = "URL", value_parser = check_url::parse)]
    url: Option<Url>,
    /// How long the command may run [default: 10m], and the URL is asked again [default: 30s]
    #[arg(long, value_parser = parse_seconds)]
    timeout: Option<u64>,
    /// Why
    #[arg(long, default_value = "")]
    note: String,
}

impl VerifyArgs {
    pub(super) fn key(&self) -> &str {
        &self.key
    }
}

pub(super) fn verify(context: &Context, args: &VerifyArgs) -> Result<(), CliError> {
    let key = &args.key;
    let mut query = vec![("key", key.as_str())];
    query.extend(context.scope());
    let view = context.client().effect_status(&query)?;
    if view.state == "S0" {
        let sentence = format!("{key}: nothing is registered under it ({})", view.status);
        return Err(CliError::new(exit::NOT_FOUND, sentence)
            .next("There is nothing to verify before it was run; no verifier was asked.")
            .answer(serde_json::to_value(&view).unwrap_or_default()));
    }
    if view.status == "unknown" {
        let sentence = format!(
            "{}: its command may have begun, and nobody knows how it ended; there is no verdict before somebody has said that",
            args.key
        );
        let (who, resolve) = (next_step::who(&view), next_step::resolve_run(&view));
        return Err(CliError::new(exit::CONFLICT, sentence)
            .next(format!(
                "Look at the target. Then a person{who} says {resolve}; nothing was recorded."
            ))
            .answer(serde_json::to_value(&view).unwrap_or_default()));
    }
    let asks = args.command.is_some() || args.url.is_some();
    // A verifier may look for minutes, and at what is not there yet: its word would be refused.
    if asks
        && matches!(
            view.status.as_str(),
            "registered" | "running" | "compensating"
        )
    {
        return Err(too_early(&view));
    }
    let verdict = if asks {
        let checks = Checks {
            command: args.command.as_deref(),
            url: args.url.as_ref(),
            seconds: args.timeout,
        };
        Verdict::of(checks, &view)
    } else {
        Verdict::new(args.pass, &args.note)
    };
    let Some(passed) = verdict.passed() else {
        return Err(CliError::new(exit::FAILED, format!("{key}: {}", verdict.detail()))
            .next("Nothing is recorded: nobody knows what it would have said. Try again with a longer --timeout, or say --pass or --fail.")
            .answer(serde_json::to_value(&view).unwrap_or_default()));
    };
    let view = send(context, &args.key, (passed, &verdict))?;
    if !view.duplicate {
        let details = json!({"detail": view.verify_detail, "agent": context.agent});
        Record::open(context).step(&args.key, &view.status, details);
    }
    if view.verified == Some(true) {
        return context.print(&view, |view| text::status(context, view));
    }
    let answer = serde_json::to_value(&view).unwrap_or_default();
    Err(
        CliError::new(exit::FAILED, format!("{key}: the verification failed"))
            .next(format!(
                "The key stays used; a person{} makes up for it with `{}`.",
                next_step::who(&view),
                next_step::make_up(&view)
            ))
            .answer(answer),
    )
}
