//! What a broker's answer means for the outbox row that asked (DR-03).
//!
//! Only a code on the closed list kills a row; everything else, known or not, is tried again. The one
//! other way to `dead` is age ([`crate::age`]), and it asks the broker first.

use std::time::Duration;

use crate::error_code::ErrorCode;
use crate::ids::{BrokerMessageId, HistoryId};

/// What the log of attempts calls an attempt that the broker committed.
pub const COMMITTED: &str = "committed";
/// What it calls one that nobody answered.
pub const NO_ANSWER: &str = "no_answer";
/// Characters of a broker's own words that are kept; the rest of a talkative refusal is cut.
const WORDS_MAX: usize = 1000;

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
    Refused {
        code: String,
        detail: String,
        /// When it may be worth another try, as the broker said.
        retry_after: Option<Duration>,
    },
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
        waits: Waits,
    },
    /// Our own bytes are damaged: nothing was sent, and nothing will be before a start finds them well.
    Park {
        reason: String,
    },
}

/// Who waits after a try in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// This row, for a backoff of its own.
    Row,
    /// The whole mesh: the network is at fault, or the broker.
    Mesh,
    /// The whole mesh, until the broker can keep anything: its tables are away, or it stops. The row keeps its place in the
    /// line, or whatever is sent after the outage would overtake it by the row's own wait. Where the broker takes others of
    /// the same batch, it is the row that waits.
    Broker,
    /// The whole mesh, for the next window of its budget; how long that is, if the broker said so. The row keeps its
    /// place in the line: what goes first in that window is a matter of priority, not of who was refused when.
    Window(Option<Duration>),
}

impl RowMove {
    /// The attempt as its log names it: a code, and words.
    pub fn outcome(&self) -> (&str, &str) {
        match self {
            Self::Done { .. } => (COMMITTED, ""),
            Self::Retry {
                error,
                waits: Waits::Mesh,
            } => (NO_ANSWER, error),
            Self::Dead { reason: text }
            | Self::Park { reason: text }
            | Self::Retry { error: text, .. } => split(text),
        }
    }
}

/// Takes `code: words` apart again.
fn split(text: &str) -> (&str, &str) {
    let is_code = |code: &str| code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    match text.split_once(": ") {
        Some((code, words)) if is_code(code) => (code, words),
        _ => ("other", text),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(WORDS_MAX).collect()
}

/// Refusals that no retry can heal. IMPORTANT: closed list; 429 and 5xx never belong here (C6), nor does what somebody
/// can lift while the row waits, as a block of its sender. PROTOCOL §6 names the same ones.
pub const PERMANENT: [ErrorCode; 7] = [
    ErrorCode::IdempotencyKeyReused,
    ErrorCode::InvalidRequest,
    ErrorCode::PayloadTooLarge,
    ErrorCode::UnknownRecipient,
    ErrorCode::AmbiguousRecipient,
    ErrorCode::NotAMember,
    ErrorCode::MemberRevoked,
];

/// Refusals of a broker that could take no row whatever: its tables are away or held, or it stops. IMPORTANT: none that may be
/// about one row alone (`internal`, `insufficient_storage`), which would hold up all others.
const OF_THE_BROKER: [ErrorCode; 3] = [
    ErrorCode::StorageUnavailable,
    ErrorCode::ShuttingDown,
    ErrorCode::DaemonBusy,
];

/// Refusals of the limiter, whose budget is the mesh's and not a row's.
const OF_THE_LIMITER: [ErrorCode; 2] = [ErrorCode::RateLimited, ErrorCode::LimiterUnavailable];

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
        BrokerAnswer::Refused {
            code,
            detail,
            retry_after,
        } => {
            let text = format!("{}: {}", cut(&code), cut(&detail));
            let is_one_of = |codes: &[ErrorCode]| codes.iter().any(|one| one.as_str() == code);
            if is_one_of(&PERMANENT) {
                return RowMove::Dead { reason: text };
            }
            RowMove::Retry {
                error: text,
                waits: if is_one_of(&OF_THE_LIMITER) {
                    Waits::Window(retry_after)
                } else if is_one_of(&OF_THE_BROKER) {
                    Waits::Broker
                } else {
                    Waits::Row
                },
            }
        }
        BrokerAnswer::Silence { why } => RowMove::Retry {
            error: cut(&why),
            waits: Waits::Mesh,
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
            retry_after: Some(Duration::from_secs(3)),
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
    fn dr_03_the_protocol_names_the_same_list() {
        let protocol = include_str!("../../../docs/PROTOCOL.md");
        let (_, list) = protocol
            .split_once("outbox row are a closed list:")
            .unwrap();
        let (list, _) = list.split_once('.').unwrap();
        let named: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
        assert_eq!(named, PERMANENT.map(ErrorCode::as_str));
    }

    /// DR-03 as a table: answer, where the row goes, whether the mesh waits.
    #[test]
    fn dr_03_the_answer_map_is_complete() {
        for (code, dies) in [
            ("idempotency_key_reused", true),
            ("invalid_request", true),
            ("payload_too_large", true),
            ("unknown_recipient", true),
            ("ambiguous_recipient", true),
            ("not_a_member", true),
            ("member_revoked", true),
            ("member_blocked", false),
            ("rate_limited", false),
            ("limiter_unavailable", false),
            ("storage_unavailable", false),
            ("shutting_down", false),
            ("request_timeout", false),
            ("daemon_busy", false),
            ("insufficient_storage", false),
            ("internal", false),
            ("not_connected", false),
            ("unauthorized", false),
            ("", false),
            ("IDEMPOTENCY_KEY_REUSED", false),
            ("invalid_request: ", false),
        ] {
            match refused(code) {
                RowMove::Dead { .. } => assert!(dies, "{code} kills"),
                RowMove::Retry { waits, .. } => {
                    let expected = match code {
                        "rate_limited" | "limiter_unavailable" => {
                            Waits::Window(Some(Duration::from_secs(3)))
                        }
                        "storage_unavailable" | "shutting_down" | "daemon_busy" => Waits::Broker,
                        _ => Waits::Row,
                    };
                    assert!(!dies && waits == expected, "{code}");
                }
                other => panic!("{code}: {other:?}"),
            }
        }
        for status in ErrorCode::ALL.iter().copied() {
            let transient =
                status.status() == 429 || status.status() >= 500 || status.status() == 408;
            assert!(
                !(transient && PERMANENT.contains(&status)),
                "{}",
                status.as_str()
            );
        }
        for (duplicate, history_available) in [(false, true), (true, true), (true, false)] {
            let committed = BrokerAnswer::Committed {
                broker_message_id: BrokerMessageId(ulid::Ulid::nil()),
                history_id: HistoryId { epoch: 1, seq: 1 },
                duplicate,
                history_available,
            };
            assert!(matches!(drain(committed), RowMove::Done { .. }));
        }
    }

    #[test]
    fn an_outcome_is_a_code_and_words_whatever_the_broker_says() {
        let outcome = |next: &RowMove| {
            let (code, words) = next.outcome();
            (code.to_owned(), words.to_owned())
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(
            outcome(&refused("rate_limited")),
            pair("rate_limited", "because")
        );
        assert_eq!(
            outcome(&refused("not_a_member")),
            pair("not_a_member", "because")
        );
        assert_eq!(
            outcome(&refused("Oh: no")),
            pair("other", "Oh: no: because")
        );
        let silent = drain(BrokerAnswer::Silence { why: "a: b".into() });
        assert_eq!(outcome(&silent), pair(NO_ANSWER, "a: b"));
        let long = drain(BrokerAnswer::Refused {
            code: "x".repeat(5000),
            detail: "ä".repeat(5000),
            retry_after: None,
        });
        let RowMove::Retry { error, .. } = long else {
            panic!()
        };
        assert_eq!(error.chars().count(), 2 * WORDS_MAX + 2);
    }

    #[test]
    fn c6_a_rate_limit_never_kills() {
        assert!(matches!(
            refused(ErrorCode::RateLimited.as_str()),
            RowMove::Retry {
                waits: Waits::Window(Some(_)),
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
                waits: Waits::Mesh,
                ..
            }
        ));
    }
}
