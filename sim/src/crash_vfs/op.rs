//! The log of what was done to the disk, in the order in which SQLite asked for it.

use std::sync::Arc;

/// One entry of the log. Its position in the log is its I/O index.
#[derive(Clone, Debug)]
pub struct Op {
    /// The file's name; empty for a marker.
    pub path: Arc<str>,
    /// The file itself: a name can be deleted and given to another file.
    pub(crate) inode: usize,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    Create {
        /// The name survives a power cut from here on.
        durable: bool,
    },
    Write {
        offset: usize,
        data: Arc<[u8]>,
    },
    Truncate {
        size: usize,
    },
    Sync {
        /// All names given and taken so far are durable too.
        names: bool,
    },
    /// A sync that was answered with an error.
    FailedSync,
    /// Reads see the disk again instead of what an earlier failed sync left in the cache.
    DropCache,
    Delete,
    /// A note by the test, such as "this caller has its answer".
    Marker(String),
}

impl Op {
    pub(crate) fn marker(text: String) -> Op {
        Op {
            path: Arc::from(""),
            inode: usize::MAX,
            what: What::Marker(text),
        }
    }

    /// The text of a marker.
    pub fn as_marker(&self) -> Option<&str> {
        match &self.what {
            What::Marker(text) => Some(text),
            _ => None,
        }
    }

    /// Whether this is a change or a sync of SQLite's write-ahead log.
    pub fn is_on_log(&self) -> bool {
        self.path.ends_with("-wal")
    }
}
