//! The bytes that must be gone, and where they are found: raw, JSON-escaped, base64, hex, UTF-16, deflated.

use std::collections::BTreeSet;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::Value;

use super::inflate::{self, Seen};
use crate::error::JournalError;

/// Shorter texts are words that everybody uses.
const TEXT_BYTES_MIN: usize = 8;
/// A word inside a text counts alone when it looks like a token.
const TOKEN_BYTES_MIN: usize = 12;
/// A longer text is looked for in pieces too: half of it in a torn write is still found.
const PIECE_BYTES: usize = 32;
const NEEDLES_MAX: usize = 4096;
/// Texts inside of texts: a document that was quoted, and quoted again.
const NESTED_MAX: usize = 4;

/// Texts of the redacted content.
#[derive(Debug, Clone, Default)]
pub(crate) struct Needles {
    texts: BTreeSet<String>,
    /// Those that are too short to be looked for.
    short: BTreeSet<String>,
    /// Those that records of others hold as well.
    shared: BTreeSet<String>,
    /// Names of fields that a program would take: content only where nobody else uses them.
    fields: BTreeSet<String>,
}

impl Needles {
    pub(crate) fn document(&mut self, document: &Value) {
        match document {
            Value::String(text) => self.text(text),
            Value::Number(number) => self.text(&number.to_string()),
            Value::Array(items) => items.iter().for_each(|item| self.document(item)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    // A name that no program would take is somebody's. Of another one only those can tell who know what fields there are.
                    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
                    if name.chars().all(is_plain) {
                        self.field(name);
                    } else {
                        self.text(name);
                    }
                    self.document(field);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// A short one without a digit is a word that everybody uses.
    fn field(&mut self, name: &str) {
        if name.len() >= TEXT_BYTES_MIN || name.bytes().any(|b| b.is_ascii_digit()) {
            self.fields.insert(name.to_owned());
        }
    }

    pub(super) fn take_fields(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.fields)
    }

    pub(crate) fn text(&mut self, text: &str) {
        let text = text.trim();
        if text.len() < TEXT_BYTES_MIN {
            if !text.is_empty() {
                self.short.insert(text.to_owned());
            }
            return;
        }
        if text.len() <= 2 * PIECE_BYTES {
            self.add(text);
        } else {
            let mut rest = text;
            while rest.len() >= TEXT_BYTES_MIN {
                let end = (PIECE_BYTES..rest.len()).find(|at| rest.is_char_boundary(*at));
                let (piece, behind) = rest.split_at(end.unwrap_or(rest.len()));
                self.add(piece);
                rest = behind;
            }
        }
        let is_token =
            |word: &&str| word.len() >= TOKEN_BYTES_MIN && word.chars().any(|c| c.is_ascii_digit());
        for word in text.split_whitespace().filter(is_token) {
            let word = word.trim_matches(|c: char| c.is_ascii_punctuation());
            // IMPORTANT: never a long one as a whole. Where all of its pieces are alike, each byte of it ends one of them, and to build
            // the machine takes the square of its length. The pieces of its text find it anyway.
            let starts = word.floor_char_boundary(2 * PIECE_BYTES);
            let ends = word.ceil_char_boundary(word.len().saturating_sub(2 * PIECE_BYTES));
            self.add(&word[..starts]);
            self.add(&word[ends..]);
        }
    }

    fn add(&mut self, text: &str) {
        if self.texts.len() < NEEDLES_MAX && text.len() >= TEXT_BYTES_MIN {
            self.texts.insert(text.to_owned());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Texts that nobody can look for everywhere: others use the same words.
    pub(crate) fn short(&self) -> &BTreeSet<String> {
        &self.short
    }

    /// Texts that others hold as well, so that the journal's own files go on holding them.
    pub(crate) fn shared(&self) -> &BTreeSet<String> {
        &self.shared
    }

    /// With those set apart that others hold as well.
    pub(crate) fn without(&self, held: &BTreeSet<String>) -> Self {
        let (shared, texts) = self
            .texts
            .iter()
            .cloned()
            .partition(|text| held.contains(text));
        Self {
            texts,
            short: self.short.clone(),
            shared,
            fields: BTreeSet::new(),
        }
    }

    /// Finds only what others hold as well.
    pub(crate) fn shared_matcher(&self) -> Result<Matcher, JournalError> {
        Self {
            texts: self.shared.clone(),
            ..Self::default()
        }
        .matcher()
    }

    pub(crate) fn matcher(&self) -> Result<Matcher, JournalError> {
        let mut patterns = Vec::new();
        let mut owners = Vec::new();
        for text in &self.texts {
            for spelled in in_lines(text).iter().flat_map(|text| spellings(text)) {
                patterns.push(spelled);
                owners.push(text.clone());
            }
        }
        let digits = self.texts.iter().map(|text| hex(text.as_bytes()));
        Ok(Matcher {
            machine: machine(patterns, false)?,
            owners,
            hex: machine(digits.map(String::into_bytes).collect(), true)?,
            texts: self.texts.iter().cloned().collect(),
        })
    }
}

fn machine(patterns: Vec<Vec<u8>>, any_case: bool) -> Result<AhoCorasick, JournalError> {
    // Built for one pass over a few files: a table of all states would cost more than it saves.
    AhoCorasick::builder()
        .kind(Some(AhoCorasickKind::ContiguousNFA))
        .ascii_case_insensitive(any_case)
        .build(patterns)
        .map_err(JournalError::refused)
}

/// Finds needles in whatever encoding.
#[derive(Debug)]
pub(crate) struct Matcher {
    machine: AhoCorasick,
    owners: Vec<String>,
    /// Digits of either case.
    hex: AhoCorasick,
    texts: Vec<String>,
}

impl Matcher {
    /// In the bytes as they are and as their escapes mean them, compressed streams not looked into.
    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        if self.owners.is_empty() {
            return false;
        }
        self.is_spelled_in(bytes)
            || unescaped(bytes)
                .iter()
                .any(|meant| self.is_spelled_in(meant))
    }

    fn is_spelled_in(&self, bytes: &[u8]) -> bool {
        self.machine.is_match(bytes) || self.hex.is_match(bytes)
    }

    /// Which ones, where one may stand inside another.
    pub(crate) fn found(&self, bytes: &[u8]) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        if self.owners.is_empty() {
            return found;
        }
        for bytes in std::iter::once(bytes).chain(unescaped(bytes).iter().map(Vec::as_slice)) {
            found.extend(named(&self.machine, bytes, &self.owners));
            found.extend(named(&self.hex, bytes, &self.texts));
        }
        found
    }

    /// With a look into everything that is deflated, and over the ends of lines: base64 is written in lines of 76.
    pub(crate) fn look_in(&self, bytes: &[u8]) -> Seen {
        if self.owners.is_empty() {
            return Seen::Nothing;
        }
        let mut is_here = |bytes: &[u8]| {
            self.is_in(bytes) || in_one_line(bytes).is_some_and(|joined| self.is_in(&joined))
        };
        if is_here(bytes) {
            return Seen::Held;
        }
        inflate::look(bytes, inflate::BOUNDS, &mut is_here)
    }

    pub(crate) fn is_anywhere_in(&self, bytes: &[u8]) -> bool {
        self.look_in(bytes) == Seen::Held
    }
}

/// Without the ends of its lines, if it has more than one.
fn in_one_line(bytes: &[u8]) -> Option<Vec<u8>> {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let first = bytes.iter().position(is_end)?;
    if bytes[first..].iter().all(is_end) {
        return None;
    }
    Some(bytes.iter().copied().filter(|byte| !is_end(byte)).collect())
}

/// Texts of a machine's patterns that are here, each once however often it is found.
fn named<'n>(
    machine: &'n AhoCorasick,
    bytes: &'n [u8],
    names: &'n [String],
) -> impl Iterator<Item = String> + 'n {
    let mut seen = vec![false; names.len()];
    machine.find_overlapping_iter(bytes).filter_map(move |hit| {
        let at = hit.pattern().as_usize();
        let is_news = !std::mem::replace(&mut seen[at], true);
        is_news.then(|| names[at].clone())
    })
}

/// What JSON's escapes mean, whoever wrote them and however: once, and again for a text inside of a text.
fn unescaped(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut current = bytes;
    while all.len() < NESTED_MAX && memchr::memchr(b'\\', current).is_some() {
        all.push(meant(current));
        current = all.last().map_or(&[], Vec::as_slice);
    }
    all
}

/// One layer of escapes taken off. What is none stays.
fn meant(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(next) = memchr::memchr(b'\\', &bytes[at..]) {
        out.extend_from_slice(&bytes[at..at + next]);
        at += next;
        let (text, length) = escape(&bytes[at..]);
        let mut buffer = [0; 4];
        match text {
            Some(text) => out.extend_from_slice(text.encode_utf8(&mut buffer).as_bytes()),
            None => out.push(b'\\'),
        }
        at += length;
    }
    out.extend_from_slice(&bytes[at..]);
    out
}

/// The character of an escape that begins here, and how many bytes it takes.
fn escape(bytes: &[u8]) -> (Option<char>, usize) {
    let plain = match bytes.get(1) {
        Some(c @ (b'"' | b'\\' | b'/')) => char::from(*c),
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => {
            let units = [unit(bytes), bytes.get(6..).and_then(unit)];
            let units = units.into_iter().flatten();
            let first = char::decode_utf16(units).next();
            return match first {
                Some(Ok(c)) => (Some(c), 6 * c.len_utf16()),
                _ => (None, 1),
            };
        }
        _ => return (None, 1),
    };
    (Some(plain), 2)
}

/// `\uXXXX`, of either case.
fn unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
    u16::from_str_radix(text, 16).ok()
}

/// A text of several lines, with either end of them, and without: so it stands where a file is read in one line.
fn in_lines(text: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::from([text.to_owned()]);
    if text.contains(['\n', '\r']) {
        let lines = text.replace("\r\n", "\n");
        all.insert(lines.replace('\n', "\r\n"));
        all.insert(lines.replace(['\n', '\r'], ""));
        all.insert(lines);
    }
    // What is left of it may be a word that everybody uses.
    all.retain(|one| one == text || one.len() >= TEXT_BYTES_MIN);
    all
}

/// A text in every encoding that a file may hold it in.
fn spellings(text: &str) -> BTreeSet<Vec<u8>> {
    let raw = text.as_bytes();
    let mut all = BTreeSet::from([raw.to_vec()]);
    for start in 0..3 {
        let mut shifted = vec![0; start];
        shifted.extend_from_slice(raw);
        // The first and last digits share bits with the neighbours, whatever these are.
        let from = [0, 2, 3][start];
        let to = shifted.len() * 8 / 6;
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            all.insert(engine.encode(&shifted).as_bytes()[from..to].to_vec());
        }
    }
    all.insert(text.encode_utf16().flat_map(u16::to_le_bytes).collect());
    all.insert(text.encode_utf16().flat_map(u16::to_be_bytes).collect());
    all
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANARY: &str = "CANARY/é\"7f3a-11";

    fn matcher() -> Matcher {
        let mut needles = Needles::default();
        needles.text(CANARY);
        needles.matcher().unwrap()
    }

    #[test]
    fn rd_01_the_bytes_are_found_in_six_encodings_at_every_alignment() {
        let matcher = matcher();
        for before in ["", "x", "xy", "xyz"] {
            let text = format!("{before}{CANARY} and more");
            let engine = &base64::engine::general_purpose::STANDARD;
            let utf16 = |f: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(f).collect();
            let quoted = serde_json::to_string(&text).unwrap();
            let ascii = quoted.replace('é', "\\u00e9");
            let all: [Vec<u8>; 11] = [
                text.clone().into_bytes(),
                quoted.clone().into_bytes(),
                ascii.clone().into_bytes(),
                ascii
                    .replace('/', "\\/")
                    .replace("00e9", "00E9")
                    .into_bytes(),
                ascii.replace("CANARY", "\\u0043\\u0041NARY").into_bytes(),
                serde_json::to_vec(&ascii).unwrap(),
                engine.encode(&text).into_bytes(),
                hex(text.as_bytes()).into_bytes(),
                hex(text.as_bytes()).replace('a', "A").into_bytes(),
                utf16(u16::to_le_bytes),
                utf16(u16::to_be_bytes),
            ];
            for (n, bytes) in all.iter().enumerate() {
                assert!(matcher.is_in(bytes), "encoding {n} after {before:?}");
            }
            let mut zlib = b"\x78\x01\x01".to_vec();
            let length = u16::try_from(text.len()).unwrap();
            zlib.extend(length.to_le_bytes());
            zlib.extend((!length).to_le_bytes());
            zlib.extend(text.bytes());
            assert!(matcher.is_anywhere_in(&zlib));
        }
        assert!(!matcher.is_anywhere_in(b"nothing of the kind, however long the text may be"));
    }

    #[test]
    fn rd_01_base64_in_lines_is_found_wherever_they_end() {
        let (matcher, engine) = (matcher(), &base64::engine::general_purpose::STANDARD);
        for before in ["", "x", "xy", "xyz"] {
            let text = engine.encode(format!("{before}{CANARY} and more"));
            for width in 1..40 {
                for end in ["\n", "\r\n"] {
                    let lines = text.as_bytes().chunks(width).collect::<Vec<_>>();
                    let lines = lines.join(end.as_bytes());
                    assert!(matcher.is_anywhere_in(&lines), "{before} {width}");
                }
            }
        }
    }

    /// Bytes of all patterns and the longest of them: the machine has a state for each.
    fn work(text: &str) -> (usize, usize) {
        let mut needles = Needles::default();
        needles.text(text);
        let lengths = needles.texts.iter().flat_map(|text| {
            let spelled = spellings(text).into_iter().map(|spelled| spelled.len());
            spelled.chain([2 * text.len()])
        });
        lengths.fold((0, 0), |(all, most), n| (all + n, most.max(n)))
    }

    #[test]
    fn a_text_of_one_letter_costs_no_more_than_it_is_long_up_to_16_mb() {
        let run = |n: usize| format!("CANARY123456{}", "y".repeat(n));
        let (once, twice) = (work(&run(30_000)), work(&run(60_000)));
        assert!(twice.0 * 10 <= once.0 * 22, "{once:?} {twice:?}");
        for text in [run(16 << 20), "é1".repeat(100_000), "0".repeat(1 << 20)] {
            let (all, longest) = work(&text);
            assert!(
                all <= 64 << 10 && longest <= 8 * PIECE_BYTES,
                "{all} {longest}"
            );
        }
        // It is found as before: whole, in its middle, and at its end.
        let mut needles = Needles::default();
        needles.text(&run(60_000));
        let matcher = needles.matcher().unwrap();
        for part in [run(60_000), run(20), "y".repeat(40)] {
            assert!(matcher.is_in(part.as_bytes()), "{}", part.len());
            assert!(matcher.is_in(hex(part.as_bytes()).as_bytes()));
            assert!(matcher.is_in(STANDARD_NO_PAD.encode(&part).as_bytes()));
        }
        let held = matcher.found("y".repeat(1 << 20).as_bytes());
        assert!(held.contains(&"y".repeat(32)) && !held.contains(&run(52)));
    }

    #[test]
    fn long_texts_are_found_by_their_pieces_and_short_ones_are_no_needles() {
        let long = "é".repeat(500) + " token-4711-abcdef";
        let mut needles = Needles::default();
        needles.document(&serde_json::json!({"a": [long, "short", 12, 4_915_112_345_678_u64]}));
        let matcher = needles.matcher().unwrap();
        assert!(matcher.is_in("é".repeat(40).as_bytes()));
        assert!(matcher.is_in(b"x token-4711-abcdef"));
        assert!(matcher.is_in(b"call 4915112345678"));
        assert!(!matcher.is_in(b"short 12"));
        assert!(!Needles::default().matcher().unwrap().is_in(b"anything"));
    }
}
