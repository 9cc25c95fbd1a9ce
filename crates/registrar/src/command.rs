//! What can be asked of the registrar's store: one value, one transaction.

use heddle_core::clock::WallMs;
use serde::{Deserialize, Serialize};

use crate::authority::NonceHash;
use crate::binding::{Effect, LogicalKey};
use crate::code::Code;
use crate::facts::Facts;
use crate::rows::{Grant, Outcome, Row, Ruling};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub key: LogicalKey,
    pub by: String,
    pub now: WallMs,
    pub ask: Ask,
    /// The caller's own id for this request, where it gave one.
    pub call: Option<Call>,
}

/// The same id with the same fingerprint is the same request; with another one it is a mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub id: String,
    pub fingerprint: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    Request {
        effect: Effect,
        envelope_id: String,
        expires_at: WallMs,
        /// With the asker's own consent, or where nobody is asked: approved in the same transaction, so
        /// that nobody ever sees it wait.
        consent: Option<Consent>,
    },
    Decide {
        envelope_id: String,
        ruling: Ruling,
        grant: Option<Grant>,
    },
    Register(Register),
    Start {
        attempt_id: String,
        command_hash: Option<String>,
        /// Who asks could approve it, or nobody is asked.
        by_right: bool,
    },
    Finish {
        attempt_id: String,
        outcome: Outcome,
    },
    /// Said by the attempt that took the run, or began the compensation: its command could not be started.
    NotStarted {
        attempt_id: String,
        why: String,
    },
    /// To be asked only when the runner is certainly gone.
    Resolve {
        /// The effect that the word is about, in whole: one about another effect is a slip, and lets nothing run.
        of: Effect,
        /// The run that was seen to be gone; another one is not resolved in its place.
        round: Option<i64>,
        word: Word,
        note: String,
    },
    Verify {
        passed: bool,
        detail: String,
        /// Who says it could approve it.
        by_right: bool,
    },
    Compensate {
        nonce: Option<NonceHash>,
        attempt_id: String,
    },
    CompensationDone {
        attempt_id: String,
        outcome: Outcome,
    },
}

/// A grant, and who has given it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consent {
    pub grant: Grant,
    pub by: String,
}

/// What a person says of a run that nobody ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It did not happen, and may run again.
    Again,
    /// It happened, and went well.
    Done,
    /// It happened, and did not go well.
    Failed { exit_code: Option<i32> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    pub effect: Effect,
    /// The approval that the caller means; where it does not say, the nonce's or the consumed one.
    pub approval: Option<String>,
    pub nonce: Option<NonceHash>,
    /// The attempt that the caller says it is.
    pub said_attempt: Option<String>,
    /// The attempt that is written if this one wins.
    pub attempt_id: String,
    pub registration_id: String,
    pub looked_free: bool,
    pub is_fit: bool,
    pub horizon_until: WallMs,
    pub verify: Option<VerifyPlan>,
    /// SHA-256 of the command that is to be run, where the caller runs one.
    pub command_hash: Option<String>,
}

/// How an effect is to be verified. Kept with the registration, so that nobody closes it with less; never
/// run by anybody but who said it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VerifyPlan {
    pub command: Option<String>,
    pub url: Option<String>,
    /// The verdict is left to somebody.
    pub later: bool,
}

impl Ask {
    /// The nonce whose grant the decision needs.
    pub fn nonce(&self) -> Option<NonceHash> {
        match self {
            Self::Register(register) => register.nonce,
            Self::Compensate { nonce, .. } => *nonce,
            _ => None,
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Request { .. } => "request",
            Self::Decide { .. } => "decide",
            Self::Register(_) => "register",
            Self::Start { .. } => "start",
            Self::Finish { .. } => "finish",
            Self::NotStarted { .. } => "not_started",
            Self::Resolve { .. } => "resolve",
            Self::Verify { .. } => "verify",
            Self::Compensate { .. } => "compensate",
            Self::CompensationDone { .. } => "compensation_done",
        }
    }

    /// The same after somebody else was faster: what was free at the first look is taken by a race.
    #[must_use]
    pub fn after_a_lost_race(mut self) -> Self {
        if let Self::Register(register) = &mut self {
            register.looked_free = true;
        }
        self
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Written now.
    Fresh,
    /// Written before; what stands is the answer.
    Prior,
    /// Nothing was written but that something is over ([`crate::expiry`]), and nothing is told.
    Refused,
}

/// A decision: the answer, and the rows that make it true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stepped {
    pub kind: Kind,
    pub code: Option<Code>,
    pub rows: Vec<Row>,
}

impl Stepped {
    pub(crate) fn fresh(rows: Vec<Row>) -> Self {
        Self {
            kind: Kind::Fresh,
            code: None,
            rows,
        }
    }

    pub(crate) fn prior(code: Code) -> Self {
        Self {
            kind: Kind::Prior,
            code: Some(code),
            rows: Vec::new(),
        }
    }

    pub(crate) fn refused(code: Code) -> Self {
        Self {
            kind: Kind::Refused,
            code: Some(code),
            rows: Vec::new(),
        }
    }
}

/// What a store answers: the decision, and the facts as they stand after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    pub kind: Kind,
    pub code: Option<Code>,
    pub facts: Facts,
}
