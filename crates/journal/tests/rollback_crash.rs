//! The power is cut at every operation of a rollback to `off`: whoever comes next finds all of the journal or none of it.
#![cfg(test)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heddle_journal::Journal;
use heddle_journal::action::Mode;
use heddle_journal::disk::{Crash, Disk, Fault, MemDisk};
use serde_json::{Value, json};
use support::model::{World, rebuilt};
use support::power::{ROLLBACK, damages, enough, small};
use support::*;

const CONFIG: &str = "/repo/.heddle/journal.json";
const EVENTS: &str = "/repo/.heddle/events";

/// Several segments, a blob, a tombstone.
fn store() -> MemDisk {
    let disk = MemDisk::new();
    let journal = small(init(&disk), 900);
    let big = json!({"title": "x".repeat(70_000)});
    commit(&journal, vec![plan("a", 1), put("plan", "big", big)]);
    for n in 2..8 {
        commit(&journal, vec![plan("a", n), plan("gone", n)]);
    }
    commit(&journal, vec![delete("plan", "gone")]);
    let segments = segments(&disk, EVENTS);
    assert!(segments.len() >= 3, "{:?}", segments.keys());
    disk
}

fn segments(disk: &MemDisk, folder: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let name = |path: &Path| path.strip_prefix(folder).ok().map(Path::to_owned);
    let files = disk.files().into_iter();
    files
        .filter_map(|(path, bytes)| Some((name(&path)?, bytes)))
        .filter(|(name, _)| name.to_string_lossy().starts_with("seg-"))
        .collect()
}

fn documents(world: &World) -> BTreeMap<String, Value> {
    let live = world.iter();
    live.filter_map(|((_, id), (_, document))| Some((id.clone(), document.clone()?)))
        .collect()
}

/// All segments of before are parked, whole, and nothing is left but the lock.
fn parked_whole(image: &MemDisk, before: &BTreeMap<PathBuf, Vec<u8>>, what: &str) {
    let files = image.files();
    let left: Vec<&PathBuf> = files.keys().filter(|p| p.starts_with(EVENTS)).collect();
    assert!(
        left.iter().all(|path| path.ends_with("lock")),
        "{what}: {left:?}"
    );
    let folder = files.keys().find_map(|path| {
        let above = path.ancestors().find(|a| {
            let name = a.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with("-rolled-back")
        });
        above.map(|above| above.join("events"))
    });
    let folder = folder.unwrap_or_else(|| panic!("{what}: nothing is parked"));
    let parked = segments(image, folder.to_str().unwrap());
    for (name, bytes) in before {
        let is_whole = parked.get(name).is_some_and(|now| now.starts_with(bytes));
        assert!(is_whole, "{what}: {}", name.display());
    }
    let has_blob = files.keys().any(|p| p.starts_with(folder.join("blobs")));
    assert!(has_blob, "{what}: the blob");
}

fn whole_again(image: &MemDisk, boot: u128, seed: u64, expected: &World, what: &str) {
    let journal = open(image, boot, seed).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(&rebuilt(&journal, 0), expected, "{what}");
    let told = commit(&journal, vec![plan("a", 50)]);
    let rev = expected[&("plan".into(), "a".into())].0;
    assert_eq!(told[0].entity_rev, Some(rev + 1), "{what}");
    let report = journal.verify().unwrap();
    assert!(report.ok, "{what}: {report:#?}");
}

struct Before {
    segments: BTreeMap<PathBuf, Vec<u8>>,
    world: World,
    mode: Vec<u8>,
}

impl Before {
    fn of(base: &MemDisk) -> Self {
        Self {
            segments: segments(base, EVENTS),
            world: rebuilt(&open(base, 1, 2).unwrap(), 0),
            mode: base.files()[Path::new(CONFIG)].clone(),
        }
    }
}

/// What the next command finds, whichever it is.
fn judge(image: &MemDisk, boot: u128, base: &Before, is_in_full: bool, what: &str) {
    let Before {
        segments: before,
        world: expected,
        mode,
    } = base;
    // Git brings the mode of before back in the middle of it.
    let back = image.fork();
    back.write(Path::new(CONFIG), mode).unwrap();
    let is_parked = open(image, boot, 20).unwrap().mode() == Mode::Off;
    let was_ended = !image.files().keys().any(|p| p.ends_with("parking.json"));
    assert!(was_ended, "{what}");
    if is_parked {
        parked_whole(image, before, what);
    } else {
        whole_again(&image.fork(), boot, 21, expected, what);
    }
    if !is_in_full {
        return;
    }
    if back.files().keys().any(|p| p.ends_with("parking.json")) {
        whole_again(&back, boot, 22, expected, &format!("{what}, put back"));
    }
    let world = world(Arc::new(image.clone()), boot, 23);
    let told = Journal::migrate(world, Path::new(ROOT), who(), None, Mode::Primary, false);
    told.unwrap_or_else(|error| panic!("{what}: {error}"));
    let journal = open(image, boot, 24).unwrap();
    assert_eq!(
        documents(&rebuilt(&journal, 0)),
        documents(expected),
        "{what}"
    );
    assert!(journal.show("plan", "big").is_ok(), "{what}");
    let report = journal.verify().unwrap();
    assert!(report.ok, "{what}: {report:#?}");
}

#[test]
fn jn_35_power_cut_at_every_operation_of_a_rollback_to_off() {
    let base = store();
    let before = Before::of(&base);
    let mut images = 0;
    let mut stop = 1;
    loop {
        let disk = base.fork();
        disk.fault_at(disk.ops() + stop, Fault::Stop);
        let outcome = open(&disk, 1, 7).unwrap().roll_back(Mode::Off);
        for how in damages(&disk, stop, false) {
            let what = format!("stopped at {stop}, {how:?}");
            let boot = if how == Crash::Process { 1 } else { 2 };
            let image = disk.crash(&how);
            if outcome.is_ok() {
                assert_eq!(open(&image, boot, 8).unwrap().mode(), Mode::Off, "{what}");
            }
            let is_in_full = boot == 1 || images % 5 == 0;
            judge(&image, boot, &before, is_in_full, &what);
            images += 1;
        }
        if !disk.is_stopped() {
            break;
        }
        stop += 1;
    }
    enough(images, ROLLBACK);
}

/// The same of whoever ends it: forward, and back.
#[test]
fn jn_35_power_cut_at_every_operation_of_whoever_ends_a_rollback() {
    let base = store();
    let before = Before::of(&base);
    let renames = |disk: &MemDisk| {
        let parked = disk.files().into_keys();
        let parked = parked.filter(|path| path.to_string_lossy().contains("-rolled-back/"));
        parked.count()
    };
    // A cut in the middle of the moves.
    let half = (1..).find_map(|stop| {
        let disk = base.fork();
        disk.fault_at(disk.ops() + stop, Fault::Stop);
        let outcome = open(&disk, 1, 7).unwrap().roll_back(Mode::Off);
        outcome.expect_err("cut before");
        (renames(&disk) == 3).then(|| disk.crash(&Crash::Process))
    });
    let half = half.unwrap();
    for is_back in [false, true] {
        let mut stop = 1;
        loop {
            let disk = half.fork();
            if is_back {
                disk.write(Path::new(CONFIG), &before.mode).unwrap();
                disk.sync(Path::new(CONFIG)).unwrap();
            }
            disk.fault_at(disk.ops() + stop, Fault::Stop);
            let _ = open(&disk, 1, 9);
            for (number, how) in damages(&disk, stop, false).into_iter().enumerate() {
                let what = format!("back: {is_back}, stopped at {stop}, {how:?}");
                let boot = if how == Crash::Process { 1 } else { 2 };
                judge(&disk.crash(&how), boot, &before, number % 5 == 0, &what);
            }
            if !disk.is_stopped() {
                break;
            }
            stop += 1;
        }
    }
}

/// A process that has the store open all the while neither writes into the rest of a journal nor into one that is off.
#[test]
fn jn_35_who_has_the_store_open_ends_a_rollback_that_was_cut_before_it_writes() {
    let base = store();
    let mut stop = 1;
    loop {
        let disk = base.fork();
        disk.fault_at(disk.ops() + stop, Fault::Stop);
        let outcome = open(&disk, 1, 7).unwrap().roll_back(Mode::Off);
        // Opened before; the disk goes on with the process of before.
        let image = disk.crash(&Crash::Process);
        let config = image.files()[Path::new(CONFIG)].clone();
        let other = base.fork();
        let long = open(&other, 1, 8).unwrap();
        for (path, _) in other.files() {
            other.remove(&path).unwrap();
        }
        for (path, bytes) in image.files() {
            other.create_dir(path.parent().unwrap()).unwrap();
            other.write(&path, &bytes).unwrap();
        }
        let told = long.mutate_whole(vec![plan("late", 1)]);
        let is_off = String::from_utf8_lossy(&config).contains("off");
        assert_eq!(told.is_err(), is_off, "stopped at {stop}: {told:?}");
        let parked = segments(&other, EVENTS).is_empty();
        assert_eq!(parked, is_off, "stopped at {stop}");
        if outcome.is_ok() {
            break;
        }
        stop += 1;
    }
}
