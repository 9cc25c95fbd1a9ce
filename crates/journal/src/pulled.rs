//! Claims, runs and the like of another clone that git brought as files: no drift where it is known whose they are.
//!
//! A slice shows such an entity as `<origin>.<id>`, read-only, and git brings it under the name that it has in its own store. Moved
//! aside, its file would be gone for the other clone with the next commit.

use std::collections::BTreeSet;

use crate::error::JournalError;
use crate::federation::is_origin_id;
use crate::journal::Journal;
use crate::registry::TypeClass;
use crate::replay::{Replay, Unknown};

/// Folder and name.
pub(crate) type Stranger = (String, String);

/// The id that an entity of another store has there.
fn bare_id(id: &str) -> Option<&str> {
    let (origin, bare) = id.split_once('.')?;
    is_origin_id(origin).then_some(bare)
}

impl Journal {
    /// Files that no record explains: those that nobody knows, and those of another store.
    pub(crate) fn parted_strangers(
        &self,
        replay: &Replay<Unknown>,
        all: Vec<Stranger>,
    ) -> (Vec<Stranger>, Vec<Stranger>) {
        let is_execution = |folder: &str| self.registry.class(folder) == TypeClass::Execution;
        if !all.iter().any(|(folder, _)| is_execution(folder)) {
            return (all, Vec::new());
        }
        let entities = replay.entities().into_iter();
        let known: BTreeSet<(&str, &str)> = entities
            .filter_map(|(item_type, id, _)| Some((item_type, bare_id(id)?)))
            .collect();
        all.into_iter().partition(|(folder, name)| {
            let id = name.strip_suffix(".json").unwrap_or(name);
            let is_anothers = bare_id(id).is_some() || known.contains(&(folder, id));
            !(is_execution(folder) && is_anothers)
        })
    }

    pub(crate) fn warn_of_pulled(
        &self,
        replay: &Replay<Unknown>,
        warnings: &mut Vec<String>,
    ) -> Result<(), JournalError> {
        let (_, pulled) = self.parted_strangers(replay, self.all_strangers(replay)?);
        if !pulled.is_empty() {
            warnings.push(format!(
                "{} files are claims, runs or the like of another clone, which git brought: they are left as they are, and hold nothing here",
                pulled.len()
            ));
        }
        Ok(())
    }
}
