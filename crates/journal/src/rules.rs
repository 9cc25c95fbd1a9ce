//! What may be recorded: the words of a change, and what an action asks of its entity.

use serde_json::Value;

use crate::action::{Action, ActionClass, Mode};
use crate::error::JournalError;
use crate::federation::owner_of;
use crate::format::{SUMMARY_BYTES_MAX, is_item_id};
use crate::journal::Journal;
use crate::mutate::Change;
use crate::registry::TypeClass;
use crate::reserve::check_claim;

pub(crate) fn check_words(journal: &Journal, change: &Change) -> Result<(), JournalError> {
    let mut broken = journal.registry.broken();
    let broken = broken.find(|(name, _)| *name == change.item_type);
    if let Some((name, reason)) =
        broken.filter(|_| journal.registry.get(&change.item_type).is_none())
    {
        return Err(JournalError::Refused(format!(
            ".heddle/schemas/{name}.json cannot be used, and {name} with it: {reason}; mend that file or remove it"
        )));
    }
    if journal.registry.get(&change.item_type).is_none() {
        let known: Vec<&str> = journal.registry.names().collect();
        return Err(JournalError::Refused(format!(
            "there is no item type {:?}; the types are {}, and those of .heddle/schemas/",
            change.item_type,
            known.join(", ")
        )));
    }
    if change.item_id.as_ref().is_some_and(|id| !is_item_id(id)) {
        return Err(JournalError::refused(
            "an item id has 1 to 128 letters, digits, `_`, `-` and `.`, and begins with a letter or digit",
        ));
    }
    if change
        .summary
        .as_ref()
        .is_some_and(|s| s.len() > SUMMARY_BYTES_MAX)
    {
        return Err(JournalError::Refused(format!(
            "a summary has at most {SUMMARY_BYTES_MAX} bytes"
        )));
    }
    Ok(())
}

pub(crate) fn check_entity(
    journal: &Journal,
    action: Action,
    wanted: Option<&Value>,
    is_live: bool,
    change: &Change,
) -> Result<(), JournalError> {
    let Some(item_id) = &change.item_id else {
        return Err(JournalError::Refused(format!(
            "{} needs an item id",
            action.as_str()
        )));
    };
    if journal.registry.class(&change.item_type) == TypeClass::Execution
        && let Some(origin_id) = owner_of(item_id)
    {
        return Err(JournalError::Refused(format!(
            "{} {item_id} belongs to {origin_id} and is read-only here; it changes with that store's next slice",
            change.item_type
        )));
    }
    if action.class(journal.mode) == ActionClass::Tombstone {
        if wanted.is_some() {
            return Err(JournalError::refused("delete takes no payload"));
        }
        if journal.registry.class(&change.item_type) == TypeClass::Singleton {
            let name = &change.item_type;
            return Err(JournalError::Refused(format!(
                "{name} is one of its kind and is never deleted"
            )));
        }
        if !is_live {
            return Err(JournalError::NotFound {
                item_type: change.item_type.clone(),
                item_id: item_id.clone(),
            });
        }
    } else if wanted.is_none() {
        let name = action.as_str();
        return Err(JournalError::Refused(format!(
            "{name} needs the whole document as its payload"
        )));
    }
    check_claim(change, wanted)
}

/// A record without a document: a notification.
pub(crate) fn check_event(action: Action, change: &Change, mode: Mode) -> Result<(), JournalError> {
    if action.class(mode) == ActionClass::JournalMeta {
        let name = action.as_str();
        return Err(JournalError::Refused(format!(
            "{name} is the journal's own; nobody else writes it"
        )));
    }
    if change.document.is_some() {
        return Err(JournalError::Refused(format!(
            "{} takes no payload",
            action.as_str()
        )));
    }
    Ok(())
}
