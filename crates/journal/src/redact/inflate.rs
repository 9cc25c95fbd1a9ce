//! Looks into deflated bytes: a small decoder that gives what it could read and never fails.
//!
//! Only for the verifier of a redaction, which asks whether erased bytes hide in a compressed file. It unpacks no bomb: what lies
//! beyond its bounds is told as not looked into.

use std::sync::OnceLock;

/// How far anybody looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Longest output of one stream.
    pub(crate) stream_bytes: usize,
    /// Output of all streams of one file together.
    pub(crate) file_bytes: usize,
    /// Streams inside of streams: a zip in a gzip is two.
    pub(crate) depth: usize,
    /// Up to here a stream without a header is looked for at every byte of a file, behind that at its first alone.
    pub(crate) raw_bytes: usize,
}

pub(crate) const BOUNDS: Bounds = Bounds {
    stream_bytes: 64 << 20,
    file_bytes: 512 << 20,
    depth: 4,
    raw_bytes: 1 << 20,
};

const _: () = assert!(BOUNDS.stream_bytes <= BOUNDS.file_bytes);

/// Less than this says nothing: a few bytes look like a stream by chance.
const CONTENT_BYTES_MIN: usize = 4;
const RAW_BYTES_MIN: usize = 8;

const LENGTH_BASE: [u16; 29] = [
    3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131,
    163, 195, 227, 258,
];
const LENGTH_EXTRA: [u8; 29] = [
    0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0,
];
const DISTANCE_BASE: [u16; 30] = [
    1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537,
    2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577,
];
const CODE_ORDER: [usize; 19] = [
    16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15,
];

/// What a look into all streams of a file had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    Nothing,
    Held,
    /// Nothing as far as it went, and there is more.
    Beyond,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Zlib,
    Gzip,
    Zip,
}

/// Whether the content of a stream holds it: of every zlib and gzip stream that begins anywhere in these bytes, of every deflated member of
/// a zip, of what lies in these in turn, and of what is deflated without a header.
pub(crate) fn look(bytes: &[u8], bounds: Bounds, holds: &mut dyn FnMut(&[u8]) -> bool) -> Seen {
    let mut look = Look {
        bounds,
        room: bounds.file_bytes,
        is_beyond: false,
        holds,
    };
    if look.streams(bytes, 1) || look.raw(bytes) {
        Seen::Held
    } else if look.is_beyond {
        Seen::Beyond
    } else {
        Seen::Nothing
    }
}

struct Look<'h> {
    bounds: Bounds,
    room: usize,
    is_beyond: bool,
    holds: &'h mut dyn FnMut(&[u8]) -> bool,
}

impl Look<'_> {
    fn streams(&mut self, bytes: &[u8], depth: usize) -> bool {
        for (at, head, kind) in heads(bytes) {
            let stream = bytes.get(at + head..).unwrap_or_default();
            let content = self.inflate(stream);
            if content.bytes.len() < CONTENT_BYTES_MIN {
                continue;
            }
            if depth > self.bounds.depth {
                // A zlib header is two bytes that stand anywhere by chance: there the checksum says whether it is one.
                self.is_beyond |= kind != Kind::Zlib || content.is_as_summed(stream);
                continue;
            }
            self.is_beyond |= content.end == End::Full;
            if (self.holds)(&content.bytes) || self.streams(&content.bytes, depth + 1) {
                return true;
            }
        }
        false
    }

    /// Where a text ends a stream without a header cannot begin.
    fn raw(&mut self, bytes: &[u8]) -> bool {
        if std::str::from_utf8(bytes).is_ok() {
            return false;
        }
        let places = if bytes.len() <= self.bounds.raw_bytes {
            bytes.len()
        } else {
            1
        };
        (0..places).any(|at| {
            let content = self.inflate(&bytes[at..]);
            self.is_beyond |= content.end == End::Full;
            content.bytes.len() >= RAW_BYTES_MIN && (self.holds)(&content.bytes)
        })
    }

    fn inflate(&mut self, bytes: &[u8]) -> Content {
        let content = inflate(bytes, self.bounds.stream_bytes.min(self.room));
        self.room = self.room.saturating_sub(content.bytes.len());
        content
    }
}

/// Where a stream with a header may begin, how long that is, and of which kind.
fn heads(bytes: &[u8]) -> impl Iterator<Item = (usize, usize, Kind)> + '_ {
    bytes.windows(2).enumerate().filter_map(move |(at, pair)| {
        let (head, kind) = match pair {
            // zlib: method 8, window up to 32 KB, and a header that divides by 31.
            [cmf, flg]
                if cmf & 0x0f == 8
                    && cmf >> 4 <= 7
                    && (u16::from(*cmf) * 256 + u16::from(*flg)).is_multiple_of(31) =>
            {
                (2, Kind::Zlib)
            }
            [0x1f, 0x8b] => (gzip_head(&bytes[at..])?, Kind::Gzip),
            b"PK" => (zip_head(&bytes[at..])?, Kind::Zip),
            _ => return None,
        };
        Some((at, head, kind))
    })
}

/// What stands before a deflated member of a zip: its name and what else is said of it.
fn zip_head(bytes: &[u8]) -> Option<usize> {
    const FIXED: usize = 30;
    let number =
        |at: usize| Some(usize::from(*bytes.get(at)?) + 256 * usize::from(*bytes.get(at + 1)?));
    let is_member = bytes.starts_with(b"PK\x03\x04") && number(8)? == 8;
    let head = FIXED + number(26)? + number(28)?;
    (is_member && head <= bytes.len()).then_some(head)
}

/// A gzip header with all of its optional fields.
fn gzip_head(bytes: &[u8]) -> Option<usize> {
    if *bytes.get(2)? != 8 {
        return None;
    }
    let flags = *bytes.get(3)?;
    let mut at = 10;
    if flags & 4 != 0 {
        let extra = usize::from(*bytes.get(at)?) + 256 * usize::from(*bytes.get(at + 1)?);
        at += 2 + extra;
    }
    for flag in [8, 16] {
        if flags & flag != 0 {
            at += bytes.get(at..)?.iter().position(|b| *b == 0)? + 1;
        }
    }
    if flags & 2 != 0 {
        at += 2;
    }
    (at <= bytes.len()).then_some(at)
}

struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn bit(&mut self) -> Option<u16> {
        let byte = *self.bytes.get(self.at / 8)?;
        let bit = (byte >> (self.at % 8)) & 1;
        self.at += 1;
        Some(u16::from(bit))
    }

    fn bits(&mut self, count: u8) -> Option<u16> {
        (0..count).try_fold(0, |value, n| Some(value | (self.bit()? << n)))
    }
}

/// Codes by length, canonical.
struct Codes {
    counts: [u16; 16],
    symbols: Vec<u16>,
}

impl Codes {
    /// None where the lengths are of no code: more than there is room for, or fewer than all, which a code of one symbol alone may be.
    fn new(lengths: &[u8]) -> Option<Self> {
        let mut counts: [u16; 16] = [0; 16];
        for length in lengths {
            counts[usize::from(*length)] += 1;
        }
        counts[0] = 0;
        let room = counts[1..].iter().try_fold(1_i32, |room, count| {
            let rest = 2 * room - i32::from(*count);
            (rest >= 0).then_some(rest)
        })?;
        let used: u16 = counts.iter().sum();
        if room > 0 && used > 1 {
            return None;
        }
        let mut symbols = Vec::new();
        for wanted in 1..16_u8 {
            let of_length = (0_u16..).zip(lengths).filter(|(_, l)| **l == wanted);
            symbols.extend(of_length.map(|(symbol, _)| symbol));
        }
        Some(Self { counts, symbols })
    }

    fn read(&self, bits: &mut Bits<'_>) -> Option<u16> {
        let (mut code, mut first, mut index) = (0_i32, 0_i32, 0_i32);
        for count in &self.counts[1..] {
            code |= i32::from(bits.bit()?);
            let count = i32::from(*count);
            if code - count < first {
                let at = usize::try_from(index + code - first).ok()?;
                return self.symbols.get(at).copied();
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        None
    }
}

/// Why a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// As it should.
    Whole,
    /// It is none, or it is damaged or cut off.
    Cut,
    /// There is more of it than anybody looks into.
    Full,
}

#[derive(Debug)]
struct Content {
    bytes: Vec<u8>,
    end: End,
    /// Bytes of the stream.
    taken: usize,
}

impl Content {
    /// Whether the Adler-32 behind a zlib stream is the one of this content.
    fn is_as_summed(&self, stream: &[u8]) -> bool {
        const PRIME: u32 = 65521;
        let (mut a, mut b) = (1_u32, 0_u32);
        for byte in &self.bytes {
            a = (a + u32::from(*byte)) % PRIME;
            b = (b + a) % PRIME;
        }
        let sum = ((b << 16) | a).to_be_bytes();
        self.end == End::Whole && stream.get(self.taken..self.taken + 4) == Some(&sum)
    }
}

/// As far as the stream can be read.
fn inflate(bytes: &[u8], bytes_max: usize) -> Content {
    let mut bits = Bits { bytes, at: 0 };
    let mut out = Vec::new();
    let end = loop {
        let last = block(&mut bits, &mut out, bytes_max);
        if out.len() >= bytes_max {
            break End::Full;
        }
        match last {
            Some(false) => {}
            Some(true) => break End::Whole,
            None => break End::Cut,
        }
    };
    Content {
        bytes: out,
        end,
        taken: bits.at.div_ceil(8),
    }
}

/// Whether it was the last one; None where it cannot be read.
fn block(bits: &mut Bits<'_>, out: &mut Vec<u8>, bytes_max: usize) -> Option<bool> {
    let is_last = bits.bit()? == 1;
    match bits.bits(2)? {
        0 => stored(bits, out)?,
        1 => {
            let (literals, distances) = fixed()?;
            coded(bits, out, literals, distances, bytes_max)?;
        }
        2 => {
            let (literals, distances) = dynamic(bits)?;
            coded(bits, out, &literals, &distances, bytes_max)?;
        }
        _ => return None,
    }
    Some(is_last)
}

fn fixed() -> Option<&'static (Codes, Codes)> {
    static FIXED: OnceLock<Option<(Codes, Codes)>> = OnceLock::new();
    let made = FIXED.get_or_init(|| {
        let mut lengths = [8; 288];
        lengths[144..256].fill(9);
        lengths[256..280].fill(7);
        // Two of its codes stand for no distance.
        Some((Codes::new(&lengths)?, Codes::new(&[5; 32])?))
    });
    made.as_ref()
}

fn stored(bits: &mut Bits<'_>, out: &mut Vec<u8>) -> Option<()> {
    bits.at = bits.at.div_ceil(8) * 8;
    let length = usize::from(bits.bits(16)?);
    if bits.bits(16)? != !u16::try_from(length).ok()? {
        return None;
    }
    let from = bits.at / 8;
    let rest = bits.bytes.get(from..)?;
    let taken = &rest[..length.min(rest.len())];
    out.extend_from_slice(taken);
    bits.at += taken.len() * 8;
    (taken.len() == length).then_some(())
}

fn dynamic(bits: &mut Bits<'_>) -> Option<(Codes, Codes)> {
    let literals = usize::from(bits.bits(5)?) + 257;
    let distances = usize::from(bits.bits(5)?) + 1;
    let count = usize::from(bits.bits(4)?) + 4;
    let mut lengths = [0_u8; 19];
    for place in &CODE_ORDER[..count] {
        lengths[*place] = u8::try_from(bits.bits(3)?).ok()?;
    }
    let codes = Codes::new(&lengths)?;
    let mut all: Vec<u8> = Vec::new();
    while all.len() < literals + distances {
        let symbol = codes.read(bits)?;
        let (value, times) = match symbol {
            16 => (*all.last()?, 3 + bits.bits(2)?),
            17 => (0, 3 + bits.bits(3)?),
            18 => (0, 11 + bits.bits(7)?),
            length => (u8::try_from(length).ok()?, 1),
        };
        all.extend(std::iter::repeat_n(value, usize::from(times)));
    }
    let ends = literals + distances;
    Some((
        Codes::new(&all[..literals])?,
        Codes::new(all.get(literals..ends)?)?,
    ))
}

fn coded(
    bits: &mut Bits<'_>,
    out: &mut Vec<u8>,
    literals: &Codes,
    distances: &Codes,
    bytes_max: usize,
) -> Option<()> {
    while out.len() < bytes_max {
        let symbol = literals.read(bits)?;
        match symbol {
            0..=255 => out.push(u8::try_from(symbol).ok()?),
            256 => return Some(()),
            _ => {
                let at = usize::from(symbol - 257);
                let extra = bits.bits(*LENGTH_EXTRA.get(at)?)?;
                let length = usize::from(*LENGTH_BASE.get(at)? + extra);
                let at = usize::from(distances.read(bits)?);
                let base = usize::from(*DISTANCE_BASE.get(at)?);
                let extra = bits.bits(u8::try_from((at / 2).saturating_sub(1)).ok()?)?;
                let back = base + usize::from(extra);
                let from = out.len().checked_sub(back)?;
                for n in 0..length {
                    out.push(out[from + n]);
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXED: &[u8] = b"\
        \x78\xda\x2b\xc9\x48\x55\x70\x76\xf4\x73\x0c\x8a\x54\x28\xce\xcc\x4b\x2f\x56\x28\x21\x5d\
        \x20\x31\x29\x39\x25\x35\x2d\x3d\x23\x33\x2b\x3b\x27\x37\x2f\xbf\xa0\xb0\xa8\xb8\xa4\xb4\
        \xac\xbc\xa2\xb2\x0a\x00\xc6\x47\x21\x2c";
    const DYNAMIC: &[u8] = b"\
        \x78\xda\x5d\x92\x3b\x12\xc2\x30\x0c\x44\xaf\xe2\x23\x44\xbf\x38\x29\x33\xf4\x14\x74\x94\
        \x01\xd2\x31\xc0\x40\xc7\xe9\x29\xd2\xec\xa3\xf3\x8e\xd6\xf2\xfa\x49\x43\x7b\xdd\xd7\x47\
        \xbb\xde\x9f\x9f\xed\xd6\x6c\x57\xcf\xd7\xf6\x68\xbe\x9f\x0f\xcb\x71\x39\x9d\x5b\x48\x25\
        \xf7\xf3\x77\xbb\xbc\xd7\x56\x2a\x46\x15\x5d\xc5\x84\x77\x66\xe9\x66\x83\xfa\x4c\x23\x98\
        \xa3\x14\x50\xa9\x46\xa4\xb0\x11\xd1\xad\xf3\x8f\x93\x5e\x9c\x61\xf5\x41\x01\x80\x86\xab\
        \x50\x1a\x0e\x1c\x5e\x78\xcc\x41\xc4\xbb\xde\x23\x12\x9f\xd5\x19\x80\x12\x06\x6b\xfc\x8d\
        \x26\x58\x4d\x4a\xa0\x09\xa2\x09\x0d\x14\x13\x9c\x3a\xa3\x1c\xd0\x33\x0d\x5d\x52\xd9\x64\
        \xb0\x06\x3a\x49\x3a\xc9\x34\xd9\x29\x91\x27\xc1\xa7\x74\x50\x65\x28\x39\xde\x28\x6c\x4d\
        \x71\x77\x19\xa7\x18\xa7\x18\xa7\x74\x6f\x4a\xd3\xfc\x00\x26\xa6\x08\x6e";
    const GZIP: &[u8] = b"\
        \x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x2b\xc9\x48\x55\x70\x76\xf4\x73\x0c\x8a\x04\x00\
        \x2f\xee\xd3\xd0\x0a\x00\x00\x00";

    /// All that a look comes by, and how it ended.
    fn all(bytes: &[u8], bounds: Bounds) -> (Vec<Vec<u8>>, Seen) {
        let mut found = Vec::new();
        let seen = look(bytes, bounds, &mut |content| {
            found.push(content.to_vec());
            false
        });
        (found, seen)
    }

    fn streams(bytes: &[u8]) -> Vec<Vec<u8>> {
        all(bytes, BOUNDS).0
    }

    /// In one block of fixed codes, each byte for itself: nothing of the content shows through.
    fn zlib(content: &[u8]) -> Vec<u8> {
        let mut bits = vec![1, 1, 0];
        let put = |bits: &mut Vec<u8>, code: u16, length: u8| {
            let all = (0..length).rev().map(|n| u8::from((code >> n) & 1 == 1));
            bits.extend(all);
        };
        for byte in content {
            let value = u16::from(*byte);
            match value {
                0..144 => put(&mut bits, 0x30 + value, 8),
                _ => put(&mut bits, 0x190 + value - 144, 9),
            }
        }
        put(&mut bits, 0, 7);
        let mut bytes = b"\x78\x01".to_vec();
        let packed = bits.chunks(8).map(|eight| {
            let ones = eight.iter().zip(0_u8..);
            ones.fold(0, |byte, (bit, n)| byte | (bit << n))
        });
        bytes.extend(packed);
        let (a, b) = content.iter().fold((1_u32, 0_u32), |(a, b), byte| {
            let a = (a + u32::from(*byte)) % 65521;
            (a, (b + a) % 65521)
        });
        bytes.extend(((b << 16) | a).to_be_bytes());
        bytes
    }

    #[test]
    fn a_stream_inside_of_streams_is_read_and_one_that_lies_too_deep_is_told() {
        let mut bytes = b"the CANARY".to_vec();
        for depth in 1..=BOUNDS.depth + 2 {
            bytes = zlib(&bytes);
            let (found, seen) = all(&bytes, BOUNDS);
            let is_found = found.contains(&b"the CANARY".to_vec());
            assert_eq!(is_found, depth <= BOUNDS.depth, "{depth}");
            let is_told = seen == Seen::Beyond;
            assert_eq!(is_told, depth > BOUNDS.depth, "{depth}");
        }
        let gzip_in_zlib = zlib(GZIP);
        assert!(streams(&gzip_in_zlib).contains(&b"the CANARY".to_vec()));
    }

    #[test]
    fn a_stream_without_a_header_is_read_wherever_it_begins_and_in_a_large_file_at_its_begin() {
        let raw = &FIXED[2..];
        let has = |bytes: &[u8], bounds| {
            let found = all(bytes, bounds).0;
            found.iter().any(|one| one.starts_with(b"the CANARY sings"))
        };
        let behind = [b"\xff\0\x07noise".as_slice(), raw].concat();
        let small = Bounds {
            raw_bytes: 8,
            ..BOUNDS
        };
        assert!(has(raw, BOUNDS) && has(&behind, BOUNDS));
        assert!(has(raw, small) && !has(&behind, small));
    }

    #[test]
    fn more_than_the_bounds_of_a_stream_or_of_a_file_is_told() {
        let whole = all(FIXED, BOUNDS);
        assert_eq!(whole.1, Seen::Nothing);
        let short = Bounds {
            stream_bytes: 20,
            raw_bytes: 0,
            ..BOUNDS
        };
        assert_eq!(all(FIXED, short).1, Seen::Beyond);
        let two = [FIXED, FIXED].concat();
        let full = Bounds {
            file_bytes: 100,
            raw_bytes: 0,
            ..BOUNDS
        };
        assert_eq!(all(FIXED, full).1, Seen::Nothing);
        assert_eq!(all(&two, full).1, Seen::Beyond);
    }

    /// `zlib.compress(b"the CANARY sings " * 4 + bytes(range(97, 123)), 9)`, and stored by level 0.
    #[test]
    fn a_stream_of_each_kind_is_read_wherever_it_begins() {
        let fixed = FIXED;
        let mut buried = b"noise before".to_vec();
        buried.extend_from_slice(fixed);
        let found = streams(&buried);
        let expected = [b"the CANARY sings ".repeat(4), (97..123).collect()].concat();
        assert!(found.contains(&expected));
        assert!(streams(DYNAMIC).iter().any(|s| s.starts_with(b"0 plan ")));
        let stored = b"\x78\x01\x01\x06\x00\xf9\xffCANARY";
        assert!(streams(stored).contains(&b"CANARY".to_vec()));
        assert!(streams(GZIP).contains(&b"the CANARY".to_vec()));
    }

    #[test]
    fn a_deflated_member_of_a_zip_is_read_and_one_that_is_cut_off_is_none() {
        let mut zip =
            b"PK\x03\x04\x14\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\x02\0a.txt__"
                .to_vec();
        zip.extend_from_slice(&FIXED[2..]);
        assert!(streams(&zip).iter().any(|s| s.starts_with(b"the CANARY")));
        for cut in 0..zip.len() {
            let _ = streams(&zip[..cut]);
        }
    }

    #[test]
    fn t_65_hostile_bytes_end_in_silence() {
        for cut in 0..DYNAMIC.len() {
            let mut bytes = DYNAMIC[..cut].to_vec();
            streams(&bytes);
            if let Some(last) = bytes.last_mut() {
                *last ^= 0x55;
            }
            streams(&bytes);
        }
    }
}
