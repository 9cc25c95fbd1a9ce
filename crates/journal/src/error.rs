//! What can go wrong, typed; the doors add the next step.

use std::io;
use std::path::{Path, PathBuf};

use crate::loss::lost_words;
use crate::record::{LineFault, RuleFault};
use crate::registry::{DocumentFault, RegistryError};

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("there is no journal in {0}")]
    NoStore(PathBuf),
    #[error("another process is writing ({owner}); waited {waited_ms} ms")]
    Busy { owner: String, waited_ms: u64 },
    #[error("another process reads as {reader:?} ({owner}); waited {waited_ms} ms")]
    ReaderBusy {
        reader: String,
        owner: String,
        waited_ms: u64,
    },
    /// Somebody had taken the request over and does not answer.
    #[error("whether the mutation happened is not known: {0}")]
    Unknown(Box<JournalError>),
    #[error("{0}")]
    Refused(String),
    /// Somebody changed the mode since this process opened the store.
    #[error("the journal was {before} when this began and is {now} now")]
    ModeChanged { before: String, now: String },
    #[error("the id {id:?} is taken: {why}")]
    RequestReused { id: String, why: String },
    /// An id that is not known, in a journal that is not whole.
    #[error(
        "whether a request of the id {id:?} was answered before is not known: {} lost, and the answer may stand there",
        lost_words(.seqs)
    )]
    RequestLost {
        id: String,
        /// First and last, each.
        seqs: Vec<[u64; 2]>,
    },
    #[error("{item_type} {item_id} is not here")]
    NotFound { item_type: String, item_id: String },
    #[error(
        "{item_type} {item_id} is not here, but {} lost and may have been about it",
        lost_words(.seqs)
    )]
    Lost {
        item_type: String,
        item_id: String,
        /// First and last, each.
        seqs: Vec<[u64; 2]>,
    },
    #[error(
        "what is reserved is not known: {} lost, and a reservation of which no file is left may have been among them",
        lost_words(.0)
    )]
    ReservationsLost(Vec<[u64; 2]>),
    #[error(
        "{} missing, and a checkpoint would be without what they said",
        lost_words(.0)
    )]
    Incomplete(Vec<[u64; 2]>),
    #[error("the record of {item_type} {item_id}: {reason}")]
    Entity {
        item_type: String,
        item_id: String,
        reason: String,
    },
    #[error(
        "only {written} of {wanted} bytes went to {path}: the mutation did not happen; is the disk full?"
    )]
    ShortWrite {
        path: PathBuf,
        written: usize,
        wanted: usize,
    },
    #[error(
        "{path} could not be synced ({source}): whether the mutation survives a power cut is unknown"
    )]
    SyncFailed { path: PathBuf, source: io::Error },
    #[error(
        "{0} has records that a newer heddle wrote; this one does not understand them, and does nothing that they may decide"
    )]
    Newer(PathBuf),
    #[error("{path} is damaged ({reason}): it only says that a journal is here, and in which mode")]
    Config { path: PathBuf, reason: String },
    #[error(
        "{0} is gone, and the records of a journal are here: what holds in it is not known without"
    )]
    ConfigGone(PathBuf),
    #[error(
        "{0} says that the journal is off, and its records are here: another clone turned its own off and git brought that, or a change of mode did not end"
    )]
    OffOverRecords(PathBuf),
    #[error(
        "{0}, the checkpoint that this clone began with, is gone: the files of what it held would be moved aside"
    )]
    BaseGone(PathBuf),
    #[error("{what} is not in the journal, and nothing was erased: {}", unerased_words(.seqs, .files))]
    Unerased {
        what: String,
        /// First and last, each, of records that are lost and may have been about it.
        seqs: Vec<[u64; 2]>,
        /// Files that are here under its name.
        files: Vec<PathBuf>,
    },
    #[error("{path} is not what it should be: {reason}")]
    Damaged { path: PathBuf, reason: String },
}

fn unerased_words(seqs: &[[u64; 2]], files: &[PathBuf]) -> String {
    let mut parts = Vec::new();
    if !seqs.is_empty() {
        parts.push(format!(
            "{} lost, with what is said there",
            lost_words(seqs)
        ));
    }
    if !files.is_empty() {
        let names: Vec<String> = files
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        parts.push(format!("no record explains {}", names.join(", ")));
    }
    parts.join("; ")
}

impl JournalError {
    pub fn refused(reason: impl ToString) -> Self {
        Self::Refused(reason.to_string())
    }
}

impl From<LineFault> for JournalError {
    fn from(fault: LineFault) -> Self {
        Self::Refused(format!("the record is {fault}"))
    }
}

impl From<RuleFault> for JournalError {
    fn from(fault: RuleFault) -> Self {
        Self::refused(fault)
    }
}

impl From<DocumentFault> for JournalError {
    fn from(fault: DocumentFault) -> Self {
        Self::refused(fault)
    }
}

impl From<RegistryError> for JournalError {
    fn from(fault: RegistryError) -> Self {
        Self::refused(fault)
    }
}

/// Names the file that an operation failed on.
pub(crate) trait At<T> {
    fn at(self, path: &Path) -> Result<T, JournalError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, JournalError> {
        self.map_err(|source| JournalError::Io {
            path: path.to_owned(),
            source,
        })
    }
}
