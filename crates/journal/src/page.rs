//! A piece of the history as it stands in the journal: what it holds, what is missing in it, and where it ends.
//!
//! Read without a lock, while others write. A read of a segment is not one moment: a record may be seen whose elder is not. So what
//! looks missing is looked at again before it is said, and before any watermark passes it.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::action::{ActionClass, Mode};
use crate::checkpoint;
use crate::erased::Ids;
use crate::error::JournalError;
use crate::gaps::missing_of;
use crate::journal::Journal;
use crate::lines::{Counted, Damage, Sink, scan};
use crate::meta;
use crate::record::Record;
use crate::redact::erased_line;
use crate::registry::JOURNAL;
use crate::seen::{Again, Seen};
use crate::segments;

/// Looks at what seems to be missing; each of them begins behind the end of the one before.
const LOOKS_MAX: usize = 8;

/// What stands where history was moved away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub head_seq: u64,
    pub entities: u64,
    /// The first seq that is still here.
    pub oldest_seq: u64,
}

/// How far a reader is: a record by its identity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) seq: u64,
    /// None: nothing was read yet, or an older build wrote it down.
    pub(crate) writer: Option<String>,
    /// One writer may write a seq twice, where the end of its journal was lost under it. None: as before.
    pub(crate) crc: Option<u32>,
}

impl Mark {
    /// For every record that is met: without another piece of memory each time.
    fn set(&mut self, record: &Record<'_>, crc: u32) {
        self.seq = record.seq;
        let writer = self.writer.get_or_insert_default();
        writer.clear();
        writer.push_str(record.writer.as_str());
        self.crc = Some(crc);
    }

    /// Whether a record is the one that was read. One that was erased since has another checksum.
    fn is(&self, record: &Record<'_>, crc: u32, erased: &Ids) -> bool {
        let writer = record.writer.as_str();
        // Lines of the journal's own are written anew as well, where one names a checkpoint that was.
        let is_erased = || {
            record.redacted.is_some()
                || record.item_type.as_str() == JOURNAL
                || erased.contains(&(record.seq, writer.to_owned()))
        };
        self.seq == record.seq
            && self.writer.as_deref() == Some(writer)
            && (self.crc.is_none_or(|known| known == crc) || is_erased())
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[derive(Debug, Serialize)]
pub struct Page {
    /// The records, as they stand in the journal.
    pub events: Vec<Box<RawValue>>,
    /// There were events that the reader was never shown: they are archived, lost, of a newer build, or of a journal that was
    /// put back.
    pub gap: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// First and last seq, each, of records that are lost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<[u64; 2]>,
    /// Records of a newer build among these, which this one cannot show.
    #[serde(skip_serializing_if = "is_zero")]
    pub newer: u64,
    /// The watermark that this reader had, which the journal does not know: an older copy was put back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewound_from: Option<u64>,
    pub last_seq: u64,
    /// The limit was reached; ask again.
    pub more: bool,
    /// Where the watermark of this reader stood before.
    #[serde(skip)]
    pub(crate) began: Mark,
    #[serde(skip)]
    wanted: Wanted,
    /// Of each event.
    #[serde(skip)]
    marks: Vec<Mark>,
    #[serde(skip)]
    end: Mark,
}

impl Page {
    pub(crate) fn reader(&self) -> Option<&str> {
        self.wanted.reader.as_deref()
    }

    pub(crate) fn item_type(&self) -> Option<&str> {
        self.wanted.item_type.as_deref()
    }

    /// Where a reader is that was shown so many of the events; None: nowhere else.
    pub(crate) fn mark_behind(&self, count: usize) -> Option<&Mark> {
        if count >= self.events.len() {
            return Some(&self.end);
        }
        count.checked_sub(1).and_then(|last| self.marks.get(last))
    }
}

/// Which records are wanted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    pub(crate) seen: Mark,
    /// Where the reader was before, whichever way: the newest of these that the journal has is common to both.
    pub(crate) trail: Vec<Mark>,
    pub(crate) limit: usize,
    pub(crate) item_type: Option<String>,
    /// Neither this instance's own records, nor the journal's.
    pub(crate) reader: Option<String>,
    pub(crate) writer: Option<String>,
    /// The name that this instance records under, where that is not the reader's.
    pub(crate) instance: Option<String>,
}

impl Journal {
    /// The records after a seq, as they stand in the journal.
    pub fn log(&self, after: u64, limit: usize) -> Result<Vec<Box<RawValue>>, JournalError> {
        Ok(self.history(after, limit)?.events)
    }

    /// The same, with what is missing between them.
    pub fn history(&self, after: u64, limit: usize) -> Result<Page, JournalError> {
        let seen = Mark {
            seq: after,
            ..Mark::default()
        };
        self.whole(&Wanted {
            seen,
            limit,
            ..Wanted::default()
        })
        .map(|(page, _)| page)
    }

    /// What a reader was not shown, and what it can be shown no more.
    pub(crate) fn page(&self, wanted: Wanted) -> Result<Page, JournalError> {
        let had = wanted.seen.seq;
        let (mut page, found) = self.whole(&wanted)?;
        if found.known < had || found.is_another {
            // An older copy was put back, or the end was lost with all that knew of it. What it and the reader have in common was
            // shown; it may have gone on from anywhere since, and an event twice is better than one never.
            let seen = self.common(&wanted.trail)?;
            let wanted = Wanted { seen, ..wanted };
            (page, _) = self.whole(&wanted)?;
            page.rewound_from = Some(had);
        }
        let oldest = segments::live(self.disk(), &self.layout)?.first().copied();
        let oldest = oldest.filter(|oldest| page.wanted.seen.seq.saturating_add(1) < *oldest);
        if let Some(oldest) = oldest {
            let seen = page.wanted.seen.seq;
            let lost = self.lost_before(oldest, seen)?;
            let lost_count: u64 = lost.iter().map(|[first, last]| last - first + 1).sum();
            // What is not lost is archived, or was before this store.
            if lost_count < oldest - seen - 1 {
                page.summary = self.summary(oldest)?;
            }
            page.missing.splice(0..0, lost);
        }
        let is_whole = page.missing.is_empty() && page.newer == 0;
        page.gap = oldest.is_some() || page.rewound_from.is_some() || !is_whole;
        Ok(page)
    }

    /// The newest of these that the journal has; the beginning where it has none.
    fn common(&self, trail: &[Mark]) -> Result<Mark, JournalError> {
        let mut common = Common {
            trail,
            erased: self.erased()?,
            newest: Mark::default(),
        };
        let oldest = trail.iter().map(|mark| mark.seq).min();
        let live = segments::live(self.disk(), &self.layout)?;
        let begin = segments::holding(&live, oldest.unwrap_or(u64::MAX));
        for first in &live[begin.min(live.len())..] {
            let bytes = segments::read(self.disk(), &self.layout, *first)?;
            scan(&bytes, 0, &mut common);
        }
        Ok(common.newest)
    }

    /// Looks until what is missing was missing before.
    fn whole(&self, wanted: &Wanted) -> Result<(Page, Found), JournalError> {
        let mut before = BTreeSet::new();
        let mut looked = self.look(wanted)?;
        for _ in 1..LOOKS_MAX {
            let missing: BTreeSet<[u64; 2]> = looked.0.missing.iter().copied().collect();
            if missing.is_subset(&before) {
                break;
            }
            before = missing;
            looked = self.look(wanted)?;
        }
        Ok(looked)
    }

    fn look(&self, wanted: &Wanted) -> Result<(Page, Found), JournalError> {
        // IMPORTANT: the witnesses of a loss before the segments, or a writer meanwhile would look like one.
        let beside = self.seen_beside()?;
        let meta = meta::read(self.disk(), &self.layout)?;
        let checkpoints = checkpoint::listed(self.disk(), &self.layout)?;
        let seen = self.seen_to(beside, &meta)?;
        let erased = self.erased_or_doomed()?;
        let live = segments::live(self.disk(), &self.layout)?;
        let after = wanted.seen.seq;
        // The record that was seen last is looked at as well, where it can be told from another.
        let from = after.saturating_add(u64::from(wanted.seen.writer.is_none()));
        let begin = segments::holding(&live, from);
        let oldest = match live.first() {
            Some(oldest) => *oldest,
            // All live segments are gone, or there never was one: behind what is archived.
            None => self.archived_to()? + 1,
        };
        let mut collector = Collector::new(self.mode, wanted, erased, oldest);
        for first in &live[begin.min(live.len())..] {
            let bytes = segments::read(self.disk(), &self.layout, *first)?;
            let mut lines = Lines::default();
            scan(&bytes, 0, &mut lines);
            lines.tell(&bytes, &mut collector);
            if collector.page.more {
                break;
            }
        }
        let head = collector.head;
        // A store that was never written in has no end that could be lost; one that was has a cache.
        let is_new = live.is_empty() && meta.good().is_none() && self.is_never_written()?;
        let known = if is_new {
            after
        } else {
            self.witnessed(seen, &checkpoints, head.max(oldest.saturating_sub(1)))?
        };
        if !collector.page.more && known > collector.passed && !is_new {
            collector.miss(known);
        }
        collector.page.newer = collector.newer.range(after.saturating_add(1)..).count() as u64;
        let there = &collector.is_there;
        let is_another =
            wanted.seen.writer.is_some() && !there.is_empty() && !there.contains(&true);
        let found = Found {
            known: if collector.page.more {
                known.max(after)
            } else {
                known
            },
            is_another,
        };
        Ok((collector.page, found))
    }

    /// The last seq of the archive; 0 where nothing is there.
    fn archived_to(&self) -> Result<u64, JournalError> {
        let archived = segments::archived(self.disk(), &self.layout)?;
        let Some(last) = archived.last().copied() else {
            return Ok(0);
        };
        let mut end = LastSeq(last.saturating_sub(1));
        let bytes = segments::read(self.disk(), &self.layout, last)?;
        scan(&bytes, 0, &mut end);
        Ok(end.0)
    }

    fn summary(&self, oldest_seq: u64) -> Result<Option<Summary>, JournalError> {
        for head_seq in checkpoint::listed(self.disk(), &self.layout)?
            .into_iter()
            .rev()
        {
            if let checkpoint::Reference::Found(reference) = self.reference(head_seq)? {
                return Ok(Some(Summary {
                    head_seq,
                    entities: reference.entities,
                    oldest_seq,
                }));
            }
        }
        Ok(None)
    }
}

/// What a look found of the journal beside the page.
struct Found {
    /// The last seq that anything knows of.
    known: u64,
    /// Where the reader stood there is a record of somebody else.
    is_another: bool,
}

struct Collector {
    mode: Mode,
    page: Page,
    seen: Seen,
    erased: Ids,
    /// Of records of a newer build: here, and not to be shown.
    newer: BTreeSet<u64>,
    /// Everything up to here was met, or is known to be missing.
    passed: u64,
    head: u64,
    /// Of each record where the reader stood: whether it is the one that was read.
    is_there: Vec<bool>,
}

impl Collector {
    fn new(mode: Mode, wanted: &Wanted, erased: Ids, oldest: u64) -> Self {
        let after = wanted.seen.seq;
        Self {
            mode,
            page: Page {
                events: Vec::new(),
                gap: false,
                summary: None,
                missing: Vec::new(),
                newer: 0,
                rewound_from: None,
                last_seq: after,
                more: false,
                began: Mark::default(),
                wanted: wanted.clone(),
                marks: Vec::new(),
                end: wanted.seen.clone(),
            },
            seen: Seen::default(),
            erased,
            newer: BTreeSet::new(),
            passed: after.max(oldest.saturating_sub(1)),
            head: 0,
            is_there: Vec::new(),
        }
    }

    /// Nothing was met from what was passed up to here.
    fn miss(&mut self, last: u64) {
        let missing = missing_of(&self.newer, self.passed + 1, last);
        self.page.missing.extend(missing);
    }

    fn wants(&self, record: &Record<'_>) -> bool {
        let wanted = &self.page.wanted;
        let is_of_type = |name: &String| record.item_type.as_str() == name;
        if !wanted.item_type.as_ref().is_none_or(is_of_type) {
            return false;
        }
        let Some(reader) = &wanted.reader else {
            return true;
        };
        let is_ours = |id: &str| id == reader || Some(id) == wanted.instance.as_deref();
        let is_own = record
            .agent_id
            .as_ref()
            .is_some_and(|id| is_ours(id.as_str()))
            || wanted.writer.as_deref() == Some(record.writer.as_str());
        !is_own && record.action.class(self.mode) != ActionClass::JournalMeta
    }

    fn take(&mut self, counted: &Counted<'_>, line: &[u8]) {
        let record = &counted.record;
        let (seq, writer) = (record.seq, record.writer.as_str());
        let again = self.seen.note(seq, writer, counted.crc);
        self.head = self.head.max(seq);
        if seq == self.page.wanted.seen.seq {
            let seen = &self.page.wanted.seen;
            self.is_there
                .push(seen.is(record, counted.crc, &self.erased));
        }
        if seq <= self.page.wanted.seen.seq || again == Again::Identical || self.page.more {
            return;
        }
        let wants = self.wants(record);
        // Records of one seq are on one page: a watermark could not stand between them.
        let is_full = self.page.events.len() >= self.page.wanted.limit;
        if wants && is_full && seq > self.page.last_seq {
            self.page.more = true;
            return;
        }
        if seq > self.passed.saturating_add(1) {
            self.miss(seq - 1);
        }
        self.passed = self.passed.max(seq);
        if seq >= self.page.last_seq {
            self.page.last_seq = seq;
            self.page.end.set(record, counted.crc);
        }
        if !wants {
            return;
        }
        // RD-06: content that came back with an old copy of its segment is not content any more.
        let is_erased = !self.erased.is_empty() && self.erased.contains(&(seq, writer.to_owned()));
        let line = if is_erased {
            erased_line(line).ok()
        } else {
            Some(line.to_vec())
        };
        let line = line.and_then(|line| String::from_utf8(line).ok());
        if let Some(line) = line.and_then(|line| RawValue::from_string(line).ok()) {
            self.page.events.push(line);
            self.page.marks.push(self.page.end.clone());
        }
    }
}

/// The records of a segment.
#[derive(Default)]
struct Lines<'a> {
    counted: Vec<Counted<'a>>,
    newer: Vec<u64>,
}

impl Lines<'_> {
    /// In the order of their seqs, whatever order somebody has left them in: a watermark is a seq, and passes no record that is here.
    fn tell(mut self, bytes: &[u8], into: &mut Collector) {
        into.newer.extend(self.newer);
        if !self.counted.is_sorted_by_key(|counted| counted.record.seq) {
            self.counted.sort_by_key(|counted| counted.record.seq);
        }
        let at = |byte: u64| usize::try_from(byte).unwrap_or(0);
        for counted in &self.counted {
            let line = &bytes[at(counted.place.start)..at(counted.place.end)];
            into.take(counted, line);
        }
    }
}

impl<'a> Sink<'a> for Lines<'a> {
    fn batch(&mut self, _: &[Counted<'a>]) {}

    fn take_batch(&mut self, batch: &mut Vec<Counted<'a>>) {
        self.counted.append(batch);
    }

    fn damage(&mut self, damage: Damage) {
        self.newer.extend(damage.newer_seq());
    }
}

/// Finds where a reader and a journal that was put back part.
struct Common<'t> {
    trail: &'t [Mark],
    erased: Ids,
    newest: Mark,
}

impl<'a> Sink<'a> for Common<'_> {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        for counted in batch {
            let is_it = |mark: &&Mark| mark.is(&counted.record, counted.crc, &self.erased);
            if let Some(mark) = self.trail.iter().find(is_it)
                && mark.seq > self.newest.seq
            {
                self.newest.clone_from(mark);
            }
        }
    }

    fn damage(&mut self, _: Damage) {}
}

struct LastSeq(u64);

impl<'a> Sink<'a> for LastSeq {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        let last = batch.iter().map(|counted| counted.record.seq).max();
        self.0 = self.0.max(last.unwrap_or(0));
    }

    fn damage(&mut self, _: Damage) {}
}
