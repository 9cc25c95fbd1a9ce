//! What this journal knows of the entities of a slice: their newest image, every revision that is still here, and
//! what was taken in of the slice's origin before. Read under the lock; between two chunks only what is new.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;
use serde_json::value::RawValue;

use crate::action::Action;
use crate::erased::Ids;
use crate::error::JournalError;
use crate::journal::Journal;
use crate::lines::{Counted, Damage, Sink, scan};
use crate::meta::Position;
use crate::record::Record;
use crate::replay::{Body, Replay, Unknown};
use crate::segments;
use crate::session::Session;

use super::applied_in;
use super::origin::Origin;
use super::provenance::{Lineage, Mark, Provenance};
use super::slice::Header;

/// A revision of an entity that is still in a segment.
#[derive(Debug, Clone)]
pub(super) struct Revision {
    pub(super) mark: Mark,
    pub(super) body: Body,
}

/// A record of the slice's origin that is here already.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub(super) writer: String,
    pub(super) local_seq: u64,
    pub(super) has_content: bool,
}

type Key = (String, String);

/// The newest image of an entity.
#[derive(Debug, Clone)]
pub(super) struct Current {
    pub(super) mark: Mark,
    pub(super) lineage: Lineage,
    pub(super) document: Option<Value>,
}

pub(super) struct History {
    pub(super) replay: Replay<Unknown>,
    seen: Revisions,
    upto: Position,
}

struct Revisions {
    own: Origin,
    of: (String, u64),
    wanted: BTreeSet<Key>,
    by_entity: HashMap<Key, Vec<Revision>>,
    taken: HashMap<u64, Taken>,
    was_redacted: bool,
    /// Never an image again, whatever its line holds.
    erased: Ids,
}

impl History {
    pub(super) fn open(
        session: &Session<'_>,
        own: &Origin,
        header: &Header,
        wanted: BTreeSet<Key>,
    ) -> Result<Self, JournalError> {
        let journal = session.journal;
        let mut history = Self {
            replay: journal.rebuild(0)?.replay,
            seen: Revisions {
                own: own.clone(),
                of: (header.origin_id.clone(), header.origin_epoch),
                wanted,
                by_entity: HashMap::new(),
                taken: HashMap::new(),
                was_redacted: false,
                erased: journal.erased()?,
            },
            upto: session.end(),
        };
        for first in journal.all_segments()? {
            let bytes = segments::read(journal.disk(), &journal.layout, first)?;
            scan(&bytes, 0, &mut history.seen);
        }
        history.seen.was_redacted = false;
        Ok(history)
    }

    /// What was written since; everything anew where that cannot be told.
    pub(super) fn advance(
        mut self,
        session: &Session<'_>,
        header: &Header,
    ) -> Result<Self, JournalError> {
        let journal = session.journal;
        let live = segments::live(journal.disk(), &journal.layout)?;
        let is_there = live.binary_search(&self.upto.segment).is_ok();
        let mut is_known = is_there;
        for first in live.into_iter().filter(|first| *first >= self.upto.segment) {
            let skip = if first == self.upto.segment {
                self.upto.byte
            } else {
                0
            };
            let bytes = segments::read_from(journal.disk(), &journal.layout, first, skip)?;
            let Some(bytes) = bytes else {
                is_known = false;
                break;
            };
            self.replay.segment(first, &bytes, skip);
            scan(&bytes, skip, &mut self.seen);
        }
        if !is_known || self.seen.was_redacted {
            let own = self.seen.own.clone();
            return Self::open(session, &own, header, self.seen.wanted);
        }
        self.upto = session.end();
        Ok(self)
    }

    pub(super) fn taken(&self, seq: u64) -> Option<&Taken> {
        self.seen.taken.get(&seq)
    }

    pub(super) fn rev(&self, item_type: &str, item_id: &str) -> u64 {
        let entity = self.replay.get(item_type, item_id);
        entity.map_or(0, |entity| entity.head.rev)
    }

    pub(super) fn current(
        &self,
        journal: &Journal,
        item_type: &str,
        item_id: &str,
    ) -> Option<Current> {
        let entity = self.replay.get(item_type, item_id)?;
        let provenance = entity.provenance.as_deref().cloned().unwrap_or_default();
        let rev = entity.head.rev;
        let mark = self.seen.mark(rev, entity.head.seq, &provenance);
        Some(Current {
            mark,
            lineage: provenance.lineage,
            document: journal.document(item_type, &entity.body).ok(),
        })
    }

    /// Whether this revision is here with this very image, whoever wrote it.
    pub(super) fn is_past(
        &self,
        journal: &Journal,
        item_type: &str,
        item_id: &str,
        entity_rev: u64,
        document: Option<&Value>,
    ) -> bool {
        let key = (item_type.to_owned(), item_id.to_owned());
        let held = self.seen.by_entity.get(&key).into_iter().flatten();
        held.filter(|revision| revision.mark.entity_rev == entity_rev)
            .any(|revision| {
                let image = journal.document(item_type, &revision.body).ok();
                image.as_ref() == document
            })
    }

    /// The same revision by another origin, with another image.
    pub(super) fn colliding(
        &self,
        journal: &Journal,
        item_type: &str,
        item_id: &str,
        incoming: &Mark,
        document: Option<&Value>,
    ) -> Option<Current> {
        let key = (item_type.to_owned(), item_id.to_owned());
        let others = self.seen.by_entity.get(&key)?.iter().filter(|revision| {
            revision.mark.entity_rev == incoming.entity_rev
                && (&revision.mark.origin_id, revision.mark.origin_epoch)
                    != (&incoming.origin_id, incoming.origin_epoch)
        });
        others
            .map(|revision| Current {
                mark: revision.mark.clone(),
                lineage: Lineage::new(),
                document: journal.document(item_type, &revision.body).ok(),
            })
            .find(|other| other.document.as_ref() != document)
    }
}

impl Revisions {
    fn mark(&self, entity_rev: u64, local_seq: u64, provenance: &Provenance) -> Mark {
        match &provenance.from {
            Some(from) => Mark {
                entity_rev,
                origin_id: from.origin_id.clone(),
                origin_epoch: from.origin_epoch,
                seq: from.seq,
            },
            None => Mark {
                entity_rev,
                origin_id: self.own.origin_id.clone(),
                origin_epoch: self.own.origin_epoch,
                seq: local_seq,
            },
        }
    }

    fn revision(&mut self, record: &Record<'_>, provenance: &Provenance) {
        let (Some(id), Some(rev)) = (&record.item_id, record.entity_rev) else {
            return;
        };
        let key = (record.item_type.as_str().to_owned(), id.as_str().to_owned());
        if !self.wanted.contains(&key) {
            return;
        }
        let id = (record.seq, record.writer.as_str().to_owned());
        let body = match (record.payload, &record.payload_ref) {
            _ if self.erased.contains(&id) => Body::Gone,
            (Some(payload), _) => Body::Inline(RawValue::get(payload).into()),
            (None, Some(blob)) => Body::Blob {
                sha256: blob.sha256.as_str().into(),
                bytes: blob.bytes,
            },
            (None, None) => Body::Gone,
        };
        let mark = self.mark(rev, record.seq, provenance);
        self.by_entity
            .entry(key)
            .or_default()
            .push(Revision { mark, body });
    }
}

impl<'a> Sink<'a> for Revisions {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        let applied = applied_in(batch);
        let is_ours = applied.as_ref().is_some_and(|applied| {
            (&applied.apply.origin_id, applied.apply.origin_epoch) == (&self.of.0, self.of.1)
        });
        for record in batch.iter().map(|counted| &counted.record) {
            // A redaction writes segments anew: what was read before it may be gone.
            self.was_redacted |= record.action == Action::JournalNote;
            let head = applied.as_ref().and_then(|applied| applied.head_of(record));
            let provenance = match (&applied, head) {
                (Some(applied), Some(head)) => super::provenance_of(&applied.apply, head),
                _ => Provenance::default(),
            };
            if let Some(head) = head.filter(|_| is_ours) {
                let taken = Taken {
                    writer: head.writer.clone(),
                    local_seq: record.seq,
                    has_content: record.has_payload() || record.summary.is_some(),
                };
                self.taken.insert(head.seq, taken);
            }
            self.revision(record, &provenance);
        }
    }

    fn damage(&mut self, _: Damage) {}
}
