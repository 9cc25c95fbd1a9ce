//! Files that somebody changed, readers that only look, records that are gone: told, never served as the truth.
#![cfg(test)]

mod support;

use std::path::Path;

use heddle_journal::Freshness;
use heddle_journal::disk::{Crash, Disk, Fault, MemDisk};
use serde_json::json;
use support::*;

const SEGMENT: &str = "/repo/.heddle/events/seg-00000000000000000001.jsonl";

fn entity(id: &str) -> std::path::PathBuf {
    Path::new(ROOT).join(format!("entities/plan/{id}.json"))
}

#[test]
fn t_60_a_hand_edited_projection_is_neither_served_nor_believed_and_there_is_a_way_out() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1), plan("b", 1)]);
    assert_eq!(journal.show("plan", "a").unwrap().note, None);
    disk.write(&entity("a"), br#"{"title":"forged","n":666}"#)
        .unwrap();
    disk.write(&entity("alien"), br#"{"title":"of nobody"}"#)
        .unwrap();
    let unknown = Path::new(ROOT).join("entities/unknown");
    disk.create_dir(&unknown).unwrap();
    disk.write(&unknown.join("x.txt"), b"text").unwrap();
    let shown = journal.show("plan", "a").unwrap();
    assert_eq!(
        (shown.entity_rev, shown.payload["n"].clone()),
        (1, json!(1))
    );
    assert!(shown.note.unwrap().contains("heddle journal rebuild"));
    assert!(!journal.verify().unwrap().ok);
    let restored = journal.restore().unwrap();
    assert_eq!((restored.entities, restored.mended), (2, 3));
    assert_eq!(restored.kept_aside.len(), 3, "{restored:?}");
    let aside = Path::new(ROOT).join("events/quarantine");
    let kept = restored.kept_aside.iter().map(|name| {
        let bytes = disk.read(&aside.join(name), 999).unwrap();
        String::from_utf8(bytes).unwrap()
    });
    assert!(kept.into_iter().any(|text| text.contains("666")));
    assert!(journal.verify().unwrap().ok);
    assert_eq!(journal.show("plan", "a").unwrap().note, None);
    // Twice changes nothing.
    assert_eq!(journal.restore().unwrap().kept_aside, Vec::<String>::new());
}

#[test]
fn jn_01_an_update_to_what_somebody_had_typed_into_the_file_is_recorded() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    let typed = json!({"title": "the plan a", "n": 2});
    disk.write(&entity("a"), typed.to_string().as_bytes())
        .unwrap();
    let receipt = &commit(&journal, vec![plan("a", 2)])[0];
    assert_eq!(
        receipt.entity_rev,
        Some(2),
        "the journal did not have it yet"
    );
    assert_eq!(journal.show("plan", "a").unwrap().payload, typed);
    assert!(journal.verify().unwrap().ok);
}

#[test]
fn jn_05_a_full_reconcile_keeps_aside_what_somebody_had_typed() {
    let disk = MemDisk::new();
    commit(&init(&disk), vec![plan("a", 1)]);
    disk.write(&entity("a"), br#"{"title":"mine","n":5}"#)
        .unwrap();
    // Another boot: everything is compared.
    assert!(open(&disk, 2, 9).unwrap().level().unwrap());
    let aside = Path::new(ROOT).join("events/quarantine");
    let kept = disk.list(&aside).unwrap();
    assert_eq!(kept.len(), 1);
    assert!(
        disk.read(&aside.join(&kept[0].name), 99)
            .unwrap()
            .starts_with(b"{\"title\":\"mine\"")
    );
}

#[test]
fn jn_10_jn_13_readers_heal_files_and_write_no_record_the_next_writer_notes() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    // A record that is synced and neither projected nor in the cache; behind it a torn one.
    let committed = journal.mutate(vec![plan("a", 2)]).unwrap();
    disk.fault_at(disk.ops() + 1, Fault::Stop);
    assert!(committed.finish().is_err());
    let disk = disk.crash(&Crash::Process);
    disk.tamper(Path::new(SEGMENT), |bytes| {
        bytes.extend_from_slice(b"\n{\"v\":2,\"seq\":3");
    });
    let before = disk.read(Path::new(SEGMENT), 1 << 20).unwrap();
    let reader = open(&disk, 1, 9).unwrap();
    assert_eq!(reader.show("plan", "a").unwrap().payload["n"], 2);
    assert!(
        reader.verify().unwrap().ok,
        "healed: {:#?}",
        reader.verify().unwrap()
    );
    assert!(reader.level().unwrap());
    assert_eq!(reader.reservations().unwrap().len(), 0);
    assert_eq!(
        disk.read(Path::new(SEGMENT), 1 << 20).unwrap(),
        before,
        "a reader wrote"
    );
    let writer = open(&disk, 1, 10).unwrap();
    // One that is refused notes what it found, and the next one does not note it again.
    assert!(writer.mutate(vec![delete("plan", "nobody")]).is_err());
    commit(&writer, vec![plan("a", 3)]);
    assert_eq!(
        actions(&writer),
        ["update", "update", "journal_note", "seq_repair", "update"]
    );
    assert!(writer.verify().unwrap().ok);
}

#[test]
fn a_disk_that_takes_nothing_can_still_be_read() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    let committed = journal.mutate(vec![plan("a", 2)]).unwrap();
    disk.fault_at(disk.ops() + 1, Fault::Stop);
    drop(committed);
    // Stopped: every write fails from here on; what is read is marked where it may be old.
    let shown = open(&disk, 1, 9).unwrap().show("plan", "a").unwrap();
    assert!(
        shown.stale && shown.payload["n"] == 1 || shown.payload["n"] == 2,
        "{shown:?}"
    );
}

#[test]
fn a_record_that_was_taken_out_of_the_middle_fails_the_verification() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    for n in 1..=4 {
        commit(&journal, vec![plan("a", n)]);
    }
    disk.tamper(Path::new(SEGMENT), |bytes| {
        let text = String::from_utf8(bytes.clone()).unwrap();
        let lines: Vec<&str> = text
            .split('\n')
            .filter(|l| !l.contains("\"seq\":2,"))
            .collect();
        *bytes = lines.join("\n").into_bytes();
    });
    let report = journal.verify().unwrap();
    assert!(!report.ok, "{report:#?}");
    assert_eq!(report.counters.seq_gaps, 1);
    assert!(
        report
            .warnings
            .iter()
            .any(|w| w.contains("seqs are missing"))
    );
    // A person's word makes it green again, and hides no other gap.
    assert!(journal.accept_gaps(" ").is_err());
    let accepted = journal.accept_gaps("the disk was bad").unwrap();
    assert_eq!(accepted.accepted, [[2, 2]]);
    let report = journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
    assert_eq!(
        (report.counters.seq_gaps, report.counters.seq_gaps_accepted),
        (0, 1)
    );
    assert!(report.warnings.iter().any(|w| w.contains("accepted")));
    assert!(journal.accept_gaps("again").unwrap().accepted.is_empty());
    disk.tamper(Path::new(SEGMENT), |bytes| {
        let text = String::from_utf8(bytes.clone()).unwrap();
        let lines: Vec<&str> = text
            .split('\n')
            .filter(|l| !l.contains("\"seq\":3,"))
            .collect();
        *bytes = lines.join("\n").into_bytes();
    });
    let report = journal.verify().unwrap();
    assert!(!report.ok, "a larger gap is another one: {report:#?}");
}

#[test]
fn the_very_first_record_is_missed_too_and_can_be_accepted() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    for n in 1..=3 {
        commit(&journal, vec![plan(&format!("p{n}"), n)]);
    }
    disk.tamper(Path::new(SEGMENT), |bytes| {
        let at = bytes.windows(5).position(|w| w == b"\"seq\"").unwrap();
        bytes[at + 1] = b'S';
    });
    assert_eq!(journal.quarantine().unwrap().parked.len(), 1);
    let report = journal.verify().unwrap();
    assert_eq!(report.counters.seq_gaps, 1, "{report:#?}");
    assert_eq!(journal.accept_gaps("parked").unwrap().accepted, [[1, 1]]);
    journal.restore().unwrap();
    let report = journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
}

#[test]
fn one_broken_schema_takes_away_its_own_type_only() {
    let disk = MemDisk::new();
    drop(init(&disk));
    let folder = Path::new(ROOT).join("schemas");
    disk.create_dir(&folder).unwrap();
    disk.write(&folder.join("incident.json"), b"{ not json")
        .unwrap();
    disk.write(&folder.join("pager.json"), br#"{"type":"object"}"#)
        .unwrap();
    let journal = open(&disk, 1, 3).unwrap();
    commit(
        &journal,
        vec![plan("a", 1), put("pager", "x", json!({"n": 1}))],
    );
    let told = journal.mutate_whole(vec![put("incident", "i", json!({}))]);
    let told = told.unwrap_err().to_string();
    assert!(told.contains(".heddle/schemas/incident.json"), "{told}");
    let report = journal.verify().unwrap();
    assert!(
        report.ok && report.warnings.iter().any(|w| w.contains("incident.json")),
        "{report:#?}"
    );
}

/// A look at the end proves the last line. What is damaged or blanked before it, in a file of the same length, is shown by
/// nobody as anything but what was acknowledged, is given no seq or revision again, and is told by verify.
#[test]
fn t_59_jn_11_damage_before_the_last_line_is_not_hidden_by_a_cache_that_matches() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    commit(&journal, vec![plan("a", 2), plan("b", 1)]);
    commit(&journal, vec![plan("c", 1)]);
    let bytes = disk.files()[Path::new(SEGMENT)].clone();
    let lines: Vec<usize> = (1..bytes.len())
        .filter(|at| bytes[at - 1] == b'\n' && bytes[*at] == b'{')
        .collect();
    assert_eq!(lines.len(), 4);
    let flips = (0..lines[3] - 1).map(|at| (at..at + 1, bytes[at] ^ 0x10));
    let blanks = (0..3).map(|n| (lines[n]..lines[n + 1] - 1, b'\n'));
    let mut images = 0;
    for (place, byte) in flips.chain(blanks) {
        if place.len() == 1 && bytes[place.start] == b'\n' {
            continue;
        }
        let image = disk.fork();
        image.tamper(Path::new(SEGMENT), |bytes| bytes[place.clone()].fill(byte));
        let reader = open(&image, 1, 20).unwrap();
        assert_eq!(reader.freshness().unwrap(), Freshness::Fresh);
        for (id, rev, n) in [("a", 2, 2), ("b", 1, 1), ("c", 1, 1)] {
            let shown = reader.show("plan", id).unwrap();
            assert_eq!(
                (shown.entity_rev, &shown.payload["n"]),
                (rev, &json!(n)),
                "{place:?}"
            );
        }
        assert!(!reader.verify().unwrap().ok, "{place:?}: not told");
        let receipt = &commit(&reader, vec![plan("a", 3)])[0];
        assert_eq!((receipt.seq, receipt.entity_rev), (Some(5), Some(3)));
        assert!(!reader.verify().unwrap().ok, "{place:?}: told no more");
        // Another boot, nothing cached: only what was written once, and what the index knows is never taken back.
        let next = open(&image, 2, 21).unwrap();
        for id in ["a", "b", "c"] {
            if let Ok(shown) = next.show("plan", id) {
                let known = [
                    ("a", 3, 3),
                    ("a", 2, 2),
                    ("a", 1, 1),
                    ("b", 1, 1),
                    ("c", 1, 1),
                ];
                let is_known = known.iter().any(|(k, rev, n)| {
                    *k == id && shown.entity_rev == *rev && shown.payload["n"] == *n
                });
                assert!(is_known, "{place:?}: {shown:?}");
            }
        }
        assert!(!next.verify().unwrap().ok, "{place:?}: healed by nobody");
        images += 1;
    }
    assert!(images > 500, "only {images}");
}
