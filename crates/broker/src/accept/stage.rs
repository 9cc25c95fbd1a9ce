//! Ops of an upload: through B0 and B1 like any others, with the budget they cost, and then laid aside.

use heddle_core::error_code::Retry;
use heddle_core::ids::BrokerMessageId;

use super::Accept;
use super::b3_commit::Origin;
use super::batch::{Batch, Slot};
use super::reply::{Answer, Refusal};
use crate::limiter::Limiter;
use crate::storage::{Destination, NewMessage, Storage};

/// What may be laid aside of some items.
#[derive(Debug, Default)]
pub struct Staged {
    pub messages: Vec<NewMessage>,
    /// So many items from the first on are settled: laid aside, known already, or left out.
    pub taken: usize,
    /// Of them: what cannot be taken as it is, now or later. Sent by itself it hears why.
    pub left_out: usize,
    /// Why the next one has to wait; it and those behind it come again.
    pub waits: Option<Refusal>,
}

pub(super) fn staged<S: Storage, L: Limiter>(accept: &Accept<S, L>, batch: Batch) -> Staged {
    let accepted_at = accept.clock.wall();
    let origin = Origin {
        sender_name: batch.sender_name.clone(),
        session: None,
        accepted_at,
        expires_at: accept.expires_at(accepted_at),
    };
    let mut staged = Staged::default();
    for slot in batch.slots {
        match slot {
            Slot::Admitted(mut admitted) if admitted.destination == Destination::Log => {
                // The epoch is the one of the commit.
                admitted.epoch = None;
                let id = BrokerMessageId(accept.ids.ulid());
                staged.messages.push(origin.message(id, admitted));
            }
            Slot::Answered(Answer::Duplicate(_)) => {}
            Slot::Answered(Answer::Refused(refusal)) if refusal.code.retry() == Retry::SameId => {
                staged.waits = Some(refusal);
                return staged;
            }
            _ => staged.left_out += 1,
        }
        staged.taken += 1;
    }
    staged
}
