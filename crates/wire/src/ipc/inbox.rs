//! `GET /v1/inbox` and its search, `POST /v1/inbox/{ack,shown,seen}` and the events of the stream.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The event that carries an [`InboxItem`]. It alone has an id to resume from.
pub const EVENT_MESSAGE: &str = "message";
/// Says that retention took items that this reader has not been given.
pub const EVENT_GAP: &str = "gap";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InboxItem {
    /// Its place in this home's order of arrival; what `ack` takes and cursors are made of.
    pub id: String,
    pub client_message_id: String,
    pub broker_message_id: String,
    pub history_id: String,
    pub mesh: String,
    /// The mailbox that it lies in.
    pub agent: String,
    /// The topic's name, or null for a direct message.
    pub topic: Option<String>,
    /// `@member/agent` of the sender.
    pub from: String,
    /// Empty where `damaged`.
    pub body: String,
    /// True where what is kept of the message cannot be read any more; its ids and its sender are as they were.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub damaged: bool,
    pub priority: String,
    pub meta: Value,
    pub mentions: Vec<String>,
    pub received_at: String,
    /// When it was first put before the agent.
    #[serde(default)]
    pub shown_at: Option<String>,
    pub acked_at: Option<String>,
    pub reply_to_id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InboxPage {
    pub items: Vec<InboxItem>,
    /// Hand it back as `since` to go on behind the last item, or behind all that there was.
    pub cursor: String,
    /// True where the page was cut, by its limit or by its bytes: go on with `cursor`.
    #[serde(default)]
    pub more: bool,
    /// True while the mesh's broker is out of reach: there may be newer messages.
    pub stale: bool,
    /// When the broker was last heard of, where `stale`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
    /// Of an empty page: why it may be one by a slip, that no such topic or agent is known here, say. Never while `stale`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What the agent lost since its last call; told once.
    #[serde(default)]
    pub warnings: Vec<super::WarningView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AckBody {
    pub ids: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckAnswer {
    /// Acknowledged by this call.
    pub acked: usize,
    /// Known, but acknowledged before.
    pub already: usize,
    /// Named, but not in this home (or not in this agent's mailbox).
    pub unknown: Vec<String>,
    /// This very call was answered before, under its `Idempotency-Key`; this is that answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

/// Whether an id names a message that an agent was sent, or that this home has sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownAnswer {
    pub id: String,
    pub known: bool,
    /// Where `id` is the place of a message in the mailbox: the id of that message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
}

/// A message of a thread: one that came, or one that the agent sent itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadItem {
    /// Of one that was sent: `id` is its row's, `received_at` when it was accepted here, and the broker's names are
    /// empty until it is committed. Its text is empty where the payload was given back.
    pub message: InboxItem,
    /// True for one that the agent sent.
    pub sent: bool,
    /// Where that one went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The state of its row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

/// Oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadPage {
    /// As it was asked for.
    pub id: String,
    pub items: Vec<ThreadItem>,
    /// True where older messages of the thread were left off, or not looked for.
    pub more: bool,
    pub stale: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
}

/// Newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchPage {
    pub items: Vec<InboxItem>,
    /// Hand it back as `cursor` for what is older; null when nothing was found.
    pub cursor: Option<String>,
    /// True where the page was cut, by its limit or by its bytes: go on with `cursor`.
    #[serde(default)]
    pub more: bool,
    pub stale: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
}

/// Body of `shown`: these items were put before their agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShownBody {
    pub ids: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownAnswer {
    /// Shown for the first time by this call.
    pub shown: usize,
    /// Known, but shown before.
    pub already: usize,
    /// Named, but not in this home (or not in this agent's mailbox).
    pub unknown: Vec<String>,
    /// This very call was answered before, under its `Idempotency-Key`; this is that answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

/// Body of `seen`: this session has been given everything up to a cursor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeenBody {
    pub session: String,
    /// The `cursor` of a page, or the id of an item.
    pub through: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenAnswer {
    pub session: String,
    pub agent: String,
    /// Where the session stands now: it never goes back.
    pub cursor: String,
    /// This very call was answered before, under its `Idempotency-Key`; this is that answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}
