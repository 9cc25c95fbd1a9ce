//! `GET /v1/explain/{id}` for the data: who changed what, when, and what became of it.

use serde::{Deserialize, Serialize};

use super::effect::EffectStory;
use super::explain::ExplainView;
use super::message_story::MessageStory;
use super::outbox::OutboxRow;

/// What an id stands for: something that was sent, something that came or that only the broker still knows, something
/// of the data, or an effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Story {
    Sent(Box<ExplainView>),
    Message(Box<MessageStory>),
    Data(Box<DataStoryView>),
    Effect(Box<EffectStory>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DataStoryView {
    pub id: String,
    /// `data`.
    pub kind: String,
    pub mesh: String,
    /// The op that the id stands for; null for a key.
    pub op_id: Option<String>,
    /// `stands`, `superseded`, `waiting`, `parked`, `quarantined`, `dropped`; `key` where a key was asked for; `damaged`
    /// of a task that is not what was written; `lost` where its row is gone and nothing took its place, `not_known` where no row
    /// holds it and nobody here knows what it was about.
    pub result: String,
    /// The same in a sentence.
    pub says: String,
    /// What mends it, where it is damaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The request of this home that made it; null for what others made.
    pub request: Option<DataRequestView>,
    /// The rows that the op made and that have its key.
    pub rows: Vec<DataRowView>,
    /// How the op came from the log of the mesh; null where it did not.
    pub arrival: Option<DataArrivalView>,
    /// Its row in the outbox; null where it has none, as in a personal mesh.
    pub outbox: Option<Box<OutboxRow>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataRequestView {
    pub idempotency_key: String,
    pub agent: String,
    pub at: String,
    pub op_id: String,
    pub lamport: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataRowView {
    /// `memory`, `state`, `file`, `vector` or `task`.
    pub noun: String,
    pub key: String,
    /// Of a task: which op it is.
    pub op: Option<String>,
    /// Whose op stands there.
    pub peer: String,
    pub op_id: String,
    pub lamport: u64,
    pub incarnation: u64,
    pub at: String,
    pub deleted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataArrivalView {
    pub history_id: String,
    pub sender: String,
    /// `waiting`, `applied`, `parked`, `quarantined` or `dropped`.
    pub state: String,
    pub reason: Option<String>,
    pub received_at: String,
    pub applied_at: Option<String>,
}
