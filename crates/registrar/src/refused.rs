//! Why something was refused, in words: the same for who is told and for the audit.

use heddle_core::clock::WallMs;

use crate::binding::{Effect, LogicalKey};
use crate::code::Code;
use crate::facts::Facts;

/// The fields in which two effects differ: what it is called, what stands, what is asked for.
pub fn fields<'a>(
    standing: &'a Effect,
    asked: &'a Effect,
) -> Vec<(&'static str, &'a str, &'a str)> {
    let all = [
        ("operation", &standing.operation, &asked.operation),
        ("target", &standing.target, &asked.target),
        ("artifact", &standing.artifact_hash, &asked.artifact_hash),
        ("run", &standing.run_id, &asked.run_id),
    ];
    let other = all.into_iter().filter(|(_, was, is)| was != is);
    other
        .map(|(name, was, is)| (name, was.as_str(), is.as_str()))
        .collect()
}

pub fn shown(name: &str, value: &str) -> String {
    match (name, value) {
        (_, "") => "none".to_owned(),
        ("artifact", hash) => format!("sha256 {hash}"),
        (_, value) => value.to_owned(),
    }
}

/// What was said then, and what is said now.
fn differs(standing: &Effect, asked: &Effect) -> String {
    let words = fields(standing, asked).into_iter().map(|(name, was, is)| {
        let (was, is) = (shown(name, was), shown(name, is));
        format!("its {name} is {was}, and not {is}")
    });
    words.collect::<Vec<_>>().join("; ")
}

/// The effect that the key stands for: the one that has happened, or the newest that was asked for.
pub fn standing(facts: &Facts) -> Option<&Effect> {
    let consumed = facts.consumed.as_ref().map(|row| &row.effect);
    consumed.or_else(|| facts.envelopes.last().map(|it| &it.row.effect))
}

/// None where the code says all that there is to say. `asked` is the whole effect that was asked for, where one was.
pub fn why(
    code: Code,
    (key, facts): (&LogicalKey, &Facts),
    asked: Option<&Effect>,
    (by, now): (&str, WallMs),
) -> Option<String> {
    match code {
        Code::NonceUnbound => Some(unbound(key, facts, asked, (by, now))),
        Code::ReplayBindingMismatch => Some(mismatch(facts, asked)),
        Code::ReplayNonceConsumed => Some(used(facts).to_owned()),
        Code::ReplayStaleRequest => Some("the request for approval is too old".to_owned()),
        _ => None,
    }
}

/// What a nonce was used for that is good for nothing any more.
fn used(facts: &Facts) -> &'static str {
    let hash = facts.nonce.as_ref().map(|nonce| nonce.grant.nonce);
    let registered = facts.consumed.as_ref().map(|row| row.nonce);
    if hash.is_some() && hash == registered {
        return "the nonce has registered this effect, and makes up for nothing: that takes one of its own";
    }
    let mut steps = facts.steps.iter();
    if hash.is_some() && steps.any(|row| row.nonce == hash) {
        return "the nonce was used for an earlier compensation of this effect";
    }
    "the nonce was used for another effect"
}

/// Of a key that belongs to something else.
fn mismatch(facts: &Facts, asked: Option<&Effect>) -> String {
    match (standing(facts), asked) {
        (Some(standing), Some(asked)) if standing != asked => format!(
            "the key is in use for another effect: {}",
            differs(standing, asked)
        ),
        (_, Some(_)) => "the key is in use under another approval".to_owned(),
        (_, None) => "it was registered with another command".to_owned(),
    }
}

/// Why the nonce that was shown is no good here.
fn unbound(
    key: &LogicalKey,
    facts: &Facts,
    asked: Option<&Effect>,
    (by, now): (&str, WallMs),
) -> String {
    let Some(nonce) = &facts.nonce else {
        return "there is no good nonce: it is missing, or nobody has granted it".to_owned();
    };
    let (envelope, grant) = (&nonce.envelope.row, &nonce.grant);
    if envelope.effect.key != *key {
        return "the nonce was granted for another effect".to_owned();
    }
    if nonce.is_taken_back() {
        return "the approval was taken back".to_owned();
    }
    if nonce.envelope.has_ended(grant, now) {
        let until = grant.expires_at.to_rfc3339();
        let back = if now < grant.expires_at {
            ", and was over once, though the clock says less now"
        } else {
            ""
        };
        return format!("the approval was good until {until}{back}");
    }
    if now < grant.not_before {
        let from = grant.not_before.to_rfc3339();
        return format!("the approval is good from {from} on, and the clock says less");
    }
    if let Some(asked) = asked.filter(|asked| **asked != envelope.effect) {
        let differs = differs(&envelope.effect, asked);
        return format!("the approval is for something else: {differs}");
    }
    if !nonce.is_held_by(by) {
        let owner = &envelope.requested_by;
        return format!("the approval was given to {owner}, and {by} is somebody else");
    }
    format!(
        "the nonce was granted to {} it as it was asked for, and this is something else",
        grant.purpose.as_str()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Nonce;
    use crate::facts::{Envelope, NonceFacts};
    use crate::rows::{DecisionRow, EnvelopeRow, Grant, Purpose, Ruling};

    fn effect(key: &str, target: &str, hash: &str) -> Effect {
        Effect::new(key, "deploy", target, &hash.repeat(64), "").unwrap()
    }

    #[test]
    fn what_differs_is_named_with_both_values() {
        let (a, b) = (effect("k", "prod", "a"), effect("k", "prod", "b"));
        let told = differs(&a, &b);
        assert!(
            told.contains(&"a".repeat(64)) && told.contains(&"b".repeat(64)),
            "{told}"
        );
        assert!(!told.contains("target"), "{told}");
        assert_eq!(differs(&a, &a), "");
        let told = differs(&effect("k", "prod", ""), &effect("k", "eu", ""));
        assert_eq!(told, "its target is prod, and not eu");
    }

    fn granted(target: &str) -> NonceFacts {
        let effect = effect("k", target, "");
        let grant = Grant {
            nonce: Nonce::presented("n").hash(),
            purpose: Purpose::Register,
            not_before: WallMs(10),
            expires_at: WallMs(20),
        };
        NonceFacts {
            envelope: Envelope {
                row: EnvelopeRow {
                    envelope_id: "env".into(),
                    replay_key: effect.replay_key("env"),
                    effect,
                    requested_by: "planner".into(),
                    requested_at: WallMs(0),
                    expires_at: WallMs(100),
                },
                decisions: vec![DecisionRow {
                    envelope_id: "env".into(),
                    seq: 1,
                    ruling: Ruling::Approved,
                    grant: Some(grant),
                    by: "tester".into(),
                    at: WallMs(10),
                }],
            },
            grant,
            is_used: false,
        }
    }

    #[test]
    fn a_nonce_that_is_no_good_gets_its_one_reason() {
        let told = |nonce: Option<NonceFacts>, key: &str, (by, now): (&str, i64)| {
            let facts = Facts {
                nonce,
                ..Facts::default()
            };
            let asked = effect(key, "prod", "");
            let whose = (&asked.key, &facts);
            why(Code::NonceUnbound, whose, Some(&asked), (by, WallMs(now))).unwrap()
        };
        let good = || Some(granted("prod"));
        assert!(told(None, "k", ("planner", 15)).contains("nobody has granted it"));
        assert!(told(good(), "other", ("planner", 15)).contains("granted for another effect"));
        assert!(told(good(), "k", ("planner", 20)).starts_with("the approval was good until"));
        assert!(told(good(), "k", ("planner", 5)).starts_with("the approval is good from"));
        assert!(told(good(), "k", ("mallory", 15)).contains("given to planner"));
        let elsewhere = told(Some(granted("eu")), "k", ("planner", 15));
        assert_eq!(
            elsewhere,
            "the approval is for something else: its target is eu, and not prod"
        );
        let mut revoked = granted("prod");
        let last = revoked.envelope.decisions[0].clone();
        revoked.envelope.decisions.push(DecisionRow {
            seq: 2,
            ruling: Ruling::Revoked,
            grant: None,
            ..last
        });
        assert_eq!(
            told(Some(revoked), "k", ("planner", 15)),
            "the approval was taken back"
        );
        let mut other = granted("prod");
        other.grant.purpose = Purpose::Compensate;
        assert!(told(Some(other), "k", ("planner", 15)).contains("granted to compensate it"));
    }
}
