//! What can go wrong in a store, told apart by what the caller may do next.

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
    #[error("the store holds data that cannot be right: {0}")]
    Corrupt(String),
    #[error("the store cannot be opened: {0}")]
    Open(String),
}
