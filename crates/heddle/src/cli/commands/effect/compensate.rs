//! `heddle effect compensate`: makes up for what failed its verification, once.

use clap::{Args as ClapArgs, ValueEnum as _};
use heddle_wire::broker::EffectCall;
use heddle_wire::ipc::{EffectCompensateBody, EffectEndBody, EffectResolveBody, EffectView};
use serde_json::json;

use super::record::Record;
use super::signals::Signals;
use super::{Resolve, lock, next_step, process, report, text};
use crate::cli::error::exit;
use crate::cli::spelled::quoted;
use crate::cli::text::printable;
use crate::cli::{CliError, Context, ui};

#[derive(Debug, ClapArgs)]
pub(super) struct CompensateArgs {
    /// The effect's key
    #[arg(allow_hyphen_values = true)]
    key: String,
    /// The nonce of `heddle effect approve --compensation`; who may approve needs none
    #[arg(long)]
    nonce: Option<String>,
    /// A person's word: `done`, it is mended (by hand, or by a compensation whose outcome was unknown); `again`, with a command
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "again", value_name = "WORD", value_parser = made_up)]
    resolve: Option<Resolve>,
    /// With --resolve: nothing runs in the other home any more that ran it, or here only what it was to leave running
    #[arg(long, requires = "resolve")]
    force: bool,
    /// The command that makes up for it, behind --
    #[arg(last = true)]
    command: Vec<String>,
}

impl CompensateArgs {
    pub(super) fn key(&self) -> &str {
        &self.key
    }
}

/// One that failed is not made up for: there is no more to say of it.
fn made_up(text: &str) -> Result<Resolve, String> {
    match Resolve::from_str(text, false) {
        Ok(Resolve::Failed) | Err(_) => Err("say `again` or `done`".to_owned()),
        Ok(word) => Ok(word),
    }
}

pub(super) fn compensate(context: &Context, args: &CompensateArgs) -> Result<(), CliError> {
    if args.command.is_empty() && args.resolve != Some(Resolve::Done) {
        return Err(no_command(&args.key));
    }
    let record = Record::open(context);
    if let Some(word) = args.resolve {
        let stands = stands(context, args)?;
        if word == Resolve::Done {
            begin_by_hand(context, args, &stands)?;
        }
        let view = resolve(context, args, (word, &stands))?;
        record.step(&args.key, word.step(), json!({"agent": context.agent}));
        if word == Resolve::Done {
            return context.print(&view, |view| text::status(context, view));
        }
    }
    let path = context.environment.path.as_deref();
    if let Err(why) = process::can_start(&args.command, path) {
        return Err(not_started(&args.key, &why));
    }
    let view = stands(context, args)?;
    match view.status.as_str() {
        "compensation_unknown" => return Err(unknown(&view)),
        "compensation_failed" => return Err(failed_before(&view)),
        _ => {}
    }
    // IMPORTANT: the lock, then the beginning, then the command: a lost compensation is known by it.
    let Some(held) = lock::take(&view.lock)? else {
        let sentence = format!("{}: somebody is at it now", args.key);
        let next = format!(
            "`heddle effect status {}` says when it has ended.",
            quoted(&args.key)
        );
        return Err(CliError::new(exit::CONFLICT, sentence).next(next));
    };
    let signals = Signals::catch(&args.key);
    signals.taking();
    let begun = context.client().compensate_effect(&asked(context, args))?;
    match (begun.duplicate, begun.status.as_str()) {
        (false, _) => {}
        (true, "compensation_failed") => return Err(failed_before(&begun)),
        (true, "compensating") => return Err(unknown(&begun)),
        (true, _) => {
            ui::note(&format!(
                "note: {} was made up for already; nothing was run",
                printable(&args.key)
            ));
            return context.print(&begun, |view| text::status(context, view));
        }
    }
    let attempt = begun.compensation.as_ref();
    let attempt = attempt.and_then(|compensation| compensation["attempt_id"].as_str());
    let attempt_id = attempt.unwrap_or_default().to_owned();
    let details = json!({"attempt_id": attempt_id, "agent": context.agent});
    record.step(&args.key, "compensating", details);
    make_up(context, args, (&record, &held, &signals), attempt_id)
}

fn no_command(key: &str) -> CliError {
    let sentence =
        format!("{key}: no command was given that makes up for it, and nothing was recorded");
    let key = quoted(key);
    let next = format!(
        "Say `heddle effect compensate {key} -- COMMAND`; or, when a person has mended it by hand, `heddle effect compensate {key} --resolve=done --agent PERSON`."
    );
    CliError::new(exit::USAGE, sentence).next(next)
}

/// What a person has mended by hand has begun with that word: nothing is run, and no exit code is made up. Whoever is
/// killed in between leaves a compensation of unknown outcome, and says the same again.
fn begin_by_hand(
    context: &Context,
    args: &CompensateArgs,
    view: &EffectView,
) -> Result<(), CliError> {
    if view.status == "verify_failed" {
        // A nonce lets somebody run a command. That it is mended is the word of who may approve, who needs none.
        let by_right = EffectCompensateBody {
            nonce: None,
            ..asked(context, args)
        };
        context.client().compensate_effect(&by_right)?;
    }
    Ok(())
}

/// What there is to make up for.
fn stands(context: &Context, args: &CompensateArgs) -> Result<EffectView, CliError> {
    let mut query = vec![("key", args.key.as_str())];
    query.extend(context.scope());
    Ok(context.client().effect_status(&query)?)
}

fn asked(context: &Context, args: &CompensateArgs) -> EffectCompensateBody {
    EffectCompensateBody {
        key: args.key.clone(),
        nonce: args.nonce.clone(),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    }
}

/// A compensation is known by its key; the word is about the effect that was found under it, and about no other one.
fn resolve(
    context: &Context,
    args: &CompensateArgs,
    (word, of): (Resolve, &EffectView),
) -> Result<EffectView, CliError> {
    let named = |text: &String| (!text.is_empty()).then(|| text.clone());
    let body = EffectResolveBody {
        key: args.key.clone(),
        op: Some(of.operation.clone()),
        target: Some(of.target.clone()),
        artifact_hash: named(&of.artifact_hash),
        run: named(&of.run),
        again: word == Resolve::Again,
        failed: word == Resolve::Failed,
        exit_code: None,
        note: String::new(),
        force: args.force,
        round: None,
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    Ok(context.client().resolve_effect(&body)?)
}

/// Runs the command and tells how it ended.
fn make_up(
    context: &Context,
    args: &CompensateArgs,
    (record, held, signals): (&Record, &lock::Held, &Signals),
    attempt_id: String,
) -> Result<(), CliError> {
    let whose = (args.key.as_str(), attempt_id.as_str());
    let ended = process::run(&args.command, whose, !context.json, |pid| {
        signals.begun(pid);
        held.begun(pid);
    });
    let (exit_code, why) = (ended.exit_code, ended.not_started.clone());
    let body = EffectEndBody {
        key: args.key.clone(),
        attempt_id: attempt_id.clone(),
        exit_code,
        stdout: ended.stdout,
        stderr: ended.stderr,
        truncated: ended.truncated,
        not_started: ended.not_started,
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    held.ended(&EffectCall::Compensated(body.clone()));
    signals.kept();
    let done = report::compensated(context, held, &body)?;
    let details = json!({"attempt_id": attempt_id, "exit_code": exit_code, "detail": why});
    if let Some(why) = why {
        record.step(&args.key, "not_started", details);
        return Err(not_started(&args.key, &why));
    }
    record.step(&args.key, &done.status, details);
    if exit_code == Some(0) {
        return context.print(&done, |view| text::status(context, view));
    }
    let words = format!("the command that makes up for it {}", ended_with(exit_code));
    Err(failed(&done, &words))
}

fn ended_with(exit_code: Option<i32>) -> String {
    exit_code.map_or("was ended by a signal".to_owned(), |code| {
        format!("failed with exit code {code}")
    })
}

/// It is not made up for, and nothing more happens without a person's word.
fn failed(view: &EffectView, words: &str) -> CliError {
    let key = &view.logical_request_key;
    let next = format!(
        "Look at the target. Then a person{} says {}.",
        next_step::who(view),
        next_step::resolve_make_up(view)
    );
    CliError::new(
        exit::FAILED,
        format!("{key}: {words}; it is not made up for"),
    )
    .next(next)
    .answer(serde_json::to_value(view).unwrap_or_default())
}

pub(super) fn failed_before(view: &EffectView) -> CliError {
    let made = view.compensation.as_ref();
    let code = made.and_then(|made| made["exit_code"].as_i64());
    let ended = code.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
    let words = format!("a command was to make up for it and failed with {ended}, nothing was run");
    failed(view, &words)
}

fn not_started(key: &str, why: &str) -> CliError {
    let sentence = format!(
        "{key}: the command that makes up for it could not be started ({why}); nothing ran"
    );
    CliError::new(exit::USAGE, sentence)
        .next("Correct the command behind -- and run it again.")
        .answer(json!({"logical_request_key": key, "status": "not_started", "detail": why}))
}

pub(super) fn unknown(view: &EffectView) -> CliError {
    let key = &view.logical_request_key;
    let sentence =
        format!("{key}: a compensation began, and nobody knows how it ended; it was not run again");
    let next = format!(
        "Look at the target. Then a person{} says {}.",
        next_step::who(view),
        next_step::resolve_make_up(view)
    );
    CliError::new(exit::CONFLICT, sentence)
        .next(next)
        .answer(serde_json::to_value(view).unwrap_or_default())
}
