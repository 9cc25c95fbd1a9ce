//! A folder that may not be written, a file that may not be read: what is recorded counts and is told, and its file follows.
#![cfg(test)]

mod support;

use std::path::Path;
use std::time::Duration;

use heddle_journal::disk::{Disk, MemDisk};
use heddle_journal::{Glob, Journal, Reserved};
use serde_json::json;
use support::failing::Failing;
use support::*;

const HOUR: Duration = Duration::from_secs(3600);

fn globs(journal: &Journal) -> Vec<String> {
    let held = journal.reservations().unwrap();
    held.into_iter().map(|held| held.glob).collect()
}

fn glob(text: &str) -> Glob {
    Glob::parse(text).unwrap()
}

/// J3: it is recorded and others see it. Whoever is told that nothing was changed takes it a second time, or not at all.
#[test]
fn a_reservation_whose_file_cannot_be_written_holds_and_is_answered() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    journal.reserve(&glob("lib/**"), HOUR).unwrap();
    let claims = Path::new(ROOT).join("entities/claim");
    let sealed = open_on(Failing::sealed(&disk, claims), 5).unwrap();
    let Reserved::Granted(granted) = sealed.reserve(&glob("src/**"), HOUR).unwrap() else {
        panic!();
    };
    assert!(granted.late.is_some());
    assert_eq!(globs(&sealed), ["lib/**", "src/**"]);
    let bob = as_bob(&disk, 1, &quick());
    assert!(matches!(
        bob.reserve(&glob("src/a"), HOUR).unwrap(),
        Reserved::Held(_)
    ));
    // The next ones meet the same folder before they begin, and go on.
    let sealed = open_on(
        Failing::sealed(&disk, Path::new(ROOT).join("entities/claim")),
        6,
    )
    .unwrap();
    let released = sealed.release(&glob("lib/**")).unwrap().unwrap();
    assert!(released.late.is_some());
    assert_eq!(globs(&sealed), ["src/**"]);
    let _ = sealed.mutate(vec![plan("a", 1)]).unwrap().finish();
    let claim = put("claim", "c", json!({"status": "claimed"}));
    let committed = sealed.mutate(vec![claim]).unwrap();
    assert!(committed.finish().is_err());
    assert_eq!(sealed.show("claim", "c").unwrap().entity_rev, 1);
    assert_eq!(sealed.show("plan", "a").unwrap().entity_rev, 1);
    // Whoever may write brings all of it along.
    let journal = open(&disk, 1, 7).unwrap();
    commit(&journal, vec![plan("a", 2)]);
    assert_eq!(globs(&journal), ["src/**"]);
    let report = journal.verify().unwrap();
    assert!(report.ok && report.behind.is_empty(), "{report:#?}");
    let file = Path::new(ROOT).join("entities/claim/c.json");
    assert!(disk.len(&file).unwrap().is_some());
}

#[test]
fn a_file_that_cannot_be_read_keeps_nobody_from_recording() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1), plan("b", 1)]);
    let meta = Path::new(ROOT).join("events/meta.json");
    for is_new in [false, true] {
        if is_new {
            // Everything must be compared.
            disk.remove(&meta).unwrap();
        }
        let file = Path::new(ROOT).join("entities/plan/a.json");
        let shut = open_on(Failing::shut(&disk, file), 5).unwrap();
        for n in 2..4 {
            let committed = shut.mutate(vec![plan("b", n)]).unwrap();
            let _ = committed.finish();
            assert_eq!(shut.show("plan", "b").unwrap().payload["n"], n);
        }
        shut.reserve(&glob("src/**"), HOUR).unwrap();
        assert_eq!(globs(&shut), ["src/**"]);
        let journal = open(&disk, 1, 6).unwrap();
        commit(&journal, vec![plan("b", 1)]);
        let report = journal.verify().unwrap();
        assert!(report.ok && report.behind.is_empty(), "{report:#?}");
    }
}
