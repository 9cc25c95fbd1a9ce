//! What a claim must say that holds paths.

use heddle_core::clock::WallMs;
use serde_json::Value;

use super::{Glob, HOLDS, PREFIX, is_reservation};
use crate::error::JournalError;
use crate::mutate::Change;

/// A claim that would hold paths says which, for whom and until when: what nobody can read would hold for ever, or nothing at all.
pub(crate) fn check_claim(change: &Change, wanted: Option<&Value>) -> Result<(), JournalError> {
    let id = change.item_id.as_deref().unwrap_or_default();
    let is_ours = is_reservation(&change.item_type, id);
    let Some(document) = wanted.filter(|document| is_ours && document["status"] == HOLDS) else {
        return Ok(());
    };
    let word = |name: &str| document[name].as_str().unwrap_or_default();
    let refused = |reason: String| {
        Err(JournalError::Refused(format!(
            "a claim whose id begins with {PREFIX} is a reservation, and {reason}; `heddle reserve` writes one"
        )))
    };
    if WallMs::parse_rfc3339(word("until")).is_none() {
        return refused(format!(
            "its `until` is a time such as 2030-01-31T12:00:00Z, not {}",
            document["until"]
        ));
    }
    if let Err(reason) = Glob::parse(word("scope")) {
        return refused(format!("its `scope` is a pattern: {reason}"));
    }
    if word("agent").is_empty() {
        return refused("its `agent` says who holds it".to_owned());
    }
    Ok(())
}
