//! What was over stays over, whichever way the clock is set. Windows and requests end by the wall clock of who decides; once
//! somebody was answered by that, it is written down among the decisions, and the row counts from then on, not the clock.
//!
//! A mark says how late it was. What was granted before it and had ended by then has ended for good; what is granted after
//! it is not touched, and neither is a longer window beside the one that was over.

use heddle_core::clock::WallMs;

use crate::command::{Ask, Command};
use crate::facts::{Envelope, Facts};
use crate::life::Stage;
use crate::rows::{DecisionRow, Grant, Purpose, Row, Ruling};

/// Nobody's word: whose it would be in a mark.
pub const EXPIRED: &str = "policy (expired)";

impl DecisionRow {
    /// Nobody has said it: the time of a request, or of what was granted, was over.
    pub fn is_mark(&self) -> bool {
        self.by == EXPIRED && self.ruling == Ruling::Revoked
    }

    /// What it is called to people.
    pub fn word(&self) -> &'static str {
        if self.is_mark() {
            "expired"
        } else {
            self.ruling.as_str()
        }
    }
}

impl Envelope {
    /// What somebody has said, oldest first.
    pub fn said(&self) -> impl DoubleEndedIterator<Item = &DecisionRow> {
        self.decisions.iter().filter(|row| !row.is_mark())
    }

    /// Whether the request itself is too old, or was once.
    pub fn is_over(&self, now: WallMs) -> bool {
        now >= self.row.expires_at || self.was_seen(self.row.expires_at, 0)
    }

    /// Whether the window of what was granted is over, or was once.
    pub fn has_ended(&self, grant: &Grant, now: WallMs) -> bool {
        let mut rows = self.decisions.iter();
        let of = rows.find(|row| row.grant.is_some_and(|it| it.nonce == grant.nonce));
        now >= grant.expires_at || self.was_seen(grant.expires_at, of.map_or(0, |row| row.seq))
    }

    /// Whether somebody was answered at this time or later, behind this row.
    fn was_seen(&self, end: WallMs, behind: i64) -> bool {
        let mut marks = self.decisions.iter().filter(|row| row.is_mark());
        marks.any(|mark| mark.seq > behind && mark.at >= end)
    }

    /// What is over by now and is not written down as such, where somebody could still use it.
    fn mark(&self, now: WallMs, purpose: Purpose) -> Option<DecisionRow> {
        let is_open = !matches!(self.ruling(), Some(Ruling::Denied | Ruling::Revoked));
        let ends_now = |end: WallMs, behind| now >= end && !self.was_seen(end, behind);
        let request = purpose == Purpose::Register && ends_now(self.row.expires_at, 0);
        let window = self.decisions.iter().any(|row| {
            let grant = row.grant.filter(|grant| grant.purpose == purpose);
            grant.is_some_and(|grant| ends_now(grant.expires_at, row.seq))
        });
        (is_open && (request || window)).then(|| DecisionRow {
            envelope_id: self.row.envelope_id.clone(),
            seq: self.decisions.last().map_or(1, |last| last.seq + 1),
            ruling: Ruling::Revoked,
            grant: None,
            by: EXPIRED.to_owned(),
            at: now,
        })
    }
}

/// The marks that this command leaves: of a key that is free, when somebody wants it; of one that can be made up for, when
/// somebody wants that. Whoever only comes again for what has happened writes nothing (RG-03).
pub(crate) fn marks(facts: &Facts, command: &Command) -> Vec<Row> {
    let is_free = facts.consumed.is_none();
    let purpose = match &command.ask {
        Ask::Request { .. } | Ask::Register(_) | Ask::Decide { .. } if is_free => Purpose::Register,
        Ask::Compensate { .. } | Ask::Decide { .. } if facts.stage() == Stage::VerifyFailed => {
            Purpose::Compensate
        }
        _ => return Vec::new(),
    };
    let marks = facts.envelopes.iter();
    let marks = marks.filter_map(|envelope| envelope.mark(command.now, purpose));
    marks.map(Row::Decision).collect()
}
