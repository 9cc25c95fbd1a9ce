//! `GET /v1/outbox`, one row, `requeue` and `prune`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutboxRow {
    pub id: String,
    pub client_message_id: String,
    pub mesh: String,
    pub agent: String,
    pub status: String,
    pub attempts: u32,
    pub last_error: Option<String>,
    /// What keeps a row that is on its way from being sent right now; absent where nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    pub enqueued_at: String,
    pub delivered_at: Option<String>,
    pub broker_message_id: Option<String>,
    pub history_id: Option<String>,
    pub superseded_by: Option<String>,
    pub aborted_at: Option<String>,
    pub aborted_by: Option<String>,
    pub to: String,
    pub request_fingerprint: String,
    #[serde(default)]
    pub priority: String,
    /// What is known of a dead row's message: `not_delivered`, or `unknown` where the broker could not be
    /// asked before the row died of age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// What of the row cannot be read any more; then its other fields may be stand-ins. Absent for a row that is whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
    /// The first 16 digits of the fingerprint that the broker compares; only where one row was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_fingerprint_prefix: Option<String>,
    /// Whether its payload was given back; only where one row was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pruned: Option<bool>,
    /// Attempts that did not succeed at once, oldest first; only where one row was asked for. Of many
    /// attempts the first five and the last twenty are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts_log: Vec<AttemptView>,
    /// Oldest first, this row included; only where one row was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<OutboxRow>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptView {
    pub number: u32,
    /// When it began; of one that succeeded at once, when the broker got the message.
    pub at: String,
    /// `committed`, `no_answer`, `interrupted`, or the code of the refusal.
    pub outcome: String,
    pub detail: String,
}

/// The event that says that the outbox's disk is filling up, with a [`PressureEvent`].
pub const EVENT_OUTBOX_PRESSURE_HIGH: &str = "outbox_pressure_high";
/// The event that says that it has room again, with a [`PressureEvent`].
pub const EVENT_OUTBOX_PRESSURE_EASED: &str = "outbox_pressure_eased";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PressureEvent {
    /// Where it stands now: `fine`, `high`, `refusing` or `inbound_only`.
    pub level: String,
    pub used_bytes: u64,
    pub limit_bytes: u64,
    pub detail: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PruneBody {
    /// Rows that were accepted longer ago than this.
    #[serde(default)]
    pub older_than_seconds: u64,
    /// Of `done`, `dead`, `aborted`; all three by default.
    #[serde(default)]
    pub status: Vec<String>,
    /// Without it nothing is changed, and the answer says what would be.
    #[serde(default)]
    pub confirm: bool,
    /// With the status `dead` alone: they are aborted besides, and are not told as dead any more. Their ids stay taken.
    #[serde(default)]
    pub retire: bool,
    /// The cursor of the answer before.
    #[serde(default)]
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneAnswer {
    /// Rows whose payloads were given back, or would be.
    pub rows: u64,
    pub bytes: u64,
    pub confirmed: bool,
    /// Where to go on; null when everything was looked at.
    pub cursor: Option<String>,
    /// This very call was answered before, under its `Idempotency-Key`; this is that answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutboxPage {
    pub rows: Vec<OutboxRow>,
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequeueBody {
    /// The successor's id; null mints one.
    #[serde(default)]
    pub new_client_id: Option<String>,
    /// Fields of a send body that replace those of the old row (`message`, `to`, …).
    #[serde(default)]
    pub patch_payload: Option<Value>,
    /// Requeue although the broker cannot be asked whether it has the old id.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequeueAnswer {
    pub old: OutboxRow,
    /// Null when the broker had committed the old id: the old row is `done` then.
    pub new: Option<OutboxRow>,
}
