//! What a chunk of a slice becomes here: records, conflict candidates, and the record that says so.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::action::{Action, ActionClass, Mode};
use crate::batch::{By, Draft};
use crate::error::JournalError;
use crate::journal::{Journal, Who};
use crate::mutate::stored;
use crate::notes::AppliedHead;
use crate::registry::TypeClass;

use super::candidate::{self, CANDIDATE, Image};
use super::history::{Current, History};
use super::judge::{self, Incoming, Verdict};
use super::provenance::Mark;
use super::slice::{Header, SliceRecord};

/// A record of a slice that is of its type here.
#[derive(Debug, Clone)]
pub(super) struct Ready<'s> {
    pub(super) record: &'s SliceRecord,
    /// What it is called here.
    pub(super) item_id: String,
    pub(super) class: TypeClass,
    pub(super) document: Option<Value>,
    /// How much of it there is.
    pub(super) text_bytes: usize,
}

/// A chunk, decided.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) drafts: Vec<Draft>,
    pub(super) heads: Vec<AppliedHead>,
    candidates: Vec<Draft>,
    pub(super) conflicts: Vec<String>,
    pub(super) known: u64,
    pub(super) lost: u64,
    /// What this chunk itself has made of an entity.
    ahead: BTreeMap<(String, String), Current>,
    named: BTreeSet<String>,
    /// Whether any of it was not here before.
    pub(super) is_news: bool,
}

impl Plan {
    /// The records of the slice first: `heads` says of each one in turn where it came from.
    pub(super) fn into_drafts(self, first: Draft) -> Vec<Draft> {
        let mut all = vec![first];
        all.extend(self.drafts);
        all.extend(self.candidates);
        all
    }

    pub(super) fn add(
        &mut self,
        journal: &Journal,
        history: &History,
        header: &Header,
        ready: &Ready<'_>,
    ) -> Result<(), JournalError> {
        let record = ready.record;
        let taken = history
            .replay
            .federated
            .of(&header.origin_id, header.origin_epoch);
        if taken.is_some_and(|taken| taken.has(record.seq) || taken.erased.contains(&record.seq)) {
            self.known += 1;
            return Ok(());
        }
        self.is_news = true;
        let mark = Mark {
            entity_rev: record.entity_rev,
            origin_id: header.origin_id.clone(),
            origin_epoch: header.origin_epoch,
            seq: record.seq,
        };
        let key = (record.item_type.clone(), ready.item_id.clone());
        let current = match self.ahead.get(&key) {
            Some(ahead) => Some(ahead.clone()),
            None => history.current(journal, &key.0, &key.1),
        };
        let document = ready.document.as_ref();
        let other = if ready.class == TypeClass::Memory {
            history.colliding(journal, &key.0, &key.1, &mark, document)
        } else {
            None
        };
        let verdict = judge::judge(
            current.as_ref().map(|current| judge::Current {
                mark: &current.mark,
                lineage: &current.lineage,
            }),
            Incoming {
                mark: &mark,
                base_rev: record.base_rev,
                collides: other.is_some(),
                is_past: history.is_past(journal, &key.0, &key.1, mark.entity_rev, document),
                is_same: current
                    .as_ref()
                    .is_some_and(|c| is_same(journal, &key.0, c, document)),
            },
        );
        let conflict = match verdict {
            Verdict::Known => {
                self.known += 1;
                return Ok(());
            }
            Verdict::Wins { conflict } | Verdict::Loses { conflict } => {
                conflict && ready.class == TypeClass::Memory
            }
        };
        if let Some(here) = other.or_else(|| current.clone()).filter(|_| conflict) {
            self.conflict(journal, history, &key, here, &mark, document)?;
        }
        match verdict {
            Verdict::Wins { .. } => self.take(journal, ready, key, mark),
            Verdict::Loses { .. } | Verdict::Known => {
                self.lost += 1;
                Ok(())
            }
        }
    }

    /// It becomes the entity.
    fn take(
        &mut self,
        journal: &Journal,
        ready: &Ready<'_>,
        key: (String, String),
        mark: Mark,
    ) -> Result<(), JournalError> {
        let record = ready.record;
        self.heads.push(AppliedHead {
            item_type: key.0.clone(),
            item_id: key.1.clone(),
            entity_rev: record.entity_rev,
            seq: record.seq,
            writer: record.writer.clone(),
            lineage: record.lineage.clone(),
        });
        let who = Who {
            agent: record.agent.clone(),
            agent_id: None,
            user: None,
        };
        let action = action_here(record.action, journal.mode);
        let summary = record.summary.clone();
        let document = ready.document.as_ref();
        let rev = record.entity_rev;
        let draft = draft(
            journal,
            who,
            (&key.0, &key.1),
            (action, rev),
            summary,
            document,
        )?;
        self.drafts.push(draft);
        let current = Current {
            mark,
            lineage: record.lineage.clone(),
            document: ready.document.clone(),
        };
        self.ahead.insert(key, current);
        Ok(())
    }

    fn conflict(
        &mut self,
        journal: &Journal,
        history: &History,
        key: &(String, String),
        here: Current,
        mark: &Mark,
        document: Option<&Value>,
    ) -> Result<(), JournalError> {
        let ours = Image {
            mark: here.mark,
            document: here.document,
        };
        let theirs = Image {
            mark: mark.clone(),
            document: document.cloned(),
        };
        let (id, document) = candidate::conflict(&key.0, &key.1, ours, theirs);
        // One that a person has dealt with does not come back.
        if history.rev(CANDIDATE, &id) > 0 || !self.named.insert(id.clone()) {
            return Ok(());
        }
        let document = journal.registry.load(CANDIDATE, document)?;
        let summary = Some(format!("conflict: {} {}", key.0, key.1));
        let who = journal.who.clone();
        let item = (CANDIDATE, id.as_str());
        let draft = draft(
            journal,
            who,
            item,
            (Action::Create, 1),
            summary,
            Some(&document),
        )?;
        self.candidates.push(draft);
        self.conflicts.push(id);
        Ok(())
    }
}

fn draft(
    journal: &Journal,
    who: Who,
    item: (&str, &str),
    (action, entity_rev): (Action, u64),
    summary: Option<String>,
    document: Option<&Value>,
) -> Result<Draft, JournalError> {
    let (payload, blob) = match document {
        Some(document) => stored(journal, document)?,
        None => (None, None),
    };
    Ok(Draft {
        action,
        item_type: item.0.to_owned(),
        item_id: Some(item.1.to_owned()),
        entity_rev: Some(entity_rev),
        summary,
        payload,
        blob,
        key: None,
        by: By::of_who(journal, who),
    })
}

fn is_same(journal: &Journal, item_type: &str, here: &Current, document: Option<&Value>) -> bool {
    match (&here.document, document) {
        (Some(a), Some(b)) => journal.registry.same_but_ephemeral(item_type, a, b),
        (None, None) => true,
        _ => false,
    }
}

/// An offered assignment is a document only where the registry is primary.
fn action_here(action: Action, mode: Mode) -> Action {
    match action.class(mode) {
        ActionClass::EntityState | ActionClass::Tombstone | ActionClass::RegistryLifecycle => {
            action
        }
        ActionClass::JournalMeta | ActionClass::Observability => Action::Update,
    }
}
