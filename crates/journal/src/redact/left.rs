//! Files that a redaction found and may not touch, or could not look into: named by every later one until they are gone, or a person
//! says that they were looked at.
//!
//! After a redaction nobody knows any more what was erased, so nobody can search for it. The list holds names and lengths,
//! and none of the content, nor a hash that would let a guess be proven.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::disk::{Looked, read_if_there, replace};
use crate::error::{At, JournalError};
use crate::format::segment_seq;
use crate::journal::Journal;
use crate::projection::pretty;
use crate::stamp::{self, Stamp};

use super::places::PARKED_LOG_BYTES_MAX;
use super::remains::{LetBe, Remains};

const LIST_BYTES_MAX: u64 = 16 << 20;
/// With a checksum: a flipped bit in a name would silence it.
const LIST_VERSION: u8 = 2;

pub(super) const FOLLOWED_BY_NOBODY: &str = "a link to a folder, which is followed by nobody";

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
    /// Files that hold some of what is short or of others, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) short_in: Vec<PathBuf>,
    /// How many have names that say some of the content themselves, or are no text.
    #[serde(default, skip_serializing_if = "crate::restore::is_zero")]
    pub(super) hidden: u64,
    /// It could not be searched for all of it: some was erased before. Or what was found is not known any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unfinished: bool,
}

impl Found {
    /// Whatever it was.
    pub(super) fn lost() -> Self {
        Self {
            unfinished: true,
            ..Self::default()
        }
    }
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
    /// More is deflated in it than anybody looks into.
    Unsearched,
}

impl How {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn is_found(&self) -> bool {
        *self == Self::Found
    }
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
    /// Those of this search and those that an earlier one named; the list says so to the next. IMPORTANT: told is not heard. Whoever
    /// was to read this answer may be gone by now, so nothing leaves the list because it was told.
    pub(super) fn all_left(
        &self,
        found: Found,
        hidden: &[PathBuf],
    ) -> Result<Remains, JournalError> {
        let (told, next) = self.judge_left(found, hidden)?;
        self.put_left(next)?;
        Ok(told)
    }

    /// What earlier ones have left, as it is now. Changes nothing.
    pub(crate) fn open_remains(&self) -> Result<Remains, JournalError> {
        let mut told = self.judge_left(Found::default(), &[])?.0;
        told.damaged_job = self.damaged_redaction().is_some();
        Ok(told)
    }

    /// How much that is, an interrupted one included, with a sentence for each. It is no drift.
    pub(crate) fn redactions_open(&self, warnings: &mut Vec<String>) -> u64 {
        let damaged = self.damaged_redaction();
        let is_redacting = damaged.is_none() && self.is_redacting();
        if let Some(why) = damaged {
            warnings.push(format!(
                ".heddle/events/redact.json, which says what a redaction that has begun was to erase, is damaged ({why}), and nothing is erased by it: `heddle doctor redact --item ID --reason REASON` of the same item sets it aside and begins anew"
            ));
        }
        if is_redacting {
            warnings.push(
                "a redaction has begun and not ended; whoever writes next goes on with it, and `heddle doctor redact --left` does and says what it has left".to_owned(),
            );
        }
        let left = match self.open_remains() {
            Ok(left) => left.count(),
            Err(error) => {
                warnings.push(format!("what redactions have left is not known: {error}"));
                return 1;
            }
        };
        if left > 0 {
            warnings.push(format!(
                "redactions have left {left} files or places that nobody has said to have looked at; `heddle doctor redact --left` names them"
            ));
        }
        left + u64::from(is_redacting)
    }

    /// The same, for a person: what a crash has interrupted is ended first.
    pub fn remains(&self) -> Result<Remains, JournalError> {
        let _session = self.session()?;
        self.open_remains()
    }

    /// A person has looked at these files; without a name: at everything but files in which the bytes were found, changed since or not.
    /// Those of which no name is noted are let be by theirs, one each: a file of the store that is not on the list is one of them.
    pub fn let_be(&self, files: &[PathBuf]) -> Result<LetBe, JournalError> {
        // Ends what a crash has interrupted, and keeps others off the list.
        let _session = self.session()?;
        let (mut before, mut next) = self.judge_left(Found::default(), &[])?;
        before.damaged_job = self.damaged_redaction().is_some();
        let root = self.layout.root().to_owned();
        let is_named = |path: &PathBuf| files.contains(&root.join(path));
        let is_unlisted = |file: &&PathBuf| {
            let of_list = next.files.iter().map(|left| &left.path);
            let mut all = of_list.chain(&next.short_in);
            !all.any(|path| root.join(path) == **file)
        };
        let unlisted: BTreeSet<&PathBuf> = files.iter().filter(is_unlisted).collect();
        let may_hide = |file: &&&PathBuf| file.starts_with(&root);
        let hidden = unlisted.iter().filter(may_hide).count();
        let is_too_many = hidden as u64 > next.hidden;
        let mut strange = unlisted
            .iter()
            .filter(|file| is_too_many || !may_hide(file));
        if let Some(unknown) = strange.next() {
            return Err(JournalError::Refused(format!(
                "{} is not among what a redaction has left",
                unknown.display()
            )));
        }
        let is_all = files.is_empty();
        let is_held = |path: &PathBuf| {
            let name = root.join(path).display().to_string();
            before.leftovers.contains(&name) || before.changed.contains(&name)
        };
        next.files.retain(|left| {
            if is_all {
                is_held(&left.path)
            } else {
                !is_named(&left.path)
            }
        });
        next.short_in.retain(|path| !is_all && !is_named(path));
        next.hidden -= hidden as u64;
        next.unfinished &= !is_all;
        self.put_left(next)?;
        let left = self.open_remains()?;
        Ok(LetBe::between(&before, left))
    }

    fn judge_left(
        &self,
        found: Found,
        hidden: &[PathBuf],
    ) -> Result<(Remains, Found), JournalError> {
        let root = self.layout.root();
        let before = self.named_before()?;
        let mut next = Found::default();
        let mut told = Remains {
            unfinished: found.unfinished || before.unfinished,
            hidden: before.hidden,
            ..Remains::default()
        };
        if hidden.is_empty() {
            told.hidden += found.hidden;
        } else {
            let names = hidden.iter().map(|path| path.display().to_string());
            told.leftovers.extend(names);
        }
        for path in found.short_in.into_iter().chain(before.short_in) {
            let name = root.join(&path).display().to_string();
            let is_gone = matches!(self.disk().len(&root.join(&path)), Ok(None));
            if !is_gone && !told.short_in.contains(&name) {
                told.short_in.push(name);
                next.short_in.push(path);
            }
        }
        for mut left in found.files.into_iter().chain(before.files) {
            self.follow(&mut left);
            // An older build took its digits for the content. Without its file two processes would write at once.
            let is_lock = root.join(&left.path) == self.layout.lock();
            let is_told = next.files.iter().any(|known| known.path == left.path);
            if !is_told && !is_lock && self.tell(&left, &mut told)? {
                next.files.push(left);
            }
        }
        next.hidden = told.hidden + hidden.len() as u64;
        next.unfinished = told.unfinished;
        Ok((told, next))
    }

    /// Whether there is anything to tell of it.
    fn tell(&self, left: &Left, told: &mut Remains) -> Result<bool, JournalError> {
        let name = self.layout.root().join(&left.path).display().to_string();
        // A segment only grows: what was in it is in it still.
        let is_segment = is_segment(&left.path);
        match (left.how, self.now_of(left)?) {
            (_, Now::Gone | Now::Level) => return Ok(false),
            (How::Unsearched, _) => told.unsearched.push(name),
            (How::Found, Now::There(bytes)) if bytes == left.bytes || is_segment => {
                told.leftovers.push(name);
            }
            (How::Found, Now::There(_)) => told.changed.push(name),
            (How::Unread | How::Unlisted, Now::There(_)) => told.unverified.push(name),
            (_, Now::Unreadable(why)) => told.unread.push(format!("{name} ({why})")),
        }
        Ok(true)
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
        if let Some(bytes) = self.length_of_strange(&left.path) {
            return Ok(Now::There(bytes));
        }
        let bytes = match self.disk().look(&path, PARKED_LOG_BYTES_MAX) {
            Ok(Looked::File(bytes)) => bytes,
            Ok(Looked::Folder | Looked::Nothing) => return Ok(Now::Gone),
            Ok(Looked::Link(_)) if left.how == How::Found => return Ok(Now::There(left.bytes)),
            Ok(Looked::Link(_)) if self.is_own_place(&path) => {
                return Ok(Now::Unreadable(FOLLOWED_BY_NOBODY.to_owned()));
            }
            Ok(Looked::Link(_)) => return Ok(Now::There(0)),
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

    /// Of a plain file that is no projection and can be read: no more of it is asked for, however long it is.
    fn length_of_strange(&self, inside: &Path) -> Option<u64> {
        let path = self.layout.root().join(inside);
        let bytes = self.disk().len(&path).ok().flatten()?;
        let is_strange = !path.starts_with(self.layout.entities());
        let is_read = || self.disk().read_at(&path, 0, 1).is_ok();
        (is_strange && bytes <= PARKED_LOG_BYTES_MAX && is_read()).then_some(bytes)
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

    /// One that cannot be understood is no reason not to erase, and none to call all well: what it named is not known any more.
    pub(super) fn named_before(&self) -> Result<Found, JournalError> {
        let path = self.layout.leftovers();
        let Some(bytes) = read_if_there(self.disk(), &path, LIST_BYTES_MAX).at(&path)? else {
            return Ok(Found::default());
        };
        let is_sound = stamp::look(&bytes) == Stamp::Sound;
        let list = serde_json::from_slice::<List>(&bytes).ok();
        let list = list.filter(|list| is_sound && list.v == LIST_VERSION);
        Ok(list.map_or_else(Found::lost, |list| list.found))
    }

    pub(super) fn put_left(&self, found: Found) -> Result<(), JournalError> {
        let path = &self.layout.leftovers();
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
        let bytes = stamp::stamped(&list)?;
        replace(self.disk(), path, &bytes, true).at(path)
    }
}

pub(super) fn is_segment(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| segment_seq(name).is_some())
}
