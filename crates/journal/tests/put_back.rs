//! Lost records that somebody puts back: they count again, and nothing that happened meanwhile is lost or comes twice.
#![cfg(test)]

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use heddle_journal::disk::{Disk, MemDisk};
use heddle_journal::{Cause, Glob, Journal, JournalError, Reserved, Settings};
use support::*;

const SEGMENT: &str = "/repo/.heddle/events/seg-00000000000000000001.jsonl";

/// The lines of these records lose a bit, or get it back: they count no more, or again.
fn flip(disk: &MemDisk, nths: &[usize]) {
    disk.tamper(Path::new(SEGMENT), |bytes| {
        let begins = |at: &usize| bytes[*at..].starts_with(b"{\"v\":2");
        let starts: Vec<usize> = (0..bytes.len()).filter(begins).collect();
        for nth in nths {
            bytes[starts[nth - 1] + 30] ^= 1;
        }
    });
}

fn forget(disk: &MemDisk, names: &[&str]) {
    for name in names {
        let path = Path::new(ROOT).join("events").join(name);
        disk.remove(&path).unwrap();
    }
}

#[track_caller]
fn is_sound(disk: &MemDisk) {
    let report = open(disk, 1, 900).unwrap().verify().unwrap();
    assert!(report.ok, "{report:#?}");
    let counters = &report.counters;
    let odd = (counters.rev_ties, counters.rev_regressions);
    assert_eq!(odd, (0, 0), "{report:#?}");
}

/// `a` at 3, `b` at 1; the records 2 to 4 are lost with the caches, and others were made without them.
fn lossy(settings: Settings) -> (MemDisk, Journal) {
    let disk = MemDisk::new();
    let journal = init(&disk);
    let changes = [plan("a", 1), plan("b", 1), plan("a", 2), plan("a", 3)];
    for change in changes {
        commit(&journal, vec![change]);
    }
    commit(&journal, vec![plan("c", 1)]);
    flip(&disk, &[2, 3, 4]);
    forget(&disk, &["meta.json", "revisions.idx"]);
    let writer = open(&disk, 1, 30).unwrap().with_settings(settings);
    commit(&writer, vec![plan("d", 1)]);
    assert_eq!(writer.losses().unwrap(), [[2, 4]]);
    (disk, writer)
}

#[test]
fn jn_15_what_is_put_back_and_then_accepted_gives_no_revision_twice_and_loses_no_write() {
    let (disk, writer) = lossy(quick());
    flip(&disk, &[2, 3, 4]);
    let told = writer.accept_gaps("put back from a copy").unwrap();
    assert_eq!((told.accepted, told.back), (vec![], vec![[2, 4]]));
    assert_eq!(writer.losses().unwrap(), Vec::<[u64; 2]>::new());
    assert_eq!(writer.show("plan", "a").unwrap().payload["n"], 3);
    assert_eq!(commit(&writer, vec![plan("b", 9)])[0].entity_rev, Some(2));
    assert_eq!(commit(&writer, vec![plan("a", 9)])[0].entity_rev, Some(4));
    is_sound(&disk);
    for id in ["a", "b"] {
        let shown = open(&disk, 2, 31).unwrap().show("plan", id).unwrap();
        assert_eq!(shown.payload["n"], 9, "the write behind it is lost: {id}");
    }
}

#[test]
fn a_part_that_is_put_back_counts_and_the_rest_is_accepted() {
    let (disk, writer) = lossy(quick());
    flip(&disk, &[2, 3]);
    let told = writer.accept_gaps("the rest is gone").unwrap();
    assert_eq!((told.accepted, told.back), (vec![[4, 4]], vec![[2, 3]]));
    assert_eq!(commit(&writer, vec![plan("a", 9)])[0].entity_rev, Some(3));
    assert_eq!(commit(&writer, vec![plan("b", 9)])[0].entity_rev, Some(2));
    // The damaged line stays a fault of its own.
    let report = writer.verify().unwrap();
    let counters = &report.counters;
    let told = (counters.seq_gaps, counters.rev_ties, counters.damaged_lines);
    assert_eq!(told, (0, 0, 1), "{report:#?}");
}

/// A checkpoint is where every later look begins: one without what is missing would hide it for ever.
#[test]
fn jn_20_no_checkpoint_is_written_over_a_gap_and_what_is_put_back_behind_a_roll_counts() {
    let settings = Settings {
        roll_bytes: 1200,
        ..quick()
    };
    let (disk, writer) = lossy(settings);
    let refused = writer.checkpoint();
    assert!(
        matches!(&refused, Err(JournalError::Incomplete(gaps)) if *gaps == [[2, 4]]),
        "{refused:?}"
    );
    for n in 0..12 {
        commit(&writer, vec![plan("e", n)]);
    }
    let is_segment = |path: &&PathBuf| path.extension().is_some_and(|end| end == "jsonl");
    assert!(disk.files().keys().filter(is_segment).count() > 2, "rolled");
    assert!(!writer.has_checkpoint().unwrap());
    flip(&disk, &[2, 3, 4]);
    writer.accept_gaps("put back").unwrap();
    writer.checkpoint().unwrap();
    assert_eq!(commit(&writer, vec![plan("b", 9)])[0].entity_rev, Some(2));
    assert_eq!(commit(&writer, vec![plan("a", 9)])[0].entity_rev, Some(4));
    is_sound(&disk);
}

#[test]
fn a_reservation_that_is_put_back_holds_before_and_after_it_was_accepted() {
    let disk = MemDisk::new();
    let ann = init(&disk);
    commit(&ann, vec![plan("a", 1)]);
    let glob = Glob::parse("lib/**").unwrap();
    ann.reserve(&glob, Duration::from_secs(3600)).unwrap();
    commit(&ann, vec![plan("a", 2)]);
    flip(&disk, &[2]);
    forget(&disk, &["meta.json", "revisions.idx"]);
    let claims = Path::new(ROOT).join("entities/claim");
    for entry in disk.list(&claims).unwrap() {
        disk.remove(&claims.join(entry.name)).unwrap();
    }
    commit(&open(&disk, 1, 40).unwrap(), vec![plan("a", 3)]);
    let bob = as_agent(&disk, "bob");
    let asked = bob.reserve(&glob, Duration::from_secs(60));
    assert!(
        matches!(asked, Err(JournalError::ReservationsLost(_))),
        "{asked:?}"
    );
    flip(&disk, &[2]);
    let is_held = |bob: &Journal| {
        let asked = bob.reserve(&glob, Duration::from_secs(60)).unwrap();
        matches!(asked, Reserved::Held(held) if held.owner == "tester")
    };
    assert!(is_held(&bob), "put back, and freed");
    bob.accept_gaps("put back").unwrap();
    assert!(is_held(&bob), "accepted, and freed");
    let blocked = bob.blocked(&["lib/x".to_owned()]).unwrap();
    assert_eq!(blocked.len(), 1);
    is_sound(&disk);
}

/// Nobody has to be asked: what is here again is not lost, for whoever looks and whoever writes.
#[test]
fn what_was_put_back_by_hand_is_lost_to_nobody() {
    let disk = MemDisk::new();
    let ann = init(&disk);
    commit(&ann, vec![plan("a", 1)]);
    let glob = Glob::parse("lib/**").unwrap();
    ann.reserve(&glob, Duration::from_secs(3600)).unwrap();
    ann.release(&glob).unwrap().unwrap();
    commit(&ann, vec![plan("a", 2)]);
    flip(&disk, &[2, 3]);
    forget(&disk, &["meta.json", "revisions.idx", "reserved.json"]);
    commit(&open(&disk, 1, 40).unwrap(), vec![plan("b", 1)]);
    let bob = as_agent(&disk, "bob");
    let paths = ["lib/x".to_owned()];
    assert!(bob.blocked(&paths).is_err());
    flip(&disk, &[2, 3]);
    let report = bob.verify().unwrap();
    assert_eq!(report.counters.seq_gaps, 0);
    assert_eq!(bob.losses().unwrap(), Vec::<[u64; 2]>::new());
    assert_eq!(bob.blocked(&paths).unwrap(), []);
    let told = bob.show("plan", "none").unwrap_err();
    assert!(matches!(told, JournalError::NotFound { .. }), "{told}");
    let asked = bob.reserve(&glob, Duration::from_secs(60)).unwrap();
    assert!(matches!(asked, Reserved::Granted(_)), "{asked:?}");
    let cache = disk.files()[&Path::new(ROOT).join("events/meta.json")].clone();
    let cache = String::from_utf8(cache).unwrap();
    assert!(
        !cache.contains("lost"),
        "the first writer forgets it: {cache}"
    );
    is_sound(&disk);
}

fn put_whole(disk: &MemDisk, whole: &[u8]) {
    disk.tamper(Path::new(SEGMENT), |now| {
        now[..whole.len()].copy_from_slice(whole);
    });
}

/// Checkpoints and cache as a build wrote them that did not say what they were written without.
fn age(disk: &MemDisk) {
    let folder = Path::new(ROOT).join("events/checkpoints");
    for entry in disk.list(&folder).unwrap() {
        let path = folder.join(entry.name);
        let before = sha256(&disk.files()[&path]);
        disk.tamper(&path, |bytes| {
            let text = String::from_utf8(bytes.clone()).unwrap();
            let from = text.find(",\"without\":").unwrap();
            let seal = text.find(",\"sha256\":").unwrap();
            let body = &text[..from];
            assert!(from < seal);
            let sealed = format!("{body},\"sha256\":\"{}\"}}\n", sha256(body.as_bytes()));
            *bytes = sealed.into_bytes();
        });
        let after = sha256(&disk.files()[&path]);
        let is_segment = |path: &PathBuf| path.extension().is_some_and(|end| end == "jsonl");
        let segments = disk.files().into_keys().filter(is_segment);
        for segment in segments.collect::<Vec<_>>() {
            disk.tamper(&segment, |bytes| refer_to(bytes, &before, &after));
        }
    }
    let cache = Path::new(ROOT).join("events/meta.json");
    disk.tamper(&cache, |bytes| {
        unstamp(bytes);
        let mut meta: serde_json::Value = serde_json::from_slice(bytes).unwrap();
        meta.as_object_mut().unwrap().remove("lost").unwrap();
        *bytes = serde_json::to_vec(&meta).unwrap();
    });
}

/// The record that names a checkpoint names another file.
fn refer_to(bytes: &mut Vec<u8>, before: &str, after: &str) {
    let text = String::from_utf8(bytes.clone()).unwrap();
    let lines = text.split('\n').map(|line| {
        let crc = line.rfind(",\"crc\":\"");
        let Some(at) = crc.filter(|_| line.contains(before)) else {
            return line.to_owned();
        };
        let body = line[..at].replace(before, after);
        let crc = crc32c::crc32c(format!("{body}}}").as_bytes());
        format!("{body},\"crc\":\"{crc:08x}\"}}")
    });
    *bytes = lines.collect::<Vec<_>>().join("\n").into_bytes();
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `gone` and a reservation of docs: lost, given up, and a checkpoint written without them.
fn given_up() -> (MemDisk, Journal, Vec<u8>) {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("gone", 1)]);
    let docs = Glob::parse("docs/**").unwrap();
    journal.reserve(&docs, Duration::from_secs(60)).unwrap();
    commit(&journal, vec![plan("gone", 2)]);
    let whole = disk.files()[Path::new(SEGMENT)].clone();
    flip(&disk, &[1, 2, 3]);
    journal.quarantine().unwrap();
    journal.accept_gaps("the disk").unwrap();
    // Its file would hold it behind a rebuild too.
    let is_claim = |path: &&PathBuf| path.to_string_lossy().contains("entities/claim/rsv_");
    for path in disk.files().keys().filter(is_claim) {
        disk.remove(path).unwrap();
    }
    journal.restore().unwrap();
    let other = Glob::parse("lib/**").unwrap();
    journal.reserve(&other, Duration::from_secs(60)).unwrap();
    journal.checkpoint().unwrap();
    commit(&journal, vec![plan("d", 1)]);
    journal.checkpoint().unwrap();
    is_sound(&disk);
    (disk, journal, whole)
}

/// No doctor has to be asked: a checkpoint says what it was written without, and whoever begins with it looks for that.
#[test]
fn jn_20_a_claim_that_is_put_back_behind_a_checkpoint_holds_for_guard_and_reserve_at_once() {
    let (disk, _journal, whole) = given_up();
    let bob = as_agent(&disk, "bob");
    let paths = ["docs/x".to_owned()];
    assert_eq!(bob.blocked(&paths).unwrap(), [], "it is lost, and accepted");
    put_whole(&disk, &whole);
    let docs = Glob::parse("docs/**").unwrap();
    // Somebody else holds the lock, or the folder cannot be written: the guard only looks.
    let busy = disk.fork();
    let guard = busy.try_lock(&Path::new(ROOT).join("events/lock")).unwrap();
    let before = busy.files();
    assert_eq!(as_agent(&busy, "bob").blocked(&paths).unwrap().len(), 1);
    assert_eq!(busy.files(), before, "a guard wrote");
    drop(guard);
    // Without the cache the checkpoint alone knows.
    let bare = disk.fork();
    forget(&bare, &["meta.json", "revisions.idx", "reserved.json"]);
    for image in [disk, bare] {
        let readers = image.fork();
        assert_eq!(as_agent(&readers, "bob").blocked(&paths).unwrap().len(), 1);
        let shown = as_agent(&readers, "bob").show("plan", "gone").unwrap();
        assert_eq!(
            (shown.entity_rev, shown.payload["n"].as_u64()),
            (2, Some(2))
        );
        is_sound(&readers);
        let bob = as_agent(&image, "bob");
        let asked = bob.reserve(&docs, Duration::from_secs(60)).unwrap();
        assert!(matches!(asked, Reserved::Held(held) if held.owner == "tester"));
        assert_eq!(commit(&bob, vec![plan("gone", 9)])[0].entity_rev, Some(3));
        is_sound(&image);
        // The next checkpoint has them, and nobody looks for them any more.
        let file = bob.checkpoint().unwrap().file;
        let path = Path::new(ROOT).join("events/checkpoints").join(file);
        let text = String::from_utf8(image.files()[&path].clone()).unwrap();
        assert!(!text.contains("without"), "{text}");
        is_sound(&image);
    }
}

/// A part of what was lost, accepted or not: that part counts, for readers too, and the rest stays what it was.
#[test]
fn a_part_that_is_put_back_is_shown_at_once_and_gives_no_revision_twice() {
    let (disk, _writer) = lossy(quick());
    flip(&disk, &[3]);
    let reader = open(&disk, 1, 61).unwrap();
    assert_eq!(reader.losses().unwrap(), [[2, 2], [4, 4]]);
    assert_eq!(reader.show("plan", "a").unwrap().payload["n"], 2);
    let receipt = &commit(&reader, vec![plan("a", 9)])[0];
    assert!(receipt.entity_rev > Some(2), "{receipt:?}");
    let (disk, journal, whole) = given_up();
    put_whole(&disk, &whole);
    flip(&disk, &[2]);
    let told = as_agent(&disk, "bob")
        .blocked(&["docs/x".to_owned()])
        .unwrap();
    assert_eq!(told, [], "the claim itself is not back");
    assert_eq!(journal.show("plan", "gone").unwrap().entity_rev, 2);
}

/// RD-06: an old copy of a segment that was lost meanwhile brings nothing back that was erased before.
#[test]
fn rd_06_what_was_erased_and_lost_and_put_back_from_an_older_copy_stays_erased() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    let secret = put("plan", "s", serde_json::json!({"title": "CANARY-4711"}));
    commit(&journal, vec![secret]);
    commit(&journal, vec![plan("a", 1)]);
    let whole = disk.files()[Path::new(SEGMENT)].clone();
    let item = heddle_journal::Target::Item {
        item_type: None,
        item_id: "s".to_owned(),
    };
    journal.redact(&item, "asked for").unwrap();
    flip(&disk, &[1]);
    journal.quarantine().unwrap();
    journal.accept_gaps("the disk").unwrap();
    journal.restore().unwrap();
    journal.checkpoint().unwrap();
    put_whole(&disk, &whole);
    let reader = open(&disk, 1, 60).unwrap();
    let told = reader.show("plan", "s").unwrap_err();
    assert!(matches!(told, JournalError::NotFound { .. }), "{told}");
    commit(&reader, vec![plan("a", 2)]);
    let told = reader.show("plan", "s").unwrap_err();
    assert!(matches!(told, JournalError::NotFound { .. }), "{told}");
    let files = disk.files().into_iter();
    let entities = Path::new(ROOT).join("entities");
    let shown = files.filter(|(path, _)| path.starts_with(&entities));
    for (path, bytes) in shown {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(!text.contains("CANARY"), "{}", path.display());
    }
}

/// Accepted, covered by a checkpoint, and then found after all. The checkpoint is of a build that did not say what it lacks.
#[test]
fn what_is_put_back_behind_a_checkpoint_counts_when_the_checkpoint_is_moved_aside() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    for change in [plan("a", 1), plan("b", 1), plan("a", 2), plan("c", 1)] {
        commit(&journal, vec![change]);
    }
    let whole = disk.files()[Path::new(SEGMENT)].clone();
    flip(&disk, &[2, 3]);
    journal.quarantine().unwrap();
    journal.accept_gaps("the disk").unwrap();
    journal.restore().unwrap();
    for n in 0..2 {
        commit(&journal, vec![plan("d", n)]);
        journal.checkpoint().unwrap();
    }
    assert!(journal.verify().unwrap().ok);
    age(&disk);
    put_whole(&disk, &whole);
    let told = journal.examine().unwrap();
    let of = |cause| told.verified.divergent.iter().any(|one| one.cause == cause);
    assert!(of(Cause::Checkpoint), "{told:#?}");
    assert!(told.next.contains("doctor quarantine"), "{}", told.next);
    assert_eq!(journal.quarantine().unwrap().checkpoints.len(), 2);
    journal.restore().unwrap();
    is_sound(&disk);
    assert_eq!(journal.show("plan", "a").unwrap().payload["n"], 2);
    assert_eq!(journal.show("plan", "b").unwrap().entity_rev, 1);
    journal.checkpoint().unwrap();
    is_sound(&disk);
}

/// The same where the checkpoint knows nothing of what comes back.
#[test]
fn what_a_checkpoint_does_not_know_at_all_is_told_when_it_is_put_back() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("gone", 1)]);
    let docs = heddle_journal::Glob::parse("docs/**").unwrap();
    journal.reserve(&docs, Duration::from_secs(60)).unwrap();
    let whole = disk.files()[Path::new(SEGMENT)].clone();
    flip(&disk, &[1, 2]);
    journal.quarantine().unwrap();
    journal.accept_gaps("the disk").unwrap();
    journal.restore().unwrap();
    commit(&journal, vec![plan("d", 1)]);
    journal.checkpoint().unwrap();
    age(&disk);
    put_whole(&disk, &whole);
    let told = journal.examine().unwrap();
    let unknown = |one: &&heddle_journal::Divergence| one.item_id == "gone";
    let found = told.verified.divergent.iter().find(unknown);
    assert_eq!(found.unwrap().cause, Cause::Checkpoint, "{told:#?}");
    assert!(told.next.contains("doctor quarantine"), "{}", told.next);
    assert_eq!(journal.quarantine().unwrap().checkpoints.len(), 1);
    journal.restore().unwrap();
    is_sound(&disk);
    assert_eq!(journal.show("plan", "gone").unwrap().entity_rev, 1);
}

fn as_agent(disk: &MemDisk, name: &str) -> Journal {
    let world = world(std::sync::Arc::new(disk.clone()), 1, 77);
    let who = heddle_journal::Who {
        agent: name.to_owned(),
        ..who()
    };
    let journal = Journal::open(world, Path::new(ROOT), who).unwrap();
    journal.with_settings(quick())
}
