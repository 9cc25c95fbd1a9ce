//! The upload of a snapshot: rows in parts, over the WebSocket and over HTTP (local-first §9.3).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use heddle_core::ids::{ClientMessageId, MemberId, OpId};
use heddle_core::limits::BATCH_BYTES_MAX;
use heddle_core::names::AgentName;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::blob::op_id;

/// One op of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadItem {
    /// Its place at the sender; rises from item to item. The last one that was taken is the cursor.
    pub at: u64,
    pub agent: AgentName,
    pub client_message_id: ClientMessageId,
    /// The bytes that the sender froze.
    #[serde(rename = "envelope_base64")]
    pub envelope: EnvelopeBytes,
}

/// An envelope, base64 on the wire: a frame holds a known number of them, whatever is in them.
#[derive(Clone, PartialEq, Eq)]
pub struct EnvelopeBytes(pub Vec<u8>);

impl fmt::Debug for EnvelopeBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EnvelopeBytes({} bytes)", self.0.len())
    }
}

impl Serialize for EnvelopeBytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for EnvelopeBytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        if text.len() > BATCH_BYTES_MAX.div_ceil(3) * 4 {
            return Err(D::Error::custom("an envelope has too many bytes"));
        }
        let bytes = STANDARD.decode(text.as_bytes()).map_err(D::Error::custom)?;
        Ok(Self(bytes))
    }
}

/// `POST /api/my/meshes/SLUG/snapshot/begin`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotBeginBody {
    /// The owner whose rows they are.
    pub member: MemberId,
    /// The upload; the same one goes on. A new one where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
}

/// `POST …/snapshot/ID/chunk`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotChunkBody {
    pub member: MemberId,
    /// The `next_cursor` of the last answer.
    pub cursor: u64,
    pub items: Vec<UploadItem>,
}

/// `POST …/snapshot/ID/commit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotCommitBody {
    pub member: MemberId,
    /// The `next_cursor` of the last answer: whatever is behind it would be missing.
    pub cursor: u64,
}

/// An item of an upload that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutItem {
    /// Its place, where it is told with the chunk that brought it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    pub agent: AgentName,
    pub client_message_id: ClientMessageId,
    /// Why, as an error code and in words.
    pub code: String,
    pub detail: String,
}

/// What each of them answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotAnswer {
    #[serde(with = "op_id")]
    pub snapshot_id: OpId,
    pub committed: bool,
    /// While it is open: where to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<u64>,
    /// How many items cannot be taken: of the chunk, or, as the commit found, of those that were laid aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<u64>,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out_items: Vec<LeftOutItem>,
    /// The first item of the chunk that could not be taken yet, and why; it and those behind it come again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<LeftOutItem>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_epoch: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_seq_start: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// It was committed before; nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<bool>,
}
