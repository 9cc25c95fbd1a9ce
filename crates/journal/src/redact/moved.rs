//! What the product itself moves or copies goes on being told where it lies then: no leftover goes out of sight by a verb of ours.

use std::path::{Path, PathBuf};

use crate::error::JournalError;
use crate::journal::Journal;

use super::left::Left;

impl Journal {
    /// Under the lock, and before the files move or are copied. IMPORTANT: both names are listed from then on, so a crash anywhere loses
    /// neither; of the two the one that is not there leaves the list by itself.
    pub(crate) fn follow_left<'p>(
        &self,
        moves: impl IntoIterator<Item = (&'p Path, &'p Path)>,
    ) -> Result<(), JournalError> {
        self.follow_parts(moves.into_iter().map(|(from, to)| (from, to, None)))
    }

    /// The same where a part of a file is copied, of that length.
    pub(crate) fn follow_part(
        &self,
        from: &Path,
        to: &Path,
        bytes: u64,
    ) -> Result<(), JournalError> {
        self.follow_parts([(from, to, Some(bytes))])
    }

    fn follow_parts<'p>(
        &self,
        moves: impl IntoIterator<Item = (&'p Path, &'p Path, Option<u64>)>,
    ) -> Result<(), JournalError> {
        // As a rule there is no list, and then this costs one look.
        if matches!(self.disk().len(&self.layout.leftovers()), Ok(None)) {
            return Ok(());
        }
        let mut list = self.named_before()?;
        let root = self.layout.root();
        let (mut files, mut short_in): (Vec<Left>, Vec<PathBuf>) = Default::default();
        for (from, to, bytes) in moves {
            let (Ok(from), Ok(to)) = (from.strip_prefix(root), to.strip_prefix(root)) else {
                continue;
            };
            for left in list.files.iter().filter(|left| left.path == from) {
                files.push(Left {
                    path: to.to_owned(),
                    bytes: bytes.unwrap_or(left.bytes),
                    how: left.how,
                });
            }
            if list.short_in.iter().any(|path| path == from) {
                short_in.push(to.to_owned());
            }
        }
        if files.is_empty() && short_in.is_empty() {
            return Ok(());
        }
        list.files.extend(files);
        list.short_in.extend(short_in);
        self.put_left(list)
    }
}
