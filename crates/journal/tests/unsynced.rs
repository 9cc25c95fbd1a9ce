//! A disk whose syncs fail: what is answered afterwards, also to a retry, is on the disk.
#![cfg(test)]

mod support;

use std::path::Path;

use heddle_journal::JournalError;
use heddle_journal::disk::{Crash, Fault, MemDisk, Op};
use support::*;

const FAILS: Fault = Fault::Error(std::io::ErrorKind::Other);

fn store() -> MemDisk {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    // The table of requests is there: what fails next is the sync of a record.
    let told = journal.mutate_once(plan("a", 2), "first").unwrap();
    told.finish().unwrap();
    disk
}

/// The retry of a request, by another process on a disk that is well; then the power goes.
#[track_caller]
fn answered_is_there(disk: &MemDisk, what: &str) {
    let journal = open(disk, 1, 9).unwrap();
    let told = journal.mutate_once(plan("b", 1), "k");
    let told = told.unwrap_or_else(|error| panic!("{what}: {error}"));
    let receipt = told.receipts()[0].clone();
    // Before anything else is synced.
    let image = disk.crash(&Crash::LoseAll);
    drop(told);
    let after = open(&image, 2, 10).unwrap();
    let shown = after.show("plan", "b");
    let shown = shown.unwrap_or_else(|error| panic!("{what}: {receipt:?}, and then {error}"));
    assert_eq!(Some(shown.entity_rev), receipt.entity_rev, "{what}");
    assert_eq!(shown.entity_rev, 1, "{what}: recorded once");
    let seqs = seqs(&after);
    let whole: Vec<u64> = (1..=seqs.len() as u64).collect();
    assert_eq!(seqs, whole, "{what}: each once, and none is lost");
}

#[test]
fn jn_16_a_retry_is_answered_by_a_record_that_is_on_the_disk_where_every_sync_had_failed() {
    for tries in 1..5 {
        let disk = store();
        disk.fail_syncs(true);
        for seed in 0..tries {
            let told = open(&disk, 1, 20 + seed).unwrap();
            let told = told.mutate_once(plan("b", 1), "k").map(drop);
            let is_it = matches!(told, Err(JournalError::SyncFailed { .. }));
            assert!(is_it, "{told:?}");
        }
        disk.fail_syncs(false);
        answered_is_there(&disk, &format!("{tries} tries"));
    }
}

/// Whatever else fails behind the sync: the marker, its name, all of it.
#[test]
fn jn_16_no_combination_of_failures_behind_a_failed_sync_makes_a_record_durable_that_is_not() {
    let base = store();
    let append = {
        let disk = base.fork();
        let before = disk.ops();
        disk.fail_syncs(true);
        disk.start_trace();
        let journal = open(&disk, 1, 5).unwrap();
        drop(journal.mutate_once(plan("b", 1), "k"));
        let trace = disk.take_trace();
        let at = trace.iter().position(|(op, _)| *op == Op::Append);
        let at = at.unwrap_or_else(|| panic!("{trace:?}"));
        assert_eq!(trace[at + 1].0, Op::Sync);
        before + at as u64 + 1
    };
    for bits in 0..64_u64 {
        let disk = base.fork();
        disk.fault_at(append + 1, FAILS);
        for nth in (0..6).filter(|nth| bits & (1 << nth) != 0) {
            disk.fault_at(append + 2 + nth, FAILS);
        }
        let told = open(&disk, 1, 6).unwrap();
        let told = told.mutate_once(plan("b", 1), "k").map(drop);
        assert!(matches!(told, Err(JournalError::SyncFailed { .. })));
        // Neither the marker, nor an empty one, nor blanks over the batch were taken: nobody can know. The marker is
        // a write and a rename.
        if bits & 0b111 == 0b111 || bits & 0b1111 == 0b1110 {
            continue;
        }
        answered_is_there(&quiet(&disk), &format!("{bits:06b}"));
    }
}

/// The same disk without what is still to fail.
fn quiet(disk: &MemDisk) -> MemDisk {
    disk.fork()
}

/// Several batches are unproven: the first that comes again fails, and none of the others is forgotten.
#[test]
fn jn_16_what_comes_again_and_fails_again_comes_again_as_a_whole() {
    for failing in 1..12 {
        let disk = store();
        disk.fault_at(disk.ops() + 2, FAILS);
        let first = open(&disk, 1, 5).unwrap();
        assert!(first.mutate(vec![plan("b", 1)]).is_err());
        // It says no place: everything is doubtful, what was synced before too.
        let marker = Path::new("/repo/.heddle/events/unsynced.json");
        assert!(disk.tamper(marker, Vec::clear));
        let second = open(&disk, 1, 6).unwrap();
        disk.fault_at(disk.ops() + failing, FAILS);
        let _ = second.mutate(vec![plan("c", 1)]).map(drop);
        let disk = quiet(&disk);
        commit(&open(&disk, 1, 7).unwrap(), vec![plan("d", 1)]);
        let before = support::model::rebuilt(&open(&disk, 1, 8).unwrap(), 0);
        let image = disk.crash(&Crash::LoseAll);
        let after = open(&image, 2, 9).unwrap();
        let seen = support::model::rebuilt(&after, 0);
        assert_eq!(before, seen, "failed at {failing}");
    }
}

/// A process died before its sync, and the sync of whoever found that fails: nobody else's proves it.
#[test]
fn jn_16_the_sync_of_a_recovery_that_fails_is_remembered() {
    let disk = store();
    disk.fault_at(disk.ops() + 2, Fault::Stop);
    let first = open(&disk, 1, 5).unwrap();
    assert!(first.mutate_once(plan("b", 1), "k").is_err());
    // The machine goes on, and so does what its disk has not written yet.
    let disk = disk.fork();
    disk.fail_syncs(true);
    let second = open(&disk, 1, 6).unwrap();
    assert!(second.mutate_once(plan("b", 1), "k").is_err());
    disk.fail_syncs(false);
    answered_is_there(&disk, "a recovery");
}

/// C1: nobody put the file there. The delete is in the journal, and its sync failed before the file could go.
#[test]
fn a_file_whose_delete_could_not_be_synced_is_explained_by_it() {
    let disk = store();
    disk.fail_syncs(true);
    let journal = open(&disk, 1, 5).unwrap();
    assert!(!journal.is_deleted("plan", "a"));
    let told = journal.mutate(vec![delete("plan", "a")]).map(drop);
    assert!(matches!(told, Err(JournalError::SyncFailed { .. })));
    let reader = open(&disk, 1, 6).unwrap();
    let shown = reader.show("plan", "a");
    assert!(matches!(shown, Err(JournalError::NotFound { .. })));
    assert!(reader.is_deleted("plan", "a"));
    // What was erased was deleted by nobody.
    disk.fail_syncs(false);
    let journal = open(&disk, 1, 7).unwrap();
    commit(&journal, vec![plan("e", 1)]);
    journal
        .redact(&support::power::item("plan", "e"), "asked for")
        .unwrap();
    assert!(!journal.is_deleted("plan", "e") && !journal.is_deleted("plan", "none"));
}
