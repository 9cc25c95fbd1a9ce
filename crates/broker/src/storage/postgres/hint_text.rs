//! A hint as the text of a notification. It comes from whoever may write to the database: what cannot be read
//! means that something was missed.

use heddle_core::ids::{MemberId, MeshId};
use heddle_core::limits::BLOB_PART_BYTES_MAX;
use heddle_core::membership::Bar;
use heddle_core::names::QueueName;
use serde_json::{Value, json};

use super::super::parts::{PartAsk, PartOutcome, PartPlace};
use super::super::wakes::{Hint, Look};

/// A notification holds 8,000 bytes.
const BYTES_MAX: usize = 7_900;

pub(super) fn encode(hint: &Hint) -> String {
    let text = shape(hint).to_string();
    if text.len() <= BYTES_MAX {
        return text;
    }
    match hint {
        Hint::Look(look) => json!({"mesh": look.mesh.to_string(), "all": true}).to_string(),
        _ => "{}".to_owned(),
    }
}

fn shape(hint: &Hint) -> Value {
    let texts = |ids: &mut dyn Iterator<Item = String>| ids.collect::<Vec<_>>();
    match hint {
        Hint::Missed => json!({}),
        Hint::Cut { mesh, member, bar } => json!({
            "mesh": mesh.to_string(), "cut": member.to_string(), "blocked": *bar == Bar::Blocked,
        }),
        Hint::Session {
            mesh,
            member,
            generation,
        } => json!({
            "mesh": mesh.to_string(), "session": member.to_string(), "generation": generation,
        }),
        Hint::PartAsked { ask, holder, part } => json!({
            "mesh": ask.mesh.to_string(), "part": part_ask(ask), "holder": holder.to_string(),
            "sha256": part.sha256.to_string(), "offset": part.offset, "length": part.length,
        }),
        Hint::PartGiven { ask, outcome } => json!({
            "mesh": ask.mesh.to_string(), "part": part_ask(ask), "outcome": outcome_text(*outcome),
        }),
        Hint::Look(look) => json!({
            "mesh": look.mesh.to_string(),
            "members": texts(&mut look.members.iter().map(ToString::to_string)),
            "queues": texts(&mut look.queues.iter().map(ToString::to_string)),
            "roster": look.roster, "log": look.log, "all": look.all,
        }),
    }
}

fn part_ask(ask: &PartAsk) -> Value {
    json!([ask.asker.to_string(), ask.generation, ask.number])
}

const OUTCOMES: [PartOutcome; 3] = [PartOutcome::Left, PartOutcome::Absent, PartOutcome::Busy];

fn outcome_text(outcome: PartOutcome) -> &'static str {
    match outcome {
        PartOutcome::Left => "left",
        PartOutcome::Absent => "absent",
        PartOutcome::Busy => "busy",
    }
}

/// A question for bytes of a file, or what became of one.
fn read_part(mesh: MeshId, value: &Value) -> Option<Hint> {
    let asker = value.get("part")?;
    let ask = PartAsk {
        mesh,
        asker: asker.get(0)?.as_str()?.parse().ok()?,
        generation: asker.get(1)?.as_u64()?,
        number: asker.get(2)?.as_u64()?,
    };
    if let Some(outcome) = value.get("outcome") {
        let text = outcome.as_str()?;
        let outcome = OUTCOMES
            .into_iter()
            .find(|one| outcome_text(*one) == text)?;
        return Some(Hint::PartGiven { ask, outcome });
    }
    let length = u32::try_from(value.get("length")?.as_u64()?).ok()?;
    Some(Hint::PartAsked {
        ask,
        holder: value.get("holder")?.as_str()?.parse().ok()?,
        part: PartPlace {
            sha256: value.get("sha256")?.as_str()?.parse().ok()?,
            offset: value.get("offset")?.as_u64()?,
            length: Some(length).filter(|length| (1..=BLOB_PART_BYTES_MAX).contains(length))?,
        },
    })
}

pub(super) fn decode(text: &str) -> Hint {
    read(text).unwrap_or(Hint::Missed)
}

fn read(text: &str) -> Option<Hint> {
    let value: Value = serde_json::from_str(text).ok()?;
    let mesh: MeshId = value.get("mesh")?.as_str()?.parse().ok()?;
    let member = |key: &str| -> Option<MemberId> { value.get(key)?.as_str()?.parse().ok() };
    if value.get("cut").is_some() {
        let is_blocked = value.get("blocked").and_then(Value::as_bool);
        return Some(Hint::Cut {
            mesh,
            member: member("cut")?,
            bar: match is_blocked {
                Some(true) => Bar::Blocked,
                // A broker of before knew nothing else.
                Some(false) | None => Bar::Revoked,
            },
        });
    }
    if value.get("session").is_some() {
        return Some(Hint::Session {
            mesh,
            member: member("session")?,
            generation: value.get("generation")?.as_u64()?,
        });
    }
    if value.get("part").is_some() {
        return read_part(mesh, &value);
    }
    let list = |key: &str| {
        value
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let flag = |key: &str| value.get(key).and_then(Value::as_bool).unwrap_or(false);
    let members = list("members").map(|id| id.as_str()?.parse().ok());
    let queues = list("queues").map(|name| QueueName::parse(name.as_str()?).ok());
    Some(Hint::Look(Look {
        mesh,
        members: members.collect::<Option<_>>()?,
        queues: queues.collect::<Option<_>>()?,
        roster: flag("roster"),
        log: flag("log"),
        all: flag("all"),
    }))
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    #[test]
    fn a_hint_comes_back_as_it_was_and_a_large_one_as_a_look_at_everything() {
        let mesh = MeshId(Ulid::from(7_u128));
        let member = |n: u128| MemberId(Ulid::from(n));
        let small = Hint::Look(Look {
            members: [member(1), member(2)].into(),
            queues: [QueueName::parse("work").unwrap()].into(),
            log: true,
            ..Look::at(mesh)
        });
        let session = Hint::Session {
            mesh,
            member: member(3),
            generation: 9,
        };
        let cut = Hint::Cut {
            mesh,
            member: member(3),
            bar: Bar::Revoked,
        };
        let blocked = Hint::Cut {
            mesh,
            member: member(3),
            bar: Bar::Blocked,
        };
        let ask = PartAsk {
            mesh,
            asker: member(4),
            generation: 5,
            number: 6,
        };
        let asked = Hint::PartAsked {
            ask,
            holder: member(3),
            part: PartPlace {
                sha256: heddle_core::file::ContentHash::of(b"x"),
                offset: 1 << 40,
                length: BLOB_PART_BYTES_MAX,
            },
        };
        let given = OUTCOMES.map(|outcome| Hint::PartGiven { ask, outcome });
        let all = [small, session, cut, blocked, asked, Hint::Missed];
        for hint in all.into_iter().chain(given) {
            assert_eq!(decode(&encode(&hint)), hint);
        }
        let large = Hint::Look(Look {
            members: (0..1_000).map(member).collect(),
            ..Look::at(mesh)
        });
        let all = Hint::Look(Look {
            all: true,
            ..Look::at(mesh)
        });
        assert!(encode(&large).len() <= BYTES_MAX);
        assert_eq!(decode(&encode(&large)), all);
    }

    #[test]
    fn what_cannot_be_read_means_that_something_was_missed() {
        let whole = encode(&Hint::Cut {
            mesh: MeshId(Ulid::from(7_u128)),
            member: MemberId(Ulid::from(1_u128)),
            bar: Bar::Blocked,
        });
        for end in 0..whole.len() {
            assert_eq!(decode(&whole[..end]), Hint::Missed);
        }
        for text in ["", "[]", "null", "{\"mesh\":7}", "{\"mesh\":\"x\"}"] {
            assert_eq!(decode(text), Hint::Missed, "{text}");
        }
    }
}
