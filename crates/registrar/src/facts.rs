//! Everything that the rows say of one key, as a decision sees it.

use heddle_core::clock::WallMs;

use crate::life::Stage;
use crate::policy::AUTO;
use crate::rows::{
    CallRow, ConsumeRow, DecisionRow, EnvelopeRow, Grant, Outcome, Purpose, RegistrationRow, Row,
    Ruling, Step, StepRow,
};

/// An envelope with all that was said about it, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    pub row: EnvelopeRow,
    pub decisions: Vec<DecisionRow>,
}

impl Envelope {
    pub fn ruling(&self) -> Option<Ruling> {
        self.said().last().map(|decision| decision.ruling)
    }

    /// Denied and revoked envelopes are over; so are those whose time, or whose last approval's window, is
    /// up: whoever asks then asks anew.
    pub fn is_live(&self, now: WallMs) -> bool {
        matches!(self.status(now), "awaiting_approval" | "approved")
    }

    pub fn status(&self, now: WallMs) -> &'static str {
        match self.ruling() {
            Some(ruling @ (Ruling::Denied | Ruling::Revoked)) => ruling.as_str(),
            _ if self.is_over(now) => "expired",
            Some(Ruling::Approved) if !self.is_granted(now) => "expired",
            Some(Ruling::Approved) => "approved",
            None => "awaiting_approval",
        }
    }

    /// Whether a nonce for the effect itself is still in its window.
    fn is_granted(&self, now: WallMs) -> bool {
        let grants = self.decisions.iter().filter_map(|decision| decision.grant);
        let mut grants = grants.filter(|grant| grant.purpose == Purpose::Register);
        grants.any(|grant| !self.has_ended(&grant, now))
    }
}

/// The presented nonce, as it was granted, and whether it was used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NonceFacts {
    pub envelope: Envelope,
    pub grant: Grant,
    pub is_used: bool,
}

impl NonceFacts {
    /// Whether somebody has taken it back since it was granted; a later grant does not bring it back.
    pub fn is_taken_back(&self) -> bool {
        let mut said = self.envelope.said().rev();
        let until = said.find(|decision| {
            let is_grant = decision
                .grant
                .is_some_and(|grant| grant.nonce == self.grant.nonce);
            is_grant || matches!(decision.ruling, Ruling::Denied | Ruling::Revoked)
        });
        until.is_none_or(|decision| decision.ruling != Ruling::Approved)
    }

    /// Whose it is: who asked for it, and who has said yes. What the policy grants by itself nobody ever sees, so
    /// whoever comes with it was let through.
    pub fn is_held_by(&self, by: &str) -> bool {
        let mut said = self.envelope.decisions.iter();
        let granted = said.find(|decision| {
            let grant = decision.grant.as_ref();
            grant.is_some_and(|grant| grant.nonce == self.grant.nonce)
        });
        let granted_by = granted.map(|decision| decision.by.as_str());
        self.envelope.row.requested_by == by || granted_by == Some(by) || granted_by == Some(AUTO)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Oldest first.
    pub envelopes: Vec<Envelope>,
    pub nonce: Option<NonceFacts>,
    pub consumed: Option<ConsumeRow>,
    pub registration: Option<RegistrationRow>,
    /// In the order in which they were written.
    pub steps: Vec<StepRow>,
    /// What the caller's own id of this request was used for, where it gave one.
    pub call: Option<CallRow>,
}

impl Facts {
    /// Where the effect stands. A resolution "again" takes its round back.
    pub fn stage(&self) -> Stage {
        let Some(last) = self.steps.last() else {
            return match self.consumed {
                None => Stage::Issued,
                Some(_) => Stage::Registered,
            };
        };
        let of_compensation = last.round <= 0;
        match &last.step {
            Step::Started { .. } => Stage::Running,
            Step::Resolved { again: false, .. } if of_compensation => Stage::Compensated,
            Step::Resolved { .. } | Step::NotStarted { .. } if of_compensation => {
                Stage::VerifyFailed
            }
            Step::Finished { .. } | Step::Resolved { again: false, .. } => Stage::Finished,
            Step::Resolved { again: true, .. } | Step::NotStarted { .. } => Stage::Registered,
            Step::Verified { passed: true, .. } => Stage::Closed,
            Step::Verified { passed: false, .. } => Stage::VerifyFailed,
            Step::Compensating => Stage::Compensating,
            Step::Compensated { outcome } if outcome.is_good() => Stage::Compensated,
            Step::Compensated { .. } => Stage::CompensationFailed,
        }
    }

    /// What must be there and is not: a row whose key was changed is read as if it had never been written, and what
    /// came after it is not. True of every history that the table of lives allows, and of each beginning of one.
    pub(crate) fn lost(&self) -> Option<&'static str> {
        if self.consumed.is_some() != self.registration.is_some() {
            return Some("its registration");
        }
        let is_orphaned = |(at, row): (usize, &StepRow)| {
            let mut before = self.steps[..at].iter();
            !match &row.step {
                Step::Started { .. } => true,
                Step::Verified { .. } => before.any(|it| {
                    let is_end = matches!(
                        it.step,
                        Step::Finished { .. } | Step::Resolved { again: false, .. }
                    );
                    is_end && it.round > 0
                }),
                Step::Compensating => {
                    before.any(|it| matches!(it.step, Step::Verified { passed: false, .. }))
                }
                Step::Finished { .. }
                | Step::Compensated { .. }
                | Step::Resolved { .. }
                | Step::NotStarted { .. } => before.any(|it| {
                    let begins = matches!(it.step, Step::Started { .. } | Step::Compensating);
                    begins && it.round == row.round
                }),
            }
        };
        let is_lost = self.steps.iter().enumerate().any(is_orphaned);
        is_lost.then_some("what is known of its run")
    }

    /// The run that is on, or was last.
    pub fn round(&self) -> i64 {
        self.steps.iter().map(|row| row.round).max().unwrap_or(0)
    }

    /// The compensation that is on, or was last; 0 for the first, then downwards.
    pub fn compensation_round(&self) -> i64 {
        let rounds = self.steps.iter().filter(|row| {
            let is_word = matches!(row.step, Step::Verified { .. });
            row.round <= 0 && !is_word
        });
        rounds.map(|row| row.round).min().unwrap_or(1)
    }

    /// Who began the last compensation.
    pub fn compensator(&self) -> Option<&StepRow> {
        self.steps
            .iter()
            .rev()
            .find(|row| matches!(row.step, Step::Compensating))
    }

    /// Who took the last run.
    pub fn runner(&self) -> Option<&StepRow> {
        self.steps
            .iter()
            .rev()
            .find(|row| matches!(row.step, Step::Started { .. }))
    }

    /// Whether the effect is this caller's: they asked for it, granted it, or registered it.
    pub fn is_of(&self, by: &str) -> bool {
        let Some(consumed) = &self.consumed else {
            return false;
        };
        let envelope = self.envelope(&consumed.approval);
        let asked = envelope.is_some_and(|envelope| envelope.row.requested_by == by);
        let granted = envelope.is_some_and(|envelope| {
            let mut said = envelope.decisions.iter();
            said.any(|decision| {
                let grant = decision.grant.as_ref();
                decision.by == by && grant.is_some_and(|grant| grant.nonce == consumed.nonce)
            })
        });
        let registration = self.registration.as_ref();
        asked || granted || registration.is_some_and(|row| row.registered_by() == by)
    }

    /// The command that it is to be run with: that of the last run, or of the registration.
    pub fn command_hash(&self) -> Option<String> {
        let run = self.steps.iter().rev().find_map(|row| match &row.step {
            Step::Started { command_hash } => command_hash.clone(),
            _ => None,
        });
        run.or_else(|| self.registration.as_ref()?.command_hash())
    }

    /// How the command ended, if anybody knows.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.steps.iter().rev().find_map(|row| match &row.step {
            Step::Finished { outcome } => Some(outcome),
            _ => None,
        })
    }

    /// What a person said of the last run: whether it went well, and its exit code.
    pub fn persons_word(&self) -> Option<(bool, Option<i32>)> {
        self.steps.iter().rev().find_map(|row| match &row.step {
            Step::Resolved {
                again: false,
                failed,
                exit_code,
                ..
            } if row.round > 0 => Some((!failed, *exit_code)),
            _ => None,
        })
    }

    /// The verifier's word, if there is one.
    pub fn verdict(&self) -> Option<bool> {
        self.steps.iter().find_map(|row| match &row.step {
            Step::Verified { passed, .. } => Some(*passed),
            _ => None,
        })
    }

    /// How the last compensation ended, if anybody knows.
    pub fn compensation_outcome(&self) -> Option<&Outcome> {
        let round = self.compensation_round();
        self.steps.iter().find_map(|row| match &row.step {
            Step::Compensated { outcome } if row.round == round => Some(outcome),
            _ => None,
        })
    }

    pub fn envelope(&self, id: &str) -> Option<&Envelope> {
        self.envelopes
            .iter()
            .find(|envelope| envelope.row.envelope_id == id)
    }

    /// The envelope that says how the key stands before anything is registered: an approval that is good, then one that
    /// waits for a word, and the newest of either; where nothing is live any more the newest of all.
    pub fn foremost(&self, now: WallMs) -> Option<&Envelope> {
        let newest = |status: &str| {
            let mut all = self.envelopes.iter().rev();
            all.find(|envelope| envelope.status(now) == status)
        };
        newest("approved")
            .or_else(|| newest("awaiting_approval"))
            .or_else(|| self.envelopes.last())
    }

    /// The newest envelope that can still lead to a registration.
    pub fn live_envelope(&self, now: WallMs) -> Option<&Envelope> {
        self.envelopes
            .iter()
            .rev()
            .find(|envelope| envelope.is_live(now))
    }

    /// The one that this caller asked for; those of others are bound to them.
    pub fn live_envelope_of(&self, by: &str, now: WallMs) -> Option<&Envelope> {
        let mut own = self.envelopes.iter().rev();
        own.find(|envelope| envelope.row.requested_by == by && envelope.is_live(now))
    }

    /// The facts after these rows were written.
    #[must_use]
    pub fn with(mut self, rows: &[Row]) -> Self {
        for row in rows.iter().cloned() {
            match row {
                Row::Envelope(row) => self.envelopes.push(Envelope {
                    row,
                    decisions: Vec::new(),
                }),
                Row::Decision(row) => {
                    let nonce = self.nonce.iter_mut().map(|nonce| &mut nonce.envelope);
                    let all = self.envelopes.iter_mut().chain(nonce);
                    for envelope in all.filter(|it| it.row.envelope_id == row.envelope_id) {
                        envelope.decisions.push(row.clone());
                    }
                }
                Row::Consume(row) => self.consumed = Some(row),
                Row::Registration(row) => self.registration = Some(row),
                Row::Step(row) => self.steps.push(row),
                Row::Call(row) => self.call = Some(row),
            }
        }
        self
    }
}
