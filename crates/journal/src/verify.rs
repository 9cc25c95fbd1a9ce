//! State equals log, on demand: rebuild from the journal, compare with every projection. Changes nothing.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::action::Mode;
use crate::blobs;
use crate::checkpoint::{self, Trust};
use crate::contents;
use crate::error::{At, JournalError};
use crate::gaps::Gaps;
use crate::journal::Journal;
use crate::loss::places;
use crate::meta;
use crate::pulled::Stranger;
use crate::replay::{Body, Counters, Entity};
use crate::revisions::Revisions;

/// How often a store is looked at whose lock is not to be had.
const LOOKS_MAX: usize = 5;

const OFF: &str =
    "the journal is off: changes are not recorded; `heddle journal migrate` turns it on";

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Divergence {
    pub item_type: String,
    pub item_id: String,
    pub reason: String,
    #[serde(skip)]
    pub cause: Cause,
}

/// What is wrong with an entity: what to do about it hangs on that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Its file, or the index: the journal itself is sound, and a rebuild puts it right.
    File,
    /// The blob that holds its content is gone, or has other bytes.
    Blob,
    /// Its type is not here.
    Type,
    /// Its document is of an older version of its type, and no step leads to the one of now.
    Version,
    /// A checkpoint was written without records that are here.
    Checkpoint,
    Records,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verified {
    pub ok: bool,
    pub records: u64,
    pub entities: u64,
    pub divergent: Vec<Divergence>,
    /// Recorded behind what the cache has seen, and not yet in their files: no drift.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<Divergence>,
    pub counters: Counters,
    /// The checkpoint that this clone began with: it is gone, and what it held with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_base: Option<std::path::PathBuf>,
    /// Places that redactions have left and that no person has let be; one that did not end counts. State equals log all the same.
    #[serde(skip_serializing_if = "crate::restore::is_zero")]
    pub redactions_open: u64,
    /// What else a person should know.
    pub warnings: Vec<String>,
}

impl Verified {
    fn is_whole(&self) -> bool {
        self.divergent.is_empty()
            && self.counters.errors() == 0
            && self.counters.seq_gaps == 0
            && self.counters.checkpoints_rejected == 0
            && self.counters.newer_records == 0
            && self.counters.misnamed_segments == 0
    }

    /// The files are all there is: nothing to hold them against.
    fn off() -> Self {
        Self {
            ok: true,
            records: 0,
            entities: 0,
            divergent: Vec::new(),
            behind: Vec::new(),
            counters: Counters::default(),
            lost_base: None,
            redactions_open: 0,
            warnings: vec![OFF.to_owned()],
        }
    }
}

impl Journal {
    /// The whole journal against the whole of the projections.
    ///
    /// Drift is said only of what nobody is about to write: a writer between its record and its file looks the same, and
    /// it may stand there for long on a busy machine. Nobody is there while the lock is ours; nothing is written under it.
    pub fn verify(&self) -> Result<Verified, JournalError> {
        let mut last = self.verify_once()?;
        if last.ok {
            return Ok(last);
        }
        if let Some(_quiet) = self.hold_still() {
            return self.verify_once();
        }
        // Not to be had: real drift is there at every look.
        let mut everywhere = last.divergent;
        for _ in 1..LOOKS_MAX {
            last = self.verify_once()?;
            if last.ok {
                return Ok(last);
            }
            everywhere.retain(|one| last.divergent.contains(one));
        }
        last.divergent = everywhere;
        last.ok = last.is_whole();
        Ok(last)
    }

    /// As it is now; under the lock there is nobody else to wait for.
    pub(crate) fn verify_once(&self) -> Result<Verified, JournalError> {
        if self.mode == Mode::Off {
            let mut report = Verified::off();
            // Turning the journal off is no way to forget what a redaction has left.
            report.redactions_open = self.redactions_open(&mut report.warnings);
            return Ok(report);
        }
        // IMPORTANT: before the segments. What is recorded meanwhile is not expected in its file.
        let projected_to = self.projected_to()?;
        // From the first record where it is still here: a checkpoint must not hide what it replaced.
        let newest = self.rebuild(0)?;
        let all = self.rebuild(usize::MAX)?;
        let oldest = self.all_segments()?.first().copied();
        let is_whole = oldest.map_or(newest.from.is_none(), |first| first == 1);
        let mut warnings = Vec::new();
        let (mut divergent, mut behind) = (Vec::new(), Vec::new());
        let rejected = self.rejected(&mut warnings)?;
        if is_whole {
            self.compare_rebuilds(&newest.replay.entities(), &all.replay, &mut divergent);
        }
        let mut counters = all.replay.counters.clone();
        if !is_whole {
            // Of an entity whose first records are not here the first that is seems to skip some.
            counters.rev_gaps = newest.replay.counters.rev_gaps;
        }
        // What a checkpoint covers is lost as history all the same; what no checkpoint holds, as state.
        let gaps = newest.replay.gaps.with(&all.replay.gaps);
        counters.seq_gaps = gaps.open().len() as u64;
        counters.seq_gaps_accepted = gaps.accepted_count();
        counters.checkpoints_rejected = rejected;
        if self.is_unadopted()? {
            self.not_taken_in(&newest.replay, &mut warnings)?;
        } else {
            let told = self.compare_files(&newest.replay, projected_to, &mut counters)?;
            divergent.extend(told.0);
            behind = told.1;
        }
        for (item_type, item_id) in &newest.replay.flagged {
            let reason = "its records contradict each other".to_owned();
            divergent.push(divergence(item_type, item_id, Cause::Records, reason));
        }
        if !behind.is_empty() {
            warnings.push(format!(
                "{} entities are recorded, and their files are not level yet: somebody is writing, or was killed behind the answer; whoever reads or writes next brings them level",
                behind.len()
            ));
        }
        counters.misnamed_segments = self.warn_of_misnamed(&mut warnings)?;
        self.remarks(&counters, &gaps, &mut warnings);
        self.warn_of_files(&newest.replay, &mut warnings)?;
        came_back(&all.replay.back, &mut warnings);
        warnings.extend(contents::warning(&self.lost_contents(&newest.replay)?));
        let mut report = Verified {
            ok: false,
            records: counters.records,
            entities: newest.replay.live_count(),
            divergent,
            behind,
            counters,
            lost_base: self.lost_base(&newest.replay.gaps)?,
            redactions_open: self.redactions_open(&mut warnings),
            warnings,
        };
        report.ok = report.is_whole();
        Ok(report)
    }

    /// Files that are no drift, and that a person should know of.
    fn warn_of_files(
        &self,
        replay: &crate::replay::Replay<crate::replay::Unknown>,
        warnings: &mut Vec<String>,
    ) -> Result<(), JournalError> {
        self.warn_of_strays(warnings)?;
        self.warn_of_lost_holds(replay, warnings)?;
        self.warn_of_pulled(replay, warnings)
    }

    /// Drift, and what is only not yet in its file.
    fn compare_files(
        &self,
        replay: &crate::replay::Replay<crate::replay::Unknown>,
        projected_to: u64,
        counters: &mut Counters,
    ) -> Result<(Vec<Divergence>, Vec<Divergence>), JournalError> {
        let (mut divergent, mut behind) = (Vec::new(), Vec::new());
        for (item_type, item_id, entity) in replay.entities() {
            if self.is_settled_below(replay, (item_type, item_id), entity)? {
                continue;
            }
            let told = match self.told_of_last_copy(replay, item_type, item_id)? {
                Some(reason) => Some((Cause::File, reason)),
                None => self.difference(item_type, item_id, entity, counters)?,
            };
            let told = told.map(|(cause, reason)| divergence(item_type, item_id, cause, reason));
            // A writer puts files behind its answer; where it was killed there, the next one does, or a reader.
            if entity.head.seq > projected_to {
                behind.extend(told);
            } else {
                divergent.extend(told);
            }
        }
        for (folder, name) in self.strangers(replay)? {
            let id = name.strip_suffix(".json").unwrap_or(&name);
            if self.is_lost_hold(replay, &folder, id)? {
                continue;
            }
            let lost = self.told_of_last_copy(replay, &folder, id)?;
            let reason =
                lost.unwrap_or_else(|| "the journal knows nothing of this file".to_owned());
            divergent.push(divergence(&folder, id, Cause::File, reason));
        }
        Ok((divergent, behind))
    }

    /// The last seq that the cache knows to be in the files; without a cache of this boot all of them should be.
    fn projected_to(&self) -> Result<u64, JournalError> {
        let meta = meta::read(self.disk(), &self.layout)?;
        let boot = self.boot();
        let meta = meta.good().filter(|meta| meta.survives(boot.as_deref()));
        Ok(meta.map_or(u64::MAX, |meta| meta.next_seq - 1))
    }

    /// What else a person should know.
    fn remarks(&self, counters: &Counters, gaps: &Gaps, warnings: &mut Vec<String>) {
        for (name, reason) in self.registry.broken() {
            // A file beside a type of Heddle's own takes nothing away.
            let what = if self.registry.get(name).is_some() {
                format!("the type {name} is Heddle's own, and this file is not used")
            } else {
                format!("the type {name} is not there")
            };
            warnings.push(format!("{what}: .heddle/schemas/{name}.json: {reason}"));
        }
        if counters.newer_records > 0 {
            warnings.push(format!(
                "{} records are of a newer heddle and are not understood here; use that one",
                counters.newer_records
            ));
        }
        if counters.seq_gaps > 0 {
            warnings.push(format!(
                "seqs are missing in {} places: records were removed or lost (seq {})",
                counters.seq_gaps,
                places(&gaps.open())
            ));
        } else if counters.seq_gaps_accepted > 0 {
            warnings.push(format!(
                "seqs are missing in {} places, and a person has accepted that",
                counters.seq_gaps_accepted
            ));
        } else if counters.rev_gaps > 0 {
            warnings.push("revisions are missing: the history is not complete".to_owned());
        }
        if counters.out_of_order > 0 {
            warnings.push(format!(
                "{} records stand behind later ones in their segment: no heddle writes them so, somebody has changed a file of .heddle/events; nothing is lost by that, they count, and each entity is as its newest revision has it",
                counters.out_of_order
            ));
        }
        if counters.duplicate_seq > 0 {
            warnings.push(format!(
                "{} seqs were taken by two writers: both records were applied, in file order",
                counters.duplicate_seq
            ));
        }
        if let Some(name) = self.disk().network_name(self.layout.root()) {
            warnings.push(format!(
                "the store lies on {name}: appends and locks are not safe there; move the repository to a local disk"
            ));
        }
    }

    /// A clone before its first write: files that differ are newer, and no drift.
    fn not_taken_in(
        &self,
        replay: &crate::replay::Replay<crate::replay::Unknown>,
        warnings: &mut Vec<String>,
    ) -> Result<(), JournalError> {
        let (mut newer, mut bad) = (0, 0);
        for (item_type, item_id) in self.entity_files()? {
            let entity = replay.get(&item_type, &item_id);
            match self.filed(&item_type, &item_id) {
                None => bad += 1,
                Some(held) => {
                    let is_recorded =
                        entity.is_some_and(|entity| self.is_recorded(&item_type, &held, entity));
                    newer += u64::from(!is_recorded);
                }
            }
        }
        if newer > 0 {
            warnings.push(format!(
                "{newer} files of this clone are newer than its checkpoint; the first write here takes them in"
            ));
        }
        if bad > 0 {
            warnings.push(format!(
                "{bad} files of this clone are no documents of their type and will not be taken in; mend them first"
            ));
        }
        Ok(())
    }

    fn rejected(&self, warnings: &mut Vec<String>) -> Result<u64, JournalError> {
        let mut rejected = 0;
        for head_seq in checkpoint::listed(self.disk(), &self.layout)? {
            if let Trust::Rejected(reason) = self.trust(head_seq)? {
                warnings.push(format!(
                    "the checkpoint of seq {head_seq} is not used: {reason}"
                ));
                rejected += 1;
            }
        }
        Ok(rejected)
    }

    /// JN-20: where a rebuild begins must not matter.
    pub(crate) fn compare_rebuilds(
        &self,
        newest: &[(&str, &str, &Entity)],
        all: &crate::replay::Replay<crate::replay::Unknown>,
        divergent: &mut Vec<Divergence>,
    ) {
        for (item_type, item_id, entity) in newest {
            if all.gaps.hold(entity.head.seq) {
                // Its record is lost, which is told as that; the checkpoint has what it said, and is the last that does.
                continue;
            }
            let same = all.get(item_type, item_id).is_some_and(|other| {
                other.head == entity.head
                    && (entity.head.is_deleted
                        || self.document(item_type, &other.body).ok()
                            == self.document(item_type, &entity.body).ok())
            });
            if !same {
                let reason = "the checkpoint and the journal disagree".to_owned();
                divergent.push(divergence(item_type, item_id, Cause::Checkpoint, reason));
            }
        }
        // Of one that the checkpoint does not know at all nothing is shown, and nothing is held by it.
        let known: BTreeSet<(&str, &str)> = newest.iter().map(|(t, id, _)| (*t, *id)).collect();
        for (item_type, item_id, entity) in all.entities() {
            if !entity.head.is_deleted && !known.contains(&(item_type, item_id)) {
                let reason = "the checkpoint does not know it, and the journal does".to_owned();
                divergent.push(divergence(item_type, item_id, Cause::Checkpoint, reason));
            }
        }
    }

    fn difference(
        &self,
        item_type: &str,
        item_id: &str,
        entity: &Entity,
        counters: &mut Counters,
    ) -> Result<Option<(Cause, String)>, JournalError> {
        let held = self.projection(item_type, item_id)?;
        let of_file = |reason: String| (Cause::File, reason);
        if entity.head.is_deleted {
            let reason = match held {
                None => None,
                Some(Err(_)) => {
                    // By design: what cannot be read is not unlinked.
                    counters.unparseable_kept += 1;
                    Some("deleted, but its file is no document and was kept".to_owned())
                }
                Some(Ok(_)) => Some("deleted, but its projection is still there".to_owned()),
            };
            return Ok(reason.map(of_file));
        }
        let document = match self.document(item_type, &entity.body) {
            Ok(document) => document,
            Err(reason) => {
                if self.is_outdated(item_type, &entity.body) {
                    // The record is sound: somebody has changed what its type asks for.
                    return Ok(Some((Cause::Version, reason)));
                }
                counters.invalid_documents += 1;
                let cause = match &entity.body {
                    _ if self.registry.get(item_type).is_none() => Cause::Type,
                    Body::Blob { sha256, .. }
                        if blobs::get(self.disk(), &self.layout, sha256).is_err() =>
                    {
                        Cause::Blob
                    }
                    _ => Cause::Records,
                };
                return Ok(Some((cause, reason)));
            }
        };
        let kept = Revisions::open(self.disk(), &self.layout.revisions());
        let kept = kept.and_then(|kept| kept.get(item_type, item_id).ok().flatten());
        let reason = match (held, kept) {
            (_, Some(kept)) if kept.head.is_deleted && kept.is_ahead_of(&entity.head) => Some(
                "the revision index knows that it is gone, and its record is here whole: an older copy of its segment was put back; `heddle doctor redact` erases it again".to_owned(),
            ),
            (None, _) => Some("its projection is missing".to_owned()),
            (Some(Err(error)), _) => Some(format!("its projection is no document: {error}")),
            (Some(Ok(held)), _)
                if !self
                    .registry
                    .same_but_ephemeral(item_type, &held, &document) =>
            {
                Some("its projection differs from the journal".to_owned())
            }
            (_, None) => Some("the revision index does not know it".to_owned()),
            (_, Some(kept)) if kept.head.rev != entity.head.rev => Some(format!(
                "the revision index says {}, the journal {}",
                kept.head.rev, entity.head.rev
            )),
            _ => None,
        };
        Ok(reason.map(of_file))
    }

    /// Files that no record explains, and of which it is not known either that another store's do: folder and name.
    pub(crate) fn strangers(
        &self,
        replay: &crate::replay::Replay<crate::replay::Unknown>,
    ) -> Result<Vec<Stranger>, JournalError> {
        let all = self.all_strangers(replay)?;
        Ok(self.parted_strangers(replay, all).0)
    }

    pub(crate) fn all_strangers(
        &self,
        replay: &crate::replay::Replay<crate::replay::Unknown>,
    ) -> Result<Vec<Stranger>, JournalError> {
        let entities = self.layout.entities();
        let mut strangers = Vec::new();
        for family in self.disk().list(&entities).at(&entities)? {
            let folder = entities.join(&family.name);
            if !family.is_dir {
                continue;
            }
            for file in self.disk().list(&folder).at(&folder)? {
                let is_temporary = file.name.starts_with('.');
                let id = file.name.strip_suffix(".json").unwrap_or(&file.name);
                if !is_temporary && replay.get(&family.name, id).is_none() {
                    strangers.push((family.name.clone(), file.name));
                }
            }
        }
        Ok(strangers)
    }
}

fn divergence(item_type: &str, item_id: &str, cause: Cause, reason: String) -> Divergence {
    Divergence {
        item_type: item_type.to_owned(),
        item_id: item_id.to_owned(),
        reason,
        cause,
    }
}

/// Seqs of what was erased, where an old copy of a file has brought the content back.
fn came_back(seqs: &BTreeSet<u64>, warnings: &mut Vec<String>) {
    let back: Vec<[u64; 2]> = seqs.iter().map(|seq| [*seq, *seq]).collect();
    if !back.is_empty() {
        warnings.push(format!(
            "erased content came back with an old copy of a file, and is not used: seq {}; `heddle doctor redact --seq N --reason REASON` erases it again",
            places(&back)
        ));
    }
}
