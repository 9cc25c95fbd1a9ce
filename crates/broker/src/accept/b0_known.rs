//! B0: ids that the broker already holds are answered from the table. One read for the batch, no
//! transaction, no limiter: a retry costs nothing and cannot be refused for load (BR-04, BR-16).

use heddle_core::gate::{Outcome, outcome};

use super::batch::{Batch, Candidate, Slot};
use super::reply::{Answer, Refusal};
use crate::storage::{Consumed, Look, SendId, Storage};

pub(super) async fn answer<S: Storage>(storage: &S, batch: &mut Batch) {
    let ids: Vec<SendId> = open(batch).map(|candidate| candidate.id.clone()).collect();
    if ids.is_empty() {
        return;
    }
    match storage.known(batch.mesh(), ids).await {
        Ok(looks) => {
            let mut looks = looks.into_iter();
            batch.decide_open(|candidate| match looks.next() {
                Some(look) => decide(candidate, look),
                None => Slot::Answered(Answer::Refused(Refusal::unanswered())),
            });
        }
        // Whether the ids are known cannot be said, so nothing may be said but "later".
        Err(error) => {
            let refusal = Refusal::from(error);
            batch.decide_open(|_| Slot::Answered(Answer::Refused(refusal.clone())));
        }
    }
}

fn open(batch: &Batch) -> impl Iterator<Item = &Candidate> {
    batch.slots.iter().filter_map(|slot| match slot {
        Slot::Open(candidate) => Some(candidate),
        _ => None,
    })
}

fn decide(candidate: Candidate, look: Look) -> Slot {
    match look.consumed {
        Some(consumed) => {
            // No unit was asked for: that is what a retry would have cost (RL-03).
            metrics::counter!("heddle_broker_rate_limit_saved_total").increment(1);
            Slot::Answered(known(&candidate, consumed))
        }
        None => Slot::Open(Candidate {
            sender_registered: look.sender_registered,
            ..candidate
        }),
    }
}

/// An envelope that cannot be read is not the one that consumed the id.
fn known(candidate: &Candidate, consumed: Consumed) -> Answer {
    let Ok(read) = &candidate.read else {
        return Answer::Conflict(consumed);
    };
    match outcome(Some(consumed.wire_fingerprint), read.content.fingerprint) {
        Outcome::Duplicate => Answer::Duplicate(consumed),
        Outcome::Fresh | Outcome::Conflict => Answer::Conflict(consumed),
    }
}
