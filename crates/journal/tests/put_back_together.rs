//! Several files put back at once from one older copy: every set of them. Somebody restores what a tool or a person has broken, and not all
//! of it. What is left of the later state must be enough: no seq is given a second time in silence, nothing older is shown as the newest, a
//! request is not recorded twice, no reserved path is called free, and `verify` tells it.
#![cfg(test)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use heddle_journal::action::Action;
use heddle_journal::disk::{Disk, MemDisk};
use heddle_journal::{Change, Glob, Journal, JournalError, Receipt, Settings};
use serde_json::json;
use support::*;

fn path(name: &str) -> PathBuf {
    Path::new(ROOT).join(name)
}

fn big(n: u64) -> Change {
    let text = format!("{n}").repeat(70_000);
    put("plan", "big", json!({"title": "big", "text": text, "n": n}))
}

fn once(journal: &Journal, change: Change, id: &str) -> Result<Receipt, JournalError> {
    let committed = journal.mutate_once(change, id)?;
    let receipt = committed.receipts()[0].clone();
    committed.finish().unwrap();
    Ok(receipt)
}

fn reserve(journal: &Journal, glob: &str) {
    let glob = Glob::parse(glob).unwrap();
    journal.reserve(&glob, Duration::from_secs(3600)).unwrap();
}

/// A store, what it was before, and the last seq that was given since.
struct Store {
    now: MemDisk,
    before: MemDisk,
    last: u64,
    /// The files of the matrix: by their names, so that one is there in both or in one.
    files: Vec<Vec<PathBuf>>,
}

fn all_in(disk: &MemDisk, folder: &str) -> Vec<PathBuf> {
    let names = disk.files().into_keys();
    names.filter(|it| it.starts_with(path(folder))).collect()
}

/// What becomes of segments that the older copy does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Later {
    Go,
    Stay,
}

/// Whether requests had ids: their table is one more that remembers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ids {
    Some,
    None,
}

fn store(roll_bytes: u64, later: Later) -> Store {
    store_with(roll_bytes, later, Ids::Some)
}

fn store_with(roll_bytes: u64, later: Later, ids: Ids) -> Store {
    let settings = Settings {
        roll_bytes,
        ..quick()
    };
    let disk = MemDisk::new();
    let journal = init(&disk).with_settings(settings.clone());
    commit(&journal, vec![plan("a", 1)]);
    commit(&journal, vec![big(1)]);
    let with_id = |journal: &Journal, change: Change, id: &str| match ids {
        Ids::Some => drop(once(journal, change, id).unwrap()),
        Ids::None => drop(commit(journal, vec![change])),
    };
    with_id(&journal, plan("b", 1), "k1");
    reserve(&journal, "docs/**");
    journal.checkpoint().unwrap();
    drop(journal);
    let before = disk.fork();
    let journal = open(&disk, 1, 2).unwrap().with_settings(settings);
    commit(&journal, vec![plan("a", 2)]);
    commit(&journal, vec![big(2)]);
    reserve(&journal, "lib/**");
    journal.checkpoint().unwrap();
    with_id(&journal, plan("b", 2), "k2");
    commit(&journal, vec![plan("new", 1)]);
    let last = commit(&journal, vec![plan("a", 4)])[0].seq.unwrap();
    drop(journal);
    let checkpoints = all_in(&disk, "events/checkpoints");
    let blobs = all_in(&disk, "events/blobs");
    let mut segments = disk.files().into_keys().collect::<Vec<_>>();
    segments.retain(|it| it.extension().is_some_and(|end| end == "jsonl"));
    assert_eq!(segments.len() > 1, roll_bytes < 2000, "{segments:?}");
    if later == Later::Stay {
        segments.retain(|it| before.files().contains_key(it));
    }
    let is_shorter = |it: &PathBuf| before.files().get(it) != disk.files().get(it);
    assert!(segments.iter().any(is_shorter), "nothing is lost with them");
    let one = |name: &str| vec![path(name)];
    let entities = match ids {
        Ids::Some => one("entities/plan/a.json"),
        // All of them: no file says what a lost record did.
        Ids::None => all_in(&disk, "entities"),
    };
    Store {
        now: disk,
        before,
        last,
        files: vec![
            segments,
            one("events/meta.json"),
            one("events/revisions.idx"),
            one("events/reserved.json"),
            checkpoints,
            entities,
            blobs,
            one("events/lock"),
        ],
    }
}

const SETS: usize = 1 << 8;
const CHECKPOINT: usize = 4;
const LOCK: usize = 7;

impl Store {
    fn image(&self, set: usize) -> MemDisk {
        let image = self.now.fork();
        self.put_back(set, &image);
        image
    }

    fn put_back(&self, set: usize, image: &MemDisk) {
        let numbered = self.files.iter().enumerate();
        let chosen = numbered.filter(|(nth, _)| has(set, *nth));
        for file in chosen.flat_map(|(_, files)| files) {
            match self.before.read(file, 1 << 30) {
                Ok(old) => assert!(image.tamper(file, |bytes| *bytes = old), "{file:?}"),
                Err(_) => image.remove(file).unwrap(),
            }
        }
    }
}

fn has(set: usize, nth: usize) -> bool {
    set & 1 << nth != 0
}

/// Every file that says exactly how far the journal was is of before. The table of requests, which is not among these, is older than the last
/// record: it is told that records are lost, and not how many.
fn is_all_of_before(set: usize) -> bool {
    [0, 1, 2, LOCK].iter().all(|nth| has(set, *nth))
}

fn quietly(shown: &heddle_journal::Shown) -> bool {
    shown.note.is_none() && !shown.stale
}

/// What readers say: the newest, or that it may not be.
fn look(image: &MemDisk, boot: u128, settings: &Settings, what: &str) {
    let reader = as_bob(image, boot, settings);
    for (id, n) in [("a", 4), ("b", 2), ("big", 2), ("new", 1)] {
        match reader.show("plan", id) {
            Ok(shown) if quietly(&shown) => {
                assert_eq!(shown.payload["n"], n, "{what}: {id} is older");
            }
            Err(JournalError::NotFound { .. }) => panic!("{what}: {id} is called not here"),
            Ok(_) | Err(_) => {}
        }
    }
    for held in ["lib/x", "docs/x"] {
        let told = reader.blocked(&[held.to_owned()]);
        let is_free = told.is_ok_and(|blocked| blocked.is_empty());
        assert!(!is_free, "{what}: {held} is called free");
    }
}

fn written(
    store: &Store,
    image: &MemDisk,
    boot: u128,
    settings: &Settings,
    is_vague: bool,
    what: &str,
) {
    let journal = open(image, boot, 50)
        .unwrap()
        .with_settings(settings.clone());
    // A retry is answered, or nobody can say; it is no second record.
    for (change, key, of_before) in [(plan("b", 2), "k2", false), (plan("b", 1), "k1", true)] {
        match once(&journal, change, key) {
            Ok(receipt) => assert!(receipt.duplicate, "{what}: {key} is recorded twice"),
            Err(JournalError::RequestLost { .. }) if !of_before => {}
            Err(error) => panic!("{what}: {key}: {error}"),
        }
    }
    let receipt = &commit(&journal, vec![plan("later", 1)])[0];
    if is_vague {
        return;
    }
    assert!(receipt.seq > Some(store.last), "{what}: {receipt:?}");
    let receipt = &commit(&journal, vec![plan("a", 9)])[0];
    assert!(receipt.entity_rev > Some(3), "{what}: {receipt:?}");
    assert_eq!(journal.show("plan", "a").unwrap().payload["n"], 9, "{what}");
}

fn judge(store: &Store, set: usize, boot: u128, settings: &Settings) {
    let names = [
        "segment",
        "meta",
        "index",
        "list",
        "checkpoint",
        "file",
        "blob",
        "lock",
    ];
    let named = names.iter().enumerate().filter(|(nth, _)| has(set, *nth));
    let named: Vec<&str> = named.map(|(_, name)| *name).collect();
    let what = format!("{} put back, boot {boot}", named.join(" + "));
    let image = store.image(set);
    let is_told = |image: &MemDisk, seed: u64| {
        let told = open(image, boot, seed).unwrap().verify().unwrap();
        if has(set, 0) {
            assert!(!told.ok && told.counters.seq_gaps > 0, "{what}: {told:#?}");
        }
    };
    is_told(&image.fork(), 40);
    look(&image.fork(), boot, settings, &what);
    let is_vague = is_all_of_before(set);
    written(store, &image, boot, settings, is_vague, &what);
    is_told(&image, 41);
    // And a person who knows of it goes on.
    let journal = open(&image, boot, 60).unwrap();
    journal.accept_gaps("a copy was put back").unwrap();
    let seqs = seqs(&journal);
    let mut once: BTreeMap<u64, u64> = BTreeMap::new();
    for seq in seqs {
        *once.entry(seq).or_default() += 1;
    }
    assert!(once.values().all(|count| *count == 1), "{what}");
    let told = journal.verify().unwrap();
    assert_eq!(told.counters.seq_gaps, 0, "{what}: {told:#?}");
}

#[test]
fn jn_11_every_set_of_files_of_one_older_copy_is_told_and_gives_no_seq_key_or_revision_twice() {
    let store = store(1 << 20, Later::Go);
    let behind = Settings {
        files_first_max: 0,
        ..quick()
    };
    for set in 0..SETS {
        for boot in [1, 2] {
            judge(&store, set, boot, &quick());
        }
        judge(&store, set, 1, &behind);
    }
}

/// A daemon has the store open, has written in it and asked all witnesses, and the files change under it.
#[test]
fn jn_11_what_is_put_back_under_an_open_journal_is_seen_by_its_next_write() {
    let store = store(1 << 20, Later::Go);
    for set in (0..SETS).filter(|set| !is_all_of_before(*set)) {
        let image = store.now.fork();
        let journal = open(&image, 1, 80).unwrap();
        journal.show("plan", "a").unwrap();
        let last = commit(&journal, vec![plan("mine", 1)])[0].seq;
        store.put_back(set, &image);
        let receipt = &commit(&journal, vec![plan("mine", 2)])[0];
        assert!(receipt.seq > last, "{set:b}: {receipt:?}");
        assert!(receipt.entity_rev > Some(1), "{set:b}: {receipt:?}");
        let told = journal.verify().unwrap();
        assert!(!(told.ok && has(set, 0)), "{set:b}");
        assert_eq!(journal.show("plan", "mine").unwrap().payload["n"], 2);
    }
}

/// Of several segments, those that the older copy lacks go or stay; behind a sealed one the loss is in the middle.
#[test]
fn jn_11_every_set_of_files_is_told_also_where_the_journal_was_rolled_since() {
    for later in [Later::Go, Later::Stay] {
        let store = store(1900, later);
        for set in 0..SETS {
            judge(&store, set, 1, &quick());
        }
    }
}

/// B3, B4: no table of requests remembers, and no file. As long as one of the others does, nothing older is shown as the newest, nothing is
/// called not here, and no path is called free; a checkpoint alone is enough.
#[test]
fn jn_11_any_one_that_remembers_is_enough_for_readers() {
    for roll_bytes in [1 << 20, 1900] {
        let store = store_with(roll_bytes, Later::Go, Ids::None);
        let remembers = [1, 2, 3, CHECKPOINT, LOCK];
        for set in (0..SETS).filter(|set| remembers.iter().any(|nth| !has(*set, *nth))) {
            let what = format!("{set:b} put back, rolled at {roll_bytes}");
            let image = store.image(set);
            let told = open(&image.fork(), 1, 40).unwrap().verify().unwrap();
            assert!(!has(set, 0) || !told.ok, "{what}");
            for boot in [1, 2] {
                look(&image.fork(), boot, &quick(), &what);
            }
            // The same behind a writer.
            let writer = open(&image, 1, 41).unwrap();
            commit(&writer, vec![plan("later", 1)]);
            look(&image, 1, &quick(), &format!("{what}, and written in"));
        }
    }
}

/// What is left of a store: its name, its mode and its files, and of `events` what is named.
fn bare(disk: &MemDisk, kept: &[&str]) -> MemDisk {
    let image = disk.fork();
    for file in all_in(&image, "events") {
        let is_kept = kept.iter().any(|name| file == path(name));
        if !is_kept && file != path("events/origin.json") {
            image.remove(&file).unwrap();
        }
    }
    if !kept.contains(&"events/lock") {
        image.remove(&path("events/lock")).unwrap();
    }
    image
}

#[test]
fn jn_11_a_store_of_which_the_name_alone_is_left_tells_it_and_gives_no_seq_again() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    journal.checkpoint().unwrap();
    let mut last = 0;
    // Past where the name says at first that seqs are given.
    for n in 0..12 {
        let batch = (0..4000).map(|_| event(Action::SessionStart, "session", None));
        let committed = journal.mutate(batch.collect()).unwrap();
        last = committed.receipts().last().unwrap().seq.unwrap();
        committed.finish().unwrap();
        if n % 4 == 0 {
            let exact = bare(&disk, &["events/lock"]);
            begins_behind(&exact, last, Some(last + 1));
        }
        begins_behind(&bare(&disk, &[]), last, None);
    }
    assert!(last > 40_000);
}

fn begins_behind(image: &MemDisk, last: u64, next: Option<u64>) {
    let what = format!("behind {last}");
    let reader = open(image, 2, 70).unwrap();
    assert!(!reader.verify().unwrap().ok, "{what}");
    let lost = reader.losses().unwrap();
    assert!(lost[0][0] == 1 && lost[0][1] >= last, "{what}: {lost:?}");
    let writer = open(image, 2, 71).unwrap();
    let seq = commit(&writer, vec![plan("b", 1)])[0].seq;
    assert!(seq > Some(last), "{what}: {seq:?}");
    assert!(next.is_none() || seq == next, "{what}: {seq:?}");
    assert!(!writer.verify().unwrap().ok, "{what}");
    // And once more, before the name was raised on the way.
    let again = bare(image, &[]);
    let writer_again = open(&again, 2, 72).unwrap();
    let next = commit(&writer_again, vec![plan("b", 1)])[0].seq;
    assert!(next > seq, "{what}: {next:?} again");
    writer.accept_gaps("all of it is gone").unwrap();
    assert_eq!(writer.verify().unwrap().counters.seq_gaps, 0, "{what}");
}
