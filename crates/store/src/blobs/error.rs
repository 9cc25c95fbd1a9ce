//! What can go wrong with bytes on disk, told apart by what the caller may do next.

use std::io::{self, ErrorKind};

use heddle_core::file::ContentHash;
use heddle_core::limits::FILE_BYTES_MAX;
use rustix::io::Errno;

#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("the disk is full; nothing was kept")]
    Full,
    #[error("the file has more than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    /// What was to be shared could not be read to its end.
    #[error("the file could not be read: {0}")]
    Source(io::Error),
    #[error("there is no {name} in the blob folder")]
    Missing { name: String },
    /// A link, a folder or a device where a file of ours should be. Not followed, not touched.
    #[error("{name} in the blob folder is not of our making: {why}")]
    Foreign { name: String, why: &'static str },
    #[error("blob {hash} is damaged: {why}")]
    Damaged { hash: ContentHash, why: String },
    #[error("the blob folder takes nothing since a sync failed ({0}); restart the daemon")]
    Poisoned(String),
    #[error("cannot {what} {name}: {source}")]
    Io {
        what: &'static str,
        name: String,
        source: io::Error,
    },
}

impl BlobError {
    pub(super) fn io(what: &'static str, name: &str, source: io::Error) -> Self {
        match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full,
            _ => Self::Io {
                what,
                name: name.to_owned(),
                source,
            },
        }
    }

    /// Of an open that follows no link.
    pub(super) fn open(name: &str, error: Errno) -> Self {
        let name = name.to_owned();
        match error {
            Errno::NOENT => Self::Missing { name },
            Errno::LOOP => Self::Foreign {
                name,
                why: "a link",
            },
            Errno::NOTDIR => Self::Foreign {
                name,
                why: "not a folder",
            },
            Errno::XDEV => Self::Foreign {
                name,
                why: "it leads out of the folder",
            },
            _ => Self::io("open", &name, error.into()),
        }
    }
}
