//! What a home was given once and has lost: it asks for it again, page by page, and nothing changes by that.

use heddle_core::ids::HistoryId;
use serde::{Deserialize, Serialize};

use super::frames::Delivery;

/// Behind which delivery a page begins. The broker gives it; who asks hands it back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldCursor {
    /// 0 now, 1 next, 2 low.
    pub priority: u8,
    pub history_id: HistoryId,
    pub agent: String,
}

/// One delivery that was acknowledged by its home, and how far it came with its agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HeldItem {
    /// Not flattened: an envelope keeps its bytes only in a field of its own (DR-06).
    pub delivery: Delivery,
    pub delivered_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acked_at: Option<i64>,
}
