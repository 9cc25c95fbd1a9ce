//! Which segments there are, and where the last one ends. The folder decides, never the cache (C25).

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::value::RawValue;

use crate::disk::Disk;
use crate::error::{At, JournalError};
use crate::format::{SEGMENT_BYTES_MAX, SEQ_MAX, TAIL_WINDOW_BYTES, segment_seq};
use crate::layout::Layout;
use crate::lines::{Counted, Damage, Sink, filled_len, is_blank, scan};
use crate::meta::{Meta, Position};
use crate::notes::MetaPayload;
use crate::record::decode;

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
    seqs.retain(|seq| *seq <= SEQ_MAX);
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

/// The seq of the last record that counts before a place; none where none does.
pub fn seq_before(
    disk: &dyn Disk,
    layout: &Layout,
    at: Position,
) -> Result<Option<u64>, JournalError> {
    if at.byte == 0 {
        return Ok(at.segment.checked_sub(1));
    }
    last_before(disk, &layout.segment(at.segment), at.byte)
}

/// The same within one file.
pub fn last_before(disk: &dyn Disk, path: &Path, byte: u64) -> Result<Option<u64>, JournalError> {
    Ok(window_before(disk, path, byte)?.end.last_seq)
}

/// How much is looked at behind the place that the cache calls the end. A writer fills room from its first byte on.
const PROBE_BYTES: u64 = 64;
/// Read at once while the end is looked for from behind.
const BACK_BYTES: u64 = 64 << 10;

/// Where what was written ends, behind the newline of its last line; blank room may follow.
pub fn end(disk: &dyn Disk, path: &Path, length: u64) -> Result<u64, JournalError> {
    let mut to = length;
    while to > 0 {
        let from = to.saturating_sub(BACK_BYTES);
        let piece = disk.read_at(path, from, usize::try_from(to - from).unwrap_or(0));
        let filled = filled_len(&piece.at(path)?) as u64;
        if filled > 0 {
            return Ok((from + filled + 1).min(length));
        }
        to = from;
    }
    Ok(0)
}

/// The end that the cache names, where it is still the end: the file is as long as the cache says, blank behind that place, and
/// the line before it is the record that the cache saw last. Its batch was whole when the cache was written.
fn cached_tail(
    disk: &dyn Disk,
    path: &Path,
    reach: u64,
    cache: &Meta,
) -> Result<Option<Tail>, JournalError> {
    let bytes = cache.applied.byte;
    if cache.reach != Some(reach) || bytes > reach {
        return Ok(None);
    }
    let start = bytes.saturating_sub(TAIL_WINDOW_BYTES);
    let wanted = usize::try_from(reach.min(bytes + PROBE_BYTES) - start).unwrap_or(0);
    let piece = disk.read_at(path, start, wanted).at(path)?;
    let held = usize::try_from(bytes - start).unwrap_or(0).min(piece.len());
    let (before, behind) = piece.split_at(held);
    if piece.len() != wanted || !is_blank(behind) {
        return Ok(None);
    }
    let before = &before[..filled_len(before)];
    // A line that is longer than the window is looked for the long way.
    let from = memchr::memrchr(b'\n', before).map(|at| at + 1);
    let line = match (from, start) {
        (Some(from), _) => &before[from..],
        (None, 0) => before,
        (None, _) => return Ok(None),
    };
    let last = decode(line).ok().map(|(record, _)| record);
    let last = last.filter(|last| {
        last.batch.i + 1 == last.batch.n && last.seq.checked_add(1) == Some(cache.next_seq)
    });
    Ok(last.map(|last| Tail {
        bytes,
        reach,
        last_seq: Some(last.seq),
        torn: None,
        repaired: None,
        is_newer: false,
    }))
}

/// Whether room begins at a byte; also where the file ends there.
pub fn is_blank_from(
    disk: &dyn Disk,
    path: &Path,
    byte: u64,
    length: u64,
) -> Result<bool, JournalError> {
    let Some(rest) = length.checked_sub(byte) else {
        return Ok(false);
    };
    let probe = usize::try_from(rest.min(PROBE_BYTES)).unwrap_or(0);
    Ok(probe == 0 || is_blank(&disk.read_at(path, byte, probe).at(path)?))
}

/// The end of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    /// Where the next record goes.
    pub bytes: u64,
    /// The length of the file: up to here there is blank room.
    pub reach: u64,
    /// The seq of the last record that counts; None where none does.
    pub last_seq: Option<u64>,
    /// What lies behind it and counts for nothing.
    pub torn: Option<Range<u64>>,
    /// The last record is a `seq_repair`: the next seq of the cache that it found stale.
    pub repaired: Option<u64>,
    /// Behind it there are sound records of a newer build.
    pub is_newer: bool,
}

/// Reads the last few KB of a segment, more only where a batch is longer than that.
/// `cache` is of this boot and of this segment.
pub fn tail(
    disk: &dyn Disk,
    layout: &Layout,
    first_seq: u64,
    cache: Option<&Meta>,
) -> Result<Tail, JournalError> {
    let path = layout.segment(first_seq);
    let reach = disk.len(&path).at(&path)?.unwrap_or(0);
    if reach > SEGMENT_BYTES_MAX {
        return Err(JournalError::Damaged {
            path,
            reason: "larger than a segment can be".to_owned(),
        });
    }
    if let Some(cache) = cache
        && let Some(tail) = cached_tail(disk, &path, reach, cache)?
    {
        return Ok(tail);
    }
    let bytes = end(disk, &path, reach)?;
    let Window { start, piece, end } = window_before(disk, &path, bytes)?;
    let from = usize::try_from(end.counted_to.saturating_sub(start)).unwrap_or(0);
    let rest = &piece[from.min(piece.len())..];
    let first = rest.iter().position(|b| *b != b'\n');
    Ok(Tail {
        bytes,
        reach,
        last_seq: end.last_seq,
        torn: first.map(|at| start + (from + at) as u64..bytes),
        repaired: end.repaired,
        is_newer: end.is_newer,
    })
}

/// The largest seq of all records of a segment that count. Its end says less where somebody has changed the order of its lines.
pub fn newest(
    disk: &dyn Disk,
    layout: &Layout,
    first_seq: u64,
) -> Result<Option<u64>, JournalError> {
    let mut end = End::default();
    scan(&read(disk, layout, first_seq)?, 0, &mut end);
    Ok(end.last_seq)
}

/// The last bytes before a place, enough of them to hold a batch that counts where there is one, and what they end with.
struct Window {
    start: u64,
    piece: Vec<u8>,
    end: End,
}

fn window_before(disk: &dyn Disk, path: &Path, byte: u64) -> Result<Window, JournalError> {
    let mut wanted = TAIL_WINDOW_BYTES;
    loop {
        let start = byte.saturating_sub(wanted);
        let length = usize::try_from(byte - start).unwrap_or(0);
        let piece = disk.read_at(path, start, length).at(path)?;
        let is_whole = start == 0;
        // A window begins inside a line; that piece is no line.
        let skip = if is_whole {
            Some(0)
        } else {
            memchr::memchr(b'\n', &piece).map(|at| at + 1)
        };
        let mut end = End::default();
        if let Some(skip) = skip {
            scan(&piece[skip..], start + skip as u64, &mut end);
        }
        if end.last_seq.is_some() || is_whole {
            return Ok(Window { start, piece, end });
        }
        wanted = wanted.saturating_mul(2);
    }
}

#[derive(Default)]
struct End {
    last_seq: Option<u64>,
    counted_to: u64,
    repaired: Option<u64>,
    is_newer: bool,
}

impl<'a> Sink<'a> for End {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        if let Some(last) = batch.last() {
            // The largest of all: a record that was appended again carries its old seq.
            self.last_seq = self.last_seq.max(Some(last.record.seq));
            self.counted_to = last.place.end;
            self.is_newer = false;
            let text = last.record.payload.map(RawValue::get);
            self.repaired = match text.and_then(|text| MetaPayload::parse(last.record.action, text))
            {
                Some(MetaPayload::SeqRepair(repair)) => Some(repair.meta_next_seq),
                _ => None,
            };
        }
    }

    fn damage(&mut self, damage: Damage) {
        self.is_newer |= damage.is_newer();
    }
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
