//! One record by its seq: the segment by its name, the line by halving, the batch by the same scan as everywhere.
//!
//! This is how an entity is shown whose file nobody has compared yet: the index names seq and checksum of its newest
//! record, and the journal itself is the table. Where the halving does not find it, a rebuild does.

use serde_json::Value;

use crate::disk::Reader;
use crate::error::{At, JournalError};
use crate::format::{LINE_BYTES_MAX, SEGMENT_BYTES_MAX};
use crate::journal::Journal;
use crate::lines::{Counted, Damage, Sink, blank_len, scan};
use crate::record::{Text, decode};
use crate::reduce::Head;
use crate::replay::Body;
use crate::segments;

/// Read at once while a line is looked for: most lines begin and end in it.
const LOOK_BYTES: usize = 8 << 10;
/// Read at first of a batch; four times as much each time it was not enough.
const BATCH_LOOK_BYTES: usize = 64 << 10;
/// Halvings of the largest segment, and some for lines that are long.
const LOOKS_MAX: usize = 64;

impl Journal {
    /// The document of the record that is an entity's head; None where it cannot be found this way, or read.
    pub(crate) fn recorded_document(
        &self,
        item_type: &str,
        item_id: &str,
        head: &Head,
    ) -> Result<Option<Value>, JournalError> {
        let Some(body) = self.recorded(item_type, item_id, head)? else {
            return Ok(None);
        };
        Ok(self.document(item_type, &body).ok())
    }

    fn recorded(
        &self,
        item_type: &str,
        item_id: &str,
        head: &Head,
    ) -> Result<Option<Body>, JournalError> {
        let all = self.all_segments()?;
        let at = segments::holding(&all, head.seq);
        let Some(first) = all.get(at).copied().filter(|first| *first <= head.seq) else {
            // A clone brought it in a checkpoint.
            return Ok(None);
        };
        let live = self.layout.segment(first);
        let (file, path) = match self.disk().open_read(&live) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let path = self.layout.archived_segment(first);
                (self.disk().open_read(&path).at(&path)?, path)
            }
            opened => (opened.at(&live)?, live),
        };
        let found = find(&*file, item_type, item_id, head);
        found.at(&path)
    }
}

fn find(
    file: &dyn Reader,
    item_type: &str,
    item_id: &str,
    head: &Head,
) -> std::io::Result<Option<Body>> {
    let length = file.length()?.min(SEGMENT_BYTES_MAX);
    let Some((_, own)) = line_of(file, length, head.seq)? else {
        return Ok(None);
    };
    let index = decode(&own).map_or(0, |(record, _)| u64::from(record.batch.i));
    // IMPORTANT: from the first record of its batch on. One whose batch is not whole does not count, here neither.
    let first = head.seq.saturating_sub(index);
    let Some((from, _)) = line_of(file, length, first)? else {
        return Ok(None);
    };
    let mut window = BATCH_LOOK_BYTES;
    loop {
        let bytes = file.read_at(from, window)?;
        let mut wanted = Wanted {
            item_type,
            item_id,
            head,
            body: None,
        };
        scan(&bytes, from, &mut wanted);
        let is_all = from + bytes.len() as u64 >= length || bytes.len() < window;
        if wanted.body.is_some() || is_all {
            return Ok(wanted.body);
        }
        window = window.saturating_mul(4);
    }
}

/// Where the line of a seq begins, and the line.
fn line_of(file: &dyn Reader, length: u64, seq: u64) -> std::io::Result<Option<(u64, Vec<u8>)>> {
    let (mut low, mut high) = (0, length);
    for _ in 0..LOOKS_MAX {
        if low >= high {
            break;
        }
        let middle = low + (high - low) / 2;
        // One byte before: the newline that a line at the very middle begins behind.
        match line_behind(file, middle.saturating_sub(1), high)? {
            // Nothing but a piece of a line, or room: it begins before.
            Look::Nothing | Look::Blank => high = middle,
            Look::Line(at, line) => match seq_of(&line) {
                Some(found) if found == seq => return Ok(Some((at, line))),
                Some(found) if found < seq => low = at + line.len() as u64,
                Some(_) => high = middle,
                // No record of ours: halving would be a guess.
                None => return Ok(None),
            },
        }
    }
    Ok(None)
}

/// What halving finds of a seq, or behind it. `length` is where the last line ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nearest {
    /// The first line that has this seq or a larger one; whether it is sound is another question.
    Seq(u64),
    /// All lines come before it.
    Behind,
    /// A line is met that is no record of ours.
    Unclear,
}

pub(crate) fn nearest(file: &dyn Reader, length: u64, seq: u64) -> std::io::Result<Nearest> {
    let (mut low, mut high) = (0, length);
    let mut found = Nearest::Behind;
    for _ in 0..LOOKS_MAX {
        if low >= high {
            return Ok(found);
        }
        let middle = low + (high - low) / 2;
        match line_behind(file, middle.saturating_sub(1), high)? {
            Look::Nothing => high = middle,
            // Of a segment that ends with its last line: damage was blanked here, and lines may follow.
            Look::Blank => return Ok(Nearest::Unclear),
            Look::Line(at, line) => match seq_of(&line) {
                Some(before) if before < seq => low = at + line.len() as u64,
                Some(there) => {
                    found = Nearest::Seq(there);
                    high = middle;
                }
                None => return Ok(Nearest::Unclear),
            },
        }
    }
    Ok(Nearest::Unclear)
}

/// What is met behind a byte.
enum Look {
    /// Where it begins, and the line.
    Line(u64, Vec<u8>),
    /// Newlines as far as one sees.
    Blank,
    Nothing,
}

/// The first line that begins at or behind a byte and before another; the newline before it is what proves its beginning.
fn line_behind(file: &dyn Reader, from: u64, before: u64) -> std::io::Result<Look> {
    let mut window = LOOK_BYTES;
    loop {
        let bytes = file.read_at(from, window)?;
        // The byte at `from` may be in the middle of a line.
        let newline = memchr::memchr(b'\n', &bytes);
        let blank = newline.map_or(0, |at| blank_len(&bytes[at..]));
        let begin = newline.map(|at| at + blank);
        let is_all = bytes.len() < window || window > 2 * LINE_BYTES_MAX;
        match begin {
            Some(at) if at < bytes.len() => {
                let start = from + at as u64;
                if start >= before {
                    return Ok(Look::Nothing);
                }
                match memchr::memchr(b'\n', &bytes[at..]) {
                    Some(end) => return Ok(Look::Line(start, bytes[at..at + end].to_vec())),
                    None if is_all => return Ok(Look::Line(start, bytes[at..].to_vec())),
                    None => {}
                }
            }
            // Blank as far as one sees: room is at the end, so what is looked for is before it.
            Some(_) if blank > LOOK_BYTES / 2 => return Ok(Look::Blank),
            _ if is_all => return Ok(Look::Nothing),
            _ => {}
        }
        window *= 4;
    }
}

/// The seq that a line begins with; nothing else of it is looked at.
fn seq_of(line: &[u8]) -> Option<u64> {
    let digits = line.strip_prefix(b"{\"v\":2,\"seq\":")?;
    let end = digits.iter().position(|b| !b.is_ascii_digit())?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

struct Wanted<'w> {
    item_type: &'w str,
    item_id: &'w str,
    head: &'w Head,
    body: Option<Body>,
}

impl<'a> Sink<'a> for Wanted<'_> {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        let is_it = |counted: &&Counted<'a>| {
            let record = &counted.record;
            record.seq == self.head.seq
                && counted.crc == self.head.crc
                && record.item_type.as_str() == self.item_type
                && record.item_id.as_ref().map(Text::as_str) == Some(self.item_id)
        };
        if let Some(counted) = batch.iter().find(is_it) {
            self.body = Body::of(&counted.record);
        }
    }

    fn damage(&mut self, _: Damage) {}
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use heddle_core::clock::{ManualClock, ManualIds, WallMs};
    use serde_json::json;

    use super::*;
    use crate::disk::{Disk, MemDisk};
    use crate::{Change, Settings, Who, World};

    fn journal(disk: &MemDisk) -> Journal {
        disk.create_dir(Path::new("/repo")).unwrap();
        let world = World {
            disk: Arc::new(disk.clone()),
            clock: Arc::new(ManualClock::at(WallMs(1_794_000_000_000))),
            ids: Arc::new(ManualIds::seeded(1)),
        };
        let journal = Journal::init(world, Path::new("/repo/.heddle"), Who::default()).unwrap();
        journal.with_settings(Settings {
            roll_bytes: 300_000,
            room_from_bytes: 20_000,
            room_bytes_max: 100_000,
            ..Settings::default()
        })
    }

    /// Lines of all lengths, batches of all sizes, several segments, room at the end: each record is found, or none is.
    #[test]
    fn every_head_is_found_by_halving_and_a_broken_batch_is_not() {
        let disk = MemDisk::new();
        let journal = journal(&disk);
        for round in 0..60_usize {
            let count = 1 + round % 7;
            let change = |n: usize| Change {
                item_type: "plan".to_owned(),
                item_id: Some(format!("p{}", (round * 5 + n) % 90)),
                document: Some(json!({"n": round, "body": "x".repeat(round * 97 % 9000)})),
                ..Change::default()
            };
            let mut changes: Vec<Change> = (0..count).map(change).collect();
            if round % 20 == 7 {
                changes[0].document = Some(json!({"n": round, "body": "y".repeat(60_000)}));
            }
            if round % 20 == 9 {
                changes[0].document = Some(json!({"n": round, "body": "z".repeat(70_000)}));
            }
            journal.mutate_whole(changes).unwrap();
        }
        assert!(journal.all_segments().unwrap().len() > 2);
        let rebuilt = journal.rebuild(0).unwrap();
        let all = rebuilt.replay.entities();
        assert_eq!(all.len(), 90);
        for (item_type, item_id, entity) in &all {
            let found = journal.recorded(item_type, item_id, &entity.head).unwrap();
            assert_eq!(found.as_ref(), Some(&entity.body), "{item_id}");
            let other = Head {
                crc: entity.head.crc ^ 1,
                ..entity.head
            };
            assert_eq!(journal.recorded(item_type, item_id, &other).unwrap(), None);
            let nobody = journal.recorded(item_type, "nobody", &entity.head);
            assert_eq!(nobody.unwrap(), None);
        }
        // The first record of a batch is damaged: its sound siblings do not count, here neither.
        let changes = ["a", "b", "c"].map(|id| Change {
            item_type: "plan".to_owned(),
            item_id: Some(id.to_owned()),
            document: Some(json!({"n": 1})),
            ..Change::default()
        });
        let receipts = journal.mutate_whole(changes.to_vec()).unwrap();
        let rebuilt = journal.rebuild(0).unwrap();
        let head = rebuilt.replay.get("plan", "c").unwrap().head;
        assert!(journal.recorded("plan", "c", &head).unwrap().is_some());
        let active = segments::live(&disk, &journal.layout).unwrap();
        let path = journal.layout.segment(*active.last().unwrap());
        let seq = format!("\"seq\":{}", receipts[0].seq.unwrap());
        disk.tamper(&path, |bytes| {
            let at = memchr::memmem::find(bytes, seq.as_bytes()).unwrap();
            bytes[at + 20] ^= 1;
        });
        assert_eq!(journal.recorded("plan", "c", &head).unwrap(), None);
    }
}
