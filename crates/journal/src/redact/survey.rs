//! What a redaction would erase: found by reading everything, before anything is changed.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::PathBuf;

use serde_json::value::RawValue;

use crate::action::ActionClass;
use crate::blobs;
use crate::checkpoint::{self, MANIFEST_BYTES_MAX, ManifestEntity};
use crate::disk::Looked;
use crate::error::{At, JournalError};
use crate::federation::is_conflict;
use crate::format::{BLOB_BYTES_MAX, SEGMENT_BYTES_MAX, checkpoint_seq, is_sha256, segment_seq};
use crate::journal::Journal;
use crate::layout::Layout;
use crate::record::{Record, decode};

use super::Target;
use super::job::{Erased, Job};
use super::needles::{Matcher, Needles};
use super::{ids, line, scrub};

/// What was found of the target.
pub(crate) struct Survey {
    pub(crate) needles: Needles,
    /// What others hold as well, and who: it cannot be erased with the target.
    pub(crate) also_in: BTreeSet<String>,
    pub(crate) segments: BTreeSet<String>,
    /// Blobs that were gone before: nobody knows what they said.
    pub(crate) lost: u64,
    /// A blob is here and cannot be read, so that what it says is looked for nowhere.
    pub(crate) is_blind: bool,
}

/// What a blob says, wherever a copy of it lies.
enum Blob {
    Says(serde_json::Value),
    Unread,
    Gone,
}

impl Survey {
    fn take(&mut self, blob: Blob) {
        match blob {
            Blob::Says(document) => content_of(&document, &mut self.needles),
            Blob::Unread => self.is_blind = true,
            Blob::Gone => self.lost += 1,
        }
    }
}

impl Journal {
    /// The store and the copies of it that it keeps. A link in the place of their folder is followed by nobody: the search names it.
    pub(crate) fn layouts(&self) -> Result<Vec<Layout>, JournalError> {
        let mut all = vec![self.layout.clone()];
        let backups = self.layout.backups();
        match self.disk().check_dir(&backups) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Other) => {
                return Ok(all);
            }
            checked => checked.at(&backups)?,
        }
        for entry in self.disk().list(&backups).at(&backups)? {
            if entry.is_dir {
                all.push(Layout::new(backups.join(&entry.name)));
            }
        }
        Ok(all)
    }

    /// Segments of a store or a copy, live and archived.
    pub(crate) fn segment_files(&self, layout: &Layout) -> Result<Vec<PathBuf>, JournalError> {
        self.files_in(&[layout.archive(), layout.events()], |name| {
            segment_seq(name).is_some()
        })
    }

    pub(crate) fn checkpoint_files(&self, layout: &Layout) -> Result<Vec<PathBuf>, JournalError> {
        let folders = [layout.archived_checkpoints(), layout.checkpoints()];
        self.files_in(&folders, |name| checkpoint_seq(name).is_some())
    }

    fn files_in(
        &self,
        folders: &[PathBuf],
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<PathBuf>, JournalError> {
        let mut found = Vec::new();
        for folder in folders {
            for entry in self.disk().list(folder).at(folder)? {
                if !entry.is_dir && is_wanted(&entry.name) {
                    found.push(folder.join(&entry.name));
                }
            }
        }
        Ok(found)
    }

    /// Fills the job with the records of a target.
    pub(crate) fn find_target(&self, target: &Target, job: &mut Job) -> Result<(), JournalError> {
        for layout in self.layouts()? {
            for path in self.segment_files(&layout)? {
                let bytes = self.disk().read(&path, SEGMENT_BYTES_MAX).at(&path)?;
                for place in scrub::lines(&bytes) {
                    let old = &bytes[place];
                    if let Ok((record, crc)) = decode(old)
                        && target.is(&record)
                    {
                        self.take(old, &record, crc, job)?;
                    }
                }
            }
            if let Target::Item { item_id, .. } = target {
                self.find_in_checkpoints(&layout, target, item_id, job)?;
            }
        }
        job.records.sort_by_key(|e| e.seq);
        job.records.dedup();
        job.blobs.sort_unstable();
        job.blobs.dedup();
        job.entities.sort_unstable();
        job.entities.dedup();
        Ok(())
    }

    fn take(
        &self,
        old: &[u8],
        record: &Record<'_>,
        crc: u32,
        job: &mut Job,
    ) -> Result<(), JournalError> {
        if record.action.class(self.mode) == ActionClass::JournalMeta {
            return Err(JournalError::refused(
                "this record is the journal's own and holds no content of anybody; name the record that does",
            ));
        }
        if line::has_content(record) {
            let blob = record.payload_ref.as_ref();
            let blob = blob.and_then(|blob| self.blob_document(blob.sha256.as_str()));
            let drops_id = line::tells_content(record, blob.as_ref())?;
            job.records.push(Erased {
                seq: record.seq,
                writer: record.writer.as_str().to_owned(),
                crc,
                new_crc: crate::record::line_crc(&line::erased_with(old, drops_id)?)?,
                drops_id,
            });
        }
        if let Some(blob) = &record.payload_ref {
            job.blobs.push(blob.sha256.as_str().to_owned());
        }
        if let Some(id) = &record.item_id {
            let entity = (record.item_type.as_str().to_owned(), id.as_str().to_owned());
            job.entities.push(entity);
        }
        Ok(())
    }

    /// A clone has no segments: its checkpoints are all that knows the item.
    fn find_in_checkpoints(
        &self,
        layout: &Layout,
        target: &Target,
        item_id: &str,
        job: &mut Job,
    ) -> Result<(), JournalError> {
        for path in self.checkpoint_files(layout)? {
            let bytes = self.disk().read(&path, MANIFEST_BYTES_MAX).at(&path)?;
            let Ok(manifest) = checkpoint::parse(&bytes) else {
                continue;
            };
            // One that was erased before is here, and there is nothing to do.
            for entity in manifest.entities.iter().chain(&manifest.tombstones) {
                if target.is_item(entity.item_type.as_str(), entity.item_id.as_str()) {
                    let t = entity.item_type.as_str().to_owned();
                    job.entities.push((t, item_id.to_owned()));
                    let blob = entity.payload_ref.as_ref();
                    job.blobs.extend(blob.map(|r| r.sha256.as_str().to_owned()));
                }
            }
        }
        Ok(())
    }

    /// The new form of every checkpoint that holds content of the job, by its old SHA-256.
    pub(crate) fn plan_checkpoints(&self, job: &mut Job) -> Result<(), JournalError> {
        for layout in self.layouts()? {
            for path in self.checkpoint_files(&layout)? {
                let bytes = self.disk().read(&path, MANIFEST_BYTES_MAX).at(&path)?;
                if let Ok(Some((_, reference))) = scrub::manifest(&bytes, job) {
                    let before = blobs::sha256_hex(&bytes);
                    let kept = checkpoint::parse(&bytes).map_or(Vec::new(), |m| m.blobs);
                    let gone = kept
                        .into_iter()
                        .filter(|blob| !reference.blobs.contains(blob));
                    job.blobs.extend(gone);
                    job.checkpoints.insert(before, reference);
                }
            }
        }
        job.blobs.sort_unstable();
        job.blobs.dedup();
        Ok(())
    }

    /// The texts that must be gone, and those that stay because others hold them.
    pub(crate) fn survey(&self, job: &mut Job) -> Result<Survey, JournalError> {
        let mut survey = Survey {
            needles: Needles::default(),
            also_in: BTreeSet::new(),
            segments: BTreeSet::new(),
            lost: 0,
            is_blind: false,
        };
        let mut blobs: BTreeSet<String> = job.blobs.iter().cloned().collect();
        let mut kept_blobs = BTreeSet::new();
        self.each_record(|path, record, _| {
            if job.names(record) {
                let name = path.file_name().unwrap_or_default();
                survey.segments.insert(name.to_string_lossy().into_owned());
                content_of_record(record, &mut survey.needles);
                let blob = record.payload_ref.as_ref();
                blobs.extend(blob.map(|blob| blob.sha256.as_str().to_owned()));
            } else if let Some(blob) = &record.payload_ref {
                kept_blobs.insert(blob.sha256.as_str().to_owned());
            }
        })?;
        for sha256 in &blobs {
            survey.take(self.blob(sha256));
        }
        // What a clone has of an entity is in its checkpoints alone.
        self.each_image(|entity| {
            if is_hit(job, entity)
                && let Some(document) = document_of(entity)
            {
                content_of(&document, &mut survey.needles);
            }
        })?;
        self.take_own_names(job, &kept_blobs, &mut survey.needles)?;
        let matcher = survey.needles.matcher()?;
        let mut held = BTreeSet::new();
        self.each_record(|_, record, old| {
            if job.names(record) || record.redacted.is_some() || !matcher.is_in(old) {
                return;
            }
            // The id of a request is no content to be kept, where it is all that says so.
            let bare = ids::is_bare(record).then(|| line::unnamed(old));
            let bare = bare.and_then(Result::ok);
            let found = matcher.found(bare.as_deref().unwrap_or(old));
            if !found.is_empty() {
                held.extend(found);
                survey.also_in.insert(name_of(record));
            }
        })?;
        for sha256 in &kept_blobs {
            self.held_by_blob(sha256, &matcher, &mut held, &mut survey.also_in);
        }
        self.each_image(|entity| {
            if is_hit(job, entity) {
                return;
            }
            let text = entity.payload.map_or("", RawValue::get);
            let found = matcher.found(text.as_bytes());
            // One of this store's own records has named it already.
            if found.iter().any(|text| !held.contains(text)) {
                let (t, id) = (entity.item_type.as_str(), entity.item_id.as_str());
                survey.also_in.insert(format!("{t} {id} of a checkpoint"));
                held.extend(found);
            }
        })?;
        job.blobs.retain(|blob| !kept_blobs.contains(blob));
        survey.needles = survey.needles.without(&held);
        Ok(survey)
    }

    /// Whether all is still there that a job would erase. One of a build that erased first may have been cut off behind that.
    pub(crate) fn knows_all(&self, job: &Job) -> Result<bool, JournalError> {
        let mut seen = BTreeSet::new();
        self.each_record(|_, record, _| {
            if line::has_content(record) && job.names(record) {
                seen.insert((record.seq, record.writer.as_str().to_owned()));
            }
        })?;
        let mut checkpoints = BTreeSet::new();
        for layout in self.layouts()? {
            for path in self.checkpoint_files(&layout)? {
                let bytes = self.disk().read(&path, MANIFEST_BYTES_MAX).at(&path)?;
                checkpoints.insert(blobs::sha256_hex(&bytes));
            }
        }
        let mut records = job.records.iter();
        let has_blob = |sha256: &String| self.blob_document(sha256).is_some();
        Ok(
            records.all(|erased| seen.contains(&(erased.seq, erased.writer.clone())))
                && job.blobs.iter().all(has_blob)
                && job.checkpoints.keys().all(|sum| checkpoints.contains(sum)),
        )
    }

    fn held_by_blob(
        &self,
        sha256: &str,
        matcher: &Matcher,
        held: &mut BTreeSet<String>,
        also_in: &mut BTreeSet<String>,
    ) {
        if let Ok(bytes) = blobs::get(self.disk(), &self.layout, sha256) {
            let found = matcher.found(&bytes);
            if !found.is_empty() {
                also_in.insert(format!("blob {sha256}"));
                held.extend(found);
            }
        }
    }

    pub(crate) fn each_record(
        &self,
        mut each: impl FnMut(&std::path::Path, &Record<'_>, &[u8]),
    ) -> Result<(), JournalError> {
        for layout in self.layouts()? {
            for path in self.segment_files(&layout)? {
                let bytes = self.disk().read(&path, SEGMENT_BYTES_MAX).at(&path)?;
                for place in scrub::lines(&bytes) {
                    let old = &bytes[place];
                    if let Ok((record, _)) = decode(old) {
                        each(&path, &record, old);
                    }
                }
            }
        }
        Ok(())
    }

    /// What the checkpoints hold, of this store and of its copies. One that is not sound holds nothing that counts.
    fn each_image(&self, mut each: impl FnMut(&ManifestEntity<'_>)) -> Result<(), JournalError> {
        for layout in self.layouts()? {
            for path in self.checkpoint_files(&layout)? {
                let bytes = self.disk().read(&path, MANIFEST_BYTES_MAX).at(&path)?;
                if let Ok(manifest) = checkpoint::parse(&bytes) {
                    manifest.entities.iter().for_each(&mut each);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn blob_document(&self, sha256: &str) -> Option<serde_json::Value> {
        match self.blob(sha256) {
            Blob::Says(document) => Some(document),
            Blob::Unread | Blob::Gone => None,
        }
    }

    /// The live one may be archived, or gone from here and not from a backup. One with a second name says the same, and who only
    /// wants to know what to look for may read it.
    fn blob(&self, sha256: &str) -> Blob {
        let held = self.layouts().unwrap_or_default();
        let places = held
            .iter()
            .flat_map(|layout| [layout.blob(sha256), layout.archived_blobs().join(sha256)])
            .filter(|_| is_sha256(sha256));
        let mut is_there = false;
        for path in places {
            let look = || self.disk().look(&path, BLOB_BYTES_MAX as u64);
            // Once more where it fails: a machine may be short of something for a moment, and this is the last time that anybody can ask.
            let document = match look().or_else(|_| look()) {
                Ok(Looked::File(bytes)) => serde_json::from_slice(&bytes).ok(),
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Ok(_) | Err(_) => None,
            };
            if let Some(document) = document {
                return Blob::Says(document);
            }
            is_there = true;
        }
        if is_there { Blob::Unread } else { Blob::Gone }
    }
}

fn content_of_record(record: &Record<'_>, needles: &mut Needles) {
    let id = record.item_id.as_ref().map_or("", |id| id.as_str());
    let is_ours = is_conflict(record.item_type.as_str(), id);
    if let Some(summary) = record.summary.as_ref().filter(|_| !is_ours) {
        needles.text(summary.as_str());
    }
    let payload = record.payload.map(RawValue::get);
    if let Some(document) = payload.and_then(|text| serde_json::from_str(text).ok()) {
        content_of(&document, needles);
    }
}

pub(super) fn is_hit(job: &Job, entity: &ManifestEntity<'_>) -> bool {
    let (t, id) = (entity.item_type.as_str(), entity.item_id.as_str());
    job.crc_after(t, id, entity.seq, entity.crc).is_some()
}

fn document_of(entity: &ManifestEntity<'_>) -> Option<serde_json::Value> {
    entity
        .payload
        .and_then(|text| serde_json::from_str(text.get()).ok())
}

/// Of a conflict candidate only the images: the rest of it is our own words and the names of origins.
fn content_of(document: &serde_json::Value, needles: &mut Needles) {
    match document["images"].as_array() {
        Some(images) if document["kind"] == "conflict" => {
            for image in images {
                needles.document(&image["document"]);
            }
        }
        _ => needles.document(document),
    }
}

pub(super) fn name_of(record: &Record<'_>) -> String {
    let id = record.item_id.as_ref().map_or("", |id| id.as_str());
    format!("seq {} ({} {id})", record.seq, record.item_type.as_str())
}
