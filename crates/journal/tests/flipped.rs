//! Caches with one flipped bit: rebuilt, and never a witness. No loss is told that the segments disprove, no path is freed.
#![cfg(test)]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use heddle_journal::disk::{Disk, MemDisk};
use heddle_journal::federation::{ExportAsk, Renew};
use heddle_journal::{Glob, Journal, Who};
use support::*;

const HOUR: Duration = Duration::from_secs(3600);
const PLANS: [(&str, u64); 3] = [("a", 2), ("b", 1), ("c", 1)];

fn events(name: &str) -> PathBuf {
    Path::new(ROOT).join("events").join(name)
}

fn other(disk: &MemDisk, seed: u64) -> Journal {
    let who = Who {
        agent: "somebody".to_owned(),
        ..Who::default()
    };
    let world = world(Arc::new(disk.clone()), 1, seed);
    let journal = Journal::open(world, Path::new(ROOT), who).unwrap();
    journal.with_settings(quick())
}

/// Five records: three plans, one of them twice, and a reservation.
fn begun() -> MemDisk {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    commit(&journal, vec![plan("b", 1)]);
    let lib = Glob::parse("lib/**").unwrap();
    journal.reserve(&lib, HOUR).unwrap();
    commit(&journal, vec![plan("c", 1)]);
    commit(&journal, vec![plan("a", 2)]);
    disk
}

/// As if nothing had happened, for every reader and for the next writer.
fn check(image: &MemDisk, what: &str) {
    let journal = open(image, 1, 40).unwrap();
    assert_eq!(journal.losses().unwrap(), [[0; 2]; 0], "{what}");
    let page = journal.history(0, usize::MAX).unwrap();
    assert_eq!(page.events.len(), 5, "{what}");
    assert!(page.missing.is_empty() && !page.gap, "{what}: {page:?}");
    let report = journal.verify().unwrap();
    assert!(
        report.ok && report.counters.seq_gaps == 0,
        "{what}: {report:#?}"
    );
    let blocked = other(image, 41).blocked(&["lib/x".to_owned()]);
    assert_eq!(blocked.unwrap().len(), 1, "{what}");
    for (id, n) in PLANS {
        let shown = journal.show("plan", id).unwrap();
        assert_eq!(
            (&shown.payload["n"], shown.note),
            (&n.into(), None),
            "{what}"
        );
    }
    assert!(journal.show("plan", "never").is_err());
    let receipt = &commit(&journal, vec![plan("b", 2)])[0];
    assert_eq!(
        (receipt.seq, receipt.entity_rev),
        (Some(6), Some(2)),
        "{what}"
    );
    let report = journal.verify().unwrap();
    assert!(
        report.ok && report.counters.seq_gaps == 0,
        "{what}: {report:#?}"
    );
}

fn flip_every_bit(name: &str) {
    let disk = begun();
    let path = events(name);
    let length = disk.files()[&path].len();
    for bit in 0..length * 8 {
        let image = disk.fork();
        image.tamper(&path, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        let text = String::from_utf8_lossy(&image.files()[&path]).into_owned();
        check(&image, &format!("bit {bit}: {text}"));
    }
}

#[test]
fn jn_13_row_16_no_bit_of_meta_json_invents_a_loss() {
    flip_every_bit("meta.json");
}

/// Also where git took the file of the claim away: then the list alone names it, or the journal is asked.
#[test]
fn no_bit_of_the_list_of_reservations_frees_a_path_or_invents_a_loss() {
    flip_every_bit("reserved.json");
    let disk = begun();
    let claims = Path::new(ROOT).join("entities/claim");
    for entry in disk.list(&claims).unwrap() {
        disk.remove(&claims.join(entry.name)).unwrap();
    }
    let path = events("reserved.json");
    for bit in 0..disk.files()[&path].len() * 8 {
        let image = disk.fork();
        image.tamper(&path, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        let blocked = other(&image, 41).blocked(&["lib/x".to_owned()]);
        assert_eq!(blocked.unwrap().len(), 1, "bit {bit}");
    }
}

/// A reader that has seen three of five: whatever bit of its watermark is another one, it is shown the other two.
#[test]
fn no_bit_of_a_watermark_skips_an_event() {
    let disk = begun();
    for limit in [1, 2] {
        let page = open(&disk, 1, 20).unwrap().events("r", limit, false);
        assert_eq!(page.unwrap().events.len(), limit);
    }
    let path = events("cursors/r.json");
    for bit in 0..disk.files()[&path].len() * 8 {
        let image = disk.fork();
        image.tamper(&path, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        let page = open(&image, 1, 21).unwrap().events("r", 99, false).unwrap();
        let shown = |seq: u64| {
            let mark = format!("\"seq\":{seq},");
            page.events.iter().any(|event| event.get().contains(&mark))
        };
        assert!(shown(4) && shown(5), "bit {bit}: {page:?}");
    }
}

/// It is told, or the store has the name that it had.
#[test]
fn no_bit_of_the_origin_makes_another_store_of_this_one() {
    let disk = begun();
    let ask = || ExportAsk {
        since: 0,
        limit: 100,
        types: Vec::new(),
        renew: Renew::No,
    };
    let before = open(&disk, 1, 30).unwrap().export_slice(&ask()).unwrap();
    let path = events("origin.json");
    for bit in 0..disk.files()[&path].len() * 8 {
        let image = disk.fork();
        image.tamper(&path, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        let journal = open(&image, 1, 31).unwrap();
        match journal.export_slice(&ask()) {
            Ok(told) => assert_eq!(
                (told.origin_id.as_str(), told.origin_epoch),
                (before.origin_id.as_str(), before.origin_epoch),
                "bit {bit}"
            ),
            Err(error) => assert!(error.to_string().contains("origin.json"), "{error}"),
        }
        assert!(journal.verify().unwrap().ok, "bit {bit}");
        commit(&journal, vec![plan("b", 2)]);
        journal.checkpoint().unwrap();
    }
}

/// A part of it that is older or newer than the rest: two pages of a file that a crash mixed.
#[test]
fn a_meta_json_of_two_halves_is_no_witness() {
    let disk = begun();
    let path = events("meta.json");
    let newer = disk.files()[&path].clone();
    let older = {
        let store = MemDisk::new();
        let journal = init(&store);
        for n in 0..40 {
            commit(&journal, vec![plan("a", n)]);
        }
        store.files()[&path].clone()
    };
    for at in 0..newer.len().min(older.len()) {
        for (head, rest) in [(&newer, &older), (&older, &newer)] {
            let mixed = [&head[..at], &rest[at..]].concat();
            if mixed == newer || mixed == older {
                continue;
            }
            let image = disk.fork();
            image.tamper(&path, |bytes| bytes.clone_from(&mixed));
            check(&image, &String::from_utf8_lossy(&mixed));
        }
    }
}

/// A cache without a checksum is an older build's, and serves as before.
#[test]
fn a_meta_json_of_an_older_build_is_believed_and_written_anew_with_a_checksum() {
    let disk = begun();
    let path = events("meta.json");
    disk.tamper(&path, unstamp);
    assert!(!String::from_utf8_lossy(&disk.files()[&path]).contains("crc"));
    let journal = open(&disk, 1, 42).unwrap();
    assert_eq!(
        journal.freshness().unwrap(),
        heddle_journal::Freshness::Fresh
    );
    commit(&journal, vec![plan("b", 2)]);
    assert!(String::from_utf8_lossy(&disk.files()[&path]).contains("\"crc\":\""));
    // Without the checksum it would have, a newer one is nobody's.
    disk.tamper(&path, |bytes| {
        let at = bytes.len() - b",\"crc\":\"01234567\"}\n".len();
        bytes.truncate(at);
        bytes.extend_from_slice(b"}\n");
    });
    assert_ne!(
        journal.freshness().unwrap(),
        heddle_journal::Freshness::Fresh
    );
}
