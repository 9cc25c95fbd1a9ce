//! A git clone: checkpoints and entity files without segments. Nothing is lost, nothing newer is written over.
#![cfg(test)]

mod support;

use std::path::Path;

use heddle_journal::disk::{Crash, Disk, Fault, MemDisk};
use heddle_journal::{Change, Journal, Target};
use serde_json::{Value, json};
use support::*;

/// What git takes along: not the segments, not the caches, not the blobs.
fn cloned(disk: &MemDisk) -> MemDisk {
    let clone = MemDisk::new();
    for (path, bytes) in disk.files() {
        let inside = path.strip_prefix(ROOT).unwrap().to_owned();
        let is_tracked = !inside.starts_with("events") || inside.starts_with("events/checkpoints");
        if is_tracked {
            plant(&clone, inside.to_str().unwrap(), &bytes);
        }
    }
    clone
}

fn file(disk: &MemDisk, id: &str) -> Value {
    let path = Path::new(ROOT).join(format!("entities/plan/{id}.json"));
    serde_json::from_slice(&disk.read(&path, 1 << 20).unwrap()).unwrap()
}

/// Four plans, a checkpoint, and three changes that no checkpoint knows.
fn origin() -> MemDisk {
    let disk = MemDisk::new();
    let journal = init(&disk);
    for n in 0..4 {
        commit(&journal, vec![plan(&format!("p{n}"), n)]);
    }
    commit(&journal, vec![plan("gone", 1)]);
    commit(&journal, vec![delete("plan", "gone")]);
    journal.checkpoint().unwrap();
    disk
}

fn newer(disk: &MemDisk) {
    let journal = open(disk, 1, 5).unwrap();
    for n in 1..=3 {
        commit(&journal, vec![plan("p3", 30 + n)]);
    }
    commit(&journal, vec![plan("late", 9)]);
}

fn rev(journal: &Journal, id: &str) -> u64 {
    journal.show("plan", id).unwrap().entity_rev
}

#[test]
fn the_first_append_of_a_clone_keeps_everything_that_its_checkpoint_holds() {
    let clone = cloned(&origin());
    let journal = open(&clone, 2, 7).unwrap();
    let receipt = &commit(&journal, vec![plan("new", 1)])[0];
    assert_eq!(receipt.entity_rev, Some(1));
    assert_eq!(journal.checkpoint().unwrap().entities, 5);
    assert!(!actions(&journal).contains(&"backfill".to_owned()));
    // Caches are caches: without them all is there.
    for cache in ["meta.json", "revisions.idx"] {
        clone
            .remove(&journal.layout().events().join(cache))
            .unwrap();
    }
    let again = open(&clone, 3, 8).unwrap();
    assert_eq!(rev(&again, "p0"), 1);
    assert!(again.verify().unwrap().ok);
    // C24: what was deleted goes on counting.
    assert_eq!(commit(&again, vec![plan("gone", 2)])[0].entity_rev, Some(3));
}

#[test]
fn jn_05_files_newer_than_the_checkpoint_of_a_clone_are_taken_in_and_never_written_over() {
    let disk = origin();
    newer(&disk);
    let clone = cloned(&disk);
    let before = clone.files();
    let journal = open(&clone, 2, 7).unwrap();
    // Readers show the files, and write nothing.
    assert_eq!(journal.show("plan", "p1").unwrap().note, None);
    let shown = journal.show("plan", "p3").unwrap();
    assert_eq!(
        (shown.entity_rev, shown.payload["n"].clone()),
        (2, json!(33))
    );
    assert!(shown.note.is_some());
    assert_eq!(journal.show("plan", "late").unwrap().payload["n"], 9);
    let report = journal.verify().unwrap();
    assert!(
        report.ok && report.warnings.iter().any(|w| w.contains("2 files")),
        "{report:#?}"
    );
    assert_eq!(clone.files(), before, "a reader wrote");
    // The first write takes them in.
    assert_eq!(
        commit(&journal, vec![plan("p3", 40)])[0].entity_rev,
        Some(3)
    );
    assert_eq!(file(&clone, "late")["n"], 9);
    let taken = actions(&journal);
    assert_eq!(taken, ["backfill", "backfill", "journal_note", "update"]);
    assert_eq!((rev(&journal, "late"), rev(&journal, "p1")), (1, 1));
    let report = journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
}

#[test]
fn a_clone_without_a_checkpoint_begins_with_its_files() {
    let disk = MemDisk::new();
    commit(&init(&disk), vec![plan("a", 1), plan("b", 2)]);
    let clone = cloned(&disk);
    plant(&clone, "entities/plan/bad.json", b"<<<<<<< HEAD");
    let journal = open(&clone, 2, 7).unwrap();
    assert_eq!(journal.show("plan", "b").unwrap().payload["n"], 2);
    assert_eq!(commit(&journal, vec![plan("b", 3)])[0].entity_rev, Some(2));
    assert_eq!(journal.checkpoint().unwrap().entities, 2);
    // A file with the marks of a merge is nobody's truth and stays for its owner to mend.
    let bad = Path::new(ROOT).join("entities/plan/bad.json");
    assert_eq!(clone.read(&bad, 99).unwrap(), b"<<<<<<< HEAD");
}

#[test]
fn a_crash_at_every_operation_of_the_first_write_loses_no_file() {
    let disk = origin();
    newer(&disk);
    let base = cloned(&disk);
    let mut stop = 1;
    loop {
        let clone = base.fork();
        clone.fault_at(clone.ops() + stop, Fault::Stop);
        let outcome = open(&clone, 2, 7).and_then(|j| j.mutate_whole(vec![plan("x", 1)]));
        for how in [
            heddle_journal::disk::Crash::Process,
            heddle_journal::disk::Crash::LoseAll,
        ] {
            let image = clone.crash(&how);
            let journal = open(&image, 3, 8).unwrap();
            commit(&journal, vec![plan("y", 1)]);
            let told = |id| journal.show("plan", id).unwrap().payload["n"].clone();
            assert_eq!(
                (told("p3"), told("late"), told("p0")),
                (json!(33), json!(9), json!(0)),
                "{stop} {how:?}"
            );
            assert_eq!(
                (rev(&journal, "p3"), rev(&journal, "p0")),
                (2, 1),
                "{stop} {how:?}"
            );
            let report = journal.verify().unwrap();
            assert!(report.ok, "{stop} {how:?}: {report:#?}");
        }
        if outcome.is_ok() {
            break;
        }
        stop += 1;
    }
}

#[test]
fn a_clone_gets_its_large_payloads_back_from_its_files() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    let large = json!({"title": "large", "text": "x".repeat(100_000)});
    commit(
        &journal,
        vec![put("plan", "large", large.clone()), plan("a", 1)],
    );
    commit(&journal, vec![plan("a", 2)]);
    journal.checkpoint().unwrap();
    let clone = cloned(&disk);
    let journal = open(&clone, 2, 7).unwrap();
    assert_eq!(journal.show("plan", "large").unwrap().payload, large);
    commit(&journal, vec![plan("new", 1)]);
    let report = journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
    assert_eq!((rev(&journal, "large"), rev(&journal, "a")), (1, 2));
    let reference = journal.checkpoint().unwrap();
    assert_eq!(journal.missing_blobs(&reference), Vec::<String>::new());
}

#[test]
fn a_clone_whose_first_write_died_at_any_point_still_shows_its_files() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    // More than one batch: the journal rolls between the first and the last.
    let all = (0..520).map(|n| plan(&format!("p{n}"), n));
    commit(&journal, all.collect());
    let base = cloned(&disk);
    let mut stop = 1;
    loop {
        let clone = base.fork();
        clone.fault_at(clone.ops() + stop, Fault::Stop);
        let small = heddle_journal::Settings {
            roll_bytes: 1,
            ..quick()
        };
        let first = open(&clone, 2, 7).unwrap().with_settings(small);
        let outcome = first.mutate_whole(vec![plan("x", 1)]);
        let image = clone.crash(&heddle_journal::disk::Crash::Process);
        let reader = open(&image, 2, 8).unwrap();
        for n in [0, 99, 519] {
            let shown = reader.show("plan", &format!("p{n}"));
            assert_eq!(shown.unwrap().payload["n"], n, "stopped at {stop}");
        }
        if outcome.is_ok() {
            break;
        }
        stop += 1;
    }
}

/// What a pull brings when another clone has archived its checkpoints: that one is deleted, others of its store come.
fn pull_of_gc(from: &MemDisk, clone: &MemDisk) {
    let theirs = open(from, 1, 60).unwrap();
    for n in 0..3 {
        commit(&theirs, vec![plan("theirs", n)]);
        theirs.checkpoint().unwrap();
    }
    assert!(theirs.gc().unwrap().checkpoints > 0);
    let folder = Path::new(ROOT).join("events/checkpoints");
    for entry in clone.list(&folder).unwrap() {
        clone.remove(&folder.join(&entry.name)).unwrap();
    }
    for (path, bytes) in from.files() {
        if path.starts_with(&folder) {
            let inside = path.strip_prefix(ROOT).unwrap();
            plant(clone, inside.to_str().unwrap(), &bytes);
        }
    }
}

/// Its own records stand on the checkpoint that it began with, and git takes that away.
#[test]
fn a_clone_whose_checkpoint_another_clone_has_archived_keeps_everything() {
    let disk = origin();
    let clone = cloned(&disk);
    commit(&open(&clone, 2, 7).unwrap(), vec![plan("own", 1)]);
    pull_of_gc(&disk, &clone);
    for boot in [2, 3] {
        let journal = open(&clone, boot, 8).unwrap();
        let report = journal.verify().unwrap();
        assert!(report.ok, "{report:#?}");
        assert_eq!(rev(&journal, "p3"), 1);
        let once = journal.mutate_once(plan("more", 1), &format!("k{boot}"));
        once.unwrap().finish().unwrap();
        journal.restore().unwrap();
        assert_eq!(rev(&journal, "p0"), 1);
    }
    let journal = open(&clone, 3, 9).unwrap();
    journal.checkpoint().unwrap();
    assert!(journal.verify().unwrap().ok);
    // Another store's checkpoint of the same name is not taken for the one that this clone began with.
    let stranger = MemDisk::new();
    let theirs = init(&stranger);
    for n in 0..6 {
        commit(&theirs, vec![plan("p0", 100 + n)]);
    }
    theirs.checkpoint().unwrap();
    let name = "events/checkpoints/ckpt-00000000000000000006.json";
    let bytes = stranger.files()[&Path::new(ROOT).join(name)].clone();
    plant(&clone, name, &bytes);
    let own = journal.layout().checkpoint(9 + 4);
    let _ = clone.remove(&own);
    assert_eq!(
        open(&clone, 4, 10)
            .unwrap()
            .show("plan", "p0")
            .unwrap()
            .payload["n"],
        0
    );
}

/// A clone that an older build has begun keeps no copy: nothing is moved aside, and what helps is named.
#[test]
fn a_clone_that_has_lost_its_checkpoint_says_which_and_moves_nothing_aside() {
    let disk = origin();
    let clone = cloned(&disk);
    commit(&open(&clone, 2, 7).unwrap(), vec![plan("own", 1)]);
    let base = "events/checkpoints/ckpt-00000000000000000006.json";
    let bytes = clone.files()[&Path::new(ROOT).join(base)].clone();
    pull_of_gc(&disk, &clone);
    let _ = clone.remove(&Path::new(ROOT).join(base.replace("events/", "events/archive/")));
    let journal = open(&clone, 2, 8).unwrap();
    let report = journal.verify().unwrap();
    let told = serde_json::to_value(&report).unwrap();
    assert!(
        !report.ok && told["lost_base"].as_str().unwrap().ends_with(base),
        "{told}"
    );
    let refused = journal.restore().unwrap_err().to_string();
    assert!(refused.contains("began with"), "{refused}");
    assert_eq!(file(&clone, "p0")["n"], 0, "where it was");
    plant(&clone, base, &bytes);
    let journal = open(&clone, 2, 9).unwrap();
    assert!(journal.verify().unwrap().ok);
    assert_eq!(rev(&journal, "p0"), 1);
}

/// Segments and caches are gone, and the store's own name is still here: it was written in, and is no clone.
#[test]
fn a_store_that_has_lost_all_but_its_name_is_not_taken_for_a_clone() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    for id in ["p1", "p2", "p3"] {
        commit(&journal, vec![plan(id, 1)]);
    }
    journal.checkpoint().unwrap();
    let once = journal.mutate_once(plan("p1", 2), "k1").unwrap();
    once.finish().unwrap();
    drop(journal);
    for name in [
        "seg-00000000000000000001.jsonl",
        "meta.json",
        "revisions.idx",
        "reserved.json",
        "requests.idx",
    ] {
        let _ = disk.remove(&Path::new(ROOT).join("events").join(name));
    }
    assert!(!open(&disk, 1, 7).unwrap().verify().unwrap().ok);
    commit(&open(&disk, 1, 8).unwrap(), vec![plan("x", 1)]);
    for boot in [1, 2] {
        let journal = open(&disk, boot, 9).unwrap();
        let report = journal.verify().unwrap();
        assert!(!report.ok && report.counters.seq_gaps == 1, "{report:#?}");
        assert!(journal.mutate_once(plan("p1", 2), "k1").is_err());
    }
}

/// What a clone has of an entity is in checkpoints alone: here the one that it began with, which another clone's gc took away and of
/// which it keeps a copy, and those that the pull brought.
#[test]
fn rd_01_a_cloned_entity_is_searched_for_where_another_clones_gc_took_the_base_away() {
    const SECRET: &str = "the launch code is 4711-8822-9933";
    let disk = MemDisk::new();
    let journal = init(&disk);
    let secret = Change {
        document: Some(json!({"title": SECRET})),
        ..plan("p1", 1)
    };
    commit(&journal, vec![secret, plan("p0", 1)]);
    journal.checkpoint().unwrap();
    drop(journal);
    let clone = cloned(&disk);
    commit(&open(&clone, 2, 7).unwrap(), vec![plan("own", 1)]);
    pull_of_gc(&disk, &clone);
    plant(&clone, "x/copy.txt", SECRET.as_bytes());
    let target = Target::Item {
        item_type: Some("plan".to_owned()),
        item_id: "p1".to_owned(),
    };
    let holding = |disk: &MemDisk| {
        let holds = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(SECRET);
        let files = disk.files().into_iter().filter(|(_, bytes)| holds(bytes));
        files.map(|(path, _)| path).collect::<Vec<_>>()
    };
    let strange = vec![Path::new(ROOT).join("x/copy.txt")];
    // Cut at every operation: whoever comes next ends it.
    for stop in 1.. {
        let image = clone.fork();
        image.fault_at(image.ops() + stop, Fault::Stop);
        let told = open(&image, 2, 8).and_then(|journal| journal.redact(&target, "asked"));
        let Ok(told) = told else {
            let image = image.crash(&Crash::LoseAll);
            let again = open(&image, 3, 9).unwrap().redact(&target, "asked");
            let report = open(&image, 3, 10).unwrap().verify().unwrap();
            assert!(report.ok, "stopped at {stop}: {report:#?}");
            assert!(again.is_ok(), "stopped at {stop}: {again:?}");
            assert_eq!(holding(&image), strange, "stopped at {stop}");
            continue;
        };
        assert!(told.searched && told.checkpoints.len() == 3, "{told:?}");
        assert!(told.left.leftovers[0].ends_with("x/copy.txt"), "{told:?}");
        assert_eq!(holding(&image), strange);
        let report = open(&image, 2, 9).unwrap().verify().unwrap();
        assert!(report.ok, "{report:#?}");
        let image = image.crash(&Crash::Process);
        let again = open(&image, 2, 10)
            .unwrap()
            .redact(&target, "asked")
            .unwrap();
        assert!(!again.searched && again.checkpoints.is_empty(), "{again:?}");
        break;
    }
}
