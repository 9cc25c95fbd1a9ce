//! The power is cut after every operation of a scenario, with every damage; a model judges what is left.

use std::collections::BTreeMap;
use std::path::Path;

use heddle_journal::disk::{Crash, Fault, MemDisk};
use heddle_journal::{Change, Journal, JournalError, Settings, Target};
use serde_json::{Value, json};

use super::model::{Model, World, rebuilt};
use super::*;

/// How many images each suite judges at least; together what a CI run owes (TESTING §7).
pub const APPEND: usize = 3_500;
pub const BATCHES: usize = 9_000;
pub const ROLL: usize = 3_000;
pub const CHECKPOINT: usize = 1_300;
pub const GC: usize = 1_000;
pub const RECOVERY: usize = 1_300;
pub const FLIPS: usize = 5_000;
pub const GENESIS: usize = 2_000;
pub const REDACT: usize = 400;
pub const REDACT_BLOB: usize = 400;
pub const IMPORT: usize = 1_000;
pub const ROOM: usize = 2_500;
pub const ROOM_ELSE: usize = 600;
pub const BEHIND: usize = 1_500;
pub const ROLLBACK: usize = 1_500;
const _: () = assert!(
    APPEND
        + BATCHES
        + ROLL
        + CHECKPOINT
        + GC
        + RECOVERY
        + FLIPS
        + GENESIS
        + REDACT
        + REDACT_BLOB
        + IMPORT
        + ROOM
        + ROOM_ELSE
        + BEHIND
        + ROLLBACK
        >= 20_000
);

#[track_caller]
pub fn enough(images: usize, owed: usize) {
    assert!(images >= owed, "only {images} images of {owed}");
}

/// What a scenario does, one acknowledged step after the other.
pub enum Step {
    Mutate(Vec<Change>),
    Checkpoint,
    Gc,
    /// The content of an item goes; recovery finishes what was begun.
    Redact(&'static str, &'static str),
}

pub fn small(journal: Journal, roll_bytes: u64) -> Journal {
    journal.with_settings(Settings {
        roll_bytes,
        ..quick()
    })
}

/// Runs the steps until the machine stops; the model knows what was acknowledged.
pub fn run(journal: &Journal, steps: &[Step], model: &mut Model) {
    for step in steps {
        let done = match step {
            Step::Mutate(changes) => {
                model.try_it(changes);
                match journal.mutate(changes.clone()) {
                    Ok(committed) => {
                        model.acknowledge();
                        committed.finish()
                    }
                    Err(error) => Err(error),
                }
            }
            Step::Checkpoint => journal.checkpoint().map(drop),
            Step::Gc => journal.gc().map(drop),
            Step::Redact(item_type, item_id) => {
                model.try_erase(item_type, item_id);
                let target = item(item_type, item_id);
                let done = journal.redact(&target, "asked for").map(drop);
                if done.is_ok() {
                    model.acknowledge();
                }
                done
            }
        };
        if done.is_err() {
            return;
        }
    }
}

pub fn damages(disk: &MemDisk, seed: u64, cut_everywhere: bool) -> Vec<Crash> {
    let mut all = vec![
        Crash::Process,
        Crash::LoseAll,
        Crash::LoseData,
        Crash::LoseNames,
    ];
    let length = disk.last_append_bytes();
    let stride = if cut_everywhere { 1 } else { length / 24 + 1 };
    all.extend((0..=length).step_by(stride).map(Crash::CutLastAppend));
    for sector_bytes in [512, 4096] {
        let sectors = (length as u64).div_ceil(sector_bytes) + 1;
        all.extend((0..sectors.min(6)).map(|index| Crash::Hole {
            sector_bytes,
            index,
        }));
    }
    all.extend((0..48).map(|n| Crash::Random(seed * 64 + n)));
    all
}

/// The judge of one image. `what` says how to come back here. Every fifth image is judged in full.
pub fn judge(image: &MemDisk, model: &Model, how: &Crash, number: usize, what: &str) {
    let what = &format!("{what}, {how:?}");
    // A process that died leaves the machine as it was.
    let boot = if *how == Crash::Process { 1 } else { 2 };
    let observer = open(image, boot, 77).unwrap_or_else(|error| panic!("{what}: {error}"));
    let seen = rebuilt(&observer, 0);
    let is_possible = seen == model.acknowledged || model.in_flight.as_ref() == Some(&seen);
    assert!(
        is_possible,
        "{what}: {seen:#?} is neither {:#?} nor {:#?}",
        model.acknowledged, model.in_flight
    );
    judge_observed(&observer, model, &seen, what);
    // The next writer: recovers, notes, repairs, reconciles.
    let writer = open(image, boot, 78).unwrap();
    writer
        .reconcile()
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let seen = if model.finishes {
        // What was begun is finished, and what was finished stays so.
        let now = rebuilt(&writer, 0);
        assert!(
            now == seen || model.in_flight.as_ref() == Some(&now),
            "{what}"
        );
        now
    } else {
        seen
    };
    assert_eq!(projected(image), live(&seen), "{what}: JN-03, JN-04, JN-06");
    if number.is_multiple_of(5) {
        judge_in_full(&writer, &seen, what);
    }
}

/// Before anybody has put anything right, and while nobody may: what a look shows is the newest, or says that it is stale
/// and was true once. An empty or half file is never taken for a document, an index that lost a name never for an answer.
fn judge_observed(observer: &Journal, model: &Model, seen: &World, what: &str) {
    for (key, newest) in seen {
        match observer.observe(&key.0, &key.1) {
            Ok(shown) => {
                let image = (shown.entity_rev, Some(shown.payload));
                let is_right = if shown.stale {
                    model
                        .images
                        .get(key)
                        .is_some_and(|all| all.contains(&image))
                } else {
                    *newest == image
                };
                assert!(
                    is_right || model.finishes,
                    "{what}: {key:?} shown as {image:?}"
                );
            }
            Err(JournalError::NotFound { .. }) => {
                let is_right = newest.1.is_none() || model.finishes;
                assert!(is_right, "{what}: {key:?} shown as absent");
            }
            // Said, and nothing shown.
            Err(_) => {}
        }
    }
}

pub fn judge_in_full(writer: &Journal, seen: &World, what: &str) {
    assert_eq!(
        &rebuilt(writer, 0),
        seen,
        "{what}: JN-09, recovery changed what counts"
    );
    let report = writer.verify().unwrap();
    assert!(report.ok, "{what}: {report:#?}");
    let receipt = &commit(writer, vec![plan("after", 1)])[0];
    let head = seen
        .get(&("plan".into(), "after".into()))
        .map_or(0, |(rev, _)| *rev);
    assert_eq!(receipt.entity_rev, Some(head + 1), "{what}");
    let report = writer.verify().unwrap();
    assert!(report.ok, "{what}: {report:#?}");
    // JN-20: where a rebuild begins does not matter.
    let whole = rebuilt(writer, 0);
    assert_eq!(rebuilt(writer, 1), whole, "{what}: second newest");
    assert_eq!(rebuilt(writer, usize::MAX), whole, "{what}: genesis");
    assert_eq!(writer.show("plan", "after").unwrap().entity_rev, head + 1);
}

/// The projections as they lie on the disk, read by nobody's code but this.
pub fn projected(disk: &MemDisk) -> BTreeMap<String, Value> {
    let inside = |path: &Path| {
        path.strip_prefix("/repo/.heddle/entities")
            .ok()
            .map(|p| p.display().to_string())
    };
    let files = disk
        .files()
        .into_iter()
        .filter_map(|(path, bytes)| Some((inside(&path)?, bytes)));
    let documents = files.filter(|(name, _)| !name.contains("/."));
    documents
        .map(|(name, bytes)| (name, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
        .collect()
}

pub fn live(world: &World) -> BTreeMap<String, Value> {
    let alive = world
        .iter()
        .filter_map(|((t, id), (_, document))| Some((format!("{t}/{id}.json"), document.clone()?)));
    alive.collect()
}

/// Every crash point of the steps, every damage; the number of images.
pub fn enumerate(prepare: &[Step], steps: &[Step], roll_bytes: u64, cut_everywhere: bool) -> usize {
    let settings = Settings {
        roll_bytes,
        ..quick()
    };
    enumerate_with(&settings, prepare, steps, cut_everywhere)
}

/// The same of a writer with these settings; who judges has the usual ones.
pub fn enumerate_with(
    settings: &Settings,
    prepare: &[Step],
    steps: &[Step],
    cut_everywhere: bool,
) -> usize {
    let base = MemDisk::new();
    let mut prepared = Model::default();
    let first = init(&base).with_settings(settings.clone());
    run(&first, prepare, &mut prepared);
    let mut images = 0;
    let mut stop = 1;
    loop {
        let disk = base.fork();
        let before = disk.ops();
        disk.fault_at(before + stop, Fault::Stop);
        let mut model = prepared.clone();
        let journal = open(&disk, 1, 5).unwrap();
        run(&journal.with_settings(settings.clone()), steps, &mut model);
        for how in damages(&disk, stop, cut_everywhere) {
            judge(
                &disk.crash(&how),
                &model,
                &how,
                images,
                &format!("stopped at {stop}"),
            );
            images += 1;
        }
        if !disk.is_stopped() {
            return images;
        }
        stop += 1;
    }
}

pub fn item(item_type: &str, item_id: &str) -> Target {
    Target::Item {
        item_type: Some(item_type.to_owned()),
        item_id: item_id.to_owned(),
    }
}

pub fn some() -> Vec<Step> {
    vec![
        Step::Mutate(vec![plan("a", 1), plan("b", 1)]),
        Step::Mutate(vec![put("claim", "c", json!({"status": "claimed"}))]),
        Step::Mutate(vec![plan("a", 2)]),
    ]
}
