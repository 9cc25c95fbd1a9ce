//! What the broker says to each envelope of a batch.

use heddle_core::ids::{BrokerMessageId, HistoryId};
use serde::{Deserialize, Serialize};

use super::frames::Refused;

/// The broker's answer to one envelope of a batch, in the batch's order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// 201.
    Created {
        broker_message_id: BrokerMessageId,
        history_id: HistoryId,
    },
    /// 200.
    Duplicate {
        broker_message_id: BrokerMessageId,
        history_id: HistoryId,
        history_available: bool,
        first_seen_at: i64,
    },
    /// 409.
    Conflict {
        broker_fingerprint_prefix: String,
    },
    Refused(Refused),
}
