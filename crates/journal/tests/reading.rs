//! Reading: freshness, reconcile, stale under a held lock, read-through, cursors, gaps, observers.
#![cfg(test)]

mod support;

use std::path::Path;

use heddle_journal::action::Action;
use heddle_journal::disk::{Disk, Fault, MemDisk};
use heddle_journal::{Freshness, Journal, JournalError, Who};
use serde_json::{Value, json};
use support::*;

fn ids(journal: &Journal, reader: &str, peek: bool) -> (Vec<String>, bool) {
    let page = journal.events(reader, 1000, peek).unwrap();
    let id = |line: &serde_json::value::RawValue| {
        let value: Value = serde_json::from_str(line.get()).unwrap();
        value["item_id"].as_str().unwrap_or_default().to_owned()
    };
    (page.events.iter().map(|line| id(line)).collect(), page.gap)
}

#[test]
fn row_3_a_crash_between_append_and_projection_is_healed_by_the_next_read() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    let committed = journal.mutate(vec![plan("a", 2)]).unwrap();
    // The process is gone: no projection, no index, no cache.
    let image = disk.fork();
    std::mem::forget(committed);
    let next = open(&image, 1, 3).unwrap();
    assert!(matches!(
        next.freshness().unwrap(),
        Freshness::Behind(Some(_))
    ));
    let shown = next.show("plan", "a").unwrap();
    assert_eq!(
        (shown.entity_rev, &shown.payload["n"], shown.stale),
        (2, &json!(2), false)
    );
    assert_eq!(next.freshness().unwrap(), Freshness::Fresh);
}

#[test]
fn jn_33_j3_under_a_held_lock_memory_is_stale_and_claims_are_read_through() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    let claim = |status: &str| put("claim", "c", json!({"status": status}));
    commit(&journal, vec![plan("a", 1), claim("open")]);
    let committed = journal.mutate(vec![
        plan("a", 2),
        claim("claimed"),
        put("claim", "d", json!({"status": "new"})),
    ]);
    let committed = committed.unwrap();
    let reader = open(&disk, 1, 3).unwrap();
    let before = disk.files();
    let memory = reader.show("plan", "a").unwrap();
    assert_eq!((memory.entity_rev, memory.stale), (1, true));
    let held = reader.show("claim", "c").unwrap();
    assert_eq!(
        (held.entity_rev, &held.payload["status"], held.stale),
        (2, &json!("claimed"), false)
    );
    assert_eq!(reader.show("claim", "d").unwrap().payload["status"], "new");
    assert_eq!(
        disk.files(),
        before,
        "a reader without the lock writes nothing"
    );
    committed.finish().unwrap();
    let memory = reader.show("plan", "a").unwrap();
    assert_eq!((memory.entity_rev, memory.stale), (2, false));
}

#[test]
fn observers_never_lock_and_never_write() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(
        &journal,
        vec![plan("a", 1), put("claim", "c", json!({"status": "x"}))],
    );
    std::mem::forget(journal.mutate(vec![plan("a", 2)]).unwrap());
    let before = (disk.files(), disk.ops());
    let observer = open(&disk, 1, 3).unwrap();
    observer.observe("plan", "a").unwrap();
    observer.observe("claim", "c").unwrap();
    observer.verify().unwrap();
    observer.log(0, 100).unwrap();
    observer.events("r", 100, true).unwrap();
    observer.rebuild(0).unwrap();
    observer.freshness().unwrap();
    assert_eq!((disk.files(), disk.ops()), before);
}

#[test]
fn c43_jn_06_after_another_boot_a_fresh_looking_cache_is_not_trusted() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    // The power cut kept the cache and lost the projection.
    disk.remove(Path::new("/repo/.heddle/entities/plan/a.json"))
        .unwrap();
    assert_eq!(journal.freshness().unwrap(), Freshness::Fresh);
    let next = open(&disk, 2, 3).unwrap();
    assert_eq!(next.freshness().unwrap(), Freshness::Behind(None));
    assert_eq!(next.show("plan", "a").unwrap().entity_rev, 1);
    assert!(next.verify().unwrap().ok);
    assert_eq!(next.freshness().unwrap(), Freshness::Fresh);
}

#[test]
fn row_16_a_lost_cache_and_a_lost_index_are_rebuilt() {
    for lost in ["meta.json", "revisions.idx"] {
        let disk = MemDisk::new();
        let journal = init(&disk);
        commit(&journal, vec![plan("a", 1), plan("b", 1)]);
        commit(&journal, vec![delete("plan", "b")]);
        disk.remove(&Path::new("/repo/.heddle/events").join(lost))
            .unwrap();
        assert_eq!(journal.show("plan", "a").unwrap().entity_rev, 1, "{lost}");
        assert!(
            matches!(
                journal.show("plan", "b"),
                Err(JournalError::NotFound { .. })
            ),
            "{lost}"
        );
        let receipt = &commit(&journal, vec![plan("b", 2)])[0];
        assert_eq!(receipt.entity_rev, Some(3), "{lost}");
        assert!(journal.verify().unwrap().ok, "{lost}");
    }
}

#[test]
fn jn_22_row_12_row_13_each_event_once_in_order_through_roll_and_archive_or_a_gap() {
    let disk = MemDisk::new();
    let journal = init(&disk).with_settings(heddle_journal::Settings {
        roll_bytes: 1500,
        ..quick()
    });
    let reader = open(&disk, 1, 50).unwrap();
    let mut got = Vec::new();
    for n in 0..60 {
        commit(&journal, vec![plan(&format!("p{n}"), n)]);
        if n % 3 == 0 {
            got.extend(ids(&reader, "fast", false).0);
        }
        if n == 30 {
            assert_eq!(ids(&reader, "slow", false).0.len(), 31);
        }
        if n == 40 {
            assert!(journal.gc().unwrap().segments > 0);
        }
    }
    got.extend(ids(&reader, "fast", false).0);
    let expected: Vec<String> = (0..60).map(|n| format!("p{n}")).collect();
    assert_eq!(got, expected);
    journal.gc().unwrap();
    // Row 13: a reader that slept through the archive is told so, with a summary, and goes on.
    let page = reader.events("late", 1000, false).unwrap();
    let summary = page.summary.unwrap();
    assert!(page.gap && summary.entities > 0 && summary.oldest_seq > 1);
    assert!(page.events.len() < 60);
    assert_eq!(ids(&reader, "late", false), (vec![], false));
    // A peek moves nothing.
    commit(&journal, vec![plan("more", 1)]);
    assert_eq!(ids(&reader, "fast", true).0, ["more"]);
    assert_eq!(ids(&reader, "fast", false).0, ["more"]);
    assert!(ids(&reader, "fast", false).0.is_empty());
}

#[test]
fn a_page_that_is_full_goes_on_where_it_stopped() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    for n in 0..10 {
        commit(&journal, vec![plan(&format!("p{n}"), n)]);
    }
    let reader = open(&disk, 1, 50).unwrap();
    let mut seen = 0;
    for expected in [4, 4, 2] {
        let page = reader.events("r", 4, false).unwrap();
        assert_eq!(page.events.len(), expected);
        assert_eq!(page.more, expected == 4 && seen + 4 < 10);
        seen += expected;
        assert_eq!(page.last_seq, seen as u64);
    }
}

#[test]
fn jn_23_equal_names_share_nothing_and_nobody_hears_itself() {
    let disk = MemDisk::new();
    let first = init(&disk);
    let instance = |id: &str, seed: u64| {
        let who = Who {
            agent: "claude-code".to_owned(),
            agent_id: Some(id.to_owned()),
            user: None,
        };
        let world = world(std::sync::Arc::new(disk.clone()), 1, seed);
        Journal::open(world, Path::new(ROOT), who).unwrap()
    };
    let (a, b) = (instance("a", 10), instance("b", 11));
    commit(&a, vec![plan("from_a", 1)]);
    commit(&b, vec![plan("from_b", 1)]);
    commit(
        &first,
        vec![event(Action::SessionStart, "session", Some("s"))],
    );
    assert_eq!(ids(&a, "a", false).0, ["from_b", "s"]);
    assert_eq!(ids(&b, "b", false).0, ["from_a", "s"]);
    // A later process of the same instance is the same reader.
    let again = instance("a", 12);
    commit(&again, vec![plan("from_a2", 1)]);
    assert!(ids(&a, "a", false).0.is_empty());
    assert_eq!(ids(&b, "b", false).0, ["from_a2"]);
}

#[test]
fn jn_38_row_18_a_store_on_a_network_gives_a_warning_and_a_local_one_none() {
    let folder = tempfile::tempdir().unwrap();
    let journal = real(&folder.path().join(".heddle"), 3);
    commit(&journal, vec![plan("a", 1)]);
    assert_eq!(journal.verify().unwrap().warnings, Vec::<String>::new());
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    disk.lie_on("NFS");
    let report = journal.verify().unwrap();
    assert!(report.ok, "a warning, and no fault: {report:#?}");
    assert!(report.warnings[0].contains("NFS"), "{report:#?}");
}

#[test]
fn c43_a_clean_end_spares_the_next_boot_the_comparison_and_one_more_record_takes_it_back() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    journal.checkpoint().unwrap();
    let after_cut = |disk: &MemDisk| disk.crash(&heddle_journal::disk::Crash::LoseAll);
    let image = after_cut(&disk);
    assert_eq!(
        open(&image, 2, 3).unwrap().freshness().unwrap(),
        Freshness::Fresh
    );
    assert!(open(&image, 2, 3).unwrap().verify().unwrap().ok);
    commit(&journal, vec![plan("a", 2)]);
    let image = after_cut(&disk);
    assert_eq!(
        open(&image, 2, 3)
            .unwrap()
            .show("plan", "a")
            .unwrap()
            .entity_rev,
        2
    );
    assert!(open(&image, 2, 3).unwrap().verify().unwrap().ok);
}

/// Waits for the lock as a person's command does.
fn patient(disk: &MemDisk, seed: u64) -> Journal {
    let journal = open(disk, 1, seed).unwrap();
    journal.with_settings(heddle_journal::Settings::default())
}

/// A writer between its record and its file is no drift, however long it stands there.
#[test]
fn verify_beside_a_writer_that_has_its_record_and_not_yet_its_file_gives_no_false_alarm() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    let half = journal.mutate(vec![plan("b", 1)]).unwrap();
    let report = std::thread::scope(|scope| {
        let looking = scope.spawn(|| patient(&disk, 3).verify().unwrap());
        // It has looked by now and waits for the lock; if it has not, it will see a whole store.
        std::thread::sleep(std::time::Duration::from_millis(100));
        half.finish().unwrap();
        looking.join().unwrap()
    });
    assert!(report.ok, "{report:#?}");
}

/// The same by chance, at whatever place the writer happens to stand.
#[test]
fn verify_of_a_store_that_is_written_all_the_time_gives_no_false_alarm() {
    let disk = MemDisk::new();
    drop(init(&disk));
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let writer = patient(&disk, 50);
            for n in 0_u32.. {
                if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                commit(&writer, vec![plan(&format!("p{n}"), u64::from(n))]);
            }
        });
        let reports: Vec<_> = (0..12_u64)
            .map(|n| patient(&disk, 60 + n).verify().unwrap())
            .collect();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        for report in reports {
            assert!(report.ok, "{report:#?}");
        }
    });
}

/// The first operation of a mutation that touches an entity's file, counted from now.
fn first_file_op(disk: &MemDisk) -> u64 {
    let fork = disk.fork();
    fork.start_trace();
    let _ = open(&fork, 1, 90)
        .unwrap()
        .mutate_whole(vec![plan("next", 1)]);
    let trace = fork.take_trace();
    let entities = Path::new(ROOT).join("entities");
    let at = trace
        .iter()
        .position(|(_, path)| path.starts_with(&entities));
    at.unwrap() as u64 + 1
}

/// C29, JN-13: a disk that is too full for files, and not for records. What was acknowledged is shown, never "absent", and
/// a cache that stays stale because it cannot be written is noted once.
#[test]
fn c29_jn_13_what_has_no_file_yet_is_shown_and_a_stale_cache_is_noted_once_however_often_it_is_tried()
 {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    let full = || Fault::Error(std::io::ErrorKind::StorageFull);
    disk.fault_at(disk.ops() + first_file_op(&disk), full());
    let committed = journal.mutate(vec![plan("new", 1), plan("a", 2)]).unwrap();
    assert!(committed.finish().is_err());
    for round in 0..5 {
        let reader = open(&disk, 1, 40 + round).unwrap();
        let shown = reader.observe("plan", "new").unwrap();
        assert_eq!((shown.entity_rev, &shown.payload["n"]), (1, &json!(1)));
        disk.fault_at(disk.ops() + first_file_op(&disk), full());
        assert!(reader.mutate(vec![plan("next", 1)]).is_err());
    }
    commit(&journal, vec![plan("next", 1)]);
    let report = journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
    assert_eq!(report.counters.seq_repairs, 1, "{report:#?}");
    assert_eq!(journal.show("plan", "a").unwrap().entity_rev, 2);
}

/// Nobody is writing: what cannot follow is the file, and the journal itself is shown.
#[test]
fn on_a_full_disk_the_newest_is_shown_from_the_journal_and_nobody_is_blamed_for_writing() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    let full = || heddle_journal::disk::Fault::Error(std::io::ErrorKind::StorageFull);
    let half = journal.mutate(vec![plan("a", 2)]).unwrap();
    disk.fault_at(disk.ops() + 1, full());
    assert!(half.finish().is_err());
    let reader = open(&disk, 1, 70).unwrap();
    disk.fault_at(disk.ops() + 1, full());
    let shown = reader.show("plan", "a").unwrap();
    assert_eq!(
        (shown.entity_rev, shown.stale, shown.note),
        (2, false, None)
    );
}
