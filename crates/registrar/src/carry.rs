//! The rows of a mesh on their way from one authority to the next, when the mesh moves: as text, in an order that
//! stays, so that a place in it is a number.
//!
//! Names go with it: what a home calls `planner`, the broker of a team calls `@alice/planner`. The receipts of the
//! registrations stay as they are, byte for byte (RG-03).

use heddle_core::clock::WallMs;
use heddle_core::fingerprint::hex;
use serde::{Deserialize, Serialize};

use crate::binding::{LogicalKey, ReplayKey};
use crate::expiry::EXPIRED;
use crate::kept::{Bound, KeptDigest};
use crate::policy::AUTO;
use crate::rows::{
    AuditRow, CallRow, ConsumeRow, DecisionRow, EnvelopeRow, RegistrationRow, Row, StepRow,
};

/// What is written together or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Unit {
    Consumed {
        consume: ConsumeRow,
        registration: RegistrationRow,
        /// From a home of an earlier version: of a registration that was changed there, which stays one that was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<KeptDigest>,
    },
    Step {
        /// The consumption that it belongs to: a step of another effect under the same key is none of this one.
        of: ReplayKey,
        row: StepRow,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<KeptDigest>,
    },
    Envelope(EnvelopeRow),
    Decision(DecisionRow),
    Call(CallRow),
    Audit(AuditRow),
    /// In the place of a row that is not as it was written, or whose key has one that is not: nothing of that key is told,
    /// and it stays used. Without a key: the row belongs to none.
    Damaged {
        key: String,
        why: String,
    },
}

/// What the audit says of a key that came damaged.
const CAME_DAMAGED: &str = "came damaged";

/// A stretch of a mesh's units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// How many came before it.
    pub from: u64,
    pub units: Vec<Unit>,
    /// Nothing comes after it: from now on whoever took it decides.
    pub is_last: bool,
    pub at: WallMs,
}

/// How much of a mesh was taken over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    pub through: u64,
    pub is_whole: bool,
    /// Of this part: units that were not written, because something else stands in their place.
    pub skipped: u64,
}

impl Part {
    /// Whether it comes right behind what was taken. Everything else is answered with how far that is, and leaves
    /// nothing behind: whoever carries goes on from there.
    pub fn is_next(&self, taken: &Taken) -> bool {
        let is_something = self.is_last || !self.units.is_empty();
        is_something && !taken.is_whole && self.from == taken.through
    }

    pub(crate) fn through(&self) -> u64 {
        self.from + self.units.len() as u64
    }

    /// What the chain says of it, beside its rows.
    pub(crate) fn said(&self) -> String {
        format!(
            "taken over {}..{} {}",
            self.from,
            self.through(),
            self.is_last
        )
    }
}

impl Unit {
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// The rows that are decided by; a line of the audit is none.
    pub fn rows(&self) -> Vec<Row> {
        match self.clone() {
            Self::Consumed {
                consume,
                registration,
                ..
            } => vec![Row::Consume(consume), Row::Registration(registration)],
            Self::Step { row, .. } => vec![Row::Step(row)],
            Self::Envelope(row) => vec![Row::Envelope(row)],
            Self::Decision(row) => vec![Row::Decision(row)],
            Self::Call(row) => vec![Row::Call(row)],
            Self::Audit(_) | Self::Damaged { .. } => Vec::new(),
        }
    }

    /// Of what stands in the place of something damaged: the key that is never whole from now on, and a line of the audit
    /// that says why. None of a name that no key can have: nobody can ask for it.
    pub(crate) fn lost(&self, at: WallMs) -> Option<(LogicalKey, AuditRow)> {
        let Self::Damaged { key, why } = self else {
            return None;
        };
        let line = AuditRow {
            key: key.clone(),
            attempt_id: String::new(),
            event: CAME_DAMAGED.to_owned(),
            code: String::new(),
            detail: why.clone(),
            by: String::new(),
            at,
        };
        Some((LogicalKey::parse(key).ok()?, line))
    }

    /// What its rows are bound to.
    pub(crate) fn bound(&self) -> Bound {
        let (of, digest) = match self {
            Self::Consumed {
                consume, digest, ..
            } => (consume.replay_key, digest),
            Self::Step { of, digest, .. } => (*of, digest),
            _ => return Bound::default(),
        };
        Bound {
            of: Some(of),
            digest: digest.map(|digest| digest.0),
        }
    }

    /// With the names that the mailboxes of this member have elsewhere.
    #[must_use]
    pub fn of_member(mut self, member: &str) -> Self {
        let name = match &mut self {
            Self::Consumed { .. } | Self::Damaged { .. } => return self,
            Self::Step { row, .. } => &mut row.by,
            Self::Envelope(row) => &mut row.requested_by,
            Self::Decision(row) => &mut row.by,
            Self::Call(row) => &mut row.caller,
            Self::Audit(row) => &mut row.by,
        };
        let is_nobodys = name.is_empty() || name == AUTO || name == EXPIRED;
        let is_everybodys = name.starts_with('@') || is_nobodys;
        if !is_everybodys {
            *name = format!("@{member}/{name}");
        }
        self
    }
}

/// Digests as text.
pub(crate) mod in_hex {
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&super::hex(bytes))
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        super::unhex(&text).ok_or_else(|| de::Error::custom("no digest of 32 bytes in hex"))
    }
}

/// 32 bytes, as [`hex`] writes them.
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..64).step_by(2).map(byte).collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::NonceHash;
    use crate::binding::Effect;
    use crate::rows::{Grant, Purpose, Ruling, Step};

    fn units() -> Vec<Unit> {
        let effect = Effect::new("k", "deploy", "prod", "", "").unwrap();
        let (key, at) = (effect.key.clone(), WallMs(7));
        let replay_key = effect.replay_key("env_1");
        let nonce = NonceHash([3; 32]);
        let step = |by: &str| StepRow {
            key: key.clone(),
            round: 1,
            step: Step::Started { command_hash: None },
            attempt_id: "a".into(),
            nonce: None,
            by: by.into(),
            at,
        };
        let granted = |by: &str| DecisionRow {
            envelope_id: "env_1".into(),
            seq: 1,
            ruling: Ruling::Approved,
            grant: Some(Grant {
                nonce,
                purpose: Purpose::Register,
                not_before: at,
                expires_at: at,
            }),
            by: by.into(),
            at,
        };
        vec![
            Unit::Consumed {
                consume: ConsumeRow {
                    effect: effect.clone(),
                    approval: "env_1".into(),
                    replay_key,
                    nonce,
                    attempt_id: "a".into(),
                    consumed_at: at,
                    horizon_until: at,
                },
                registration: RegistrationRow {
                    key: key.clone(),
                    registration_id: "reg".into(),
                    receipt: "{\"registered_by\":\"planner\"}".into(),
                    registered_at: at,
                },
                digest: None,
            },
            Unit::Step {
                of: replay_key,
                row: step("planner"),
                digest: None,
            },
            Unit::Step {
                of: replay_key,
                row: step("@bob/coder"),
                digest: Some(KeptDigest([5; 32])),
            },
            Unit::Decision(granted(AUTO)),
            Unit::Call(CallRow {
                caller: "planner".into(),
                id: "c".into(),
                fingerprint: [9; 32],
                key,
                at,
            }),
            Unit::Damaged {
                key: "k".into(),
                why: "k: 1 of the rows".into(),
            },
        ]
    }

    #[test]
    fn a_unit_survives_the_way_and_only_names_of_the_home_change() {
        for unit in units() {
            let text = unit.to_text().unwrap();
            assert_eq!(Unit::parse(&text).unwrap(), unit, "{text}");
            let named = unit.clone().of_member("alice").to_text().unwrap();
            let is_ours = text.contains("\"planner\"") && !text.contains("registered_by");
            assert_eq!(named.contains("@alice/planner"), is_ours, "{named}");
            assert_eq!(named == text, !is_ours, "{named}");
            // A second time nothing changes: the names are everybody's by then.
            let again = unit.clone().of_member("alice").of_member("eve");
            assert_eq!(again.to_text().unwrap(), named);
        }
    }

    #[test]
    fn what_was_damaged_is_a_key_and_what_is_no_key_is_nobodys() {
        let damaged = |key: &str| Unit::Damaged {
            key: key.to_owned(),
            why: "why".to_owned(),
        };
        let (key, line) = damaged("k").lost(WallMs(7)).unwrap();
        assert_eq!((key.as_str(), line.detail.as_str()), ("k", "why"));
        for none in ["", "k\0"] {
            assert_eq!(damaged(none).lost(WallMs(7)), None);
        }
        assert!(
            units()[..5]
                .iter()
                .all(|unit| unit.lost(WallMs(7)).is_none())
        );
    }

    #[test]
    fn what_is_no_unit_is_refused() {
        let good = units()[0].to_text().unwrap();
        let longer = good.replacen("\"approval\"", "\"more\":1,\"approval\"", 1);
        let short = good.replacen(&hex(&[3; 32]), "03", 1);
        let control = good.replacen("\"k\"", "\"k\\u0000\"", 1);
        for bad in ["", "{}", "null", "[]", &longer, &short, &control] {
            assert!(Unit::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(unhex(&"é".repeat(32)), None);
        assert_eq!(unhex(&hex(&[0xab; 32])), Some([0xab; 32]));
    }
}
