//! Entities whose newest record is lost, and of which the revision index knows: a rebuild keeps what it knows.
//!
//! The journal has an older revision of them, or none. It is never shown as if it were the newest, what was deleted or erased does
//! not come back, and no revision is given twice.

use crate::error::JournalError;
use crate::journal::Journal;
use crate::projection::Projected;
use crate::reconcile::{Past, Strange};
use crate::replay::{Entity, Replay, Unknown};
use crate::reserve;
use crate::revisions::{Kept, Revisions};

impl Journal {
    /// The file as the journal has it, below the revision that stays in the index. With what the index says from then on.
    pub(crate) fn project_below(
        &self,
        (item_type, item_id): (&str, &str),
        entity: &Entity,
        kept: Kept,
        past: &mut Past<'_>,
        aside: &mut Vec<String>,
    ) -> Result<Kept, JournalError> {
        if kept.head.is_deleted {
            if self.projection(item_type, item_id)?.is_some() {
                aside.push(self.park(item_type, item_id)?);
            }
            return Ok(Kept::of(kept.head));
        }
        if self.is_held_by_file(item_type, item_id, &kept)? {
            return Ok(kept);
        }
        let key = (item_type, item_id);
        self.project_if_other(key, entity, None, Strange::Parked, past, aside)?;
        // Its newest document is not to be had: whoever reads it is shown the journal's, with a note.
        Ok(Projected::Divergent.kept(kept.head))
    }

    /// A reservation whose record is lost and whose file is the very one that was written behind it: no rebuild frees its paths.
    fn is_held_by_file(
        &self,
        item_type: &str,
        item_id: &str,
        kept: &Kept,
    ) -> Result<bool, JournalError> {
        if !reserve::is_reservation(item_type, item_id) || kept.document == 0 {
            return Ok(false);
        }
        let held = self.projection(item_type, item_id)?.and_then(Result::ok);
        Ok(held.is_some_and(|held| self.is_ours(item_type, &held, kept) && self.holds_now(&held)))
    }

    /// The same of one of which the journal has nothing at all.
    pub(crate) fn is_lost_hold(
        &self,
        replay: &Replay<Unknown>,
        item_type: &str,
        item_id: &str,
    ) -> Result<bool, JournalError> {
        let index = Revisions::open(self.disk(), &self.layout.revisions());
        let kept = index.and_then(|index| index.get(item_type, item_id).ok().flatten());
        match kept.filter(|kept| !kept.head.is_deleted && replay.gaps.hold(kept.head.seq)) {
            Some(kept) => self.is_held_by_file(item_type, item_id, &kept),
            None => Ok(false),
        }
    }

    /// Its newest record is lost, and its file is the very one that was written behind it: what to tell of it.
    pub(crate) fn told_of_last_copy(
        &self,
        replay: &Replay<Unknown>,
        item_type: &str,
        item_id: &str,
    ) -> Result<Option<String>, JournalError> {
        // Most journals have lost nothing, and this is asked of every entity.
        if replay.gaps.is_none() {
            return Ok(None);
        }
        let index = Revisions::open(self.disk(), &self.layout.revisions());
        let kept = index.and_then(|index| index.get(item_type, item_id).ok().flatten());
        let known = replay.get(item_type, item_id).map_or(0, |e| e.head.rev);
        let is_lost = |kept: &Kept| {
            let head = &kept.head;
            head.rev > known && !head.is_deleted && replay.gaps.hold(head.seq) && kept.document != 0
        };
        let Some(kept) = kept.filter(is_lost) else {
            return Ok(None);
        };
        let held = self.projection(item_type, item_id)?.and_then(Result::ok);
        let is_there = held.is_some_and(|held| self.is_ours(item_type, &held, &kept));
        Ok(is_there.then(|| {
            format!(
                "the record of its revision {} is lost, and its file still has what it said",
                kept.head.rev
            )
        }))
    }

    pub(crate) fn warn_of_lost_holds(
        &self,
        replay: &Replay<Unknown>,
        warnings: &mut Vec<String>,
    ) -> Result<(), JournalError> {
        for (folder, name) in self.strangers(replay)? {
            let id = name.strip_suffix(".json").unwrap_or(&name);
            if self.is_lost_hold(replay, &folder, id)? {
                warnings.push(format!(
                    "the record of the reservation {id} is lost: it holds by its file until its time ends or `heddle release` gives it back"
                ));
            }
        }
        Ok(())
    }

    /// Its newest record was given up, and a rebuild has brought its file to what the journal has below that: no drift.
    pub(crate) fn is_settled_below(
        &self,
        replay: &Replay<Unknown>,
        (item_type, item_id): (&str, &str),
        entity: &Entity,
    ) -> Result<bool, JournalError> {
        // Most journals have lost nothing, and this is asked of every entity.
        if replay.gaps.accepted().is_empty() {
            return Ok(false);
        }
        let index = Revisions::open(self.disk(), &self.layout.revisions());
        let kept = index.and_then(|index| index.get(item_type, item_id).ok().flatten());
        let is_below =
            |kept: &Kept| kept.head.rev > entity.head.rev && replay.gaps.is_given_up(kept.head.seq);
        let Some(kept) = kept.filter(is_below) else {
            return Ok(false);
        };
        let held = self.projection(item_type, item_id)?;
        if kept.head.is_deleted {
            return Ok(held.is_none());
        }
        if self.is_held_by_file(item_type, item_id, &kept)? {
            return Ok(true);
        }
        let Ok(document) = self.document(item_type, &entity.body) else {
            return Ok(false);
        };
        let is_level = held.is_some_and(|held| {
            held.is_ok_and(|held| {
                let registry = &self.registry;
                registry.same_but_ephemeral(item_type, &held, &document)
            })
        });
        Ok(kept.is_divergent && is_level)
    }
}
