//! Many files come behind the answer: the index is rebuilt first and serves, from the journal, while nobody believes a
//! file that was not compared. Whoever dies on the way leaves it to the next.
#![cfg(test)]

mod support;

use std::path::{Path, PathBuf};

use heddle_journal::disk::{Crash, Disk, Fault, MemDisk};
use heddle_journal::{Freshness, Journal, JournalError, Settings};
use serde_json::{Value, json};
use support::model::{Model, rebuilt};
use support::power::*;
use support::*;

/// Every store is large.
fn behind() -> Settings {
    Settings {
        files_first_max: 0,
        ..quick()
    }
}

fn opened(disk: &MemDisk, boot: u128, seed: u64) -> Journal {
    open(disk, boot, seed).unwrap().with_settings(behind())
}

fn file(name: &str) -> PathBuf {
    Path::new(ROOT).join("entities").join(name)
}

/// Nothing is known of the files any more, and they are not what they should be.
fn doubtful(prepare: &[Step], model: &mut Model) -> MemDisk {
    let disk = MemDisk::new();
    let journal = init(&disk);
    run(&journal, prepare, model);
    disk.remove(&journal.layout().meta()).unwrap();
    disk.tamper(&file("plan/a.json"), Vec::clear);
    disk.remove(&file("plan/b.json")).unwrap();
    disk
}

fn touched(disk: &MemDisk) -> usize {
    let trace = disk.take_trace();
    let inside = |path: &Path| path.starts_with(Path::new(ROOT).join("entities"));
    trace.iter().filter(|(_, path)| inside(path)).count()
}

#[test]
fn jn_01_jn_06_power_cut_at_every_operation_of_an_answer_before_its_files() {
    let mut prepared = Model::default();
    let base = doubtful(&some(), &mut prepared);
    let steps = [
        Step::Mutate(vec![plan("a", 3), plan("after", 9)]),
        Step::Mutate(vec![plan("b", 2), delete("claim", "c")]),
    ];
    let mut images = 0;
    let mut stop = 1;
    loop {
        let disk = base.fork();
        disk.fault_at(disk.ops() + stop, Fault::Stop);
        let mut model = prepared.clone();
        run(&opened(&disk, 1, 5), &steps, &mut model);
        for how in damages(&disk, stop, false) {
            let image = disk.crash(&how);
            let boot = if how == Crash::Process { 1 } else { 2 };
            let what = format!("stopped at {stop}");
            judge(&image.fork(), &model, &how, images, &what);
            // The same once more for who leaves the files behind again: read, then write.
            let next = opened(&image, boot, 80);
            let seen = rebuilt(&next, 0);
            for ((item_type, item_id), (rev, document)) in &seen {
                let shown = next.show(item_type, item_id);
                let shown = shown.ok().map(|shown| (shown.entity_rev, shown.payload));
                let wanted = document.clone().map(|document| (*rev, document));
                assert_eq!(shown, wanted, "{what}, {how:?}: {item_type} {item_id}");
            }
            commit(&next, vec![plan("next", 1)]);
            let report = next.verify().unwrap();
            assert!(report.ok, "{what}, {how:?}: {report:#?}");
            images += 1;
        }
        if !disk.is_stopped() {
            break;
        }
        stop += 1;
    }
    enough(images, BEHIND);
}

#[test]
fn p15_the_answer_waits_for_the_index_and_for_no_file() {
    let mut model = Model::default();
    let disk = doubtful(&some(), &mut model);
    let journal = opened(&disk, 1, 5);
    disk.start_trace();
    let committed = journal.mutate(vec![plan("b", 7)]).unwrap();
    assert_eq!(committed.receipts()[0].entity_rev, Some(2));
    assert_eq!(touched(&disk), 0, "no file before the answer");
    // Between the answer and the files: whoever looks sees the journal, and no half of it.
    let reader = opened(&disk, 1, 6);
    let shown = reader.show("plan", "a").unwrap();
    assert_eq!((shown.entity_rev, &shown.payload["n"]), (2, &json!(2)));
    committed.finish().unwrap();
    assert_eq!(journal.freshness().unwrap(), Freshness::Fresh);
    assert_eq!(projected(&disk), live(&rebuilt(&journal, 0)));
    assert!(journal.verify().unwrap().ok);
}

#[test]
fn t_60_jn_06_a_file_that_was_not_compared_is_never_served() {
    let mut model = Model::default();
    let disk = doubtful(&some(), &mut model);
    let forged = serde_json::to_vec(&json!({"title": "forged", "n": 666})).unwrap();
    disk.write(&file("plan/b.json"), &forged).unwrap();
    let reader = opened(&disk, 1, 5);
    disk.start_trace();
    for (id, n) in [("a", 2), ("b", 1)] {
        let shown = reader.show("plan", id).unwrap();
        assert_eq!(shown.payload["n"], n);
        assert!(!shown.stale && shown.note.is_none(), "{shown:?}");
    }
    assert_eq!(reader.show("claim", "c").unwrap().entity_rev, 1);
    let told = reader.show("plan", "nobody");
    assert!(
        matches!(told, Err(JournalError::NotFound { .. })),
        "{told:?}"
    );
    assert_eq!(touched(&disk), 0, "a reader of one entity writes no other");
    assert_eq!(reader.freshness().unwrap(), Freshness::Indexed);
    assert!(!reader.verify().unwrap().ok, "verify says what is missing");
    // Whoever is asked for level files makes them so; what stood there and no record explains is kept aside.
    assert!(reader.level().unwrap());
    assert_eq!(reader.freshness().unwrap(), Freshness::Fresh);
    assert!(reader.verify().unwrap().ok);
    assert_eq!(projected(&disk), live(&rebuilt(&reader, 0)));
    let files = disk.files();
    let aside = files
        .iter()
        .filter(|(path, _)| path.starts_with(reader.layout().quarantine()));
    assert!(aside.into_iter().any(|(_, bytes)| *bytes == forged));
}

/// JN-29 holds while the files are behind: what is compared is the record, never a file.
#[test]
fn jn_29_an_ephemeral_change_makes_no_record_before_the_files_are_there() {
    let mut model = Model::default();
    let disk = doubtful(&some(), &mut model);
    let journal = opened(&disk, 1, 5);
    let later = json!({"status": "claimed", "expires_at": "later"});
    let receipts = commit(&journal, vec![put("claim", "c", later)]);
    assert_eq!(receipts[0].seq, None);
    let held: Value = serde_json::from_slice(&disk.files()[&file("claim/c.json")]).unwrap();
    assert_eq!(held["expires_at"], "later");
    assert_eq!(journal.freshness().unwrap(), Freshness::Fresh);
    assert_eq!(projected(&disk).len(), 3);
    assert_eq!(seqs(&journal), [1, 2, 3, 4]);
}

/// A full disk behind the answer: the record is safe, readers are right, the next one writes the files.
#[test]
fn row_3_files_that_cannot_be_written_behind_the_answer_come_with_the_next_one() {
    let mut model = Model::default();
    let disk = doubtful(&some(), &mut model);
    let journal = opened(&disk, 1, 5);
    let committed = journal.mutate(vec![plan("a", 3)]).unwrap();
    let full = Fault::Error(std::io::ErrorKind::StorageFull);
    disk.fault_at(disk.ops() + 1, full);
    assert!(committed.finish().is_err());
    let reader = opened(&disk, 1, 6);
    assert_eq!(reader.show("plan", "a").unwrap().payload["n"], 3);
    assert_eq!(reader.show("plan", "b").unwrap().payload["n"], 1);
    commit(&journal, vec![plan("b", 2)]);
    assert_eq!(projected(&disk), live(&rebuilt(&journal, 0)));
    assert!(journal.verify().unwrap().ok);
}
