//! B1: shape, size, destination kind, sender, then the budget. Nothing is written, no transaction is
//! open; after a refusal the same id may come again (BR-05).

use std::time::Duration;

use heddle_core::error_code::ErrorCode;
use heddle_core::ids::IdKey;

use super::batch::{Admitted, Batch, Candidate, Read, Slot};
use super::reply::{Answer, Refusal};
use crate::limiter::{Decision, Limiter, LimiterError};
use crate::storage::LimiterNote;

/// A limiter that takes longer is taken for down (C35).
const LIMITER_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) async fn admit<L: Limiter>(limiter: &L, batch: &mut Batch) {
    batch.decide_open(|candidate| match check(candidate) {
        Ok(admitted) => Slot::Admitted(admitted),
        Err(refusal) => Slot::Answered(Answer::Refused(refusal)),
    });
    meter(limiter, batch).await;
}

fn check(candidate: Candidate) -> Result<Admitted, Refusal> {
    let Read {
        destination,
        content,
    } = candidate.read?;
    let destination = destination?;
    if !candidate.sender_registered {
        // Not the message's fault: the daemon registers the agent and sends it again.
        return Err(Refusal::new(
            ErrorCode::UnknownAgent,
            format!("{} is not registered", candidate.id.sender),
        ));
    }
    Ok(Admitted {
        id: candidate.id,
        destination,
        content,
        limiter: None,
        epoch: candidate.epoch,
    })
}

/// IMPORTANT: after every check that costs nothing, so that a refused send uses no budget.
async fn meter<L: Limiter>(limiter: &L, batch: &mut Batch) {
    let keys: Vec<IdKey> = admitted(batch).map(|admitted| admitted.id.key).collect();
    if keys.is_empty() {
        return;
    }
    let asked = tokio::time::timeout(LIMITER_TIMEOUT, limiter.consume(batch.mesh(), &keys)).await;
    let mut decisions = match asked {
        Ok(Ok(decisions)) => decisions.into_iter(),
        Ok(Err(error)) => return refuse_all(batch, &error),
        Err(_) => return refuse_all(batch, &LimiterError("no answer in time".to_owned())),
    };
    batch.decide_admitted(|admitted| match decisions.next() {
        Some(Decision::Granted { window, counted }) => {
            if counted {
                metrics::counter!("heddle_broker_rate_limit_consumed_total").increment(1);
            } else {
                metrics::counter!("heddle_broker_rate_limit_free_total").increment(1);
            }
            Slot::Admitted(Admitted {
                limiter: Some(LimiterNote { window, counted }),
                ..admitted
            })
        }
        Some(Decision::Denied { retry_after }) => {
            let refusal = Refusal::new(
                ErrorCode::RateLimited,
                "the mesh has used up this window's budget",
            );
            Slot::Answered(Answer::Refused(refusal.after(retry_after)))
        }
        None => Slot::Answered(Answer::Refused(Refusal::unanswered())),
    });
}

/// Never unmetered, never for good: the daemon tries again (RL-06).
fn refuse_all(batch: &mut Batch, error: &LimiterError) {
    let refusal = Refusal::new(ErrorCode::LimiterUnavailable, error.to_string());
    batch.decide_admitted(|_| Slot::Answered(Answer::Refused(refusal.clone())));
}

fn admitted(batch: &Batch) -> impl Iterator<Item = &Admitted> {
    batch.slots.iter().filter_map(|slot| match slot {
        Slot::Admitted(admitted) => Some(admitted),
        _ => None,
    })
}
