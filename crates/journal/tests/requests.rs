//! Requests with an id: recorded once whatever is lost, answered again, never confused, and at a cost that does not grow.
#![cfg(test)]

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use heddle_journal::action::Action;
use heddle_journal::disk::{Crash, Disk, Fault, MemDisk};
use heddle_journal::{Change, Glob, Journal, JournalError, Receipt, Reserved};
use serde_json::{Value, json};
use support::counting::Counting;
use support::power::{damages, enough, item, small};
use support::*;

#[track_caller]
fn once(journal: &Journal, change: Change, id: &str) -> Receipt {
    let committed = journal.mutate_once(change, id).unwrap();
    let receipt = committed.receipts()[0].clone();
    committed.finish().unwrap();
    receipt
}

fn refusal(journal: &Journal, change: Change, id: &str) -> String {
    match journal.mutate_once(change, id) {
        Err(error @ JournalError::RequestReused { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the id {id} was taken twice"),
    }
}

/// The records that name a request, as the log has them.
fn named(journal: &Journal, id: &str) -> Vec<Value> {
    let log = journal.log(0, usize::MAX).unwrap();
    let all = log
        .iter()
        .map(|line| serde_json::from_str(line.get()).unwrap());
    all.filter(|record: &Value| record["request"]["id"] == id)
        .collect()
}

const SEGMENT: &str = "/repo/.heddle/events/seg-00000000000000000001.jsonl";

fn table() -> PathBuf {
    Path::new(ROOT).join("events/requests.idx")
}

fn again(receipt: &Receipt) -> Receipt {
    Receipt {
        duplicate: true,
        ..receipt.clone()
    }
}

#[test]
fn the_same_request_gets_the_first_answer_and_another_one_is_refused() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    let first = once(&journal, plan("a", 1), "k1");
    assert!(!first.duplicate);
    commit(&journal, vec![plan("a", 2)]);
    // Another process, after somebody else's change: neither a record nor a change.
    let other = open(&disk, 1, 9).unwrap();
    assert_eq!(once(&other, plan("a", 1), "k1"), again(&first));
    assert_eq!(other.show("plan", "a").unwrap().payload["n"], 2);
    assert_eq!(seqs(&other), [1, 2]);
    for change in [
        plan("a", 3),
        plan("b", 1),
        delete("plan", "a"),
        Change {
            summary: Some("words".to_owned()),
            ..plan("a", 1)
        },
    ] {
        let told = refusal(&other, change, "k1");
        assert!(told.contains("k1") && told.contains("seq 1"), "{told}");
    }
    assert_eq!(seqs(&other), [1, 2], "a refusal writes nothing");
    // Whatever is recorded, an event without a document, too.
    let tick = || event(Action::SessionStart, "session", None);
    let first = once(&other, tick(), "k2");
    assert_eq!(once(&journal, tick(), "k2"), again(&first));
    assert_eq!(first.entity_rev, None);
    let gone = once(&journal, delete("plan", "a"), "k3");
    assert_eq!(once(&journal, delete("plan", "a"), "k3"), again(&gone));
    // A refused request takes no id.
    let nobody = journal.mutate_once(delete("plan", "nobody"), "k4");
    assert!(matches!(nobody, Err(JournalError::NotFound { .. })));
    assert!(!once(&journal, plan("b", 1), "k4").duplicate);
    for bad in ["", "a\nb", &"x".repeat(257)] {
        let refused = journal.mutate_once(plan("c", 1), bad);
        assert!(matches!(refused, Err(JournalError::Refused(_))), "{bad:?}");
    }
    assert!(journal.verify().unwrap().ok);
}

/// "Nothing to record" is an answer as well: when the request comes again another document may stand.
#[test]
fn a_request_that_changed_nothing_changes_nothing_later_either() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    let nothing = once(&journal, plan("a", 1), "k");
    assert_eq!((nothing.seq, nothing.entity_rev), (None, None));
    commit(&journal, vec![plan("a", 2)]);
    assert_eq!(once(&journal, plan("a", 1), "k"), again(&nothing));
    assert_eq!(journal.show("plan", "a").unwrap().payload["n"], 2);
    refusal(&journal, plan("a", 3), "k");
    let report = journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
    let page = open(&disk, 1, 9).unwrap().events("r", 100, true).unwrap();
    assert_eq!(page.events.len(), 2, "the note is nobody's news");
}

#[test]
fn an_id_is_known_from_archived_segments_and_over_every_roll() {
    let disk = MemDisk::new();
    let journal = small(init(&disk), 900);
    let mut first = Vec::new();
    for n in 0..24_u64 {
        let change = plan(&format!("p{}", n % 5), n);
        first.push((change.clone(), once(&journal, change, &format!("k{n}"))));
        if n % 8 == 7 {
            journal.checkpoint().unwrap();
        }
    }
    assert!(journal.gc().unwrap().segments > 0);
    let before = seqs(&journal);
    for lost in [false, true] {
        if lost {
            disk.remove(&table()).unwrap();
        }
        for (n, (change, receipt)) in first.iter().enumerate() {
            let told = once(&journal, change.clone(), &format!("k{n}"));
            assert_eq!(told, again(receipt), "k{n}");
        }
    }
    assert_eq!(seqs(&journal), before);
}

/// A cache: whatever is wrong with it, the answer is the journal's.
#[test]
fn no_byte_of_the_table_is_believed() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    let ids: Vec<String> = (0..6).map(|n| format!("k{n}")).collect();
    let mut first = Vec::new();
    for (n, id) in (0..).zip(&ids) {
        first.push(once(&journal, plan("a", n), id));
    }
    // The last one is level, too.
    once(&journal, plan("a", 5), "k5");
    let length = disk.files()[&table()].len();
    for at in 0..length {
        let image = disk.fork();
        image.tamper(&table(), |bytes| bytes[at] ^= 0x41);
        let journal = open(&image, 1, 9).unwrap();
        let n = at % 6;
        let told = once(&journal, plan("a", n as u64), &ids[n]);
        assert_eq!(told, again(&first[n]), "byte {at}");
        assert!(!once(&journal, plan("a", 99), "fresh").duplicate);
    }
    for cut in [0, 47, 48, length - 1] {
        let image = disk.fork();
        image.tamper(&table(), |bytes| bytes.truncate(cut));
        let journal = open(&image, 1, 9).unwrap();
        assert_eq!(once(&journal, plan("a", 2), "k2"), again(&first[2]));
    }
}

/// A table that knows of more than the segments do, or of other records in their places: an older copy was put back, and the table is the last
/// that remembers. What it names is no answer and no new request either, until a person has given it up.
#[test]
fn a_table_that_is_not_of_these_segments_answers_for_nothing() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    once(&journal, plan("a", 1), "k1");
    let older = disk.fork();
    for n in 2..6 {
        once(&journal, plan("a", n), &format!("k{n}"));
    }
    once(&journal, plan("a", 5), "k5");
    let newer = disk.files()[&table()].clone();
    older.tamper(&table(), |bytes| *bytes = newer.clone());
    let journal = open(&older, 1, 9).unwrap();
    assert!(once(&journal, plan("a", 1), "k1").duplicate);
    for (n, id) in [(3, "k3"), (7, "k7")] {
        let Err(told) = journal.mutate_once(plan("a", n), id) else {
            panic!("{id} is recorded as if nothing were lost");
        };
        assert!(matches!(told, JournalError::RequestLost { .. }), "{told}");
    }
    assert!(!journal.verify().unwrap().ok);
    let told = journal.accept_gaps("an older copy").unwrap();
    assert_eq!(told.accepted, [[2, 5]]);
    // What was given up is free; what was recorded meanwhile is found.
    once(&journal, plan("b", 7), "k7");
    for n in 10..20 {
        commit(&journal, vec![plan("other", n)]);
    }
    older.tamper(&table(), |bytes| *bytes = newer.clone());
    let journal = open(&older, 1, 10).unwrap();
    assert!(!once(&journal, plan("a", 3), "k3").duplicate);
    assert!(once(&journal, plan("b", 7), "k7").duplicate);
    assert!(once(&journal, plan("a", 3), "k3").duplicate);
}

/// JN-01 for requests: the power is cut at every operation and the caller asks again, as callers do.
#[test]
fn a_power_cut_at_every_operation_and_the_request_is_recorded_once() {
    let mut images = 0;
    for roll_bytes in [1 << 20, 1_300] {
        let base = MemDisk::new();
        let first = small(init(&base), roll_bytes);
        for n in 0..3 {
            once(&first, plan("a", n), &format!("before{n}"));
        }
        let mut stop = 1;
        loop {
            let disk = base.fork();
            disk.fault_at(disk.ops() + stop, Fault::Stop);
            let journal = small(open(&disk, 1, 5).unwrap(), roll_bytes);
            let mut answered = Vec::new();
            for (n, id) in ["k0", "k1", "k2", "k3"].into_iter().enumerate() {
                let Ok(committed) = journal.mutate_once(plan("b", n as u64), id) else {
                    break;
                };
                answered.push((n, id, committed.receipts()[0].clone()));
                let _ = committed.finish();
            }
            for how in damages(&disk, stop, false) {
                let what = format!("roll at {roll_bytes}, stopped at {stop}, {how:?}");
                judge(&disk.crash(&how), &answered, &how, &what);
                images += 1;
            }
            if !disk.is_stopped() {
                break;
            }
            stop += 1;
        }
    }
    enough(images, 2_000);
}

fn judge(image: &MemDisk, answered: &[(usize, &str, Receipt)], how: &Crash, what: &str) {
    let boot = if *how == Crash::Process { 1 } else { 2 };
    let journal = open(image, boot, 78).unwrap();
    for (n, id, receipt) in answered {
        let told = once(&journal, plan("b", *n as u64), id);
        assert_eq!(told, again(receipt), "{what}: {id}");
    }
    // The one that was not answered: once, whether it had come through or not.
    let next = answered.len() as u64;
    let id = format!("k{next}");
    let told = once(&journal, plan("b", next), &id);
    let twice = once(&journal, plan("b", next), &id);
    assert_eq!(twice, again(&told), "{what}: {id}");
    assert_eq!(named(&journal, &id).len(), 1, "{what}: {id}");
    for n in 0..3 {
        let told = once(&journal, plan("a", n), &format!("before{n}"));
        assert!(told.duplicate, "{what}: before{n}");
    }
    let report = journal.verify().unwrap();
    assert!(report.ok, "{what}: {report:#?}");
}

/// What a request with an id reads, in calls and bytes, among so many of before.
fn cost(events: u64) -> (u64, u64) {
    let disk = MemDisk::new();
    let journal = init(&disk);
    for n in 0..events {
        once(&journal, plan(&format!("p{}", n % 50), n), &format!("k{n}"));
    }
    let counting = Counting::over(&disk);
    let journal = Journal::open(world(counting.clone(), 1, 60), Path::new(ROOT), who()).unwrap();
    counting.told();
    once(&journal, plan("p1", 1 << 40), "new");
    counting.told()
}

#[test]
fn jn_37_a_request_with_an_id_costs_the_same_in_a_store_of_any_size() {
    let (small, large) = (cost(100), cost(3_000));
    assert!(large.0 <= small.0 + 8, "{small:?}, then {large:?}");
    assert!(large.1 <= small.1 + 16_384, "{small:?}, then {large:?}");
}

/// Two processes that retry at once ride in one batch: the second is the first.
#[test]
fn those_who_wait_with_the_same_id_are_one_request() {
    let disk = MemDisk::new();
    let settings = heddle_journal::Settings {
        lock_wait: std::time::Duration::from_secs(60),
        ..heddle_journal::Settings::default()
    };
    let journal = init(&disk).with_settings(settings.clone());
    let held = journal.mutate(vec![plan("x", 1)]).unwrap();
    let waiting = |n: u64| {
        let disk = disk.clone();
        let settings = settings.clone();
        std::thread::spawn(move || {
            let journal = open(&disk, 1, 100 + n).unwrap().with_settings(settings);
            let told = journal.mutate_once(plan("a", n % 2), "same");
            told.map(|committed| committed.receipts()[0].clone())
        })
    };
    let threads: Vec<_> = (0..6).map(waiting).collect();
    let queue = Path::new(ROOT).join("events/queue");
    let waiting = || {
        let all = disk.list(&queue).unwrap();
        all.iter()
            .filter(|entry| {
                entry
                    .name
                    .split_once('.')
                    .is_some_and(|(_, kind)| kind == "req")
            })
            .count()
    };
    // The lock is held: they come, and none of them can go on.
    while waiting() < 6 {
        std::thread::yield_now();
    }
    held.finish().unwrap();
    let told: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    let records = named(&journal, "same");
    assert_eq!(records.len(), 1, "{told:?}");
    let winner = records[0]["payload"]["n"].as_u64().unwrap();
    for (n, told) in (0..).zip(told) {
        match told {
            Ok(receipt) => {
                assert_eq!(n % 2, winner);
                assert_eq!(receipt.seq, records[0]["seq"].as_u64());
            }
            Err(error) => {
                assert!(
                    matches!(error, JournalError::RequestReused { .. }),
                    "{error}"
                );
                assert_ne!(n % 2, winner);
            }
        }
    }
}

#[test]
fn rd_02_what_was_erased_leaves_no_hash_and_its_id_stays_taken() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    let secret = || put("plan", "s", json!({"title": "a secret of one word"}));
    once(&journal, secret(), "k");
    assert_eq!(once(&journal, secret(), "again").seq, None);
    journal.redact(&item("plan", "s"), "asked for").unwrap();
    let records = named(&journal, "k");
    assert_eq!(records.len(), 1);
    assert_eq!(records[0]["request"], json!({"id": "k"}));
    assert_eq!(
        named(&journal, "again")[0]["request"],
        json!({"id": "again"})
    );
    for (change, id) in [(secret(), "k"), (plan("s", 1), "k"), (secret(), "again")] {
        let told = refusal(&journal, change, id);
        assert!(told.contains("erased"), "{told}");
    }
    assert!(journal.verify().unwrap().ok);
}

fn spoil(disk: &MemDisk, how: impl FnOnce(&mut Vec<u8>)) {
    disk.tamper(Path::new(SEGMENT), how);
}

/// The line of a seq loses a bit: it counts no more.
fn damage(disk: &MemDisk, seq: u64) {
    spoil(disk, |bytes| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let at = text.find(&format!("\"seq\":{seq},")).unwrap();
        bytes[at + 20] ^= 1;
    });
}

#[track_caller]
fn unknown(journal: &Journal, change: Change, id: &str, lost: [u64; 2]) {
    match journal.mutate_once(change, id) {
        Err(JournalError::RequestLost { seqs, .. }) => assert_eq!(seqs, [lost], "{id}"),
        Err(other) => panic!("{id}: {other}"),
        Ok(_) => panic!("{id} was taken for new"),
    }
}

/// "An id is never free again": the answer of one may stand where records are lost, and a retry wrote over what is newer.
#[test]
fn an_id_whose_record_is_lost_is_not_free_until_a_person_gives_it_up() {
    // How the record went, and whether the table knew of it before.
    let hows = ["damaged", "first bytes", "cut out", "table gone", "end cut"];
    for (how, is_level) in hows.into_iter().flat_map(|how| [(how, false), (how, true)]) {
        let what = format!("{how}, level: {is_level}");
        let disk = MemDisk::new();
        let journal = init(&disk);
        once(&journal, plan("old", 1), "k0");
        let whole = disk.files()[Path::new(SEGMENT)].clone();
        once(&journal, plan("a", 1), "k1");
        let end = disk.files()[Path::new(SEGMENT)].len();
        commit(&journal, vec![plan("a", 2)]);
        commit(&journal, vec![plan("p", 1)]);
        if is_level {
            once(&journal, plan("old", 1), "k0");
        }
        let lost = if how == "end cut" { [2, 4] } else { [2, 2] };
        let sound = disk.files()[Path::new(SEGMENT)].clone();
        match how {
            "damaged" => damage(&disk, 2),
            // Also where nothing says any more that it was the record of a request.
            "first bytes" => spoil(&disk, |bytes| {
                let from = whole.len() + 2;
                bytes[from..end - 2].fill(b'x');
            }),
            "cut out" => spoil(&disk, |bytes| {
                bytes.drain(whole.len()..end);
            }),
            "table gone" => {
                damage(&disk, 2);
                disk.remove(&table()).unwrap();
            }
            _ => spoil(&disk, |bytes| *bytes = whole.clone()),
        }
        // Twice, by two processes, with a look of a person between.
        let before = disk.files()[Path::new(SEGMENT)].clone();
        for seed in [20, 21] {
            let journal = open(&disk, 1, seed).unwrap();
            unknown(&journal, plan("a", 1), "k1", lost);
            assert!(!journal.verify().unwrap().ok, "{what}");
        }
        assert_eq!(disk.files()[Path::new(SEGMENT)], before, "{what}: written");
        let back = disk.fork();
        let journal = open(&disk, 1, 22).unwrap();
        // What is known is answered, and what has no id goes on.
        assert!(once(&journal, plan("old", 1), "k0").duplicate, "{what}");
        commit(&journal, vec![plan("q", 1)]);
        unknown(&open(&disk, 2, 23).unwrap(), plan("a", 1), "k1", lost);
        // Given up, and it is free as anything that was never said.
        journal.accept_gaps("the disk").unwrap();
        for n in 0..2 {
            assert_eq!(
                once(&journal, plan("n", 1), "k9").duplicate,
                n > 0,
                "{what}"
            );
        }
        once(&journal, plan("b", 1), "k1");
        // Put back, and it is answered.
        spoil(&back, |bytes| *bytes = sound);
        let journal = open(&back, 1, 24).unwrap();
        assert!(once(&journal, plan("a", 1), "k1").duplicate, "{what}");
        assert_eq!(journal.show("plan", "a").unwrap().payload["n"], 2, "{what}");
        assert!(!once(&journal, plan("n", 1), "k9").duplicate, "{what}");
    }
}

/// A checkpoint keeps the state of what is lost before it, and no answers.
#[test]
fn an_id_whose_record_is_lost_before_a_checkpoint_is_not_free_either() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    once(&journal, plan("a", 1), "k1");
    commit(&journal, vec![plan("a", 2)]);
    journal.checkpoint().unwrap();
    commit(&journal, vec![plan("p", 1)]);
    damage(&disk, 1);
    for seed in [20, 21] {
        let journal = open(&disk, 1, seed).unwrap();
        unknown(&journal, plan("a", 1), "k1", [1, 1]);
    }
    let journal = open(&disk, 1, 22).unwrap();
    assert_eq!(journal.show("plan", "a").unwrap().payload["n"], 2);
    // Paths are asked for in the same way.
    let (lib, hour) = (Glob::parse("lib/**").unwrap(), Duration::from_secs(3_600));
    let asked = journal.reserve_once(&lib, hour, Some("r1"));
    assert!(matches!(asked, Err(JournalError::RequestLost { .. })));
    assert!(journal.reservations().unwrap().is_empty());
    let asked = journal.release_once(&lib, Some("r2"));
    assert!(matches!(asked, Err(JournalError::RequestLost { .. })));
    assert!(matches!(
        journal.reserve(&lib, hour),
        Ok(Reserved::Granted(_))
    ));
}
