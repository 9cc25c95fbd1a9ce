//! Empty segments of far numbers: somebody made a file, and no record of ours is behind it. No seq is skipped for one.

use crate::disk::Disk;
use crate::error::{At, JournalError};
use crate::format::{SEGMENT_BYTES_MAX, segment_name};
use crate::journal::Journal;
use crate::meta::MetaFound;
use crate::segments;

impl Journal {
    /// Those at the end of these that hold nothing and begin above every seq that was given. Without a cache none is called so: a
    /// name may be the last that knows how far the journal was.
    pub(crate) fn strays(&self, live: &[u64], meta: &MetaFound) -> Result<Vec<u64>, JournalError> {
        let Some(meta) = meta.good() else {
            return Ok(Vec::new());
        };
        let mut strays = Vec::new();
        for first in live.iter().skip(1).rev() {
            if *first <= meta.next_seq || !is_empty(self.disk(), &self.layout.segment(*first))? {
                break;
            }
            strays.push(*first);
        }
        let rest = &live[..live.len() - strays.len()];
        let Some(last) = rest.last().filter(|_| !strays.is_empty()) else {
            return Ok(Vec::new());
        };
        // The cache may be behind the records.
        let tail = segments::tail(self.disk(), &self.layout, *last, None)?;
        let next = self.next_after(rest, &tail)?;
        strays.retain(|first| *first > next && !tail.is_newer);
        Ok(strays)
    }

    /// Under the lock: they are moved into `quarantine/`, and the segments are those that are left.
    pub(crate) fn put_strays_aside(
        &self,
        live: &mut Vec<u64>,
        meta: &MetaFound,
    ) -> Result<(), JournalError> {
        for first in self.strays(live, meta)? {
            let (folder, events) = (self.layout.quarantine(), self.layout.events());
            let path = self.layout.segment(first);
            self.disk().create_dir(&folder).at(&folder)?;
            let aside = folder.join(segment_name(first));
            self.disk().rename(&path, &aside).at(&path)?;
            self.disk().sync_dir(&events).at(&events)?;
            live.retain(|other| *other != first);
        }
        Ok(())
    }

    pub(crate) fn warn_of_strays(&self, warnings: &mut Vec<String>) -> Result<(), JournalError> {
        let meta = crate::meta::read(self.disk(), &self.layout)?;
        let live = segments::live(self.disk(), &self.layout)?;
        for first in self.strays(&live, &meta)? {
            warnings.push(format!(
                ".heddle/events/{} holds nothing, and its number is one that nobody has reached: the next writer moves it to .heddle/events/quarantine/, and skips no seq for it",
                segment_name(first)
            ));
        }
        Ok(())
    }
}

fn is_empty(disk: &dyn Disk, path: &std::path::Path) -> Result<bool, JournalError> {
    let length = disk.len(path).at(path)?.unwrap_or(0);
    Ok(length <= SEGMENT_BYTES_MAX && segments::end(disk, path, length)? == 0)
}
