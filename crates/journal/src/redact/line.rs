//! A line without its content, in exactly as many bytes as before: the places that notes and caches name stay true.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::JournalError;
use crate::format::CRC_OPEN;
use crate::notes::CheckpointRef;
use crate::record::{Record, decode};

use super::needles::Needles;
use super::short::is_word_in;

/// Shorter ones are in many ids by chance.
const WORD_BYTES_MIN: usize = 3;

/// Whether there is anything to erase.
pub(crate) fn has_content(record: &Record<'_>) -> bool {
    record.has_payload() || record.summary.is_some()
}

/// The record at its place, erased; blanks before the checksum make up the length.
pub(crate) fn erased(line: &[u8]) -> Result<Vec<u8>, JournalError> {
    let is_id_told = tells_content(&decode(line)?.0, None)?;
    erased_with(line, is_id_told)
}

/// The same where it is known whether the id of its request goes as well.
pub(crate) fn erased_with(line: &[u8], is_id_told: bool) -> Result<Vec<u8>, JournalError> {
    let (mut record, _) = decode(line)?;
    record.summary = None;
    record.payload = None;
    record.payload_ref = None;
    record.redacted = Some(1);
    // An id that says what shall be forgotten goes with it, and is free again.
    if is_id_told {
        record.request = None;
    }
    // The id stays taken; a hash of what was erased would let a guess be proven.
    if let Some(request) = &mut record.request {
        request.sha256 = None;
    }
    padded(&record, line.len())
}

/// Whether the id of its request holds some of its content, which may be in a blob.
pub(crate) fn tells_content(
    record: &Record<'_>,
    blob: Option<&Value>,
) -> Result<bool, JournalError> {
    let Some(request) = &record.request else {
        return Ok(false);
    };
    let mut needles = Needles::default();
    if let Some(summary) = &record.summary {
        needles.text(summary.as_str());
    }
    let payload = record.payload.map(RawValue::get);
    if let Some(document) = payload.and_then(|text| serde_json::from_str(text).ok()) {
        needles.document(&document);
    }
    if let Some(document) = blob {
        needles.document(document);
    }
    let id = request.id.as_str().as_bytes();
    Ok(needles.matcher()?.is_in(id) || tells_short(&needles, id))
}

/// Whether an id says one of the texts that are too short to be looked for everywhere.
pub(crate) fn tells_short(needles: &Needles, id: &[u8]) -> bool {
    needles.short().iter().any(|word| tells(word, id))
}

/// A short text is told by an id that is nothing else, or has it for a word; a letter or two prove nothing.
fn tells(word: &str, id: &[u8]) -> bool {
    word.as_bytes() == id || word.len() >= WORD_BYTES_MIN && is_word_in(word, id)
}

/// The same record without its request: the id says what was erased elsewhere.
pub(crate) fn unnamed(line: &[u8]) -> Result<Vec<u8>, JournalError> {
    let (mut record, _) = decode(line)?;
    record.request = None;
    padded(&record, line.len())
}

/// The same record without the hash of its request.
pub(crate) fn unhashed(line: &[u8]) -> Result<Vec<u8>, JournalError> {
    let (mut record, _) = decode(line)?;
    if let Some(request) = &mut record.request {
        request.sha256 = None;
    }
    padded(&record, line.len())
}

/// The reference to a checkpoint that was written anew.
pub(crate) fn referring(line: &[u8], to: &CheckpointRef) -> Result<Vec<u8>, JournalError> {
    let (mut record, _) = decode(line)?;
    let text = serde_json::to_string(to).map_err(JournalError::refused)?;
    let payload = RawValue::from_string(text).map_err(JournalError::refused)?;
    record.payload = Some(&payload);
    padded(&record, line.len())
}

fn padded(record: &Record<'_>, bytes: usize) -> Result<Vec<u8>, JournalError> {
    let mut framed = Vec::new();
    let place = record.encode_into(&mut framed)?;
    let line = &framed[place.start..place.end];
    let blanks = bytes
        .checked_sub(line.len())
        .ok_or_else(|| JournalError::refused("an erased record would be longer than it was"))?;
    let at = line.len() - crate::format::CRC_SUFFIX_BYTES;
    let mut open = line[..at].to_vec();
    open.resize(at + blanks, b' ');
    let crc = crc32c::crc32c_append(crc32c::crc32c(&open), b"}");
    open.extend_from_slice(CRC_OPEN);
    open.extend_from_slice(format!("{crc:08x}\"}}").as_bytes());
    Ok(open)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{Action, Mode};
    use crate::record::Batch;

    fn record<'a>(payload: Option<&'a RawValue>, summary: Option<&'a str>) -> Record<'a> {
        Record {
            v: 2,
            seq: 7,
            ts: "t".into(),
            writer: "w".into(),
            agent: "a".into(),
            agent_id: None,
            user: None,
            action: Action::Update,
            item_type: "plan".into(),
            item_id: Some("x".into()),
            entity_rev: Some(3),
            summary: summary.map(Into::into),
            payload,
            payload_ref: None,
            redacted: None,
            request: None,
            batch: Batch {
                id: "b".into(),
                i: 0,
                n: 1,
            },
        }
    }

    #[test]
    fn rd_02_an_erased_line_keeps_place_length_and_identity_down_to_the_smallest_content() {
        let secret = RawValue::from_string(r#"{"secret":"CANARY"}"#.into()).unwrap();
        let empty = RawValue::from_string("{}".into()).unwrap();
        let cases = [
            record(Some(&secret), Some("CANARY in words")),
            record(Some(&empty), None),
            record(None, Some("")),
        ];
        for before in cases {
            let mut framed = Vec::new();
            let place = before.encode_into(&mut framed).unwrap();
            let line = &framed[place.start..place.end];
            let after = erased(line).unwrap();
            assert_eq!(after.len(), line.len());
            assert!(!String::from_utf8_lossy(&after).contains("CANARY"));
            let (told, _) = decode(&after).unwrap();
            assert!(told.redacted.is_some() && !has_content(&told));
            assert_eq!((told.seq, told.writer.as_str()), (7, "w"));
            assert_eq!(told.entity_rev, Some(3));
            told.check(Mode::Primary).unwrap();
            assert_eq!(erased(&after).unwrap(), after, "twice is once");
        }
    }
}
