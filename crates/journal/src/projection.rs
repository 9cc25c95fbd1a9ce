//! Projections: one JSON file an entity, always behind the journal, never before it.

use std::borrow::Cow;
use std::path::Path;

use serde_json::Value;

use crate::batch::Written;
use crate::blobs;
use crate::disk::{is_not_plain, read_if_there, replace};
use crate::error::{At, JournalError};
use crate::format::BLOB_BYTES_MAX;
use crate::journal::Journal;
use crate::layout::Layout;
use crate::loss::Lost;
use crate::meta::Meta;
use crate::newer;
use crate::reduce::Head;
use crate::replay::{Body, Entity, Known, Replay};
use crate::revisions::{Kept, Revisions};
use crate::segments;
use crate::session::Session;
use crate::text::to_text;

/// A pretty document is longer than its payload; by how much is the nesting's affair.
pub(crate) const PROJECTION_BYTES_MAX: u64 = 8 * BLOB_BYTES_MAX as u64;

/// The revision index as what a replay knows; a damaged slot is remembered, not believed.
pub(crate) struct Indexed<'a, 'd> {
    revisions: &'a Revisions<'d>,
    failed: std::cell::Cell<bool>,
}

impl Known for Indexed<'_, '_> {
    fn head(&self, item_type: &str, item_id: &str) -> Option<Head> {
        match self.revisions.get(item_type, item_id) {
            Ok(kept) => kept.map(|kept| kept.head),
            Err(_) => {
                self.failed.set(true);
                None
            }
        }
    }
}

/// A document as its file has it.
pub(crate) fn pretty(document: &Value) -> Result<Vec<u8>, JournalError> {
    let mut bytes = serde_json::to_vec_pretty(document).map_err(JournalError::refused)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// What became of a projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Projected {
    /// The file holds the document with this mark; 0: there is none.
    Level(u32),
    /// The document could not be read; the file stays as it was.
    Divergent,
}

impl Projected {
    pub(crate) fn kept(self, head: Head) -> Kept {
        Kept {
            head,
            is_divergent: self == Self::Divergent,
            document: match self {
                Self::Level(mark) => mark,
                Self::Divergent => 0,
            },
            is_unproven: false,
        }
    }
}

impl Journal {
    /// What tells a projection that was changed by hand from the one that was written.
    pub(crate) fn mark(&self, item_type: &str, document: &Value) -> u32 {
        self.mark_of(item_type, document, &to_text(document))
    }

    /// The same where the document's text is at hand.
    pub(crate) fn mark_of(&self, item_type: &str, document: &Value, text: &str) -> u32 {
        let crc = match self.registry.without_ephemeral(item_type, document) {
            Cow::Borrowed(_) => crc32c::crc32c(text.as_bytes()),
            Cow::Owned(masked) => crc32c::crc32c(to_text(&masked).as_bytes()),
        };
        crc.max(1)
    }

    /// Whether a file is the one that was written; true where nobody knows.
    pub(crate) fn is_ours(&self, item_type: &str, held: &Value, kept: &Kept) -> bool {
        kept.document == 0 || self.mark(item_type, held) == kept.document
    }

    /// Whether its document is of an older version of its type than the one of now, with no step between them.
    pub(crate) fn is_outdated(&self, item_type: &str, body: &Body) -> bool {
        let document: Option<Value> = match body {
            Body::Inline(text) => serde_json::from_str(text).ok(),
            Body::Blob { sha256, .. } => {
                let content = blobs::get(self.disk(), &self.layout, sha256).ok();
                content.and_then(|content| serde_json::from_slice(&content).ok())
            }
            Body::Gone => None,
        };
        document.is_some_and(|document| self.registry.is_outdated(item_type, &document))
    }

    /// The document of an entity, at the version of this build.
    pub fn document(&self, item_type: &str, body: &Body) -> Result<Value, String> {
        let parsed = match body {
            Body::Inline(text) => serde_json::from_str(text).map_err(|e| e.to_string())?,
            Body::Blob { sha256, bytes } => {
                let content = blobs::get(self.disk(), &self.layout, sha256)?;
                if content.len() as u64 != *bytes {
                    return Err(format!("blob {sha256} has another length"));
                }
                serde_json::from_slice(&content).map_err(|e| e.to_string())?
            }
            Body::Gone => return Err("it was deleted".to_owned()),
        };
        self.registry
            .load(item_type, parsed)
            .map_err(|e| e.to_string())
    }

    /// The folder of a type is not a folder: a link would lead whatever is written elsewhere (T-64).
    pub(crate) fn is_astray(&self, item_type: &str) -> Result<bool, JournalError> {
        self.is_astray_in(&self.layout, item_type)
    }

    pub(crate) fn is_astray_in(
        &self,
        layout: &Layout,
        item_type: &str,
    ) -> Result<bool, JournalError> {
        let family = layout.family(item_type);
        match self.disk().check_dir(&family) {
            Ok(()) => Ok(false),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) if error.kind() == std::io::ErrorKind::Other => Ok(true),
            Err(error) => Err(error).at(&family),
        }
    }

    /// Before anything is recorded of a type whose files could not follow.
    pub(crate) fn check_family(&self, item_type: &str) -> Result<(), JournalError> {
        if self.is_astray(item_type)? {
            let family = self.layout.family(item_type);
            return Err(JournalError::Refused(format!(
                "{} is a link, or no folder: nothing is written through it; move it away, then `heddle journal rebuild` writes the files of {item_type}",
                family.display()
            )));
        }
        Ok(())
    }

    /// What the file holds: nothing, a document, or something that is none.
    pub(crate) fn projection(
        &self,
        item_type: &str,
        item_id: &str,
    ) -> Result<Option<Result<Value, String>>, JournalError> {
        if self.is_astray(item_type)? {
            return Ok(Some(Err("its folder is a link, or no folder".to_owned())));
        }
        self.held_in_place(item_type, item_id)
    }

    /// The same below a folder that was looked at.
    fn held_in_place(
        &self,
        item_type: &str,
        item_id: &str,
    ) -> Result<Option<Result<Value, String>>, JournalError> {
        let path = self.layout.entity(item_type, item_id);
        match read_if_there(self.disk(), &path, PROJECTION_BYTES_MAX) {
            // A link, a folder, a file of two names: no document of ours, and nobody else's affair.
            Err(error) if is_not_plain(&error) => Ok(Some(Err(error.to_string()))),
            read => Ok(read
                .at(&path)?
                .map(|bytes| serde_json::from_slice(&bytes).map_err(|e| e.to_string()))),
        }
    }

    pub(crate) fn write_projection(
        &self,
        item_type: &str,
        item_id: &str,
        document: &Value,
    ) -> Result<(), JournalError> {
        self.check_family(item_type)?;
        self.put_in_place(item_type, item_id, document)
    }

    /// The same below a folder that was looked at.
    fn put_in_place(
        &self,
        item_type: &str,
        item_id: &str,
        document: &Value,
    ) -> Result<(), JournalError> {
        let path = self.layout.entity(item_type, item_id);
        let bytes = pretty(document)?;
        match replace(self.disk(), &path, &bytes, false) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let family = self.layout.family(item_type);
                self.disk().create_dir(&family).at(&family)?;
                replace(self.disk(), &path, &bytes, false).at(&path)
            }
            other => other.at(&path),
        }
    }

    /// Live apply. What stands in its place and is not what was written there is kept aside first, and so is the file of a record
    /// that is lost: nothing else has what that said.
    fn project(
        &self,
        (item_type, item_id): (&str, &str),
        entity: &Entity,
        before: Option<Kept>,
        lost: &Lost,
        kept_aside: &mut Vec<String>,
    ) -> Result<Projected, JournalError> {
        if self.is_astray(item_type)? {
            return Ok(Projected::Divergent);
        }
        if entity.head.is_deleted {
            if self.is_edited(item_type, item_id, before, lost)? {
                kept_aside.push(self.park(item_type, item_id)?);
            }
            return self.unlink_projection(item_type, item_id);
        }
        let Ok(document) = self.document(item_type, &entity.body) else {
            return Ok(Projected::Divergent);
        };
        match self.held_in_place(item_type, item_id)? {
            None => {}
            Some(Ok(held))
                if self
                    .registry
                    .same_but_ephemeral(item_type, &held, &document) => {}
            Some(Ok(held))
                if !lost.hold_last_of(before) && is_written(self, item_type, &held, before) => {}
            Some(_) => kept_aside.push(self.park(item_type, item_id)?),
        }
        self.put_in_place(item_type, item_id, &document)?;
        Ok(Projected::Level(self.mark(item_type, &document)))
    }

    /// Somebody has changed a file since it was written, or no record that is here explains it.
    fn is_edited(
        &self,
        item_type: &str,
        item_id: &str,
        before: Option<Kept>,
        lost: &Lost,
    ) -> Result<bool, JournalError> {
        let is_known = before.is_some_and(|kept| kept.is_divergent || kept.document != 0);
        let is_last_copy = lost.hold_last_of(before);
        Ok(match self.projection(item_type, item_id)? {
            Some(Ok(_)) if is_last_copy => true,
            Some(Ok(held)) => is_known && !is_written(self, item_type, &held, before),
            // One that is no document was not written here, and is evidence (JN-28).
            Some(Err(_)) => true,
            None => false,
        })
    }

    /// The one place that unlinks a projection: its tombstone was applied, and the file is a document.
    /// One that is none is evidence: whoever applies a tombstone keeps it aside, and it is never unlinked (JN-28).
    pub(crate) fn unlink_projection(
        &self,
        item_type: &str,
        item_id: &str,
    ) -> Result<Projected, JournalError> {
        if let Some(Ok(_)) = self.projection(item_type, item_id)? {
            let path = self.layout.entity(item_type, item_id);
            self.disk().remove(&path).at(&path)?;
        }
        Ok(Projected::Level(0))
    }

    /// What must not stand where a projection belongs is moved aside, never thrown away.
    /// Says under which name of `quarantine/`.
    pub(crate) fn park(&self, item_type: &str, item_id: &str) -> Result<String, JournalError> {
        self.park_as(&self.layout.entity(item_type, item_id), item_type, item_id)
    }

    pub(crate) fn park_as(
        &self,
        path: &Path,
        item_type: &str,
        item_id: &str,
    ) -> Result<String, JournalError> {
        self.check_family(item_type)?;
        let folder = self.layout.quarantine();
        self.disk().create_dir(&folder).at(&folder)?;
        let stamp = self.world.ids.ulid();
        let name = format!("{item_type}.{item_id}.{stamp}");
        let to = folder.join(&name);
        self.follow_left([(path, &*to)])?;
        self.disk().rename(path, &to).at(&to)?;
        Ok(name)
    }
}

/// Whether a file is, but for ephemeral fields, what was written there last.
fn is_written(journal: &Journal, item_type: &str, held: &Value, before: Option<Kept>) -> bool {
    before.is_some_and(|kept| {
        !kept.is_divergent && kept.document != 0 && journal.is_ours(item_type, held, &kept)
    })
}

impl<'j> Session<'j> {
    /// None where it cannot be believed: also an older copy would give revisions a second time.
    pub(crate) fn revisions(&self) -> Option<Revisions<'j>> {
        let path = self.journal.layout.revisions();
        let index = Revisions::open(self.journal.disk(), &path);
        index.filter(|index| index.is_as_new_as(self.indexed_to, self.index_made))
    }

    /// The head of an entity; an index that cannot be believed is rebuilt first.
    pub(crate) fn head(
        &mut self,
        item_type: &str,
        item_id: &str,
    ) -> Result<Option<Kept>, JournalError> {
        let found = match &self.index {
            Some(index) => Some(index.get(item_type, item_id)),
            None => self.revisions().map(|index| index.get(item_type, item_id)),
        };
        if let Some(Ok(kept)) = found {
            return Ok(kept);
        }
        self.index = None;
        self.reconcile_full()?;
        let revisions = self.revisions().ok_or_else(|| JournalError::Damaged {
            path: self.journal.layout.revisions(),
            reason: "it could not be rebuilt".to_owned(),
        })?;
        revisions.get(item_type, item_id)
    }

    /// Brings the projections from where the cache knows them to be to the end; false where that is not possible.
    pub(crate) fn reconcile_gap(&mut self, meta: &Meta) -> Result<bool, JournalError> {
        let (journal, from) = (self.journal, meta.applied);
        let Some(mut revisions) = self.revisions() else {
            return Ok(false);
        };
        let known = Indexed {
            revisions: &revisions,
            failed: std::cell::Cell::new(false),
        };
        let mut replay = Replay::new(known, journal.registry.clone(), journal.mode);
        let live = segments::live(journal.disk(), &journal.layout)?;
        if live.binary_search(&from.segment).is_err() {
            return Ok(false);
        }
        // A record that is missing right behind what the cache has seen is missing too.
        // IMPORTANT: behind what is projected. A reader brings files level and leaves the cache's own seq as it was.
        let projected = segments::seq_before(journal.disk(), &journal.layout, from)?;
        replay.head_seq = projected.unwrap_or(0).max(meta.next_seq - 1);
        if revisions.newest() > replay.head_seq {
            // The cache is an older copy, and so may the files be: what the index knows is no news, and they would stay as they are.
            return Ok(false);
        }
        for first in live.into_iter().filter(|first| *first >= from.segment) {
            let skip = if first == from.segment { from.byte } else { 0 };
            let Some(bytes) = segments::read_from(journal.disk(), &journal.layout, first, skip)?
            else {
                return Ok(false);
            };
            replay.segment(first, &bytes, skip);
        }
        if replay.has_erased() {
            // What was erased stands before this gap, and in files and index of before.
            return Ok(false);
        }
        let mut gaps = replay.gaps.clone();
        gaps.settle();
        let more = newer::segments_of(&replay.damage);
        let changed = into_changed(replay);
        let Some(changed) = changed else {
            return Ok(false);
        };
        self.project_all(&mut revisions, &changed)?;
        self.lost.add(&gaps);
        self.lost.newer = newer::remembered(&self.lost.newer, more);
        Ok(true)
    }

    /// Live apply: the bytes that were just written, through the same replay.
    pub(crate) fn apply(&mut self, written: &Written) -> Result<(), JournalError> {
        let journal = self.journal;
        let Some(mut revisions) = self.revisions() else {
            return self.reconcile_full();
        };
        let known = Indexed {
            revisions: &revisions,
            failed: std::cell::Cell::new(false),
        };
        let mut replay = Replay::new(known, journal.registry.clone(), journal.mode);
        replay.segment(written.base.segment, &written.buffer, written.base.byte);
        let Some(changed) = into_changed(replay) else {
            return self.reconcile_full();
        };
        match self.project_all(&mut revisions, &changed) {
            // A slot elsewhere in it, which a growth reads too: the record is safe, and the index is made anew.
            Err(JournalError::Damaged { path, .. }) if path == journal.layout.revisions() => {
                self.reconcile_full()
            }
            projected => projected,
        }
    }

    fn project_all(
        &mut self,
        revisions: &mut Revisions<'_>,
        changed: &[Changed],
    ) -> Result<(), JournalError> {
        for (item_type, item_id, entity) in changed {
            let before = revisions.get(item_type, item_id)?;
            let (journal, aside) = (self.journal, &mut self.kept_aside);
            let key = (item_type.as_str(), item_id.as_str());
            let projected = journal.project(key, entity, before, &self.lost, aside)?;
            // IMPORTANT: projection first. The index must never be ahead of the file.
            revisions.put(item_type, item_id, projected.kept(entity.head))?;
        }
        self.indexed_to = revisions.newest();
        self.index_made = self.index_made.max(revisions.made());
        Ok(())
    }
}

type Changed = (String, String, Entity);

/// None where the index turned out to be damaged on the way.
fn into_changed(replay: Replay<Indexed<'_, '_>>) -> Option<Vec<Changed>> {
    if replay.known().failed.get() {
        return None;
    }
    let all = replay.entities();
    Some(
        all.into_iter()
            .map(|(t, id, e)| (t.to_owned(), id.to_owned(), e.clone()))
            .collect(),
    )
}
