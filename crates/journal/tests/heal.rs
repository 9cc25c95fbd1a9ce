//! A blob that is lost or damaged: told by its entity, put back from a copy, and a way on where there is none.
#![cfg(test)]

mod support;

use std::path::{Path, PathBuf};

use heddle_journal::disk::{Disk, MemDisk};
use heddle_journal::{Cause, Journal};
use serde_json::json;
use support::*;

fn blob(disk: &MemDisk) -> PathBuf {
    let mut files = disk.files();
    files.retain(|path, _| path.starts_with("/repo/.heddle/events/blobs"));
    files.into_keys().next().unwrap()
}

fn file() -> PathBuf {
    Path::new(ROOT).join("entities/plan/big.json")
}

fn big(n: u64) -> heddle_journal::Change {
    put("plan", "big", json!({"n": n, "body": "y".repeat(70_000)}))
}

fn store() -> (MemDisk, Journal) {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![big(1), plan("a", 1)]);
    journal.checkpoint().unwrap();
    (disk, journal)
}

#[test]
fn jn_11_a_lost_or_damaged_blob_is_put_back_from_the_file_of_its_entity() {
    for is_lost in [true, false] {
        let (disk, journal) = store();
        let path = blob(&disk);
        let bytes = disk.files()[&path].clone();
        if is_lost {
            disk.remove(&path).unwrap();
        } else {
            disk.tamper(&path, |bytes| bytes[100] ^= 1);
        }
        let told = journal.examine().unwrap();
        assert!(told.verdict.contains("blobs"), "{}", told.verdict);
        assert!(told.next.contains("journal rebuild"), "{}", told.next);
        assert_eq!(told.verified.divergent[0].cause, Cause::Blob);
        let restored = journal.restore().unwrap();
        assert_eq!((restored.blobs, restored.mended), (1, 0));
        assert_eq!(disk.files()[&path], bytes);
        let report = journal.verify().unwrap();
        assert!(report.ok, "{report:#?}");
        assert_eq!(report.warnings, [""; 0], "the checkpoint is sound again");
    }
}

/// The file was edited too: no copy is left. Recording it anew and moving the checkpoint aside is the whole way.
#[test]
fn a_blob_of_which_no_copy_is_left_does_not_lead_in_a_circle() {
    let (disk, journal) = store();
    disk.remove(&blob(&disk)).unwrap();
    disk.tamper(&file(), |bytes| *bytes = br#"{"n": 7}"#.to_vec());
    let restored = journal.restore().unwrap();
    assert_eq!(restored.blobs, 0);
    let unmended: Vec<_> = restored.unmended.iter().map(|one| &one.item_id).collect();
    assert_eq!(unmended, ["big"], "what no rebuild gives back is told");
    let report = journal.verify().unwrap();
    let causes: Vec<Cause> = report.divergent.iter().map(|one| one.cause).collect();
    assert_eq!(causes, [Cause::Blob], "{report:#?}");
    commit(&journal, vec![big(2)]);
    assert_eq!(journal.quarantine().unwrap().checkpoints.len(), 1);
    journal.checkpoint().unwrap();
    let report = journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
}

/// JN-24: nobody shows it any more, and it was recorded: its loss is told, and ends with a copy or with a word.
#[test]
fn jn_24_a_lost_blob_of_a_past_revision_is_told_and_put_back_from_a_backup() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![big(1)]);
    let path = blob(&disk);
    commit(&journal, vec![big(2)]);
    assert_eq!(journal.verify().unwrap().warnings, [""; 0]);
    let bytes = disk.files()[&path].clone();
    disk.remove(&path).unwrap();
    let told = journal.verify().unwrap();
    assert!(told.ok, "the state is whole: {told:#?}");
    let is_told = |warning: &String| warning.contains("plan big at seq 1");
    assert!(told.warnings.iter().any(is_told), "{:?}", told.warnings);
    assert_eq!(journal.restore().unwrap().blobs, 0);
    // A person gives it up.
    let image = disk.fork();
    let seq = heddle_journal::Target::Seq(1);
    let other = open(&image, 1, 9).unwrap();
    other.redact(&seq, "its blob is lost").unwrap();
    assert_eq!(other.verify().unwrap().warnings, [""; 0]);
    // A backup has it.
    let inside = path.strip_prefix(ROOT).unwrap();
    let copy = Path::new(ROOT).join("backups/b").join(inside);
    disk.create_dir(copy.parent().unwrap()).unwrap();
    disk.write(&copy, &bytes).unwrap();
    assert_eq!(journal.restore().unwrap().blobs, 1);
    assert_eq!(disk.files()[&path], bytes);
    assert_eq!(journal.verify().unwrap().warnings, [""; 0]);
}

/// The type's schema is away: the records are sound, and with it they are understood again.
#[test]
fn a_type_whose_schema_is_away_is_told_as_that_and_not_as_a_fault_of_its_records() {
    let disk = MemDisk::new();
    drop(init(&disk));
    let schema = Path::new(ROOT).join("schemas/incident.json");
    disk.create_dir(schema.parent().unwrap()).unwrap();
    let bytes = br#"{"type":"object","x-class":"memory"}"#;
    disk.write(&schema, bytes).unwrap();
    let journal = open(&disk, 1, 2).unwrap();
    commit(&journal, vec![put("incident", "i", json!({"a": 1}))]);
    disk.remove(&schema).unwrap();
    let journal = open(&disk, 1, 3).unwrap();
    let told = journal.examine().unwrap();
    assert!(told.verdict.contains("type"), "{}", told.verdict);
    assert!(told.next.contains("schemas"), "{}", told.next);
    assert_eq!(told.verified.divergent[0].cause, Cause::Type);
    disk.write(&schema, bytes).unwrap();
    assert!(open(&disk, 1, 4).unwrap().verify().unwrap().ok);
}
