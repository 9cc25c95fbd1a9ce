//! What a broker's answer means for the outbox row that asked (DR-03).
//!
//! Only a code on the closed list kills a row; everything else, known or not, is tried again.

use crate::error_code::ErrorCode;
use crate::ids::{BrokerMessageId, HistoryId};

/// The broker's verdict on one envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrokerAnswer {
    /// `201`, or `200` for a duplicate with the same fingerprint.
    Committed {
        broker_message_id: BrokerMessageId,
        history_id: HistoryId,
        duplicate: bool,
        /// False when the body has since been pruned; the delivery happened all the same (BR-20).
        history_available: bool,
    },
    /// Any refusal, by its code as it came over the wire.
    Refused { code: String, detail: String },
    /// No answer: time-out, reset, broker away.
    Silence { why: String },
}

/// Where the row goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowMove {
    Done {
        broker_message_id: BrokerMessageId,
        history_id: HistoryId,
    },
    Dead {
        reason: String,
    },
    Retry {
        error: String,
        /// The whole mesh waits: the network is at fault, not this row.
        pause_mesh: bool,
    },
}

/// Refusals that no retry can heal. IMPORTANT: closed list; 429 and 5xx never belong here (C6).
pub const PERMANENT: [ErrorCode; 6] = [
    ErrorCode::IdempotencyKeyReused,
    ErrorCode::InvalidRequest,
    ErrorCode::PayloadTooLarge,
    ErrorCode::UnknownRecipient,
    ErrorCode::AmbiguousRecipient,
    ErrorCode::NotAMember,
];

pub fn drain(answer: BrokerAnswer) -> RowMove {
    match answer {
        BrokerAnswer::Committed {
            broker_message_id,
            history_id,
            ..
        } => RowMove::Done {
            broker_message_id,
            history_id,
        },
        BrokerAnswer::Refused { code, detail } => {
            let text = format!("{code}: {detail}");
            if PERMANENT.iter().any(|permanent| permanent.as_str() == code) {
                RowMove::Dead { reason: text }
            } else {
                RowMove::Retry {
                    error: text,
                    pause_mesh: false,
                }
            }
        }
        BrokerAnswer::Silence { why } => RowMove::Retry {
            error: why,
            pause_mesh: true,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &str) -> RowMove {
        drain(BrokerAnswer::Refused {
            code: code.to_owned(),
            detail: "because".to_owned(),
        })
    }

    #[test]
    fn dr_03_only_the_closed_list_kills() {
        for code in ErrorCode::ALL.iter().copied() {
            let dies = matches!(refused(code.as_str()), RowMove::Dead { .. });
            assert_eq!(dies, PERMANENT.contains(&code), "{}", code.as_str());
        }
        assert!(matches!(
            refused("a_code_of_next_year"),
            RowMove::Retry { .. }
        ));
    }

    #[test]
    fn c6_a_rate_limit_never_kills() {
        assert!(matches!(
            refused(ErrorCode::RateLimited.as_str()),
            RowMove::Retry {
                pause_mesh: false,
                ..
            }
        ));
    }

    #[test]
    fn silence_pauses_the_mesh_and_keeps_the_row() {
        assert!(matches!(
            drain(BrokerAnswer::Silence {
                why: "reset".into()
            }),
            RowMove::Retry {
                pause_mesh: true,
                ..
            }
        ));
    }
}
