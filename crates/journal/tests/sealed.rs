//! The newest segment is gone: nobody writes into the one before it, nothing is passed over, what is put back counts.
#![cfg(test)]

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use heddle_journal::action::Mode;
use heddle_journal::disk::{Disk, MemDisk};
use heddle_journal::{Glob, Journal, JournalError, Settings};
use support::power::item;
use support::*;

fn settings() -> Settings {
    Settings {
        roll_bytes: 2_000,
        ..quick()
    }
}

fn again(disk: &MemDisk, boot: u128, seed: u64) -> Journal {
    open(disk, boot, seed).unwrap().with_settings(settings())
}

fn segments(disk: &MemDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = disk.files();
    files.retain(|path, _| path.to_string_lossy().contains("/seg-"));
    files
}

/// Several segments, the newest of them with records, and that one away. Says which seqs are gone with it.
fn beheaded(records: u64) -> (MemDisk, (PathBuf, Vec<u8>), [u64; 2]) {
    let disk = MemDisk::new();
    let journal = init(&disk).with_settings(settings());
    let hour = Duration::from_secs(3600);
    journal.reserve(&Glob::parse("src").unwrap(), hour).unwrap();
    let mut n = 0;
    while segments(&disk).len() < 3 {
        n += 1;
        commit(&journal, vec![plan("a", n), plan("b", n)]);
    }
    for n in 0..records {
        commit(&journal, vec![plan("new", n)]);
    }
    let newest = segments(&disk).pop_last().unwrap();
    let name = newest.0.file_stem().unwrap().to_string_lossy().into_owned();
    let first: u64 = name.strip_prefix("seg-").unwrap().parse().unwrap();
    disk.remove(&newest.0).unwrap();
    (disk, newest, [first, first + records - 1])
}

fn seq_of(event: &str) -> u64 {
    let event: serde_json::Value = serde_json::from_str(event).unwrap();
    event["seq"].as_u64().unwrap()
}

type Verb = (&'static str, fn(&mut Journal));

const VERBS: [Verb; 7] = [
    ("append", |journal| {
        drop(commit(journal, vec![plan("c", 1)]));
    }),
    ("reserve", |journal| {
        let told = journal.reserve(&Glob::parse("lib").unwrap(), Duration::from_secs(60));
        told.unwrap();
    }),
    ("release", |journal| {
        let told = journal.release(&Glob::parse("src").unwrap());
        told.unwrap().unwrap();
    }),
    ("redact", |journal| {
        journal.redact(&item("plan", "a"), "asked for").unwrap();
    }),
    ("accept gaps", |journal| {
        journal.accept_gaps("the disk").unwrap();
    }),
    ("checkpoint", |journal| {
        // It may refuse to cover a gap.
        let _ = journal.checkpoint();
    }),
    ("rollback", |journal| {
        journal.roll_back(Mode::Dual).unwrap();
    }),
];

#[test]
fn jn_17_jn_22_no_verb_writes_into_a_sealed_segment_when_the_newest_one_is_lost() {
    for records in [1, 3] {
        for (verb, act) in VERBS {
            for (boot, caches) in [(1, true), (2, true), (1, false)] {
                let (disk, newest, lost) = beheaded(records);
                if !caches {
                    disk.remove(&PathBuf::from(ROOT).join("events/meta.json"))
                        .unwrap();
                }
                let what = format!("{verb}, {records}, boot {boot}, caches {caches}");
                let before = segments(&disk);
                assert_eq!(again(&disk, boot, 30).losses().unwrap(), [lost], "{what}");
                if verb == "reserve" && !caches {
                    // The list may be an older copy, for all that is left: no path is called free.
                    let told = again(&disk, boot, 31)
                        .reserve(&Glob::parse("lib").unwrap(), Duration::from_secs(60));
                    let is_refused = matches!(told, Err(JournalError::ReservationsLost(_)));
                    assert!(is_refused, "{what}: {told:?}");
                } else {
                    act(&mut again(&disk, boot, 31));
                }
                let after = segments(&disk);
                for (path, bytes) in &before {
                    let is_same = after[path].len() == bytes.len();
                    assert!(is_same, "{what}: {} was written", path.display());
                    assert!(verb == "redact" || after[path] == *bytes, "{what}");
                }
                // What is lost is told once by a reader, and the rest comes behind it, in order, each once.
                let journal = again(&disk, boot, 32);
                let page = journal.events("n", 1000, true).unwrap();
                assert_eq!(page.missing, [lost], "{what}");
                let seqs: Vec<u64> = page
                    .events
                    .iter()
                    .map(|event| seq_of(event.get()))
                    .collect();
                let is_rising = seqs.windows(2).all(|pair| pair[0] < pair[1]);
                assert!(
                    is_rising && !seqs.iter().any(|seq| lost.contains(seq)),
                    "{what}"
                );
                let report = journal.verify().unwrap();
                let is_accepted = verb == "accept gaps";
                assert_eq!(report.counters.seq_gaps, u64::from(!is_accepted), "{what}");
                assert_eq!(report.counters.duplicate_seq, 0, "{what}");
                if verb == "accept gaps" || verb == "redact" {
                    continue;
                }
                // Put back, it takes nothing from what was written meanwhile.
                disk.write(&newest.0, &newest.1).unwrap();
                let journal = again(&disk, boot, 33);
                journal.restore().unwrap();
                let report = journal.verify().unwrap();
                assert!(report.ok, "{what}: {report:#?}");
                assert_eq!(journal.show("plan", "new").unwrap().entity_rev, records);
            }
        }
    }
}

/// A roll that was just done: the new segment is empty, and its name is all that is lost.
#[test]
fn jn_17_a_sealed_segment_stays_sealed_when_an_empty_one_behind_it_is_gone() {
    let disk = MemDisk::new();
    let journal = init(&disk).with_settings(settings());
    let mut n = 0;
    while segments(&disk).len() < 3 {
        n += 1;
        commit(&journal, vec![plan("a", n)]);
    }
    let (newest, bytes) = segments(&disk).pop_last().unwrap();
    assert_eq!(bytes.len(), 0);
    disk.remove(&newest).unwrap();
    let before = segments(&disk);
    again(&disk, 1, 30)
        .reserve(&Glob::parse("lib").unwrap(), Duration::from_secs(60))
        .unwrap();
    let after = segments(&disk);
    assert!(before.iter().all(|(path, bytes)| after[path] == *bytes));
    assert!(after[&newest].len() > 1);
    let report = again(&disk, 1, 31).verify().unwrap();
    assert!(report.ok, "{report:#?}");
}
