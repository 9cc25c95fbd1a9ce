//! Replay: batches in file order through [`reduce`], with every oddity counted.
//!
//! The same struct serves the rebuild of everything, the gap after a crash, the batch that was just
//! written and a reader's look at the tail; they differ only in what they know beforehand.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::action::{ActionClass, Mode};
pub use crate::counters::Counters;
use crate::federation::{Applied, Federated, Provenance, applied_in, provenance_of};
use crate::gaps::{Gaps, missing_of};
use crate::lines::{Counted, Damage, Sink, scan};
use crate::notes::{CheckpointRef, MetaPayload, Note};
use crate::record::Record;
use crate::reduce::{Effect, Head, Oddity, reduce};
use crate::registry::Registry;
use crate::seen::{Again, Seen};

/// The post-image of an entity, as it stands in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    Inline(Box<str>),
    Blob { sha256: Box<str>, bytes: u64 },
    Gone,
}

impl Body {
    /// What a record puts; None where it has no content.
    pub fn of(record: &Record<'_>) -> Option<Self> {
        match (record.payload, &record.payload_ref) {
            (Some(payload), _) => Some(Self::Inline(payload.get().into())),
            (None, Some(blob)) => Some(Self::Blob {
                sha256: blob.sha256.as_str().into(),
                bytes: blob.bytes,
            }),
            (None, None) => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entity {
    pub head: Head,
    pub body: Body,
    /// Where it came from, or what it was built on; None: all of it is this store's own.
    pub provenance: Option<Box<Provenance>>,
}

/// What is known of entities that this replay has not seen: the revision index, or nothing.
pub trait Known {
    fn head(&self, item_type: &str, item_id: &str) -> Option<Head>;
}

/// Nothing is known: a rebuild.
#[derive(Debug, Clone, Copy)]
pub struct Unknown;

impl Known for Unknown {
    fn head(&self, _: &str, _: &str) -> Option<Head> {
        None
    }
}

type Family = HashMap<Box<str>, Entity>;

#[derive(Debug)]
pub struct Replay<K> {
    known: K,
    registry: Arc<Registry>,
    mode: Mode,
    /// Records up to here are in the checkpoint that this began with.
    covered: u64,
    /// But not these, first and last each: they were lost when it was written.
    without: Vec<[u64; 2]>,
    /// It begins with the first record of all: one that is missing before it is a gap too.
    is_from_first: bool,
    families: HashMap<Box<str>, Family>,
    pub counters: Counters,
    pub flagged: BTreeSet<(String, String)>,
    pub refs: BTreeMap<u64, CheckpointRef>,
    /// Damaged places that no note explains, by segment.
    pub damage: Vec<(u64, Damage)>,
    pub head_seq: u64,
    pub gaps: Gaps,
    seen: Seen,
    /// Of records of a newer build: they are here, and no gap.
    newer: BTreeSet<u64>,
    segment: u64,
    /// Of records whose content was erased: no other content of theirs counts.
    redacted: BTreeSet<(u64, String)>,
    /// Those of them that a note names.
    noted: BTreeSet<(u64, String)>,
    /// Their seqs, where the content is there again.
    pub back: BTreeSet<u64>,
    /// What the slices of other origins brought.
    pub federated: Federated,
    /// The slice that the batch at hand takes in.
    applied: Option<Applied>,
}

impl<K: Known> Replay<K> {
    pub fn new(known: K, registry: Arc<Registry>, mode: Mode) -> Self {
        Self {
            known,
            registry,
            mode,
            covered: 0,
            without: Vec::new(),
            is_from_first: false,
            families: HashMap::new(),
            counters: Counters::default(),
            flagged: BTreeSet::new(),
            refs: BTreeMap::new(),
            damage: Vec::new(),
            head_seq: 0,
            gaps: Gaps::default(),
            seen: Seen::default(),
            newer: BTreeSet::new(),
            segment: 0,
            redacted: BTreeSet::new(),
            noted: BTreeSet::new(),
            back: BTreeSet::new(),
            federated: Federated::default(),
            applied: None,
        }
    }

    /// Begins with the content of a checkpoint, which was written without these records.
    pub fn begin_at(&mut self, head_seq: u64, without: &[[u64; 2]]) {
        self.covered = head_seq;
        self.head_seq = head_seq;
        self.without = without.to_vec();
        self.gaps.accept(without);
    }

    pub(crate) fn without(&self) -> &[[u64; 2]] {
        &self.without
    }

    /// These were erased, and the notes that say so are not replayed.
    pub(crate) fn erase_as_noted(&mut self, ids: BTreeSet<(u64, String)>) {
        self.noted.extend(ids);
    }

    /// Begins with the first record there ever was.
    pub fn begin_at_first(&mut self) {
        self.is_from_first = true;
    }

    /// Begins with the first record of this store, which is not the first of all: it is a clone.
    pub fn begin_behind(&mut self, seq: u64) {
        self.head_seq = seq;
    }

    pub fn insert(&mut self, item_type: &str, item_id: &str, entity: Entity) {
        let family = self.families.entry(item_type.into()).or_default();
        family.insert(item_id.into(), entity);
    }

    /// Where the next bytes come from and what seq may come first.
    pub fn segment(&mut self, first_seq: u64, bytes: &[u8], base: u64) {
        self.begin_segment(first_seq);
        scan(bytes, base, self);
    }

    /// What is told from now on comes from this segment.
    pub fn begin_segment(&mut self, first_seq: u64) {
        self.segment = first_seq;
    }

    pub fn get(&self, item_type: &str, item_id: &str) -> Option<&Entity> {
        self.families.get(item_type)?.get(item_id)
    }

    /// Nothing of these was met; what a newer build wrote of them is here all the same.
    pub(crate) fn miss(&mut self, first: u64, last: u64) {
        for [first, last] in missing_of(&self.newer, first, last) {
            self.gaps.find(first, last);
        }
    }

    /// All entities, in order of type and id.
    pub fn entities(&self) -> Vec<(&str, &str, &Entity)> {
        let mut all: Vec<(&str, &str, &Entity)> = self
            .families
            .iter()
            .flat_map(|(t, family)| family.iter().map(move |(id, e)| (&**t, &**id, e)))
            .collect();
        all.sort_unstable_by_key(|(t, id, _)| (*t, *id));
        all
    }

    pub(crate) fn known(&self) -> &K {
        &self.known
    }

    pub fn live_count(&self) -> u64 {
        let all = self.families.values().flat_map(HashMap::values);
        all.filter(|entity| !entity.head.is_deleted).count() as u64
    }

    /// Damage that a torn tail left is only that when nothing follows it.
    pub fn finish(&mut self, torn: Option<(u64, u64)>) {
        self.erase_noted();
        self.gaps.settle();
        self.counters.seq_gaps = self.gaps.open().len() as u64;
        self.counters.seq_gaps_accepted = self.gaps.accepted_count();
        if let Some((segment, from)) = torn {
            let before = self.damage.len();
            self.damage
                .retain(|(at, d)| *at != segment || d.place.start < from || d.is_newer());
            if self.damage.len() < before {
                self.counters.torn_tail += 1;
            }
        }
        let newer = self.damage.iter().filter(|(_, damage)| damage.is_newer());
        self.counters.newer_records = newer.count() as u64;
        self.counters.damaged_lines = self.damage.len() as u64 - self.counters.newer_records;
    }

    fn record(&mut self, counted: &Counted<'_>) {
        let record = &counted.record;
        let is_covered = record.seq <= self.covered;
        let is_put_back = |[first, last]: &[u64; 2]| (*first..=*last).contains(&record.seq);
        if is_covered && !self.without.iter().any(is_put_back) {
            return;
        }
        self.counters.records += 1;
        let is_behind = record.seq <= self.head_seq && !is_covered;
        if !self.is_fresh(record, counted.crc, is_behind) {
            return;
        }
        // A mode is strict about what is written in it, never about what was written before it.
        if record.check(self.mode).is_err() && record.check(Mode::Primary).is_err() {
            self.counters.invalid_records += 1;
            return self.flag(record);
        }
        if record.action.class(self.mode) == ActionClass::JournalMeta {
            return self.meta(record);
        }
        let Some(item_id) = record.item_id.as_ref() else {
            return;
        };
        let (item_type, item_id) = (record.item_type.as_str(), item_id.as_str());
        let class = self.registry.class(item_type);
        let held = self.get(item_type, item_id);
        let before = held.and_then(|held| held.provenance.as_ref()?.after_own());
        let current = held
            .map(|held| held.head)
            .or_else(|| self.known.head(item_type, item_id));
        if is_covered && current.is_some_and(|head| head.seq >= record.seq) {
            // Put back, and older than what the checkpoint has of it.
            return;
        }
        let verdict = reduce(current.as_ref(), record, counted.crc, class, self.mode);
        let foreign = self.foreign(record);
        // Revisions of another origin may skip or tie with ours: it was decided when they were taken in.
        let is_decided = |oddity: &Oddity| matches!(oddity, Oddity::RevGap | Oddity::RevTie);
        if let Some(oddity) = verdict.oddity
            && !(foreign.is_some() && is_decided(&oddity))
        {
            self.odd(oddity, record);
        }
        if let Some(effect) = verdict.effect {
            self.apply(effect, record, counted.crc, foreign.or(before));
        }
    }

    /// Where a record came from; None where it is this store's own.
    fn foreign(&mut self, record: &Record<'_>) -> Option<Provenance> {
        let applied = self.applied.as_ref()?;
        let head = applied.head_of(record)?;
        if record.redacted.is_some() {
            let (origin_id, epoch) = (&applied.apply.origin_id, applied.apply.origin_epoch);
            self.federated
                .of_mut(origin_id, epoch)
                .erased
                .insert(head.seq);
        }
        Some(provenance_of(&applied.apply, head))
    }

    fn apply(
        &mut self,
        effect: Effect,
        record: &Record<'_>,
        crc: u32,
        provenance: Option<Provenance>,
    ) {
        let body = match effect {
            Effect::Delete => Some(Body::Gone),
            Effect::Put => Body::of(record),
        };
        let Some(body) = body else {
            return;
        };
        let (t, id) = (record.item_type.as_str(), record.item_id.as_ref());
        let id = id.map_or("", |id| id.as_str());
        let entity = Entity {
            head: Head {
                rev: record.entity_rev.unwrap_or(0),
                seq: record.seq,
                crc,
                is_deleted: effect == Effect::Delete,
            },
            body,
            provenance: provenance.map(Box::new),
        };
        let held = self
            .families
            .get_mut(t)
            .and_then(|family| family.get_mut(id));
        match held {
            Some(slot) => *slot = entity,
            None => self.insert(t, id, entity),
        }
    }

    /// The five cases of a seq that comes twice (JN-14); the revisions are `reduce`'s.
    fn is_fresh(&mut self, record: &Record<'_>, crc: u32, is_behind: bool) -> bool {
        let is_begun = self.head_seq > 0 || self.is_from_first;
        if record.seq > self.head_seq + 1 && is_begun {
            self.miss(self.head_seq + 1, record.seq - 1);
        }
        self.head_seq = self.head_seq.max(record.seq);
        if record.redacted.is_some() {
            let id = (record.seq, record.writer.as_str().to_owned());
            self.redacted.insert(id);
        } else if self.is_erased(record) {
            self.counters.redacted_again += 1;
            self.back.insert(record.seq);
            self.gaps.meet(record.seq);
            return false;
        }
        match self.seen.note(record.seq, record.writer.as_str(), crc) {
            Again::No => {
                if is_behind {
                    // Out of order, and here: in the order of the file it counts like any other.
                    self.counters.out_of_order += 1;
                    self.gaps.meet(record.seq);
                }
                true
            }
            Again::Identical => {
                self.counters.duplicate_identical += 1;
                false
            }
            Again::SameWriter => {
                self.counters.duplicate_conflicting += 1;
                self.flag(record);
                true
            }
            Again::OtherWriter => {
                self.counters.duplicate_seq += 1;
                true
            }
        }
    }

    /// Whether anything that was met is erased, or says that another record is.
    pub(crate) fn has_erased(&self) -> bool {
        !(self.redacted.is_empty() && self.noted.is_empty())
    }

    fn is_erased(&self, record: &Record<'_>) -> bool {
        // Most journals never saw a redaction, and this is asked of every record.
        if self.redacted.is_empty() && self.noted.is_empty() {
            return false;
        }
        let id = (record.seq, record.writer.as_str().to_owned());
        self.redacted.contains(&id) || self.noted.contains(&id)
    }

    /// A note says that it was erased, and an old copy of its segment came back: gone all the same.
    fn erase_noted(&mut self) {
        let (noted, seen) = (&self.noted, &self.seen);
        let back = noted.difference(&self.redacted);
        let back = back.filter(|id| seen.has(id.0, &id.1));
        let back: Vec<u64> = back.map(|id| id.0).collect();
        if back.is_empty() {
            return;
        }
        self.counters.redacted_again += back.len() as u64;
        self.back.extend(back);
        let is_erased = |head: &Head| {
            noted
                .range((head.seq, String::new())..)
                .take_while(|id| id.0 == head.seq)
                .any(|id| seen.is_by(head.seq, &id.1, head.crc))
        };
        for entity in self.families.values_mut().flat_map(HashMap::values_mut) {
            if !entity.head.is_deleted && is_erased(&entity.head) {
                entity.head.is_deleted = true;
                entity.body = Body::Gone;
            }
        }
    }

    fn odd(&mut self, oddity: Oddity, record: &Record<'_>) {
        match oddity {
            Oddity::SameAgain => self.counters.duplicate_identical += 1,
            Oddity::RevTie => {
                self.counters.rev_ties += 1;
                self.flag(record);
            }
            Oddity::RevGap => self.counters.rev_gaps += 1,
            Oddity::RevRegress => {
                self.counters.rev_regressions += 1;
                self.flag(record);
            }
            Oddity::SingletonTombstone => {
                self.counters.singleton_tombstones += 1;
                self.flag(record);
            }
        }
    }

    fn flag(&mut self, record: &Record<'_>) {
        if let Some(id) = &record.item_id {
            let entity = (record.item_type.as_str().to_owned(), id.as_str().to_owned());
            self.flagged.insert(entity);
        }
    }

    fn meta(&mut self, record: &Record<'_>) {
        let payload = record.payload.map(RawValue::get);
        match payload.and_then(|text| MetaPayload::parse(record.action, text)) {
            None => self.counters.invalid_records += 1,
            Some(MetaPayload::SeqRepair(_)) => self.counters.seq_repairs += 1,
            Some(MetaPayload::CheckpointRef(reference)) => {
                self.refs.insert(reference.head_seq, reference);
            }
            Some(MetaPayload::Note(Note::TornTailAdjudicated {
                segment,
                byte_start,
                byte_end,
                ..
            })) => {
                self.counters.torn_adjudicated += 1;
                let named = crate::format::segment_seq(&segment);
                self.damage.retain(|(at, d)| {
                    Some(*at) != named || d.place.start < byte_start || d.place.end > byte_end
                });
            }
            Some(MetaPayload::Note(Note::Redaction { redacted, .. })) => {
                let ids = redacted.into_iter().map(|id| (id.seq, id.writer));
                self.noted.extend(ids);
            }
            Some(MetaPayload::Note(Note::GapsAccepted { gaps, .. })) => self.gaps.accept(&gaps),
            Some(MetaPayload::FederationApply(apply)) => {
                let taken = self.federated.of_mut(&apply.origin_id, apply.origin_epoch);
                taken.add(apply.seq_range, &apply.left_out);
                taken.erased.extend(apply.redacted.iter().map(|id| id.seq));
            }
            Some(MetaPayload::Note(_)) => {}
        }
    }
}

impl<'a, K: Known> Sink<'a> for Replay<K> {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        self.counters.batches += 1;
        self.applied = applied_in(batch);
        for counted in batch {
            self.record(counted);
        }
        self.applied = None;
    }

    fn damage(&mut self, damage: Damage) {
        self.newer.extend(damage.newer_seq());
        self.damage.push((self.segment, damage));
    }
}
