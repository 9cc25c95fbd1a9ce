//! RD-01: every file of the store is read, before the content goes for good, for what will still hold some of it afterwards.
//!
//! What the erasing takes away or writes anew is looked at as it will be. What is found is noted in the job: a crash behind it loses
//! nothing of that. Nothing is changed here.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::Looked;
use crate::error::{At, JournalError};
use crate::journal::Journal;
use crate::layout::Layout;
use crate::meta;

use super::inflate::Seen;
use super::job::Job;
use super::left::{Found, How, Left, is_segment};
use super::needles::{Matcher, Needles};
use super::places::PARKED_LOG_BYTES_MAX;
use super::short::Shorts;
use super::{own_words, scrub};

/// Of what a link leads to outside of the store.
const LINKED_BYTES_MAX: u64 = 64 << 20;

/// What the erasing does to a file of the journal's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Segment,
    Checkpoint,
    Gone,
}

pub(super) struct Search<'s> {
    journal: &'s Journal,
    job: &'s Job,
    matcher: &'s Matcher,
    is_empty: bool,
    shorts: Shorts,
    own: BTreeMap<PathBuf, Fate>,
    /// Of this journal, whatever they hold.
    passed: BTreeSet<PathBuf>,
    pub(super) found: Found,
    /// Files whose own names say some of it: told, and written down nowhere.
    pub(super) hidden: Vec<PathBuf>,
    /// Links out of the store, behind which nobody has looked: told, and no reason to call anything left.
    pub(super) links: Vec<String>,
}

impl<'s> Search<'s> {
    pub(super) fn new(
        journal: &'s Journal,
        layouts: &[Layout],
        job: &'s Job,
        needles: &Needles,
        matcher: &'s Matcher,
    ) -> Result<Self, JournalError> {
        let mut own = BTreeMap::new();
        for layout in layouts {
            for path in journal.segment_files(layout)? {
                own.insert(path, Fate::Segment);
            }
            for path in journal.checkpoint_files(layout)? {
                own.insert(path, Fate::Checkpoint);
            }
            for sha256 in &job.blobs {
                own.insert(layout.blob(sha256), Fate::Gone);
                own.insert(layout.archived_blobs().join(sha256), Fate::Gone);
            }
        }
        // Held by this process, which has signed it: the text is ours, and what else stood there was cut off by that.
        let mut passed = BTreeSet::from([journal.layout.lock(), journal.layout.redact_job()]);
        // The cache is numbers, and the name of a boot.
        if meta::read(journal.disk(), &journal.layout)?
            .good()
            .is_some()
        {
            passed.insert(journal.layout.meta());
        }
        Ok(Self {
            journal,
            job,
            matcher,
            is_empty: needles.is_empty(),
            shorts: Shorts::new(needles)?,
            own,
            passed,
            found: Found::default(),
            hidden: Vec::new(),
            links: Vec::new(),
        })
    }

    /// Where nothing is known to look for, nobody looks.
    pub(super) fn all(&mut self) -> Result<(), JournalError> {
        if self.is_empty && self.shorts.is_empty() {
            return Ok(());
        }
        self.below(self.journal.layout.root())
    }

    fn below(&mut self, folder: &Path) -> Result<(), JournalError> {
        let walked = self.journal.walk(folder);
        for path in walked.files.iter().chain(&walked.nameless) {
            self.file(path)?;
        }
        let unlisted = walked.unlisted.into_iter().map(|(path, _)| path);
        for path in unlisted.chain(walked.deeper) {
            self.note(&path, How::Unlisted, 0);
        }
        Ok(())
    }

    /// What could not be read is tried once more when all else is done: most of what stands in the way has gone by then.
    pub(super) fn again(&mut self) -> Result<(), JournalError> {
        let (unread, files) = std::mem::take(&mut self.found.files)
            .into_iter()
            .partition(|left| matches!(left.how, How::Unread | How::Unlisted));
        self.found.files = files;
        let unread: Vec<Left> = unread;
        let root = self.journal.layout.root();
        for left in unread {
            let path = root.join(&left.path);
            match left.how {
                How::Unlisted => self.below(&path)?,
                How::Found | How::Unread | How::Unsearched => self.file(&path)?,
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path) -> Result<(), JournalError> {
        let fate = self.own.get(path).copied();
        if self.passed.contains(path) || fate == Some(Fate::Gone) {
            return Ok(());
        }
        let is_short = !self.shorts.is_empty() && !self.journal.is_own(path);
        if self.is_empty && !is_short {
            return Ok(());
        }
        let Some(bytes) = self.bytes_of(path, fate.is_some())? else {
            return Ok(());
        };
        if is_short && self.shorts.is_in(&bytes) {
            self.note_short(path);
        }
        let Some(bytes) = self.afterwards(fate, bytes)? else {
            return Ok(());
        };
        let is_own_word = |bytes: &[u8]| {
            is_segment(path) && !self.matcher.is_anywhere_in(&own_words::blanked(bytes))
        };
        match self.matcher.look_in(&bytes) {
            Seen::Held if !is_own_word(&bytes) => self.note(path, How::Found, bytes.len()),
            Seen::Beyond => self.note(path, How::Unsearched, bytes.len()),
            Seen::Held | Seen::Nothing => {}
        }
        Ok(())
    }

    /// What is to be searched under this name, where anything is.
    fn bytes_of(&mut self, path: &Path, is_erased: bool) -> Result<Option<Vec<u8>>, JournalError> {
        let disk = self.journal.disk();
        let looked = if is_erased {
            // IMPORTANT: the erasing reads it as well, and cannot do without. Nothing but a plain file with one name will do (T-64).
            disk.read(path, PARKED_LOG_BYTES_MAX).map(Looked::File)
        } else {
            disk.look(path, PARKED_LOG_BYTES_MAX)
        };
        match looked {
            Ok(Looked::File(bytes)) => Ok(Some(bytes)),
            Ok(Looked::Link(says)) => Ok(self.linked(path, &says)),
            Ok(Looked::Folder | Looked::Nothing) => Ok(None),
            // A request that its owner took back meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if is_erased => Err(error).at(path),
            Err(_) => {
                self.note(path, How::Unread, 0);
                Ok(None)
            }
        }
    }

    /// A link holds the name that it leads to, and nothing else. What that is lies in the store, and is searched under its own name; or it is
    /// a file elsewhere, which is searched; or nobody goes there.
    fn linked(&mut self, path: &Path, says: &Path) -> Option<Vec<u8>> {
        let text = says.as_os_str().as_encoded_bytes();
        if self.matcher.is_in(text) {
            self.note(path, How::Found, text.len());
            return None;
        }
        let disk = self.journal.disk();
        let (Ok(root), Ok(target)) = (disk.real(self.journal.layout.root()), disk.real(path))
        else {
            return None;
        };
        if target.starts_with(root) {
            return None;
        }
        match disk.look(&target, LINKED_BYTES_MAX) {
            Ok(Looked::File(bytes)) => return Some(bytes),
            // Where the journal would have files of its own, these may be behind it, and were not erased.
            Ok(Looked::Folder) if self.journal.is_own_place(path) => {
                self.note(path, How::Unread, 0);
            }
            Ok(Looked::Folder | Looked::Link(_)) | Err(_) => {
                self.links.push(path.display().to_string());
            }
            Ok(Looked::Nothing) => {}
        }
        None
    }

    /// What will be there when all is done; None: nothing.
    fn afterwards(
        &self,
        fate: Option<Fate>,
        bytes: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, JournalError> {
        Ok(match fate {
            None => Some(bytes),
            Some(Fate::Gone) => None,
            Some(Fate::Segment) => {
                let after = scrub::segment(&bytes, self.job, self.matcher)?;
                Some(after.unwrap_or(bytes))
            }
            Some(Fate::Checkpoint) => match scrub::manifest(&bytes, self.job) {
                Ok(Some((after, _))) => Some(after),
                Err(_) if scrub::is_doomed(&bytes, self.job, self.matcher) => None,
                Ok(None) | Err(_) => Some(bytes),
            },
        })
    }

    /// Whether a name cannot be written down: it says some of it, or it is no text.
    fn says(&self, path: &Path) -> bool {
        let name = path.as_os_str().as_encoded_bytes();
        path.to_str().is_none() || self.matcher.is_in(name) || self.shorts.is_in(name)
    }

    /// With the length that it will have: a checkpoint is written anew in another one.
    fn note(&mut self, path: &Path, how: How, bytes: usize) {
        let inside = path.strip_prefix(self.journal.layout.root());
        match inside {
            Ok(inside) if !self.says(inside) => self.found.files.push(Left {
                path: inside.to_owned(),
                bytes: bytes as u64,
                how,
            }),
            _ => {
                self.found.hidden += 1;
                self.hidden.push(path.to_owned());
            }
        }
    }

    fn note_short(&mut self, path: &Path) {
        match path.strip_prefix(self.journal.layout.root()) {
            Ok(inside) if !self.says(inside) => self.found.short_in.push(inside.to_owned()),
            _ => {
                self.found.hidden += 1;
                self.hidden.push(path.to_owned());
            }
        }
    }
}
