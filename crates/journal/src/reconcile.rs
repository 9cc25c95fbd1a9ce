//! Everything compared: files and index are brought level with the journal, and never below what they were.
//!
//! A file that is older than the journal is written anew. One that no record explains is somebody's work, or what
//! the journal lost: it is moved aside only where the index proves that it is not newer, or where a person asked.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;

use serde_json::Value;

use crate::ahead;
use crate::checkpoint::Rebuilt;
use crate::error::{At, JournalError};
use crate::journal::Journal;
use crate::lines::{Counted, Damage, Sink, scan};
use crate::projection::{Projected, pretty};
use crate::replay::{Body, Entity};
use crate::revisions::{Kept, Revisions};
use crate::segments;
use crate::session::{Files, Session};

/// What may become of a file that no record explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strange {
    /// It may be newer than the journal: it stays.
    Left,
    /// It is not, or a person said so: kept aside.
    Parked,
}

impl Strange {
    fn parked_if(is_known: bool) -> Self {
        if is_known { Self::Parked } else { Self::Left }
    }
}

/// The documents that the journal has held, by entity: read once, and only when a file must be explained.
pub(crate) struct Past<'j> {
    journal: &'j Journal,
    marks: Option<HashSet<(String, u32)>>,
}

impl<'j> Past<'j> {
    fn of(journal: &'j Journal) -> Self {
        Self {
            journal,
            marks: None,
        }
    }

    fn holds(
        &mut self,
        item_type: &str,
        item_id: &str,
        held: &Value,
    ) -> Result<bool, JournalError> {
        let journal = self.journal;
        let marks = match self.marks.take() {
            Some(marks) => marks,
            None => read_past(journal)?,
        };
        let key = (name(item_type, item_id), journal.mark(item_type, held));
        let is_held = marks.contains(&key);
        self.marks = Some(marks);
        Ok(is_held)
    }
}

fn died() -> JournalError {
    JournalError::refused("a thread that wrote projections died")
}

fn name(item_type: &str, item_id: &str) -> String {
    format!("{item_type}/{item_id}")
}

fn read_past(journal: &Journal) -> Result<HashSet<(String, u32)>, JournalError> {
    let mut reader = PastReader {
        journal,
        marks: HashSet::new(),
    };
    for first in journal.all_segments()? {
        let bytes = segments::read(journal.disk(), &journal.layout, first)?;
        scan(&bytes, 0, &mut reader);
    }
    Ok(reader.marks)
}

struct PastReader<'j> {
    journal: &'j Journal,
    marks: HashSet<(String, u32)>,
}

impl<'a> Sink<'a> for PastReader<'_> {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        for record in batch.iter().map(|counted| &counted.record) {
            let Some((item_id, body)) = record.item_id.as_ref().zip(Body::of(record)) else {
                continue;
            };
            let item_type = record.item_type.as_str();
            if let Ok(document) = self.journal.document(item_type, &body) {
                let mark = self.journal.mark(item_type, &document);
                self.marks.insert((name(item_type, item_id.as_str()), mark));
            }
        }
    }

    fn damage(&mut self, _: Damage) {}
}

/// Fewer than this are written one after the other.
const BULK_MIN: usize = 512;

type Named<'e> = (&'e str, &'e str, &'e Entity);

impl Journal {
    /// The names in the folders of these entities.
    fn names_there(&self, all: &[Named<'_>]) -> Result<HashSet<(String, String)>, JournalError> {
        let mut there = HashSet::new();
        let mut families: Vec<&str> = all.iter().map(|(item_type, ..)| *item_type).collect();
        families.dedup();
        for family in families {
            if self.is_astray(family)? {
                continue;
            }
            let folder = self.layout.family(family);
            for entry in self.disk().list(&folder).at(&folder)? {
                there.insert((family.to_owned(), entry.name));
            }
        }
        Ok(there)
    }

    /// The types of these whose files are anywhere.
    fn astray_of<'e>(&self, all: &[Named<'e>]) -> Result<HashSet<&'e str>, JournalError> {
        let mut families: Vec<&str> = all.iter().map(|(item_type, ..)| *item_type).collect();
        // In order of type: each folder is looked at once, and not once a file.
        families.dedup();
        let mut astray = HashSet::new();
        for family in families {
            if self.is_astray(family)? {
                astray.insert(family);
            }
        }
        Ok(astray)
    }

    /// Entities without a file get theirs at once, by as many threads as there are cores: nothing is there to compare with.
    fn project_absent<'e>(
        &self,
        absent: &[Named<'e>],
    ) -> Result<HashMap<(&'e str, &'e str), Projected>, JournalError> {
        let mut families: Vec<&str> = absent.iter().map(|(item_type, ..)| *item_type).collect();
        families.dedup();
        for family in families {
            let folder = self.layout.family(family);
            self.disk().create_dir(&folder).at(&folder)?;
        }
        let write = |some: &[Named<'e>]| -> Result<Vec<_>, JournalError> {
            let one = |(item_type, item_id, entity): &Named<'e>| {
                let projected = self.project_new(item_type, item_id, entity)?;
                Ok(projected.map(|projected| ((*item_type, *item_id), projected)))
            };
            some.iter()
                .filter_map(|named| one(named).transpose())
                .collect()
        };
        let workers = if absent.len() < BULK_MIN {
            1
        } else {
            ahead::workers()
        };
        if workers == 1 {
            return Ok(write(absent)?.into_iter().collect());
        }
        let share = absent.len().div_ceil(workers);
        std::thread::scope(|scope| {
            let shares: Vec<_> = absent
                .chunks(share)
                .map(|some| scope.spawn(|| write(some)))
                .collect();
            let mut all = HashMap::with_capacity(absent.len());
            for share in shares {
                let written = share.join().map_err(|_| died())?;
                all.extend(written?);
            }
            Ok(all)
        })
    }

    /// None where a file is there after all: a file system may take two names for one.
    fn project_new(
        &self,
        item_type: &str,
        item_id: &str,
        entity: &Entity,
    ) -> Result<Option<Projected>, JournalError> {
        let Ok(document) = self.document(item_type, &entity.body) else {
            return Ok(Some(Projected::Divergent));
        };
        let path = self.layout.entity(item_type, item_id);
        let written = self.disk().write_new(&path, &pretty(&document)?);
        match written {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
            written => written.at(&path)?,
        }
        let mark = self.mark(item_type, &document);
        Ok(Some(Projected::Level(mark)))
    }

    /// Nothing can be written in its place. Where its type has only become another one, a file that says what was recorded is still the one
    /// that was written: whoever records its next version has not to do with an edit.
    fn project_outdated(
        &self,
        (item_type, item_id): (&str, &str),
        entity: &Entity,
    ) -> Result<Projected, JournalError> {
        let Body::Inline(text) = &entity.body else {
            return Ok(Projected::Divergent);
        };
        let held = self.projection(item_type, item_id)?.and_then(Result::ok);
        let is_written = |held: &Value| {
            let recorded = serde_json::from_str::<Value>(text).ok();
            recorded.is_some_and(|it| self.registry.same_but_ephemeral(item_type, held, &it))
        };
        Ok(match held.filter(is_written) {
            Some(held) if self.is_outdated(item_type, &entity.body) => {
                Projected::Level(self.mark(item_type, &held))
            }
            _ => Projected::Divergent,
        })
    }

    /// The file is compared, and only one that is not level is touched.
    pub(crate) fn project_if_other(
        &self,
        (item_type, item_id): (&str, &str),
        entity: &Entity,
        before: Option<Kept>,
        strange: Strange,
        past: &mut Past<'_>,
        aside: &mut Vec<String>,
    ) -> Result<Projected, JournalError> {
        let document = match self.document(item_type, &entity.body) {
            Ok(document) => Some(document),
            Err(_) if entity.head.is_deleted => None,
            Err(_) => return self.project_outdated((item_type, item_id), entity),
        };
        match (self.projection(item_type, item_id)?, &document) {
            (None, None) => return Ok(Projected::Level(0)),
            (None, Some(_)) => {}
            // A power cut may have emptied a file whose name it kept: evidence, but not in this place.
            (Some(Err(_)), _) => aside.push(self.park(item_type, item_id)?),
            (Some(Ok(held)), Some(document))
                if self.registry.same_but_ephemeral(item_type, &held, document) =>
            {
                return Ok(Projected::Level(self.mark(item_type, document)));
            }
            (Some(Ok(held)), _) => {
                let is_written = before.is_some_and(|kept| {
                    kept.document != 0 && self.is_ours(item_type, &held, &kept)
                });
                let is_older = is_written || past.holds(item_type, item_id, &held)?;
                match strange {
                    _ if is_older => {}
                    Strange::Left => return Ok(Projected::Divergent),
                    Strange::Parked => aside.push(self.park(item_type, item_id)?),
                }
            }
        }
        match document {
            Some(document) => {
                self.write_projection(item_type, item_id, &document)?;
                Ok(Projected::Level(self.mark(item_type, &document)))
            }
            None => self.unlink_projection(item_type, item_id),
        }
    }
}

impl Session<'_> {
    /// Everything from the newest checkpoint on, every entity compared, a new index.
    pub(crate) fn reconcile_full(&mut self) -> Result<(), JournalError> {
        self.reconcile_all(false)
    }

    /// The same because a person asked for the files as the journal has them.
    pub(crate) fn reconcile_anew(&mut self) -> Result<(), JournalError> {
        self.reconcile_all(true)
    }

    /// The same, or the index alone where the files are many and come behind an answer.
    pub(crate) fn reconcile_due(&mut self) -> Result<(), JournalError> {
        let journal = self.journal;
        let rebuilt = journal.rebuild(0)?;
        let is_few = rebuilt.replay.live_count() <= journal.settings.files_first_max;
        if self.files == Files::First || is_few {
            return self.compare_all(&rebuilt, false);
        }
        self.index_alone(&rebuilt)
    }

    /// The index, where the files cannot be compared now: a later writer does that.
    pub(crate) fn reconcile_index(&mut self) -> Result<(), JournalError> {
        let rebuilt = self.journal.rebuild(0)?;
        self.index_alone(&rebuilt)
    }

    fn index_alone(&mut self, rebuilt: &Rebuilt) -> Result<(), JournalError> {
        let journal = self.journal;
        let all = rebuilt.replay.entities();
        let heads: Vec<_> = all.iter().map(|(t, id, e)| (*t, *id, e.head)).collect();
        let path = journal.layout.revisions();
        let old = self.revisions();
        let fresh = Revisions::build_unproven(journal.disk(), &path, &heads, old.as_ref())?;
        self.took_its_place(fresh)?;
        self.renew_lost(rebuilt, old.is_some_and(|old| old.is_readable()))?;
        self.is_unproven = true;
        self.write_meta(false)
    }

    /// A new index is later than any that the cache, or the clock, knows: an older copy of it that is put back is told by that.
    fn took_its_place(&mut self, mut fresh: Revisions<'_>) -> Result<(), JournalError> {
        let now = u64::try_from(self.journal.world.clock.wall().0).unwrap_or(0);
        self.index_made = now.max(self.index_made.saturating_add(1));
        fresh.set_made(self.index_made)?;
        self.indexed_to = fresh.newest();
        Ok(())
    }

    fn reconcile_all(&mut self, is_asked: bool) -> Result<(), JournalError> {
        let rebuilt = self.journal.rebuild(0)?;
        self.compare_all(&rebuilt, is_asked)
    }

    /// The record behind a file is lost, and a newer one of its entity is here: nothing else has what that file says.
    fn is_passed(&self, rebuilt: &Rebuilt, before: Option<Kept>, entity: &Entity) -> bool {
        before.is_some_and(|kept| {
            let seq = kept.head.seq;
            let is_lost = rebuilt.replay.gaps.hold(seq) || self.lost.hold(seq);
            is_lost && kept.head.rev < entity.head.rev
        })
    }

    fn compare_all(&mut self, rebuilt: &Rebuilt, is_asked: bool) -> Result<(), JournalError> {
        let journal = self.journal;
        // A clone of an older build has none yet. What cannot be copied is still where git put it, and is tried again next time.
        let _ = journal.keep_base();
        let is_whole = rebuilt.replay.gaps.open().is_empty();
        let all = rebuilt.replay.entities();
        let mut old = self.revisions();
        if let Some(old) = &mut old {
            old.hold(all.len());
        }
        // IMPORTANT: also where a person asked for the files as the journal has them: what it has lost, the index alone knows.
        let is_worth = |kept: &Kept| !is_asked || rebuilt.replay.gaps.hold(kept.head.seq);
        let before_of = |item_type: &str, item_id: &str| {
            let old = old.as_ref();
            let kept = old.and_then(|old| old.get(item_type, item_id).ok().flatten());
            kept.filter(is_worth)
        };
        let there = journal.names_there(&all)?;
        let astray = journal.astray_of(&all)?;
        let mut absent = all.clone();
        absent.retain(|(item_type, item_id, entity)| {
            let file = ((*item_type).to_owned(), format!("{item_id}.json"));
            let is_ahead = || {
                let before = before_of(item_type, item_id);
                before.is_some_and(|kept| kept.is_ahead_of(&entity.head))
            };
            let has_place = !entity.head.is_deleted && !astray.contains(item_type);
            has_place && !there.contains(&file) && !is_ahead()
        });
        let written = journal.project_absent(&absent)?;
        let mut past = Past::of(journal);
        let mut aside = Vec::new();
        let mut entries = Vec::new();
        for (item_type, item_id, entity) in all {
            if let Some(projected) = written.get(&(item_type, item_id)) {
                entries.push((item_type, item_id, projected.kept(entity.head)));
                continue;
            }
            let before = before_of(item_type, item_id);
            let is_ahead = before.filter(|kept| kept.is_ahead_of(&entity.head));
            let kept = if astray.contains(item_type) {
                // Its files are anywhere: nothing is written there, and verify says so.
                Projected::Divergent.kept(entity.head)
            } else if let Some(kept) = is_ahead.filter(|_| is_asked) {
                let key = (item_type, item_id);
                journal.project_below(key, entity, kept, &mut past, &mut aside)?
            } else if let Some(kept) = is_ahead {
                // Never regress: what the journal lost stays visible, and verify reports it.
                kept
            } else {
                // The index says that the file is not newer; a file that was left before is left again.
                let is_proven = is_whole && before.is_some_and(|kept| !kept.is_divergent);
                let is_passed = self.is_passed(rebuilt, before, entity);
                let strange = Strange::parked_if(is_asked || is_proven || is_passed);
                let key = (item_type, item_id);
                let before = before.filter(|_| !is_passed);
                let projected = journal
                    .project_if_other(key, entity, before, strange, &mut past, &mut aside)?;
                projected.kept(entity.head)
            };
            entries.push((item_type, item_id, kept));
        }
        let path = journal.layout.revisions();
        let fresh = Revisions::build_over(journal.disk(), &path, &entries, old.as_ref(), is_worth)?;
        self.took_its_place(fresh)?;
        self.renew_lost(rebuilt, old.is_some_and(|old| old.is_readable()))?;
        self.kept_aside.append(&mut aside);
        self.is_unproven = false;
        self.write_meta(false)
    }
}
