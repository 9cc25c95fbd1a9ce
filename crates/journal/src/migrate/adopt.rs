//! A clone's first write: entity files that are newer than the checkpoint are taken in, never written over.
//!
//! Git brings projections and checkpoints, and no segments. The files are what people committed and merged, so
//! where they differ from the newest checkpoint each becomes a `backfill`, and a genesis note says so. A marker
//! stands before the first segment: a crash on the way is carried on, and until then readers show the files.

use serde_json::Value;

use super::{BATCH_ENTITIES, BATCH_TEXT_BYTES, source};
use crate::action::Mode;
use crate::blobs;
use crate::disk::replace;
use crate::error::{At, JournalError};
use crate::federation::owner_of;
use crate::journal::Journal;
use crate::meta::{self, MetaFound};
use crate::notes::{MetaPayload, Note};
use crate::registry::TypeClass;
use crate::replay::{Body, Entity};
use crate::revisions::{Kept, Revisions};
use crate::segments;
use crate::session::Session;

const MARKER: &[u8] = b"{\"v\":1}\n";
/// What the genesis note of a clone says that it began with.
pub(crate) const OF_CLONE: &str = "the entity files of a clone";

impl Journal {
    /// Before the first segment of a store that nothing was ever written in.
    pub(crate) fn announce_adoption(&self, meta: &MetaFound) -> Result<(), JournalError> {
        let is_new =
            *meta == MetaFound::Absent && self.mode != Mode::Off && self.is_never_written()?;
        if !is_new || self.entity_files()?.is_empty() {
            return Ok(());
        }
        // Git keeps no empty folders.
        let folder = self.layout.checkpoints();
        self.disk().create_dir(&folder).at(&folder)?;
        let path = self.layout.adoption();
        replace(self.disk(), &path, MARKER, true).at(&path)
    }

    pub(crate) fn is_adopting(&self) -> Result<bool, JournalError> {
        let path = self.layout.adoption();
        Ok(self.disk().len(&path).at(&path)?.is_some())
    }

    /// Files lie here that the journal of this store has not seen yet.
    pub(crate) fn is_unadopted(&self) -> Result<bool, JournalError> {
        if self.is_adopting()? {
            return Ok(true);
        }
        let is_new = self.mode != Mode::Off
            && segments::live(self.disk(), &self.layout)?.is_empty()
            && meta::read(self.disk(), &self.layout)? == MetaFound::Absent
            && self.is_never_written()?;
        Ok(is_new && !self.entity_files()?.is_empty())
    }

    /// Type and id of the files in the folders of known types.
    pub(crate) fn entity_files(&self) -> Result<Vec<(String, String)>, JournalError> {
        let entities = self.layout.entities();
        let mut files = Vec::new();
        for family in self.disk().list(&entities).at(&entities)? {
            if !family.is_dir || self.registry.get(&family.name).is_none() {
                continue;
            }
            let folder = entities.join(&family.name);
            for file in self.disk().list(&folder).at(&folder)? {
                if let Some(id) = file.name.strip_suffix(".json")
                    && !file.is_dir
                    && !id.starts_with('.')
                {
                    files.push((family.name.clone(), id.to_owned()));
                }
            }
        }
        files.sort_unstable();
        Ok(files)
    }

    /// The document of a file, at this build's version; None where it is none of its type.
    pub(crate) fn filed(&self, item_type: &str, item_id: &str) -> Option<Value> {
        let path = self.layout.entity(item_type, item_id);
        source::entity(self.disk(), &self.registry, &path, item_type, item_id).ok()
    }

    /// Whether a file says what the journal says. Git brings no blobs: then the hash of the text tells.
    pub(crate) fn is_recorded(&self, item_type: &str, document: &Value, entity: &Entity) -> bool {
        if entity.head.is_deleted {
            return false;
        }
        match (self.document(item_type, &entity.body), &entity.body) {
            (Ok(held), _) => self.registry.same_but_ephemeral(item_type, &held, document),
            (Err(_), Body::Blob { sha256, .. }) => {
                blobs::sha256_hex(document.to_string().as_bytes()) == **sha256
            }
            (Err(_), _) => false,
        }
    }

    /// What a clone has lost of the blobs that its checkpoint names, and what its files give back.
    fn restore_blob(&self, document: &Value, entity: &Entity) -> Result<(), JournalError> {
        if let Body::Blob { sha256, .. } = &entity.body
            && blobs::get(self.disk(), &self.layout, sha256).is_err()
        {
            blobs::put(self.disk(), &self.layout, document.to_string().as_bytes())?;
        }
        Ok(())
    }
}

impl Session<'_> {
    /// May be done twice: a file that was taken in equals the journal.
    pub(crate) fn adopt(&mut self) -> Result<(), JournalError> {
        let journal = self.journal;
        let rebuilt = journal.rebuild(0)?;
        let known = rebuilt.replay.entities().into_iter();
        let known: Vec<_> = known
            .map(|(item_type, item_id, entity)| (item_type, item_id, Kept::of(entity.head)))
            .collect();
        // The revisions first, as the journal has them: planning asks for them, and must not touch a file.
        Revisions::build(journal.disk(), &journal.layout.revisions(), &known)?;
        let mut waiting: Vec<(String, String, Value)> = Vec::new();
        let mut bytes = 0;
        let mut count = 0;
        for (item_type, item_id) in journal.entity_files()? {
            let is_foreign = journal.registry.class(&item_type) == TypeClass::Execution
                && owner_of(&item_id).is_some();
            // What is no document of its type stays as it is, and verify names it.
            let Some(document) = journal.filed(&item_type, &item_id).filter(|_| !is_foreign) else {
                continue;
            };
            if let Some(entity) = rebuilt.replay.get(&item_type, &item_id)
                && journal.is_recorded(&item_type, &document, entity)
            {
                journal.restore_blob(&document, entity)?;
                continue;
            }
            count += 1;
            bytes += document.to_string().len();
            waiting.push((item_type, item_id, document));
            if waiting.len() >= BATCH_ENTITIES || bytes >= BATCH_TEXT_BYTES {
                self.backfill(&waiting.iter().collect::<Vec<_>>(), None)?;
                waiting.clear();
                bytes = 0;
            }
        }
        let first_seq = journal.all_segments()?.first().copied();
        // Also where nothing was taken in: what came before is not of this store, and is not lost.
        if count > 0 || first_seq.is_some_and(|first| first > 1) {
            let marker = MetaPayload::Note(Note::Genesis {
                migrated_from: OF_CLONE.to_owned(),
                first_seq,
                v1_events_parked: 0,
                backfill_count: count,
                tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            });
            self.backfill(&waiting.iter().collect::<Vec<_>>(), Some(&marker))?;
        }
        self.reconcile_full()?;
        self.checkpoint_if_rolled()?;
        let (path, events) = (journal.layout.adoption(), journal.layout.events());
        journal.disk().remove(&path).at(&path)?;
        journal.disk().sync_dir(&events).at(&events)
    }
}
