//! Shared files: what a share says, its receipt, and what is known of a file.

use serde::{Deserialize, Serialize};

use super::{StampView, WarningView};

/// `event:` of the stream when a file was shared.
pub const EVENT_FILE_SHARED: &str = "file_shared";

/// Body of `file/share`: the content itself, or where on this machine it lies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileShareBody {
    /// What to share it under, such as `docs/plan.md`.
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_base64: Option<String>,
    /// An absolute path on this machine; the daemon reads the file itself, whatever its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What its owner says it is, such as `text/plain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// Body of `file/delete`: by id, or by the path of an own file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileDeleteBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// The receipt of a share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileShareAnswer {
    pub client_message_id: String,
    /// The file, until its path is shared again.
    pub id: String,
    pub path: String,
    pub sha256: String,
    pub size: u64,
    /// The file that the agent had shared under this path before: this one took its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<String>,
    pub mesh: String,
    pub agent: String,
    /// True when this very share was made before: then all of this is what was answered first.
    pub duplicate: bool,
    /// `local`: bytes and name are on this home's disk.
    pub durability: String,
    pub stamp: StampView,
    pub at: String,
    #[serde(default)]
    pub warnings: Vec<WarningView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileView {
    pub id: String,
    pub path: String,
    /// `@member/agent` of the owner.
    pub peer: String,
    pub sha256: String,
    pub size: u64,
    pub mime: Option<String>,
    /// `inline` and `blob`: the bytes are here; `elsewhere`: they are not on this machine; `gone`, in a list: nobody
    /// has them any more, or others lie in their place.
    pub content: String,
    /// The bytes, where they are here and not many; any file comes raw with `raw=true`.
    pub content_base64: Option<String>,
    pub updated_at: String,
    pub stamp: StampView,
    /// Somebody else's, read while the mesh is out of reach: its owner may have shared another since, or has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
    /// Up to when it is known to be what its owner shared last, where `stale`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
    /// What its owner has shared in its place, whose bytes are not here: this is the last that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newer: Option<NewerFile>,
}

/// What stands under the path of a file that was read as it was before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewerFile {
    pub id: String,
    pub updated_at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePage {
    /// In order of owners and paths, without their bytes.
    pub items: Vec<FileView>,
    pub cursor: Option<String>,
    /// What the agent that asks has lost since its last call (`warnings` of DESIGN §13.6).
    #[serde(default)]
    pub warnings: Vec<WarningView>,
    /// Rows that cannot be read and are therefore not among them, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// Body of `file/sweep`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepBody {
    /// How long what nobody names is left alone; an hour where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<u64>,
}

/// What a sweep did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepAnswer {
    /// Blobs that nobody named, and that are gone now.
    pub blobs: u64,
    pub bytes: u64,
    /// Blobs that nobody names, but that are younger than the grace.
    pub young: u64,
    /// Blobs that could not be taken away; the log says why, the next sweep tries again.
    pub failed: u64,
    /// Marks of files that were deleted long ago.
    pub tombstones: u64,
}

/// Data of the event `file_shared`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSharedEvent {
    pub mesh: String,
    pub id: String,
    pub path: String,
    /// `@member/agent` of the owner.
    pub peer: String,
    pub sha256: String,
    pub size: u64,
    pub mime: Option<String>,
}
