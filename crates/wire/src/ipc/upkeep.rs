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
    /// Rows that are in the copy as they are in the store, and that nobody can read; one sentence for each kind, with
    /// how many. Empty: all of it can be read.
    #[serde(default)]
    pub unreadable: Vec<String>,
    /// What else of the home is in the folder beside the file: its name and `.home`. It holds keys.
    #[serde(default)]
    pub with: Vec<String>,
    /// What could not be taken along, and why.
    #[serde(default)]
    pub left_out: Vec<String>,
}

/// A backup that was put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreView {
    pub file: String,
    /// Where the store lies that was there before.
    pub before: Option<String>,
    /// Of every mesh from now on; absent where the store stayed as it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<u64>,
    /// Blobs that were brought back.
    pub blobs: u64,
    /// Blobs that neither the home nor the backup has.
    pub blobs_missing: u64,
    /// What else was missing in the home and came back: the broker's file, keys, settings.
    #[serde(default)]
    pub with: Vec<String>,
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
    /// It was whole, but for something that stood in the way of this step of its schema.
    #[serde(default)]
    pub step_refused: Option<String>,
    /// Where the damaged file lies.
    pub damaged: Option<String>,
    pub incarnation: Option<u64>,
    /// The list of tables could not be read: they were found by their places and shapes.
    #[serde(default)]
    pub relisted: bool,
    /// Meshes that were lost and made again from what the other rows and the settings say.
    #[serde(default)]
    pub meshes_made: u64,
    /// Meshes of which rows are there and that nobody can name any more, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meshes_left: Vec<String>,
    /// Tasks whose history was lost, which stand as they stood.
    #[serde(default)]
    pub tasks_restated: u64,
    /// The titles of the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks_restated_titles: Vec<String>,
    /// Tasks of shared meshes that come back when the log is read again.
    #[serde(default)]
    pub tasks_from_log: u64,
    /// Tasks of which too little was left, and the titles of the first of them.
    #[serde(default)]
    pub tasks_dropped: u64,
    #[serde(default)]
    pub tasks_dropped_titles: Vec<String>,
    /// Titles of tasks that wait for one that is lost.
    #[serde(default)]
    pub tasks_stuck: Vec<String>,
    /// Where the damaged broker.db lies, if that was mended: only its header or the list of its free pages was wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_damaged: Option<String>,
    /// What is wrong with broker.db, if that is damaged as well and more than a repair mends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_beyond: Option<String>,
    /// What was committed and is lost with the log of one of the databases, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs_lost: Vec<String>,
    /// Rows that came over with another cell in the place of one that could not be read, by name.
    #[serde(default)]
    pub mended: Vec<String>,
    /// Rows that came over and cannot be read, by name: only the damaged file has them.
    #[serde(default)]
    pub unreadable: Vec<String>,
    /// Rows that were gone from the outbox.
    #[serde(default)]
    pub outbox_gone: u64,
    /// Rows that were gone and stand again, as the outbox had them, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brought_back: Vec<String>,
    /// Rows that were gone from shared meshes, whose logs bring what they have of them, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from_log: Vec<String>,
    /// Rows that were gone and that nothing in this home has, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
    /// Changes of this home that were never sent and go out now, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sent: Vec<String>,
    /// Models of vectors, by their fingerprints, of which nobody can say what they were called; their vectors are there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nameless_models: Vec<String>,
    /// Why the home does not start with the repaired file all the same, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmended: Vec<String>,
    /// Paths of shared files whose bytes were gone or wrong, and are fetched again from whoever has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files_wanted: Vec<String>,
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
