//! What becomes of a file's bytes in a redaction: pure, and the second time changes nothing.

use crate::blobs;
use crate::checkpoint::{self, ManifestEntity, Rest};
use crate::error::JournalError;
use crate::format::checkpoint_name;
use crate::lines::{Counted, Damage, Sink, scan};
use crate::notes::{CheckpointRef, MetaPayload, Note};
use crate::record::decode;

use super::job::Job;
use super::line;
use super::needles::Matcher;

/// Lines of a segment, each with whether it is a record at all.
#[derive(Default)]
struct Places(Vec<(u64, u64)>);

impl<'a> Sink<'a> for Places {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        self.0
            .extend(batch.iter().map(|c| (c.place.start, c.place.end)));
    }

    fn damage(&mut self, damage: Damage) {
        self.0.push((damage.place.start, damage.place.end));
    }
}

/// Places of all lines, those that do not count included.
pub(crate) fn lines(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut places = Places::default();
    scan(bytes, 0, &mut places);
    let at = |byte: u64| usize::try_from(byte).unwrap_or(0);
    let mut all: Vec<_> = places.0.iter().map(|(s, e)| at(*s)..at(*e)).collect();
    all.sort_by_key(|range| range.start);
    all
}

/// A segment of the same length, erased; None where nothing of the job is in it any more.
pub(crate) fn segment(
    bytes: &[u8],
    job: &Job,
    matcher: &Matcher,
) -> Result<Option<Vec<u8>>, JournalError> {
    let mut after = bytes.to_vec();
    for place in lines(bytes) {
        let old = &bytes[place.clone()];
        if let Some(new) = segment_line(old, job, matcher)? {
            after[place].copy_from_slice(&new);
        }
    }
    Ok((after != bytes).then_some(after))
}

fn segment_line(old: &[u8], job: &Job, matcher: &Matcher) -> Result<Option<Vec<u8>>, JournalError> {
    let Ok((record, _)) = decode(old) else {
        // What never counted is evidence, but not of what must be forgotten.
        let is_hit = matcher.is_in(old) || names_item(old, job);
        return Ok(is_hit.then(|| vec![b' '; old.len()]));
    };
    if job.unnames(&record) {
        let is_left = record.request.is_some();
        return is_left.then(|| line::unnamed(old)).transpose();
    }
    if record.redacted.is_some() {
        return Ok(None);
    }
    if is_job_record(&record, job) {
        if !line::has_content(&record) {
            return Ok(None);
        }
        let after = match job.find(&record) {
            Some(erased) => line::erased_with(old, erased.drops_id),
            None => {
                let request = record.request.as_ref();
                let is_told = request.is_some_and(|r| matcher.is_in(r.id.as_str().as_bytes()));
                line::erased_with(old, is_told || line::tells_content(&record, None)?)
            }
        };
        return after.map(Some);
    }
    let payload = record.payload.map(serde_json::value::RawValue::get);
    if let Some(MetaPayload::CheckpointRef(reference)) =
        payload.and_then(|text| MetaPayload::parse(record.action, text))
        && let Some(new) = job.checkpoints.get(&reference.sha256)
    {
        return line::referring(old, new).map(Some);
    }
    // A hash of what is erased would let a guess be proven, also where it had changed nothing.
    let request = record.request.as_ref();
    if request.is_some_and(|request| request.sha256.is_some())
        && let Some(MetaPayload::Note(Note::Unchanged { item_type, item_id })) =
            payload.and_then(|text| MetaPayload::parse(record.action, text))
        && job.item == Some((item_type, item_id))
    {
        return line::unhashed(old).map(Some);
    }
    Ok(None)
}

/// Also lines of the item that never counted: their batch was not complete.
fn is_job_record(record: &crate::record::Record<'_>, job: &Job) -> bool {
    let is_item = job.item.as_ref().is_some_and(|(t, id)| {
        record.item_type.as_str() == t && record.item_id.as_ref().is_some_and(|i| i.as_str() == id)
    });
    is_item || job.names(record)
}

/// A damaged line that still says whose it is.
pub(crate) fn names_item(line: &[u8], job: &Job) -> bool {
    let Some((_, id)) = &job.item else {
        return false;
    };
    let quoted = format!("\"{id}\"");
    memchr::memmem::find(line, quoted.as_bytes()).is_some()
}

/// Whether a checkpoint goes that is not sound: nobody builds on it, and it cannot be written anew.
pub(crate) fn is_doomed(bytes: &[u8], job: &Job, matcher: &Matcher) -> bool {
    matcher.is_in(bytes) || names_item(bytes, job)
}

/// A checkpoint without the job's content, and its reference; None where it holds none.
pub(crate) fn manifest(
    bytes: &[u8],
    job: &Job,
) -> Result<Option<(Vec<u8>, CheckpointRef)>, String> {
    let manifest = checkpoint::parse(bytes)?;
    let mut live = Vec::new();
    let mut dead = Vec::new();
    let mut named = Vec::new();
    let mut is_hit = false;
    let told = |e: serde_json::Error| e.to_string();
    for entity in &manifest.entities {
        let (t, id) = (entity.item_type.as_str(), entity.item_id.as_str());
        if let Some(crc) = job.crc_after(t, id, entity.seq, entity.crc) {
            is_hit = true;
            let gone = tombstone(entity, crc);
            dead.push(((t, id), serde_json::to_string(&gone).map_err(told)?));
        } else {
            named.extend(
                entity
                    .payload_ref
                    .iter()
                    .map(|r| r.sha256.as_str().to_owned()),
            );
            live.push(serde_json::to_string(entity).map_err(told)?);
        }
    }
    for entity in &manifest.tombstones {
        let key = (entity.item_type.as_str(), entity.item_id.as_str());
        let line = match job.crc_unnamed(entity.seq, entity.crc) {
            Some(crc) => {
                is_hit = true;
                serde_json::to_string(&tombstone(entity, crc))
            }
            None => serde_json::to_string(entity),
        };
        dead.push((key, line.map_err(told)?));
    }
    if !is_hit {
        return Ok(None);
    }
    dead.sort_by_key(|(key, _)| *key);
    named.sort_unstable();
    named.dedup();
    let dead: Vec<String> = dead.into_iter().map(|(_, line)| line).collect();
    let rest = Rest {
        blobs: &named,
        federated: &manifest.federated,
        origin: manifest.origin.as_ref(),
        without: &manifest.without,
    };
    let after =
        checkpoint::sealed(manifest.head_seq, &live, &dead, &rest).map_err(|e| e.to_string())?;
    let reference = CheckpointRef {
        file: checkpoint_name(manifest.head_seq),
        sha256: blobs::sha256_hex(&after),
        head_seq: manifest.head_seq,
        entities: live.len() as u64,
        bytes: after.len() as u64,
        blobs: named,
    };
    Ok(Some((after, reference)))
}

fn tombstone<'a>(entity: &ManifestEntity<'a>, crc: u32) -> ManifestEntity<'a> {
    ManifestEntity {
        item_type: entity.item_type.clone(),
        item_id: entity.item_id.clone(),
        entity_rev: entity.entity_rev,
        seq: entity.seq,
        crc,
        payload: None,
        payload_ref: None,
        origin: entity.origin.clone(),
    }
}

/// A parked log of another store: its lines are of no known shape, so a hit takes the whole line.
pub(crate) fn parked_log(bytes: &[u8], job: &Job, matcher: &Matcher) -> Option<Vec<u8>> {
    let mut after = Vec::with_capacity(bytes.len());
    let mut is_hit = false;
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        if matcher.is_in(line) || names_item(line, job) {
            is_hit = true;
            after.extend_from_slice(b"{\"redacted\":1}\n");
        } else {
            after.extend_from_slice(line);
        }
    }
    is_hit.then_some(after)
}
