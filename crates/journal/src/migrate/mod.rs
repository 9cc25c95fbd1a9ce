//! Migration: a journal that begins with what a folder of entity files holds, and the way back.
//!
//! Genesis writes one `backfill` an entity and, as the very last record, the note that says so (C28): until
//! that is on the disk the mode stays `off`, and a second run completes the first. Every change of the mode
//! keeps a whole copy of the store. The way back changes no document: projections are the old format.

mod adopt;
mod backup;
mod parking;
mod source;

pub(crate) use adopt::OF_CLONE;

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::action::{Action, Mode};
use crate::checkpoint;
use crate::disk::{Disk, replace};
use crate::error::{At, JournalError};
use crate::journal::{Journal, Who, World};
use crate::layout::Layout;
use crate::lines::{Counted, Damage, Sink, scan};
use crate::mutate::{Change, Plan, Request};
use crate::notes::{MetaPayload, Note, StoreOp};
use crate::registry::Registry;
use crate::segments;
use crate::session::Session;

/// Of one batch; its bytes are bounded by the writer.
const BATCH_ENTITIES: usize = 512;
const BATCH_TEXT_BYTES: usize = 4 << 20;
const REFUSED_SHOWN_MAX: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Migrated {
    pub mode: Mode,
    pub from: Mode,
    /// Entities that the journal begins with; none where it had begun already.
    pub backfilled: u64,
    pub entities: u64,
    /// Lines of the old log, which was parked as it is.
    pub events_parked: u64,
    /// Files that were no entity and were left out, as asked.
    pub left_out: Vec<String>,
    /// Files that lie in no folder of a type, or are no entity of theirs: nobody looked into them.
    pub ignored: Vec<String>,
    /// Folders that are not of the present (an archive, sessions, messages), and how many files each has.
    pub passed_over: Vec<String>,
    /// Entities of the folder that this store has in another form already: its own stay.
    pub kept: Vec<String>,
    /// The folder of an older store that is here and that nothing was taken from: the journal had begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_taken: Option<PathBuf>,
    /// The copy of the store as it was before.
    pub backup: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RolledBack {
    pub mode: Mode,
    pub from: Mode,
    pub backup: Option<PathBuf>,
}

impl Journal {
    /// Brings a store to a mode. `source` is the folder of entity files that a new one begins with.
    pub fn migrate(
        world: World,
        root: &Path,
        who: Who,
        source: Option<&Path>,
        to: Mode,
        leave_out_bad: bool,
    ) -> Result<Migrated, JournalError> {
        if to == Mode::Off {
            return Err(JournalError::refused(
                "a migration goes to dual, primary or registryPrimary; `heddle journal rollback` turns the journal off",
            ));
        }
        Self::check_config(&*world.disk, root)?;
        if !Self::is_at(&*world.disk, root)? {
            // IMPORTANT: first. A migration that is refused leaves no journal behind that says it is off.
            Self::check_folder(&*world.disk, root, source, leave_out_bad)?;
        }
        let mut journal = Self::init_as(world, root, who, Mode::Off)?;
        let from = journal.mode;
        if to < from {
            return Err(JournalError::Refused(format!(
                "the journal is {}, and a migration goes forward; `heddle journal rollback --to {}` goes back",
                from.as_str(),
                to.as_str()
            )));
        }
        let mut migrated = Migrated {
            mode: to,
            from,
            backfilled: 0,
            entities: 0,
            events_parked: 0,
            left_out: Vec::new(),
            ignored: Vec::new(),
            passed_over: Vec::new(),
            kept: Vec::new(),
            not_taken: None,
            backup: None,
        };
        let found = journal.found(source, &mut migrated)?;
        if let Some(found) = found.as_ref().filter(|_| !leave_out_bad) {
            check_found(found, source)?;
        }
        if from != to || found.is_some() {
            let mut session = journal.session()?;
            migrated.backup = Some(journal.back_up(from, to)?);
            if let Some(found) = found {
                let named = source.unwrap_or(root).display().to_string();
                session.genesis(&found, &named, &mut migrated)?;
                migrated.left_out = found.refused;
                migrated.ignored = found.ignored;
                migrated.passed_over = found.passed_over;
            }
            // IMPORTANT: last. A store that is not off has its genesis whole on the disk.
            journal.put_mode(to)?;
            session.write_meta_as(false, to)?;
            drop(session);
            journal.mode = to;
        }
        migrated.entities = journal.rebuild(0)?.replay.live_count();
        Ok(migrated)
    }

    /// What a genesis begins with; None where there is none to write.
    fn found(
        &self,
        source: Option<&Path>,
        migrated: &mut Migrated,
    ) -> Result<Option<source::Source>, JournalError> {
        let is_off = self.mode == Mode::Off;
        let began_with = genesis_of(self)?;
        match (source, &began_with) {
            (None, _) if !is_off => return Ok(None),
            // The same again changes nothing.
            (Some(folder), Some(began)) if !is_off && began.0 == folder.display().to_string() => {
                return Ok(None);
            }
            (Some(folder), Some(began)) if !is_off => return Err(began_already(folder, began)),
            _ => {}
        }
        if !is_off && !self.is_unbegun()? {
            return Err(JournalError::refused(
                "the journal has records already, and takes a folder in only before its first one; `heddle journal append` records a file as it is",
            ));
        }
        if began_with.is_some() {
            // It was whole when a crash came: nothing is read again, and nothing can be refused.
            return Ok(Some(source::Source::default()));
        }
        let kept = &mut migrated.kept;
        gather(self.disk(), &self.registry, &self.layout, source, kept).map(Some)
    }

    /// What would be refused, where there is no store yet.
    fn check_folder(
        disk: &dyn Disk,
        root: &Path,
        source: Option<&Path>,
        leave_out_bad: bool,
    ) -> Result<(), JournalError> {
        let layout = Layout::new(root);
        let registry = crate::journal::registry(disk, &layout)?;
        let found = gather(disk, &registry, &layout, source, &mut Vec::new())?;
        if leave_out_bad {
            return Ok(());
        }
        check_found(&found, source)
    }

    /// Nothing was ever recorded here.
    fn is_unbegun(&self) -> Result<bool, JournalError> {
        let has_checkpoint = !checkpoint::listed(self.disk(), &self.layout)?.is_empty();
        let segments = self.all_segments()?;
        let path = self.layout.segment(1);
        let is_empty = matches!(self.disk().len(&path), Ok(None | Some(0)));
        Ok(!has_checkpoint && is_empty && segments.iter().all(|first| *first == 1))
    }

    /// Whether a store takes in the folder of an older one by itself: not once it has had a journal of its own.
    pub fn begins_with_folder(world: &World, root: &Path) -> Result<bool, JournalError> {
        let layout = Layout::new(root);
        let backups = layout.backups();
        // First: a rollback that was cut is ended by it.
        let opened = Self::open(world.clone(), root, Who::default());
        let kept = world.disk.list(&backups).at(&backups)?;
        if kept
            .iter()
            .any(|entry| entry.name.ends_with(parking::ROLLED_BACK))
        {
            return Ok(false);
        }
        match opened {
            Ok(journal) => Ok(journal.mode == Mode::Off || journal.is_unbegun()?),
            Err(JournalError::NoStore(_)) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Whether this journal began with what a folder of that name held, here or where the repository was before.
    pub fn began_with(world: &World, root: &Path, folder: &Path) -> Result<bool, JournalError> {
        let journal = Self::open(world.clone(), root, Who::default())?;
        let mut finder = Genesis(None);
        // Also what gc has moved.
        for first in journal.all_segments()? {
            let bytes = segments::read(journal.disk(), &journal.layout, first)?;
            scan(&bytes, 0, &mut finder);
        }
        let began = finder.0.map(|(began, _)| PathBuf::from(began));
        Ok(began.is_some_and(|began| began.file_name() == folder.file_name()))
    }

    /// Back to an earlier mode. Off parks the journal; the projections stay byte for byte.
    pub fn roll_back(&mut self, to: Mode) -> Result<RolledBack, JournalError> {
        let from = self.mode;
        if to > from {
            return Err(JournalError::Refused(format!(
                "the journal is {}; `heddle journal migrate` goes forward",
                from.as_str()
            )));
        }
        let mut backup = None;
        if to != from {
            let this = &*self;
            // Projections level with the journal first: they are what remains.
            let mut session = this.session()?;
            let marker = MetaPayload::Note(Note::StoreMarker {
                op: StoreOp::Rollback,
                detail: format!("{} to {}", from.as_str(), to.as_str()),
            });
            let draft = session.meta_draft(&marker)?;
            session.write(&[draft])?;
            session.reconcile_full()?;
            backup = Some(this.back_up(from, to)?);
            if to == Mode::Off {
                this.announce_parking()?;
            }
            // IMPORTANT: before the mode. Whoever has the store open takes a cache of its own mode at its word.
            session.write_meta_as(false, to)?;
            this.put_mode(to)?;
            if let Some(parked) = this.end_parking(to)? {
                backup = Some(parked);
                // What is parked is not remembered here.
                session.signed = u64::MAX;
            }
            drop(session);
            self.mode = to;
        } else if to == Mode::Off && !self.parkable()?.is_empty() {
            // Of a mode that came from elsewhere. Under the lock, which stays where it is.
            let path = self.layout.lock();
            let guard = self.disk().try_lock(&path).at(&path)?;
            let _guard = guard.ok_or_else(|| self.busy(std::time::Duration::ZERO))?;
            self.announce_parking()?;
            backup = self.end_parking(to)?;
        }
        Ok(RolledBack {
            mode: to,
            from,
            backup,
        })
    }
}

fn refused_files(refused: &[String]) -> JournalError {
    let shown: Vec<&str> = refused
        .iter()
        .take(REFUSED_SHOWN_MAX)
        .map(String::as_str)
        .collect();
    JournalError::Refused(format!(
        "{} files are no entities of their type, and nothing was migrated; mend them or pass --leave-out-bad:\n  {}",
        refused.len(),
        shown.join("\n  ")
    ))
}

/// A journal that begins empty beside a folder that is not would pass for a migration.
fn nothing_found(source: &Path, ignored: &[String]) -> JournalError {
    let shown: Vec<&str> = ignored
        .iter()
        .take(REFUSED_SHOWN_MAX)
        .map(String::as_str)
        .collect();
    JournalError::Refused(format!(
        "no entity was found in {}, and nothing was migrated: {} files lie in no folder of a type (plans/, decisions/, claims/, …, also inside of others); name the folder that has these, or pass --leave-out-bad to begin without them:\n  {}",
        source.display(),
        ignored.len(),
        shown.join("\n  ")
    ))
}

impl Session<'_> {
    fn genesis(
        &mut self,
        found: &source::Source,
        named: &str,
        migrated: &mut Migrated,
    ) -> Result<(), JournalError> {
        let journal = self.journal;
        if has_genesis(journal)? {
            // A run before this one died while it wrote the files. A roll on its way had called everything
            // before it level, so the gap alone would leave those out.
            return self.reconcile_full();
        }
        if self.next_seq > 1 {
            // The same before its end: what it recorded must be known, or it would be recorded twice.
            self.reconcile_full()?;
        }
        if let Some(log) = &found.log {
            let (path, folder) = (journal.layout.parked_log(), journal.layout.archive());
            let events = journal.layout.events();
            journal.disk().create_dir(&folder).at(&folder)?;
            journal.disk().sync_dir(&events).at(&events)?;
            for name in source::LOGS {
                let from = journal.layout.root().join(name);
                journal.follow_part(&from, &path, log.len() as u64)?;
            }
            replace(journal.disk(), &path, log, true).at(&path)?;
            migrated.events_parked = memchr::memchr_iter(b'\n', log).count() as u64;
        }
        let mut waiting: Vec<&(String, String, Value)> = Vec::new();
        let mut bytes = 0;
        for entity in &found.entities {
            if self.is_there(entity)? {
                continue;
            }
            waiting.push(entity);
            bytes += entity.2.to_string().len();
            if waiting.len() >= BATCH_ENTITIES || bytes >= BATCH_TEXT_BYTES {
                self.backfill(&waiting, None)?;
                waiting.clear();
                bytes = 0;
            }
        }
        let count = found.entities.len() as u64;
        let marker = MetaPayload::Note(Note::Genesis {
            migrated_from: named.to_owned(),
            first_seq: None,
            v1_events_parked: migrated.events_parked,
            backfill_count: count,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        });
        self.backfill(&waiting, Some(&marker))?;
        migrated.backfilled = count;
        // Not file by file: one that is level keeps its very bytes.
        self.reconcile_anew()?;
        self.checkpoint_if_rolled()
    }

    /// Once, at the end: the state once a segment would grow with the square of what is taken in.
    pub(crate) fn checkpoint_if_rolled(&mut self) -> Result<(), JournalError> {
        let live = segments::live(self.journal.disk(), &self.journal.layout)?;
        if live.len() > 1 {
            self.checkpoint()?;
        }
        Ok(())
    }

    /// From a run before this one, that a crash ended.
    fn is_there(&mut self, entity: &(String, String, Value)) -> Result<bool, JournalError> {
        let journal = self.journal;
        let kept = self.head(&entity.0, &entity.1)?;
        let is_live = kept.is_some_and(|kept| !kept.head.is_deleted);
        let held = journal.projection(&entity.0, &entity.1)?;
        Ok(is_live && held.is_some_and(|held| held.as_ref() == Ok(&entity.2)))
    }

    pub(crate) fn backfill(
        &mut self,
        entities: &[&(String, String, Value)],
        marker: Option<&MetaPayload>,
    ) -> Result<(), JournalError> {
        let change = |(item_type, item_id, document): &(String, String, Value)| Change {
            item_type: item_type.clone(),
            item_id: Some(item_id.clone()),
            action: Some(Action::Backfill),
            document: Some(document.clone()),
            summary: None,
        };
        let request = Request {
            writer: self.journal.writer.clone(),
            who: self.journal.who.clone(),
            changes: entities.iter().map(|entity| change(entity)).collect(),
            key: None,
        };
        let mut plan = Plan::default();
        plan.add(self, &request)?;
        if let Some(marker) = marker {
            plan.drafts.push(self.meta_draft(marker)?);
        }
        if self.bytes >= self.journal.settings.roll_bytes {
            self.next_segment()?;
        }
        self.write(&plan.drafts).map(drop)
    }
}

/// The files of this store, and of the folder what it has beside.
fn gather(
    disk: &dyn Disk,
    registry: &Registry,
    layout: &Layout,
    source: Option<&Path>,
    kept: &mut Vec<String>,
) -> Result<source::Source, JournalError> {
    let own = source::read_own(disk, registry, &layout.entities())?;
    let Some(folder) = source else {
        return Ok(own);
    };
    let theirs = source::read(disk, registry, folder)?;
    Ok(own.over(theirs, kept))
}

/// All of it can be taken in, and where a folder was named there is something.
fn check_found(found: &source::Source, source: Option<&Path>) -> Result<(), JournalError> {
    if !found.refused.is_empty() {
        return Err(refused_files(&found.refused));
    }
    let Some(source) = source.filter(|_| found.entities.is_empty()) else {
        return Ok(());
    };
    let is_json = |file: &&String| Path::new(file).extension() == Some("json".as_ref());
    let documents: Vec<String> = found.ignored.iter().filter(is_json).cloned().collect();
    if documents.is_empty() {
        return Ok(());
    }
    Err(nothing_found(source, &documents))
}

/// Whether a genesis has come to its end here.
fn has_genesis(journal: &Journal) -> Result<bool, JournalError> {
    Ok(genesis_of(journal)?.is_some())
}

/// What the journal began with, and how many entities that were.
fn genesis_of(journal: &Journal) -> Result<Option<(String, u64)>, JournalError> {
    let mut finder = Genesis(None);
    for first in segments::live(journal.disk(), &journal.layout)? {
        let bytes = segments::read(journal.disk(), &journal.layout, first)?;
        scan(&bytes, 0, &mut finder);
    }
    Ok(finder.0)
}

/// Said, and not passed over: whoever names a folder wants what is in it.
fn began_already(folder: &Path, (began, count): &(String, u64)) -> JournalError {
    JournalError::Refused(format!(
        "nothing was taken in from {}: the journal began with {count} entities of {began}, and takes a folder in only before its first record; `heddle journal rollback`, then this again, begins anew with its own files and what {} has beside; `heddle journal append` records a single file",
        folder.display(),
        folder.display()
    ))
}

struct Genesis(Option<(String, u64)>);

impl<'a> Sink<'a> for Genesis {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        for record in batch.iter().map(|counted| &counted.record) {
            let payload = record.payload.map(serde_json::value::RawValue::get);
            let parsed = payload.and_then(|text| MetaPayload::parse(record.action, text));
            if let Some(MetaPayload::Note(Note::Genesis {
                migrated_from,
                backfill_count,
                ..
            })) = parsed
            {
                self.0 = Some((migrated_from, backfill_count));
            }
        }
    }

    fn damage(&mut self, _: Damage) {}
}
