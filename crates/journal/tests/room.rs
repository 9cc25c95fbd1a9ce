//! Blank room ahead of the records: a sync into it writes no new length, and nothing of what it holds is ever lost,
//! written over, or taken for a record.
#![cfg(test)]

mod support;

use std::path::Path;

use heddle_journal::disk::{Crash, Disk, Fault, MemDisk};
use heddle_journal::{Freshness, Journal, Settings};
use support::power::*;
use support::*;

const SEGMENT: &str = "/repo/.heddle/events/seg-00000000000000000001.jsonl";

/// Room from the first record on, and little of it.
fn roomy(roll_bytes: u64) -> Settings {
    Settings {
        roll_bytes,
        room_from_bytes: 1,
        room_bytes_max: 1500,
        ..quick()
    }
}

fn with_room(disk: &MemDisk) -> Journal {
    let journal = init(disk).with_settings(Settings {
        room_bytes_max: 64 << 10,
        ..roomy(1 << 20)
    });
    // As much room as the segment holds.
    let long = serde_json::json!({"title": "long", "n": 1, "body": "x".repeat(40_000)});
    commit(&journal, vec![put("plan", "a", long)]);
    for n in 2..=9 {
        commit(&journal, vec![plan("a", n)]);
    }
    journal
}

fn segment(disk: &MemDisk) -> Vec<u8> {
    disk.files()[Path::new(SEGMENT)].clone()
}

fn filled(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .rposition(|b| *b != b'\n')
        .map_or(0, |at| at + 1)
}

#[test]
fn jn_01_jn_08_power_cut_at_every_operation_and_byte_of_appends_into_room() {
    let steps = [
        Step::Mutate(vec![plan("a", 3)]),
        Step::Mutate(vec![plan("b", 2), delete("claim", "c"), plan("after", 9)]),
    ];
    let images = enumerate_with(&roomy(1 << 20), &some(), &steps, true);
    enough(images, ROOM);
}

#[test]
fn jn_18_power_cut_at_every_operation_of_a_roll_and_a_redaction_with_room() {
    let steps = [Step::Mutate(vec![plan("a", 3)]), Step::Redact("plan", "a")];
    let images = enumerate_with(&roomy(1500), &some(), &steps, false);
    enough(images, ROOM_ELSE);
}

/// Counted, not timed: the length of the file is what a sync would have to write down.
#[test]
fn mutations_into_room_leave_the_file_as_long_as_it_was() {
    let disk = MemDisk::new();
    let journal = with_room(&disk);
    for n in 10..15 {
        let before = segment(&disk);
        assert!(before.len() > filled(&before) + 9_000, "there is room");
        let committed = journal.mutate(vec![plan("a", n)]).unwrap();
        assert_eq!(segment(&disk).len(), before.len());
        committed.finish().unwrap();
    }
    assert_eq!(journal.freshness().unwrap(), Freshness::Fresh);
    assert!(journal.verify().unwrap().ok);
    assert_eq!(seqs(&journal), (1..=14).collect::<Vec<_>>());
}

/// JN-10 in room: what a cut left is noted once, stays dead, and is never written over.
#[test]
fn row_1_jn_10_a_torn_tail_in_room_gets_one_note_and_stays_where_it_is() {
    let mut disk = MemDisk::new();
    with_room(&disk);
    let mut torn = 0;
    for round in 1..=30_u64 {
        let journal = open(&disk, 1, 100 + round).unwrap();
        journal.reconcile().unwrap();
        disk.fault_at(disk.ops() + 2, Fault::Stop);
        assert!(journal.mutate(vec![plan("a", 1000 + round)]).is_err());
        let cut = usize::try_from(2 + round * 5).unwrap();
        assert!(cut + 1 < disk.last_append_bytes());
        let before = segment(&disk);
        disk = disk.crash(&Crash::CutLastAppend(cut));
        let left = segment(&disk);
        assert_eq!(left.len(), before.len(), "room stays");
        torn += 1;
        let journal = open(&disk, 1, 200 + round).unwrap();
        journal.reconcile().unwrap();
        let after = segment(&disk);
        assert_eq!(
            after[..filled(&left)],
            left[..filled(&left)],
            "round {round}"
        );
    }
    let journal = open(&disk, 1, 7).unwrap();
    commit(&journal, vec![plan("a", 2)]);
    let report = journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
    assert_eq!(report.counters.torn_adjudicated, torn);
    assert_eq!(report.counters.damaged_lines, 0);
    assert_eq!(journal.show("plan", "a").unwrap().payload["n"], 2);
}

/// A build that knows no room appends behind it, and dies before its cache: nobody overlooks the record.
#[test]
fn c25_a_record_behind_the_room_is_found_by_readers_and_by_the_next_writer() {
    let disk = MemDisk::new();
    let journal = with_room(&disk);
    let payload = serde_json::json!({"title": "by another build", "n": 77});
    let line = forged(10, "w_1-aaaaaaaaaaaa", "a", 10, &payload);
    disk.tamper(Path::new(SEGMENT), |bytes| bytes.extend_from_slice(&line));
    let reader = open(&disk, 1, 20).unwrap();
    assert_ne!(reader.freshness().unwrap(), Freshness::Fresh);
    assert_eq!(reader.show("plan", "a").unwrap().payload["n"], 77);
    let receipt = &commit(&journal, vec![plan("b", 1)])[0];
    assert_eq!(
        receipt.seq,
        Some(12),
        "behind it and the note of a stale cache"
    );
    assert_eq!(commit(&journal, vec![plan("a", 5)])[0].entity_rev, Some(11));
    assert!(journal.verify().unwrap().ok);
}

/// A writer dies between its sync and the cache: its record is in the room, and the cache knows nothing of it.
#[test]
fn jn_02_a_record_in_room_that_the_cache_does_not_know_is_read_through_and_counted() {
    let disk = MemDisk::new();
    let journal = with_room(&disk);
    commit(
        &journal,
        vec![put("claim", "c", serde_json::json!({"status": "claimed"}))],
    );
    disk.fault_at(disk.ops() + 3, Fault::Stop);
    let released = put("claim", "c", serde_json::json!({"status": "released"}));
    drop(journal.mutate(vec![released]).unwrap());
    assert!(disk.is_stopped());
    let disk = disk.crash(&Crash::Process);
    let observer = open(&disk, 1, 30).unwrap();
    let shown = observer.observe("claim", "c").unwrap();
    assert_eq!(
        (shown.entity_rev, &shown.payload["status"]),
        (2, &"released".into())
    );
    assert_eq!(commit(&observer, vec![plan("b", 1)])[0].seq, Some(13));
    assert!(observer.verify().unwrap().ok);
}

/// JN-38: where no lock is to be relied on, no room is made, and room that is there is not written into.
#[test]
fn jn_38_on_a_network_file_system_records_go_to_the_very_end() {
    let disk = MemDisk::new();
    with_room(&disk);
    let length = segment(&disk).len();
    disk.lie_on("NFS");
    let journal = open(&disk, 1, 3).unwrap().with_settings(roomy(1 << 20));
    for n in 20..23 {
        commit(&journal, vec![plan("a", n)]);
    }
    let bytes = segment(&disk);
    assert!(bytes[..length].ends_with(b"\n\n\n"), "not into the room");
    assert_eq!(filled(&bytes) + 1, bytes.len(), "and none behind");
    assert_eq!(seqs(&journal), (1..=12).collect::<Vec<_>>());
    assert!(journal.verify().unwrap().ok);
}

/// A sync that fails in room: what was written is not believed, and comes again on fresh pages.
#[test]
fn row_7_a_failed_sync_in_room_is_appended_again() {
    let disk = MemDisk::new();
    let journal = with_room(&disk);
    disk.fault_at(disk.ops() + 2, Fault::Error(std::io::ErrorKind::Other));
    assert!(journal.mutate(vec![plan("a", 50)]).is_err());
    commit(&journal, vec![plan("b", 1)]);
    let image = disk.crash(&Crash::LoseData);
    let after = open(&image, 2, 9).unwrap();
    assert_eq!(after.show("plan", "b").unwrap().payload["n"], 1);
    assert_eq!(after.show("plan", "a").unwrap().payload["n"], 50);
    assert!(after.verify().unwrap().ok);
}

/// A disk that is full where room would go keeps every mutation.
#[test]
fn room_that_cannot_be_made_is_nobodys_loss() {
    let disk = MemDisk::new();
    let journal = init(&disk).with_settings(roomy(1 << 20));
    disk.start_trace();
    commit(&journal, vec![plan("a", 1)]);
    let trace = disk.take_trace();
    let appends: Vec<usize> = (0..trace.len())
        .filter(|at| trace[*at].0 == heddle_journal::disk::Op::Append)
        .collect();
    assert_eq!(appends.len(), 2, "the record, then the room");
    let other = MemDisk::new();
    let journal = init(&other).with_settings(roomy(1 << 20));
    let nth = u64::try_from(appends[1]).unwrap() + 1;
    other.fault_at(
        other.ops() + nth,
        Fault::Error(std::io::ErrorKind::StorageFull),
    );
    commit(&journal, vec![plan("a", 1)]);
    commit(&journal, vec![plan("a", 2)]);
    assert_eq!(journal.show("plan", "a").unwrap().payload["n"], 2);
    assert!(other.len(Path::new(SEGMENT)).unwrap().unwrap() > 0);
    assert!(journal.verify().unwrap().ok);
}
