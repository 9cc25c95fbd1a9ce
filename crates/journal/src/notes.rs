//! The payloads of the journal's own records, one schema for each.

use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::federation::Lineage;

/// `checkpoint_ref`: appended after the manifest is synced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRef {
    /// Name under `checkpoints/`.
    pub file: String,
    /// Of the manifest's bytes.
    pub sha256: String,
    /// The last seq that the manifest covers.
    pub head_seq: u64,
    pub entities: u64,
    pub bytes: u64,
    /// Every blob that the manifest refers to.
    pub blobs: Vec<String>,
}

/// `journal_note`, by kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Note {
    /// What a crash left at the end of a segment was seen, and never counts.
    TornTailAdjudicated {
        segment: String,
        byte_start: u64,
        byte_end: u64,
        sha256: String,
    },
    /// The last record of a migration (C28).
    Genesis {
        migrated_from: String,
        v1_events_parked: u64,
        backfill_count: u64,
        tool_version: String,
        /// Of a clone: where its own records begin. What came before is in the store that it was cloned from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        first_seq: Option<u64>,
    },
    Redaction {
        segments: Vec<String>,
        #[serde(default)]
        checkpoints: Vec<String>,
        redacted: Vec<RedactedId>,
        reason: String,
        by: String,
    },
    /// A person knows that these seqs, first and last each, are lost for good.
    GapsAccepted {
        gaps: Vec<[u64; 2]>,
        reason: String,
        by: String,
    },
    /// A request with an id that changed no lasting field: its answer is known, and the id is taken.
    Unchanged { item_type: String, item_id: String },
    /// An operation on the whole store; its entities have records of their own.
    StoreMarker { op: StoreOp, detail: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedactedId {
    pub seq: u64,
    pub writer: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreOp {
    Rollback,
    Upgrade,
}

/// `seq_repair`: the cache was behind the segments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeqRepair {
    pub meta_next_seq: u64,
    pub tail_seq: u64,
    pub repaired_next_seq: u64,
}

/// `federation_apply`: a slice of another origin was applied here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FederationApply {
    pub origin_id: String,
    pub origin_epoch: u64,
    pub seq_range: [u64; 2],
    pub applied: u64,
    pub conflicts: u64,
    pub slice_sha256: String,
    /// The records right behind this one, in order, and what they were at their origin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heads: Vec<AppliedHead>,
    /// Seqs of the range that were refused, as asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<u64>,
    /// What the origin erased: never taken in again (C15).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redacted: Vec<RedactedId>,
}

/// A record of another origin that became the newest of its entity here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedHead {
    pub item_type: String,
    /// As it is called here.
    pub item_id: String,
    pub entity_rev: u64,
    /// At its origin.
    pub seq: u64,
    pub writer: String,
    #[serde(default, skip_serializing_if = "Lineage::is_empty")]
    pub lineage: Lineage,
}

/// A journal-meta payload, whichever action it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetaPayload {
    CheckpointRef(CheckpointRef),
    Note(Note),
    SeqRepair(SeqRepair),
    FederationApply(FederationApply),
}

impl MetaPayload {
    /// None where the action is no journal action or the payload does not fit it.
    pub fn parse(action: Action, payload: &str) -> Option<Self> {
        match action {
            Action::CheckpointRef => serde_json::from_str(payload).ok().map(Self::CheckpointRef),
            Action::JournalNote => serde_json::from_str(payload).ok().map(Self::Note),
            Action::SeqRepair => serde_json::from_str(payload).ok().map(Self::SeqRepair),
            Action::FederationApply => serde_json::from_str(payload)
                .ok()
                .map(Self::FederationApply),
            _ => None,
        }
    }

    pub fn action(&self) -> Action {
        match self {
            Self::CheckpointRef(_) => Action::CheckpointRef,
            Self::Note(_) => Action::JournalNote,
            Self::SeqRepair(_) => Action::SeqRepair,
            Self::FederationApply(_) => Action::FederationApply,
        }
    }

    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        match self {
            Self::CheckpointRef(payload) => serde_json::to_string(payload),
            Self::Note(payload) => serde_json::to_string(payload),
            Self::SeqRepair(payload) => serde_json::to_string(payload),
            Self::FederationApply(payload) => serde_json::to_string(payload),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_meta_payload_of_the_seed_parses_and_comes_back() {
        let cases = [
            (
                Action::CheckpointRef,
                r#"{"file":"ckpt-1.json","sha256":"aa","head_seq":1,"entities":2,"bytes":3,"blobs":[]}"#,
            ),
            (
                Action::JournalNote,
                r#"{"kind":"torn_tail_adjudicated","segment":"s","byte_start":1,"byte_end":2,"sha256":"aa"}"#,
            ),
            (
                Action::JournalNote,
                r#"{"kind":"genesis","migrated_from":"v1","v1_events_parked":1,"backfill_count":2,"tool_version":"3"}"#,
            ),
            (
                Action::JournalNote,
                r#"{"kind":"redaction","segments":["s"],"checkpoints":[],"redacted":[{"seq":1,"writer":"w"}],"reason":"r","by":"b"}"#,
            ),
            (
                Action::JournalNote,
                r#"{"kind":"store_marker","op":"rollback","detail":"d"}"#,
            ),
            (
                Action::JournalNote,
                r#"{"kind":"gaps_accepted","gaps":[[2,4]],"reason":"r","by":"b"}"#,
            ),
            (
                Action::JournalNote,
                r#"{"kind":"unchanged","item_type":"plan","item_id":"x"}"#,
            ),
            (
                Action::SeqRepair,
                r#"{"meta_next_seq":1,"tail_seq":2,"repaired_next_seq":3}"#,
            ),
            (
                Action::FederationApply,
                r#"{"origin_id":"o","origin_epoch":1,"seq_range":[1,2],"applied":1,"conflicts":0,"slice_sha256":"aa"}"#,
            ),
        ];
        for (action, text) in cases {
            let parsed = MetaPayload::parse(action, text).unwrap();
            assert_eq!(parsed.action(), action);
            assert_eq!(parsed.to_json().unwrap(), text);
        }
        assert_eq!(MetaPayload::parse(Action::SeqRepair, "{}"), None);
        assert_eq!(MetaPayload::parse(Action::Create, "{}"), None);
    }
}
