//! Reading an entity: a constant-time look whether the projections are level, then the file.

use serde::Serialize;
use serde_json::Value;

use crate::action::Mode;
use crate::error::{At, JournalError};
use crate::journal::Journal;
use crate::level::Level;
use crate::meta::{self, Meta, MetaFound};
use crate::newer::Newer;
use crate::registry::TypeClass;
use crate::replay::{Entity, Known, Replay};
use crate::revisions::{Kept, Revisions};
use crate::segments;
use crate::session::Files;

/// How often a reader looks again when a writer changed the file under it.
const TRIES_MAX: usize = 8;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shown {
    pub item_type: String,
    pub item_id: String,
    pub entity_rev: u64,
    pub payload: Value,
    /// Somebody is writing: a newer one may exist.
    pub stale: bool,
    /// What a person should know about it beside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
}

const EDITED: &str = "its file differs from the journal, which is shown here: it was edited by hand, git brought it from another clone, or its record was lost. `heddle journal verify` says how to take it in; `heddle journal rebuild` puts the file right and keeps what stood there";
const LOST: &str = "records of the journal are lost, and a newer one may have been among them; `heddle journal verify` says which seqs";
const NEWER: &str = "the journal has records of a newer heddle, which this one does not understand: a newer revision may be among them; use that one";
const OFF: &str =
    "the journal is off: shown as its file has it; `heddle journal migrate` turns it on";
const NOT_RECORDED: &str =
    "shown as its file has it: the first write in this clone takes it into the journal";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Freshness {
    /// The projections equal the journal.
    Fresh,
    /// The revision index does; the files were not compared yet, and nobody reads them.
    Indexed,
    /// They are behind, by what lies after this cache.
    Behind(Option<Meta>),
}

impl Known for &Revisions<'_> {
    fn head(&self, item_type: &str, item_id: &str) -> Option<crate::reduce::Head> {
        self.get(item_type, item_id)
            .ok()
            .flatten()
            .map(|kept| kept.head)
    }
}

impl Journal {
    /// One small file, one listing, one length, a few bytes: whatever the size of the store.
    pub fn freshness(&self) -> Result<Freshness, JournalError> {
        // IMPORTANT: before the cache. Whoever writes meanwhile is no witness of a loss.
        let beside = self.seen_now()?;
        let found = meta::read(self.disk(), &self.layout)?;
        let live = segments::live(self.disk(), &self.layout)?;
        let (meta, active) = match (found, live.last()) {
            (MetaFound::Absent, None) => {
                let is_new = crate::checkpoint::listed(self.disk(), &self.layout)?.is_empty();
                // Whoever has seen a record, or reserved something, says that there was one, and it is gone.
                let is_new = is_new && beside == 0;
                return Ok(if is_new && self.entity_files()?.is_empty() {
                    Freshness::Fresh
                } else {
                    Freshness::Behind(None)
                });
            }
            (MetaFound::Good(meta), Some(active)) => (meta, *active),
            _ => return Ok(Freshness::Behind(None)),
        };
        let is_redacting = self.redact_job()?.is_some();
        // A clone's first write that died: what the cache calls level is only what it had taken in so far.
        if is_redacting || self.is_adopting()? || !meta.survives(self.boot().as_deref()) {
            return Ok(Freshness::Behind(None));
        }
        // What the cache says is true, and of another index or of fewer records than there are.
        let is_back = self.is_any_back(&meta.lost).unwrap_or(false);
        if is_back || self.is_index_older(&meta) {
            return Ok(Freshness::Behind(None));
        }
        let path = self.layout.segment(active);
        let length = self.disk().len(&path).at(&path)?.unwrap_or(0);
        let end = meta.applied.byte;
        let is_level = meta.applied.segment == active
            && (length == end
                || meta.reach == Some(length)
                    && segments::is_blank_from(self.disk(), &path, end, length)?);
        // What the segment confirms may be an older copy itself, and so may the segment.
        let is_short = is_level && beside >= meta.next_seq && {
            let last = segments::last_before(self.disk(), &path, end)?;
            last.is_none_or(|last| last < beside)
        };
        if is_level && !is_short {
            self.was_looked_at();
        }
        Ok(match is_level {
            true if is_short => Freshness::Behind(None),
            true if meta.is_unproven() => Freshness::Indexed,
            true => Freshness::Fresh,
            false => Freshness::Behind(Some(meta)),
        })
    }

    /// The revision index is an older copy that was put back, or gone.
    fn is_index_older(&self, meta: &Meta) -> bool {
        let open = || Revisions::open(self.disk(), &self.layout.revisions());
        meta.indexed_to > 0
            && open().is_none_or(|index| !index.is_as_new_as(meta.indexed_to, meta.index_made))
    }

    /// What a writer does before it writes, notes and repairs included, if nobody else is at it.
    pub fn reconcile(&self) -> Result<bool, JournalError> {
        if self.freshness()? == Freshness::Fresh {
            return Ok(true);
        }
        Ok(self.try_session()?.is_some())
    }

    /// An entity. Under contention memory is shown stale and says so; claims are read through (J3).
    pub fn show(&self, item_type: &str, item_id: &str) -> Result<Shown, JournalError> {
        if !crate::format::is_item_type(item_type) || !crate::format::is_item_id(item_id) {
            return Err(absent(item_type, item_id));
        }
        if self.mode == Mode::Off {
            return self.of_file(item_type, item_id);
        }
        // A full disk, a folder that cannot be written: no reason not to read.
        let level = self.level_with(Files::Behind).unwrap_or(Level::NotOurs);
        if level == Level::Yes {
            let shown = self.served(item_type, item_id, false);
            let shown = self.with_lost(shown, item_type, item_id);
            return self.with_newer(shown, self.newer_within()?, item_type, item_id);
        }
        let shown = match (self.lost_tail()?, level) {
            (None, Level::NotOurs) => self.newest(item_type, item_id),
            (None, _) => self.observe(item_type, item_id),
            (Some(tail), _) => match self.observe(item_type, item_id) {
                Ok(shown) => Ok(Shown {
                    stale: false,
                    note: Some(LOST),
                    ..shown
                }),
                Err(JournalError::NotFound { .. }) => Err(lost(item_type, item_id, vec![tail])),
                failed => failed,
            },
        };
        let shown = self.with_lost(shown, item_type, item_id);
        self.with_newer(shown, self.newer()?, item_type, item_id)
    }

    /// An entity that was recorded behind them is the newest all the same.
    fn with_newer(
        &self,
        shown: Result<Shown, JournalError>,
        newer: Option<Newer>,
        item_type: &str,
        item_id: &str,
    ) -> Result<Shown, JournalError> {
        let Some(Newer { segment, seq }) = newer else {
            return shown;
        };
        if let Indexed::Known(kept) = self.indexed(item_type, item_id)
            && kept.head.seq > seq
        {
            return shown;
        }
        match shown {
            Ok(shown) => Ok(Shown {
                note: shown.note.or(Some(NEWER)),
                ..shown
            }),
            Err(JournalError::NotFound { .. }) => Err(JournalError::Newer(segment)),
            failed => failed,
        }
    }

    /// Where nobody is writing and the files cannot follow: what the journal says, and not a file that is behind it.
    fn newest(&self, item_type: &str, item_id: &str) -> Result<Shown, JournalError> {
        match self.freshness()? {
            Freshness::Behind(meta) if !self.is_unadopted()? => {
                self.found_behind(meta.as_ref(), item_type, item_id)
            }
            _ => self.observe(item_type, item_id),
        }
    }

    /// The same answer where records are lost: an index that was made anew after that knows nothing of what they said.
    fn with_lost(
        &self,
        shown: Result<Shown, JournalError>,
        item_type: &str,
        item_id: &str,
    ) -> Result<Shown, JournalError> {
        let mut all = self.cached_lost()?;
        all.seqs = self.still_missing(&all.seqs)?;
        if all.is_empty() {
            return shown;
        }
        let (may_be_newer, may_have_been) = match self.indexed(item_type, item_id) {
            Indexed::Known(kept) => {
                let is_hidden = all.hidden_after(kept.head.seq) > 0;
                (is_hidden, is_hidden)
            }
            Indexed::Absent | Indexed::Damaged => (all.index, true),
        };
        match shown {
            // A file that differs differs for that: what it says may be the record that is lost.
            Ok(shown) if may_be_newer && matches!(shown.note, None | Some(EDITED)) => Ok(Shown {
                note: Some(LOST),
                ..shown
            }),
            Err(JournalError::NotFound { .. }) if may_have_been => {
                Err(lost(item_type, item_id, all.seqs))
            }
            shown => shown,
        }
    }

    /// The same without a lock and without a write.
    pub fn observe(&self, item_type: &str, item_id: &str) -> Result<Shown, JournalError> {
        match self.freshness()? {
            Freshness::Fresh | Freshness::Indexed => self.served(item_type, item_id, false),
            Freshness::Behind(None) if self.is_unadopted()? => self.of_clone(item_type, item_id),
            Freshness::Behind(meta) if self.registry.class(item_type) == TypeClass::Execution => {
                self.read_through(meta.as_ref(), item_type, item_id)
            }
            Freshness::Behind(_) if self.is_noted_as_erased(item_type, item_id)? => {
                self.rebuilt(item_type, item_id)
            }
            Freshness::Behind(meta) => match self.served(item_type, item_id, true) {
                // C29: an index that is behind cannot say that something is not there.
                Err(JournalError::NotFound { .. }) => {
                    self.found_behind(meta.as_ref(), item_type, item_id)
                }
                shown => shown,
            },
        }
    }

    /// What the journal has where the index has nothing. IMPORTANT: what the index knows to be gone comes back by a later
    /// revision only: an old copy of a segment may hold what was erased (RD-06).
    fn found_behind(
        &self,
        meta: Option<&Meta>,
        item_type: &str,
        item_id: &str,
    ) -> Result<Shown, JournalError> {
        let gone_rev = match self.indexed(item_type, item_id) {
            Indexed::Known(kept) if kept.head.is_deleted => kept.head.rev,
            Indexed::Known(_) | Indexed::Absent | Indexed::Damaged => 0,
        };
        let shown = self.read_through(meta, item_type, item_id)?;
        if shown.entity_rev > gone_rev {
            Ok(shown)
        } else {
            Err(absent(item_type, item_id))
        }
    }

    /// From the projection; from the journal where the projection or its index is not to be had.
    fn served(&self, item_type: &str, item_id: &str, stale: bool) -> Result<Shown, JournalError> {
        for _ in 0..TRIES_MAX {
            let kept = match self.indexed(item_type, item_id) {
                Indexed::Known(kept) if !kept.head.is_deleted => kept,
                Indexed::Known(_) | Indexed::Absent => return Err(absent(item_type, item_id)),
                Indexed::Damaged => break,
            };
            if kept.is_unproven {
                match self.recorded_document(item_type, item_id, &kept.head)? {
                    Some(payload) => {
                        return Ok(shown_as(item_type, item_id, &kept, payload, stale));
                    }
                    None => break,
                }
            }
            if kept.is_divergent {
                break;
            }
            let Some(Ok(payload)) = self.projection(item_type, item_id)? else {
                break;
            };
            // A writer puts the file before the index, so another look decides; then the journal does.
            if !self.is_ours(item_type, &payload, &kept) {
                continue;
            }
            // Revision and file belong together only if neither changed meanwhile.
            if self.indexed(item_type, item_id) == Indexed::Known(kept) {
                return Ok(shown_as(item_type, item_id, &kept, payload, stale));
            }
        }
        let shown = self.rebuilt(item_type, item_id)?;
        let is_level = match self.projection(item_type, item_id)? {
            Some(Ok(held)) => {
                let registry = &self.registry;
                registry.same_but_ephemeral(item_type, &held, &shown.payload)
            }
            _ => false,
        };
        let is_edited = !is_level && !stale && self.freshness()? == Freshness::Fresh;
        Ok(Shown {
            note: shown.note.or(is_edited.then_some(EDITED)),
            ..shown
        })
    }

    /// From the journal alone, with what is missing in it.
    fn rebuilt(&self, item_type: &str, item_id: &str) -> Result<Shown, JournalError> {
        let rebuilt = self.rebuild(0)?;
        let entity = rebuilt.replay.get(item_type, item_id);
        let gaps = rebuilt.replay.gaps.open();
        let seen = entity.map_or(0, |entity| entity.head.seq);
        let is_lost = gaps.iter().any(|[_, last]| *last > seen);
        let (kept_rev, is_kept_lost) = match self.indexed(item_type, item_id) {
            Indexed::Known(kept) => (kept.head.rev, rebuilt.replay.gaps.hold(kept.head.seq)),
            Indexed::Absent | Indexed::Damaged => (0, false),
        };
        match self.shown(item_type, item_id, entity) {
            Err(JournalError::NotFound { .. }) if is_lost => Err(lost(item_type, item_id, gaps)),
            // Also where a person has accepted the loss: the older one is not the newest for that.
            Ok(shown) if (is_lost || is_kept_lost) && shown.entity_rev < kept_rev => Ok(Shown {
                note: Some(LOST),
                ..shown
            }),
            shown => shown,
        }
    }

    /// Of a store without a journal: the file is all there is.
    fn of_file(&self, item_type: &str, item_id: &str) -> Result<Shown, JournalError> {
        let payload = self.filed(item_type, item_id);
        Ok(Shown {
            item_type: item_type.to_owned(),
            item_id: item_id.to_owned(),
            entity_rev: 0,
            payload: payload.ok_or_else(|| absent(item_type, item_id))?,
            stale: false,
            note: Some(OFF),
        })
    }

    /// In a clone before its first write: the file, which is what that write will take in.
    fn of_clone(&self, item_type: &str, item_id: &str) -> Result<Shown, JournalError> {
        let rebuilt = self.rebuild(0)?;
        let entity = rebuilt.replay.get(item_type, item_id);
        let Some(payload) = self.filed(item_type, item_id) else {
            return self.shown(item_type, item_id, entity);
        };
        let is_recorded = entity.is_some_and(|e| self.is_recorded(item_type, &payload, e));
        let rev = entity.map_or(0, |e| e.head.rev);
        Ok(Shown {
            item_type: item_type.to_owned(),
            item_id: item_id.to_owned(),
            entity_rev: if is_recorded { rev } else { rev + 1 },
            payload,
            stale: false,
            note: (!is_recorded).then_some(NOT_RECORDED),
        })
    }

    /// A tombstone is the newest that the index has seen of it.
    pub(crate) fn is_known_gone(&self, item_type: &str, item_id: &str) -> bool {
        matches!(self.indexed(item_type, item_id), Indexed::Known(kept) if kept.head.is_deleted)
    }

    /// Whether a file is the newest that the index has seen of its entity; None where it does not know.
    pub(crate) fn is_newest_seen(
        &self,
        item_type: &str,
        item_id: &str,
        held: &Value,
    ) -> Option<bool> {
        match self.indexed(item_type, item_id) {
            Indexed::Known(kept) => {
                Some(kept.head.is_deleted || self.is_ours(item_type, held, &kept))
            }
            Indexed::Absent | Indexed::Damaged => None,
        }
    }

    fn indexed(&self, item_type: &str, item_id: &str) -> Indexed {
        let path = self.layout.revisions();
        let Some(revisions) = Revisions::open(self.disk(), &path) else {
            // A store in which nothing was written yet has none.
            let has_file = !matches!(self.disk().len(&path), Ok(None));
            let live = segments::live(self.disk(), &self.layout);
            let is_new = !has_file && live.is_ok_and(|live| live.is_empty());
            return if is_new {
                Indexed::Absent
            } else {
                Indexed::Damaged
            };
        };
        match revisions.get(item_type, item_id) {
            Ok(Some(kept)) => Indexed::Known(kept),
            Ok(None) => Indexed::Absent,
            Err(_) => Indexed::Damaged,
        }
    }

    fn shown(
        &self,
        item_type: &str,
        item_id: &str,
        entity: Option<&Entity>,
    ) -> Result<Shown, JournalError> {
        let entity = entity.filter(|entity| !entity.head.is_deleted);
        let entity = entity.ok_or_else(|| absent(item_type, item_id))?;
        let document = self.document(item_type, &entity.body);
        let payload = document.map_err(|reason| JournalError::Entity {
            item_type: item_type.to_owned(),
            item_id: item_id.to_owned(),
            reason,
        })?;
        Ok(Shown {
            item_type: item_type.to_owned(),
            item_id: item_id.to_owned(),
            entity_rev: entity.head.rev,
            payload,
            stale: false,
            note: None,
        })
    }

    /// The projection, and over it what the tail of the journal says.
    fn read_through(
        &self,
        meta: Option<&Meta>,
        item_type: &str,
        item_id: &str,
    ) -> Result<Shown, JournalError> {
        let revisions = Revisions::open(self.disk(), &self.layout.revisions());
        let (Some(meta), Some(revisions)) = (meta, revisions) else {
            return self.rebuilt(item_type, item_id);
        };
        let mut replay = Replay::new(&revisions, self.registry.clone(), self.mode);
        let live = segments::live(self.disk(), &self.layout)?;
        for first in live
            .into_iter()
            .filter(|first| *first >= meta.applied.segment)
        {
            let is_first = first == meta.applied.segment;
            let byte = if is_first { meta.applied.byte } else { 0 };
            match segments::read_from(self.disk(), &self.layout, first, byte)? {
                Some(bytes) => replay.segment(first, &bytes, byte),
                None => return self.rebuilt(item_type, item_id),
            }
        }
        match replay.get(item_type, item_id) {
            Some(entity) => self.shown(item_type, item_id, Some(entity)),
            None => self.served(item_type, item_id, false),
        }
    }
}

fn shown_as(item_type: &str, item_id: &str, kept: &Kept, payload: Value, stale: bool) -> Shown {
    Shown {
        item_type: item_type.to_owned(),
        item_id: item_id.to_owned(),
        entity_rev: kept.head.rev,
        payload,
        stale,
        note: None,
    }
}

fn lost(item_type: &str, item_id: &str, seqs: Vec<[u64; 2]>) -> JournalError {
    JournalError::Lost {
        item_type: item_type.to_owned(),
        item_id: item_id.to_owned(),
        seqs,
    }
}

fn absent(item_type: &str, item_id: &str) -> JournalError {
    JournalError::NotFound {
        item_type: item_type.to_owned(),
        item_id: item_id.to_owned(),
    }
}

/// What the revision index says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Indexed {
    Known(Kept),
    Absent,
    /// It cannot be believed.
    Damaged,
}
