//! The whole story of an effect: who asked, who approved, what ran, what was refused, in the order of time.

use heddle_core::clock::WallMs;
use heddle_core::error_code::ErrorCode;
use heddle_registrar::Registrar;
use heddle_registrar::binding::LogicalKey;
use heddle_registrar::facts::{Envelope, Facts};
use heddle_registrar::rows::Ruling;
use heddle_registrar::storage::{LoggedLine, Storage};
use heddle_wire::ipc::{EffectEvent, EffectStory, EffectView};
use heddle_wire::problem::Problem;

use super::desk::failed;
use super::view;

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

pub(super) async fn tell<S: Storage>(
    registrar: &Registrar<S>,
    id: &str,
) -> Result<EffectStory, Problem> {
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
    let noted = lines.iter().rev().map(of_line);
    events.splice(0..0, noted);
    events.sort_by_key(|(at, _)| *at);
    Ok(EffectStory {
        id: id.to_owned(),
        kind: "effect".to_owned(),
        mesh: String::new(),
        effect: view::view(registrar.now(), &key, &facts)?,
        story: events.into_iter().map(|(_, event)| event).collect(),
        left_off,
    })
}

/// Of a request that has not left this home: all that there is to tell of it.
pub(super) fn waiting(id: &str, view: EffectView) -> EffectStory {
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
    EffectStory {
        id: id.to_owned(),
        kind: "effect".to_owned(),
        mesh: String::new(),
        effect: view,
        story: vec![asked],
        left_off: false,
    }
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
        let what = decision.ruling.as_str();
        events.push(event(decision.at, what, &decision.by, detail));
    }
    events
}

fn of_line(line: &LoggedLine) -> (WallMs, EffectEvent) {
    let row = &line.row;
    let (at, mut event) = event(row.at, &row.event, &row.by, row.detail.clone());
    event.code.clone_from(&row.code);
    event.attempt_id.clone_from(&row.attempt_id);
    (at, event)
}
