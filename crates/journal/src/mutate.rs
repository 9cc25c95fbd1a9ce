//! `mutate`: plan, append, sync, and only then projections, index, cache.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::action::{Action, ActionClass, Mode};
use crate::batch::{By, Draft, Written};
use crate::blobs;
use crate::error::JournalError;
use crate::format::INLINE_PAYLOAD_BYTES_MAX;
use crate::journal::{Journal, Who};
use crate::notes::{MetaPayload, Note};
use crate::requests::{Key, Keyed};
use crate::revisions::Kept;
use crate::rules::{check_entity, check_event, check_words};
use crate::session::Session;
use crate::text::to_text;

/// What a caller wants to become true of one entity.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Change {
    pub item_type: String,
    pub item_id: Option<String>,
    /// None: nobody announced it; the difference decides between create, update and delete (JN-30).
    pub action: Option<Action>,
    /// The whole document as it shall be; None deletes, or is no matter of documents.
    pub document: Option<Value>,
    pub summary: Option<String>,
}

impl Change {
    /// Whether it makes a new revision.
    pub(crate) fn is_of_entity(&self, mode: Mode) -> bool {
        self.action.is_none_or(|action| {
            let class = action.class(mode);
            matches!(class, ActionClass::EntityState | ActionClass::Tombstone)
                || (class == ActionClass::RegistryLifecycle && self.document.is_some())
        })
    }
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// None where nothing but ephemeral fields changed: no record.
    pub seq: Option<u64>,
    pub writer: String,
    pub entity_rev: Option<u64>,
    pub batch: Option<String>,
    /// The answer of a request of this id before: nothing was recorded now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

/// On the disk, and not yet in the projections: answer first, then [`Committed::finish`].
pub struct Committed<'j> {
    session: Option<Session<'j>>,
    written: Option<Written>,
    ephemeral: Vec<(String, String, Value)>,
    receipts: Vec<Receipt>,
}

/// A mutation of one caller: its changes happen all or none.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) writer: String,
    pub(crate) who: Who,
    pub(crate) changes: Vec<Change>,
    /// Its name, where the caller gave one; such a request has one change.
    #[serde(default)]
    pub(crate) key: Option<Key>,
}

impl Request {
    fn by(&self) -> Arc<By> {
        Arc::new(By {
            who: self.who.clone(),
            writer: self.writer.clone(),
        })
    }
}

/// What planning knows beyond the disk: the entities of this same batch.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) drafts: Vec<Draft>,
    /// Per change: the draft's index, or None where no record is needed.
    pub(crate) slots: Vec<Option<usize>>,
    pub(crate) ephemeral: Vec<(String, String, Value)>,
    pub(crate) unannotated: u64,
    /// The drafts of an entity, as indices, the newest last: several of those who wait may change the same one.
    ahead: HashMap<(String, String), Vec<usize>>,
    /// Those of its requests that have an id.
    pub(crate) keyed: HashMap<String, Keyed>,
    /// The types whose folder was looked at: once a batch, for a look costs as much as the rest of planning a change.
    looked_at: HashSet<String>,
}

impl Journal {
    /// Returns when the records are synced. The lock is held until the answer was finished.
    pub fn mutate(&self, changes: Vec<Change>) -> Result<Committed<'_>, JournalError> {
        self.requested(changes, None)
    }

    /// The same for one change under an id of the caller's: the same request again is not a second record, it gets the first
    /// one's receipt as a duplicate; another request of that id is refused.
    pub fn mutate_once(&self, change: Change, id: &str) -> Result<Committed<'_>, JournalError> {
        let key = Key::of(id, &change)?;
        self.requested(vec![change], Some(key))
    }

    fn requested(
        &self,
        changes: Vec<Change>,
        key: Option<Key>,
    ) -> Result<Committed<'_>, JournalError> {
        self.must_be_on()?;
        let request = Request {
            writer: self.writer.clone(),
            who: self.who.clone(),
            changes,
            key,
        };
        self.commit(request)
    }

    pub(crate) fn must_be_on(&self) -> Result<(), JournalError> {
        if self.mode == Mode::Off {
            return Err(JournalError::refused(
                "the journal of this store is off; `heddle journal migrate` turns it on",
            ));
        }
        Ok(())
    }

    /// Commits and brings the projections along.
    pub fn mutate_whole(&self, changes: Vec<Change>) -> Result<Vec<Receipt>, JournalError> {
        let committed = self.mutate(changes)?;
        let receipts = committed.receipts().to_vec();
        committed.finish()?;
        Ok(receipts)
    }
}

impl<'j> Committed<'j> {
    pub(crate) fn new(
        session: Session<'j>,
        written: Option<Written>,
        ephemeral: Vec<(String, String, Value)>,
        receipts: Vec<Receipt>,
    ) -> Self {
        Self {
            session: Some(session),
            written,
            ephemeral,
            receipts,
        }
    }

    pub fn receipts(&self) -> &[Receipt] {
        &self.receipts
    }

    pub(crate) fn done(receipts: Vec<Receipt>) -> Self {
        Self {
            session: None,
            written: None,
            ephemeral: Vec::new(),
            receipts,
        }
    }

    /// Projections, revision index, cache, in this order; then the lock goes.
    pub fn finish(self) -> Result<(), JournalError> {
        self.finish_told().map(drop)
    }

    /// The same; with the names, below `quarantine/`, of files that had been edited by hand.
    pub fn finish_told(mut self) -> Result<Vec<String>, JournalError> {
        self.settle()
    }

    fn settle(&mut self) -> Result<Vec<String>, JournalError> {
        let Some(mut session) = self.session.take() else {
            return Ok(Vec::new());
        };
        if let Some(written) = self.written.take() {
            let clock = &session.journal.world.clock;
            let begun = clock.mono();
            if session.is_unproven {
                session.reconcile_full()?;
            } else {
                session.apply(&written)?;
            }
            let took = clock.mono().saturating_sub(begun);
            session.phases.project.note(took);
            session.make_room();
            session.write_meta(false)?;
            // Where it fails the next one tries again, long before it matters.
            let _ = session.give_more(written.first_seq);
            if session.bytes >= session.journal.settings.roll_bytes {
                // Off the answer's path. Where it fails, the next mutation finds the segment full and meets the reason.
                let _ = session.roll();
            }
        }
        if session.is_unproven {
            session.reconcile_full()?;
        }
        for (item_type, item_id, document) in self.ephemeral.drain(..) {
            session
                .journal
                .write_projection(&item_type, &item_id, &document)?;
        }
        Ok(std::mem::take(&mut session.kept_aside))
    }
}

impl Drop for Committed<'_> {
    fn drop(&mut self) {
        // The records are safe either way: whoever comes next brings the projections along.
        let _ = self.settle();
    }
}

/// The action, the revision, the document's text.
type Planned = (Action, Option<u64>, Option<String>);

impl Plan {
    /// Nothing of a request is added when any of it is refused.
    pub(crate) fn add(
        &mut self,
        session: &mut Session<'_>,
        request: &Request,
    ) -> Result<(), JournalError> {
        let before = (self.drafts.len(), self.slots.len(), self.ephemeral.len());
        let unannotated = self.unannotated;
        let mut named = HashSet::with_capacity(request.changes.len());
        let by = request.by();
        for change in &request.changes {
            let planned =
                if named.insert((&change.item_type, &change.item_id)) || change.item_id.is_none() {
                    self.change(session, (request, &by), change)
                } else {
                    Err(JournalError::Refused(
                        "a mutation has one record per entity: name each entity once".to_owned(),
                    ))
                };
            if let Err(error) = planned {
                for drafts in self.ahead.values_mut() {
                    drafts.retain(|index| *index < before.0);
                }
                self.drafts.truncate(before.0);
                self.slots.truncate(before.1);
                self.ephemeral.truncate(before.2);
                self.unannotated = unannotated;
                return Err(error);
            }
        }
        Ok(())
    }

    pub(crate) fn receipts(
        &self,
        slots: std::ops::Range<usize>,
        writer: &str,
        written: Option<&Written>,
    ) -> Vec<Receipt> {
        let receipt = |slot: &Option<usize>| Receipt {
            seq: slot
                .zip(written)
                .map(|(index, written)| written.first_seq + index as u64),
            writer: writer.to_owned(),
            entity_rev: slot.and_then(|index| self.drafts[index].entity_rev),
            batch: slot.and(written).map(|written| written.batch.clone()),
            duplicate: false,
        };
        self.slots[slots].iter().map(receipt).collect()
    }

    fn change(
        &mut self,
        session: &mut Session<'_>,
        (request, by): (&Request, &Arc<By>),
        change: &Change,
    ) -> Result<(), JournalError> {
        let journal = session.journal;
        check_words(journal, change)?;
        let mode = journal.mode;
        let (action, rev, text) = if change.is_of_entity(mode) {
            match self.entity(session, change)? {
                Some(planned) => planned,
                None => {
                    self.slots.push(None);
                    return self.note_unchanged(session, (request, by), change);
                }
            }
        } else {
            let Some(action) = change.action else {
                return Ok(());
            };
            check_event(action, change, mode)?;
            (action, None, None)
        };
        let (payload, blob) = match text {
            None => (None, None),
            Some(text) => stored_text(journal, text)?,
        };
        self.slots.push(Some(self.drafts.len()));
        self.drafts.push(Draft {
            action,
            item_type: change.item_type.clone(),
            item_id: change.item_id.clone(),
            entity_rev: rev,
            summary: change.summary.clone(),
            payload,
            blob,
            key: request.key.clone(),
            by: Arc::clone(by),
        });
        Ok(())
    }

    /// A request with an id is answered once, also where there was nothing to record: by then another document may stand.
    fn note_unchanged(
        &mut self,
        session: &Session<'_>,
        (request, by): (&Request, &Arc<By>),
        change: &Change,
    ) -> Result<(), JournalError> {
        if request.key.is_some() {
            let note = MetaPayload::Note(Note::Unchanged {
                item_type: change.item_type.clone(),
                item_id: change.item_id.clone().unwrap_or_default(),
            });
            self.drafts.push(Draft {
                key: request.key.clone(),
                by: Arc::clone(by),
                ..session.meta_draft(&note)?
            });
        }
        Ok(())
    }

    /// The action, the next revision, the document; None where there is nothing to record (JN-29).
    fn entity(
        &mut self,
        session: &mut Session<'_>,
        change: &Change,
    ) -> Result<Option<Planned>, JournalError> {
        let journal = session.journal;
        let item_type = change.item_type.as_str();
        let item_id = change.item_id.as_deref().unwrap_or_default();
        let key = (item_type.to_owned(), item_id.to_owned());
        let ahead = self.ahead.get(&key).and_then(|drafts| drafts.last());
        let ahead = ahead.map(|index| &self.drafts[*index]);
        let kept = session.head(item_type, item_id)?;
        let rev = match ahead {
            Some(draft) => draft.entity_rev.unwrap_or(0),
            None => session.last_rev(kept),
        };
        let is_live = match ahead {
            Some(draft) => draft.payload.is_some() || draft.blob.is_some(),
            None => kept.is_some_and(|k| !k.head.is_deleted),
        };
        let loaded = change.document.as_ref();
        let loaded = loaded.map(|document| journal.registry.load_kept(item_type, document));
        let loaded = loaded.transpose()?;
        let wanted = loaded.as_deref();
        let action = match (change.action, wanted, is_live) {
            (Some(action), ..) => action,
            (None, Some(_), true) => Action::Update,
            (None, Some(_), false) => Action::Create,
            (None, None, _) => Action::Delete,
        };
        check_entity(journal, action, wanted, is_live, change)?;
        if !self.looked_at.contains(item_type) {
            journal.check_family(item_type)?;
            self.looked_at.insert(item_type.to_owned());
        }
        let text = wanted.map(to_text);
        if let (Action::Update, Some(wanted), Some(text)) = (action, wanted, &text) {
            let held = match ahead {
                Some(draft) => journal.drafted(draft),
                // What its lost record said is in the file alone: the same again is recorded, and is no change of nothing.
                None if kept.is_some_and(|kept| session.lost.hold(kept.head.seq)) => None,
                None => held(journal, (item_type, item_id), kept, (wanted, text))?,
            };
            let registry = &journal.registry;
            if let Some(held) = held
                && registry.same_but_ephemeral(item_type, &held, wanted)
            {
                if held != *wanted {
                    self.ephemeral.push((key.0, key.1, wanted.clone()));
                }
                return Ok(None);
            }
        }
        if change.action.is_none() {
            self.unannotated += 1;
        }
        // The draft that this becomes.
        self.ahead.entry(key).or_default().push(self.drafts.len());
        let next = rev.checked_add(1).ok_or_else(|| JournalError::Entity {
            item_type: change.item_type.clone(),
            item_id: item_id.to_owned(),
            reason: "it has the last revision that there can be, which nobody but a forger writes; redact that record, or take another id".to_owned(),
        })?;
        Ok(Some((action, Some(next), text)))
    }
}

impl Session<'_> {
    /// The highest revision that an entity may have had: a revision never begins again, also where its records and the index are lost.
    fn last_rev(&self, kept: Option<Kept>) -> u64 {
        let (rev, seq) = kept.map_or((0, 0), |kept| (kept.head.rev, kept.head.seq));
        rev.saturating_add(self.lost.hidden_after(seq))
    }
}

impl Journal {
    /// The document of a draft; None where it deletes.
    fn drafted(&self, draft: &Draft) -> Option<Value> {
        match (&draft.payload, &draft.blob) {
            (Some(text), _) => serde_json::from_str(text).ok(),
            (None, Some((sha256, _))) => {
                let bytes = blobs::get(self.disk(), &self.layout, sha256).ok()?;
                serde_json::from_slice(&bytes).ok()
            }
            (None, None) => None,
        }
    }
}

/// The document that the journal holds, as its file has it; None where the wanted one differs from it for certain.
fn held(
    journal: &Journal,
    (item_type, item_id): (&str, &str),
    kept: Option<Kept>,
    (wanted, text): (&Value, &str),
) -> Result<Option<Value>, JournalError> {
    let Some(kept) = kept.filter(|k| !k.head.is_deleted && (!k.is_divergent || k.is_unproven))
    else {
        return Ok(None);
    };
    if kept.is_unproven {
        return journal.recorded_document(item_type, item_id, &kept.head);
    }
    // Another mark is another document, and its file need not be read; the same mark proves nothing.
    if kept.document != 0 && kept.document != journal.mark_of(item_type, wanted, text) {
        return Ok(None);
    }
    let held = journal.projection(item_type, item_id)?.and_then(Result::ok);
    // A file that was changed by hand is not what the journal holds: the change is recorded.
    Ok(held.filter(|held| journal.is_ours(item_type, held, &kept)))
}

type Stored = (Option<String>, Option<(String, u64)>);

/// Inline, or in a blob that is on the disk before the record that names it.
pub(crate) fn stored(journal: &Journal, document: &Value) -> Result<Stored, JournalError> {
    stored_text(journal, to_text(document))
}

fn stored_text(journal: &Journal, text: String) -> Result<Stored, JournalError> {
    if text.len() > INLINE_PAYLOAD_BYTES_MAX {
        let sha256 = blobs::put(journal.disk(), &journal.layout, text.as_bytes())?;
        return Ok((None, Some((sha256, text.len() as u64))));
    }
    Ok((Some(text), None))
}
