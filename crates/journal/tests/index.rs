//! A revision index that is not the one that was written last: a page of zeros, an older copy. Never "not here", and never a
//! revision twice.
#![cfg(test)]

mod support;

use std::path::{Path, PathBuf};

use heddle_journal::Cause;
use heddle_journal::disk::{Disk, MemDisk};
use support::*;

const PAGE: usize = 4096;

fn index() -> PathBuf {
    Path::new(ROOT).join("events/revisions.idx")
}

#[test]
fn jn_11_jn_15_a_page_of_zeros_in_the_index_hides_no_entity_and_gives_no_revision_twice() {
    let whole = MemDisk::new();
    let journal = init(&whole);
    let ids: Vec<String> = (0..40).map(|n| format!("p{n}")).collect();
    for n in 1..=2 {
        commit(&journal, ids.iter().map(|id| plan(id, n)).collect());
    }
    drop(journal);
    let pages = whole.files()[&index()].len().div_ceil(PAGE);
    assert!(pages > 2);
    for page in 0..pages {
        let disk = whole.fork();
        disk.tamper(&index(), |bytes| {
            let end = bytes.len().min((page + 1) * PAGE);
            bytes[page * PAGE..end].fill(0);
        });
        let reader = open(&disk, 1, 40).unwrap();
        for id in &ids {
            let shown = reader.show("plan", id).unwrap();
            assert_eq!(
                (shown.entity_rev, shown.note),
                (2, None),
                "page {page}: {id}"
            );
        }
        // Those that grow the index as well.
        for (seed, id) in (41..).zip(&ids) {
            let image = disk.fork();
            let journal = open(&image, 1, seed).unwrap();
            let receipt = commit(&journal, vec![plan(id, 9)]).remove(0);
            assert_eq!(receipt.entity_rev, Some(3), "page {page}: {id}");
            // What nobody asked for stays told, and there is a way out.
            let report = journal.verify().unwrap();
            assert!(
                report.divergent.iter().all(|one| one.cause == Cause::File),
                "{report:#?}"
            );
            journal.restore().unwrap();
            assert!(journal.verify().unwrap().ok, "page {page}: {id}");
        }
        let image = disk.fork();
        let journal = open(&image, 1, 90).unwrap();
        commit(
            &journal,
            (0..90).map(|n| plan(&format!("q{n}"), 1)).collect(),
        );
        let report = journal.verify().unwrap();
        assert!(report.ok, "page {page}: {report:#?}");
    }
}

/// A backup puts one file back, or a person does: its slots are sound, and it knows less than the cache.
#[test]
fn jn_15_an_older_copy_of_the_index_gives_no_revision_twice_and_hides_nothing() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1), plan("d", 1)]);
    let older = disk.files()[&index()].clone();
    commit(&journal, vec![plan("a", 2), plan("b", 1)]);
    commit(&journal, vec![delete("plan", "d")]);
    for (boot, is_gone) in [(1, false), (2, false), (1, true)] {
        let disk = disk.fork();
        if is_gone {
            disk.remove(&index()).unwrap();
        } else {
            disk.tamper(&index(), |bytes| bytes.clone_from(&older));
        }
        let image = disk.fork();
        let reader = open(&image, boot, 40).unwrap();
        assert_eq!(reader.show("plan", "b").unwrap().entity_rev, 1);
        let shown = reader.show("plan", "a").unwrap();
        assert_eq!((shown.entity_rev, shown.note), (2, None));
        assert!(reader.show("plan", "d").is_err(), "it was deleted");
        let report = reader.verify().unwrap();
        assert!(report.ok, "a reader puts it right: {report:#?}");
        // Where nobody read in between, and where the lock cannot be had.
        let image = disk.fork();
        let guard = image
            .try_lock(&Path::new(ROOT).join("events/lock"))
            .unwrap();
        let reader = open(&image, boot, 41).unwrap();
        assert_eq!(reader.show("plan", "b").unwrap().entity_rev, 1);
        drop(guard);
        let writer = open(&image, boot, 42).unwrap();
        let told = commit(&writer, vec![plan("a", 3), plan("b", 2), plan("d", 2)]);
        let revs: Vec<_> = told.iter().map(|one| one.entity_rev).collect();
        assert_eq!(revs, [Some(3), Some(2), Some(3)]);
        let report = writer.verify().unwrap();
        assert!(report.ok, "{report:#?}");
        assert_eq!((report.counters.rev_ties, report.counters.rev_gaps), (0, 0));
    }
}
