//! A log frame by frame, as SQLite's recovery reads it, and on behind what a disk has changed.
//!
//! Recovery ends a log at the first frame whose checksum is wrong, and takes all that was committed behind it for never
//! written. But the checksum of a frame goes on from the one that the frame before it says: what follows can be told from
//! what was never written. So one wrong bit is put right, or its frame stays as it is where nobody can say which bit it
//! was; the page is then what it would be if the disk had done that to the file. What a power cut tears is never one bit
//! away from being right.

use std::io::{self, Read, Write};

use super::checksum::{Flip, Order, Sum, flipped_bits};

/// The lowest bit says in which order the words of checksums stand.
const MAGIC: u32 = 0x377f_0682;
const FORMAT: u32 = 3_007_000;
pub(super) const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// Of a header, what its checksum is over; of a frame's, the page and the size of the file where a transaction ends.
const SUMMED_BYTES: usize = 24;
const FRAME_SUMMED_BYTES: usize = 8;
const SALTS_AT: usize = 8;
const SUM_AT: usize = 16;

/// What is known of a log from elsewhere.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Known {
    /// Its salts, and how many of its frames were written for sure.
    pub(super) written: Option<([u8; 8], u32)>,
    /// What file and log have together: no page lies further back.
    pub(super) bytes: u64,
}

/// What a log holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Frames {
    /// Drawn anew whenever the log begins anew. None where no header can be read.
    pub(super) salts: Option<[u8; 8]>,
    /// Through the last frame that ends a transaction, of those that can be read.
    pub(super) committed: u32,
    /// The same, of those that were written: behind a frame of which nobody knows which page it is, none is read.
    pub(super) written: u32,
    /// How long each is.
    pub(super) frame_bytes: u64,
    /// The bits that are wrong before that, each by its place in the file.
    pub(super) flips: Vec<(u64, u8)>,
    /// The frames before that of which something is wrong and stays, by their numbers.
    pub(super) kept: Vec<u32>,
}

/// Reads to the end of what is this log's.
pub(super) fn read(mut log: impl Read, known: Known) -> io::Result<Frames> {
    let mut frames = Frames::default();
    let mut header = [0; HEADER_BYTES];
    // The first frame has the salts of the header.
    let mut first = [0; SUM_AT];
    if !fill(&mut log, &mut header)? || !fill(&mut log, &mut first)? {
        return Ok(frames);
    }
    let heads = Head::all_of(&header, eight(&first, SALTS_AT));
    let Some((head, _)) = heads.first() else {
        return Ok(frames);
    };
    let mut log = first.as_slice().chain(log);
    frames.salts = Some(head.salts);
    let written = match known.written {
        Some((salts, frames)) if salts == head.salts => frames,
        _ => 0,
    };
    let pages_max = known.bytes / head.page_bytes as u64;
    let pages_max = u32::try_from(pages_max).unwrap_or(u32::MAX);
    let mut frame = vec![0; FRAME_HEADER_BYTES + head.page_bytes];
    if !fill(&mut log, &mut frame)? {
        return Ok(frames);
    }
    // Where more than one bit of the header may be the wrong one, the first frame knows.
    let goes_on =
        |(head, _): &&(Head, Option<Flip>)| head.sum_of(head.sum, &frame) == sum_at(&frame, SUM_AT);
    let Some((head, flip)) = heads.iter().find(goes_on).or(heads.first()) else {
        return Ok(frames);
    };
    frames.frame_bytes = frame.len() as u64;
    let mut met = frames.clone();
    let mut is_readable = true;
    met.flips
        .extend(flip.map(|flip| (flip.at as u64, flip.mask)));
    let (mut before, mut at) = (vec![head.sum], HEADER_BYTES as u64);
    for number in 1.. {
        let checked = head.check(&before, &mut frame, pages_max);
        let said = sum_at(&frame, SUM_AT);
        before = vec![said];
        match checked {
            Checked::Right => {}
            Checked::Flipped(flip) => met.flips.push((at + flip.at as u64, flip.mask)),
            Checked::OneBit(instead) => {
                met.kept.push(number);
                before.extend(instead);
            }
            Checked::NoPage => is_readable = false,
            Checked::Wrong if number <= written && head.has_place(&frame, pages_max) => {
                met.kept.push(number);
            }
            Checked::Wrong => break,
        }
        at += frame.len() as u64;
        if word(&frame, 4) != 0 {
            met.written = number;
            if is_readable {
                met.committed = number;
                frames.clone_from(&met);
            }
            frames.written = number;
        }
        if !fill(&mut log, &mut frame)? {
            break;
        }
    }
    Ok(frames)
}

/// Writes the log as far as it was committed, with its bits put right and with checksums by which each frame is read.
pub(super) fn write(mut log: impl Read, frames: &Frames, mut to: impl Write) -> io::Result<()> {
    let mut header = [0; HEADER_BYTES];
    let torn = || io::Error::from(io::ErrorKind::UnexpectedEof);
    if !fill(&mut log, &mut header)? {
        return Err(torn());
    }
    for (place, mask) in frames
        .flips
        .iter()
        .filter(|(it, _)| *it < HEADER_BYTES as u64)
    {
        header[usize::try_from(*place).unwrap_or(0)] ^= mask;
    }
    let heads = Head::all_of(&header, eight(&header, SUM_AT));
    let (head, _) = heads.first().ok_or_else(torn)?;
    to.write_all(&header)?;
    let mut frame = vec![0; FRAME_HEADER_BYTES + head.page_bytes];
    let (mut sum, mut at) = (head.sum, HEADER_BYTES as u64);
    for _ in 0..frames.committed {
        if !fill(&mut log, &mut frame)? {
            return Err(torn());
        }
        let end = at + frame.len() as u64;
        for (place, mask) in frames.flips.iter().filter(|(it, _)| (at..end).contains(it)) {
            frame[usize::try_from(place - at).unwrap_or(0)] ^= mask;
        }
        frame[SALTS_AT..SUM_AT].copy_from_slice(&head.salts);
        sum = head.sum_of(sum, &frame);
        frame[SUM_AT..SUM_AT + 4].copy_from_slice(&sum.first.to_be_bytes());
        frame[SUM_AT + 4..FRAME_HEADER_BYTES].copy_from_slice(&sum.second.to_be_bytes());
        to.write_all(&frame)?;
        at = end;
    }
    to.flush()
}

/// What a frame is.
enum Checked {
    Right,
    /// But for one bit, which was put right.
    Flipped(Flip),
    /// But for one bit, and nobody can say which; the checksum that it has then, where it may be a bit of that.
    OneBit(Option<Sum>),
    /// The same, and it may be one of the number of its page.
    NoPage,
    Wrong,
}

struct Head {
    order: Order,
    page_bytes: usize,
    salts: [u8; 8],
    sum: Sum,
}

impl Head {
    /// Each with the bit that is wrong then, if one is; none where more is wrong than a bit.
    fn all_of(header: &[u8; HEADER_BYTES], salts: [u8; 8]) -> Vec<(Self, Option<Flip>)> {
        let said = sum_at(header, SUMMED_BYTES);
        let summed = &header[..SUMMED_BYTES];
        let head = |order: Order, flip: Option<Flip>| {
            let mut header = *header;
            if let Some(flip) = flip {
                header[flip.at] ^= flip.mask;
            }
            let head = Self {
                order,
                page_bytes: word(&header, 8) as usize,
                salts: eight(&header, SUM_AT),
                sum: Sum::default().over(order, &header[..SUMMED_BYTES]),
            };
            is_ours(&header).then_some((head, flip))
        };
        // The bit that names the order may be the wrong one.
        let heads = [Order::Little, Order::Big].into_iter().flat_map(|order| {
            let sum = Sum::default().over(order, summed);
            if sum == said {
                return vec![head(order, None)];
            }
            let flips = flipped_bits(order, summed, sum, said);
            let flips = flips
                .into_iter()
                .chain(flip_of_sum(sum, said, SUMMED_BYTES));
            flips.map(|flip| head(order, Some(flip))).collect()
        });
        let is_right = |(head, flip): &(Self, Option<Flip>)| flip.is_none() || head.salts == salts;
        heads.flatten().filter(is_right).collect()
    }

    fn sum_of(&self, before: Sum, frame: &[u8]) -> Sum {
        let sum = before.over(self.order, &frame[..FRAME_SUMMED_BYTES]);
        sum.over(self.order, &frame[FRAME_HEADER_BYTES..])
    }

    /// `before`: the checksum that the frame goes on from; more than one where it is not known which.
    fn check(&self, before: &[Sum], frame: &mut [u8], pages_max: u32) -> Checked {
        let said = sum_at(frame, SUM_AT);
        let mut sums = before.iter().map(|before| self.sum_of(*before, frame));
        let first = sums.next().unwrap_or_default();
        let sum = if first == said {
            first
        } else {
            sums.find(|sum| *sum == said).unwrap_or(first)
        };
        let salts = eight(frame, SALTS_AT);
        let flip = match (bits_between(salts, self.salts), sum == said) {
            // No page has the number 0.
            (0, true) if word(frame, 0) > 0 => return Checked::Right,
            (1, true) => flip_behind(SALTS_AT, salts, self.salts),
            (0, false) => {
                let of_sum = flip_of_sum(sum, said, SUM_AT);
                let mut flips = self.flips_of(frame, (sum, said), pages_max);
                flips.extend(of_sum);
                let is_of_head = |flip: &Flip| flip.at < FRAME_SUMMED_BYTES;
                match flips.as_slice() {
                    [] => return Checked::Wrong,
                    [flip] => *flip,
                    flips if flips.iter().any(is_of_head) => return Checked::NoPage,
                    _ => return Checked::OneBit(of_sum.map(|_| sum)),
                }
            }
            _ => return Checked::Wrong,
        };
        frame[flip.at] ^= flip.mask;
        Checked::Flipped(flip)
    }

    /// The bits of a frame, each of which alone may be the wrong one, without those that leave a page that cannot be.
    fn flips_of(&self, frame: &[u8], (sum, said): (Sum, Sum), pages_max: u32) -> Vec<Flip> {
        let summed = [&frame[..FRAME_SUMMED_BYTES], &frame[FRAME_HEADER_BYTES..]].concat();
        let flips = flipped_bits(self.order, &summed, sum, said).into_iter();
        let placed = flips.map(|flip| Flip {
            at: match flip.at {
                at if at < FRAME_SUMMED_BYTES => at,
                at => at - FRAME_SUMMED_BYTES + FRAME_HEADER_BYTES,
            },
            ..flip
        });
        let is_possible = |flip: &Flip| {
            let mut head = frame[..FRAME_HEADER_BYTES].to_vec();
            if let Some(byte) = head.get_mut(flip.at) {
                *byte ^= flip.mask;
            }
            self.has_place(&head, pages_max)
        };
        placed.filter(is_possible).collect()
    }

    /// Whether a frame of this log says of which page it is, and nothing that cannot be.
    fn has_place(&self, frame: &[u8], pages_max: u32) -> bool {
        eight(frame, SALTS_AT) == self.salts
            && (1..=pages_max).contains(&word(frame, 0))
            && word(frame, 4) <= pages_max
    }
}

fn is_ours(header: &[u8; HEADER_BYTES]) -> bool {
    let page_bytes = word(header, 8);
    let is_size = page_bytes.is_power_of_two() && (512..=65_536).contains(&page_bytes);
    word(header, 0) & !1 == MAGIC & !1 && word(header, 4) == FORMAT && is_size
}

/// The one bit of a checksum that is wrong itself. It stands with its highest byte first, whatever the order of the words.
fn flip_of_sum(sum: Sum, said: Sum, sum_at: usize) -> Option<Flip> {
    let bytes = |sum: Sum| (u64::from(sum.first) << 32 | u64::from(sum.second)).to_be_bytes();
    let (right, found) = (bytes(sum), bytes(said));
    (bits_between(right, found) == 1).then(|| flip_behind(sum_at, found, right))
}

/// The first byte that is not right, of those that begin at `start`.
fn flip_behind(start: usize, found: [u8; 8], right: [u8; 8]) -> Flip {
    let at = (0..8).find(|at| found[*at] != right[*at]).unwrap_or(0);
    Flip {
        at: start + at,
        mask: found[at] ^ right[at],
    }
}

fn bits_between(one: [u8; 8], other: [u8; 8]) -> u32 {
    (u64::from_be_bytes(one) ^ u64::from_be_bytes(other)).count_ones()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.iter().skip(at).take(4);
    word.fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn sum_at(bytes: &[u8], at: usize) -> Sum {
    Sum {
        first: word(bytes, at),
        second: word(bytes, at + 4),
    }
}

fn eight(bytes: &[u8], at: usize) -> [u8; 8] {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    eight
}

/// False at the end of the file, also in the middle of what was asked for.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
