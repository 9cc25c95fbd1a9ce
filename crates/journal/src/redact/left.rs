//! Files that a redaction found and may not touch: named again by every later one for as long as they are there.
//!
//! After a redaction nobody knows any more what was erased, so nobody can search for it. The list holds names and lengths,
//! and none of the content, nor a hash that would let a guess be proven.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::disk::{read_if_there, replace};
use crate::error::{At, JournalError};
use crate::format::segment_seq;
use crate::journal::Journal;
use crate::projection::pretty;

use super::places::PARKED_LOG_BYTES_MAX;

const LIST_BYTES_MAX: u64 = 16 << 20;
const LIST_VERSION: u8 = 1;

/// `events/leftovers.json`.
#[derive(Debug, Serialize, Deserialize)]
struct List {
    v: u8,
    #[serde(flatten)]
    found: Found,
}

/// What a search has to tell. Names only: in the job until the redaction ends, then in the list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Found {
    #[serde(default)]
    pub(super) files: Vec<Left>,
    /// Files that hold some of what is short or of others, too, where nobody has heard of it yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) short_in: Vec<PathBuf>,
    /// How many have names that say some of the content themselves.
    #[serde(default, skip_serializing_if = "crate::restore::is_zero")]
    pub(super) hidden: u64,
    /// It could not be searched for all of it: some was erased before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unfinished: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Left {
    /// From the store's root on.
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    #[serde(default, skip_serializing_if = "How::is_found")]
    pub(super) how: How,
}

/// Why a file is named.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum How {
    /// Some of the bytes were in it.
    #[default]
    Found,
    /// It could not be read: nobody knows.
    Unread,
    /// A folder that could not be looked into.
    Unlisted,
}

impl How {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn is_found(&self) -> bool {
        *self == Self::Found
    }
}

/// What is to be told of them.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    pub(super) files: Vec<String>,
    /// Could not be read, and cannot now.
    pub(super) unread: Vec<String>,
    /// Could not be read when they were searched; they can be now, and nobody knows any more what to look for.
    pub(super) unverified: Vec<String>,
    /// Named before, changed since, and not to be searched any more.
    pub(super) changed: Vec<String>,
    pub(super) short_in: Vec<String>,
    pub(super) hidden: u64,
    pub(super) unfinished: bool,
}

/// What is there of a file now.
enum Now {
    Gone,
    Unreadable(String),
    /// A projection, and what the journal says.
    Level,
    There(u64),
}

impl Journal {
    /// Those of this search and those that an earlier one named; the list says so to the next. What is told once is kept until
    /// somebody hears it.
    pub(super) fn all_leftovers(
        &self,
        found: Found,
        hidden: Vec<PathBuf>,
        is_heard: bool,
    ) -> Result<Leftovers, JournalError> {
        let root = self.layout.root();
        let before = self.named_before()?;
        let mut next = Found::default();
        let mut told = Leftovers {
            unfinished: found.unfinished || before.unfinished,
            hidden: before.hidden,
            ..Leftovers::default()
        };
        if hidden.is_empty() {
            told.hidden += found.hidden;
        } else {
            let names = hidden.iter().map(|path| path.display().to_string());
            told.files.extend(names);
        }
        for path in found.short_in.into_iter().chain(before.short_in) {
            let name = root.join(&path).display().to_string();
            if !told.short_in.contains(&name) {
                told.short_in.push(name);
                next.short_in.push(path);
            }
        }
        for mut left in found.files.into_iter().chain(before.files) {
            self.follow(&mut left);
            let path = root.join(&left.path);
            // An older build took its digits for the content. Without its file two processes would write at once.
            let is_told = next.files.iter().any(|known| known.path == left.path);
            if is_told || path == self.layout.lock() {
                continue;
            }
            let name = path.display().to_string();
            // A segment only grows: what was in it is in it still.
            let is_segment = is_segment(&left.path);
            match (left.how, self.now_of(&left)?) {
                (_, Now::Gone | Now::Level) => {}
                (How::Found, Now::There(bytes)) if bytes == left.bytes || is_segment => {
                    told.files.push(name);
                    next.files.push(left);
                }
                (How::Found, Now::There(_)) => {
                    told.changed.push(name);
                    next.files.extend((!is_heard).then_some(left));
                }
                (How::Unread | How::Unlisted, Now::There(_)) => {
                    told.unverified.push(name);
                    next.files.extend((!is_heard).then_some(left));
                }
                (_, Now::Unreadable(why)) => {
                    told.unread.push(format!("{name} ({why})"));
                    next.files.push(left);
                }
            }
        }
        if is_heard {
            next.short_in.clear();
        } else {
            next.hidden = told.hidden + hidden.len() as u64;
            next.unfinished = told.unfinished;
        }
        self.put_left(&self.layout.leftovers(), next)?;
        Ok(told)
    }

    fn now_of(&self, left: &Left) -> Result<Now, JournalError> {
        let path = self.layout.root().join(&left.path);
        if left.how == How::Unlisted {
            let listed = self
                .disk()
                .check_dir(&path)
                .and_then(|()| self.disk().list(&path));
            return Ok(match listed {
                Ok(_) => Now::There(0),
                Err(error) if error.kind() == ErrorKind::NotFound => Now::Gone,
                Err(error) => Now::Unreadable(error.to_string()),
            });
        }
        let bytes = match self.disk().read(&path, PARKED_LOG_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Now::Gone),
            // What was in it once is in it still, for all that anybody knows.
            Err(_) if left.how == How::Found => return Ok(Now::There(left.bytes)),
            Err(error) => return Ok(Now::Unreadable(error.to_string())),
        };
        if self.is_as_recorded(&left.path, &bytes)? {
            return Ok(Now::Level);
        }
        Ok(Now::There(bytes.len() as u64))
    }

    /// A projection, to the byte what the journal would write: it holds nothing that the records do not.
    fn is_as_recorded(&self, inside: &Path, bytes: &[u8]) -> Result<bool, JournalError> {
        let names: Vec<&str> = inside.iter().filter_map(|name| name.to_str()).collect();
        let ["entities", item_type, file] = names[..] else {
            return Ok(false);
        };
        let Some(item_id) = file.strip_suffix(".json") else {
            return Ok(false);
        };
        let rebuilt = self.rebuild(0)?;
        let Some(entity) = rebuilt.replay.get(item_type, item_id) else {
            return Ok(false);
        };
        let document = self.document(item_type, &entity.body);
        Ok(match document {
            Ok(document) => pretty(&document)? == bytes,
            Err(_) => false,
        })
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
    fn named_before(&self) -> Result<Found, JournalError> {
        let path = self.layout.leftovers();
        let bytes = read_if_there(self.disk(), &path, LIST_BYTES_MAX).at(&path)?;
        let list = bytes.and_then(|bytes| serde_json::from_slice::<List>(&bytes).ok());
        let list = list.filter(|list| list.v == LIST_VERSION);
        Ok(list.map(|list| list.found).unwrap_or_default())
    }

    fn put_left(&self, path: &Path, found: Found) -> Result<(), JournalError> {
        let is_there = self.disk().len(path).at(path)?.is_some();
        if found == Found::default() {
            return if is_there {
                self.erase_file(path)
            } else {
                Ok(())
            };
        }
        let list = List {
            v: LIST_VERSION,
            found,
        };
        let bytes = serde_json::to_vec(&list).map_err(JournalError::refused)?;
        replace(self.disk(), path, &bytes, true).at(path)
    }
}

pub(super) fn is_segment(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| segment_seq(name).is_some())
}
