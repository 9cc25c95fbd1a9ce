//! Why a copy could not be made or put back, told apart by what the person may do next.

use std::io;
use std::path::{Path, PathBuf};

use heddle_sqlite::OpenError;

use crate::blobs::BlobError;

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{} is there already, and a backup replaces nothing; choose another name", path.display())]
    Exists { path: PathBuf },
    #[error("{} is left of a backup that was interrupted, or one is being made; remove it if none is", path.display())]
    Unfinished { path: PathBuf },
    #[error("{} cannot be {what}: {source}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("SQLite refused: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// Of the source: a damaged file is not copied as if it were whole.
    #[error("{} is damaged ({problem}); no copy of it was made", path.display())]
    Damaged { path: PathBuf, problem: String },
    #[error("{} is not a backup of a Heddle store", path.display())]
    NotAStore { path: PathBuf },
    #[error("{}: a newer Heddle has written it (schema {found}, this one knows {known})", path.display())]
    Newer {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    #[error("{} cannot be looked at: {why}", path.display())]
    Unseen { path: PathBuf, why: String },
    /// A folder, a link, or another database of ours: nothing was changed.
    #[error("{}: {why}; nothing was changed", path.display())]
    Misplaced { path: PathBuf, why: String },
    #[error("the copy cannot be opened: {0}")]
    Open(#[from] OpenError),
    #[error("a blob cannot be copied: {0}")]
    Blob(#[from] BlobError),
    /// Of a repair: nothing was changed.
    #[error("no mesh can be read in {} any more; nothing was changed", path.display())]
    NothingLeft { path: PathBuf },
    /// Of a repair: nothing was changed.
    #[error("{} is empty: there is nothing in it that could be repaired, and nothing was changed", path.display())]
    Empty { path: PathBuf },
    /// Of a repair: nothing was changed.
    #[error("{}: {why}, also in a file that has its rows and nothing else; nothing was changed", path.display())]
    StepRefused { path: PathBuf, why: String },
    #[error("the copy could not be prepared: {0}")]
    Prepare(String),
}

impl BackupError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}
