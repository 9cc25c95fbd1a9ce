//! Effects in words: what each verb of `heddle effect` prints for a person.

use heddle_wire::ipc::{
    EffectAttempt, EffectDecision, EffectList, EffectLog, EffectOpenRequest, EffectSurface,
    EffectView,
};

use super::next_step;
use super::process::OUTPUT_BYTES_MAX;
use crate::cli::Context;
use crate::cli::text::table;

/// That more was printed than is kept.
pub(super) fn cut() -> String {
    format!("what it printed is cut after {OUTPUT_BYTES_MAX} bytes of each stream")
}

/// What a run has to tell: what the command printed, and why nothing ran if nothing did.
pub(super) fn ran(view: &EffectView) -> String {
    let key = &view.logical_request_key;
    let why = match (view.duplicate, view.code.as_deref()) {
        (true, Some(code)) => format!(" (it was done before, nothing was run: {code})"),
        (true, None) => " (it was done before, nothing was run)".to_owned(),
        (false, _) => String::new(),
    };
    // Its verdict is still to come, and its exit code is what whoever gives it looks at first.
    let (ended, next) = match (view.status.as_str(), view.exit_code) {
        ("finished", Some(code)) => (
            format!(", exit code {code}"),
            format!("\n  next: {}", next_step::verdict(key)),
        ),
        _ => (String::new(), String::new()),
    };
    format!("{key}: {}{ended}{why}{next}", view.status)
}

pub(super) fn status(context: &Context, view: &EffectView) -> String {
    let (key, status) = (&view.logical_request_key, &view.status);
    // Of what waits here for its broker no more may be known than how it ended.
    let what = match view.operation.as_str() {
        "" => String::new(),
        operation => format!("{operation} {} · ", view.target),
    };
    let mut text = format!("{key} · {what}{status} ({})\n", view.state);
    let state = format!("{}, {}", view.state, view.state_means);
    for (name, value) in [
        ("state", Some(state.as_str())),
        ("artifact", artifact(&view.artifact_hash).as_deref()),
        ("run", Some(view.run.as_str())),
        ("request", view.request_id.as_deref()),
        ("attempt", view.attempt_id.as_deref()),
        (
            "command",
            view.command_hash.as_deref().and_then(artifact).as_deref(),
        ),
        ("now", view.blocked.as_deref()),
        ("verdict", view.verify_detail.as_deref()),
        ("not started", view.not_started.as_deref()),
        ("what waited here was refused", view.waited.as_deref()),
    ] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            text += &format!("  {name}: {value}\n");
        }
    }
    text += &asked(view);
    text += &tries(view);
    if matches!(view.status.as_str(), "unknown" | "compensation_unknown") {
        text += "  nobody knows how its command ended, and it is not run again before a person who has looked says so\n";
    }
    for step in &view.steps {
        let detail = step.detail.trim_end_matches("; ");
        text += &format!("  {}  {} by {}  {detail}\n", step.at, step.step, step.by);
    }
    text += &context.spelled_in(&next_step::next(view));
    if let Some(printed) = view.stdout.as_deref().filter(|printed| !printed.is_empty()) {
        text += printed;
        if !printed.ends_with('\n') {
            text.push('\n');
        }
    }
    let stderr = view.stderr.as_deref().unwrap_or_default();
    text += &printed("on standard error", stderr);
    if view.truncated {
        text += &format!("({})\n", cut());
    }
    let Some(made_up) = &view.compensation else {
        return text;
    };
    let stream = |name: &str| made_up[name].as_str().unwrap_or_default();
    text += &printed("what made up for it printed", stream("stdout"));
    text += &printed(
        "what made up for it printed on standard error",
        stream("stderr"),
    );
    if made_up["truncated"] == true {
        text += &format!("({})\n", cut());
    }
    text
}

/// Who has tried to register or to begin it, and who came when it was done.
fn tries(view: &EffectView) -> String {
    let mut text = String::new();
    // Oldest first, as everything else here.
    for attempt in view.attempts.iter().rev() {
        text += &tried(attempt, &how(&attempt.state, &attempt.code));
    }
    if let Some(retries) = &view.retries {
        text += &format!(
            "  {}  came again, {} since {}, last by {}: answered with what stands ({})\n",
            retries.at,
            match retries.count {
                1 => "once".to_owned(),
                count => format!("{count} times"),
            },
            retries.since,
            retries.by,
            retries.code
        );
    }
    text
}

fn tried(attempt: &EffectAttempt, how: &str) -> String {
    let id = match attempt.attempt_id.as_str() {
        "" => String::new(),
        id => format!(" {id}"),
    };
    format!("  {}  attempt{id} by {}: {how}\n", attempt.at, attempt.by)
}

/// How a try to register it ended.
fn how(state: &str, code: &str) -> String {
    match state {
        _ if !code.is_empty() => format!("{state}, refused ({code})"),
        "S1" => "S1, it left nothing behind (or is on its way)".to_owned(),
        "S2" => "S2, it registered the effect".to_owned(),
        "S4" => "S4, somebody else was faster".to_owned(),
        _ => state.to_owned(),
    }
}

fn artifact(hash: &str) -> Option<String> {
    (!hash.is_empty()).then(|| format!("sha256 {hash}"))
}

/// What somebody is asked to approve, or has approved, in words.
pub(super) fn effect(
    (operation, target): (&str, &str),
    (artifact_hash, run): (&str, &str),
    (key, by): (&str, &str),
) -> String {
    let mut text = format!("{operation} {target} (key {key}), asked for by {by}\n");
    if let Some(artifact) = artifact(artifact_hash) {
        text += &format!("  artifact: {artifact}\n");
    }
    if !run.is_empty() {
        text += &format!("  run: {run}\n");
    }
    text
}

fn printed(heading: &str, stream: &str) -> String {
    if stream.is_empty() {
        return String::new();
    }
    format!("{heading}:\n{}\n", stream.trim_end())
}

/// Who asked, and who said what to it.
fn asked(view: &EffectView) -> String {
    let mut text = String::new();
    if let (Some(by), Some(at)) = (&view.requested_by, &view.requested_at) {
        text += &format!("  {at}  requested by {by}\n");
    }
    for request in others(view) {
        text += &format!(
            "  {}  requested by {} (another request, {}): {}\n",
            request.requested_at, request.requested_by, request.request_id, request.status
        );
    }
    for decision in &view.decisions {
        // Others may have asked for the same, before or beside this one.
        let other = if view.request_id.as_ref() == Some(&decision.request_id) {
            String::new()
        } else {
            format!(" (another request, {})", decision.request_id)
        };
        text += &format!(
            "  {}  {}{}{other}\n",
            decision.at,
            decided(decision),
            until(decision)
        );
    }
    text
}

/// Requests that are live beside the one that is shown.
pub(super) fn others(view: &EffectView) -> impl Iterator<Item = &EffectOpenRequest> {
    let shown = view.request_id.as_deref();
    let all = view.requests.iter();
    all.filter(move |request| shown != Some(request.request_id.as_str()))
}

fn decided(decision: &EffectDecision) -> String {
    format!("{} by {}", decision.ruling, decision.by)
}

fn until(decision: &EffectDecision) -> String {
    match (&decision.purpose, &decision.expires_at) {
        (Some(purpose), Some(until)) => format!(", to {purpose} until {until}"),
        _ => String::new(),
    }
}

pub(super) fn list(list: &EffectList) -> String {
    if list.effects.is_empty() {
        return "no effect was asked for yet\n".to_owned();
    }
    let mut rows = vec![
        ["KEY", "EFFECT", "STATUS", "DECIDED", "REQUEST"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for view in &list.effects {
        rows.push(vec![
            view.logical_request_key.clone(),
            format!(
                "{} {}{}",
                view.operation,
                view.target,
                short(&view.artifact_hash)
            ),
            match &view.blocked {
                Some(_) => format!("{}, effects.toml forbids it", view.status),
                None => view.status.clone(),
            },
            of_request(view).map_or_else(String::new, |decision| {
                format!("{} {}", decided(decision), decision.at)
            }),
            {
                let more = others(view).map(|other| format!(" {}", other.request_id));
                view.request_id.clone().unwrap_or_default() + &more.collect::<String>()
            },
        ]);
    }
    table(&rows)
}

/// What was said last to the request that is shown beside it.
fn of_request(view: &EffectView) -> Option<&EffectDecision> {
    let mut said = view.decisions.iter().rev();
    said.find(|decision| view.request_id.as_ref() == Some(&decision.request_id))
}

/// Enough of a hash to tell two artifacts apart in a table; the status has all of it.
fn short(hash: &str) -> String {
    hash.get(..12)
        .map_or_else(String::new, |begin| format!(" {begin}…"))
}

pub(super) fn log(log: &EffectLog) -> String {
    if log.lines.is_empty() {
        return "nothing was tried yet\n".to_owned();
    }
    let line = |line: &heddle_wire::ipc::EffectLogLine| {
        let rest = [line.code.as_str(), line.detail.as_str()].join(" ");
        format!(
            "{}  {}  {} by {}  {}\n",
            line.at,
            line.key,
            line.event,
            line.by,
            rest.trim()
        )
    };
    log.lines.iter().map(line).collect()
}

pub(super) fn surface(surface: &EffectSurface) -> String {
    let line = |criterion: &heddle_wire::ipc::EffectCriterion| {
        let mark = if criterion.met { "met" } else { "FAILED" };
        let without = match criterion.missing.as_slice() {
            [] => String::new(),
            missing => format!(", without {}", missing.join(", ")),
        };
        format!(
            "({}) {}: {mark}{without}\n",
            criterion.letter, criterion.asks
        )
    };
    let mut text: String = surface.criteria.iter().map(line).collect();
    if surface.without_digest > 0 {
        text += &format!(
            "{} rows are of an earlier version and have no digest: nobody can say whether they are as they were written\n",
            surface.without_digest
        );
    }
    text
}
