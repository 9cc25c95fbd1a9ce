//! Several stores, each on a disk of its own, that exchange slices.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use heddle_journal::disk::MemDisk;
use heddle_journal::federation::{ExportAsk, Exported, Imported, Renew};
use heddle_journal::{Journal, Who};
use serde_json::Value;

use super::model::rebuilt;
use super::{ROOT, quick, world};

pub struct Store {
    pub disk: MemDisk,
    pub journal: Journal,
}

pub fn store(seed: u64) -> Store {
    use heddle_journal::disk::Disk;
    let disk = MemDisk::new();
    disk.create_dir(Path::new("/repo")).unwrap();
    let who = Who {
        agent: format!("agent-{seed}"),
        agent_id: None,
        user: Some("alice".to_owned()),
    };
    let journal = Journal::init(world(Arc::new(disk.clone()), 1, seed), Path::new(ROOT), who);
    let journal = journal.unwrap().with_settings(quick());
    Store { disk, journal }
}

pub fn ask(since: u64) -> ExportAsk {
    ExportAsk {
        since,
        limit: usize::MAX,
        types: Vec::new(),
        renew: Renew::No,
    }
}

#[track_caller]
pub fn export(store: &Store, since: u64) -> Exported {
    store.journal.export_slice(&ask(since)).unwrap()
}

#[track_caller]
pub fn import(store: &Store, slice: &Exported) -> Imported {
    store.journal.import_slice(&slice.slice, false).unwrap()
}

pub fn plan_of(store: &Store, id: &str) -> (u64, Value) {
    let shown = store.journal.show("plan", id).unwrap();
    (shown.entity_rev, shown.payload)
}

/// Heads of everything but the candidates, which each store makes for itself.
pub fn heads(store: &Store) -> BTreeMap<(String, String), (u64, Option<Value>)> {
    let mut world = rebuilt(&store.journal, 0);
    world.retain(|(item_type, _), _| item_type != "candidate");
    world
}

pub fn candidates(store: &Store) -> Vec<Value> {
    let world = rebuilt(&store.journal, 0).into_iter();
    world
        .filter(|((item_type, _), _)| item_type == "candidate")
        .filter_map(|(_, (_, document))| document)
        .collect()
}

#[track_caller]
pub fn sound(store: &Store) {
    let report = store.journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
    assert_eq!(report.warnings, [""; 0]);
    assert_eq!(
        rebuilt(&store.journal, usize::MAX),
        rebuilt(&store.journal, 0)
    );
}
