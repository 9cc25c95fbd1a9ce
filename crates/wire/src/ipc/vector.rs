//! Vectors: what is stored, what is asked for, and what is near.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{StampView, WarningView};

/// Body of `vector/store`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorStoreBody {
    pub key: String,
    pub content: String,
    /// Made by the provider of this home where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding: Option<Vec<f64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// Body of `vector/search`: either a text or numbers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorSearchBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding: Option<Vec<f64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Measure every vector, also where they are many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// Body of `vector/delete`; without a model under all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorDeleteBody {
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// Body of `vector/re_embed`: one step of moving to another model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReEmbedBody {
    pub to: String,
    /// Only the vectors of this model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Goes on behind the step before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
}

/// What one step did, and how this home's vectors stand behind it. Without a cursor it was the last one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReEmbedAnswer {
    /// `provider:model:version:dim:quantization` of the target.
    pub model: String,
    pub moved: u64,
    /// Without a text to embed, or changed meanwhile; they stay as they are.
    pub skipped: u64,
    /// Of those, the ones without a text: another run does not move them either.
    #[serde(default)]
    pub without_text: u64,
    /// This home's vectors that are under the target by now, whoever moved them there and when.
    #[serde(default)]
    pub there: u64,
    /// This home's vectors that are still under other models.
    pub left: u64,
    /// Vectors of other members under other models: theirs to move.
    pub others: u64,
    /// Rows that cannot be read and stay where they are, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VectorView {
    pub key: String,
    pub content: String,
    pub metadata: Value,
    /// `provider:model:version:dim:quantization`.
    pub model: String,
    /// `@member/agent` of the owner.
    pub peer: String,
    pub updated_at: String,
    pub stamp: StampView,
    /// 0 for the same direction, 2 for the opposite; only in answers to a search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<f64>,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_none(count: &u64) -> bool {
    *count == 0
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VectorHits {
    /// The nearest first.
    pub items: Vec<VectorView>,
    /// The model that was searched.
    pub model: String,
    /// Vectors of this mesh under other models, which no search of this one finds; looked for where it found fewer than
    /// were asked for.
    #[serde(default, skip_serializing_if = "is_none")]
    pub under_other_models: u64,
    /// What the agent that asks has lost since its last call (`warnings` of DESIGN §13.6).
    #[serde(default)]
    pub warnings: Vec<WarningView>,
    /// Rows that cannot be read and are therefore not among them, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VectorPage {
    /// In order of keys.
    pub items: Vec<VectorView>,
    pub cursor: Option<String>,
    /// What the agent that asks has lost since its last call (`warnings` of DESIGN §13.6).
    #[serde(default)]
    pub warnings: Vec<WarningView>,
    /// Rows that cannot be read and are therefore not among them, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}
