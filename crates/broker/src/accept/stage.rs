//! Ops of an upload: through B0 and B1 like any others, with the budget they cost, and then laid aside.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use heddle_core::error_code::{ErrorCode, ErrorKind, Retry};
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{BrokerMessageId, IdKey};

use super::Accept;
use super::b3_commit::Origin;
use super::batch::{Admitted, Batch, Slot};
use super::reply::{Answer, Refusal};
use crate::limiter::Limiter;
use crate::storage::{Destination, NewMessage, Storage};

/// What becomes of an item that its sender would have to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// It is left out by name, and its neighbours are taken: whoever asks is told all of them.
    Named,
    /// It stays in the way: whoever asks is told no names, and would not know that it is missing.
    InTheWay,
}

impl Unfit {
    /// Whether the item has to come again. What waits for us, for a limiter or for a disk does so whoever asks.
    fn waits(self, refusal: &Refusal) -> bool {
        let is_ours = matches!(refusal.code.kind(), ErrorKind::Busy | ErrorKind::Internal);
        refusal.code.retry() == Retry::SameId && (is_ours || self == Self::InTheWay)
    }
}

/// What may be laid aside of some items.
#[derive(Debug, Default)]
pub struct Staged {
    pub messages: Vec<NewMessage>,
    /// So many items from the first on are settled: laid aside, known already, or left out.
    pub taken: usize,
    /// Of them: what cannot be taken as it is, now or later, and why; each by its number among the items.
    pub left_out: Vec<(usize, Refusal)>,
    /// Why the next one has to wait; it and those behind it come again.
    pub waits: Option<Refusal>,
}

pub(super) fn staged<S: Storage, L: Limiter>(
    accept: &Accept<S, L>,
    batch: Batch,
    unfit: Unfit,
) -> Staged {
    let accepted_at = accept.clock.wall();
    let origin = Origin {
        sender_name: batch.sender_name.clone(),
        session: None,
        accepted_at,
        expires_at: accept.expires_at(accepted_at),
    };
    let mut staged = Staged::default();
    let mut taken = BTreeMap::new();
    for (number, slot) in batch.slots.into_iter().enumerate() {
        let left_out = match slot {
            Slot::Admitted(mut admitted) if admitted.destination == Destination::Log => {
                match beside(&mut taken, &admitted) {
                    Beside::Nothing => {
                        // The epoch is the one of the commit.
                        admitted.epoch = None;
                        let id = BrokerMessageId(accept.ids.ulid());
                        staged.messages.push(origin.message(id, admitted));
                        None
                    }
                    Beside::Itself => None,
                    Beside::Another => Some(reused()),
                }
            }
            Slot::Answered(Answer::Duplicate(_)) => None,
            Slot::Answered(Answer::Conflict(_)) => Some(reused()),
            Slot::Answered(Answer::Refused(refusal)) if unfit.waits(&refusal) => {
                staged.waits = Some(refusal);
                return staged;
            }
            Slot::Answered(Answer::Refused(refusal)) => Some(refusal),
            Slot::Admitted(_) => Some(Refusal::new(
                ErrorCode::InvalidRequest,
                "an upload has ops of the log, and nothing else",
            )),
            _ => Some(Refusal::unanswered()),
        };
        staged.left_out.extend(left_out.map(|why| (number, why)));
        staged.taken += 1;
    }
    staged
}

/// What one of the items before it has under the same id.
enum Beside {
    Nothing,
    Itself,
    Another,
}

fn beside(taken: &mut BTreeMap<IdKey, Fingerprint>, admitted: &Admitted) -> Beside {
    let fingerprint = admitted.content.fingerprint;
    match taken.entry(admitted.id.key) {
        Entry::Vacant(free) => {
            free.insert(fingerprint);
            Beside::Nothing
        }
        Entry::Occupied(known) if *known.get() == fingerprint => Beside::Itself,
        Entry::Occupied(_) => Beside::Another,
    }
}

/// The words of a row whose id is another op's.
pub(crate) fn reused() -> Refusal {
    Refusal::new(
        ErrorCode::IdempotencyKeyReused,
        "another op has this id already; this one was not taken",
    )
}
