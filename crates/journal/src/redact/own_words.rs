//! What the journal itself writes into a line, whatever its content: seq, time, checksum, names of its files. None of it says what was erased.

use memchr::memmem;
use serde_json::value::RawValue;

use crate::format::{CRC_SUFFIX_BYTES, checkpoint_seq, segment_seq};
use crate::notes::MetaPayload;
use crate::record::decode;

use super::scrub;

/// A segment with blanks in the place of these. Lines that are no records stay as they are.
pub(super) fn blanked(segment: &[u8]) -> Vec<u8> {
    let mut after = segment.to_vec();
    for place in scrub::lines(segment) {
        let line = &mut after[place];
        let Ok((record, _)) = decode(line) else {
            continue;
        };
        let is_time = |b: u8| b.is_ascii_digit() || matches!(b, b'-' | b':' | b'.' | b'T' | b'Z');
        let head = format!(
            "{{\"v\":{},\"seq\":{},\"ts\":\"{}\"",
            record.v,
            record.seq,
            record.ts.as_str()
        );
        let is_plain = record.ts.as_str().bytes().all(is_time);
        let payload = record.payload.map(RawValue::get);
        let is_meta = payload.is_some_and(|text| MetaPayload::parse(record.action, text).is_some());
        if is_plain && line.starts_with(head.as_bytes()) {
            line[..head.len()].fill(b' ');
        }
        let crc = line.len().saturating_sub(CRC_SUFFIX_BYTES);
        line[crc..].fill(b' ');
        if is_meta {
            blank_names(line);
        }
    }
    after
}

/// Quoted names of segments and checkpoints.
fn blank_names(line: &mut [u8]) {
    let mut at = 0;
    while let Some(open) = memchr::memchr(b'"', &line[at..]) {
        let from = at + open + 1;
        let Some(length) = memmem::find(&line[from..], b"\"") else {
            return;
        };
        let name = std::str::from_utf8(&line[from..from + length]).unwrap_or_default();
        if segment_seq(name).is_some() || checkpoint_seq(name).is_some() {
            line[from..from + length].fill(b' ');
            at = from + length + 1;
        } else {
            // The quote that ended this text may begin the next one.
            at = from;
        }
    }
}
