//! Lines of a segment in another order than they were written in: the records are here, and nobody calls them lost.
#![cfg(test)]

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use heddle_journal::disk::{Disk, MemDisk};
use heddle_journal::{Glob, Journal};
use serde_json::{Value, json};
use support::*;

const SEGMENT: &str = "/repo/.heddle/events/seg-00000000000000000001.jsonl";
const COUNT: u64 = 7;
const HOUR: Duration = Duration::from_secs(3600);

fn events(name: &str) -> PathBuf {
    Path::new(ROOT).join("events").join(name)
}

/// Six plans and a reservation, each its own entity and batch; the second one is longer than what is read of an end.
fn begun() -> MemDisk {
    let disk = MemDisk::new();
    let journal = init(&disk);
    for n in 1..COUNT {
        let body = if n == 2 { 40_000 } else { 10 };
        let document = json!({"n": n, "body": "x".repeat(body)});
        commit(&journal, vec![put("plan", &format!("p{n}"), document)]);
    }
    let lib = Glob::parse("lib/**").unwrap();
    journal.reserve(&lib, HOUR).unwrap();
    disk
}

fn lines(disk: &MemDisk) -> Vec<Vec<u8>> {
    let bytes = disk.files()[Path::new(SEGMENT)].clone();
    let lines = bytes.split(|byte| *byte == b'\n');
    lines
        .filter(|line| !line.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

fn put_lines(disk: &MemDisk, lines: &[Vec<u8>]) {
    disk.tamper(Path::new(SEGMENT), |bytes| {
        bytes.clear();
        for line in lines {
            bytes.extend_from_slice(&[b"\n", &line[..], b"\n"].concat());
        }
    });
}

/// Every pair of lines changed, all of them turned, and each of them put last.
fn orders(of: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
    let mut orders = Vec::new();
    for a in 0..of.len() {
        for b in a + 1..of.len() {
            let mut order = of.to_vec();
            order.swap(a, b);
            orders.push(order);
        }
        let mut order = of.to_vec();
        let line = order.remove(a);
        order.push(line);
        orders.push(order);
    }
    orders.push(of.iter().rev().cloned().collect());
    orders.retain(|order| order != of);
    orders
}

fn forget(disk: &MemDisk, names: &[&str]) {
    for name in names {
        disk.remove(&events(name)).unwrap();
    }
}

/// What readers are shown, one event a page.
fn paged(journal: &Journal, what: &str) -> Vec<u64> {
    let mut seqs = Vec::new();
    for _ in 0..=COUNT {
        let page = journal.events("reader", 1, false).unwrap();
        assert!(!page.gap && page.missing.is_empty(), "{what}: {page:?}");
        for event in &page.events {
            let event: Value = serde_json::from_str(event.get()).unwrap();
            seqs.push(event["seq"].as_u64().unwrap());
        }
    }
    seqs
}

fn check(image: &MemDisk, boot: u128, what: &str) {
    let all: Vec<u64> = (1..=COUNT).collect();
    let journal = open(image, boot, 40).unwrap();
    assert_eq!(journal.losses().unwrap(), [[0; 2]; 0], "{what}");
    let page = journal.history(0, usize::MAX).unwrap();
    assert!(page.missing.is_empty() && !page.gap, "{what}: {page:?}");
    assert_eq!(seqs(&journal), all, "{what}");
    for n in 1..COUNT {
        let shown = journal.show("plan", &format!("p{n}")).unwrap();
        assert_eq!(
            (&shown.payload["n"], shown.note),
            (&n.into(), None),
            "{what}"
        );
    }
    assert_eq!(journal.reservations().unwrap().len(), 1, "{what}");
    let report = journal.verify().unwrap();
    let counters = &report.counters;
    assert!(report.ok && counters.seq_gaps == 0, "{what}: {report:#?}");
    assert!(counters.out_of_order > 0, "{what}: {report:#?}");
    let is_told = |warning: &String| warning.contains("stand behind later ones");
    assert!(report.warnings.iter().any(is_told), "{what}: {report:#?}");
    let reader = open(image, boot, 43).unwrap();
    assert_eq!(paged(&reader, what), all, "{what}");
    // Whoever writes next takes no seq twice, leaves none out, and begins no segment for a loss.
    let receipt = &commit(&journal, vec![plan("p1", 9)])[0];
    assert_eq!(
        (receipt.seq, receipt.entity_rev),
        (Some(COUNT + 1), Some(2)),
        "{what}"
    );
    let segments = image.list(&events("")).unwrap().into_iter();
    let segments = segments.filter(|entry| entry.name.starts_with("seg-"));
    assert_eq!(segments.count(), 1, "{what}");
    journal.checkpoint().unwrap();
    let report = journal.verify().unwrap();
    assert!(
        report.ok && report.counters.seq_gaps == 0,
        "{what}: {report:#?}"
    );
}

#[test]
fn jn_09_records_out_of_order_are_here_and_nobody_calls_them_lost() {
    let disk = begun();
    for (at, order) in orders(&lines(&disk)).into_iter().enumerate() {
        let image = disk.fork();
        put_lines(&image, &order);
        for (boot, gone) in [
            (1, &[][..]),
            (2, &[][..]),
            (1, &["meta.json"][..]),
            (1, &["meta.json", "revisions.idx"][..]),
        ] {
            let image = image.fork();
            forget(&image, gone);
            check(
                &image,
                boot,
                &format!("order {at}, boot {boot}, without {gone:?}"),
            );
        }
    }
}

/// Somebody finds a lost line and puts it at the end of its segment: it is here again, for verify and for every reader.
#[test]
fn a_lost_record_that_is_put_back_in_another_place_is_lost_no_more() {
    let disk = begun();
    let whole = lines(&disk);
    for at in 0..whole.len() {
        let image = disk.fork();
        let mut less = whole.clone();
        let line = less.remove(at);
        put_lines(&image, &less);
        let journal = open(&image, 1, 50).unwrap();
        let lost = at as u64 + 1;
        // A reader brings the rest level, and the cache knows what is lost.
        let _ = journal.level();
        assert_eq!(journal.losses().unwrap(), [[lost, lost]]);
        less.push(line);
        put_lines(&image, &less);
        assert_eq!(journal.losses().unwrap(), [[0; 2]; 0], "seq {lost}");
        if lost < COUNT {
            check(&image, 1, &format!("seq {lost}, put last"));
        }
    }
}

/// Two revisions of one entity: the newest counts whatever the order is, and that the history contradicts itself is told.
#[test]
fn jn_14_revisions_out_of_order_never_regress_and_are_told() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    for n in 1..=3 {
        commit(&journal, vec![plan("a", n)]);
    }
    let whole = lines(&disk);
    for order in orders(&whole) {
        let image = disk.fork();
        put_lines(&image, &order);
        for gone in [&[][..], &["meta.json", "revisions.idx"][..]] {
            let image = image.fork();
            forget(&image, gone);
            let journal = open(&image, 1, 60).unwrap();
            let shown = journal.show("plan", "a").unwrap();
            assert_eq!((shown.entity_rev, &shown.payload["n"]), (3, &3.into()));
            let report = journal.verify().unwrap();
            assert!(!report.ok && report.counters.seq_gaps == 0, "{report:#?}");
            assert!(report.counters.rev_regressions > 0, "{report:#?}");
            assert_eq!(commit(&journal, vec![plan("a", 4)])[0].seq, Some(4));
        }
    }
}

/// Two writers that took the same seqs: a page never ends between records of one seq, so a reader sees each of them.
#[test]
fn jn_32_records_of_one_seq_are_shown_on_one_page() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    let rest: Vec<u8> = [("w_1-a", "b"), ("w_2-b", "c")]
        .into_iter()
        .flat_map(|(writer, id)| {
            (2..=3).flat_map(move |seq| {
                forged(seq, writer, &format!("{id}{seq}"), 1, &json!({"n": seq}))
            })
        })
        .collect();
    disk.tamper(Path::new(SEGMENT), |bytes| bytes.extend_from_slice(&rest));
    let reader = open(&disk, 1, 70).unwrap();
    let mut shown = Vec::new();
    for _ in 0..6 {
        let page = reader.events("reader", 1, false).unwrap();
        assert!(!page.gap, "{page:?}");
        for event in &page.events {
            let event: Value = serde_json::from_str(event.get()).unwrap();
            shown.push(event["item_id"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(shown, ["a", "b2", "c2", "b3", "c3"]);
}
