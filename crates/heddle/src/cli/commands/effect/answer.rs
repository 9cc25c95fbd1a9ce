//! What `heddle effect run` says at its end: the contract's shape, a sentence, the next step.

use heddle_wire::client::ClientError;
use heddle_wire::ipc::{EffectEndBody, EffectVerifyPlan, EffectView};
use serde::Deserialize as _;
use serde_json::json;

use super::process::OUTPUT_BYTES_MAX;
use super::record::Record;
use super::{compensate, next_step, text};
use crate::cli::error::exit;
use crate::cli::spelled::quoted;
use crate::cli::text::printable;
use crate::cli::{CliError, Context, ui};

/// Nothing ran, so nothing is lost: what to do, and the contract's shape.
pub(super) fn not_started(key: &str, why: &str, (code, is_registered): (u8, bool)) -> CliError {
    let answer = json!({
        "logical_request_key": key,
        "status": "not_started",
        "duplicate": false,
        "attempt_id": null,
        "exit_code": null,
        "stdout": null,
        "code": "not_started",
        "registered": is_registered,
        "detail": why,
    });
    // What is registered is this effect's: the key can be used for it, and for nothing else.
    let (stands, next) = if is_registered {
        (
            "the key is registered for this effect, which has not happened",
            "Correct the command behind -- and run it again with the same options: that goes on with the registration. The key is good for no other effect.",
        )
    } else {
        (
            "the key is not used up",
            "Correct the command behind -- and run it again with the same options; an approval that was given stands.",
        )
    };
    let sentence =
        format!("{key}: the command could not be started ({why}); nothing ran, and {stands}");
    CliError::new(code, sentence).next(next).answer(answer)
}

/// The registration was sent, and nobody could say what came of it: neither that it is kept nor that it is not.
pub(super) fn unanswered(key: &str, error: ClientError) -> CliError {
    let named = quoted(key);
    let why = error.to_string();
    // Who does not answer is the daemon itself, or the broker behind it.
    let when = match &error {
        ClientError::Problem(_) => "When `heddle status` says connected",
        _ => "When the daemon is up again (`heddle up`)",
    };
    let code = CliError::from(error).problem.map(|problem| problem.code);
    let answer = json!({
        "logical_request_key": key,
        "state": "unknown",
        "status": "unanswered",
        "duplicate": false,
        "attempt_id": null,
        "exit_code": null,
        "stdout": null,
        "code": code,
        "outcome": "unknown",
        "detail": why,
    });
    let sentence = format!(
        "{key}: the registration was sent and its answer is lost, and whether it is registered could not be learned since; nothing was run: {why}"
    );
    CliError::new(exit::UNREACHABLE, sentence)
        .next(format!(
            "{when}, `heddle effect status {named}` says what stands; or say the same call again: it goes on with what is registered, and runs the command at most once."
        ))
        .answer(answer)
}

/// The start was sent and its answer is lost, and nobody could be told since that nothing was begun by it.
pub(super) fn not_begun(body: &EffectEndBody, error: ClientError, is_kept: bool) -> CliError {
    let (key, named) = (&body.key, quoted(&body.key));
    let why = error.to_string();
    let code = CliError::from(error).problem.map(|problem| problem.code);
    let answer = json!({
        "logical_request_key": key,
        "state": "unknown",
        "status": "unanswered",
        "duplicate": false,
        "attempt_id": body.attempt_id,
        "exit_code": null,
        "stdout": null,
        "code": code,
        "outcome": "not_started",
        "detail": why,
    });
    let sentence = format!(
        "{key}: the start was sent and its answer is lost; the command was not begun, and nobody could be told so since: {why}"
    );
    let next = if is_kept {
        format!(
            "That is kept beside the lock, and the daemon takes it by itself when it is up (`heddle up`). Then say the same call again: it goes on with the registration, and runs the command at most once; `heddle effect status {named}` says what stands."
        )
    } else {
        format!(
            "That could not be written down, either. Start the daemon with `heddle up`; where `heddle effect status {named}` says `unknown`, this call has run nothing, and a person says the same again with `--resolve=again`."
        )
    };
    CliError::new(exit::UNREACHABLE, sentence)
        .next(next)
        .answer(answer)
}

/// What others did is told as such, with the code of the first answer. Who registered it and was overtaken has run
/// nothing, either.
pub(super) fn told_as(mut view: EffectView, first: &EffectView) -> EffectView {
    if first.state == "S4" {
        view.state.clone_from(&first.state);
        view.state_means.clone_from(&first.state_means);
    }
    if first.duplicate {
        view.duplicate = true;
        view.code.clone_from(&first.code);
    } else if view.exit_code.is_some() {
        view.duplicate = true;
        view.code = Some("REPLAY_DUPLICATE".to_owned());
    }
    view
}

/// The contract's shape, and what is worth knowing beside it.
fn answer(view: &EffectView, record: &Record, own: Option<&String>) -> serde_json::Value {
    let is_same = own.and_then(|own| Some(view.command_hash.as_ref()? == own));
    json!({
        "logical_request_key": view.logical_request_key,
        "state": view.state,
        "state_means": view.state_means,
        "status": view.status,
        "duplicate": view.duplicate,
        "attempt_id": view.attempt_id,
        "exit_code": view.exit_code,
        "resolved": view.resolved,
        "stdout": view.stdout,
        "stderr": view.stderr,
        "truncated": view.truncated,
        "truncated_after_bytes": view.truncated.then_some(OUTPUT_BYTES_MAX),
        "verified": view.verified,
        "verify_detail": view.verify_detail,
        "code": view.code,
        "request_id": view.request_id,
        "registration": view.registration,
        "runs_at": view.runs_at,
        "same_command": is_same,
        "journal": record.told(),
    })
}

/// Whether its verdict was left to somebody when it was registered.
pub(super) fn is_left(view: &EffectView) -> bool {
    plan(view)["later"] == true
}

/// The verifier that it was registered with, in words.
pub(super) fn verifier(view: &EffectView) -> Option<String> {
    let plan = EffectVerifyPlan::deserialize(plan(view)).ok()?;
    named(&plan)
}

/// The verifiers of a plan, in words.
pub(super) fn named(plan: &EffectVerifyPlan) -> Option<String> {
    let said = [("--verify", &plan.command), ("--verify-url", &plan.url)];
    let said: Vec<String> = said
        .iter()
        .filter_map(|(option, value)| Some(format!("{option} '{}'", value.as_ref()?)))
        .collect();
    (!said.is_empty()).then(|| said.join(" "))
}

fn plan(view: &EffectView) -> serde_json::Value {
    let registration = view.registration.as_ref();
    registration.map_or(json!(null), |receipt| receipt["verify"].clone())
}

/// What the command printed and a person has not seen, on standard error; and that it is not all.
fn show_streams(context: &Context, view: &EffectView, own: Option<&String>) {
    if context.json {
        return;
    }
    if view.duplicate
        && own.is_some()
        && view.command_hash.is_some()
        && view.command_hash.as_ref() != own
    {
        ui::note("note: the key belongs to another command; this one was not run");
    }
    if view.duplicate
        && let Some(stderr) = &view.stderr
    {
        let _ = ui::log_bytes(printable(stderr).as_bytes());
    }
    if view.truncated {
        ui::note(&format!("note: {}", text::cut()));
    }
}

/// What the command printed, byte for byte where a program reads it; what became of it stands apart from that.
fn show(context: &Context, view: &EffectView, answer: &serde_json::Value) -> Result<(), CliError> {
    if context.json {
        return ui::json(answer);
    }
    let printed = view.stdout.as_deref().unwrap_or_default();
    ui::value(printed)?;
    ui::verdict(
        &text::ran(view),
        !printed.is_empty() && !printed.ends_with('\n'),
    )
}

/// What helps where nobody knows how it ended. Whoever may say so in this home repeats the call; in another one it is a
/// command of theirs.
fn resolve(view: &EffectView) -> String {
    let who = next_step::who(view);
    if !next_step::is_decided_elsewhere(view) {
        return format!(
            "Look at the target. Then a person{who} repeats this call with `--resolve=done` (it went well), `--resolve=failed --exit-code CODE` (it did not) or `--resolve=again` (it did not happen), without --agent."
        );
    }
    let says = next_step::resolve_run(view);
    format!("Look at the target. Then a person{who} says {says}.")
}

/// `later` is what the caller said of its verdict, `own` the digest of its command.
pub(super) fn finish(
    context: &Context,
    view: &EffectView,
    record: &Record,
    (later, own): (bool, Option<String>),
) -> Result<(), CliError> {
    show_streams(context, view, own.as_ref());
    let answer = answer(view, record, own.as_ref());
    let key = &view.logical_request_key;
    let named = quoted(key);
    let failed = |code, sentence: String, next: String| {
        Err(CliError::new(code, sentence)
            .next(next)
            .answer(answer.clone()))
    };
    match view.status.as_str() {
        "closed" | "registered" => show(context, view, &answer),
        "finished" if later || is_left(view) => show(context, view, &answer),
        "finished" => {
            let (sentence, next) = unverified(view, &named);
            failed(exit::CONFLICT, sentence, next)
        }
        "unknown" => failed(
            exit::CONFLICT,
            format!(
                "{key}: the command may have begun, and nobody knows how it ended; it was not run again"
            ),
            resolve(view),
        ),
        "running" => failed(
            exit::CONFLICT,
            running(key, view),
            until_ended(view, &named),
        ),
        "compensated" => failed(
            exit::FAILED,
            format!("{key}: it failed its verification, and was made up for"),
            format!(
                "It is not run again; `heddle effect status {named}` tells the rest. A new key makes a new effect."
            ),
        ),
        "compensating" => failed(
            exit::CONFLICT,
            format!(
                "{key}: it failed its verification, and a command is making up for it now; nothing was run"
            ),
            until_ended(view, &named),
        ),
        // As the verb says it that makes up for things; the same answer as of every other run.
        "compensation_failed" => Err(compensate::failed_before(view).answer(answer)),
        "compensation_unknown" => Err(compensate::unknown(view).answer(answer)),
        status => failed(
            exit::FAILED,
            format!(
                "{key}: {status}: {}",
                view.verify_detail.as_deref().unwrap_or_default()
            ),
            format!(
                "It is not run again. `heddle effect status {named}` shows what it printed; a person{} makes up for it with `{}`.",
                next_step::who(view),
                next_step::make_up(view)
            ),
        ),
    }
}

/// Why what has ended has no verdict, and who gives it.
fn unverified(view: &EffectView, named: &str) -> (String, String) {
    let key = &view.logical_request_key;
    match verifier(view) {
        Some(verifier) => (
            format!(
                "{key}: its command ended, and {verifier}, which it was registered with, has given no verdict; it is not verified"
            ),
            format!(
                "{} says the same again with that verifier, or gives the verdict; so may who may approve it: {}.",
                runner(view),
                next_step::verdict(key)
            ),
        ),
        None => (
            format!("{key}: its command ended, and its verdict is not there yet"),
            format!(
                "{} gives it, or who may approve it: {}. `heddle effect status {named}` says what came of it.",
                runner(view),
                next_step::verdict(key)
            ),
        ),
    }
}

/// Who has run it.
fn runner(view: &EffectView) -> &str {
    view.runs_at.as_deref().unwrap_or("Who has run it")
}

/// A lock of this home says that it runs; of another home's only its word is known.
fn running(key: &str, view: &EffectView) -> String {
    match view.runs_at.as_deref().filter(|_| view.runs_elsewhere) {
        Some(at) => format!("{key}: {at} began it and has not told yet how it ended"),
        None => format!("{key}: another process is still running it"),
    }
}

/// Where its end is told; of a run in another home also what helps when it never is.
fn until_ended(view: &EffectView, named: &str) -> String {
    let told = format!("`heddle effect status {named}` says when it has ended");
    if !view.runs_elsewhere {
        return format!("{told}.");
    }
    format!("{told}; {}.", next_step::elsewhere(view))
}

/// A refusal in the contract's shape, with the daemon's words beside it.
pub(super) fn with_answer(error: CliError) -> CliError {
    let Some(problem) = error.problem.as_ref().filter(|_| error.answer.is_none()) else {
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

/// An error of a call that found the command begun before, and ran nothing itself.
pub(super) fn ran_before(error: CliError) -> CliError {
    let mut error = with_answer(error);
    if let Some(answer) = &mut error.answer {
        answer["duplicate"] = json!(true);
    }
    error
}

#[cfg(test)]
mod tests {
    use heddle_core::error_code::ErrorCode;
    use heddle_wire::problem::Problem;

    use super::*;

    #[test]
    fn a_lost_answer_is_no_word_about_what_is_kept_and_names_who_has_to_be_asked() {
        let away = Problem::new(ErrorCode::NotConnected, "no connection");
        for (error, when) in [
            (ClientError::Problem(Box::new(away)), "says connected"),
            (ClientError::Silent, "`heddle up`"),
        ] {
            let told = unanswered("it's", error);
            assert_eq!(told.code, exit::UNREACHABLE);
            let next = told.next.unwrap();
            assert!(next.contains(when), "{next}");
            assert!(next.contains(r"`heddle effect status 'it'\''s'`"), "{next}");
            let answer = told.answer.unwrap();
            assert_eq!(
                (&answer["status"], &answer["outcome"]),
                (&json!("unanswered"), &json!("unknown"))
            );
            assert!(!told.message.contains("kept"), "{}", told.message);
        }
    }
}
