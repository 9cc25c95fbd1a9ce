//! What comes next for an effect, and whose it is to say: the commands that help, as they can be pasted where they are to be
//! run.

use heddle_core::approvers;
use heddle_core::shell::options;
use heddle_wire::ipc::EffectView;

use super::text;
use crate::cli::spelled::quoted;

/// How a person gives a verdict, as it can be pasted.
pub(super) fn verdict(key: &str) -> String {
    let key = quoted(key);
    format!(
        "look at the target; then `heddle effect verify {key} --pass`, or `heddle effect verify {key} --fail`"
    )
}

/// A command that is for who may approve it, and not for who is told of it.
pub(super) fn persons(view: &EffectView, command: &str) -> String {
    approvers::run_by(&view.approvers, &view.mesh_id, command)
}

/// ` who may approve it (carol or @bob)`.
pub(super) fn who(view: &EffectView) -> String {
    approvers::in_words(&view.approvers, &view.mesh_id)
}

/// How what failed its verification is made up for.
pub(super) fn make_up(view: &EffectView) -> String {
    let key = quoted(&view.logical_request_key);
    persons(view, &format!("heddle effect compensate {key} -- COMMAND"))
}

/// Whether it is decided about in another home than the one that has run it: whoever may say something about it is there, and
/// is known by a name of that home only.
pub(super) fn is_decided_elsewhere(view: &EffectView) -> bool {
    let is_of_guest = view
        .runs_at
        .as_deref()
        .is_some_and(|at| at.starts_with('@'));
    is_of_guest && approvers::here(&view.approvers).is_none()
}

/// Who is in another home than what was run has to say as well that nothing can be running there. What has ended runs nowhere.
fn force(view: &EffectView) -> &'static str {
    let is_ended = view.status == "compensation_failed";
    if !is_ended && (view.runs_elsewhere || is_decided_elsewhere(view)) {
        " --force"
    } else {
        ""
    }
}

/// What is under way in another home: only that one knows whether it lives, and when nothing does, a word helps.
pub(super) fn elsewhere(view: &EffectView) -> String {
    let at = view.runs_at.as_deref().unwrap_or_default();
    let key = quoted(&view.logical_request_key);
    let look = approvers::run_there(&view.mesh_id, &format!("heddle effect status {key}"));
    let says = match view.status.as_str() {
        "compensating" => resolve_make_up(view),
        _ => resolve_run(view),
    };
    format!(
        "only the home of {at} knows whether it still runs, and `{look}` says so there; when nothing can be running there any more, look at the target; then a person{} says {says}",
        who(view)
    )
}

/// The words about a run of which nobody knows how it ended: without one it is never run again.
pub(super) fn resolve_run(view: &EffectView) -> String {
    let force = force(view);
    let says = |word: &str| {
        let command = format!(
            "heddle effect run {} --resolve={word}{force}",
            asked_words(view).trim_start()
        );
        persons(view, &command)
    };
    format!(
        "`{}` (it went well), `{}` (it did not), or `{}` (it did not happen, and may be run again)",
        says("done"),
        says("failed --exit-code CODE"),
        says("again")
    )
}

/// The words about a compensation that failed, or of which nobody knows how it ended: without one nothing more is run.
pub(super) fn resolve_make_up(view: &EffectView) -> String {
    let (key, force) = (quoted(&view.logical_request_key), force(view));
    let says = |word: &str, rest: &str| {
        let command = format!("heddle effect compensate {key} --resolve={word}{force}{rest}");
        persons(view, &command)
    };
    format!(
        "`{}` (it is mended by now), or `{}` (to try once more)",
        says("done", ""),
        says("again", " -- COMMAND")
    )
}

/// The options that name this effect and no other.
fn asked_words(view: &EffectView) -> String {
    let artifact = match view.artifact_hash.as_str() {
        "" => "",
        _ => "FILE",
    };
    options(&[
        ("--key", &view.logical_request_key),
        ("--op", &view.operation),
        ("--target", &view.target),
        ("--run", &view.run),
        ("--artifact", artifact),
    ])
}

/// What comes next for what was not registered yet, or waits for a word.
pub(super) fn next(view: &EffectView) -> String {
    let id = view.request_id.as_deref().unwrap_or("REQUEST_ID");
    let who = who(view);
    let approve = persons(view, &format!("heddle effect approve {id}"));
    let words = match view.status.as_str() {
        _ if view.blocked.is_some() => {
            "nothing can be run; whoever keeps effects.toml of who decides can allow it".to_owned()
        }
        "awaiting_approval" => {
            let more = text::others(view).map(|other| {
                let command = format!("heddle effect approve {}", other.request_id);
                let command = persons(view, &command);
                format!(", or `{command}` for {}", other.requested_by)
            });
            let more: String = more.collect();
            format!("a person{who} runs `{approve}`{more}")
        }
        "approved" => format!(
            "`heddle effect run{}{} -- COMMAND`, with the nonce of the approval",
            asked_words(view),
            options(&[("--nonce", "NONCE")])
        ),
        "expired" if view.request_over => format!(
            "ask again with `heddle effect request{}`; the request itself is too old to be granted once more",
            asked_words(view)
        ),
        "expired" => format!(
            "ask again with `heddle effect request{}`, or a person{who} grants it once more with `{approve}`",
            asked_words(view)
        ),
        "denied" | "revoked" => {
            format!(
                "ask again with `heddle effect request{}`",
                asked_words(view)
            )
        }
        "waiting_for_broker" => "nothing: it is asked for when the broker is back".to_owned(),
        "finished" => verdict(&view.logical_request_key),
        "running" | "compensating" if view.runs_elsewhere => elsewhere(view),
        "unknown" => format!(
            "look at the target; then a person{who} says {}",
            resolve_run(view)
        ),
        "verify_failed" => format!(
            "it is not run again; a person{who} makes up for it with `{}`",
            make_up(view)
        ),
        "compensation_failed" | "compensation_unknown" => {
            format!(
                "look at the target; then a person{who} says {}",
                resolve_make_up(view)
            )
        }
        _ => return String::new(),
    };
    format!("  next: {words}\n")
}
