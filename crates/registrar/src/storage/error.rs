//! What can go wrong in a store, told apart by what the caller may do next.

use crate::binding::LogicalKey;

#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Nothing was written; safe to try again.
    #[error("the store is busy; try again")]
    Busy,
    /// Nothing was written.
    #[error("the disk is full; nothing was written")]
    DiskFull,
    /// The outcome is unknown until somebody asks by key.
    #[error("the store did not answer; ask for the status of the key before anything else: {0}")]
    Unavailable(String),
    /// Nothing was written.
    #[error("the store refused: {0}")]
    Refused(String),
    /// Nothing was written, and nothing will be: somebody put another store in the place of this one.
    #[error(
        "the store does not have what was last seen of it: it is an earlier copy of itself, or another one"
    )]
    WentBack,
    /// Nothing was written: somebody else decides about this mesh from now on.
    #[error("the mesh has moved, and the broker that it moved to decides about its effects")]
    GivenAway,
    #[error("the store holds data that cannot be right: {0}")]
    Corrupt(String),
    /// What is answered from is not what was written: it is told as nobody's word, and nothing is decided by it.
    #[error(
        "{key}: {what} was changed in the store after it was written; it is not shown, because nobody can say what it was"
    )]
    Changed { key: String, what: &'static str },
    /// The same of rows that are not there any more.
    #[error(
        "{key}: {count} of the rows that were written of it are gone from the store, or are under another key now; nothing of it is shown, because nobody can say what it was"
    )]
    Gone { key: String, count: i64 },
    /// The same of a key that came so from the store that its mesh was decided about in before.
    #[error(
        "{key}: it was damaged in the store of the home that its mesh has moved from, and came here as such; nothing of it is shown, because nobody can say what it was"
    )]
    CameDamaged { key: String },
    #[error(
        "a newer Heddle has written it (schema {found}, this one knows {known}); nothing was changed"
    )]
    Newer { found: u32, known: u32 },
    #[error("the store cannot be opened: {0}")]
    Open(String),
}

impl StorageError {
    /// What is stored of one key is not what was written. The other keys go on.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Changed { .. } | Self::Gone { .. } | Self::CameDamaged { .. } | Self::Corrupt(_)
        )
    }

    /// The same of whatever was read of one key: a cell that cannot be read was changed, too.
    pub(crate) fn of_key(self, key: &LogicalKey) -> Self {
        match self {
            Self::Corrupt(_) => Self::Changed {
                key: key.to_string(),
                what: "a part of what is stored of it, which cannot be read any more,",
            },
            other => other,
        }
    }

    /// In words that name the key.
    pub(crate) fn about(&self, key: &str) -> String {
        match self {
            Self::Corrupt(_) => format!("{key}: {self}"),
            error => error.to_string(),
        }
    }
}
