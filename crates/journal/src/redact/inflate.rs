//! Looks into deflated bytes: a small decoder that gives what it could read and never fails.
//!
//! Only for the verifier of a redaction, which asks whether erased bytes hide in a compressed file.

/// Longest output of one stream: a bomb is looked into, not unpacked.
const OUTPUT_BYTES_MAX: usize = 64 << 20;
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

/// The content of every zlib and gzip stream that begins anywhere in these bytes, and of every deflated member of a zip.
pub(crate) fn streams(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for (at, pair) in bytes.windows(2).enumerate() {
        let head = match pair {
            // zlib: method 8, window up to 32 KB, and a header that divides by 31.
            [cmf, flg]
                if cmf & 0x0f == 8
                    && cmf >> 4 <= 7
                    && (u16::from(*cmf) * 256 + u16::from(*flg)).is_multiple_of(31) =>
            {
                2
            }
            [0x1f, 0x8b] => match gzip_head(&bytes[at..]) {
                Some(head) => head,
                None => continue,
            },
            b"PK" => match zip_head(&bytes[at..]) {
                Some(head) => head,
                None => continue,
            },
            _ => continue,
        };
        let content = inflate(bytes.get(at + head..).unwrap_or_default());
        if content.len() >= 4 {
            found.push(content);
        }
    }
    found
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

/// A gzip header without the optional fields but the name.
fn gzip_head(bytes: &[u8]) -> Option<usize> {
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
    fn new(lengths: &[u8]) -> Self {
        let mut counts = [0; 16];
        for length in lengths {
            counts[usize::from(*length)] += 1;
        }
        counts[0] = 0;
        let mut symbols = Vec::new();
        for wanted in 1..16_u8 {
            let of_length = (0_u16..).zip(lengths).filter(|(_, l)| **l == wanted);
            symbols.extend(of_length.map(|(symbol, _)| symbol));
        }
        Self { counts, symbols }
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

/// As far as the stream can be read.
pub(crate) fn inflate(bytes: &[u8]) -> Vec<u8> {
    let mut bits = Bits { bytes, at: 0 };
    let mut out = Vec::new();
    while block(&mut bits, &mut out) == Some(false) && out.len() < OUTPUT_BYTES_MAX {}
    out
}

/// Whether it was the last one; None where it cannot be read.
fn block(bits: &mut Bits<'_>, out: &mut Vec<u8>) -> Option<bool> {
    let is_last = bits.bit()? == 1;
    match bits.bits(2)? {
        0 => stored(bits, out)?,
        1 => {
            let mut lengths = [8; 288];
            lengths[144..256].fill(9);
            lengths[256..280].fill(7);
            coded(bits, out, &Codes::new(&lengths), &Codes::new(&[5; 30]))?;
        }
        2 => {
            let (literals, distances) = dynamic(bits)?;
            coded(bits, out, &literals, &distances)?;
        }
        _ => return None,
    }
    Some(is_last)
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
    let codes = Codes::new(&lengths);
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
        Codes::new(&all[..literals]),
        Codes::new(&all[literals..ends]),
    ))
}

fn coded(
    bits: &mut Bits<'_>,
    out: &mut Vec<u8>,
    literals: &Codes,
    distances: &Codes,
) -> Option<()> {
    while out.len() < OUTPUT_BYTES_MAX {
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
