//! A page of the revision index that came back as zeros, in the same boot: damage, and never "not here".
#![cfg(test)]

mod support;

use std::path::{Path, PathBuf};

use heddle_journal::Cause;
use heddle_journal::disk::MemDisk;
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
