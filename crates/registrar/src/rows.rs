//! What is stored, row by row. Every row is written once and never changed (RG-16).

use heddle_core::clock::WallMs;
use serde::{Deserialize, Serialize};

use crate::authority::NonceHash;
use crate::binding::{Effect, LogicalKey, ReplayKey};
use crate::carry::in_hex;

/// A request for approval; its id is what a registration is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvelopeRow {
    pub envelope_id: String,
    pub effect: Effect,
    pub replay_key: ReplayKey,
    pub requested_by: String,
    pub requested_at: WallMs,
    /// After this the request is stale: nothing new is registered under it.
    pub expires_at: WallMs,
}

/// What somebody with the right said about an envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    Approved,
    Denied,
    Revoked,
}

impl Ruling {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Revoked => "revoked",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Approved, Self::Denied, Self::Revoked]
            .into_iter()
            .find(|ruling| ruling.as_str() == text)
    }
}

/// What a nonce authorises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    Register,
    Compensate,
}

impl Purpose {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Register => "register",
            Self::Compensate => "compensate",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Register, Self::Compensate]
            .into_iter()
            .find(|purpose| purpose.as_str() == text)
    }
}

/// A nonce as it is stored: hashed, for one purpose, within a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    pub nonce: NonceHash,
    pub purpose: Purpose,
    pub not_before: WallMs,
    pub expires_at: WallMs,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionRow {
    pub envelope_id: String,
    /// 1, 2, 3, …: the last one counts.
    pub seq: i64,
    pub ruling: Ruling,
    /// With every approval.
    pub grant: Option<Grant>,
    pub by: String,
    pub at: WallMs,
}

/// The key is used up. Stays for the horizon and beyond: nothing deletes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsumeRow {
    pub effect: Effect,
    /// `owner_or_approval_binding`: the envelope under which it was approved.
    pub approval: String,
    pub replay_key: ReplayKey,
    pub nonce: NonceHash,
    pub attempt_id: String,
    pub consumed_at: WallMs,
    pub horizon_until: WallMs,
}

/// The inert registration: written with the consume row or not at all (RG-02).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegistrationRow {
    pub key: LogicalKey,
    pub registration_id: String,
    /// The answer of the first try, returned byte for byte to every later one (RG-03).
    pub receipt: String,
    pub registered_at: WallMs,
}

impl RegistrationRow {
    fn said(&self, name: &str) -> Option<String> {
        let receipt: serde_json::Value = serde_json::from_str(&self.receipt).ok()?;
        Some(receipt[name].as_str()?.to_owned())
    }

    pub fn registered_by(&self) -> String {
        self.said("registered_by").unwrap_or_default()
    }

    /// Of the command that it was registered with, where whoever did it has said so.
    pub fn command_hash(&self) -> Option<String> {
        self.said("command_hash")
    }
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// None where it was ended by a signal, or where only a person's word says that it ended.
    pub exit_code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// More was printed than is kept.
    pub truncated: bool,
}

impl Outcome {
    pub fn is_good(&self) -> bool {
        self.exit_code == Some(0)
    }
}

/// One step after the registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    Started {
        /// Of the command that is run, where whoever runs it says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_hash: Option<String>,
    },
    /// The command could not be started at all: nothing ran, and the round is given back.
    NotStarted {
        why: String,
    },
    Finished {
        outcome: Outcome,
    },
    Resolved {
        again: bool,
        note: String,
        /// It happened, and not well.
        #[serde(default)]
        failed: bool,
        #[serde(default)]
        exit_code: Option<i32>,
    },
    Verified {
        passed: bool,
        detail: String,
    },
    Compensating,
    Compensated {
        outcome: Outcome,
    },
}

impl Step {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::NotStarted { .. } => "not_started",
            Self::Finished { .. } => "finished",
            Self::Resolved { .. } => "resolved",
            Self::Verified { .. } => "verified",
            Self::Compensating => "compensating",
            Self::Compensated { .. } => "compensated",
        }
    }

    /// Its name in the table's unique key. What was not started ends its round as a person's word does,
    /// and a round ends in one way only.
    pub fn column(&self) -> &'static str {
        match self {
            Self::NotStarted { .. } => "resolved",
            other => other.kind(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepRow {
    pub key: LogicalKey,
    /// Which run it belongs to: 1, and one more for each time that one was given back. A verdict has 0;
    /// compensations have 0, -1, -2, … in the same way.
    pub round: i64,
    pub step: Step,
    pub attempt_id: String,
    /// With `Compensating` only.
    pub nonce: Option<NonceHash>,
    pub by: String,
    pub at: WallMs,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Row {
    Envelope(EnvelopeRow),
    Decision(DecisionRow),
    Consume(ConsumeRow),
    Registration(RegistrationRow),
    Step(StepRow),
    Call(CallRow),
}

impl Row {
    /// The key that it is about; a decision knows its envelope only.
    pub(crate) fn key(&self) -> Result<&LogicalKey, &str> {
        match self {
            Self::Envelope(row) => Ok(&row.effect.key),
            Self::Decision(row) => Err(&row.envelope_id),
            Self::Consume(row) => Ok(&row.effect.key),
            Self::Registration(row) => Ok(&row.key),
            Self::Step(row) => Ok(&row.key),
            Self::Call(row) => Ok(&row.key),
        }
    }
}

/// A caller's own id for one request (`Idempotency-Key`): consumed with what the request wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallRow {
    pub caller: String,
    pub id: String,
    /// Over the verb and everything that was asked.
    #[serde(with = "in_hex")]
    pub fingerprint: [u8; 32],
    pub key: LogicalKey,
    pub at: WallMs,
}

/// A line of the audit, written outside of every transaction that it tells of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditRow {
    pub key: String,
    pub attempt_id: String,
    /// `attempt`, `refused` or `failed`, and the step it was about.
    pub event: String,
    pub code: String,
    pub detail: String,
    pub by: String,
    pub at: WallMs,
}
