//! Cuts a segment into lines and lines into complete batches. What does not count never comes out (C11, C23).

use std::ops::Range;

use crate::record::{LineFault, Record, decode};

/// A record that counts, with its checksum and place.
#[derive(Debug)]
pub struct Counted<'a> {
    pub record: Record<'a>,
    pub crc: u32,
    pub place: Range<u64>,
}

/// Bytes of a segment that do not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    pub place: Range<u64>,
    pub why: Void,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Void {
    Line(LineFault),
    /// The line is sound but its batch is not complete.
    Incomplete,
}

impl Damage {
    /// No damage at all: this build does not understand it.
    pub(crate) fn is_newer(&self) -> bool {
        matches!(self.why, Void::Line(LineFault::Newer(_)))
    }

    /// The seq of a record of a newer build, where it says one as ours do.
    pub(crate) fn newer_seq(&self) -> Option<u64> {
        match self.why {
            Void::Line(LineFault::Newer(seq)) => seq,
            _ => None,
        }
    }
}

/// What the scan of a piece of a segment reports, in file order.
pub trait Sink<'a> {
    fn batch(&mut self, batch: &[Counted<'a>]);
    /// The same for who keeps the records.
    fn take_batch(&mut self, batch: &mut Vec<Counted<'a>>) {
        self.batch(batch);
        batch.clear();
    }
    fn damage(&mut self, damage: Damage);
}

const BLANK: [u8; 64] = [b'\n'; 64];

/// How many newlines there are before the first other byte.
pub fn blank_len(bytes: &[u8]) -> usize {
    // A segment may end with a long run of them: the room for what comes next.
    let whole = bytes.chunks_exact(BLANK.len());
    let at = whole.take_while(|piece| **piece == BLANK).count() * BLANK.len();
    let rest = bytes[at..].iter().position(|b| *b != b'\n');
    rest.map_or(bytes.len(), |more| at + more)
}

/// Nothing but newlines: what counts for nothing, and may be written over.
pub fn is_blank(bytes: &[u8]) -> bool {
    blank_len(bytes) == bytes.len()
}

/// Behind the last byte that is no newline; 0 where there is none.
pub fn filled_len(bytes: &[u8]) -> usize {
    let whole = bytes.rchunks_exact(BLANK.len());
    let blank = whole.take_while(|piece| **piece == BLANK).count() * BLANK.len();
    let left = &bytes[..bytes.len() - blank];
    let last = left.iter().rposition(|b| *b != b'\n');
    last.map_or(0, |at| at + 1)
}

/// Scans `bytes`, which begin at `base` of their segment and end where the segment ends.
pub fn scan<'a>(bytes: &'a [u8], base: u64, sink: &mut impl Sink<'a>) {
    let mut pending: Vec<Counted<'a>> = Vec::new();
    let mut at = blank_len(bytes);
    while at < bytes.len() {
        let end = memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |length| at + length);
        let place = base + at as u64..base + end as u64;
        take(&bytes[at..end], place, &mut pending, sink);
        at = end + blank_len(&bytes[end..]);
    }
    void(&mut pending, sink);
}

fn take<'a>(
    line: &'a [u8],
    place: Range<u64>,
    pending: &mut Vec<Counted<'a>>,
    sink: &mut impl Sink<'a>,
) {
    let (record, crc) = match decode(line) {
        Ok(decoded) => decoded,
        Err(fault) => {
            // IMPORTANT: a batch is contiguous, so a damaged line ends it for ever.
            void(pending, sink);
            let why = Void::Line(fault);
            return sink.damage(Damage { place, why });
        }
    };
    let continues = pending.last().is_some_and(|last| {
        last.record.batch.id == record.batch.id
            && last.record.batch.n == record.batch.n
            && last.record.batch.i + 1 == record.batch.i
    });
    if !continues {
        void(pending, sink);
        if record.batch.i != 0 {
            let why = Void::Incomplete;
            return sink.damage(Damage { place, why });
        }
    }
    let is_last = record.batch.i + 1 == record.batch.n;
    pending.push(Counted { record, crc, place });
    if is_last {
        sink.take_batch(pending);
    }
}

fn void<'a>(pending: &mut Vec<Counted<'a>>, sink: &mut impl Sink<'a>) {
    for counted in pending.drain(..) {
        sink.damage(Damage {
            place: counted.place,
            why: Void::Incomplete,
        });
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::action::Action;
    use crate::record::Batch;

    #[derive(Default)]
    struct Kept {
        seqs: Vec<u64>,
        void: Vec<Range<u64>>,
    }

    impl<'a> Sink<'a> for Kept {
        fn batch(&mut self, batch: &[Counted<'a>]) {
            self.seqs
                .extend(batch.iter().map(|counted| counted.record.seq));
        }

        fn damage(&mut self, damage: Damage) {
            self.void.push(damage.place);
        }
    }

    fn tick(seq: u64, id: &str, i: u32, n: u32) -> Vec<u8> {
        let record = Record {
            v: 2,
            seq,
            ts: "t".into(),
            writer: "w".into(),
            agent: "a".into(),
            agent_id: None,
            user: None,
            action: Action::SessionStart,
            item_type: "session".into(),
            item_id: None,
            entity_rev: None,
            summary: None,
            payload: None,
            payload_ref: None,
            redacted: None,
            request: None,
            batch: Batch {
                id: id.to_owned().into(),
                i,
                n,
            },
        };
        let mut buffer = Vec::new();
        record.encode_into(&mut buffer).unwrap();
        buffer
    }

    fn kept(bytes: &[u8]) -> Kept {
        let mut kept = Kept::default();
        scan(bytes, 0, &mut kept);
        kept
    }

    #[test]
    fn c23_a_batch_counts_whole_or_not_at_all() {
        let whole = [tick(1, "a", 0, 1), tick(2, "b", 0, 2), tick(3, "b", 1, 2)].concat();
        assert_eq!(kept(&whole).seqs, [1, 2, 3]);
        let first_of_two = tick(1, "a", 0, 1).len();
        for cut in first_of_two..whole.len() {
            let kept = kept(&whole[..cut]);
            // Only the last newline may be missing.
            let expected: &[u64] = if cut == whole.len() - 1 {
                &[1, 2, 3]
            } else {
                &[1]
            };
            assert_eq!(kept.seqs, expected, "cut at {cut}");
        }
    }

    #[test]
    fn c11_what_a_cut_left_never_rises_from_the_dead() {
        let torn = [tick(1, "a", 0, 1), tick(2, "b", 0, 1)].concat();
        let whole_first = tick(1, "a", 0, 1).len();
        for cut in whole_first + 2..torn.len() {
            let before = kept(&torn[..cut]).seqs;
            let later = [&torn[..cut], &tick(2, "c", 0, 1)].concat();
            let after = kept(&later).seqs;
            assert_eq!(after[..before.len()], before, "cut at {cut}");
            assert_eq!(after.last(), Some(&2));
        }
    }

    #[test]
    fn blank_room_is_measured_from_both_sides() {
        for (head, blank) in [
            (0, 0),
            (0, 1),
            (1, 0),
            (3, 63),
            (64, 64),
            (5, 65),
            (200, 1000),
        ] {
            let bytes = [vec![b'x'; head], vec![b'\n'; blank]].concat();
            assert_eq!(filled_len(&bytes), head, "{head} {blank}");
            assert_eq!(is_blank(&bytes), head == 0);
            let turned = [vec![b'\n'; blank], vec![b'x'; head]].concat();
            assert_eq!(blank_len(&turned), blank, "{head} {blank}");
        }
    }

    #[test]
    fn strangers_between_and_out_of_order_void_the_batch() {
        let strange = [
            tick(1, "a", 0, 2),
            tick(2, "x", 0, 1),
            tick(3, "a", 1, 2),
            tick(4, "b", 1, 2),
            tick(5, "c", 0, 2),
            b"\nnoise\n".to_vec(),
            tick(6, "c", 1, 2),
            tick(7, "d", 0, 2),
            tick(8, "d", 1, 3),
        ]
        .concat();
        let kept = kept(&strange);
        assert_eq!(kept.seqs, [2]);
        assert_eq!(kept.void.len(), 8);
    }
}
