//! Migration: genesis from entity files, the marker last, a copy at every flip, and the way back.
#![cfg(test)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heddle_journal::action::{Action, Mode};
use heddle_journal::disk::{Crash, Disk, Fault, MemDisk};
use heddle_journal::{Change, Journal, JournalError, Migrated};
use serde_json::{Value, json};
use support::model::rebuilt;
use support::power::{GENESIS, damages, enough};
use support::*;

const OLD: &str = "/repo/.brainclaw";

fn plant(disk: &MemDisk, name: &str, text: &str) {
    let path = Path::new("/repo").join(name);
    disk.create_dir(path.parent().unwrap()).unwrap();
    disk.write(&path, text.as_bytes()).unwrap();
}

/// A store of the older kind: plural folders, a log without payloads, files of other kinds.
fn old_store() -> MemDisk {
    let disk = MemDisk::new();
    for n in 0..3 {
        let plan = json!({"title": format!("plan {n}"), "id": format!("pln_{n}")});
        plant(
            &disk,
            &format!(".brainclaw/plans/pln_{n}.json"),
            &plan.to_string(),
        );
    }
    plant(
        &disk,
        ".brainclaw/claims/clm_1.json",
        r#"{"status":"claimed"}"#,
    );
    plant(&disk, ".brainclaw/handoffs/compacted.jsonl", "{}\n");
    plant(
        &disk,
        ".brainclaw/events.jsonl",
        "{\"action\":\"create\"}\n{}\n",
    );
    plant(&disk, ".brainclaw/project.yaml", "name: x");
    disk.sync_all(Path::new("/")).unwrap();
    disk
}

fn migrate(disk: &MemDisk, boot: u128, seed: u64, to: Mode) -> Result<Migrated, JournalError> {
    let world = world(Arc::new(disk.clone()), boot, seed);
    let source = disk.list(Path::new(OLD)).unwrap();
    let source = (!source.is_empty()).then_some(Path::new(OLD));
    Journal::migrate(world, Path::new(ROOT), who(), source, to, false)
}

fn below(disk: &MemDisk, folder: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = disk.files();
    files.retain(|path, _| path.starts_with(folder));
    files
}

fn genesis_notes(journal: &Journal) -> usize {
    let log = journal.log(0, usize::MAX).unwrap();
    let notes = log.iter();
    let notes = notes.filter(|line| line.get().contains("\"kind\":\"genesis\""));
    notes.count()
}

#[test]
fn jn_35_c28_genesis_is_one_backfill_an_entity_at_revision_1_and_the_marker_last() {
    let disk = old_store();
    let before = below(&disk, OLD);
    let told = migrate(&disk, 1, 1, Mode::Dual).unwrap();
    assert_eq!(
        (told.backfilled, told.entities, told.events_parked),
        (4, 4, 2)
    );
    assert_eq!(below(&disk, OLD), before, "the old store is not touched");
    let journal = open(&disk, 1, 2).unwrap();
    assert_eq!(journal.mode(), Mode::Dual);
    assert_eq!(
        actions(&journal),
        [
            "backfill",
            "backfill",
            "backfill",
            "backfill",
            "journal_note"
        ]
    );
    for n in 0..3 {
        let shown = journal.show("plan", &format!("pln_{n}")).unwrap();
        assert_eq!(
            (shown.entity_rev, &shown.payload["title"]),
            (1, &json!(format!("plan {n}")))
        );
    }
    let parked = disk.files()[&journal.layout().parked_log()].clone();
    assert_eq!(parked, before[Path::new("/repo/.brainclaw/events.jsonl")]);
    assert!(journal.verify().unwrap().ok);
    // A second run changes nothing.
    let again = migrate(&disk, 1, 3, Mode::Dual).unwrap();
    assert_eq!((again.backfilled, again.backup), (0, None));
    assert_eq!(genesis_notes(&journal), 1);
}

/// As its later versions lie: folders of types inside of `memory` and `coordination`.
#[test]
fn a_store_whose_folders_of_types_lie_in_others_is_migrated_whole() {
    let disk = MemDisk::new();
    let doc = |id: &str| json!({"id": id, "title": id, "status": "open"}).to_string();
    for name in [
        "memory/decisions/dec_1",
        "memory/traps/trp_1",
        "coordination/plans/pln_1",
        "coordination/plans/2026/06/pln_2",
        "coordination/claims/clm_1",
        "deep/er/still/constraints/cst_1",
    ] {
        let id = name.rsplit('/').next().unwrap();
        plant(&disk, &format!(".brainclaw/{name}.json"), &doc(id));
    }
    // Not of the present, not of a type, not an entity: none is taken for one, and all are told.
    for name in [
        "archive/plans/pln_9",
        "coordination/plans/archive/pln_8",
        "events/checkpoints/ckpt-1",
        "sessions/ses_1",
        "memory/.cache/x",
    ] {
        let id = name.rsplit('/').next().unwrap();
        plant(&disk, &format!(".brainclaw/{name}.json"), &doc(id));
    }
    plant(&disk, ".brainclaw/config.json", "{}");
    plant(&disk, ".brainclaw/coordination/loops/lop_1/turn.json", "{}");
    plant(&disk, ".brainclaw/project.md", "# words");
    plant(
        &disk,
        ".brainclaw/coordination/handoffs/compacted.jsonl",
        "{}\n",
    );
    let told = migrate(&disk, 1, 1, Mode::Dual).unwrap();
    assert_eq!((told.backfilled, told.entities), (6, 6), "{told:?}");
    assert_eq!(
        told.ignored,
        [
            "/repo/.brainclaw/config.json",
            "/repo/.brainclaw/coordination/handoffs/compacted.jsonl",
            "/repo/.brainclaw/coordination/loops/lop_1/turn.json",
            "/repo/.brainclaw/project.md",
        ]
    );
    assert_eq!(
        told.passed_over,
        [
            "/repo/.brainclaw/archive (1 files)",
            "/repo/.brainclaw/coordination/plans/archive (1 files)",
            "/repo/.brainclaw/events (1 files)",
            "/repo/.brainclaw/sessions (1 files)",
        ]
    );
    let journal = open(&disk, 1, 2).unwrap();
    for (item_type, id) in [
        ("decision", "dec_1"),
        ("trap", "trp_1"),
        ("plan", "pln_1"),
        ("plan", "pln_2"),
        ("claim", "clm_1"),
        ("constraint", "cst_1"),
    ] {
        assert_eq!(journal.show(item_type, id).unwrap().payload["id"], id);
    }
    assert!(journal.verify().unwrap().ok);
}

/// Pending candidates lie in the inbox itself, those that were decided and the messages of agents below it.
#[test]
fn the_inbox_of_an_older_store_holds_candidates_and_the_rest_of_it_is_told() {
    let disk = MemDisk::new();
    for inbox in ["coordination/inbox", "inbox"] {
        let disk = disk.fork();
        let doc = |id: &str| json!({"id": id, "text": "t", "status": "pending"}).to_string();
        for name in ["cnd_1", "accepted/cnd_2", "ada/msg_1", "ada/msg_2"] {
            let id = name.rsplit('/').next().unwrap();
            plant(&disk, &format!(".brainclaw/{inbox}/{name}.json"), &doc(id));
        }
        plant(&disk, &format!(".brainclaw/{inbox}/odd.json"), "{}");
        let told = migrate(&disk, 1, 1, Mode::Dual).unwrap();
        assert_eq!((told.backfilled, told.entities), (1, 1), "{told:?}");
        let at = |name: &str| format!("/repo/.brainclaw/{inbox}/{name}");
        assert_eq!(told.ignored, [at("odd.json")]);
        let passed = [at("accepted (1 files)"), at("ada (2 files)")];
        assert_eq!(told.passed_over, passed);
        let journal = open(&disk, 1, 2).unwrap();
        assert_eq!(journal.show("candidate", "cnd_1").unwrap().entity_rev, 1);
        assert!(journal.verify().unwrap().ok);
    }
}

#[test]
fn two_files_of_one_entity_that_differ_stop_the_migration_and_equal_ones_are_one() {
    let disk = MemDisk::new();
    plant(&disk, ".brainclaw/plans/pln_1.json", r#"{"title":"one"}"#);
    plant(
        &disk,
        ".brainclaw/coordination/plans/pln_1.json",
        r#"{"title":"one"}"#,
    );
    let same = migrate(&disk.fork(), 1, 1, Mode::Dual).unwrap();
    assert_eq!(same.entities, 1);
    plant(
        &disk,
        ".brainclaw/coordination/plans/pln_1.json",
        r#"{"title":"two"}"#,
    );
    let error = migrate(&disk, 1, 1, Mode::Dual).unwrap_err().to_string();
    assert!(
        error.contains("pln_1") && error.contains("differs"),
        "{error}"
    );
}

#[test]
fn a_folder_in_which_no_entity_is_found_is_not_called_migrated() {
    let disk = MemDisk::new();
    plant(&disk, ".brainclaw/pläne/pln_1.json", r#"{"title":"x"}"#);
    let error = migrate(&disk, 1, 1, Mode::Dual).unwrap_err().to_string();
    assert!(
        error.contains("pln_1.json") && error.contains("plans/"),
        "{error}"
    );
    assert_eq!(below(&disk, ROOT), BTreeMap::new());
    let world = world(Arc::new(disk.clone()), 1, 3);
    let begun = Journal::migrate(
        world,
        Path::new(ROOT),
        who(),
        Some(Path::new(OLD)),
        Mode::Dual,
        true,
    );
    assert_eq!(begun.unwrap().ignored.len(), 1);
}

#[test]
fn a_file_that_is_no_entity_stops_the_migration_until_it_is_left_out_by_name() {
    let disk = old_store();
    plant(&disk, ".brainclaw/plans/pln_9.json", "{ torn");
    let error = migrate(&disk, 1, 1, Mode::Dual).unwrap_err();
    assert!(error.to_string().contains("pln_9.json"), "{error}");
    // "Nothing was written", not even that a journal is here.
    assert_eq!(below(&disk, ROOT), BTreeMap::new());
    let world = world(Arc::new(disk.clone()), 1, 3);
    let told = Journal::migrate(
        world,
        Path::new(ROOT),
        who(),
        Some(Path::new(OLD)),
        Mode::Dual,
        true,
    );
    let told = told.unwrap();
    assert_eq!((told.backfilled, told.left_out.len()), (4, 1));
}

#[test]
fn jn_35_every_flip_keeps_a_copy_and_the_way_back_changes_no_projection() {
    let disk = old_store();
    migrate(&disk, 1, 1, Mode::Dual).unwrap();
    commit(
        &open(&disk, 1, 2).unwrap(),
        vec![plan("new", 1), delete("plan", "pln_0")],
    );
    for (seed, mode) in [(3, Mode::Primary), (4, Mode::RegistryPrimary)] {
        let told = migrate(&disk, 1, seed, mode).unwrap();
        assert_eq!((told.mode, told.backfilled), (mode, 0));
        let copy = told.backup.unwrap();
        assert!(disk.files().contains_key(&copy.join("backup.json")));
        assert!(
            disk.files()
                .contains_key(&copy.join("entities/plan/new.json"))
        );
        assert!(open(&disk, 1, 20).unwrap().verify().unwrap().ok);
    }
    let entities = below(&disk, "/repo/.heddle/entities");
    let told = open(&disk, 1, 5).unwrap().roll_back(Mode::Dual).unwrap();
    assert_eq!((told.from, told.mode), (Mode::RegistryPrimary, Mode::Dual));
    open(&disk, 1, 6).unwrap().roll_back(Mode::Off).unwrap();
    assert_eq!(
        below(&disk, "/repo/.heddle/entities"),
        entities,
        "byte for byte"
    );
    let off = open(&disk, 1, 7).unwrap();
    let left = below(&disk, "/repo/.heddle/events");
    assert!(left.keys().all(|path| path.ends_with("lock")), "{left:?}");
    let error = off.mutate(vec![plan("x", 1)]).err().unwrap();
    assert!(
        error.to_string().contains("heddle journal migrate"),
        "{error}"
    );
    // And forward again, from its own projections.
    std::mem::drop(off);
    let world = world(Arc::new(disk.clone()), 1, 8);
    let told = Journal::migrate(world, Path::new(ROOT), who(), None, Mode::Primary, false).unwrap();
    assert_eq!(told.backfilled, 4);
    assert_eq!(below(&disk, "/repo/.heddle/entities"), entities);
}

#[test]
fn old_records_of_the_registry_stay_valid_when_it_becomes_primary() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(
        &journal,
        vec![event(Action::RunRunning, "agent_run", Some("r1"))],
    );
    migrate(&disk, 1, 2, Mode::RegistryPrimary).unwrap();
    let strict = open(&disk, 1, 3).unwrap();
    assert!(strict.verify().unwrap().ok);
    let bare = event(Action::RunRunning, "agent_run", Some("r1"));
    assert!(
        strict.mutate(vec![bare]).is_err(),
        "what is written now must be whole"
    );
    let whole = Change {
        document: Some(json!({"status": "running"})),
        ..event(Action::RunRunning, "agent_run", Some("r1"))
    };
    commit(&strict, vec![whole]);
    assert!(strict.verify().unwrap().ok);
}

/// C28: the power is cut at every operation of a genesis; it never looks finished when it is not.
#[test]
fn c28_power_cut_at_every_operation_of_a_genesis() {
    let base = old_store();
    let expected: BTreeMap<(String, String), Value> = {
        let whole = base.fork();
        migrate(&whole, 1, 5, Mode::Dual).unwrap();
        let world = rebuilt(&open(&whole, 1, 6).unwrap(), 0);
        world
            .into_iter()
            .map(|(key, (_, document))| (key, document.unwrap()))
            .collect()
    };
    assert_eq!(expected.len(), 4);
    let mut images = 0;
    let mut stop = 1;
    loop {
        let disk = base.fork();
        disk.fault_at(disk.ops() + stop, Fault::Stop);
        let outcome = migrate(&disk, 1, 7, Mode::Dual);
        for how in damages(&disk, stop, false) {
            let what = format!("stopped at {stop}, {how:?}");
            let boot = if how == Crash::Process { 1 } else { 2 };
            let image = disk.crash(&how);
            if let Ok(journal) = open(&image, boot, 8)
                && journal.mode() != Mode::Off
            {
                assert_eq!(rebuilt(&journal, 0).len(), 4, "{what}: looks finished");
            } else {
                assert!(outcome.is_err(), "{what}: acknowledged and off");
            }
            let told = migrate(&image, boot, 9, Mode::Dual);
            told.unwrap_or_else(|error| panic!("{what}: {error}"));
            let journal = open(&image, boot, 10).unwrap();
            let world = rebuilt(&journal, 0);
            assert_eq!(world.len(), expected.len(), "{what}");
            for (key, (rev, document)) in &world {
                assert_eq!((rev, document.as_ref()), (&1, expected.get(key)), "{what}");
            }
            assert_eq!(genesis_notes(&journal), 1, "{what}");
            journal.reconcile().unwrap();
            let report = journal.verify().unwrap();
            assert!(report.ok, "{what}: {report:#?}");
            images += 1;
        }
        if !disk.is_stopped() {
            break;
        }
        stop += 1;
    }
    enough(images, GENESIS);
}

/// A genesis of more than a segment: a roll in its middle calls nothing level that is not.
#[test]
fn c28_a_genesis_that_rolled_is_completed_from_wherever_it_was_cut() {
    let base = MemDisk::new();
    let text = "x".repeat(60_000);
    for n in 0..260 {
        let plan = json!({"title": format!("plan {n}"), "text": text});
        let name = format!(".brainclaw/plans/pln_{n}.json");
        plant(&base, &name, &plan.to_string());
    }
    base.sync_all(Path::new("/")).unwrap();
    let whole = base.fork();
    let before = whole.ops();
    migrate(&whole, 1, 5, Mode::Primary).unwrap();
    let ops = whole.ops() - before;
    let segments = below(&whole, "/repo/.heddle/events").into_keys();
    let segments = segments.filter(|path| path.extension().is_some_and(|end| end == "jsonl"));
    assert!(segments.count() > 1, "it did not roll");
    for part in 1..16 {
        let stop = ops * part / 16;
        let disk = base.fork();
        disk.fault_at(disk.ops() + stop, Fault::Stop);
        let cut = migrate(&disk, 1, 7, Mode::Primary);
        cut.expect_err("it was stopped");
        let what = format!("stopped at {stop} of {ops}");
        let image = disk.crash(&Crash::Process);
        let told = migrate(&image, 1, 9, Mode::Primary);
        let told = told.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(told.entities, 260, "{what}");
        let journal = open(&image, 1, 10).unwrap();
        let world = rebuilt(&journal, 0);
        assert!(world.values().all(|(rev, _)| *rev == 1), "{what}");
        let report = journal.verify().unwrap();
        assert!(
            report.ok,
            "{what}: {:?} {:?}",
            report.counters,
            report.divergent.len()
        );
        assert_eq!(genesis_notes(&journal), 1, "{what}");
    }
}

#[test]
fn a_second_migration_begins_with_the_newest_files_and_never_with_the_old_folder() {
    let disk = old_store();
    migrate(&disk, 1, 1, Mode::Dual).unwrap();
    let mut journal = open(&disk, 1, 2).unwrap();
    let newer = json!({"title": "newer work"});
    commit(&journal, vec![put("plan", "pln_1", newer.clone())]);
    journal.roll_back(Mode::Off).unwrap();
    let told = migrate(&disk, 1, 3, Mode::Dual).unwrap();
    let told = serde_json::to_value(&told).unwrap();
    assert_eq!(told["kept"].as_array().map(Vec::len), Some(1), "{told}");
    let journal = open(&disk, 1, 4).unwrap();
    assert_eq!(journal.show("plan", "pln_1").unwrap().payload, newer);
    assert!(journal.verify().unwrap().ok);
}

#[test]
fn a_migration_never_lowers_the_mode_and_a_store_that_has_not_begun_takes_a_folder_in() {
    let disk = old_store();
    let world = world(Arc::new(disk.clone()), 1, 1);
    let journal = Journal::init(world, Path::new(ROOT), who()).unwrap();
    assert_eq!(journal.mode(), Mode::Primary);
    let refused = migrate(&disk, 1, 2, Mode::Dual).unwrap_err().to_string();
    assert!(refused.contains("rollback --to dual"), "{refused}");
    // Empty so far: the folder is taken in, and the mode stays.
    let told = migrate(&disk, 1, 3, Mode::Primary).unwrap();
    assert_eq!(told.backfilled, 4, "{told:?}");
    let journal = open(&disk, 1, 4).unwrap();
    assert_eq!(journal.mode(), Mode::Primary);
    assert!(journal.show("plan", "pln_1").is_ok());
    // Again: nothing.
    let told = migrate(&disk, 1, 5, Mode::Primary).unwrap();
    assert_eq!((told.backfilled, told.backup), (0, None));
    assert!(journal.verify().unwrap().ok);
}

/// The state once an end, not once a segment: that would grow with the square of what is there.
#[test]
fn a_genesis_of_many_segments_writes_one_checkpoint() {
    let disk = MemDisk::new();
    let text = "x".repeat(60_000);
    for n in 0..420 {
        let plan = json!({"title": format!("plan {n}"), "text": text}).to_string();
        plant(&disk, &format!(".brainclaw/plans/pln_{n}.json"), &plan);
    }
    migrate(&disk, 1, 1, Mode::Dual).unwrap();
    let events = below(&disk, "/repo/.heddle/events");
    let count = |part: &str| {
        let names = events.keys().map(|path| path.to_string_lossy());
        names.filter(|name| name.contains(part)).count()
    };
    assert!(count("/seg-") >= 3, "it did not roll twice");
    assert_eq!(count("/ckpt-"), 1);
    let report = open(&disk, 1, 4).unwrap().verify().unwrap();
    assert!(report.ok && report.entities == 420);
}
