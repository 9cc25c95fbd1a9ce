//! The power is cut after every single operation of append, roll, checkpoint and gc, with every damage;
//! what was acknowledged must be there, what was not must be whole or absent.
#![cfg(test)]

mod support;

use std::path::Path;

use heddle_journal::disk::{Crash, Fault, MemDisk};
use support::model::{Model, rebuilt};
use support::power::*;
use support::*;

#[test]
fn jn_01_jn_08_power_cut_at_every_operation_of_an_append_and_at_every_byte_of_it() {
    let steps = [
        Step::Mutate(vec![plan("a", 3)]),
        Step::Mutate(vec![plan("b", 2), delete("claim", "c"), plan("after", 9)]),
        Step::Mutate(vec![delete("plan", "a")]),
        Step::Mutate(vec![plan("a", 4), plan("after", 10)]),
    ];
    let images = enumerate(&some(), &steps, 1 << 20, true);
    enough(images, APPEND);
}

#[test]
fn c23_power_cut_at_every_byte_of_batches_of_several_records() {
    let batch = |n: u64| {
        Step::Mutate(
            ["a", "b", "x", "y", "z"]
                .map(|id| plan(id, 100 + n))
                .to_vec(),
        )
    };
    let steps: Vec<Step> = (0..4).map(batch).collect();
    let images = enumerate(&some(), &steps, 1 << 20, true);
    enough(images, BATCHES);
}

#[test]
fn jn_18_jn_19_power_cut_at_every_operation_of_a_roll() {
    let steps = [
        Step::Mutate(vec![plan("a", 3)]),
        Step::Mutate(vec![plan("b", 2)]),
        Step::Mutate(vec![delete("plan", "b")]),
    ];
    // Every mutation rolls: checkpoint, reference, new segment.
    let images = enumerate(&some(), &steps, 1, false);
    enough(images, ROLL);
}

#[test]
fn jn_19_row_8_power_cut_at_every_operation_of_a_checkpoint() {
    let steps = [
        Step::Checkpoint,
        Step::Mutate(vec![plan("a", 3)]),
        Step::Checkpoint,
        Step::Checkpoint,
    ];
    let images = enumerate(&some(), &steps, 1 << 20, false);
    enough(images, CHECKPOINT);
}

#[test]
fn jn_21_power_cut_at_every_operation_of_gc() {
    let mut prepare = some();
    for n in 0..3 {
        prepare.push(Step::Mutate(vec![plan("a", 10 + n)]));
        prepare.push(Step::Mutate(vec![plan("gone", n)]));
    }
    prepare.push(Step::Mutate(vec![delete("plan", "gone")]));
    let steps = [Step::Gc, Step::Mutate(vec![plan("gone", 7)]), Step::Gc];
    let images = enumerate(&prepare, &steps, 600, false);
    enough(images, GC);
}

/// A first crash, then a crash at every operation of the recovery from it.
#[test]
fn power_cut_at_every_operation_of_the_recovery_itself() {
    let mut images = 0;
    for first_cut in [40, 200, 420] {
        let disk = MemDisk::new();
        let mut model = Model::default();
        run(&init(&disk), &some(), &mut model);
        let changes = vec![plan("a", 3), plan("b", 5)];
        model.try_it(&changes);
        disk.fault_at(disk.ops() + 2, Fault::Stop);
        assert!(open(&disk, 1, 6).unwrap().mutate(changes).is_err());
        let base = disk.crash(&Crash::CutLastAppend(first_cut));
        let mut stop = 1;
        loop {
            let again = base.fork();
            again.fault_at(again.ops() + stop, Fault::Stop);
            let outcome = open(&again, 3, 7).unwrap().reconcile();
            for how in damages(&again, stop, false) {
                let what = format!("cut at {first_cut}, recovery stopped at {stop}");
                judge(&again.crash(&how), &model, &how, images, &what);
                images += 1;
            }
            if outcome.is_ok() {
                break;
            }
            stop += 1;
        }
    }
    enough(images, RECOVERY);
}

/// Row 2, C11: a record that lacks only its last newline counts, for the first reader and for the last.
#[test]
fn row_2_a_record_without_its_last_newline_counts_before_and_after() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    disk.fault_at(disk.ops() + 2, Fault::Stop);
    assert!(journal.mutate(vec![plan("a", 2)]).is_err());
    let length = disk.last_append_bytes();
    let image = disk.crash(&Crash::CutLastAppend(length - 1));
    let reader = open(&image, 2, 3).unwrap();
    let seen = rebuilt(&reader, 0);
    assert_eq!(seen[&("plan".into(), "a".into())].0, 2);
    commit(&open(&image, 2, 4).unwrap(), vec![plan("b", 1)]);
    assert_eq!(rebuilt(&reader, 0)[&("plan".into(), "a".into())].0, 2);
    assert!(reader.verify().unwrap().ok);
}

/// JN-10: as many notes as torn tails, no unexplained damage, whatever the number of crashes in a row.
#[test]
fn row_1_jn_10_every_torn_tail_gets_one_note_and_stays_dead() {
    let mut disk = MemDisk::new();
    commit(&init(&disk), vec![plan("a", 1)]);
    let mut torn = 0;
    for round in 1..=40_u64 {
        let journal = open(&disk, 1, 100 + round).unwrap();
        // One more operation when the note of the last round comes first: find the append by its failure.
        journal.reconcile().unwrap();
        disk.fault_at(disk.ops() + 2, Fault::Stop);
        assert!(journal.mutate(vec![plan("a", 1000 + round)]).is_err());
        let cut = usize::try_from(2 + round * 5).unwrap();
        assert!(cut + 1 < disk.last_append_bytes());
        disk = disk.crash(&Crash::CutLastAppend(cut));
        torn += 1;
    }
    let journal = open(&disk, 1, 7).unwrap();
    commit(&journal, vec![plan("a", 2)]);
    let report = journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
    assert_eq!(report.counters.torn_adjudicated, torn);
    assert_eq!(report.counters.damaged_lines, 0);
    assert_eq!(journal.show("plan", "a").unwrap().payload["n"], 2);
}

/// JN-11, T-59: a flipped bit anywhere in a segment, checkpoint or blob is reported or without effect.
#[test]
fn jn_11_t_59_every_flipped_bit_is_reported_and_never_served() {
    let disk = MemDisk::new();
    let journal = small(init(&disk), 1500);
    let mut model = Model::default();
    let mut steps = some();
    for n in 0..6 {
        steps.push(Step::Mutate(vec![plan("a", 20 + n), plan("b", 30 + n)]));
    }
    run(&journal, &steps, &mut model);
    let mut images = 0;
    for (path, bytes) in disk.files() {
        let name = path.to_string_lossy().into_owned();
        if !name.contains("/seg-") && !name.contains("/ckpt-") {
            continue;
        }
        for (at, byte) in bytes.iter().enumerate() {
            let image = disk.fork();
            image.tamper(&path, |bytes| bytes[at] ^= 1 << (at % 8));
            let reader = open(&image, 1, 3).unwrap();
            let what = format!("{name}, byte {at}");
            for (key, image) in rebuilt(&reader, 0) {
                assert!(
                    model.images[&key].contains(&image),
                    "{what}: invented {image:?}"
                );
            }
            if at % 8 == 0 {
                // A frame's newline may turn into another blank; everything else is seen.
                let report = reader.verify().unwrap();
                let is_frame = *byte == b'\n';
                assert!(!report.ok || is_frame, "{what}: not reported");
            }
            images += 1;
        }
    }
    enough(images, FLIPS);
}

/// T-59: an old copy of a file under its name.
#[test]
fn t_59_row_4_a_stale_copy_of_segment_or_meta_never_regresses_a_projection() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    let segment = Path::new("/repo/.heddle/events/seg-00000000000000000001.jsonl");
    let old = disk.files()[segment].clone();
    commit(&journal, vec![plan("a", 2)]);
    disk.tamper(segment, |bytes| *bytes = old);
    // Row 4, JN-05: the projection is newer than what the journal can explain; it stays, and is reported.
    journal.reconcile().unwrap();
    let file = disk.files()[Path::new("/repo/.heddle/entities/plan/a.json")].clone();
    assert!(String::from_utf8(file).unwrap().contains("\"n\": 2"));
    assert!(!journal.verify().unwrap().ok);
    // Neither seq nor revision is given twice.
    let receipt = &commit(&journal, vec![plan("a", 3)])[0];
    assert_eq!((receipt.seq, receipt.entity_rev), (Some(3), Some(3)));
}
