//! Rows of an upload that its commit could not take, by name: nothing of what was uploaded is missing without a word.

use heddle_core::error_code::ErrorCode;
use heddle_core::ids::ClientMessageId;
use heddle_core::names::AgentName;

use super::rows::{Accepted, SendId};

/// So many are named; the rest is counted.
const NAMED_MAX: usize = 100;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    pub count: u64,
    /// The first of them, in the order of the upload.
    pub named: Vec<LeftOutRow>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOutRow {
    pub agent: AgentName,
    pub client_message_id: ClientMessageId,
    /// Why.
    pub code: ErrorCode,
}

impl LeftOut {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What the accept made of a row. One that is known already as what it is was not left out.
    pub(super) fn note(&mut self, id: &SendId, accepted: &Accepted) {
        let code = match accepted {
            Accepted::Created { .. } | Accepted::Duplicate(_) => return,
            Accepted::Conflict(_) => ErrorCode::IdempotencyKeyReused,
            _ => ErrorCode::Internal,
        };
        self.add(LeftOutRow {
            agent: id.sender.agent.clone(),
            client_message_id: id.client_message_id.clone(),
            code,
        });
    }

    fn add(&mut self, row: LeftOutRow) {
        self.count += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(row);
        }
    }

    /// With those of a later step.
    pub(super) fn and(mut self, later: Self) -> Self {
        let unnamed = later.count - later.named.len() as u64;
        later.named.into_iter().for_each(|row| self.add(row));
        self.count += unnamed;
        self
    }

    /// As a store keeps it: nothing, or how many there are and the names.
    pub(super) fn to_text(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let named = self.named.iter().map(|row| {
            let (agent, id) = (row.agent.as_str(), row.client_message_id.as_str());
            (agent, id, row.code.as_str())
        });
        let named: Vec<_> = named.collect();
        serde_json::to_string(&(self.count, named)).unwrap_or_default()
    }

    /// `None` where it is no such text.
    pub(super) fn of_text(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::default());
        }
        let (count, kept): (u64, Vec<(String, String, String)>) =
            serde_json::from_str(text).ok()?;
        let named = kept.into_iter().map(|(agent, id, code)| {
            Some(LeftOutRow {
                agent: AgentName::parse(&agent).ok()?,
                client_message_id: ClientMessageId::parse(&id).ok()?,
                code: ErrorCode::parse(&code)?,
            })
        });
        let named: Vec<_> = named.collect::<Option<_>>()?;
        (count >= named.len() as u64).then_some(Self { count, named })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(from: u64, count: u64) -> LeftOut {
        let mut all = LeftOut::default();
        for number in from..from + count {
            all.add(LeftOutRow {
                agent: AgentName::parse("one").unwrap(),
                client_message_id: ClientMessageId::parse(&format!("\"op\" {number}")).unwrap(),
                code: ErrorCode::IdempotencyKeyReused,
            });
        }
        all
    }

    #[test]
    fn it_is_kept_as_it_is_and_no_longer_than_its_bound() {
        for count in [0, 1, 99, 100, 101, 1000] {
            let all = some(0, count);
            assert_eq!(all.named.len() as u64, count.min(NAMED_MAX as u64));
            assert_eq!(LeftOut::of_text(&all.to_text()), Some(all));
        }
        for bad in [
            "x",
            "[]",
            "[0,[[\"one\",\"a\",\"internal\"]]]",
            "[1,[[\"one\",\"a\",\"nothing\"]]]",
        ] {
            assert_eq!(LeftOut::of_text(bad), None, "{bad}");
        }
    }

    #[test]
    fn steps_add_up_to_what_one_would_have_found() {
        for (first, later) in [(0, 5), (5, 0), (60, 60), (150, 150)] {
            assert_eq!(
                some(0, first).and(some(first, later)),
                some(0, first + later)
            );
        }
    }
}
