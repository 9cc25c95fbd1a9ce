//! B3: admitted items become messages with ids and times, and the store's answers become ours.
//!
//! IMPORTANT: an error of the store is never a permanent refusal. The commit may have happened, and
//! a daemon that is told "never" would bury a message that the broker holds (BR-09, BR-10).

use std::collections::BTreeSet;

use heddle_core::clock::WallMs;
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::BrokerMessageId;
use heddle_core::membership::Bar;
use heddle_core::names::{MemberName, QueueName};
use heddle_core::retention::DedupeMode;

use super::batch::{Admitted, Batch, Slot};
use super::effects::Effects;
use super::reply::{Answer, Refusal};
use super::{Accept, Limiter, Storage};
use crate::storage::{Accepted, Destination, NewMessage, StorageError};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Commits what was admitted, answers it, and returns what follows from it.
pub(super) async fn commit<S: Storage, L: Limiter>(
    accept: &Accept<S, L>,
    batch: &mut Batch,
) -> Effects {
    let mut effects = Effects::none(batch.mesh());
    let messages = messages(accept, batch);
    if messages.is_empty() {
        return effects;
    }
    // Worth a look even where one of them is refused after all: it is a hint.
    effects.work = queues(&messages);
    let begun = accept.clock.mono();
    let committed = accept.storage.accept(batch.mesh(), messages).await;
    let took = accept.clock.mono().saturating_sub(begun);
    metrics::histogram!("heddle_broker_commit_seconds").record(took.as_secs_f64());
    answer(batch, committed, &mut effects);
    effects
}

fn queues(messages: &[NewMessage]) -> BTreeSet<QueueName> {
    let queues = messages.iter().filter_map(|one| match &one.destination {
        Destination::Queue(queue) => Some(queue.clone()),
        Destination::Topic(_) | Destination::Dm(_) | Destination::Log => None,
    });
    queues.collect()
}

/// Takes the admitted items out of the batch, in order.
fn messages<S: Storage, L: Limiter>(accept: &Accept<S, L>, batch: &mut Batch) -> Vec<NewMessage> {
    let accepted_at = accept.clock.wall();
    let origin = Origin {
        sender_name: batch.sender_name.clone(),
        session: batch.session,
        accepted_at,
        expires_at: expires_at(accept.dedupe, accepted_at),
    };
    let mut messages = Vec::new();
    batch.decide_admitted(|admitted| {
        let id = BrokerMessageId(accept.ids.ulid());
        let is_op = admitted.destination == Destination::Log;
        let counted = admitted.limiter.is_some_and(|note| note.counted);
        messages.push(origin.message(id, admitted));
        Slot::Committing { id, is_op, counted }
    });
    messages
}

/// Who sends a batch, and when.
pub(super) struct Origin {
    pub(super) sender_name: MemberName,
    pub(super) session: Option<u64>,
    pub(super) accepted_at: WallMs,
    pub(super) expires_at: Option<WallMs>,
}

impl Origin {
    pub(super) fn message(
        &self,
        broker_message_id: BrokerMessageId,
        admitted: Admitted,
    ) -> NewMessage {
        let content = admitted.content;
        let is_op = admitted.destination == Destination::Log;
        NewMessage {
            is_heard: false,
            id: admitted.id,
            sender_name: self.sender_name.clone(),
            broker_message_id,
            wire_fingerprint: content.fingerprint,
            destination: admitted.destination,
            priority: content.priority,
            mentions: content.mentions,
            envelope: content.envelope,
            accepted_at: self.accepted_at,
            expires_at: self.expires_at,
            limiter: admitted.limiter,
            // Only the log's order has a reader that must hear of a new epoch before it goes on.
            epoch: admitted.epoch.filter(|_| is_op),
            session: self.session,
        }
    }
}

/// Answers what was in the transaction, and collects what follows from it.
fn answer(
    batch: &mut Batch,
    committed: Result<Vec<Accepted>, StorageError>,
    effects: &mut Effects,
) {
    let (mut accepted, fallback) = match committed {
        Ok(accepted) => (accepted.into_iter(), Refusal::unanswered()),
        Err(error) => (Vec::new().into_iter(), Refusal::from(error)),
    };
    for slot in &mut batch.slots {
        if let Slot::Committing { id, is_op, counted } = *slot {
            let answer = match accepted.next() {
                Some(accepted) => {
                    effects.log |= is_op && matches!(accepted, Accepted::Created { .. });
                    note_used(&accepted, counted);
                    one(accepted, id, effects)
                }
                None => Answer::Refused(fallback.clone()),
            };
            *slot = Slot::Answered(answer);
        }
    }
}

/// The budget is not given back (v10 §4.6.4); the difference can be seen here. A retry in the same window used none.
fn note_used(accepted: &Accepted, counted: bool) {
    if counted && matches!(accepted, Accepted::UnknownRecipient | Accepted::Barred(_)) {
        metrics::counter!("heddle_broker_rate_limit_consumed_then_b2_rejected_total").increment(1);
    }
}

fn one(accepted: Accepted, broker_message_id: BrokerMessageId, effects: &mut Effects) -> Answer {
    match accepted {
        Accepted::Created {
            history_id,
            recipients,
            withheld,
            is_new_queue,
        } => {
            if withheld > 0 {
                let dropped = u64::try_from(withheld).unwrap_or(u64::MAX);
                metrics::counter!("heddle_broker_messages_dropped_by_grant_total")
                    .increment(dropped);
            }
            effects.wake(&recipients);
            effects.roster |= is_new_queue;
            Answer::Created {
                broker_message_id,
                history_id,
            }
        }
        Accepted::Duplicate(consumed) => Answer::Duplicate(consumed),
        Accepted::Conflict(consumed) => Answer::Conflict(consumed),
        Accepted::UnknownRecipient => Answer::Refused(Refusal::new(
            ErrorCode::UnknownRecipient,
            "the topic or agent does not exist",
        )),
        Accepted::Barred(bar) => Answer::Refused(match bar {
            Bar::Revoked => Refusal::new(
                ErrorCode::MemberRevoked,
                "the sender was shut out of the mesh",
            ),
            Bar::Blocked => Refusal::new(
                ErrorCode::MemberBlocked,
                "the sender is blocked in the mesh",
            ),
        }),
        // The newer session sends it again.
        Accepted::Superseded => Answer::Refused(Refusal::new(
            ErrorCode::StorageUnavailable,
            "a newer connection of this member has taken over",
        )),
        Accepted::OtherEpoch(epoch) => Answer::Refused(Refusal::new(
            ErrorCode::EpochMismatch,
            format!("the history is in epoch {epoch}"),
        )),
        Accepted::Failed(reason) => Answer::Refused(Refusal::new(ErrorCode::Internal, reason)),
    }
}

pub(super) fn expires_at(dedupe: DedupeMode, from: WallMs) -> Option<WallMs> {
    match dedupe {
        DedupeMode::Permanent => None,
        DedupeMode::RetentionScoped { days } => {
            Some(WallMs(from.0.saturating_add(i64::from(days) * DAY_MS)))
        }
    }
}
