//! What a repair tells of what it did.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::tasks::RepairedTasks;

/// What came over of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub table: String,
    pub rows: u64,
    /// Rows that were read, but that no table takes as they are.
    pub refused: u64,
    /// Places from which on nothing could be read for a while; how many rows stood there is not known.
    pub gaps: u64,
    /// Rows that came over with another cell in the place of one that could not be read, by name.
    pub mended: Vec<String>,
}

impl Kept {
    pub fn is_whole(&self) -> bool {
        self.refused == 0 && self.gaps == 0
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// Where the damaged file lies.
    pub damaged: PathBuf,
    /// What was wrong with it, in SQLite's words.
    pub problem: String,
    /// It was whole, but for something that stood in the way of a step of its schema.
    pub step_refused: bool,
    pub tables: Vec<Kept>,
    pub incarnation: u64,
    /// The list of tables could not be read; the tables were found by their places and shapes.
    pub relisted: bool,
    /// Rows of `mesh` that were made again from what the other tables and the settings say.
    pub meshes_made: u64,
    /// Meshes of which rows are there and that nobody can name any more, in words.
    pub meshes_left: Vec<String>,
    pub tasks: RepairedTasks,
    /// What was committed and is lost with the log of the file, in words.
    pub log_lost: Option<String>,
    /// Rows that came over and could not be read all the same, by name: only the damaged file has them.
    pub unreadable: Vec<String>,
    pub rows: RepairedRows,
    /// Models of vectors, by their fingerprints, of which nobody can say what they were called; their vectors are there.
    pub nameless_models: Vec<String>,
    /// Why a start will not go on with the file all the same, in words.
    pub unmended: Vec<String>,
}

/// What became of rows that were gone as a whole, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairedRows {
    /// From the outbox, whose rows have no name.
    pub outbox_gone: u64,
    /// They stand again, as the outbox had them.
    pub brought_back: BTreeSet<String>,
    /// Of shared meshes: their logs are read again, and bring what they have.
    pub from_log: BTreeSet<String>,
    /// Nothing in this home has them; they are not told of again.
    pub gone: BTreeSet<String>,
    /// Changes of this home that were never sent and go out now.
    pub sent: Vec<String>,
}
