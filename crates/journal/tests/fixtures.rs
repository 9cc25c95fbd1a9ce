//! Stores of every format that was ever written, opened for ever.
//!
//! `HEDDLE_WRITE_FIXTURES=1` writes the folder of a new format; a folder that is there is never changed.
#![cfg(test)]
#![allow(
    clippy::disallowed_methods,
    reason = "a test may be told to write its fixture"
)]

mod support;

use std::path::{Path, PathBuf};

use heddle_journal::disk::{Crash, Disk, Fault, MemDisk};
use heddle_journal::{JournalError, Settings};
use serde_json::json;
use support::model::rebuilt;
use support::*;

fn folder(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(version)
}

/// Two segments, a checkpoint, a blob, a tombstone, a torn tail with its note, a repair.
fn write_v2() -> MemDisk {
    let disk = MemDisk::new();
    let journal = init(&disk);
    let journal = journal.with_settings(Settings {
        roll_bytes: 500,
        ..quick()
    });
    commit(&journal, vec![plan("a", 1), plan("b", 1)]);
    commit(
        &journal,
        vec![put(
            "handoff",
            "h",
            json!({"summary": "long ".repeat(14_000)}),
        )],
    );
    commit(
        &journal,
        vec![
            delete("plan", "b"),
            put("claim", "c", json!({"status": "claimed"})),
        ],
    );
    disk.fault_at(disk.ops() + 2, Fault::Stop);
    // Without a roll: the append is the first operation.
    assert!(
        open(&disk, 1, 4)
            .unwrap()
            .mutate(vec![plan("a", 2)])
            .is_err()
    );
    let disk = disk.crash(&Crash::CutLastAppend(60));
    commit(&open(&disk, 1, 5).unwrap(), vec![plan("a", 3)]);
    disk
}

fn load(from: &Path, to: &str, disk: &MemDisk) {
    disk.create_dir(Path::new(to)).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = format!("{to}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            load(&entry.path(), &target, disk);
        } else {
            disk.write(Path::new(&target), &std::fs::read(entry.path()).unwrap())
                .unwrap();
        }
    }
}

#[test]
fn the_store_of_format_2_opens_verifies_and_goes_on() {
    let from = folder("v2");
    if std::env::var("HEDDLE_WRITE_FIXTURES").is_ok() && !from.exists() {
        for (path, bytes) in write_v2().files() {
            let inside = path.strip_prefix(ROOT).unwrap();
            // Its own .gitignore would keep the segments out of our repository.
            if !inside.starts_with(".gitignore") && !inside.starts_with("events/lock") {
                let target = from.join(inside);
                std::fs::create_dir_all(target.parent().unwrap()).unwrap();
                std::fs::write(target, bytes).unwrap();
            }
        }
    }
    let disk = MemDisk::new();
    load(&from, ROOT, &disk);
    let journal = open(&disk, 1, 30).unwrap();
    let report = journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
    assert_eq!((report.entities, report.counters.torn_adjudicated), (3, 1));
    let from = journal.rebuild(0).unwrap().from;
    assert!(
        from.is_some(),
        "the fixture has a checkpoint, and it serves"
    );
    let world = rebuilt(&journal, usize::MAX);
    assert_eq!(rebuilt(&journal, 0), world);
    assert_eq!(world[&("plan".into(), "b".into())], (2, None));
    let a = journal.show("plan", "a").unwrap();
    assert_eq!((a.entity_rev, &a.payload["n"]), (2, &json!(3)));
    let h = journal.show("handoff", "h").unwrap();
    assert_eq!(h.payload["summary"].as_str().unwrap().len(), 70_000);
    assert!(matches!(
        journal.show("plan", "b"),
        Err(JournalError::NotFound { .. })
    ));
    let receipt = &commit(&journal, vec![plan("b", 2)])[0];
    assert_eq!(receipt.entity_rev, Some(3));
    assert!(journal.verify().unwrap().ok);
}
