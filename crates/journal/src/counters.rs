//! What a look at the whole journal counts beside its state.

use serde::Serialize;

/// What the journal holds that is not state. Zero everywhere is a journal that saw no trouble.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    pub records: u64,
    pub batches: u64,
    pub damaged_lines: u64,
    pub torn_adjudicated: u64,
    pub torn_tail: u64,
    pub seq_repairs: u64,
    /// Places where seqs are missing, and nobody has said why.
    pub seq_gaps: u64,
    /// Those that a person has accepted.
    pub seq_gaps_accepted: u64,
    /// Records that stand behind larger seqs: they are here, and nobody of ours writes them so.
    pub out_of_order: u64,
    pub duplicate_identical: u64,
    pub duplicate_conflicting: u64,
    pub duplicate_seq: u64,
    pub rev_ties: u64,
    pub rev_gaps: u64,
    pub rev_regressions: u64,
    pub invalid_records: u64,
    pub invalid_documents: u64,
    pub singleton_tombstones: u64,
    pub unparseable_kept: u64,
    pub checkpoints_rejected: u64,
    /// Segments whose number is larger than all that they hold.
    pub misnamed_segments: u64,
    /// Sound records of a newer build: not applied, and no damage.
    pub newer_records: u64,
    /// Redacted content that came back, from an old copy of a file; never applied (RD-06).
    pub redacted_again: u64,
}

impl Counters {
    /// What must not be in a sound journal. Crash residue and repairs are not trouble.
    pub fn errors(&self) -> u64 {
        self.damaged_lines
            + self.duplicate_conflicting
            + self.rev_regressions
            + self.invalid_records
            + self.invalid_documents
            + self.singleton_tombstones
            + self.redacted_again
    }
}
