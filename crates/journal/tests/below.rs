//! A lost record, the advice that is printed for it, and then: nothing that was deleted comes back, no revision is given twice.
#![cfg(test)]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::{Clock, ManualClock, ManualIds, WallMs};
use heddle_journal::disk::{Disk, MemDisk};
use heddle_journal::{Glob, Journal, Reserved, Who, World};
use support::*;

const SEGMENT: &str = "/repo/.heddle/events/seg-00000000000000000001.jsonl";
const HOUR: Duration = Duration::from_secs(3600);

/// One bit of the line of this seq.
fn damage(disk: &MemDisk, seq: u64) {
    let mark = format!("\"seq\":{seq},");
    disk.tamper(Path::new(SEGMENT), |bytes| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let line = text.find(&mark).unwrap();
        let at = line + text[line..].find("\"action\":\"").unwrap() + 11;
        bytes[at] ^= 1;
    });
}

/// What `verify` and `doctor` advise, in their order.
fn as_advised(journal: &Journal) -> heddle_journal::Restored {
    assert!(!journal.verify().unwrap().ok);
    journal.quarantine().unwrap();
    journal.accept_gaps("the disk").unwrap();
    journal.restore().unwrap()
}

#[test]
fn what_was_deleted_by_a_record_that_is_lost_stays_gone_and_its_revision_goes_on() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("e", 1)]);
    commit(&journal, vec![delete("plan", "e")]);
    commit(&journal, vec![plan("f", 1)]);
    damage(&disk, 2);
    let restored = as_advised(&journal);
    assert!(restored.unmended.is_empty(), "{restored:?}");
    for seed in [20, 21] {
        let journal = open(&disk, 1, seed).unwrap();
        assert!(journal.show("plan", "e").is_err(), "it came back");
        let report = journal.verify().unwrap();
        assert!(report.ok, "{report:#?}");
        // Twice is once.
        journal.restore().unwrap();
    }
    let journal = open(&disk, 1, 22).unwrap();
    let told = commit(&journal, vec![plan("e", 2)]);
    assert_eq!(told[0].entity_rev, Some(3), "revision 2 was the delete");
    let shown = journal.show("plan", "e").unwrap();
    assert_eq!((shown.entity_rev, shown.note), (3, None));
    assert!(journal.verify().unwrap().ok);
}

#[test]
fn an_older_revision_is_never_shown_as_the_newest_and_the_lost_one_is_not_given_again() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("e", 1)]);
    commit(&journal, vec![plan("e", 2)]);
    commit(&journal, vec![plan("g", 1)]);
    commit(&journal, vec![plan("f", 1)]);
    let whole = disk.fork();
    damage(&disk, 2);
    damage(&disk, 3);
    as_advised(&journal);
    let shown = journal.show("plan", "e").unwrap();
    assert_eq!((shown.entity_rev, &shown.payload["n"]), (1, &1.into()));
    assert!(shown.note.is_some_and(|note| note.contains("lost")));
    assert!(journal.show("plan", "g").is_err());
    let report = journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
    // What was lost is put back: it counts again, and nothing was given away of it.
    let back = whole.files()[Path::new(SEGMENT)].clone();
    let put_back = disk.fork();
    put_back.tamper(Path::new(SEGMENT), |bytes| {
        let notes = bytes.split_off(bytes.len().min(back.len()));
        *bytes = [back.clone(), notes].concat();
    });
    let shown = open(&put_back, 1, 30).unwrap().show("plan", "e").unwrap();
    assert_eq!((shown.entity_rev, shown.note), (2, None));
    for (id, rev) in [("e", 3), ("g", 2), ("f", 2)] {
        let told = commit(&journal, vec![plan(id, 9)]);
        assert_eq!(told[0].entity_rev, Some(rev), "{id}");
        let shown = journal.show("plan", id).unwrap();
        assert_eq!((shown.entity_rev, shown.note), (rev, None), "{id}");
    }
    assert!(journal.verify().unwrap().ok);
}

/// Lost behind a checkpoint, which has what the records said: their state stays, through all that is advised.
#[test]
fn what_a_checkpoint_still_has_of_lost_records_stays_and_the_checkpoint_is_not_moved_aside() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    for id in ["a", "b", "c"] {
        commit(&journal, vec![plan(id, 1)]);
    }
    commit(&journal, vec![delete("plan", "c")]);
    journal.checkpoint().unwrap();
    commit(&journal, vec![plan("d", 1)]);
    damage(&disk, 2);
    damage(&disk, 4);
    let restored = as_advised(&journal);
    assert!(restored.unmended.is_empty(), "{restored:?}");
    for (boot, gone) in [(1, &[][..]), (2, &[]), (1, &["meta.json", "revisions.idx"])] {
        let image = disk.fork();
        for name in gone {
            let path = Path::new(ROOT).join("events").join(name);
            image.remove(&path).unwrap();
        }
        let journal = open(&image, boot, 30).unwrap();
        let shown = journal.show("plan", "b").unwrap();
        assert_eq!((shown.entity_rev, &shown.payload["n"]), (1, &1.into()));
        assert!(journal.show("plan", "c").is_err(), "it was deleted");
        let told = journal.quarantine().unwrap();
        assert!(told.checkpoints.is_empty(), "{told:?}");
        journal.restore().unwrap();
        let report = journal.verify().unwrap();
        assert!(report.ok, "{report:#?}");
        for (id, rev) in [("b", 2), ("c", 3), ("d", 2)] {
            let told = commit(&journal, vec![plan(id, 2)]);
            assert_eq!(told[0].entity_rev, Some(rev), "{id}");
        }
        journal.checkpoint().unwrap();
        let report = journal.verify().unwrap();
        assert!(report.ok, "{report:#?}");
    }
}

/// A rebuild would put the last copy aside: that the file has it is said, and recording it ends the loss of it.
#[test]
fn a_file_that_still_has_what_a_lost_record_said_is_told_as_that() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("e", 1)]);
    commit(&journal, vec![plan("e", 2)]);
    commit(&journal, vec![plan("g", 7)]);
    commit(&journal, vec![plan("f", 1)]);
    damage(&disk, 2);
    damage(&disk, 3);
    journal.quarantine().unwrap();
    journal.accept_gaps("the disk").unwrap();
    let report = journal.verify().unwrap();
    let told = |id: &str| {
        let one = report.divergent.iter().find(|one| one.item_id == id);
        one.map_or("", |one| one.reason.as_str()).to_owned()
    };
    assert!(
        told("e").contains("revision 2 is lost, and its file still has"),
        "{report:#?}"
    );
    assert!(
        told("g").contains("revision 1 is lost, and its file still has"),
        "{report:#?}"
    );
    for (id, n, rev) in [("e", 2, 3), ("g", 7, 2)] {
        // As `append --payload @FILE` does.
        let told = commit(&journal, vec![plan(id, n)]);
        assert_eq!(told[0].entity_rev, Some(rev), "{id}");
        let shown = journal.show("plan", id).unwrap();
        assert_eq!((&shown.payload["n"], shown.note), (&n.into(), None), "{id}");
    }
    let report = journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
    assert_eq!(journal.take_kept_aside(), Vec::<String>::new());
}

fn agent(disk: &MemDisk, clock: &Arc<ManualClock>, name: &str, seed: u64) -> Journal {
    let world = World {
        disk: Arc::new(disk.clone()),
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        ids: Arc::new(ManualIds::seeded(seed)),
    };
    let who = Who {
        agent: name.to_owned(),
        ..Who::default()
    };
    let journal = Journal::open(world, Path::new(ROOT), who).unwrap();
    journal.with_settings(quick())
}

/// Its first record or the one that made it longer: no rebuild frees the paths before their time.
#[test]
fn a_reservation_whose_record_is_lost_holds_behind_a_rebuild_too() {
    for (longer, lost) in [(false, 2), (true, 3)] {
        let disk = MemDisk::new();
        let store = init(&disk);
        commit(&store, vec![plan("p", 1)]);
        let clock = Arc::new(ManualClock::at(WallMs(1_794_000_000_000)));
        let (ann, bob) = (
            agent(&disk, &clock, "ann", 3),
            agent(&disk, &clock, "bob", 4),
        );
        let lib = Glob::parse("lib/**").unwrap();
        ann.reserve(&lib, HOUR).unwrap();
        if longer {
            ann.reserve(&lib, 5 * HOUR).unwrap();
        }
        commit(&store, vec![plan("q", 1)]);
        damage(&disk, lost);
        let restored = as_advised(&ann);
        assert!(restored.unmended.is_empty(), "{restored:?}");
        let report = ann.verify().unwrap();
        let is_named = |warning: &String| warning.contains("the reservation rsv_");
        assert!(
            longer || report.warnings.iter().any(is_named),
            "{report:#?}"
        );
        clock.advance(if longer { 2 * HOUR } else { HOUR / 2 });
        let blocked = bob.blocked(&["lib/a".to_owned()]).unwrap();
        assert_eq!(blocked.len(), 1, "{longer}");
        let told = bob.reserve(&lib, HOUR).unwrap();
        assert!(matches!(told, Reserved::Held(_)), "{told:?}");
        // Its holder gives it back, as ever.
        assert!(ann.release(&lib).unwrap().is_some());
        assert!(bob.blocked(&["lib/a".to_owned()]).unwrap().is_empty());
        let told = bob.reserve(&lib, HOUR).unwrap();
        assert!(matches!(told, Reserved::Granted(_)), "{told:?}");
        assert!(bob.verify().unwrap().ok);
    }
}
