//! Files that a redaction found and may not touch: named again by every later one for as long as they are there.
//!
//! After a redaction nobody knows any more what was erased, so nobody can search for it. The list holds names and lengths,
//! and none of the content, nor a hash that would let a guess be proven.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::disk::{read_if_there, replace};
use crate::error::{At, JournalError};
use crate::format::segment_seq;
use crate::journal::Journal;

use super::needles::Matcher;

const LIST_BYTES_MAX: u64 = 16 << 20;
const LIST_VERSION: u8 = 1;

/// `events/leftovers.json`.
#[derive(Debug, Serialize, Deserialize)]
struct List {
    v: u8,
    files: Vec<Left>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Left {
    /// From the store's root on.
    path: PathBuf,
    bytes: u64,
}

/// What is to be told of them.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    pub(super) files: Vec<String>,
    /// Named before, changed since, and not to be searched any more.
    pub(super) changed: Vec<String>,
}

impl Journal {
    /// Those of this search and those that an earlier one named; the list says so to the next. One that was changed since is named
    /// once, to somebody who hears it.
    pub(super) fn all_leftovers(
        &self,
        matcher: &Matcher,
        is_heard: bool,
    ) -> Result<Leftovers, JournalError> {
        let root = self.layout.root();
        let found = self.leftovers(matcher)?;
        let mut files: Vec<Left> = Vec::new();
        let mut told = Leftovers::default();
        for (path, why) in found {
            let reason = why.map_or(String::new(), |why| format!(" (not readable: {why})"));
            told.files.push(format!("{}{reason}", path.display()));
            // A name that itself says what was erased is not written down once more. What cannot be read is found again anyway.
            let is_silent = !matcher.is_in(path.as_os_str().as_encoded_bytes());
            if let (Ok(inside), Ok(Some(bytes)), true) =
                (path.strip_prefix(root), self.disk().len(&path), is_silent)
            {
                let path = inside.to_owned();
                files.push(Left { path, bytes });
            }
        }
        for mut before in self.named_before()? {
            self.follow(&mut before);
            let path = root.join(&before.path);
            // An older build took its digits for the content. Without its file two processes would write at once.
            if path == self.layout.lock() {
                continue;
            }
            let is_found = files.iter().any(|left| left.path == before.path);
            // A segment only grows: what was in it is in it still.
            let is_segment = is_segment(&before.path);
            match self.disk().len(&path).unwrap_or(None) {
                Some(bytes) if !is_found && (bytes == before.bytes || is_segment) => {
                    told.files.push(path.display().to_string());
                    files.push(before);
                }
                Some(_) if !is_found => {
                    told.changed.push(path.display().to_string());
                    files.extend((!is_heard).then_some(before));
                }
                _ => {}
            }
        }
        self.put_left(&self.layout.leftovers(), files)?;
        Ok(told)
    }

    /// A segment that `gc` has moved since is in the archive, with all that is in it.
    fn follow(&self, left: &mut Left) {
        let root = self.layout.root();
        let is_there = |path: &Path| matches!(self.disk().len(path), Ok(Some(_)));
        let name = left.path.file_name().unwrap_or_default();
        let archived = self.layout.archive().join(name);
        if is_segment(&left.path)
            && !is_there(&root.join(&left.path))
            && is_there(&archived)
            && let Ok(inside) = archived.strip_prefix(root)
        {
            inside.clone_into(&mut left.path);
        }
    }

    /// A list that cannot be read names nothing; it is no reason not to erase.
    fn named_before(&self) -> Result<Vec<Left>, JournalError> {
        let path = self.layout.leftovers();
        let bytes = read_if_there(self.disk(), &path, LIST_BYTES_MAX).at(&path)?;
        let list = bytes.and_then(|bytes| serde_json::from_slice::<List>(&bytes).ok());
        let list = list.filter(|list| list.v == LIST_VERSION);
        Ok(list.map(|list| list.files).unwrap_or_default())
    }

    fn put_left(&self, path: &Path, files: Vec<Left>) -> Result<(), JournalError> {
        let is_there = self.disk().len(path).at(path)?.is_some();
        if files.is_empty() {
            return if is_there {
                self.erase_file(path)
            } else {
                Ok(())
            };
        }
        let list = List {
            v: LIST_VERSION,
            files,
        };
        let bytes = serde_json::to_vec(&list).map_err(JournalError::refused)?;
        replace(self.disk(), path, &bytes, true).at(path)
    }
}

pub(super) fn is_segment(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| segment_seq(name).is_some())
}
