//! Reservations: one holder of a path at a time, decided under the lock; an end by time or by word.
#![cfg(test)]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::{Clock, ManualClock, ManualIds, WallMs};
use heddle_journal::disk::{Disk, MemDisk};
use heddle_journal::{Glob, Journal, Reserved, Who, World};
use support::*;

const HOUR: Duration = Duration::from_secs(3600);

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
    Journal::open(world, Path::new(ROOT), who)
        .unwrap()
        .with_settings(quick())
}

fn glob(text: &str) -> Glob {
    Glob::parse(text).unwrap()
}

fn is_granted(told: &Reserved) -> bool {
    matches!(told, Reserved::Granted(_))
}

#[test]
fn a_path_has_one_holder_until_it_is_released_or_its_time_is_over() {
    let disk = MemDisk::new();
    init(&disk);
    let clock = Arc::new(ManualClock::at(WallMs(1_794_000_000_000)));
    let (ann, bob) = (
        agent(&disk, &clock, "ann", 3),
        agent(&disk, &clock, "bob", 4),
    );
    assert!(is_granted(
        &ann.reserve(&glob("src/parser/**"), HOUR).unwrap()
    ));
    let Reserved::Held(held) = bob.reserve(&glob("src/**"), HOUR).unwrap() else {
        panic!("two holders");
    };
    assert_eq!(
        (held.owner.as_str(), held.glob.as_str()),
        ("ann", "src/parser/**")
    );
    assert!(is_granted(&bob.reserve(&glob("docs"), HOUR).unwrap()));
    let paths = ["src/parser/a.rs".to_owned(), "docs/x.md".to_owned()];
    assert_eq!(bob.blocked(&paths).unwrap().len(), 1);
    assert_eq!(ann.blocked(&paths).unwrap()[0].0, "docs/x.md");
    // Longer: the same holder, and a promise to others that the journal must keep.
    let before = seqs(&ann).len();
    clock.advance(HOUR / 2);
    assert!(is_granted(
        &ann.reserve(&glob("src/parser/**"), HOUR).unwrap()
    ));
    assert_eq!(seqs(&ann).len(), before + 1);
    clock.advance(HOUR * 3 / 4);
    assert_eq!(bob.blocked(&paths).unwrap().len(), 1, "it was made longer");
    // By word: only the holder's own, and once.
    assert_eq!(bob.release(&glob("src/parser/**")).unwrap(), None);
    assert!(ann.release(&glob("src/parser/**")).unwrap().is_some());
    assert_eq!(ann.release(&glob("src/parser/**")).unwrap(), None);
    assert!(is_granted(&bob.reserve(&glob("src/**"), HOUR).unwrap()));
    // By time.
    clock.advance(HOUR * 2);
    assert!(ann.reservations().unwrap().is_empty());
    assert!(is_granted(
        &ann.reserve(&glob("src/parser/**"), HOUR).unwrap()
    ));
    assert!(ann.verify().unwrap().ok);
    assert!(ann.reserve(&glob("x"), Duration::ZERO).is_err());
}

/// Git keeps the files of claims, and puts old ones back or takes them away: the journal decides.
#[test]
fn a_longer_reservation_is_in_the_journal_and_no_checkout_takes_it_away() {
    let disk = MemDisk::new();
    init(&disk);
    let clock = Arc::new(ManualClock::at(WallMs(1_794_000_000_000)));
    let ann = agent(&disk, &clock, "ann", 3);
    let bob = agent(&disk, &clock, "bob", 4);
    ann.reserve(&glob("src"), HOUR).unwrap();
    let is_claim = |path: &&std::path::PathBuf| path.to_string_lossy().contains("/rsv_");
    let files = disk.files();
    let claim = files.keys().find(is_claim).unwrap().clone();
    ann.reserve(&glob("src"), HOUR * 4).unwrap();
    let longer = bob.reservations().unwrap();
    disk.tamper(&claim, |now| *now = files[&claim].clone());
    assert_eq!(bob.reservations().unwrap(), longer, "an old file came back");
    clock.advance(HOUR * 2);
    let paths = ["src/a.rs".to_owned()];
    assert_eq!(bob.blocked(&paths).unwrap().len(), 1);
    disk.remove(&claim).unwrap();
    assert_eq!(bob.blocked(&paths).unwrap().len(), 1, "the file is gone");
    assert!(!is_granted(&bob.reserve(&glob("src"), HOUR).unwrap()));
    // Also from what remains without any cache, and through the next start.
    for name in ["revisions.idx", "meta.json", "reserved.json"] {
        let _ = disk.remove(&Path::new(ROOT).join("events").join(name));
    }
    let eve = agent(&disk, &clock, "eve", 5);
    assert_eq!(eve.blocked(&paths).unwrap().len(), 1);
    assert!(ann.release(&glob("src")).unwrap().is_some());
    assert!(eve.blocked(&paths).unwrap().is_empty());
}

const SEGMENT: &str = "/repo/.heddle/events/seg-00000000000000000001.jsonl";

fn below(name: &str) -> std::path::PathBuf {
    Path::new(ROOT).join(name)
}

fn claim_file(disk: &MemDisk) -> std::path::PathBuf {
    let files = disk.files();
    let mut claims = files.keys().filter(|path| {
        let name = path.to_string_lossy();
        name.contains("entities/claim/rsv_")
    });
    claims.next().unwrap().clone()
}

/// Bob's reservation is there, or everybody is told that it may be: nobody is told that the path is free.
#[track_caller]
fn is_not_free(disk: &MemDisk, clock: &Arc<ManualClock>, what: &str) {
    let carl = agent(disk, clock, "carl", 9);
    let paths = ["lib/a".to_owned()];
    for look in ["before a writer", "after it"] {
        let held = carl.reservations();
        let is_told = held.as_ref().map_or(true, |held| held.len() == 1);
        assert!(is_told, "{what}, {look}: {held:?}");
        let blocked = carl.blocked(&paths);
        let is_told = blocked.as_ref().map_or(true, |paths| paths.len() == 1);
        assert!(is_told, "{what}, {look}: {blocked:?}");
        let asked = carl.reserve(&glob("lib/q"), HOUR);
        let is_granted = asked.as_ref().is_ok_and(is_granted);
        assert!(!is_granted, "{what}, {look}: {asked:?}");
    }
}

#[test]
fn a_reservation_whose_record_is_lost_holds_or_nobody_is_told_that_the_path_is_free() {
    let clock = Arc::new(ManualClock::at(WallMs(1_794_000_000_000)));
    let whole = MemDisk::new();
    commit(&init(&whole), vec![plan("p", 1)]);
    let bob = agent(&whole, &clock, "bob", 4);
    assert!(is_granted(&bob.reserve(&glob("lib/**"), HOUR).unwrap()));
    let segment = Path::new(SEGMENT);
    let length = whole.files()[segment].len();
    let file = claim_file(&whole);
    // Cut at every byte before the reservation counts; all of it gone; the file gone as well.
    for cut in 0..=length - 3 {
        let disk = whole.fork();
        disk.tamper(segment, |bytes| bytes.truncate(cut));
        is_not_free(&disk, &clock, &format!("cut at {cut}"));
    }
    for also in [None, Some(&file)] {
        let disk = whole.fork();
        disk.remove(segment).unwrap();
        if let Some(file) = also {
            disk.remove(file).unwrap();
        }
        is_not_free(&disk, &clock, &format!("no segment, no {also:?}"));
    }
    // A bit in the record, and what else remembers it.
    let caches = [below("events/meta.json"), below("events/revisions.idx")];
    for gone in [&caches[..], &[file.clone()][..]] {
        let disk = whole.fork();
        disk.tamper(segment, |bytes| bytes[length - 40] ^= 1);
        commit(&open(&disk, 1, 5).unwrap(), vec![plan("p", 2)]);
        for path in gone {
            disk.remove(path).unwrap();
        }
        is_not_free(&disk, &clock, &format!("a bit, no {gone:?}"));
    }
    // Without any cache that would have seen it: the list and the file are enough.
    let disk = whole.fork();
    disk.tamper(segment, Vec::clear);
    for path in &caches {
        disk.remove(path).unwrap();
    }
    is_not_free(&disk, &clock, "no cache");
    // The way on is a person's word.
    let disk = whole.fork();
    disk.remove(segment).unwrap();
    disk.remove(&file).unwrap();
    let carl = agent(&disk, &clock, "carl", 9);
    carl.accept_gaps("the disk").unwrap();
    assert!(is_granted(&carl.reserve(&glob("lib/q"), HOUR).unwrap()));
}

/// The end of the journal is lost, and the file of the claim is an older copy, or was edited: the index has seen another one.
#[test]
fn a_lost_reservation_is_not_called_free_by_an_older_or_changed_file_of_it() {
    let clock = Arc::new(ManualClock::at(WallMs(1_794_000_000_000)));
    let whole = MemDisk::new();
    let journal = init(&whole);
    commit(&journal, vec![plan("p", 1)]);
    let bob = agent(&whole, &clock, "bob", 4);
    let segment = Path::new(SEGMENT);
    bob.reserve(&glob("lib/**"), HOUR).unwrap();
    bob.release(&glob("lib/**")).unwrap().unwrap();
    let file = claim_file(&whole);
    let (released, from) = (whole.files()[&file].clone(), whole.files()[segment].len());
    bob.reserve(&glob("lib/**"), HOUR).unwrap();
    let to = whole.files()[segment].len();
    commit(&journal, vec![plan("p", 2)]);
    let held = String::from_utf8(whole.files()[&file].clone()).unwrap();
    let year = "\"until\": \"2026";
    assert!(held.contains(year), "{held}");
    let files = [
        String::from_utf8(released).unwrap(),
        held.replace("claimed", "cLaimed"),
        held.replace(year, "\"until\": \"2020"),
        held.replace("lib/**", "els/**"),
        held.replace("\"bob\"", "\"carl\""),
    ];
    for (number, text) in files.iter().enumerate() {
        assert_ne!(*text, held, "{number}");
        for cut in (from..to - 3).step_by(29) {
            let disk = whole.fork();
            disk.tamper(segment, |bytes| bytes.truncate(cut));
            disk.tamper(&file, |bytes| *bytes = text.clone().into_bytes());
            is_not_free(&disk, &clock, &format!("file {number}, cut at {cut}"));
        }
    }
    // A person's word, as for every other loss.
    let disk = whole.fork();
    disk.tamper(segment, |bytes| bytes.truncate(from));
    disk.tamper(&file, |bytes| *bytes = files[0].clone().into_bytes());
    let carl = agent(&disk, &clock, "carl", 9);
    carl.accept_gaps("the disk").unwrap();
    assert!(is_granted(&carl.reserve(&glob("lib/q"), HOUR).unwrap()));
}

/// The list of reservations is all that is left: it says that there was something, and nobody is told that a path is free.
#[test]
fn a_list_of_reservations_without_any_record_is_a_loss_until_a_person_accepts_it() {
    let clock = Arc::new(ManualClock::at(WallMs(1_794_000_000_000)));
    for plans in [0, 2] {
        for has_file in [true, false] {
            let disk = MemDisk::new();
            let journal = init(&disk);
            for n in 0..plans {
                commit(&journal, vec![plan("p", n)]);
            }
            let bob = agent(&disk, &clock, "bob", 4);
            assert!(is_granted(&bob.reserve(&glob("lib/**"), HOUR).unwrap()));
            let list = below("events/reserved.json");
            for path in disk.files().into_keys() {
                let is_event = path.starts_with(below("events")) && path != list;
                if is_event || !has_file && path.starts_with(below("entities")) {
                    disk.remove(&path).unwrap();
                }
            }
            let what = format!("{plans} plans, file {has_file}");
            let carl = agent(&disk, &clock, "carl", 9);
            let lost = carl.losses().unwrap();
            assert_eq!(lost.len(), 1, "{what}: {lost:?}");
            assert!(!carl.verify().unwrap().ok, "{what}");
            let told = carl.show("plan", "gone").unwrap_err().to_string();
            assert!(told.contains("lost"), "{what}: {told}");
            is_not_free(&disk, &clock, &what);
            let carl = agent(&disk, &clock, "carl", 11);
            assert_eq!(carl.accept_gaps("the disk").unwrap().accepted.len(), 1);
            assert_eq!(carl.losses().unwrap(), Vec::<[u64; 2]>::new());
            assert_eq!(carl.verify().unwrap().counters.seq_gaps, 0, "{what}");
            if !has_file {
                assert!(is_granted(&carl.reserve(&glob("lib/q"), HOUR).unwrap()));
            }
        }
    }
}

/// Nobody has written here: the list of a new store says nothing.
#[test]
fn a_new_store_has_lost_nothing() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    assert!(journal.blocked(&["lib/a".to_owned()]).unwrap().is_empty());
    assert_eq!(journal.losses().unwrap(), Vec::<[u64; 2]>::new());
    assert!(journal.verify().unwrap().ok);
}

#[test]
fn a_reservation_that_ended_and_a_lost_plan_block_nobody() {
    let clock = Arc::new(ManualClock::at(WallMs(1_794_000_000_000)));
    let disk = MemDisk::new();
    let journal = init(&disk);
    let bob = agent(&disk, &clock, "bob", 4);
    assert!(is_granted(&bob.reserve(&glob("lib/**"), HOUR).unwrap()));
    bob.release(&glob("lib/**")).unwrap().unwrap();
    let before = disk.files()[Path::new(SEGMENT)].clone();
    commit(&journal, vec![plan("p", 1)]);
    disk.tamper(Path::new(SEGMENT), |bytes| *bytes = before);
    let carl = agent(&disk, &clock, "carl", 9);
    assert!(carl.blocked(&["lib/a".to_owned()]).unwrap().is_empty());
    assert!(is_granted(&carl.reserve(&glob("lib/q"), HOUR).unwrap()));
}

/// C47 and the gate: the answer of before, whatever holds by now; a late retry takes nothing and gives nothing back.
#[test]
fn a_retry_under_its_key_neither_takes_again_what_was_given_back_nor_gives_back_what_was_taken_since()
 {
    let disk = MemDisk::new();
    init(&disk);
    let clock = Arc::new(ManualClock::at(WallMs(1_794_000_000_000)));
    let (ann, bob) = (
        agent(&disk, &clock, "ann", 3),
        agent(&disk, &clock, "bob", 4),
    );
    let lib = glob("lib/**");
    let Reserved::Granted(first) = ann.reserve_once(&lib, HOUR, Some("k1")).unwrap() else {
        panic!("refused");
    };
    assert!(!first.duplicate);
    clock.advance(Duration::from_secs(10));
    let again = |told: Reserved| match told {
        Reserved::Granted(told) => (told.duplicate, told.expires_at),
        Reserved::Held(held) => panic!("held: {held:?}"),
    };
    let retried = again(ann.reserve_once(&lib, HOUR, Some("k1")).unwrap());
    assert_eq!(
        retried,
        (true, first.expires_at.clone()),
        "not a longer time"
    );
    let released = ann.release_once(&lib, Some("k2")).unwrap().unwrap();
    assert!(!released.duplicate);
    // Given back: the same answer, and the paths stay free.
    let retried = again(ann.reserve_once(&lib, HOUR, Some("k1")).unwrap());
    assert_eq!(retried, (true, first.expires_at.clone()));
    assert!(is_granted(&bob.reserve(&lib, HOUR).unwrap()));
    // Another holds them: that is no reason to answer otherwise than before.
    assert!(again(ann.reserve_once(&lib, HOUR, Some("k1")).unwrap()).0);
    bob.release(&lib).unwrap().unwrap();
    // Taken anew: a late retry of the release gives nothing back.
    assert!(is_granted(&ann.reserve(&lib, HOUR).unwrap()));
    let retried = ann.release_once(&lib, Some("k2")).unwrap().unwrap();
    assert_eq!(
        retried,
        heddle_journal::Reservation {
            duplicate: true,
            ..released
        }
    );
    assert_eq!(ann.reservations().unwrap().len(), 1);
    // Another request under a taken key is refused; one that was refused takes none.
    for refused in [
        ann.reserve_once(&lib, 2 * HOUR, Some("k1")).map(drop),
        ann.release_once(&lib, Some("k1")).map(drop),
        bob.reserve_once(&lib, HOUR, Some("k1")).map(drop),
    ] {
        let is_reused = matches!(
            refused,
            Err(heddle_journal::JournalError::RequestReused { .. })
        );
        assert!(is_reused, "{refused:?}");
    }
    let held = bob.reserve_once(&lib, HOUR, Some("k3")).unwrap();
    assert!(!is_granted(&held));
    ann.release(&lib).unwrap().unwrap();
    assert!(is_granted(
        &bob.reserve_once(&lib, HOUR, Some("k3")).unwrap()
    ));
    assert!(ann.verify().unwrap().ok);
}

/// One file from a backup, and a branch that has no file of the claim: the records know it, and the list is not believed.
#[test]
fn an_older_copy_of_the_list_frees_no_path() {
    let disk = MemDisk::new();
    let ann = init(&disk);
    ann.reserve(&glob("docs/**"), HOUR).unwrap();
    let list = Path::new(ROOT).join("events/reserved.json");
    let older = disk.files()[&list].clone();
    ann.reserve(&glob("lib/**"), HOUR).unwrap();
    disk.tamper(&list, |bytes| *bytes = older);
    let claims = Path::new(ROOT).join("entities/claim");
    for entry in disk.list(&claims).unwrap() {
        disk.remove(&claims.join(entry.name)).unwrap();
    }
    // Of the same boot: nobody has a reason to compare everything.
    let who = Who {
        agent: "bob".to_owned(),
        ..Who::default()
    };
    let bob = Journal::open(world(Arc::new(disk.clone()), 1, 50), Path::new(ROOT), who);
    let bob = bob.unwrap().with_settings(quick());
    let paths = ["docs/a".to_owned(), "lib/a".to_owned()];
    assert_eq!(bob.blocked(&paths).unwrap().len(), 2);
    let asked = bob.reserve(&glob("lib/x"), HOUR).unwrap();
    assert!(matches!(asked, Reserved::Held(_)), "{asked:?}");
}

fn appended(id: &str, until: &str) -> heddle_journal::Change {
    let document = serde_json::json!({
        "scope": "lib/**", "agent": "ann", "kind": "reservation", "status": "claimed", "until": until,
    });
    put("claim", id, document)
}

/// `journal append` takes any id: what is found is given back, not what would be there had `reserve` written it.
#[test]
fn a_release_gives_back_every_claim_of_that_scope_and_agent_under_the_id_it_has() {
    let disk = MemDisk::new();
    let store = init(&disk);
    let clock = Arc::new(ManualClock::at(WallMs(1_794_000_000_000)));
    let until = WallMs(1_794_000_000_000 + 86_400_000).to_rfc3339();
    commit(&store, vec![appended("rsv_f4", &until)]);
    let (ann, bob) = (
        agent(&disk, &clock, "ann", 3),
        agent(&disk, &clock, "bob", 4),
    );
    let lib = glob("lib/**");
    assert!(is_granted(&ann.reserve(&lib, HOUR).unwrap()));
    assert_eq!(ann.reservations().unwrap().len(), 2);
    assert_eq!(bob.release(&lib).unwrap(), None);
    let released = ann.release_once(&lib, Some("k1")).unwrap().unwrap();
    assert!(!released.duplicate);
    assert!(ann.reservations().unwrap().is_empty(), "both are free");
    assert!(bob.blocked(&["lib/a".to_owned()]).unwrap().is_empty());
    let again = ann.release_once(&lib, Some("k1")).unwrap().unwrap();
    assert!(again.duplicate);
    assert!(is_granted(&bob.reserve(&lib, HOUR).unwrap()));
    assert!(ann.verify().unwrap().ok);
}

/// It would hold for ever: refused where it is asked for, and released where an older build took it.
#[test]
fn a_reservation_whose_end_is_no_time_is_refused_and_one_that_is_there_can_be_released() {
    let disk = MemDisk::new();
    let store = init(&disk);
    for until in ["garbage", "", "tomorrow"] {
        let refused = store.mutate_whole(vec![appended("rsv_f4", until)]);
        let words = refused.unwrap_err().to_string();
        assert!(words.contains("`until` is a time"), "{words}");
    }
    commit(&store, vec![plan("p", 1)]);
    let document = appended("rsv_f4", "garbage").document.unwrap();
    let seq = 1 + *seqs(&store).last().unwrap();
    let line = forged_of("claim", seq, "w_1-aaaaaaaaaaaa", "rsv_f4", 1, &document);
    disk.tamper(Path::new(SEGMENT), |bytes| bytes.extend_from_slice(&line));
    let clock = Arc::new(ManualClock::at(WallMs(1_794_000_000_000)));
    let ann = agent(&disk, &clock, "ann", 3);
    assert_eq!(ann.reservations().unwrap().len(), 1);
    assert!(ann.release(&glob("lib/**")).unwrap().is_some());
    assert!(ann.reservations().unwrap().is_empty());
}
