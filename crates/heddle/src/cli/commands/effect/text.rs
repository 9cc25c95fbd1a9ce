//! Effects in words: what each verb of `heddle effect` prints for a person.

use heddle_wire::ipc::{EffectList, EffectLog, EffectSurface, EffectView};

use crate::cli::text::table;

/// What a run has to tell: what the command printed, and why nothing ran if nothing did.
pub(super) fn ran(view: &EffectView) -> String {
    let mut text = view.stdout.clone().unwrap_or_default();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let key = &view.logical_request_key;
    let why = match (view.duplicate, view.code.as_deref()) {
        (true, Some(code)) => format!(" (it was done before, nothing was run: {code})"),
        (true, None) => " (it was done before, nothing was run)".to_owned(),
        (false, _) => String::new(),
    };
    text + &format!("{key}: {}{why}\n", view.status)
}

pub(super) fn status(view: &EffectView) -> String {
    let mut text = format!(
        "{} · {} {} · {} ({})\n",
        view.logical_request_key, view.operation, view.target, view.status, view.state
    );
    for (name, value) in [
        ("request", view.request_id.as_deref()),
        ("attempt", view.attempt_id.as_deref()),
        ("verdict", view.verify_detail.as_deref()),
        ("not started", view.not_started.as_deref()),
    ] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            text += &format!("  {name}: {value}\n");
        }
    }
    if matches!(view.status.as_str(), "unknown" | "compensation_unknown") {
        text += "  nobody knows how its command ended; a person who has looked says so with --resolve\n";
    }
    for step in &view.steps {
        let detail = step.detail.trim_end_matches("; ");
        text += &format!("  {}  {} by {}  {detail}\n", step.at, step.step, step.by);
    }
    if let Some(printed) = view.stdout.as_deref().filter(|printed| !printed.is_empty()) {
        text += printed;
        if !printed.ends_with('\n') {
            text.push('\n');
        }
    }
    let made_up = view.compensation.as_ref();
    let made_up = made_up.and_then(|compensation| compensation["stdout"].as_str());
    if let Some(printed) = made_up.filter(|printed| !printed.is_empty()) {
        text += &format!("what made up for it printed:\n{}\n", printed.trim_end());
    }
    text
}

pub(super) fn list(list: &EffectList) -> String {
    if list.effects.is_empty() {
        return "no effect was asked for yet\n".to_owned();
    }
    let mut rows = vec![
        ["KEY", "EFFECT", "STATUS", "REQUEST"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for view in &list.effects {
        rows.push(vec![
            view.logical_request_key.clone(),
            format!("{} {}", view.operation, view.target),
            view.status.clone(),
            view.request_id.clone().unwrap_or_default(),
        ]);
    }
    table(&rows)
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
        format!("({}) {}: {mark}\n", criterion.letter, criterion.asks)
    };
    surface.criteria.iter().map(line).collect()
}
