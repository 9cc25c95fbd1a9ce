//! A slice: some records of one origin, as lines of JSON under a header and a seal. Everything in one that comes
//! from elsewhere is hostile until it was read here.

use std::collections::BTreeSet;

use heddle_core::canonical::parse_ijson;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::action::{Action, ActionClass, Mode};
use crate::blobs::sha256_hex;
use crate::format::{BLOB_BYTES_MAX, SUMMARY_BYTES_MAX, WHO_BYTES_MAX, is_item_id, is_item_type};
use crate::notes::RedactedId;

use super::provenance::{LINEAGE_MAX, Lineage, is_origin_id};

pub(super) const SLICE_VERSION: u8 = 1;
/// A whole slice; larger ones are exported in pieces.
pub const SLICE_BYTES_MAX: usize = 256 << 20;
const SLICE_LINE_BYTES_MAX: usize = BLOB_BYTES_MAX + (1 << 20);
const RECORDS_MAX: usize = 100_000;
/// No honest counter comes near it, and nothing that is added to it overflows.
const NUMBER_MAX: u64 = 1 << 48;
/// `{"sha256":"` + 64 + `"}` + newline.
const SEAL_OPEN: &str = "{\"sha256\":\"";
const SEAL_BYTES: usize = SEAL_OPEN.len() + 64 + 3;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    pub heddle_slice: u8,
    pub origin_id: String,
    pub origin_epoch: u64,
    /// Every record of the origin in here is in the slice, or was left out on purpose.
    pub seq_range: [u64; 2],
    pub records: u64,
    /// What the origin erased, ever: peers erase it too (C15).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redacted: Vec<RedactedId>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SliceRecord {
    pub seq: u64,
    pub writer: String,
    pub agent: String,
    pub action: Action,
    pub item_type: String,
    pub item_id: String,
    pub entity_rev: u64,
    /// The revision that the write was based on; exporters of old do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_rev: Option<u64>,
    #[serde(default, skip_serializing_if = "Lineage::is_empty")]
    pub lineage: Lineage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The whole document, whatever its size; None is a tombstone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Slice {
    pub(super) header: Header,
    pub(super) records: Vec<SliceRecord>,
    /// Of the bytes.
    pub(super) sha256: String,
}

/// The bytes of a slice.
pub(super) fn encode(header: &Header, records: &[SliceRecord]) -> Result<Vec<u8>, String> {
    let told = |error: serde_json::Error| error.to_string();
    let mut bytes = serde_json::to_vec(header).map_err(told)?;
    bytes.push(b'\n');
    for record in records {
        serde_json::to_writer(&mut bytes, record).map_err(told)?;
        bytes.push(b'\n');
    }
    let seal = json!({ "sha256": sha256_hex(&bytes) });
    bytes.extend_from_slice(seal.to_string().as_bytes());
    bytes.push(b'\n');
    Ok(bytes)
}

/// Reads and checks all of it; a sentence says what is wrong.
pub(super) fn decode(bytes: &[u8]) -> Result<Slice, String> {
    if bytes.len() > SLICE_BYTES_MAX {
        return Err(format!("it has more than {SLICE_BYTES_MAX} bytes"));
    }
    let at = bytes.len().checked_sub(SEAL_BYTES).ok_or("it is cut off")?;
    let (body, seal) = bytes.split_at(at);
    let digits = seal
        .strip_prefix(SEAL_OPEN.as_bytes())
        .and_then(|rest| rest.strip_suffix(b"\"}\n"))
        .ok_or("it is cut off: its seal is missing")?;
    if digits != sha256_hex(body).as_bytes() {
        return Err("its seal does not match its bytes".to_owned());
    }
    let mut lines = body.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    let header: Header =
        line(lines.next().ok_or("it is empty")?).map_err(|e| format!("its header: {e}"))?;
    check_header(&header)?;
    let mut records = Vec::new();
    let mut seqs = BTreeSet::new();
    for (index, text) in lines.enumerate() {
        if records.len() >= RECORDS_MAX {
            return Err(format!("it has more than {RECORDS_MAX} records"));
        }
        let told = |reason: String| format!("record {}: {reason}", index + 1);
        let record: SliceRecord = line(text).map_err(told)?;
        check_record(&record, &header).map_err(told)?;
        if !seqs.insert(record.seq) {
            return Err(told("its seq comes twice".to_owned()));
        }
        records.push(record);
    }
    if records.len() as u64 != header.records {
        return Err("records are missing".to_owned());
    }
    records.sort_by_key(|record| record.seq);
    Ok(Slice {
        header,
        records,
        sha256: sha256_hex(bytes),
    })
}

fn line<T: serde::de::DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    if text.len() > SLICE_LINE_BYTES_MAX {
        return Err("the line is too long".to_owned());
    }
    let value = parse_ijson(text).map_err(|error| error.to_string())?;
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn check_header(header: &Header) -> Result<(), String> {
    if header.heddle_slice != SLICE_VERSION {
        return Err(format!(
            "slices of version {} are unknown",
            header.heddle_slice
        ));
    }
    if !is_origin_id(&header.origin_id) {
        return Err("its origin is none".to_owned());
    }
    let [first, last] = header.seq_range;
    let is_number = |n: u64| n < NUMBER_MAX;
    if !is_number(header.origin_epoch) || header.origin_epoch == 0 || !is_number(last) {
        return Err("its epoch or range cannot be".to_owned());
    }
    if first == 0 || first > last + 1 {
        return Err("its range cannot be".to_owned());
    }
    let is_id = |id: &RedactedId| is_number(id.seq) && id.writer.len() <= WHO_BYTES_MAX;
    if header.redacted.len() > RECORDS_MAX || !header.redacted.iter().all(is_id) {
        return Err("its list of erased records cannot be".to_owned());
    }
    Ok(())
}

fn check_record(record: &SliceRecord, header: &Header) -> Result<(), String> {
    let [first, last] = header.seq_range;
    if !(first..=last).contains(&record.seq) {
        return Err("its seq is outside of the slice".to_owned());
    }
    if !is_item_type(&record.item_type) || !is_item_id(&record.item_id) {
        return Err("its type or id cannot be a file name".to_owned());
    }
    if record.entity_rev == 0 || record.entity_rev >= NUMBER_MAX {
        return Err(format!("revision {} cannot be", record.entity_rev));
    }
    if record
        .base_rev
        .is_some_and(|base| base >= record.entity_rev)
    {
        return Err("it is based on a revision that is not before it".to_owned());
    }
    if record.writer.len() > WHO_BYTES_MAX || record.agent.len() > WHO_BYTES_MAX {
        return Err("its writer or agent is too long".to_owned());
    }
    if record
        .summary
        .as_ref()
        .is_some_and(|s| s.len() > SUMMARY_BYTES_MAX)
    {
        return Err("its summary is too long".to_owned());
    }
    let is_known = |(id, at): (&String, &(u64, u64))| {
        is_origin_id(id) && at.0 < NUMBER_MAX && at.1 < NUMBER_MAX
    };
    if record.lineage.len() > LINEAGE_MAX || !record.lineage.iter().all(is_known) {
        return Err("its lineage cannot be".to_owned());
    }
    let is_sound = match record.action.class(Mode::RegistryPrimary) {
        ActionClass::Tombstone => record.payload.is_none(),
        ActionClass::EntityState | ActionClass::RegistryLifecycle => record.payload.is_some(),
        ActionClass::JournalMeta | ActionClass::Observability => false,
    };
    if !is_sound {
        return Err(format!(
            "{} does not travel like this",
            record.action.as_str()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            heddle_slice: SLICE_VERSION,
            origin_id: "org_0123456789abcdef".into(),
            origin_epoch: 1,
            seq_range: [1, 9],
            records: 1,
            redacted: Vec::new(),
        }
    }

    fn record() -> SliceRecord {
        SliceRecord {
            seq: 3,
            writer: "w_a".into(),
            agent: "a".into(),
            action: Action::Update,
            item_type: "plan".into(),
            item_id: "x".into(),
            entity_rev: 2,
            base_rev: Some(1),
            lineage: Lineage::new(),
            summary: None,
            payload: Some(json!({"title": "t"})),
        }
    }

    #[test]
    fn a_slice_comes_back_as_it_went_and_every_cut_and_flip_of_it_is_refused() {
        let bytes = encode(&header(), &[record()]).unwrap();
        let slice = decode(&bytes).unwrap();
        assert_eq!((slice.header, slice.records), (header(), vec![record()]));
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(decode(&flipped).is_err(), "flip at {at}");
        }
    }

    #[test]
    fn t_66_a_crafted_slice_with_a_sound_seal_is_refused_for_what_it_says() {
        type Craft = fn(&mut Header, &mut SliceRecord);
        let crafts: [(&str, Craft); 18] = [
            ("version", |h, _| h.heddle_slice = 9),
            ("origin", |h, _| h.origin_id = "../../etc".into()),
            ("epoch", |h, _| h.origin_epoch = 0),
            ("epoch far", |h, _| h.origin_epoch = u64::MAX),
            ("range", |h, _| h.seq_range = [5, 2]),
            ("range far", |h, _| h.seq_range = [1, u64::MAX]),
            ("missing", |h, _| h.records = 2),
            ("outside", |_, r| r.seq = 10),
            ("huge revision", |_, r| r.entity_rev = u64::MAX),
            ("zero revision", |_, r| {
                r.entity_rev = 0;
                r.base_rev = None;
            }),
            ("based on later", |_, r| r.base_rev = Some(2)),
            ("path as id", |_, r| r.item_id = "../../x".into()),
            ("path as type", |_, r| r.item_type = "../x".into()),
            ("long writer", |_, r| r.writer = "w".repeat(300)),
            ("long summary", |_, r| r.summary = Some("s".repeat(5000))),
            ("our own action", |_, r| r.action = Action::JournalNote),
            ("tombstone with payload", |_, r| r.action = Action::Delete),
            ("lineage", |_, r| {
                r.lineage.insert("nobody".into(), (1, 1));
            }),
        ];
        for (name, craft) in crafts {
            let (mut header, mut record) = (header(), record());
            craft(&mut header, &mut record);
            let bytes = encode(&header, &[record]).unwrap();
            assert!(decode(&bytes).is_err(), "{name}");
        }
        // Duplicate keys, depth and lines of another shape.
        for line in [
            r#"{"seq":3,"seq":4}"#.to_owned(),
            format!("{}1{}", "[".repeat(5000), "]".repeat(5000)),
            r#"{"blob":"../../../etc/passwd"}"#.to_owned(),
        ] {
            let mut bytes = serde_json::to_vec(&header()).unwrap();
            bytes.extend(format!("\n{line}\n").bytes());
            let seal = json!({ "sha256": sha256_hex(&bytes) });
            bytes.extend(format!("{seal}\n").bytes());
            assert!(decode(&bytes).is_err(), "{line:.40}");
        }
    }
}
