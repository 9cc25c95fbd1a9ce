//! The power is cut at every operation of an import, with every damage: whole chunks or nothing of them, and the
//! same slice again ends where an undisturbed import ends.
#![cfg(test)]

mod support;

use std::collections::BTreeSet;

use heddle_journal::disk::{Crash, Disk, Fault, MemDisk};
use heddle_journal::federation::{ExportAsk, Exported, Renew};
use heddle_journal::{Journal, Settings};
use serde_json::json;
use support::model::{World, rebuilt};
use support::power::*;
use support::*;

const CHUNK: usize = 2;

fn chunked(journal: Journal) -> Journal {
    journal.with_settings(Settings {
        chunk_records: CHUNK,
        ..quick()
    })
}

fn export(journal: &Journal, limit: usize) -> Exported {
    let ask = ExportAsk {
        since: 0,
        limit,
        types: Vec::new(),
        renew: Renew::No,
    };
    journal.export_slice(&ask).unwrap()
}

/// Five records: an update of two, a concurrent edit, a claim, a delete, a large one.
fn foreign() -> Journal {
    let disk = MemDisk::new();
    disk.create_dir(std::path::Path::new("/repo")).unwrap();
    let world = world(std::sync::Arc::new(disk), 1, 40);
    let journal = Journal::init(world, std::path::Path::new(ROOT), who()).unwrap();
    let journal = journal.with_settings(quick());
    commit(&journal, vec![plan("e", 71), plan("x", 1)]);
    commit(
        &journal,
        vec![put("claim", "c", json!({"status": "claimed"}))],
    );
    commit(
        &journal,
        vec![put(
            "plan",
            "big",
            json!({"title": "b", "diff": "d".repeat(70_000)}),
        )],
    );
    commit(&journal, vec![delete("plan", "x")]);
    journal
}

fn stored(journal: &Journal) -> (World, Vec<[u64; 2]>) {
    let replay = journal.rebuild(0).unwrap().replay;
    let newest = replay.federated.newest();
    let name = newest.keys().next().copied().unwrap_or_default();
    let (origin, _) = name.split_once(':').unwrap_or_default();
    let taken = replay.federated.of(origin, 1);
    let ranges = taken.map(|taken| taken.ranges.clone()).unwrap_or_default();
    (rebuilt(journal, 0), ranges)
}

#[test]
fn jn_36_power_cut_at_every_operation_of_an_import() {
    let foreign = foreign();
    let slice = export(&foreign, usize::MAX);
    assert_eq!(slice.records, 5);
    let base = MemDisk::new();
    // This store has its own second revision of the plan: a conflict.
    commit(&init(&base), vec![plan("e", 1)]);
    commit(&init(&base), vec![plan("e", 2), plan("own", 1)]);
    // Its name is on the disk before: it would be another one in every run.
    export(&open(&base, 1, 8).unwrap(), 1);
    // What may be seen: the state after no chunk, one, two, three.
    let mut states: Vec<(World, Vec<[u64; 2]>)> = vec![stored(&open(&base, 1, 9).unwrap())];
    for chunk in 1..=3 {
        let disk = base.fork();
        let part = export(&foreign, CHUNK * chunk);
        let journal = chunked(open(&disk, 1, 9).unwrap());
        journal.import_slice(&part.slice, false).unwrap();
        states.push(stored(&journal));
    }
    let distinct: BTreeSet<String> = states.iter().map(|s| format!("{:?}", s.0)).collect();
    assert_eq!(distinct.len(), 4, "each chunk is seen");
    let mut images = 0;
    let mut stop = 1;
    loop {
        let disk = base.fork();
        disk.fault_at(disk.ops() + stop, Fault::Stop);
        let outcome = chunked(open(&disk, 1, 5).unwrap()).import_slice(&slice.slice, false);
        let skip = usize::from(stop.is_multiple_of(2));
        for how in damages(&disk, stop, false)
            .into_iter()
            .skip(skip)
            .step_by(2)
        {
            let what = format!("stopped at {stop}, {how:?}");
            judge(
                &disk.crash(&how),
                &how,
                &states,
                outcome.is_ok(),
                &slice,
                &what,
            );
            images += 1;
        }
        if !disk.is_stopped() {
            break;
        }
        stop += 1;
    }
    enough(images, IMPORT);
}

fn judge(
    image: &MemDisk,
    how: &Crash,
    states: &[(World, Vec<[u64; 2]>)],
    acknowledged: bool,
    slice: &Exported,
    what: &str,
) {
    let boot = if *how == Crash::Process { 1 } else { 2 };
    let journal = chunked(open(image, boot, 77).unwrap());
    let seen = rebuilt(&journal, 0);
    let whole = &states[3].0;
    let is_possible = if acknowledged {
        seen == *whole
    } else {
        states.iter().any(|(world, _)| *world == seen)
    };
    assert!(is_possible, "{what}: {seen:#?}");
    journal.reconcile().unwrap();
    assert_eq!(projected(image), live(&seen), "{what}: JN-03");
    let told = journal.import_slice(&slice.slice, false);
    let told = told.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(told.applied + told.known + told.lost, 5, "{what}");
    let (world, ranges) = stored(&journal);
    assert_eq!(&world, whole, "{what}");
    assert_eq!(ranges, [slice.seq_range], "{what}");
    let report = journal.verify().unwrap();
    assert!(report.ok, "{what}: {report:#?}");
    assert_eq!(rebuilt(&journal, usize::MAX), world, "{what}: JN-20");
}
