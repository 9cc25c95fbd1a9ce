//! The entity files of an older store: found, read, and told apart from what is none. Changes nothing.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::disk::{Disk, read_if_there};
use crate::error::{At, JournalError};
use crate::format::{BLOB_BYTES_MAX, is_item_id};
use crate::registry::{Registry, TypeClass};

/// The log of a `.brainclaw` store, in the places where its versions put it.
const LOGS: [&str; 3] = ["events.jsonl", "events/events.jsonl", "events.v1.jsonl"];
const LOG_BYTES_MAX: u64 = 4 << 30;

/// What lies in a folder of entity files.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// Type, id, document.
    pub(super) entities: Vec<(String, String, Value)>,
    /// Files in a folder of a type that are no entity of it, and why.
    pub(super) refused: Vec<String>,
    pub(super) log: Option<Vec<u8>>,
}

impl Source {
    /// Both, where this one's entities stay as they are; those of the other that differ are named.
    pub(super) fn over(mut self, mut other: Self, kept: &mut Vec<String>) -> Self {
        let own: BTreeMap<(&str, &str), &Value> = self
            .entities
            .iter()
            .map(|(t, id, document)| ((t.as_str(), id.as_str()), document))
            .collect();
        other.entities.retain(|(item_type, id, document)| {
            let held = own.get(&(item_type.as_str(), id.as_str()));
            if held.is_some_and(|held| *held != document) {
                kept.push(format!("{item_type} {id}"));
            }
            held.is_none()
        });
        self.entities.extend(other.entities);
        self.entities
            .sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        self.refused.extend(other.refused);
        self.log = other.log.or(self.log);
        self
    }
}

pub(super) fn read(
    disk: &dyn Disk,
    registry: &Registry,
    folder: &Path,
) -> Result<Source, JournalError> {
    let mut source = Source::default();
    for family in disk.list(folder).at(folder)? {
        let Some(item_type) = type_of(registry, &family.name).filter(|_| family.is_dir) else {
            continue;
        };
        let inside = folder.join(&family.name);
        for file in disk.list(&inside).at(&inside)? {
            let Some(id) = file.name.strip_suffix(".json") else {
                continue;
            };
            if file.is_dir || file.name.starts_with('.') {
                continue;
            }
            let path = inside.join(&file.name);
            match entity(disk, registry, &path, &item_type, id) {
                Ok(document) => {
                    let entity = (item_type.clone(), id.to_owned(), document);
                    source.entities.push(entity);
                }
                Err(reason) => source.refused.push(format!("{}: {reason}", path.display())),
            }
        }
    }
    source
        .entities
        .sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    for name in LOGS {
        let path = folder.join(name);
        if source.log.is_none() {
            source.log = read_if_there(disk, &path, LOG_BYTES_MAX).at(&path)?;
        }
    }
    Ok(source)
}

pub(super) fn entity(
    disk: &dyn Disk,
    registry: &Registry,
    path: &Path,
    item_type: &str,
    id: &str,
) -> Result<Value, String> {
    if !is_item_id(id) {
        return Err("its name cannot be an item id".to_owned());
    }
    let bytes = disk
        .read(path, BLOB_BYTES_MAX as u64)
        .map_err(|error| error.to_string())?;
    let document =
        heddle_core::canonical::parse_ijson(&bytes).map_err(|error| error.to_string())?;
    registry
        .load(item_type, document)
        .map_err(|error| error.to_string())
}

/// `plan`, `plans`, `agent-runs`, `runs`: the names that folders of entities have had. A session is
/// ephemeral and stays where it is.
fn type_of(registry: &Registry, folder: &str) -> Option<String> {
    let name = folder.replace('-', "_");
    let name = match name.as_str() {
        "runs" | "agentruns" => "agent_run",
        "runtime" => "runtime_note",
        other => other,
    };
    let is_entity =
        |name: &str| registry.get(name).is_some() && registry.class(name) != TypeClass::Singleton;
    [Some(name), name.strip_suffix('s')]
        .into_iter()
        .flatten()
        .find(|name| is_entity(name))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_every_spelling_find_their_type_and_others_find_none() {
        let registry = Registry::builtin().unwrap();
        for (folder, expected) in [
            ("plan", Some("plan")),
            ("plans", Some("plan")),
            ("runtime-notes", Some("runtime_note")),
            ("runs", Some("agent_run")),
            ("loops", Some("loop")),
            ("sessions", None),
            ("state", None),
            ("events", None),
            ("journal", None),
        ] {
            assert_eq!(type_of(&registry, folder).as_deref(), expected, "{folder}");
        }
    }
}
