//! Every file of a store, copies included; and what could not be looked into.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{At, JournalError};
use crate::journal::Journal;

/// No path of the system is so deep: whatever is there is looked into.
const DEPTH_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Walked {
    pub(super) files: Vec<PathBuf>,
    /// Files whose names are no text, or lie below one that is none. No heddle makes such.
    pub(super) nameless: Vec<PathBuf>,
    pub(super) unlisted: Vec<(PathBuf, io::Error)>,
    /// Folders below the deepest that is looked into.
    pub(super) deeper: Vec<PathBuf>,
}

impl Journal {
    /// As much as can be had.
    pub(super) fn walk(&self, root: &Path) -> Walked {
        let mut walked = Walked::default();
        let mut open = vec![(root.to_owned(), 0)];
        while let Some((folder, depth)) = open.pop() {
            let entries = match self.disk().list_all(&folder) {
                Ok(entries) => entries,
                Err(error) => {
                    walked.unlisted.push((folder, error));
                    continue;
                }
            };
            for (name, is_dir) in entries {
                let path = folder.join(name);
                if !is_dir && path.to_str().is_none() {
                    walked.nameless.push(path);
                } else if !is_dir {
                    walked.files.push(path);
                } else if depth < DEPTH_MAX {
                    open.push((path, depth + 1));
                } else {
                    walked.deeper.push(path);
                }
            }
        }
        walked.files.sort();
        walked
    }

    /// All of them, or why not.
    pub(crate) fn files_below(&self, root: &Path) -> Result<Vec<PathBuf>, JournalError> {
        let walked = self.walk(root);
        match walked.unlisted.into_iter().next() {
            Some((folder, error)) => Err(error).at(&folder),
            None => Ok(walked.files),
        }
    }
}
