//! The entity files of an older store: found, read, and told apart from what is none. Changes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::disk::{Disk, read_if_there};
use crate::error::{At, JournalError};
use crate::federation::CANDIDATE;
use crate::format::{BLOB_BYTES_MAX, is_item_id};
use crate::registry::{Registry, TypeClass};

/// The log of a `.brainclaw` store, in the places where its versions put it. A store that was upgraded has several.
pub(super) const LOGS: [&str; 3] = ["events.jsonl", "events/events.jsonl", "events.v1.jsonl"];
const LOG_BYTES_MAX: u64 = 4 << 30;
/// Folders in folders: deeper than any older store is.
const DEPTH_MAX: usize = 8;
/// What is not of the present: put away, copies, and what belongs to the log.
const LEFT: [&str; 8] = [
    "archive",
    "archived",
    "backup",
    "backups",
    "blobs",
    "events",
    "quarantine",
    "trash",
];

/// Candidates of an older store lie here, beside folders of messages.
const INBOX: &str = "inbox";

/// What lies in a folder of entity files.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// Type, id, document.
    pub(super) entities: Vec<(String, String, Value)>,
    /// Files in a folder of a type that are no entity of it, and why.
    pub(super) refused: Vec<String>,
    /// Other files, in no folder of a type.
    pub(super) ignored: Vec<String>,
    /// Folders that are not of the present, and how many files each has.
    pub(super) passed_over: Vec<String>,
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
        self.ignored.extend(other.ignored);
        self.passed_over.extend(other.passed_over);
        self.log = other.log.or(self.log);
        self
    }
}

/// The projections of this very store: one folder a type, and nothing below it.
pub(super) fn read_own(
    disk: &dyn Disk,
    registry: &Registry,
    folder: &Path,
) -> Result<Source, JournalError> {
    let mut walk = Walk::new(disk, registry, folder, 0);
    walk.groups(folder, 0)?;
    walk.end()
}

/// The folder of an older store. Its folders of types may lie in others (`memory/decisions`, `coordination/plans`).
pub(super) fn read(
    disk: &dyn Disk,
    registry: &Registry,
    folder: &Path,
) -> Result<Source, JournalError> {
    let mut walk = Walk::new(disk, registry, folder, DEPTH_MAX);
    walk.groups(folder, 0)?;
    walk.end()
}

struct Walk<'w> {
    disk: &'w dyn Disk,
    registry: &'w Registry,
    /// Where it began.
    folder: &'w Path,
    depth_max: usize,
    source: Source,
    /// Type and id: which file they came from, and what it holds.
    found: BTreeMap<(String, String), (PathBuf, Value)>,
}

impl<'w> Walk<'w> {
    fn new(disk: &'w dyn Disk, registry: &'w Registry, folder: &'w Path, depth_max: usize) -> Self {
        Self {
            disk,
            registry,
            folder,
            depth_max,
            source: Source::default(),
            found: BTreeMap::new(),
        }
    }

    /// A folder of folders.
    fn groups(&mut self, folder: &Path, depth: usize) -> Result<(), JournalError> {
        for entry in self.disk.list(folder).at(folder)? {
            let inside = folder.join(&entry.name);
            if entry.name.starts_with('.') {
                continue;
            }
            if !entry.is_dir {
                self.ignore(&inside);
                continue;
            }
            match type_of(self.registry, &entry.name) {
                Some(item_type) => self.family(&inside, &item_type)?,
                None if is_left(self.registry, &entry.name) || depth >= self.depth_max => {
                    self.pass_over(&inside)?;
                }
                None if entry.name == INBOX => self.inbox(&inside)?,
                None => self.groups(&inside, depth + 1)?,
            }
        }
        Ok(())
    }

    /// A folder of a type: each file is an entity of it, or is refused.
    fn family(&mut self, folder: &Path, item_type: &str) -> Result<(), JournalError> {
        for file in self.disk.list(folder).at(folder)? {
            let path = folder.join(&file.name);
            if file.name.starts_with('.') {
                continue;
            }
            if file.is_dir {
                if self.depth_max == 0 || is_left(self.registry, &file.name) {
                    self.pass_over(&path)?;
                } else {
                    self.below(&path, item_type, 1)?;
                }
                continue;
            }
            let Some(id) = file.name.strip_suffix(".json") else {
                self.ignore(&path);
                continue;
            };
            match entity(self.disk, self.registry, &path, item_type, id) {
                Ok(document) => self.take(path, item_type, id, document),
                Err(reason) => self.refuse(&path, &reason),
            }
        }
        Ok(())
    }

    /// Below a folder of a type there may be anything: an entity there is a document that says its own id.
    fn below(&mut self, folder: &Path, item_type: &str, depth: usize) -> Result<(), JournalError> {
        for file in self.disk.list(folder).at(folder)? {
            let path = folder.join(&file.name);
            if file.name.starts_with('.') {
                continue;
            }
            if file.is_dir {
                if depth >= self.depth_max || is_left(self.registry, &file.name) {
                    self.pass_over(&path)?;
                } else {
                    self.below(&path, item_type, depth + 1)?;
                }
                continue;
            }
            let id = file.name.strip_suffix(".json").unwrap_or_default();
            let read = entity(self.disk, self.registry, &path, item_type, id);
            match read {
                Ok(document) if document["id"] == id => self.take(path, item_type, id, document),
                _ => self.ignore(&path),
            }
        }
        Ok(())
    }

    fn take(&mut self, path: PathBuf, item_type: &str, id: &str, document: Value) {
        let key = (item_type.to_owned(), id.to_owned());
        match self.found.get(&key) {
            Some((_, held)) if *held == document => {}
            Some((other, _)) => {
                let reason = format!("{} is {item_type} {id}, too, and differs", other.display());
                self.refuse(&path, &reason);
            }
            None => {
                self.found.insert(key, (path, document));
            }
        }
    }

    fn refuse(&mut self, path: &Path, reason: &str) {
        let told = format!("{}: {reason}", path.display());
        self.source.refused.push(told);
    }

    /// In one of their places; a file of such a name elsewhere is not parked, and named.
    fn is_log(&self, path: &Path) -> bool {
        LOGS.iter().any(|log| self.folder.join(log) == path)
    }

    fn ignore(&mut self, path: &Path) {
        // The log of the store is parked as it is.
        if !self.is_log(path) && self.depth_max > 0 {
            self.source.ignored.push(path.display().to_string());
        }
    }

    /// The inbox of an older store: candidates that nobody has decided on, and folders of messages and of those that were decided.
    fn inbox(&mut self, folder: &Path) -> Result<(), JournalError> {
        for file in self.disk.list(folder).at(folder)? {
            let path = folder.join(&file.name);
            if file.name.starts_with('.') {
                continue;
            }
            if file.is_dir {
                self.pass_over(&path)?;
                continue;
            }
            let id = file.name.strip_suffix(".json").unwrap_or_default();
            match entity(self.disk, self.registry, &path, CANDIDATE, id) {
                Ok(document) if document["id"] == id => self.take(path, CANDIDATE, id, document),
                _ => self.ignore(&path),
            }
        }
        Ok(())
    }

    /// Nothing of it is taken in, and that is said.
    fn pass_over(&mut self, folder: &Path) -> Result<(), JournalError> {
        let count = self.files_in(folder, 0)?;
        if count > 0 && self.depth_max > 0 {
            let told = format!("{} ({count} files)", folder.display());
            self.source.passed_over.push(told);
        }
        Ok(())
    }

    fn files_in(&self, folder: &Path, depth: usize) -> Result<u64, JournalError> {
        let mut count = 0;
        for entry in self.disk.list(folder).at(folder)? {
            if entry.name.starts_with('.') {
                continue;
            }
            let inside = folder.join(&entry.name);
            count += if !entry.is_dir {
                u64::from(!self.is_log(&inside))
            } else if depth < DEPTH_MAX {
                self.files_in(&inside, depth + 1)?
            } else {
                0
            };
        }
        Ok(count)
    }

    fn end(mut self) -> Result<Source, JournalError> {
        // By type and id already.
        let found = std::mem::take(&mut self.found).into_iter();
        self.source.entities = found
            .map(|((item_type, id), (_, document))| (item_type, id, document))
            .collect();
        // All of them, one behind the other; a copy once.
        let mut logs: Vec<Vec<u8>> = Vec::new();
        for name in LOGS {
            let path = self.folder.join(name);
            let log = read_if_there(self.disk, &path, LOG_BYTES_MAX).at(&path)?;
            logs.extend(log.filter(|log| !logs.contains(log)));
        }
        self.source.log = logs.into_iter().reduce(|mut all, more| {
            if all.last().is_some_and(|last| *last != b'\n') {
                all.push(b'\n');
            }
            all.extend(more);
            all
        });
        Ok(self.source)
    }
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

/// A folder that is no entity's and is not asked about.
fn is_left(registry: &Registry, folder: &str) -> bool {
    let name = folder.strip_suffix('s').unwrap_or(folder);
    let is_singleton = [folder, name]
        .into_iter()
        .any(|name| registry.get(name).is_some() && registry.class(name) == TypeClass::Singleton);
    is_singleton || LEFT.contains(&folder)
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
