//! Which segments there are, and where the last one ends. The folder decides, never the cache (C25).

use std::ops::Range;
use std::path::PathBuf;

use crate::disk::Disk;
use crate::error::{At, JournalError};
use crate::format::{SEGMENT_BYTES_MAX, TAIL_WINDOW_BYTES, segment_seq};
use crate::layout::Layout;
use crate::lines::{Counted, Damage, Sink, scan};

/// First seqs of the live segments, rising. The last one is the active segment.
pub fn live(disk: &dyn Disk, layout: &Layout) -> Result<Vec<u64>, JournalError> {
    listed(disk, layout.events())
}

pub fn archived(disk: &dyn Disk, layout: &Layout) -> Result<Vec<u64>, JournalError> {
    listed(disk, layout.archive())
}

fn listed(disk: &dyn Disk, dir: PathBuf) -> Result<Vec<u64>, JournalError> {
    let entries = disk.list(&dir).at(&dir)?;
    let files = entries.iter().filter(|entry| !entry.is_dir);
    let mut seqs: Vec<u64> = files.filter_map(|entry| segment_seq(&entry.name)).collect();
    seqs.sort_unstable();
    Ok(seqs)
}

/// The segment that holds `seq`, as an index into `segments`; the first where all begin later.
pub fn holding(segments: &[u64], seq: u64) -> usize {
    segments
        .partition_point(|first| *first <= seq)
        .saturating_sub(1)
}

pub fn read(disk: &dyn Disk, layout: &Layout, first_seq: u64) -> Result<Vec<u8>, JournalError> {
    let path = layout.segment(first_seq);
    match disk.read(&path, SEGMENT_BYTES_MAX) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // The collector moved it between the listing and now: same bytes, other folder.
            let path = layout.archived_segment(first_seq);
            disk.read(&path, SEGMENT_BYTES_MAX).at(&path)
        }
        other => other.at(&path),
    }
}

/// From a byte on; None where the segment ends before it.
pub fn read_from(
    disk: &dyn Disk,
    layout: &Layout,
    first_seq: u64,
    byte: u64,
) -> Result<Option<Vec<u8>>, JournalError> {
    let path = layout.segment(first_seq);
    let length = disk.len(&path).at(&path)?.unwrap_or(0);
    if length < byte || length > SEGMENT_BYTES_MAX {
        return Ok(None);
    }
    let wanted = usize::try_from(length - byte).unwrap_or(0);
    disk.read_at(&path, byte, wanted).at(&path).map(Some)
}

/// The end of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    pub bytes: u64,
    /// The seq of the last record that counts; None where none does.
    pub last_seq: Option<u64>,
    /// What lies behind it and counts for nothing.
    pub torn: Option<Range<u64>>,
}

/// Reads the last few KB of a segment, more only where a batch is longer than that.
pub fn tail(disk: &dyn Disk, layout: &Layout, first_seq: u64) -> Result<Tail, JournalError> {
    let path = layout.segment(first_seq);
    let bytes = disk.len(&path).at(&path)?.unwrap_or(0);
    if bytes > SEGMENT_BYTES_MAX {
        return Err(JournalError::Damaged {
            path,
            reason: "larger than a segment can be".to_owned(),
        });
    }
    let mut window = TAIL_WINDOW_BYTES;
    loop {
        let start = bytes.saturating_sub(window);
        let length = usize::try_from(bytes - start).unwrap_or(0);
        let piece = disk.read_at(&path, start, length).at(&path)?;
        let whole = start == 0;
        // A window begins inside a line; that piece is no line.
        let skip = if whole {
            Some(0)
        } else {
            memchr::memchr(b'\n', &piece).map(|at| at + 1)
        };
        let mut end = End::default();
        if let Some(skip) = skip {
            scan(&piece[skip..], start + skip as u64, &mut end);
        }
        if end.last_seq.is_some() || whole {
            let from = usize::try_from(end.counted_to.saturating_sub(start)).unwrap_or(0);
            let rest = &piece[from.min(piece.len())..];
            let first = rest.iter().position(|b| *b != b'\n');
            return Ok(Tail {
                bytes,
                last_seq: end.last_seq,
                torn: first.map(|at| start + (from + at) as u64..bytes),
            });
        }
        window = window.saturating_mul(2);
    }
}

#[derive(Default)]
struct End {
    last_seq: Option<u64>,
    counted_to: u64,
}

impl<'a> Sink<'a> for End {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        if let Some(last) = batch.last() {
            // The largest of the batch: a record that was appended again carries its old seq.
            self.last_seq = self.last_seq.max(Some(last.record.seq));
            self.counted_to = last.place.end;
        }
    }

    fn damage(&mut self, _: Damage) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seq_is_found_by_the_names_alone() {
        let segments = [1, 100, 250];
        for (seq, index) in [(1, 0), (99, 0), (100, 1), (249, 1), (250, 2), (9000, 2)] {
            assert_eq!(holding(&segments, seq), index);
        }
        assert_eq!(holding(&[50], 3), 0);
        assert_eq!(holding(&[], 3), 0);
    }
}
