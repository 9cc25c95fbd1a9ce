//! Beside a newer build, and beside a writer that was stopped behind its answer: nothing is called damaged or lost that is not.
#![cfg(test)]

mod support;

use std::path::Path;

use heddle_journal::disk::{Disk as _, MemDisk};
use heddle_journal::{Glob, Journal, JournalError};
use serde_json::json;
use support::*;

const SEGMENT: &str = "/repo/.heddle/events/seg-00000000000000000001.jsonl";

/// A sound line in which one text is another.
fn resealed(line: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(line.to_vec()).unwrap();
    let text = text.trim_matches('\n').replace(from, to);
    let open = &text[..text.rfind(",\"crc\":\"").unwrap()];
    let crc = crc32c::crc32c_append(crc32c::crc32c(open.as_bytes()), b"}");
    format!("\n{open},\"crc\":\"{crc:08x}\"}}\n").into_bytes()
}

/// What a newer build may have written: another version of the envelope, or an action that this one does not know.
const NEWER: [(&str, &str); 2] = [
    ("\"v\":2", "\"v\":3"),
    ("\"action\":\"update\"", "\"action\":\"dream\""),
];

/// A store with `plan a`, behind which a newer build recorded something of an entity.
fn with_newer((from, to): (&str, &str), item_id: &str, rev: u64) -> MemDisk {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    drop(journal);
    let line = forged(2, "w_new", item_id, rev, &json!({"n": rev}));
    let line = resealed(&line, from, to);
    disk.tamper(Path::new(SEGMENT), |bytes| bytes.extend(&line));
    disk
}

#[test]
fn behind_records_of_a_newer_build_nobody_writes_and_none_of_them_is_called_torn() {
    for newer in NEWER {
        let disk = with_newer(newer, "b", 1);
        let before = disk.files();
        let reader = open(&disk, 1, 20).unwrap();
        assert_eq!(reader.show("plan", "a").unwrap().entity_rev, 1);
        let report = reader.verify().unwrap();
        assert!(!report.ok, "{report:#?}");
        let counters = &report.counters;
        let counted = (
            counters.newer_records,
            counters.damaged_lines,
            counters.torn_tail,
        );
        assert_eq!(counted, (1, 0, 0));
        assert!(
            report
                .warnings
                .iter()
                .any(|told| told.contains("newer heddle"))
        );
        for refused in [
            reader.mutate_whole(vec![plan("a", 2)]).map(drop),
            reader.quarantine().map(drop),
            reader.restore().map(drop),
        ] {
            assert!(
                matches!(refused, Err(JournalError::Newer(_))),
                "{refused:?}"
            );
        }
        let segment = Path::new(SEGMENT);
        assert_eq!(disk.files()[segment], before[segment]);
        // The newer build has gone on, with a record that this one knows: nothing of it is moved aside here.
        let known = forged(3, "w_new", "c", 1, &json!({"n": 1}));
        disk.tamper(segment, |bytes| bytes.extend(&known));
        let before = disk.files()[segment].clone();
        assert!(
            open(&disk, 1, 21)
                .unwrap()
                .quarantine()
                .unwrap()
                .parked
                .is_empty()
        );
        assert!(disk.files()[segment].starts_with(&before));
    }
}

#[test]
fn what_is_answered_and_not_yet_in_its_file_is_no_drift_while_somebody_holds_the_lock() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1), plan("b", 1)]);
    // Killed behind its answer, and the lock is held by one that stands still.
    std::mem::forget(
        journal
            .mutate(vec![plan("a", 2), delete("plan", "b")])
            .unwrap(),
    );
    let reader = open(&disk, 1, 22).unwrap();
    let report = reader.verify().unwrap();
    assert!(report.ok, "{report:#?}");
    let behind: Vec<&str> = report
        .behind
        .iter()
        .map(|one| one.item_id.as_str())
        .collect();
    assert_eq!(behind, ["a", "b"]);
    assert!(
        report
            .warnings
            .iter()
            .any(|told| told.contains("not level yet"))
    );
    // What was in its file before that, and is no more, is drift all the same.
    let file = Path::new(ROOT).join("entities/plan/a.json");
    let other = MemDisk::new();
    let journal = init(&other);
    commit(&journal, vec![plan("a", 1)]);
    other.tamper(&file, |bytes| *bytes = b"{\"n\":9}".to_vec());
    std::mem::forget(journal.mutate(vec![plan("c", 1)]).unwrap());
    let report = open(&other, 1, 23).unwrap().verify().unwrap();
    assert!(!report.ok && report.divergent.len() == 1, "{report:#?}");
}

#[test]
fn a_forged_last_revision_is_told_as_what_it_is() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    let line = forged(2, "w_forger", "a", u64::MAX, &json!({"n": 1}));
    disk.tamper(Path::new(SEGMENT), |bytes| bytes.extend(&line));
    let refused = open(&disk, 1, 24).unwrap().mutate_whole(vec![plan("a", 2)]);
    let told = refused.unwrap_err().to_string();
    assert!(told.contains("plan a") && told.contains("forger"), "{told}");
    commit(&open(&disk, 1, 25).unwrap(), vec![plan("b", 1)]);
}

/// A newer build wrote, then one that this build knows: what is not understood is here, and not lost.
#[test]
fn a_record_of_a_newer_build_in_the_middle_is_no_gap_and_nobody_is_asked_to_accept_it() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    let forged_of = |seq: u64| forged(seq, "w_new", "b", 1, &json!({"n": 1}));
    let newer = resealed(&forged_of(2), "\"v\":2", "\"v\":3");
    let known = forged(3, "w_old", "c", 1, &json!({"n": 1}));
    disk.tamper(Path::new(SEGMENT), |bytes| {
        bytes.extend(&newer);
        bytes.extend(&known);
    });
    let writer = open(&disk, 1, 26).unwrap();
    commit(&writer, vec![plan("a", 2)]);
    let report = writer.verify().unwrap();
    let counters = &report.counters;
    assert_eq!((counters.newer_records, counters.seq_gaps), (1, 0));
    assert!(!report.ok);
    assert_eq!(writer.losses().unwrap(), Vec::<[u64; 2]>::new());
    assert_eq!(writer.accept_gaps("r").unwrap().accepted.len(), 0);
    let page = writer.events("r", 10, true).unwrap();
    assert_eq!((page.missing.len(), page.newer, page.gap), (0, 1, true));
    // What is lost beside it is still told.
    let cut = disk.files()[Path::new(SEGMENT)].clone();
    commit(&writer, vec![plan("a", 3)]);
    drop(writer);
    disk.tamper(Path::new(SEGMENT), |bytes| *bytes = cut);
    let report = open(&disk, 1, 27).unwrap().verify().unwrap();
    assert_eq!(report.counters.seq_gaps, 1, "{report:#?}");
}

/// What a newer build has written at the end may be about anything: nobody passes what is known for the newest, or a path for free.
#[test]
fn what_a_newer_build_has_recorded_is_told_by_show_and_frees_no_path() {
    for newer in NEWER {
        let disk = with_newer(newer, "a", 2);
        let reader = open(&disk, 1, 30).unwrap();
        let shown = reader.show("plan", "a").unwrap();
        let note = shown.note.unwrap_or_default();
        assert!(note.contains("newer heddle"), "{newer:?}: {shown:?}");
        let absent = reader.show("plan", "b");
        assert!(matches!(absent, Err(JournalError::Newer(_))), "{absent:?}");
        let free = reader.blocked(&["src/a.rs".to_owned()]);
        assert!(matches!(free, Err(JournalError::Newer(_))), "{free:?}");
        assert!(reader.reservations().is_err(), "{newer:?}");
    }
}

/// In the middle they may be about anything that was recorded before them: only what is newer than they are is certain.
#[test]
fn what_a_newer_build_has_recorded_in_the_middle_is_told_wherever_it_may_decide_something() {
    for newer in NEWER {
        let disk = with_newer(newer, "b", 1);
        let known = forged(3, "w_old", "c", 1, &json!({"n": 1}));
        disk.tamper(Path::new(SEGMENT), |bytes| bytes.extend(&known));
        let journal = open(&disk, 1, 31).unwrap();
        commit(&journal, vec![plan("d", 1)]);
        let note_of = |journal: &Journal, id: &str| journal.show("plan", id).unwrap().note;
        let is_told = |journal: &Journal, id: &str| {
            note_of(journal, id).is_some_and(|note| note.contains("newer heddle"))
        };
        let is_newer = |error: JournalError| matches!(error, JournalError::Newer(_));
        let glob = Glob::parse("src/**").unwrap();
        let look = |journal: &Journal, when: &str| {
            assert!(is_told(journal, "a"), "{newer:?} {when}");
            for id in ["c", "d"] {
                assert_eq!(note_of(journal, id), None, "{newer:?} {when} {id}");
            }
            assert!(is_newer(journal.show("plan", "b").unwrap_err()), "{when}");
            let paths = ["src/a.rs".to_owned()];
            assert!(is_newer(journal.blocked(&paths).unwrap_err()), "{when}");
            assert!(is_newer(journal.reservations().unwrap_err()), "{when}");
            let hour = std::time::Duration::from_secs(3600);
            assert!(
                is_newer(journal.reserve(&glob, hour).unwrap_err()),
                "{when}"
            );
            let once = journal.mutate_once(plan("e", 1), "key").map(drop);
            assert!(is_newer(once.unwrap_err()), "{when}");
            // Its own build would begin with a checkpoint that is without what it said.
            assert!(is_newer(journal.checkpoint().unwrap_err()), "{when}");
        };
        look(&journal, "with caches");
        drop(journal);
        for cache in ["events/meta.json", "events/revisions.idx"] {
            disk.remove(&Path::new(ROOT).join(cache)).unwrap();
        }
        look(&open(&disk, 1, 32).unwrap(), "without");
        commit(&open(&disk, 1, 33).unwrap(), vec![plan("a", 2)]);
        assert!(!is_told(&open(&disk, 1, 34).unwrap(), "a"), "{newer:?}");
    }
}
