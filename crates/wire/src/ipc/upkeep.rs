//! Copies of a home's store, putting them back, and repairing: what the verbs for it answer.

use serde::{Deserialize, Serialize};

/// The body of `POST /v1/doctor/backup`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupBody {
    /// Its whole path. Nothing may be there yet.
    pub file: String,
}

/// A backup that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupView {
    pub file: String,
    pub bytes: u64,
    /// In the folder beside the file: its name and `.blobs`.
    pub blobs: u64,
    pub blob_bytes: u64,
    /// Blobs that rows name and that could not be read.
    pub blobs_missing: u64,
}

/// A backup that was put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreView {
    pub file: String,
    /// Where the store lies that was there before.
    pub before: Option<String>,
    /// Of every mesh from now on.
    pub incarnation: u64,
    /// Blobs that were brought back.
    pub blobs: u64,
    /// Blobs that neither the home nor the backup has.
    pub blobs_missing: u64,
}

/// What a repair has done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairView {
    /// False where nothing was wrong.
    pub repaired: bool,
    /// Whether anything could not be saved.
    pub lost: bool,
    /// What was wrong, in SQLite's words.
    pub problem: Option<String>,
    /// Where the damaged file lies.
    pub damaged: Option<String>,
    pub incarnation: Option<u64>,
    pub tables: Vec<KeptTable>,
}

/// What came over of one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptTable {
    pub table: String,
    pub rows: u64,
    /// Rows that were read, but that no table takes as they are.
    pub refused: u64,
    /// Stretches that could not be read.
    pub gaps: u64,
}
