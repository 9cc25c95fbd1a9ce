//! What is gone at the beginning or the end of a journal, where checkpoints, an archive or the index still know of it.
#![cfg(test)]

mod support;

use std::path::Path;

use heddle_journal::disk::{Disk, MemDisk};
use heddle_journal::{Earlier, Journal, Settings};
use support::*;

const SEGMENT: &str = "/repo/.heddle/events/seg-00000000000000000001.jsonl";

fn forget(disk: &MemDisk, names: &[&str]) {
    for name in names {
        let path = Path::new(ROOT).join("events").join(name);
        disk.remove(&path).unwrap();
    }
}

/// A store of several segments with checkpoints between them.
fn rolled() -> (MemDisk, Journal) {
    let disk = MemDisk::new();
    let journal = init(&disk).with_settings(Settings {
        roll_bytes: 1500,
        ..quick()
    });
    for n in 0..20 {
        commit(&journal, vec![plan(&format!("p{n}"), 1)]);
    }
    (disk, journal)
}

#[test]
fn jn_11_a_lost_first_segment_is_told_though_checkpoints_cover_its_state() {
    let (disk, journal) = rolled();
    assert!(journal.verify().unwrap().ok);
    let oldest = Path::new(SEGMENT);
    disk.remove(oldest).unwrap();
    for names in [
        &[][..],
        &["meta.json"][..],
        &["meta.json", "revisions.idx"][..],
    ] {
        let image = disk.fork();
        forget(&image, names);
        let reader = open(&image, 1, 50).unwrap();
        reader.level().unwrap();
        let report = reader.verify().unwrap();
        assert!(!report.ok, "{names:?}: {report:#?}");
        assert_eq!(report.counters.seq_gaps, 1, "{report:#?}");
        assert_eq!(report.divergent, [], "the state is whole");
        // Nothing is wrong with what is shown; the history is told to be lost by whoever reads it.
        assert_eq!(reader.show("plan", "p0").unwrap().note, None);
        let page = reader.events("r", 100, true).unwrap();
        assert!(page.gap && page.missing[0][0] == 1, "{:?}", page.missing);
        let begins = reader.begins_at(0).unwrap().unwrap();
        assert_eq!(begins.earlier, Earlier::Lost);
        // Accepted it stays accepted, also behind a newer checkpoint and without the caches.
        let told = reader.accept_gaps("the disk").unwrap();
        assert_eq!(told.accepted.len(), 1);
        commit(&reader, vec![plan("later", 1)]);
        reader.checkpoint().unwrap();
        assert!(reader.verify().unwrap().ok);
        forget(&image, &["meta.json", "revisions.idx"]);
        let reader = open(&image, 1, 51).unwrap();
        reader.level().unwrap();
        let report = reader.verify().unwrap();
        assert!(report.ok, "{report:#?}");
        assert_eq!(report.counters.seq_gaps_accepted, 1);
    }
    // What gc moved is where it belongs; and without the archive it is lost.
    let (disk, journal) = rolled();
    assert!(journal.gc().unwrap().segments > 0);
    assert!(journal.verify().unwrap().ok);
    assert_eq!(
        journal.begins_at(0).unwrap().unwrap().earlier,
        Earlier::Archived
    );
    let archive = journal.layout().archived_segment(1);
    disk.remove(&archive).unwrap();
    assert_eq!(journal.verify().unwrap().counters.seq_gaps, 1);
}

/// Behind what gc has moved a segment is gone: that is lost, and the rest archived. Also one of the archive's own.
#[test]
fn jn_11_a_segment_that_is_lost_beside_archived_ones_is_not_called_archived() {
    let (disk, journal) = rolled();
    for n in 0..20 {
        commit(&journal, vec![plan(&format!("q{n}"), 1)]);
    }
    assert!(journal.gc().unwrap().segments > 1);
    let all = |folder: &Path| -> Vec<u64> {
        let entries = disk.list(folder).unwrap().into_iter();
        let numbers = entries.filter_map(|e| e.name.strip_prefix("seg-")?.get(..20)?.parse().ok());
        let mut numbers: Vec<u64> = numbers.collect();
        numbers.sort_unstable();
        numbers
    };
    let live = all(&journal.layout().events());
    let archived = all(&journal.layout().archive());
    let fresh = |disk: &MemDisk| {
        let reader = open(disk, 1, 50).unwrap();
        let page = reader.events("fresh", 1, true).unwrap();
        let begins = reader.begins_at(0).unwrap().unwrap();
        assert!(page.gap && page.summary.is_some(), "{page:?}");
        assert_eq!(begins.earlier, Earlier::Archived);
        assert_eq!(begins.lost, page.missing);
        page.missing
    };
    assert_eq!(fresh(&disk), [[0; 2]; 0]);
    let image = disk.fork();
    image.remove(&journal.layout().segment(live[0])).unwrap();
    assert_eq!(fresh(&image), [[live[0], live[1] - 1]]);
    let image = disk.fork();
    let second = journal.layout().archived_segment(archived[1]);
    image.remove(&second).unwrap();
    let next = archived.get(2).copied().unwrap_or(live[0]);
    assert_eq!(fresh(&image), [[archived[1], next - 1]]);
}

/// A clone has no records before its first, and lost none; also when git takes its checkpoint away later.
#[test]
fn the_beginning_of_a_clone_is_no_loss() {
    let (first, journal) = rolled();
    journal.checkpoint().unwrap();
    for has_news in [false, true] {
        let clone = MemDisk::new();
        for (path, bytes) in first.files() {
            let inside = path.strip_prefix(ROOT).unwrap();
            if !inside.starts_with("events") || inside.starts_with("events/checkpoints") {
                clone.create_dir(path.parent().unwrap()).unwrap();
                clone.write(&path, &bytes).unwrap();
            }
        }
        if has_news {
            let path = Path::new(ROOT).join("entities/plan/p1.json");
            clone.tamper(&path, |bytes| *bytes = br#"{"title":"news"}"#.to_vec());
        }
        let journal = open(&clone, 1, 60).unwrap();
        commit(&journal, vec![plan("mine", 1)]);
        let report = journal.verify().unwrap();
        assert!(report.ok, "{report:#?}");
        assert_eq!(
            journal.begins_at(0).unwrap().unwrap().earlier,
            Earlier::NotOurs
        );
        assert_eq!(journal.accept_gaps("none").unwrap().accepted.len(), 0);
        // A checkpoint of its own, and those of its origin go.
        let own = journal.checkpoint().unwrap().file;
        let folder = Path::new(ROOT).join("events/checkpoints");
        for entry in clone.list(&folder).unwrap() {
            if entry.name != own {
                clone.remove(&folder.join(entry.name)).unwrap();
            }
        }
        let report = journal.verify().unwrap();
        assert!(report.ok, "news {has_news}: {report:#?}");
    }
}

/// The index is written behind the records as the cache is: it remembers what the cache is gone with.
#[test]
fn jn_11_without_meta_json_the_index_tells_every_reader_of_a_lost_end() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    let bytes = disk.files()[Path::new(SEGMENT)].clone();
    commit(&journal, vec![plan("late", 1)]);
    drop(journal);
    let whole = disk.fork();
    disk.tamper(Path::new(SEGMENT), |now| *now = bytes);
    whole.remove(Path::new(SEGMENT)).unwrap();
    for (image, lost) in [(disk, [2, 2]), (whole, [1, 2])] {
        forget(&image, &["meta.json"]);
        let before = image.files();
        let reader = open(&image, 1, 70).unwrap();
        assert_eq!(reader.losses().unwrap(), [lost]);
        let shown = reader.show("plan", "late");
        let is_told = match &shown {
            Ok(shown) => shown.note.is_some_and(|note| note.contains("lost")),
            Err(error) => error.to_string().contains("lost"),
        };
        assert!(is_told, "{shown:?}");
        assert_eq!(reader.history(0, 10).unwrap().missing, [lost]);
        assert!(reader.events("r", 10, true).unwrap().gap);
        assert!(!reader.verify().unwrap().ok);
        assert_eq!(image.files(), before, "a reader wrote");
        // No seq and no revision comes twice.
        let writer = open(&image, 1, 71).unwrap();
        let receipt = &commit(&writer, vec![plan("late", 2)])[0];
        assert_eq!(receipt.seq, Some(3));
        assert!(receipt.entity_rev >= Some(2), "{receipt:?}");
        assert_eq!(writer.losses().unwrap(), [lost]);
    }
}
