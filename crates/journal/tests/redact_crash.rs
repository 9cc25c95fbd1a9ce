//! RD-03: the power is cut at every operation of a redaction, with every damage; whoever comes next finishes it.
#![cfg(test)]

mod support;

use heddle_journal::disk::{Crash, Fault, MemDisk};
use serde_json::json;
use support::model::{Model, rebuilt};
use support::power::*;
use support::*;

const CANARY: &str = "CANARY-7f3a9c-secret";

fn secret(n: u64) -> Step {
    let document = json!({"title": "a plan", "n": n, "note": format!("{CANARY}-{n}")});
    Step::Mutate(vec![put("plan", "s", document), plan("b", n)])
}

/// Every record of the journal without its content: who wrote what where.
fn identities(disk: &MemDisk) -> Vec<(u64, String)> {
    let journal = open(disk, 1, 90).unwrap();
    let log = journal.log(0, usize::MAX).unwrap();
    let id = |line: &serde_json::value::RawValue| {
        let value: serde_json::Value = serde_json::from_str(line.get()).unwrap();
        let is_note = value["item_type"] == "journal";
        let writer = value["writer"].as_str().unwrap().to_owned();
        (!is_note).then(|| (value["seq"].as_u64().unwrap(), writer))
    };
    log.iter().filter_map(|line| id(line)).collect()
}

fn holds_canary(disk: &MemDisk) -> Vec<String> {
    let holds = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains("CANARY");
    let files = disk.files().into_iter().filter(|(_, bytes)| holds(bytes));
    files.map(|(path, _)| path.display().to_string()).collect()
}

/// The power is cut at every operation; recovery comes, the redaction is asked for again, nothing is left.
fn enumerate_redaction(prepare: &[Step], roll_bytes: u64) -> usize {
    let base = MemDisk::new();
    let mut prepared = Model::default();
    run(&small(init(&base), roll_bytes), prepare, &mut prepared);
    let before = identities(&base);
    let mut images = 0;
    let mut stop = 1;
    loop {
        let disk = base.fork();
        disk.fault_at(disk.ops() + stop, Fault::Stop);
        let mut model = prepared.clone();
        let steps = [Step::Redact("plan", "s")];
        run(
            &small(open(&disk, 1, 5).unwrap(), roll_bytes),
            &steps,
            &mut model,
        );
        // Every fourth damage at one stop, the others at the next ones: a redaction reads everything, three times.
        let skip = usize::try_from(stop % 4).unwrap();
        for how in damages(&disk, stop, false)
            .into_iter()
            .skip(skip)
            .step_by(4)
        {
            let what = format!("stopped at {stop}");
            let image = disk.crash(&how);
            judge(&image.fork(), &model, &how, images, &what);
            finish(&image, &how, &before, &format!("{what}, {how:?}"));
            images += 1;
        }
        if !disk.is_stopped() {
            return images;
        }
        stop += 1;
    }
}

fn finish(image: &MemDisk, how: &Crash, before: &[(u64, String)], what: &str) {
    let boot = if *how == Crash::Process { 1 } else { 2 };
    let journal = open(image, boot, 79).unwrap();
    let told = journal.redact(&item("plan", "s"), "asked for");
    let told = told.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(told.left.leftovers, [""; 0], "{what}");
    assert_eq!(holds_canary(image), [""; 0], "{what}: RD-01");
    assert_eq!(identities(image), before, "{what}: RD-02");
    let report = journal.verify().unwrap();
    assert!(report.ok, "{what}: {report:#?}");
    let world = rebuilt(&journal, 0);
    assert_eq!(world[&("plan".into(), "s".into())].1, None, "{what}");
    assert_eq!(rebuilt(&journal, usize::MAX), world, "{what}: JN-20");
}

#[test]
fn rd_03_power_cut_at_every_operation_of_a_redaction_over_several_segments() {
    let prepare = [secret(1), secret(2), secret(3), secret(4)];
    let images = enumerate_redaction(&prepare, 600);
    enough(images, REDACT);
}

#[test]
fn rd_03_power_cut_at_every_operation_of_a_redaction_with_archive_and_blob() {
    let big = json!({"note": CANARY, "diff": "x".repeat(70_000)});
    let mut prepare = vec![secret(1), Step::Mutate(vec![put("plan", "s", big)])];
    for n in 2..6 {
        prepare.push(Step::Mutate(vec![plan("a", n), plan("b", n)]));
        prepare.push(Step::Checkpoint);
    }
    prepare.push(Step::Gc);
    let images = enumerate_redaction(&prepare, 500);
    enough(images, REDACT_BLOB);
}
