//! Checkpoints: the whole state in one file, for speed, never for correctness.
//!
//! One entity a line, so that git shows what changed. The last field is the SHA-256 of everything
//! before it; the `checkpoint_ref` in the journal carries that of the whole file.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::disk::Disk;
use crate::error::{At, JournalError};
use crate::federation::{Federated, Origin, Provenance, Source};
use crate::format::{ENVELOPE_VERSION, SEQ_MAX, checkpoint_name, checkpoint_seq, is_sha256};
use crate::journal::Journal;
use crate::layout::Layout;
use crate::lines::{Counted, Damage, Sink, scan};
use crate::notes::{CheckpointRef, MetaPayload};
use crate::record::{PayloadRef, Text};
use crate::reduce::Head;
use crate::replay::{Body, Entity, Replay, Unknown};
use crate::segments;
use crate::{ahead, blobs};

pub(crate) const MANIFEST_BYTES_MAX: u64 = 4 << 30;
const HASH_BESIDE_BYTES: usize = 1 << 20;
const SEAL: &str = ",\"sha256\":\"";
/// The seal, 64 digits, `"}` and a newline.
const SEAL_BYTES: usize = SEAL.len() + 64 + 3;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ManifestEntity<'a> {
    #[serde(borrow)]
    pub(crate) item_type: Text<'a>,
    #[serde(borrow)]
    pub(crate) item_id: Text<'a>,
    pub(crate) entity_rev: u64,
    pub(crate) seq: u64,
    pub(crate) crc: u32,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) payload_ref: Option<PayloadRef<'a>>,
    /// Of another origin, or built on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<Provenance>,
}

/// Tombstones are in it: the revision of what was deleted goes on counting (C24).
#[derive(Debug, Deserialize)]
pub(crate) struct Manifest<'a> {
    v: u8,
    pub(crate) head_seq: u64,
    #[serde(borrow)]
    pub(crate) entities: Vec<ManifestEntity<'a>>,
    #[serde(borrow)]
    pub(crate) tombstones: Vec<ManifestEntity<'a>>,
    pub(crate) blobs: Vec<String>,
    /// What the slices of other origins brought.
    #[serde(default)]
    pub(crate) federated: Federated,
    /// The store that wrote it: in a clone its records are another origin's.
    #[serde(default)]
    pub(crate) origin: Option<Origin>,
    /// First and last seq, each, of accepted losses that it was written without. Whoever begins with it looks whether they
    /// are here again.
    #[serde(default)]
    pub(crate) without: Vec<[u64; 2]>,
}

/// What a manifest holds beside its entities.
pub(crate) struct Rest<'r> {
    pub(crate) blobs: &'r [String],
    pub(crate) federated: &'r Federated,
    pub(crate) origin: Option<&'r Origin>,
    pub(crate) without: &'r [[u64; 2]],
}

/// Head seqs of the checkpoints that there are, rising; whether they are sound is another question.
pub fn listed(disk: &dyn Disk, layout: &Layout) -> Result<Vec<u64>, JournalError> {
    let folder = layout.checkpoints();
    let entries = disk.list(&folder).at(&folder)?;
    let files = entries.iter().filter(|entry| !entry.is_dir);
    let mut seqs: Vec<u64> = files.filter_map(|e| checkpoint_seq(&e.name)).collect();
    seqs.retain(|seq| *seq <= SEQ_MAX);
    seqs.sort_unstable();
    Ok(seqs)
}

/// A rebuild, and what it began with.
#[derive(Debug)]
pub struct Rebuilt {
    pub replay: Replay<Unknown>,
    /// The checkpoint that it began with; None: the first record.
    pub from: Option<u64>,
}

/// Whether a checkpoint can be built on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    Verified,
    /// No reference in the journal: its writer died. Harmless, and not used.
    Orphan,
    Rejected(String),
}

pub(crate) fn parse(bytes: &[u8]) -> Result<Manifest<'_>, String> {
    parse_hashed(bytes).map(|(manifest, _)| manifest)
}

/// With the SHA-256 of the whole file, which costs no second pass.
fn parse_hashed(bytes: &[u8]) -> Result<(Manifest<'_>, String), String> {
    let at = bytes.len().checked_sub(SEAL_BYTES).ok_or("too short")?;
    let (body, seal) = bytes.split_at(at);
    let digits = seal
        .strip_prefix(SEAL.as_bytes())
        .and_then(|rest| rest.strip_suffix(b"\"}\n"))
        .ok_or("its seal is missing")?;
    let read = || -> Result<Manifest<'_>, String> {
        let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
        serde_json::from_str(text).map_err(|e| e.to_string())
    };
    let hash = || blobs::sha256_hex_two(body, seal);
    // Each passes over all of it: a large one at the same time.
    let ([of_body, whole], manifest) = if bytes.len() < HASH_BESIDE_BYTES {
        (hash(), read())
    } else {
        std::thread::scope(|scope| {
            let hashed = scope.spawn(hash);
            let manifest = read();
            let hashed = hashed.join().map_err(|_| "its hash was not reckoned");
            hashed.map(|hashed| (hashed, manifest))
        })?
    };
    if digits != of_body.as_bytes() {
        return Err("its seal does not match".to_owned());
    }
    let manifest = manifest?;
    if manifest.v != ENVELOPE_VERSION {
        return Err(format!("version {} is unknown", manifest.v));
    }
    let head = manifest.head_seq;
    let is_odd = |[first, last]: &[u64; 2]| first > last || *last > head;
    let mut all = manifest.entities.iter().chain(&manifest.tombstones);
    if head > SEQ_MAX || all.any(|entity| entity.seq > head) || manifest.without.iter().any(is_odd)
    {
        return Err("it names records that come behind it".to_owned());
    }
    Ok((manifest, whole))
}

/// The bytes of a manifest, one entity a line.
pub(crate) fn sealed(
    head_seq: u64,
    live: &[String],
    dead: &[String],
    rest: &Rest<'_>,
) -> Result<Vec<u8>, JournalError> {
    let mut listed = serde_json::to_string(rest.blobs).map_err(JournalError::refused)?;
    if !rest.federated.is_empty() {
        let taken = serde_json::to_string(rest.federated).map_err(JournalError::refused)?;
        listed.push_str(&format!(",\"federated\":{taken}"));
    }
    if let Some(origin) = rest.origin {
        let origin = serde_json::to_string(origin).map_err(JournalError::refused)?;
        listed.push_str(&format!(",\"origin\":{origin}"));
    }
    if !rest.without.is_empty() {
        let without = serde_json::to_string(rest.without).map_err(JournalError::refused)?;
        listed.push_str(&format!(",\"without\":{without}"));
    }
    let mut text = format!(
        "{{\"v\":{ENVELOPE_VERSION},\"head_seq\":{head_seq},\"entities\":[\n{}\n],\"tombstones\":[\n{}\n],\"blobs\":{listed}",
        live.join(",\n"),
        dead.join(",\n"),
    );
    let seal = blobs::sha256_hex(text.as_bytes());
    text.push_str(&format!("{SEAL}{seal}\"}}\n"));
    Ok(text.into_bytes())
}

impl Journal {
    /// Reads a checkpoint whole and checks it: seal, content, reference in the journal, blobs.
    pub fn trust(&self, head_seq: u64) -> Result<Trust, JournalError> {
        self.trusted(head_seq, |_| ())
    }

    /// The same, and what is to be done with one that is sound.
    fn trusted(
        &self,
        head_seq: u64,
        take: impl FnOnce(&Manifest<'_>),
    ) -> Result<Trust, JournalError> {
        let bytes = match self.manifest_bytes(head_seq) {
            Ok(bytes) => bytes,
            Err(error) => return Ok(Trust::Rejected(error.to_string())),
        };
        let (manifest, sha256) = match parse_hashed(&bytes) {
            Ok(parsed) => parsed,
            Err(reason) => return Ok(Trust::Rejected(reason)),
        };
        if manifest.head_seq != head_seq {
            return Ok(Trust::Rejected("its name says another seq".to_owned()));
        }
        let reference = self.reference(head_seq)?;
        for blob in &manifest.blobs {
            // Git brings no blobs: in a clone a missing one concerns its entity only (JN-25).
            let is_excused = matches!(reference, Reference::NoSegment)
                && is_sha256(blob)
                && matches!(self.disk().len(&self.layout.blob(blob)), Ok(None));
            if !is_excused && let Err(reason) = blobs::get(self.disk(), &self.layout, blob) {
                return Ok(Trust::Rejected(reason));
            }
        }
        match reference {
            Reference::Found(reference) if reference.sha256 == sha256 => {}
            // Between the two halves of a redaction that did not end: its job knows both.
            Reference::Found(reference) if self.is_scrubbed(&reference.sha256, &sha256) => {}
            Reference::Found(_) => {
                return Ok(Trust::Rejected("the journal knows another file".to_owned()));
            }
            // A clone brings no segments: the seal must do.
            Reference::NoSegment => {}
            Reference::Missing => return Ok(Trust::Orphan),
        }
        take(&manifest);
        Ok(Trust::Verified)
    }

    /// Whether a clone would have anything to begin with.
    pub fn has_checkpoint(&self) -> Result<bool, JournalError> {
        Ok(!listed(self.disk(), &self.layout)?.is_empty())
    }

    /// The blobs that a checkpoint names; None where it cannot be read.
    pub(crate) fn blobs_of(&self, head_seq: u64) -> Option<Vec<String>> {
        let bytes = self.manifest_bytes(head_seq).ok()?;
        parse(&bytes).ok().map(|manifest| manifest.blobs)
    }

    /// The store that wrote a checkpoint; None where it is not sealed or does not say.
    pub(crate) fn checkpoint_origin(&self, head_seq: u64) -> Result<Option<Origin>, JournalError> {
        let bytes = self.manifest_bytes(head_seq)?;
        Ok(parse(&bytes).ok().and_then(|manifest| manifest.origin))
    }

    /// Of the blobs that a checkpoint names, those that are gone or hold other bytes.
    pub fn missing_blobs(&self, reference: &CheckpointRef) -> Vec<String> {
        let all = reference.blobs.iter();
        all.filter(|blob| blobs::get(self.disk(), &self.layout, blob).is_err())
            .cloned()
            .collect()
    }

    /// The reference follows its checkpoint at once, so it has the next seq.
    pub(crate) fn reference(&self, head_seq: u64) -> Result<Reference, JournalError> {
        let segments = self.all_segments()?;
        let index = segments::holding(&segments, head_seq + 1);
        let Some(first) = segments.get(index).filter(|first| **first <= head_seq + 1) else {
            return Ok(Reference::NoSegment);
        };
        let bytes = segments::read(self.disk(), &self.layout, *first)?;
        let mut finder = Finder {
            head_seq,
            found: None,
        };
        scan(&bytes, 0, &mut finder);
        Ok(match finder.found {
            Some(reference) => Reference::Found(reference),
            // The journal begins right behind the checkpoint: it came with a clone, its reference did not.
            None if index == 0 && *first == head_seq + 1 => Reference::NoSegment,
            None => Reference::Missing,
        })
    }

    /// Live and archived, rising.
    pub(crate) fn all_segments(&self) -> Result<Vec<u64>, JournalError> {
        // IMPORTANT: in this order. What the collector moves meanwhile is met twice, and never called lost.
        let mut all = segments::live(self.disk(), &self.layout)?;
        all.extend(segments::archived(self.disk(), &self.layout)?);
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// The state, from the newest sound checkpoint but `skip` of them, or from the first record: `usize::MAX` is that.
    pub fn rebuild(&self, skip: usize) -> Result<Rebuilt, JournalError> {
        // IMPORTANT: the witnesses of a loss before the segments, or a writer meanwhile would look like one.
        let seen = self.seen()?;
        let checkpoints = self.checkpoints_here()?;
        let mut replay = Replay::new(Unknown, self.registry.clone(), self.mode);
        let mut from = None;
        let mut rejected = 0;
        let mut to_skip = skip;
        // From the first record on no checkpoint matters.
        let candidates = checkpoints.iter().rev().filter(|_| skip != usize::MAX);
        for head_seq in candidates.copied() {
            let is_wanted = to_skip == 0;
            let trust = self.trusted(head_seq, |manifest| {
                if is_wanted {
                    // One that cannot be read costs a candidate too many, never a rebuild.
                    let own = self.origin().ok().flatten();
                    load(manifest, own.as_ref(), &mut replay);
                }
            });
            match trust? {
                Trust::Verified if is_wanted => {
                    from = Some(head_seq);
                    break;
                }
                Trust::Verified => to_skip -= 1,
                Trust::Orphan => {}
                Trust::Rejected(_) => rejected += 1,
            }
        }
        if from.is_none() {
            replay.begin_at_first();
        }
        let segments = self.all_segments()?;
        let begin = segments::holding(&segments, from.map_or(1, |head| head + 1));
        // Before the oldest segment there was something, and no checkpoint holds it.
        let wanted = from.map_or(1, |head| head + 1);
        if let Some(first) = segments.first().filter(|first| **first > wanted) {
            if skip == usize::MAX && self.lost_beginning()?.is_none() {
                // Another store's: this one has no records before it, and a look at all of them misses none.
                replay.begin_behind(first - 1);
            } else {
                replay.gaps.find(wanted, first - 1);
            }
        }
        let (before, behind) = segments.split_at(begin.min(segments.len()));
        // What a checkpoint was written without, and somebody has put back since.
        let back = self.segments_with(&segments, replay.without());
        if !back.is_empty() {
            // IMPORTANT: the notes about them may be covered. What was erased does not come back this way (RD-06).
            replay.erase_as_noted(self.erased()?);
        }
        let back: Vec<u64> = back.into_iter().filter(|s| before.contains(s)).collect();
        ahead::replay_all(self, &back, &mut replay)?;
        ahead::replay_all(self, behind, &mut replay)?;
        let last = self.witnessed(seen, &checkpoints, replay.head_seq)?;
        let is_unclear =
            |(_, damage): &(u64, Damage)| damage.is_newer() && damage.newer_seq().is_none();
        if last > replay.head_seq && !replay.damage.iter().any(is_unclear) {
            replay.miss(replay.head_seq + 1, last);
        }
        let active = segments::live(self.disk(), &self.layout)?.last().copied();
        let torn = match active {
            Some(first) => segments::tail(self.disk(), &self.layout, first, None)?.torn,
            None => None,
        };
        replay.finish(active.zip(torn).map(|(first, torn)| (first, torn.start)));
        replay.counters.checkpoints_rejected = rejected;
        Ok(Rebuilt { replay, from })
    }
}

pub(crate) enum Reference {
    Found(CheckpointRef),
    Missing,
    NoSegment,
}

struct Finder {
    head_seq: u64,
    found: Option<CheckpointRef>,
}

impl<'a> Sink<'a> for Finder {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        for record in batch.iter().map(|counted| &counted.record) {
            let payload = record.payload.map(RawValue::get);
            if let Some(MetaPayload::CheckpointRef(reference)) =
                payload.and_then(|text| MetaPayload::parse(record.action, text))
                && reference.head_seq == self.head_seq
                && reference.file == checkpoint_name(self.head_seq)
            {
                self.found = Some(reference);
            }
        }
    }

    fn damage(&mut self, _: Damage) {}
}

fn load(manifest: &Manifest<'_>, own: Option<&Origin>, replay: &mut Replay<Unknown>) {
    // What a clone brought along is its first store's, not ours.
    let foreign = manifest
        .origin
        .as_ref()
        .filter(|writer| own.is_none_or(|own| own.origin_id != writer.origin_id));
    replay.begin_at(manifest.head_seq, &manifest.without);
    replay.federated = manifest.federated.clone();
    let live = manifest.entities.iter().map(|line| (line, false));
    for (line, is_deleted) in live.chain(manifest.tombstones.iter().map(|line| (line, true))) {
        let body = match (is_deleted, line.payload, &line.payload_ref) {
            (false, Some(payload), _) => Body::Inline(payload.get().into()),
            (false, None, Some(blob)) => Body::Blob {
                sha256: blob.sha256.as_str().into(),
                bytes: blob.bytes,
            },
            _ => Body::Gone,
        };
        let head = Head {
            rev: line.entity_rev,
            seq: line.seq,
            crc: line.crc,
            is_deleted,
        };
        let entity = Entity {
            head,
            body,
            provenance: provenance(line, foreign).map(Box::new),
        };
        replay.insert(line.item_type.as_str(), line.item_id.as_str(), entity);
    }
}

fn provenance(line: &ManifestEntity<'_>, foreign: Option<&Origin>) -> Option<Provenance> {
    let own = line.origin.clone();
    let is_foreign = own.as_ref().is_some_and(|own| own.from.is_some());
    match foreign {
        Some(writer) if !is_foreign => Some(Provenance {
            from: Some(Source {
                origin_id: writer.origin_id.clone(),
                origin_epoch: writer.origin_epoch,
                seq: line.seq,
            }),
            lineage: own.map(|own| own.lineage).unwrap_or_default(),
        }),
        _ => own,
    }
}
