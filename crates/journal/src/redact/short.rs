//! Texts that cannot be looked for everywhere: those that are too short to be told from words that anybody uses, looked for as
//! whole words, and those that records of others hold as well. Only in files that are not the journal's own: in its own files they were
//! erased where they stood. What is found is named, and nothing is done about it.

use std::collections::BTreeSet;
use std::path::Path;

use crate::error::JournalError;
use crate::journal::Journal;

use super::needles::{Matcher, Needles};

/// What is looked for so.
pub(super) struct Shorts {
    words: BTreeSet<String>,
    shared: Matcher,
    is_empty: bool,
}

impl Shorts {
    pub(super) fn new(needles: &Needles) -> Result<Self, JournalError> {
        Ok(Self {
            words: needles.short().clone(),
            shared: needles.shared_matcher()?,
            is_empty: needles.short().is_empty() && needles.shared().is_empty(),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    pub(super) fn is_in(&self, bytes: &[u8]) -> bool {
        let has_word = self.words.iter().any(|word| is_word_in(word, bytes));
        has_word || self.shared.is_anywhere_in(bytes)
    }
}

impl Journal {
    /// Where the journal has files of its own, and would read and write through a link.
    pub(super) fn is_own_place(&self, path: &Path) -> bool {
        let layout = &self.layout;
        let folders = [layout.events(), layout.entities(), layout.backups()];
        folders.iter().any(|folder| path.starts_with(folder))
    }

    /// Written by the journal, record by record or file by file.
    pub(super) fn is_own(&self, path: &Path) -> bool {
        let layout = &self.layout;
        if path.starts_with(layout.quarantine()) || path == layout.parked_log() {
            return false;
        }
        let folders = [
            layout.events(),
            layout.entities(),
            layout.backups(),
            layout.schemas(),
        ];
        let files = ["journal.json", ".gitignore"].map(|name| layout.root().join(name));
        folders.iter().any(|folder| path.starts_with(folder)) || files.iter().any(|own| own == path)
    }
}

/// With neither a letter nor a digit beside it.
pub(super) fn is_word_in(word: &str, bytes: &[u8]) -> bool {
    let is_apart = |at: Option<&u8>| !at.is_some_and(|b| b.is_ascii_alphanumeric() || *b >= 0x80);
    memchr::memmem::find_iter(bytes, word.as_bytes()).any(|at| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        is_apart(before) && is_apart(bytes.get(at + word.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_one_with_nothing_of_another_beside_it() {
        for (text, is_there) in [
            ("4711", true),
            ("pin: 4711\n", true),
            ("{\"pin\":\"4711\"}", true),
            ("14711 47110 é4711", false),
            ("47110, 4711", true),
            ("", false),
        ] {
            assert_eq!(is_word_in("4711", text.as_bytes()), is_there, "{text}");
        }
    }
}
