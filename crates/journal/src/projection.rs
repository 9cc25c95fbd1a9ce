//! Projections: one JSON file an entity, always behind the journal, never before it.

use std::path::Path;

use serde_json::Value;

use crate::blobs;
use crate::disk::{read_if_there, replace};
use crate::error::{At, JournalError};
use crate::format::BLOB_BYTES_MAX;
use crate::journal::Journal;
use crate::meta::Position;
use crate::reduce::Head;
use crate::replay::{Body, Entity, Known, Replay};
use crate::revisions::{Kept, Revisions};
use crate::segments;
use crate::session::{Session, Written};

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

/// What became of a projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Projected {
    /// The file holds the document with this mark; 0: there is none.
    Level(u32),
    /// The document could not be read; the file stays as it was.
    Divergent,
}

impl Projected {
    fn kept(self, head: Head) -> Kept {
        Kept {
            head,
            is_divergent: self == Self::Divergent,
            document: match self {
                Self::Level(mark) => mark,
                Self::Divergent => 0,
            },
        }
    }
}

impl Journal {
    /// What tells a projection that was changed by hand from the one that was written.
    pub(crate) fn mark(&self, item_type: &str, document: &Value) -> u32 {
        let masked = self.registry.masked(item_type, document);
        crc32c::crc32c(masked.to_string().as_bytes()).max(1)
    }

    /// Whether a file is the one that was written; true where nobody knows.
    pub(crate) fn is_ours(&self, item_type: &str, held: &Value, kept: &Kept) -> bool {
        kept.document == 0 || self.mark(item_type, held) == kept.document
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

    /// What the file holds: nothing, a document, or something that is none.
    pub(crate) fn projection(
        &self,
        item_type: &str,
        item_id: &str,
    ) -> Result<Option<Result<Value, String>>, JournalError> {
        let path = self.layout.entity(item_type, item_id);
        let bytes = read_if_there(self.disk(), &path, PROJECTION_BYTES_MAX).at(&path)?;
        Ok(bytes.map(|bytes| serde_json::from_slice(&bytes).map_err(|e| e.to_string())))
    }

    pub(crate) fn write_projection(
        &self,
        item_type: &str,
        item_id: &str,
        document: &Value,
    ) -> Result<(), JournalError> {
        let path = self.layout.entity(item_type, item_id);
        let mut bytes = serde_json::to_vec_pretty(document).map_err(JournalError::refused)?;
        bytes.push(b'\n');
        match replace(self.disk(), &path, &bytes, false) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let family = self.layout.family(item_type);
                self.disk().create_dir(&family).at(&family)?;
                replace(self.disk(), &path, &bytes, false).at(&path)
            }
            other => other.at(&path),
        }
    }

    fn project(
        &self,
        item_type: &str,
        item_id: &str,
        entity: &Entity,
    ) -> Result<Projected, JournalError> {
        if entity.head.is_deleted {
            // The one place that unlinks a projection: its tombstone was applied, and the file is a document.
            // One that is none is evidence, and stays (JN-28).
            if let Some(Ok(_)) = self.projection(item_type, item_id)? {
                let path = self.layout.entity(item_type, item_id);
                self.disk().remove(&path).at(&path)?;
            }
            return Ok(Projected::Level(0));
        }
        match self.document(item_type, &entity.body) {
            Ok(document) => {
                self.write_projection(item_type, item_id, &document)?;
                Ok(Projected::Level(self.mark(item_type, &document)))
            }
            Err(_) => Ok(Projected::Divergent),
        }
    }

    /// After a power cut: the file is compared, and only one that is not level is touched.
    fn project_if_other(
        &self,
        item_type: &str,
        item_id: &str,
        entity: &Entity,
        before: Option<Kept>,
    ) -> Result<Projected, JournalError> {
        if entity.head.is_deleted {
            // A power cut may have emptied a file whose name it kept: evidence, but not in this place.
            if let Some(Err(_)) = self.projection(item_type, item_id)? {
                self.park(item_type, item_id)?;
            }
            return self.project(item_type, item_id, entity);
        }
        let Ok(document) = self.document(item_type, &entity.body) else {
            return Ok(Projected::Divergent);
        };
        let level = Projected::Level(self.mark(item_type, &document));
        match self.projection(item_type, item_id)? {
            Some(Ok(held))
                if self
                    .registry
                    .same_but_ephemeral(item_type, &held, &document) =>
            {
                return Ok(level);
            }
            Some(Ok(held)) => {
                // Somebody's work, or git's, unless it is known to be what was written here before.
                let is_known = before.is_some_and(|kept| {
                    kept.document != 0 && self.is_ours(item_type, &held, &kept)
                });
                if !is_known {
                    self.park(item_type, item_id)?;
                }
            }
            Some(Err(_)) => self.park(item_type, item_id)?,
            None => {}
        }
        self.write_projection(item_type, item_id, &document)?;
        Ok(level)
    }

    /// What must not stand where a projection belongs is moved aside, never thrown away.
    fn park(&self, item_type: &str, item_id: &str) -> Result<(), JournalError> {
        self.park_as(&self.layout.entity(item_type, item_id), item_type, item_id)
    }

    pub(crate) fn park_as(
        &self,
        path: &Path,
        item_type: &str,
        item_id: &str,
    ) -> Result<(), JournalError> {
        let folder = self.layout.quarantine();
        self.disk().create_dir(&folder).at(&folder)?;
        let stamp = self.world.ids.ulid();
        let to = folder.join(format!("{item_type}.{item_id}.{stamp}"));
        self.disk().rename(path, &to).at(&to)
    }
}

impl<'j> Session<'j> {
    pub(crate) fn revisions(&self) -> Option<Revisions<'j>> {
        Revisions::open(self.journal.disk(), &self.journal.layout.revisions())
    }

    /// The head of an entity; an index that cannot be believed is rebuilt first.
    pub(crate) fn head(
        &mut self,
        item_type: &str,
        item_id: &str,
    ) -> Result<Option<Kept>, JournalError> {
        if let Some(Ok(kept)) = self.revisions().map(|r| r.get(item_type, item_id)) {
            return Ok(kept);
        }
        self.reconcile_full()?;
        let revisions = self.revisions().ok_or_else(|| JournalError::Damaged {
            path: self.journal.layout.revisions(),
            reason: "it could not be rebuilt".to_owned(),
        })?;
        revisions.get(item_type, item_id)
    }

    /// Brings the projections from `from` to the end; false where that is not possible.
    pub(crate) fn reconcile_gap(&mut self, from: Position) -> Result<bool, JournalError> {
        let journal = self.journal;
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
        for first in live.into_iter().filter(|first| *first >= from.segment) {
            let skip = if first == from.segment { from.byte } else { 0 };
            let Some(bytes) = segments::read_from(journal.disk(), &journal.layout, first, skip)?
            else {
                return Ok(false);
            };
            replay.segment(first, &bytes, skip);
        }
        let changed = into_changed(replay);
        let Some(changed) = changed else {
            return Ok(false);
        };
        self.project_all(&mut revisions, &changed)?;
        Ok(true)
    }

    /// Live apply: the bytes that were just written, through the same replay.
    pub(crate) fn apply(&mut self, written: &Written) -> Result<(), JournalError> {
        let journal = self.journal;
        let changed = self.revisions().and_then(|revisions| {
            let known = Indexed {
                revisions: &revisions,
                failed: std::cell::Cell::new(false),
            };
            let mut replay = Replay::new(known, journal.registry.clone(), journal.mode);
            replay.segment(written.base.segment, &written.buffer, written.base.byte);
            into_changed(replay)
        });
        match (changed, self.revisions()) {
            (Some(changed), Some(mut revisions)) => self.project_all(&mut revisions, &changed),
            _ => self.reconcile_full(),
        }
    }

    fn project_all(
        &self,
        revisions: &mut Revisions<'_>,
        changed: &[Changed],
    ) -> Result<(), JournalError> {
        for (item_type, item_id, entity) in changed {
            let projected = self.journal.project(item_type, item_id, entity)?;
            // IMPORTANT: projection first. The index must never be ahead of the file.
            revisions.put(item_type, item_id, projected.kept(entity.head))?;
        }
        Ok(())
    }

    /// Everything from the newest checkpoint on, every entity compared, a new index.
    pub(crate) fn reconcile_full(&mut self) -> Result<(), JournalError> {
        let journal = self.journal;
        let rebuilt = journal.rebuild(0)?;
        let old = self.revisions();
        let mut entries = Vec::new();
        for (item_type, item_id, entity) in rebuilt.replay.entities() {
            let before = old
                .as_ref()
                .and_then(|old| old.get(item_type, item_id).ok().flatten());
            let is_ahead = before.filter(|kept| kept.head.rev > entity.head.rev);
            let kept = if let Some(kept) = is_ahead {
                // Never regress: what the journal lost stays visible, and verify reports it.
                kept
            } else {
                let projected = journal.project_if_other(item_type, item_id, entity, before)?;
                projected.kept(entity.head)
            };
            entries.push((item_type, item_id, kept));
        }
        Revisions::build(journal.disk(), &journal.layout.revisions(), &entries)?;
        self.write_meta(false)
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
