//! Consuming the key: facts become a case of the table, and its verdict becomes rows.

use heddle_core::clock::WallMs;
use serde_json::json;

use crate::authority::NonceHash;
use crate::binding::Effect;
use crate::command::{Command, Register, Stepped};
use crate::decide::{self, Attempt, Case, Key, Nonce, Verdict};
use crate::facts::{Facts, NonceFacts};
use crate::rows::{ConsumeRow, Purpose, RegistrationRow, Row};

pub(super) fn register(facts: &Facts, command: &Command, ask: &Register) -> Stepped {
    let case = case_of(facts, command, ask);
    match decide::register(case) {
        Verdict::Prior(code) => Stepped::prior(code),
        Verdict::Refuse(code) => Stepped::refused(code),
        Verdict::Insert => match (&facts.nonce, ask.nonce) {
            (Some(nonce), Some(hash)) => Stepped::fresh(rows(command, ask, nonce, hash)),
            // A good nonce is one that is there; this cannot be, and is refused.
            _ => Stepped::refused(crate::code::Code::NonceUnbound),
        },
    }
}

fn case_of(facts: &Facts, command: &Command, ask: &Register) -> Case {
    let now = command.now;
    let key = match &facts.consumed {
        None => Key::Free,
        Some(consumed) => {
            let approval = ask.approval.as_deref().unwrap_or(&consumed.approval);
            if ask.effect.replay_key(approval) == consumed.replay_key {
                Key::Same
            } else {
                Key::Other
            }
        }
    };
    let attempt = match (&ask.said_attempt, &facts.consumed) {
        (Some(said), Some(consumed)) if *said == consumed.attempt_id => Attempt::Same,
        (Some(_), Some(_)) => Attempt::Other,
        _ => Attempt::Unsaid,
    };
    let envelope = facts.nonce.as_ref().map(|nonce| &nonce.envelope);
    Case {
        is_fit: ask.is_fit,
        key,
        looked_free: ask.looked_free,
        attempt,
        is_fresh: envelope.is_none_or(|envelope| !envelope.is_over(now)),
        nonce: worth(
            facts.nonce.as_ref(),
            Purpose::Register,
            &ask.effect,
            ask.approval.as_deref(),
            (&command.by, now),
        ),
    }
}

/// What a nonce is worth for this effect, here and now.
pub(super) fn worth(
    nonce: Option<&NonceFacts>,
    purpose: Purpose,
    effect: &Effect,
    approval: Option<&str>,
    (by, now): (&str, WallMs),
) -> Nonce {
    let Some(nonce) = nonce else {
        return Nonce::Unbound;
    };
    if nonce.is_used {
        return Nonce::Consumed;
    }
    let envelope = &nonce.envelope;
    let is_bound = nonce.grant.purpose == purpose
        && envelope.row.effect == *effect
        && (nonce.is_held_by(by) || purpose == Purpose::Compensate)
        && approval.is_none_or(|approval| approval == envelope.row.envelope_id)
        && !nonce.is_taken_back();
    let in_window = nonce.grant.not_before <= now && !envelope.has_ended(&nonce.grant, now);
    if is_bound && in_window {
        Nonce::Good
    } else {
        Nonce::Unbound
    }
}

fn rows(command: &Command, ask: &Register, nonce: &NonceFacts, hash: NonceHash) -> Vec<Row> {
    let envelope = &nonce.envelope.row;
    let consume = ConsumeRow {
        effect: ask.effect.clone(),
        approval: envelope.envelope_id.clone(),
        replay_key: envelope.replay_key,
        nonce: hash,
        attempt_id: ask.attempt_id.clone(),
        consumed_at: command.now,
        horizon_until: ask.horizon_until,
    };
    let mut receipt = json!({
        "registration_id": ask.registration_id,
        "logical_request_key": ask.effect.key.as_str(),
        "replay_key": consume.replay_key.to_hex(),
        "operation": ask.effect.operation,
        "target": ask.effect.target,
        "artifact_hash": ask.effect.artifact_hash,
        "approval": consume.approval,
        "run_id": ask.effect.run_id,
        "attempt_id": ask.attempt_id,
        "registered_by": command.by,
        "registered_at": command.now.to_rfc3339(),
    });
    if let Some(plan) = &ask.verify {
        receipt["verify"] = json!(plan);
    }
    if let Some(hash) = &ask.command_hash {
        receipt["command_hash"] = json!(hash);
    }
    let registration = RegistrationRow {
        key: ask.effect.key.clone(),
        registration_id: ask.registration_id.clone(),
        receipt: receipt.to_string(),
        registered_at: command.now,
    };
    vec![Row::Consume(consume), Row::Registration(registration)]
}
