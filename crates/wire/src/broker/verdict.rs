//! What the broker says to each envelope of a batch (v6 §4.5).

use heddle_core::ids::{BrokerMessageId, ClientMessageId, HistoryId};
use serde::{Deserialize, Serialize};

use super::frames::Refused;

/// What a 409 says of itself.
pub const CONFLICT_FINGERPRINT: &str = "request_fingerprint_mismatch";

/// The broker's answer to one envelope of a batch, in the batch's order. The ids are said besides, for whoever reads a
/// capture; brokers of before said none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// 201.
    Created {
        broker_message_id: BrokerMessageId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client_message_id: Option<ClientMessageId>,
        history_id: HistoryId,
        /// False.
        #[serde(default)]
        duplicate: bool,
    },
    /// 200.
    Duplicate {
        broker_message_id: BrokerMessageId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client_message_id: Option<ClientMessageId>,
        history_id: HistoryId,
        /// True.
        #[serde(default = "yes")]
        duplicate: bool,
        history_available: bool,
        first_seen_at: i64,
    },
    /// 409.
    Conflict {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client_message_id: Option<ClientMessageId>,
        /// [`CONFLICT_FINGERPRINT`].
        #[serde(default = "mismatch")]
        conflict: String,
        broker_fingerprint_prefix: String,
    },
    Refused(Refused),
}

impl Verdict {
    /// Whether it may be the answer to this id: it names that one, or, as brokers of before, none.
    pub fn is_about(&self, id: &ClientMessageId) -> bool {
        let named = match self {
            Self::Created {
                client_message_id, ..
            }
            | Self::Duplicate {
                client_message_id, ..
            }
            | Self::Conflict {
                client_message_id, ..
            } => client_message_id.as_ref(),
            Self::Refused(_) => None,
        };
        named.is_none_or(|named| named == id)
    }
}

fn yes() -> bool {
    true
}

fn mismatch() -> String {
    CONFLICT_FINGERPRINT.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v6_4_5_the_three_bodies_are_whole_and_those_of_older_brokers_are_read() {
        let id = "01HZX000000000000000000001";
        let client = ClientMessageId::parse("m-1").unwrap();
        let (broker_message_id, history_id) = (id.parse().unwrap(), "1.7".parse().unwrap());
        let said = |verdict: &Verdict| serde_json::to_value(verdict).unwrap();
        let created = Verdict::Created {
            broker_message_id,
            client_message_id: Some(client.clone()),
            history_id,
            duplicate: false,
        };
        assert_eq!(
            said(&created),
            serde_json::json!({"verdict": "created", "broker_message_id": id, "client_message_id": "m-1", "history_id": said_place(&created), "duplicate": false})
        );
        let duplicate = Verdict::Duplicate {
            broker_message_id,
            client_message_id: Some(client.clone()),
            history_id,
            duplicate: true,
            history_available: false,
            first_seen_at: 5,
        };
        let body = said(&duplicate);
        for (field, value) in [
            ("duplicate", serde_json::json!(true)),
            ("client_message_id", serde_json::json!("m-1")),
            ("history_available", serde_json::json!(false)),
            ("first_seen_at", serde_json::json!(5)),
        ] {
            assert_eq!(body[field], value, "{body}");
        }
        let conflict = Verdict::Conflict {
            client_message_id: Some(client),
            conflict: mismatch(),
            broker_fingerprint_prefix: "ab12cd34ab12cd34".to_owned(),
        };
        assert_eq!(
            said(&conflict),
            serde_json::json!({"verdict": "conflict", "client_message_id": "m-1", "conflict": "request_fingerprint_mismatch", "broker_fingerprint_prefix": "ab12cd34ab12cd34"})
        );
        for mut body in [said(&created), body, said(&conflict)] {
            for field in ["client_message_id", "duplicate", "conflict"] {
                body.as_object_mut().unwrap().remove(field);
            }
            let read: Verdict = serde_json::from_value(body).unwrap();
            match read {
                Verdict::Created { duplicate, .. } => assert!(!duplicate),
                Verdict::Duplicate { duplicate, .. } => assert!(duplicate),
                Verdict::Conflict { conflict, .. } => assert_eq!(conflict, CONFLICT_FINGERPRINT),
                Verdict::Refused(refused) => panic!("{refused:?}"),
            }
        }
    }

    fn said_place(verdict: &Verdict) -> serde_json::Value {
        serde_json::to_value(verdict).unwrap()["history_id"].clone()
    }
}
