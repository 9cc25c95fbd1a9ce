//! Answers become verdicts, and are counted: the one place where the gate speaks the wire's language.

use std::time::Duration;

use heddle_core::error_code::ErrorCode;
use heddle_core::ids::{BrokerMessageId, ClientMessageId, HistoryId};
use heddle_wire::broker::{CONFLICT_FINGERPRINT, Refused, Verdict};

use super::batch::{Batch, Slot};
use crate::storage::{Consumed, StorageError};

#[derive(Debug, Clone)]
pub(super) enum Answer {
    Created {
        broker_message_id: BrokerMessageId,
        history_id: HistoryId,
    },
    Duplicate(Consumed),
    Conflict(Consumed),
    Refused(Refusal),
}

/// A refusal, by its code and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub code: ErrorCode,
    pub detail: String,
    /// How long to wait, where that is known.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    pub(crate) fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            retry_after: None,
        }
    }

    pub(super) fn after(self, wait: Duration) -> Self {
        Self {
            retry_after: Some(wait),
            ..self
        }
    }

    /// A part of ours gave fewer answers than it was asked for. Nothing is known, so: later.
    pub(super) fn unanswered() -> Self {
        Self::new(ErrorCode::Internal, "no answer for this item")
    }
}

impl From<StorageError> for Refusal {
    fn from(error: StorageError) -> Self {
        let code = match &error {
            StorageError::UnknownMesh(_) => ErrorCode::UnknownMesh,
            // A connection makes its member exist before anything else: this is a fault of ours.
            StorageError::UnknownMember(_) => ErrorCode::Internal,
            StorageError::UnknownAgent(_) => ErrorCode::UnknownAgent,
            StorageError::TopicFull(_) => ErrorCode::InvalidRequest,
            StorageError::Full => ErrorCode::InsufficientStorage,
            StorageError::Held | StorageError::Unavailable(_) => ErrorCode::StorageUnavailable,
        };
        Self::new(code, error.to_string())
    }
}

/// As it goes over the wire.
pub fn refused(refusal: Refusal) -> Refused {
    Refused {
        code: refusal.code.as_str().to_owned(),
        detail: refusal.detail,
        retry_after_ms: refusal.retry_after.map(ms_up),
    }
}

/// Rounded up: whoever waits so long is not too early.
fn ms_up(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

pub(super) fn verdicts(batch: Batch) -> Vec<Verdict> {
    let answers = batch.slots.into_iter().map(|slot| match slot {
        Slot::Answered(answer) => answer,
        _ => Answer::Refused(Refusal::unanswered()),
    });
    let answers = answers.inspect(count).zip(batch.ids);
    answers.map(|(answer, id)| verdict(answer, id)).collect()
}

/// As v6 §4.5 has it.
fn verdict(answer: Answer, id: ClientMessageId) -> Verdict {
    let client_message_id = Some(id);
    match answer {
        Answer::Created {
            broker_message_id,
            history_id,
        } => Verdict::Created {
            broker_message_id,
            client_message_id,
            history_id,
            duplicate: false,
        },
        Answer::Duplicate(consumed) => Verdict::Duplicate {
            broker_message_id: consumed.broker_message_id,
            client_message_id,
            history_id: consumed.history_id,
            duplicate: true,
            history_available: consumed.history_available,
            first_seen_at: consumed.first_seen_at.0,
        },
        Answer::Conflict(consumed) => Verdict::Conflict {
            client_message_id,
            conflict: CONFLICT_FINGERPRINT.to_owned(),
            broker_fingerprint_prefix: consumed.wire_fingerprint.prefix(),
        },
        Answer::Refused(refusal) => Verdict::Refused(refused(refusal)),
    }
}

fn count(answer: &Answer) {
    let verdict = match answer {
        Answer::Created { .. } => "created",
        Answer::Duplicate(_) => "duplicate",
        Answer::Conflict(_) => "idempotency_key_reused",
        Answer::Refused(refusal) => refusal.code.as_str(),
    };
    metrics::counter!("heddle_broker_accept_total", "verdict" => verdict).increment(1);
    if let Answer::Conflict(consumed) = answer {
        metrics::counter!("heddle_broker_dedupe_fingerprint_mismatch_total").increment(1);
        // The id is too varied for a label, and just what an operator looks for.
        let history_id = consumed.history_id;
        tracing::warn!(%history_id, "an id came again with another request");
    }
}
