//! Segment, caches, files and lock, each as it is, of before, or gone: in every combination no path that is held is called free, by a
//! reader or by the writer that takes it, and nothing that was erased is shown again.
#![cfg(test)]

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use heddle_journal::disk::{Disk, MemDisk};
use heddle_journal::{Glob, Journal, Reserved, Settings};
use serde_json::json;
use support::power::item;
use support::*;

const CANARY: &str = "CANARY-7f3a9c-tel-4915112345678";

fn path(name: &str) -> PathBuf {
    Path::new(ROOT).join(name)
}

fn ask(journal: &Journal, glob: &str) -> Result<Reserved, heddle_journal::JournalError> {
    journal.reserve(&Glob::parse(glob).unwrap(), Duration::from_secs(3600))
}

/// What may be put back or taken away by itself.
const PARTS: [&str; 6] = [
    "seg-",
    "meta.json",
    "revisions.idx",
    "lock",
    "reserved.json",
    "entities",
];
const SEGMENT: usize = 0;
const ENTITIES: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Now,
    Before,
    Gone,
}

type Set = [State; PARTS.len()];

fn is_of(file: &Path, part: usize) -> bool {
    match part {
        ENTITIES => file.starts_with(path("entities")),
        _ => {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            file.parent() == Some(&path("events")) && name.starts_with(PARTS[part])
        }
    }
}

/// All but those without a segment, or with a lock that nobody ever held.
fn sets() -> Vec<Set> {
    let states = [State::Now, State::Before, State::Gone];
    let all = (0..3_usize.pow(6)).map(|nth| {
        let state = |part: u32| states[nth / 3_usize.pow(part) % 3];
        [0, 1, 2, 3, 4, 5].map(state)
    });
    let is_asked = |set: &Set| set[SEGMENT] != State::Gone && set[3] != State::Gone;
    all.filter(is_asked).collect()
}

fn image(now: &MemDisk, before: &MemDisk, set: Set) -> MemDisk {
    let image = now.fork();
    let old = before.files();
    for (part, state) in set.iter().enumerate().filter(|(_, it)| **it != State::Now) {
        let files = now.files().into_keys().filter(|file| is_of(file, part));
        for file in files.filter(|file| *state == State::Gone || !old.contains_key(file)) {
            image.remove(&file).unwrap();
        }
        let back = old
            .iter()
            .filter(|(file, _)| is_of(file, part) && *state == State::Before);
        for (file, bytes) in back {
            image.write(file, bytes).unwrap();
        }
    }
    image
}

fn named(set: Set, boot: u128) -> String {
    let parts = PARTS
        .iter()
        .zip(set)
        .filter(|(_, state)| *state != State::Now);
    let parts: Vec<String> = parts
        .map(|(name, state)| format!("{name} {state:?}"))
        .collect();
    format!("{}, boot {boot}", parts.join(", "))
}

/// Nothing but files that git might have brought is of now.
fn is_all_of_before(set: Set) -> bool {
    set[..ENTITIES].iter().all(|state| *state != State::Now)
}

fn settings() -> [(u128, Settings); 3] {
    let behind = Settings {
        files_first_max: 0,
        ..quick()
    };
    [(1, quick()), (2, quick()), (1, behind)]
}

fn held(tail: u64) -> (MemDisk, MemDisk) {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    ask(&journal, "src/**").unwrap();
    drop(journal);
    let before = disk.fork();
    let journal = open(&disk, 1, 2).unwrap();
    if tail > 0 {
        commit(&journal, vec![plan("a", 2)]);
        journal.release(&Glob::parse("src/**").unwrap()).unwrap();
    }
    ask(&journal, "lib/**").unwrap();
    for n in 0..tail {
        commit(&journal, vec![plan("a", 3 + n)]);
    }
    drop(journal);
    (disk, before)
}

/// JN-33, J3: the list of before, claim files of before, and caches that know of neither.
#[test]
fn jn_33_no_file_of_before_gives_away_a_path_that_the_journal_has_as_held() {
    for tail in [0, 2] {
        let (now, before) = held(tail);
        for set in sets().into_iter().filter(|set| !is_all_of_before(*set)) {
            for (boot, settings) in settings() {
                let what = format!("{tail} behind: {}", named(set, boot));
                let image = image(&now, &before, set);
                let is_here = set[SEGMENT] == State::Now;
                let look = |image: &MemDisk, what: &str| {
                    let told = as_bob(image, boot, &settings).blocked(&["lib/x".to_owned()]);
                    let is_free = told.as_ref().is_ok_and(Vec::is_empty);
                    assert!(!is_free, "{what}: the guard calls it free");
                    assert!(!is_here || told.is_ok(), "{what}: {told:?}");
                };
                look(&image.fork(), &what);
                let bob = as_bob(&image, boot, &settings);
                for round in ["at once", "again", "behind a record"] {
                    let told = ask(&bob, "lib/x");
                    let is_given = matches!(told, Ok(Reserved::Granted(_)));
                    assert!(!is_given, "{what}: given away {round}");
                    assert!(!is_here || told.is_ok(), "{what}: {told:?}");
                    if round == "again" {
                        commit(&bob, vec![plan("later", 1)]);
                    }
                }
                look(&image, &what);
                if is_here && tail > 0 {
                    let told = ask(&bob, "src/x");
                    let is_given = matches!(told, Ok(Reserved::Granted(_)));
                    assert!(is_given, "{what}: {told:?}");
                    // A checkout that takes its files away frees nothing, whatever was put back before.
                    for file in image.files().into_keys() {
                        if is_of(&file, ENTITIES) {
                            image.remove(&file).unwrap();
                        }
                    }
                    look(&image, &format!("{what}, files gone"));
                }
            }
        }
    }
}

/// RD-06: caches and files of before the redaction, beside the segment that was erased.
#[test]
fn rd_06_no_cache_or_file_of_before_shows_what_was_erased() {
    for tail in [0, 2] {
        let disk = MemDisk::new();
        let journal = init(&disk);
        commit(&journal, vec![plan("a", 1)]);
        let secret = put("plan", "sec", json!({"title": CANARY}));
        commit(&journal, vec![secret]);
        let before = disk.fork();
        journal.redact(&item("plan", "sec"), "asked for").unwrap();
        for n in 0..tail {
            commit(&journal, vec![plan("a", 2 + n)]);
        }
        drop(journal);
        let sets = sets().into_iter().filter(|set| set[SEGMENT] == State::Now);
        for set in sets {
            for (boot, settings) in settings() {
                let what = format!("{tail} behind: {}", named(set, boot));
                let image = image(&disk, &before, set);
                let look = |image: &MemDisk, when: &str| {
                    let told = as_bob(image, boot, &settings).show("plan", "sec");
                    let is_shown = format!("{told:?}").contains(CANARY);
                    assert!(!is_shown, "{what}: shown {when}: {told:?}");
                };
                let busy = image.fork();
                let guard = busy.try_lock(&path("events/lock")).unwrap();
                look(&busy, "while somebody writes");
                drop(guard);
                look(&image.fork(), "at once");
                let bob = as_bob(&image, boot, &settings);
                commit(&bob, vec![plan("later", 1)]);
                look(&image, "behind a record");
                commit(&bob, vec![plan("sec", 7)]);
                assert_eq!(bob.show("plan", "sec").unwrap().payload["n"], 7, "{what}");
            }
        }
    }
}
