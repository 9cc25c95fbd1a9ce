//! Asking for approval, and what is said to it.

use heddle_core::clock::WallMs;

use crate::binding::Effect;
use crate::code::Code;
use crate::command::{Command, Consent, Stepped};
use crate::facts::Facts;
use crate::life::Stage;
use crate::rows::{DecisionRow, EnvelopeRow, Grant, Purpose, Row, Ruling};

/// One live envelope for a key and a caller: asking again for the same is the same request. An envelope is
/// bound to its owner, so somebody else's request is another one; only one of them can ever be used.
pub(super) fn request(
    facts: &Facts,
    command: &Command,
    effect: &Effect,
    envelope_id: &str,
    expires_at: WallMs,
    consent: Option<&Consent>,
) -> Stepped {
    let standing = match (&facts.consumed, facts.live_envelope(command.now)) {
        (Some(consumed), _) => Some(&consumed.effect),
        (None, Some(envelope)) => Some(&envelope.row.effect),
        (None, None) => None,
    };
    let own = facts.live_envelope_of(&command.by, command.now);
    let is_known = facts.consumed.is_some() || own.is_some();
    match standing {
        Some(standing) if standing != effect => Stepped::refused(Code::ReplayBindingMismatch),
        _ if is_known => Stepped::prior(Code::ReplayDuplicate),
        _ => {
            let mut rows = vec![Row::Envelope(EnvelopeRow {
                envelope_id: envelope_id.to_owned(),
                effect: effect.clone(),
                replay_key: effect.replay_key(envelope_id),
                requested_by: command.by.clone(),
                requested_at: command.now,
                expires_at,
            })];
            rows.extend(consent.map(|consent| {
                Row::Decision(DecisionRow {
                    envelope_id: envelope_id.to_owned(),
                    seq: 1,
                    ruling: Ruling::Approved,
                    grant: Some(within(consent.grant, expires_at)),
                    by: consent.by.clone(),
                    at: command.now,
                })
            }));
            Stepped::fresh(rows)
        }
    }
}

/// A nonce for the effect is good for no longer than the request that it belongs to, and says so.
fn within(grant: Grant, expires_at: WallMs) -> Grant {
    match grant.purpose {
        Purpose::Register => Grant {
            expires_at: grant.expires_at.min(expires_at),
            ..grant
        },
        // What has happened can be made up for, however old its request is.
        Purpose::Compensate => grant,
    }
}

/// A denial ends a request that waits, a revocation one that was approved; neither touches what has
/// happened. What was granted to make up for it is revoked in the same way, and may be granted anew. A further approval grants a further nonce, which can authorise no second effect (RP-02); none
/// is granted for what has happened.
pub(super) fn decide(
    facts: &Facts,
    command: &Command,
    envelope_id: &str,
    ruling: Ruling,
    grant: Option<Grant>,
) -> Stepped {
    let Some(envelope) = facts.envelope(envelope_id) else {
        return Stepped::refused(Code::NotFound);
    };
    let is_over = matches!(envelope.ruling(), Some(Ruling::Denied | Ruling::Revoked));
    let has_happened = facts
        .consumed
        .as_ref()
        .is_some_and(|consumed| consumed.approval == envelope_id);
    let is_to_make_up = has_happened && facts.stage() == Stage::VerifyFailed;
    let purpose = grant.map(|grant| grant.purpose);
    let last = envelope.said().last().and_then(|last| last.grant);
    let takes_back = ruling == Ruling::Revoked
        && is_to_make_up
        && last.is_some_and(|grant| grant.purpose == Purpose::Compensate);
    let code = match ruling {
        // What has happened was not turned down: only what was to make up for it can have been.
        Ruling::Approved if is_over && !is_to_make_up => Some(Code::ApprovalRefused),
        // A key that is used takes no further nonce, whatever that could not do with it.
        Ruling::Approved => match purpose {
            None => Some(Code::StepRefused),
            Some(Purpose::Register) if facts.consumed.is_some() => Some(Code::StepRefused),
            Some(Purpose::Register) if envelope.is_over(command.now) => {
                Some(Code::ReplayStaleRequest)
            }
            Some(Purpose::Compensate) if !is_to_make_up => Some(Code::StepRefused),
            Some(_) => None,
        },
        Ruling::Revoked if takes_back => None,
        Ruling::Denied | Ruling::Revoked if is_over || has_happened => Some(Code::StepRefused),
        _ => None,
    };
    if let Some(code) = code {
        return Stepped::refused(code);
    }
    let seq = envelope.decisions.last().map_or(1, |last| last.seq + 1);
    Stepped::fresh(vec![Row::Decision(DecisionRow {
        envelope_id: envelope_id.to_owned(),
        seq,
        ruling,
        grant: grant
            .filter(|_| ruling == Ruling::Approved)
            .map(|grant| within(grant, envelope.row.expires_at)),
        by: command.by.clone(),
        at: command.now,
    })])
}
