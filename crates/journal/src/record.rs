//! One record: its envelope, its line with the checksum, and the rules of its class.
//!
//! Parsing borrows: a payload stays the bytes of the segment until somebody needs more.

use std::borrow::Cow;
use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::action::{Action, ActionClass, Mode};
use crate::format::{
    BATCH_RECORDS_MAX, CRC_DIGITS, CRC_OPEN, CRC_SUFFIX_BYTES, ENVELOPE_VERSION, LINE_BYTES_MAX,
    SEQ_MAX, is_item_id, is_item_type, is_sha256,
};

/// Text that borrows from the line where it stands there without escapes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Text<'a>(pub Cow<'a, str>);

impl Text<'_> {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_owned(self) -> Text<'static> {
        Text(Cow::Owned(self.0.into_owned()))
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowing;
        impl<'de> Visitor<'de> for Borrowing {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Borrowing)
    }
}

/// Where a record stands in its batch; the batch counts when all `n` of them do (C23).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch<'a> {
    #[serde(borrow)]
    pub id: Text<'a>,
    pub i: u32,
    pub n: u32,
}

/// A payload that lives in `events/blobs/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayloadRef<'a> {
    #[serde(borrow)]
    pub sha256: Text<'a>,
    pub bytes: u64,
}

/// The request that a record answers, where its caller named it; the same name again makes no second record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRef<'a> {
    #[serde(borrow)]
    pub id: Text<'a>,
    /// Of the request's canonical text; gone where the content was erased.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Text<'a>>,
}

/// The envelope, version 2. The field order is the order on disk; `crc` follows as the last one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record<'a> {
    pub v: u8,
    pub seq: u64,
    #[serde(borrow)]
    pub ts: Text<'a>,
    #[serde(borrow)]
    pub writer: Text<'a>,
    #[serde(borrow)]
    pub agent: Text<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Text<'a>>,
    pub action: Action,
    #[serde(borrow)]
    pub item_type: Text<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub item_id: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity_rev: Option<u64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub payload_ref: Option<PayloadRef<'a>>,
    /// Its content was erased on request; the place, the writer and the revision stayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<u8>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestRef<'a>>,
    #[serde(borrow)]
    pub batch: Batch<'a>,
}

/// Why a line is no record. It never counts, before or after (C11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum LineFault {
    #[error("longer than a line may be")]
    TooLong,
    #[error("without a checksum")]
    NoCrc,
    #[error("the checksum does not match")]
    CrcMismatch,
    #[error("not a record")]
    NotARecord,
    #[error("of another envelope version")]
    Version,
    /// Sound, and of a version or an action that this build does not know: no torn write, but somebody's answered record.
    /// With its seq.
    #[error("of a newer heddle")]
    Newer(Option<u64>),
    #[error("its place in the batch is impossible")]
    Batch,
}

/// What a record breaks although its line is sound.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    #[error("{0} {1} a payload")]
    Payload(&'static str, &'static str),
    #[error("{0} {1} an item id")]
    ItemId(&'static str, &'static str),
    #[error("{0} {1} an entity revision")]
    EntityRev(&'static str, &'static str),
    #[error("both payload and payload_ref")]
    TwoPayloads,
    #[error("redacted, and has content all the same")]
    RedactedContent,
    #[error("an item id that cannot be a file name")]
    IdSpelling,
    #[error("an item type that cannot be a folder name")]
    TypeSpelling,
    #[error("a payload_ref that is no SHA-256")]
    HashSpelling,
    #[error("revision 0")]
    RevZero,
    #[error("item type `journal` goes with journal actions, and only with them")]
    JournalType,
}

/// The checksum of a line that is otherwise complete: CRC-32C over it without the `crc` field.
pub(crate) fn crc_of(open: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(open), b"}")
}

/// The checksum that a sound line carries.
pub fn line_crc(line: &[u8]) -> Result<u32, LineFault> {
    if line.len() > LINE_BYTES_MAX {
        return Err(LineFault::TooLong);
    }
    crc_at_end(line)
}

/// The same whatever the length.
pub(crate) fn crc_at_end(line: &[u8]) -> Result<u32, LineFault> {
    let at = line
        .len()
        .checked_sub(CRC_SUFFIX_BYTES)
        .ok_or(LineFault::NoCrc)?;
    let (open, suffix) = line.split_at(at);
    let digits = suffix
        .strip_prefix(CRC_OPEN)
        .and_then(|rest| rest.strip_suffix(b"\"}"))
        .filter(|digits| digits.len() == CRC_DIGITS)
        .filter(|digits| {
            digits
                .iter()
                .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        })
        .ok_or(LineFault::NoCrc)?;
    let written = std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
        .ok_or(LineFault::NoCrc)?;
    if written == crc_of(open) {
        Ok(written)
    } else {
        Err(LineFault::CrcMismatch)
    }
}

/// What a line is that has a sound checksum and is no record of this build.
fn stranger(text: &str) -> LineFault {
    /// As much as every envelope has.
    #[derive(Deserialize)]
    struct Any<'a> {
        v: u64,
        #[serde(borrow, default)]
        seq: Option<&'a RawValue>,
        #[serde(borrow)]
        action: Option<Text<'a>>,
    }
    let Ok(any) = serde_json::from_str::<Any<'_>>(text) else {
        return LineFault::NotARecord;
    };
    let own = u64::from(ENVELOPE_VERSION);
    let is_unknown = |name: Text<'_>| Action::parse(name.as_str()).is_none();
    if any.v > own || any.v == own && any.action.is_some_and(is_unknown) {
        let seq = any.seq.and_then(|seq| seq.get().parse().ok());
        LineFault::Newer(seq.filter(|seq| *seq <= SEQ_MAX))
    } else if any.v < own {
        LineFault::Version
    } else {
        LineFault::NotARecord
    }
}

/// A line as a record, with its checksum.
pub fn decode(line: &[u8]) -> Result<(Record<'_>, u32), LineFault> {
    let crc = line_crc(line)?;
    let text = std::str::from_utf8(line).map_err(|_| LineFault::NotARecord)?;
    let record: Record<'_> = serde_json::from_str(text).map_err(|_| stranger(text))?;
    if record.v != ENVELOPE_VERSION {
        return Err(stranger(text));
    }
    let Batch { i, n, .. } = record.batch;
    let has_seq = (1..=SEQ_MAX).contains(&record.seq);
    if i >= n || n as usize > BATCH_RECORDS_MAX || !has_seq {
        return Err(LineFault::Batch);
    }
    Ok((record, crc))
}

impl Record<'_> {
    pub fn has_payload(&self) -> bool {
        self.payload.is_some() || self.payload_ref.is_some()
    }

    /// The rules of the record's class; the same for what we write and for what we read.
    pub fn check(&self, mode: Mode) -> Result<(), RuleFault> {
        self.check_with(false, mode)
    }

    /// The same where its payload is at hand as a text.
    pub(crate) fn check_with(&self, has_text: bool, mode: Mode) -> Result<(), RuleFault> {
        let name = self.action.as_str();
        let needs = self.action.needs(mode);
        let verb = |is_there: bool| if is_there { "must not have" } else { "needs" };
        let has = (
            self.has_payload() || has_text,
            self.item_id.is_some(),
            self.entity_rev.is_some(),
        );
        if (self.payload.is_some() || has_text) && self.payload_ref.is_some() {
            return Err(RuleFault::TwoPayloads);
        }
        if self.redacted.is_some() {
            if has.0 || self.summary.is_some() {
                return Err(RuleFault::RedactedContent);
            }
        } else if !needs.payload.allows(has.0) {
            return Err(RuleFault::Payload(name, verb(has.0)));
        }
        if !needs.item_id.allows(has.1) {
            return Err(RuleFault::ItemId(name, verb(has.1)));
        }
        if !needs.entity_rev.allows(has.2) {
            return Err(RuleFault::EntityRev(name, verb(has.2)));
        }
        // Optional together: a post-image without a revision could not be ordered.
        if has.0 && !has.2 && self.action.class(mode) == ActionClass::RegistryLifecycle {
            return Err(RuleFault::EntityRev(name, "needs"));
        }
        self.check_spelling(mode)
    }

    fn check_spelling(&self, mode: Mode) -> Result<(), RuleFault> {
        if self.entity_rev == Some(0) {
            return Err(RuleFault::RevZero);
        }
        if !is_item_type(self.item_type.as_str()) {
            return Err(RuleFault::TypeSpelling);
        }
        if self
            .item_id
            .as_ref()
            .is_some_and(|id| !is_item_id(id.as_str()))
        {
            return Err(RuleFault::IdSpelling);
        }
        if self
            .payload_ref
            .as_ref()
            .is_some_and(|r| !is_sha256(r.sha256.as_str()))
        {
            return Err(RuleFault::HashSpelling);
        }
        let is_meta = self.action.class(mode) == ActionClass::JournalMeta;
        if is_meta != (self.item_type.as_str() == crate::registry::JOURNAL) {
            return Err(RuleFault::JournalType);
        }
        Ok(())
    }
}

/// Where a line went in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoded {
    pub start: usize,
    pub end: usize,
    pub crc: u32,
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
