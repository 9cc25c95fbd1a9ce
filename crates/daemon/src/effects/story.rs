//! The whole story of an effect: who asked, who approved, what ran, what was refused, in the order of time.

use heddle_core::clock::WallMs;
use heddle_core::error_code::ErrorCode;
use heddle_registrar::Registrar;
use heddle_registrar::binding::LogicalKey;
use heddle_registrar::code::Code;
use heddle_registrar::facts::{Envelope, Facts};
use heddle_registrar::life::Stage;
use heddle_registrar::rows::Ruling;
use heddle_registrar::storage::sqlite::Waited;
use heddle_registrar::storage::{LoggedLine, Storage};
use heddle_wire::broker::EffectCall;
use heddle_wire::ipc::{EffectAttempt, EffectEvent, EffectStory, EffectView};
use heddle_wire::problem::Problem;

use super::desk::{Desk, failed};
use super::{attempts, view};

/// Attempts and refusals that are told, the newest ones.
const LINES_MAX: usize = 500;

/// By the key itself, or by any id that belongs to it.
async fn key_of<S: Storage>(
    registrar: &Registrar<S>,
    id: &str,
) -> Result<Option<LogicalKey>, Problem> {
    if let Ok(key) = LogicalKey::parse(id) {
        let facts = registrar.facts(&key).await.map_err(failed)?;
        let noted = registrar.log(Some(&key), 1).await.map_err(failed)?;
        if !facts.envelopes.is_empty() || !noted.is_empty() {
            return Ok(Some(key));
        }
    }
    registrar.key_of(id).await.map_err(failed)
}

pub(super) async fn tell<S: Storage>(desk: &Desk<S>, id: &str) -> Result<EffectStory, Problem> {
    let registrar = &desk.registrar;
    let Some(key) = key_of(registrar, id).await? else {
        let detail = format!("{id}: no effect, request or attempt has this id");
        return Err(Problem::new(ErrorCode::EffectNotFound, detail));
    };
    let facts = registrar.facts(&key).await.map_err(failed)?;
    let lines = registrar.log(Some(&key), LINES_MAX + 1).await;
    let mut lines = lines.map_err(failed)?;
    let left_off = lines.len() > LINES_MAX;
    lines.truncate(LINES_MAX);
    let mut events = of_facts(&facts);
    // Newest first in the audit; an attempt is noted before what came of it.
    let tried = attempts::attempts(&facts, &lines);
    let noted = lines.iter().rev().map(|line| of_line(line, &tried));
    events.splice(0..0, noted);
    let again = attempts::retry_lines(registrar, Some(&key));
    events.extend(again.iter().map(|line| of_line(line, &tried)));
    events.sort_by_key(|(at, _)| *at);
    let mut effect = view::view(registrar.now(), &key, &facts)?;
    effect.blocked = desk.blocked(desk.policy_of_now().as_deref(), &facts);
    effect.retries = attempts::retries(registrar, &key);
    let newest = &lines[..lines.len().min(attempts::LINES_MAX)];
    effect.attempts = attempts::attempts(&facts, newest);
    Ok(EffectStory {
        id: id.to_owned(),
        kind: "effect".to_owned(),
        mesh: String::new(),
        effect,
        story: events.into_iter().map(|(_, event)| event).collect(),
        left_off,
    })
}

/// Of a request that has not left this home: all that there is to tell of it.
pub(super) fn waiting(id: &str, view: EffectView) -> EffectStory {
    if let [ended] = view.steps.as_slice() {
        let ended = EffectEvent {
            at: ended.at.clone(),
            what: ended.step.clone(),
            by: ended.by.clone(),
            code: String::new(),
            attempt_id: view.runner.clone().unwrap_or_default(),
            detail: ended.detail.clone(),
        };
        return told(id, view, ended);
    }
    let asked = EffectEvent {
        at: view.requested_at.clone().unwrap_or_default(),
        what: "requested".to_owned(),
        by: view.requested_by.clone().unwrap_or_default(),
        code: String::new(),
        attempt_id: String::new(),
        detail: format!(
            "{} {}: kept here; it is asked for when the broker of the mesh is back",
            view.operation, view.target
        ),
    };
    told(id, view, asked)
}

/// All that this home knows.
fn told(id: &str, view: EffectView, event: EffectEvent) -> EffectStory {
    EffectStory {
        id: id.to_owned(),
        kind: "effect".to_owned(),
        mesh: String::new(),
        effect: view,
        story: vec![event],
        left_off: false,
    }
}

/// Of a request that waited here, and was refused when it arrived: the authority keeps nothing of it.
pub(super) fn of_refused(id: &str, refused: &Waited) -> EffectStory {
    let view = match serde_json::from_str(&refused.call.call) {
        Ok(EffectCall::Request(body)) => view::waiting(&refused.call, body),
        _ => EffectView {
            logical_request_key: refused.call.key.clone(),
            ..EffectView::default()
        },
    };
    let mut story = waiting(id, view);
    story.story.clear();
    self::refused(&mut story, refused);
    story
}

/// What was asked here, and what was said to it.
pub(super) fn refused(story: &mut EffectStory, refused: &Waited) {
    let view = &mut story.effect;
    if let Ok(EffectCall::Request(body)) = serde_json::from_str(&refused.call.call) {
        let asked = view::waiting(&refused.call, body);
        (view.operation, view.target) = (asked.operation, asked.target);
        (view.artifact_hash, view.run) = (asked.artifact_hash, asked.run);
        (view.requested_by, view.requested_at) = (asked.requested_by, asked.requested_at);
    }
    "refused".clone_into(&mut view.status);
    Stage::Issued.state().clone_into(&mut view.state);
    "nothing is registered: what was asked for waited for the broker, and was refused then"
        .clone_into(&mut view.state_means);
    view.waited = Some(refused.outcome.clone());
    let by = &refused.call.caller;
    let kept = format!("{}: kept here while the broker was away", refused.call.verb);
    let (_, asked) = event(refused.call.since, "requested", by, kept);
    let (_, answer) = event(refused.ended_at, "refused", "", refused.outcome.clone());
    story.story.insert(0, asked);
    story.story.push(answer);
}

fn event(at: WallMs, what: &str, by: &str, detail: String) -> (WallMs, EffectEvent) {
    let event = EffectEvent {
        at: at.to_rfc3339(),
        what: what.to_owned(),
        by: by.to_owned(),
        code: String::new(),
        attempt_id: String::new(),
        detail,
    };
    (at, event)
}

fn of_facts(facts: &Facts) -> Vec<(WallMs, EffectEvent)> {
    let mut events: Vec<_> = facts.envelopes.iter().flat_map(of_envelope).collect();
    if let (Some(consumed), Some(registration)) = (&facts.consumed, &facts.registration) {
        let detail = format!(
            "{} under {}; the key is used",
            registration.registration_id, consumed.approval
        );
        let by = registration.registered_by();
        let (at, mut registered) = event(registration.registered_at, "registered", &by, detail);
        registered.attempt_id.clone_from(&consumed.attempt_id);
        events.push((at, registered));
    }
    for row in &facts.steps {
        let step = view::step(facts, row);
        let detail = step.detail.trim_end_matches("; ").to_owned();
        let (at, mut taken) = event(row.at, &step.step, &row.by, detail);
        taken.attempt_id.clone_from(&row.attempt_id);
        events.push((at, taken));
    }
    events
}

fn of_envelope(envelope: &Envelope) -> Vec<(WallMs, EffectEvent)> {
    let row = &envelope.row;
    let effect = &row.effect;
    let more = |name: &str, value: &str| match value {
        "" => String::new(),
        value => format!(", {name} {value}"),
    };
    let asked = format!(
        "{} {}{}{} as {}, until {}",
        effect.operation,
        effect.target,
        more("artifact sha256", &effect.artifact_hash),
        more("run", &effect.run_id),
        row.envelope_id,
        row.expires_at.to_rfc3339()
    );
    let mut events = vec![event(
        row.requested_at,
        "requested",
        &row.requested_by,
        asked,
    )];
    for decision in &envelope.decisions {
        let detail = match (decision.ruling, decision.grant) {
            (Ruling::Approved, Some(grant)) => format!(
                "{}: a nonce to {}, until {}",
                row.envelope_id,
                grant.purpose.as_str(),
                grant.expires_at.to_rfc3339()
            ),
            _ => row.envelope_id.clone(),
        };
        events.push(event(decision.at, decision.word(), &decision.by, detail));
    }
    events
}

/// A try that was noted says nothing of its end: that is in the rows.
fn of_line(line: &LoggedLine, tried: &[EffectAttempt]) -> (WallMs, EffectEvent) {
    let row = &line.row;
    let (at, mut event) = event(row.at, &row.event, &row.by, row.detail.clone());
    event.code.clone_from(&row.code);
    let mut tried = tried.iter();
    let attempt = tried
        .find(|attempt| attempt.attempt_id == row.attempt_id)
        .filter(|_| row.event == attempts::TRIED);
    match attempt.map(|attempt| attempt.state.as_str()) {
        Some("S2") => "it registered the effect".clone_into(&mut event.detail),
        Some("S4") => {
            Code::AttemptCollision.as_str().clone_into(&mut event.code);
            "somebody else was faster, and their result was the answer"
                .clone_into(&mut event.detail);
        }
        Some(_) if attempt.is_some_and(|attempt| attempt.code.is_empty()) => {
            "it left nothing behind, or is on its way".clone_into(&mut event.detail);
        }
        _ => {}
    }
    event.attempt_id.clone_from(&row.attempt_id);
    (at, event)
}

#[cfg(test)]
mod tests {
    use heddle_registrar::rows::AuditRow;

    use super::*;

    #[test]
    fn a_try_that_lost_the_race_says_so_in_the_story() {
        let tried = |id: &str, state: &str, code: &str| EffectAttempt {
            attempt_id: id.to_owned(),
            by: "planner".to_owned(),
            at: String::new(),
            state: state.to_owned(),
            code: code.to_owned(),
        };
        let all = [
            tried("won", "S2", ""),
            tried("lost", "S4", ""),
            tried("gone", "S1", ""),
            tried("early", "S1", "NONCE_UNBOUND"),
        ];
        let told = |event: &str, id: &str, code: &str| {
            let row = AuditRow {
                key: "k".into(),
                attempt_id: id.into(),
                event: event.into(),
                code: code.into(),
                detail: String::new(),
                by: "planner".into(),
                at: WallMs(0),
            };
            let (_, event) = of_line(&LoggedLine { seq: 1, row }, &all);
            format!("{} {}", event.code, event.detail)
        };
        let lost = told(attempts::TRIED, "lost", "");
        assert!(
            lost.starts_with("ATTEMPT_COLLISION somebody else was faster"),
            "{lost}"
        );
        assert_eq!(
            told(attempts::TRIED, "won", ""),
            " it registered the effect"
        );
        assert!(told(attempts::TRIED, "gone", "").contains("left nothing behind"));
        // Its refusal stands in a line of its own.
        assert_eq!(told(attempts::TRIED, "early", ""), " ");
        assert_eq!(
            told("refused register", "early", "NONCE_UNBOUND"),
            "NONCE_UNBOUND "
        );
    }
}
