//! The end of the journal is lost: every reader tells, nobody writes over what may be newer, no seq comes twice.
#![cfg(test)]

mod support;

use std::path::{Path, PathBuf};

use heddle_journal::action::Action;
use heddle_journal::disk::{Disk, MemDisk};
use heddle_journal::{Journal, JournalError};
use support::*;

const SEGMENT: &str = "/repo/.heddle/events/seg-00000000000000000001.jsonl";

fn cache(name: &str) -> PathBuf {
    Path::new(ROOT).join("events").join(name)
}

fn file(disk: &MemDisk, id: &str) -> Option<String> {
    let path = Path::new(ROOT).join(format!("entities/plan/{id}.json"));
    let bytes = disk.files().get(&path).cloned();
    bytes.map(|bytes| String::from_utf8(bytes).unwrap())
}

/// `a` at revision 2; then what `then` writes is gone from the segment, and from nowhere else.
fn cut(then: impl FnOnce(&Journal)) -> MemDisk {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    commit(&journal, vec![plan("a", 2)]);
    let bytes = disk.files()[Path::new(SEGMENT)].clone();
    then(&journal);
    disk.tamper(Path::new(SEGMENT), |now| *now = bytes);
    disk
}

#[track_caller]
fn is_told(disk: &MemDisk, lost: [u64; 2]) {
    for boot in [1, 2] {
        let image = disk.fork();
        let before = image.files();
        let journal = open(&image, boot, 40).unwrap();
        let _ = journal.level();
        let report = journal.verify().unwrap();
        assert!(!report.ok, "boot {boot}: {report:#?}");
        assert_eq!(report.counters.seq_gaps, 1, "{report:#?}");
        let shown = journal.show("plan", "a");
        let told = match &shown {
            Ok(shown) => shown.note.is_some_and(|note| note.contains("lost")),
            Err(error) => error.to_string().contains("lost"),
        };
        assert!(told, "boot {boot}: {shown:?}");
        assert_eq!(image.files(), before, "boot {boot}: a reader wrote");
        // The next writer neither gives a seq twice nor hides the gap.
        let receipt = &commit(&open(&image, boot, 41).unwrap(), vec![plan("new", 1)])[0];
        assert_eq!(receipt.seq, Some(lost[1] + 1));
        let journal = open(&image, boot, 42).unwrap();
        // Nor does its note say another cause from then on: the index is level again, and the newer file is not for that edited by hand.
        let shown = journal.show("plan", "a");
        let note = shown.map(|shown| shown.note);
        assert!(
            !matches!(note, Ok(Some(note)) if !note.contains("are lost")),
            "boot {boot}: {note:?}"
        );
        assert_eq!(journal.verify().unwrap().counters.seq_gaps, 1);
        assert_eq!(journal.accept_gaps("the disk").unwrap().accepted, [lost]);
        assert_eq!(journal.verify().unwrap().counters.seq_gaps, 0);
    }
}

#[test]
fn jn_05_jn_11_a_lost_tail_and_a_lost_index_rewrite_no_file_and_are_told() {
    let disk = cut(|journal| drop(commit(journal, vec![plan("a", 3)])));
    disk.remove(&cache("revisions.idx")).unwrap();
    is_told(&disk, [3, 3]);
    // Not even the next writer: the newer file stays until a person has the files written anew.
    let writer = open(&disk, 1, 50).unwrap();
    commit(&writer, vec![plan("b", 1)]);
    assert!(file(&disk, "a").unwrap().contains("\"n\": 3"));
    let report = open(&disk, 1, 51).unwrap().verify().unwrap();
    assert!(report.divergent.iter().any(|d| d.item_id == "a"));
    writer.accept_gaps("the disk").unwrap();
    let restored = writer.restore().unwrap();
    assert_eq!(restored.kept_aside.len(), 1, "{restored:?}");
    let report = writer.verify().unwrap();
    assert!(report.ok, "{report:#?}");
}

#[test]
fn jn_08_a_lost_last_record_is_told_before_anybody_writes() {
    let event = |journal: &Journal| {
        drop(commit(
            journal,
            vec![event(Action::SessionStart, "session", None)],
        ));
    };
    is_told(&cut(event), [3, 3]);
    is_told(&cut(|j| drop(commit(j, vec![plan("a", 3)]))), [3, 3]);
    is_told(
        &cut(|j| drop(commit(j, vec![plan("c", 1), plan("d", 1)]))),
        [3, 4],
    );
}

#[test]
fn jn_11_without_any_cache_an_own_checkpoint_tells_of_a_lost_tail() {
    let disk = cut(|journal| {
        commit(journal, vec![plan("a", 3)]);
        journal.checkpoint().unwrap();
    });
    for name in ["revisions.idx", "meta.json", "lock"] {
        disk.remove(&cache(name)).unwrap();
    }
    is_told(&disk, [3, 3]);
    assert!(file(&disk, "a").unwrap().contains("\"n\": 3"));
}

#[test]
fn a_checkpoint_of_another_store_above_the_head_is_no_loss() {
    let theirs = MemDisk::new();
    let journal = init(&theirs);
    for n in 1..=9 {
        commit(&journal, vec![plan("t", n)]);
    }
    journal.checkpoint().unwrap();
    let disk = MemDisk::new();
    let world = world(std::sync::Arc::new(disk.clone()), 1, 77);
    disk.create_dir(Path::new("/repo")).unwrap();
    let journal = Journal::init(world, Path::new(ROOT), who()).unwrap();
    commit(&journal, vec![plan("a", 1)]);
    journal.checkpoint().unwrap();
    let is_checkpoint = |path: &&PathBuf| path.to_string_lossy().contains("/ckpt-");
    let files = theirs.files();
    let pulled = files.keys().find(is_checkpoint).unwrap();
    disk.write(pulled, &files[pulled]).unwrap();
    let report = journal.verify().unwrap();
    assert!(report.ok, "git pulled it: {report:#?}");
    disk.remove(&cache("meta.json")).unwrap();
    let receipt = &commit(&open(&disk, 1, 9).unwrap(), vec![plan("a", 2)])[0];
    assert_eq!(receipt.seq, Some(3));
}

#[test]
fn jn_05_a_file_that_no_record_explains_is_not_written_over_when_all_caches_are_lost() {
    let disk = cut(|journal| drop(commit(journal, vec![plan("a", 3), plan("b", 1)])));
    for name in ["revisions.idx", "meta.json"] {
        disk.remove(&cache(name)).unwrap();
    }
    let reader = open(&disk, 1, 60).unwrap();
    let _ = reader.level();
    assert!(!reader.verify().unwrap().ok);
    assert!(file(&disk, "a").unwrap().contains("\"n\": 3"));
    // What is known to be older is brought level: no false alarm after a power cut.
    let disk = MemDisk::new();
    commit(&init(&disk), vec![plan("a", 1)]);
    let old = disk.files()[&Path::new(ROOT).join("entities/plan/a.json")].clone();
    commit(&open(&disk, 1, 61).unwrap(), vec![plan("a", 2)]);
    disk.tamper(&Path::new(ROOT).join("entities/plan/a.json"), |now| {
        *now = old;
    });
    for name in ["revisions.idx", "meta.json"] {
        disk.remove(&cache(name)).unwrap();
    }
    let reader = open(&disk, 2, 62).unwrap();
    assert!(reader.level().unwrap());
    let report = reader.verify().unwrap();
    assert!(report.ok, "{report:#?}");
    assert!(disk.list(&cache("quarantine")).unwrap().is_empty());
}

#[test]
fn jn_28_a_file_that_came_after_a_lost_tail_is_not_unlinked_and_a_lost_entity_keeps_its_revision() {
    let disk = cut(|journal| drop(commit(journal, vec![plan("late", 1)])));
    // The index remembers: the revision goes on, and what stood there is kept.
    let writer = open(&disk, 1, 70).unwrap();
    assert_eq!(
        commit(&writer, vec![plan("late", 2)])[0].entity_rev,
        Some(2)
    );
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    commit(&journal, vec![delete("plan", "a")]);
    let bytes = disk.files()[Path::new(SEGMENT)].clone();
    commit(&journal, vec![plan("a", 3)]);
    disk.tamper(Path::new(SEGMENT), |now| *now = bytes);
    disk.remove(&cache("revisions.idx")).unwrap();
    commit(&open(&disk, 1, 71).unwrap(), vec![plan("b", 1)]);
    assert!(file(&disk, "a").unwrap().contains("\"n\": 3"));
    assert!(!open(&disk, 1, 72).unwrap().verify().unwrap().ok);
}

#[test]
fn a_file_that_the_journal_never_saw_is_kept_aside_when_its_entity_is_created() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    let path = Path::new(ROOT).join("entities/plan/b.json");
    disk.write(&path, br#"{"title":"of a colleague"}"#).unwrap();
    commit(&journal, vec![plan("b", 1)]);
    let aside = disk.list(&cache("quarantine")).unwrap();
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert!(journal.verify().unwrap().ok);
}

/// The line of the `nth` record loses a bit: it counts no more, and nothing else changes.
fn flip(disk: &MemDisk, nth: usize) {
    disk.tamper(Path::new(SEGMENT), |bytes| {
        let begins = |at: &usize| bytes[*at..].starts_with(b"{\"v\":2");
        let at = (0..bytes.len()).filter(begins).nth(nth - 1).unwrap();
        bytes[at + 30] ^= 1;
    });
}

fn forget(disk: &MemDisk, names: &[&str]) {
    for name in names {
        disk.remove(&cache(name)).unwrap();
    }
}

#[test]
fn a_record_lost_in_the_middle_with_the_caches_is_told_by_show_and_its_revision_never_begins_again()
{
    let disk = MemDisk::new();
    let journal = init(&disk);
    for id in ["a", "b", "c"] {
        commit(&journal, vec![plan(id, 1)]);
    }
    commit(&journal, vec![plan("a", 2)]);
    flip(&disk, 2);
    forget(&disk, &["meta.json", "revisions.idx"]);
    for path in [None, Some(Path::new(ROOT).join("entities/plan/b.json"))] {
        let image = disk.fork();
        if let Some(path) = path {
            image.remove(&path).unwrap();
        }
        // Twice: the second look is at caches that were made anew.
        for seed in [80, 81] {
            let told = open(&image, 1, seed).unwrap().show("plan", "b");
            let told = told.unwrap_err().to_string();
            assert!(told.contains("the record of seq 2 is lost"), "{told}");
        }
        // What was recorded behind the loss is not in doubt; what was last seen before it may have been newer.
        let reader = open(&image, 1, 82).unwrap();
        assert_eq!(reader.show("plan", "c").unwrap().note, None);
        assert_eq!(reader.show("plan", "a").unwrap().note, None);
        let writer = open(&image, 1, 83).unwrap();
        assert_eq!(commit(&writer, vec![plan("b", 9)])[0].entity_rev, Some(2));
        assert_eq!(commit(&writer, vec![plan("b", 10)])[0].entity_rev, Some(3));
        assert_eq!(commit(&writer, vec![plan("a", 3)])[0].entity_rev, Some(3));
        assert!(
            writer
                .show("plan", "nobody")
                .is_err_and(|e| e.to_string().contains("lost"))
        );
        writer.accept_gaps("the disk").unwrap();
        let told = writer.show("plan", "nobody").unwrap_err().to_string();
        assert_eq!(told, "plan nobody is not here");
        let report = writer.verify().unwrap();
        assert_eq!((report.counters.seq_gaps, report.divergent), (0, vec![]));
    }
}

#[test]
fn a_newer_revision_that_only_the_index_remembers_is_never_passed_over_in_silence() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    for n in 1..=2 {
        commit(&journal, vec![plan("a", n)]);
    }
    commit(&journal, vec![plan("b", 1)]);
    flip(&disk, 2);
    disk.remove(&Path::new(ROOT).join("entities/plan/a.json"))
        .unwrap();
    let shown = open(&disk, 1, 84).unwrap().show("plan", "a").unwrap();
    assert_eq!(shown.entity_rev, 1);
    assert!(shown.note.is_some_and(|note| note.contains("lost")));
    // The only record of an entity, its file gone too: the index still knows that there was one.
    flip(&disk, 3);
    disk.remove(&Path::new(ROOT).join("entities/plan/b.json"))
        .unwrap();
    let told = open(&disk, 1, 85).unwrap().show("plan", "b");
    assert!(told.is_err_and(|error| error.to_string().contains("lost")));
}

#[test]
fn a_lost_beginning_is_told_by_show_also_after_the_caches_were_made_anew() {
    let disk = MemDisk::new();
    let journal = init(&disk).with_settings(heddle_journal::Settings {
        roll_bytes: 1500,
        ..quick()
    });
    for n in 0..12 {
        commit(&journal, vec![plan(&format!("p{n}"), 1)]);
    }
    // The first segment, everything that was made of it, and whatever could stand in for it.
    let is_gone = |path: &PathBuf| {
        let name = path.to_string_lossy().into_owned();
        path == Path::new(SEGMENT)
            || name.contains("/ckpt-")
            || name.ends_with("p0.json")
            || name.ends_with("meta.json")
            || name.ends_with("revisions.idx")
    };
    for path in disk.files().keys().filter(|path| is_gone(path)) {
        disk.remove(path).unwrap();
    }
    for seed in [86, 87] {
        let told = open(&disk, 1, seed).unwrap().show("plan", "p0");
        let told = told.unwrap_err().to_string();
        assert!(told.contains("the records of seq 1 to"), "{told}");
    }
}

#[test]
fn the_only_segment_is_lost_and_show_events_and_log_say_so() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("p", 1)]);
    commit(
        &journal,
        vec![put("claim", "c", serde_json::json!({"status": "claimed"}))],
    );
    disk.remove(Path::new(SEGMENT)).unwrap();
    let before = disk.files();
    let reader = open(&disk, 1, 90).unwrap();
    let told = reader.show("claim", "c").unwrap_err().to_string();
    assert!(told.contains("seq 1 to 2 are lost"), "{told}");
    let shown = reader.show("plan", "p").unwrap();
    assert!(!shown.stale && shown.note.is_some_and(|note| note.contains("lost")));
    let page = reader.events("n", 10, true).unwrap();
    assert!(page.gap && page.events.is_empty());
    assert_eq!(page.missing, [[1, 2]]);
    assert_eq!(reader.history(0, 10).unwrap().missing, [[1, 2]]);
    assert_eq!(disk.files(), before, "a reader wrote");
    // The next writer goes on behind it, and it is still told.
    commit(&open(&disk, 1, 91).unwrap(), vec![plan("q", 1)]);
    let page = open(&disk, 1, 92).unwrap().events("n", 10, true).unwrap();
    assert!(page.gap);
    // A store that nobody has written in has lost nothing.
    let page = init(&MemDisk::new()).events("n", 10, true).unwrap();
    assert!(!page.gap);
}

/// A writer was killed behind its record, a reader brought the files level, the next writer goes on: nothing is lost.
#[test]
fn jn_01_a_kill_and_a_reader_that_levels_make_no_loss() {
    for (before, behind) in [(1, 1), (2, 3), (1, 4)] {
        let disk = MemDisk::new();
        let journal = init(&disk);
        for number in 0..before {
            commit(&journal, vec![plan("a", number)]);
        }
        let caches = ["meta.json", "revisions.idx"].map(cache);
        let kept = caches.clone().map(|path| disk.files()[&path].clone());
        for number in 0..behind {
            commit(&journal, vec![plan(&format!("b{number}"), 1)]);
        }
        drop(journal);
        for (path, bytes) in caches.iter().zip(kept) {
            disk.tamper(path, |now| *now = bytes);
        }
        let reader = open(&disk, 1, 60).unwrap();
        reader.show("plan", "b0").unwrap();
        assert_eq!(reader.losses().unwrap(), Vec::<[u64; 2]>::new());
        drop(reader);
        let writer = open(&disk, 1, 61).unwrap();
        commit(&writer, vec![plan("c", 1)]);
        assert_eq!(writer.losses().unwrap(), Vec::<[u64; 2]>::new());
        assert!(writer.verify().unwrap().ok);
    }
}

/// What was said there is not here to be erased, and may be elsewhere: never a mere "not here".
#[test]
fn a_redaction_of_what_is_lost_says_so_and_names_what_may_still_hold_it() {
    use heddle_journal::Target;
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    let segment = Path::new(ROOT).join("events/seg-00000000000000000001.jsonl");
    let bytes = disk.files()[&segment].clone();
    commit(&journal, vec![plan("late", 1)]);
    disk.tamper(&segment, |now| *now = bytes);
    let item = |id: &str| Target::Item {
        item_type: None,
        item_id: id.to_owned(),
    };
    let before = disk.files();
    let told = journal.redact(&Target::Seq(2), "asked for").unwrap_err();
    assert!(matches!(told, JournalError::Unerased { .. }), "{told:?}");
    assert!(
        told.to_string().contains("the record of seq 2 is lost"),
        "{told}"
    );
    let told = journal.redact(&item("late"), "asked for").unwrap_err();
    let words = told.to_string();
    assert!(words.contains("seq 2 is lost"), "{words}");
    assert!(words.contains("entities/plan/late.json"), "{words}");
    assert_eq!(disk.files().len(), before.len());
    // A seq that never was, and one that a person has given up.
    let told = journal.redact(&Target::Seq(9), "asked for").unwrap_err();
    assert!(matches!(told, JournalError::NotFound { .. }), "{told:?}");
    journal.accept_gaps("the disk").unwrap();
    let told = journal.redact(&Target::Seq(2), "asked for").unwrap_err();
    assert!(matches!(told, JournalError::Unerased { .. }), "{told:?}");
}

/// The last copy of what was answered: never written over, never unlinked, whoever goes on.
#[test]
fn jn_28_the_file_of_a_lost_record_is_kept_aside_before_its_entity_goes_on() {
    let thens = [("update", plan("a", 4)), ("delete", delete("plan", "a"))];
    for (how, then) in thens {
        for (is_accepted, has_index, is_cut_short) in [
            (false, true, false),
            (true, true, false),
            (false, false, false),
            (false, true, true),
        ] {
            let what = format!("{how}, {is_accepted}, {has_index}, {is_cut_short}");
            let disk = cut(|journal| {
                commit(journal, vec![plan("a", 3)]);
            });
            if !has_index {
                forget(&disk, &["revisions.idx"]);
            }
            if is_accepted {
                let journal = open(&disk, 1, 50).unwrap();
                journal.accept_gaps("the disk").unwrap();
            }
            let journal = open(&disk, 1, 51).unwrap();
            let held = file(&disk, "a").unwrap();
            assert!(held.contains("\"n\": 3"), "{what}: {held}");
            let committed = journal.mutate(vec![then.clone()]).unwrap();
            let image = disk.fork();
            let told = if is_cut_short {
                // Its process died behind the sync: whoever comes next brings the file along.
                drop(committed);
                commit(&open(&image, 2, 52).unwrap(), vec![plan("z", 1)]);
                None
            } else {
                let told = committed.finish_told().unwrap();
                assert_eq!(told.len(), 1, "{what}");
                Some(told[0].clone())
            };
            let disk = if is_cut_short { image } else { disk };
            let files = disk.files();
            let aside: Vec<_> = files
                .iter()
                .filter(|(path, _)| path.starts_with(cache("quarantine")))
                .collect();
            assert_eq!(aside.len(), 1, "{what}: {:?}", files.keys());
            assert_eq!(*aside[0].1, held.as_bytes(), "{what}");
            assert!(told.is_none_or(|told| *aside[0].0 == cache("quarantine").join(told)));
            let now = file(&disk, "a");
            let is_right = match how {
                "update" => now.is_some_and(|now| now.contains("\"n\": 4")),
                _ => now.is_none(),
            };
            assert!(is_right, "{what}");
        }
    }
}
