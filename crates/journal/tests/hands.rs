//! What hands do to a store: an edited file is kept, a link leads nowhere, a damaged checkpoint can be moved aside.
#![cfg(test)]

mod support;

use std::path::{Path, PathBuf};

use heddle_journal::disk::{Disk, MemDisk};
use heddle_journal::{Journal, JournalError};
use serde_json::json;
use support::power::{item, small};
use support::*;

fn file(name: &str) -> PathBuf {
    Path::new(ROOT).join("entities").join(name)
}

/// The texts in `quarantine/`.
fn kept(disk: &MemDisk) -> Vec<String> {
    let files = disk.files().into_iter();
    let kept = files.filter(|(path, _)| path.starts_with("/repo/.heddle/events/quarantine"));
    kept.map(|(_, bytes)| String::from_utf8_lossy(&bytes).into_owned())
        .collect()
}

#[test]
fn a_file_that_was_edited_by_hand_is_kept_before_the_next_record_writes_it() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    for id in ["a", "b", "c", "d", "e"] {
        commit(&journal, vec![plan(id, 1)]);
    }
    let by_hand = |text: &str| json!({"title": text, "n": 1}).to_string();
    let edit = |id: &str, text: &str| {
        disk.tamper(&file(&format!("plan/{id}.json")), |bytes| {
            *bytes = text.into();
        });
    };
    edit("a", &by_hand("hours of work"));
    let committed = journal.mutate(vec![plan("a", 2)]).unwrap();
    let told = committed.finish_told().unwrap();
    assert!(
        told.len() == 1 && told[0].starts_with("plan.a."),
        "{told:?}"
    );
    assert_eq!(kept(&disk), [by_hand("hours of work")]);
    assert_eq!(journal.show("plan", "a").unwrap().payload["n"], 2);
    // Deleted, or no JSON any more.
    edit("b", &by_hand("not to be lost"));
    commit(&journal, vec![delete("plan", "b")]);
    edit("c", "{ half a tho");
    commit(&journal, vec![plan("c", 2)]);
    let all = kept(&disk);
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all.contains(&by_hand("not to be lost")) && all.contains(&"{ half a tho".to_owned()));
    assert!(!disk.files().contains_key(&file("plan/b.json")));
    // What was edited and then recorded as it is need not be kept, and what nobody touched neither.
    edit("d", &json!({"title": "the plan d", "n": 2}).to_string());
    commit(&journal, vec![plan("d", 2)]);
    commit(&journal, vec![plan("e", 2)]);
    commit(&journal, vec![delete("plan", "e")]);
    commit(&journal, vec![plan("e", 3)]);
    assert_eq!(kept(&disk).len(), 3);
    // Where a deleted one was, a person has put something.
    commit(&journal, vec![delete("plan", "e")]);
    disk.write(&file("plan/e.json"), by_hand("mine").as_bytes())
        .unwrap();
    commit(&journal, vec![plan("e", 4)]);
    assert!(kept(&disk).contains(&by_hand("mine")));
    let report = journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
}

/// An ephemeral field is the file's own affair, and no edit.
#[test]
fn a_file_whose_ephemeral_fields_moved_is_not_kept_for_that() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    let claim = |status: &str, until: &str| {
        put("claim", "c", json!({"status": status, "expires_at": until}))
    };
    commit(&journal, vec![claim("claimed", "1")]);
    commit(&journal, vec![claim("claimed", "2")]);
    commit(&journal, vec![claim("released", "3")]);
    commit(&journal, vec![delete("claim", "c")]);
    assert_eq!(kept(&disk), [""; 0]);
}

#[test]
fn t_64_a_link_in_place_of_a_types_folder_leads_nothing_outside() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join(".heddle");
    let outside = folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let journal = real(&root, 1);
    commit(&journal, vec![plan("a", 1), plan("b", 1)]);
    let family = root.join("entities/plan");
    let listed = |at: &Path| -> Vec<(String, String)> {
        let mut all: Vec<_> = std::fs::read_dir(at)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let text = std::fs::read_to_string(entry.path()).unwrap();
                (entry.file_name().into_string().unwrap(), text)
            })
            .collect();
        all.sort();
        all
    };
    std::fs::remove_dir_all(&family).unwrap();
    std::fs::write(outside.join("a.json"), "somebody else's").unwrap();
    std::os::unix::fs::symlink(&outside, &family).unwrap();
    let before = listed(&outside);
    for change in [plan("a", 2), plan("new", 1), delete("plan", "a")] {
        let refused = journal.mutate_whole(vec![change]);
        let Err(JournalError::Refused(told)) = refused else {
            panic!("{refused:?}");
        };
        assert!(
            told.contains("entities/plan") && told.contains("rebuild"),
            "{told}"
        );
    }
    // Others go on, whatever must be compared first.
    let decision = || put("decision", "d", json!({"title": "d"}));
    commit(&journal, vec![decision()]);
    std::fs::remove_file(root.join("events/meta.json")).unwrap();
    std::fs::remove_file(root.join("events/revisions.idx")).unwrap();
    let again = |seed| {
        let world = world(std::sync::Arc::new(heddle_journal::disk::RealDisk), 2, seed);
        Journal::open(world, &root, who()).unwrap()
    };
    let journal = again(5);
    commit(&journal, vec![put("decision", "d", json!({"title": "e"}))]);
    assert_eq!(journal.show("plan", "a").unwrap().payload["n"], 1);
    journal.restore().unwrap();
    let report = journal.verify().unwrap();
    assert!(
        !report.ok && report.divergent.iter().all(|d| d.item_type == "plan"),
        "{report:#?}"
    );
    journal.redact(&item("plan", "b"), "asked for").unwrap();
    assert_eq!(listed(&outside), before);
    // Once it is gone the files come back.
    std::fs::remove_file(&family).unwrap();
    let journal = again(6);
    journal.restore().unwrap();
    assert!(journal.verify().unwrap().ok);
    assert_eq!(listed(&outside), before);
    assert!(family.join("a.json").exists());
}

#[test]
fn t_64_links_and_pipes_in_the_place_of_our_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join(".heddle");
    let journal = real(&root, 1);
    journal.mutate_whole(vec![plan("a", 1)]).unwrap();
    let segment = root.join("events/seg-00000000000000000001.jsonl");
    let other = folder.path().join("other");
    std::fs::hard_link(&segment, &other).unwrap();
    assert!(
        journal.mutate_whole(vec![plan("a", 2)]).is_err(),
        "a hard-linked segment"
    );
    std::fs::remove_file(&segment).unwrap();
    std::os::unix::fs::symlink(&other, &segment).unwrap();
    assert!(
        journal.mutate_whole(vec![plan("a", 2)]).is_err(),
        "a symbolic link"
    );
    std::fs::remove_file(&segment).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &segment,
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    assert!(journal.mutate_whole(vec![plan("a", 2)]).is_err(), "a pipe");
    std::fs::remove_file(&segment).unwrap();
    std::fs::rename(&other, &segment).unwrap();
    journal.mutate_whole(vec![plan("a", 2)]).unwrap();
    // The store itself behind a link.
    let linked = folder.path().join("linked");
    std::os::unix::fs::symlink(&root, &linked).unwrap();
    let world = world(std::sync::Arc::new(heddle_journal::disk::RealDisk), 1, 9);
    assert!(
        Journal::open(world, &linked, who()).is_err(),
        "a linked store"
    );
}

#[test]
fn a_damaged_checkpoint_is_moved_aside_by_the_doctor_whichever_it_is() {
    for damaged in [0_usize, 1, 2] {
        let disk = MemDisk::new();
        let journal = small(init(&disk), 1 << 20);
        for n in 0..3 {
            commit(&journal, vec![plan("a", n), plan("b", n)]);
            journal.checkpoint().unwrap();
        }
        let folder = journal.layout().checkpoints();
        let name = disk.list(&folder).unwrap()[damaged].name.clone();
        disk.tamper(&folder.join(&name), |bytes| bytes[30] ^= 1);
        let told = journal.examine().unwrap();
        assert_eq!(told.verified.counters.checkpoints_rejected, 1);
        assert!(told.next.contains("doctor quarantine"), "{}", told.next);
        let state = support::model::rebuilt(&journal, 0);
        let parked = journal.quarantine().unwrap();
        assert_eq!((parked.parked.len(), parked.checkpoints.len()), (0, 1));
        assert!(parked.checkpoints[0].starts_with(&name), "{parked:?}");
        assert_eq!(kept(&disk).len(), 1, "moved, never thrown away");
        let report = journal.verify().unwrap();
        assert!(report.ok, "{report:#?}");
        assert_eq!(support::model::rebuilt(&journal, 0), state);
        assert_eq!(journal.quarantine().unwrap().checkpoints, [""; 0]);
        // And it goes on: checkpoint, gc.
        commit(&journal, vec![plan("a", 9)]);
        journal.checkpoint().unwrap();
        journal.gc().unwrap();
        assert!(journal.verify().unwrap().ok);
    }
}

/// Git brings files of any name, and a cache can be edited: no number is reckoned with that no journal reaches.
#[test]
fn a_number_that_no_journal_reaches_is_nobodys_and_stops_nobody() {
    let events = Path::new(ROOT).join("events");
    for name in [
        "checkpoints/ckpt-18446744073709551615.json",
        "checkpoints/ckpt-18446744073709551614.json",
        "seg-18446744073709551615.jsonl",
    ] {
        for is_begun in [false, true] {
            let disk = MemDisk::new();
            let journal = init(&disk);
            if is_begun {
                commit(&journal, vec![plan("a", 1)]);
            }
            disk.write(&events.join(name), b"{}").unwrap();
            let writer = open(&disk, 2, 30).unwrap();
            let receipt = commit(&writer, vec![plan("a", 2)]).remove(0);
            assert_eq!(receipt.seq, Some(1 + u64::from(is_begun)), "{name}");
            let shown = open(&disk, 2, 31).unwrap().show("plan", "a").unwrap();
            assert_eq!(shown.payload["n"], 2, "{name}");
        }
    }
    // The largest that there can be leaves no room behind it.
    let disk = MemDisk::new();
    drop(init(&disk));
    let last = "checkpoints/ckpt-00009007199254740992.json";
    disk.write(&events.join(last), b"{}").unwrap();
    let told = open(&disk, 1, 30).unwrap().mutate_whole(vec![plan("a", 1)]);
    let told = told.unwrap_err().to_string();
    assert!(told.contains("forged"), "{told}");
}

/// The same in a line, and in what stands beside the journal.
#[test]
fn a_forged_line_and_an_edited_cache_end_no_count() {
    let events = Path::new(ROOT).join("events");
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    let forged = forged(u64::MAX, "w_1-forger", "a", 9, &json!({"n": 9}));
    let segment = events.join("seg-00000000000000000001.jsonl");
    disk.tamper(&segment, |bytes| bytes.extend_from_slice(&forged));
    assert_eq!(journal.show("plan", "a").unwrap().payload["n"], 1);
    assert_eq!(commit(&journal, vec![plan("a", 2)])[0].entity_rev, Some(2));
    assert_eq!(journal.history(u64::MAX, 9).unwrap().events.len(), 0);
    journal.events("r", 9, false).unwrap();
    let far = u64::MAX.to_string();
    for (name, from, to) in [
        (
            "meta.json",
            "\"next_seq\":",
            format!("\"next_seq\":{far},\"was\":"),
        ),
        (
            "meta.json",
            "\"clean\":",
            format!("\"lost\":{{\"seqs\":[[5,{far}]]}},\"clean\":"),
        ),
        (
            "meta.json",
            "\"clean\":",
            "\"lost\":{\"seqs\":[[5,2]]},\"clean\":".to_owned(),
        ),
        (
            "cursors/r.json",
            "\"last_seq\":",
            format!("\"last_seq\":{far},\"was\":"),
        ),
    ] {
        let image = disk.fork();
        assert!(image.tamper(&events.join(name), |bytes| {
            if name == "meta.json" {
                // A checksum of its own would be wrong, and the cache not looked at.
                unstamp(bytes);
            }
            let text = String::from_utf8(bytes.clone()).unwrap();
            assert!(text.contains(from), "{text}");
            *bytes = text.replacen(from, &to, 1).into_bytes();
        }));
        let journal = open(&image, 1, 40).unwrap();
        assert_eq!(journal.show("plan", "a").unwrap().payload["n"], 2, "{to}");
        journal.events("r", 9, false).unwrap();
        assert_eq!(journal.losses().unwrap(), [[0; 2]; 0], "{to}");
        assert_eq!(commit(&journal, vec![plan("a", 3)])[0].entity_rev, Some(3));
    }
    let list = events.join("reserved.json");
    disk.write(
        &list,
        format!("{{\"v\":1,\"ids\":[\"rsv_x\"],\"seq\":{far}}}").as_bytes(),
    )
    .unwrap();
    disk.remove(&events.join("meta.json")).unwrap();
    disk.remove(&events.join("revisions.idx")).unwrap();
    assert_eq!(commit(&journal, vec![plan("a", 3)])[0].entity_rev, Some(3));
}

/// `touch`: no record is behind the name, and the next one does not jump to it.
#[test]
fn an_empty_segment_of_a_far_number_is_named_and_skips_no_seq() {
    for room in [&b""[..], b"\n\n\n"] {
        let disk = MemDisk::new();
        let journal = init(&disk);
        commit(&journal, vec![plan("a", 1)]);
        let stray = Path::new(ROOT).join("events/seg-00000000000000000099.jsonl");
        disk.write(&stray, room).unwrap();
        let report = journal.verify().unwrap();
        let named = |warning: &String| warning.contains("seg-00000000000000000099.jsonl");
        assert!(report.warnings.iter().any(named), "{report:#?}");
        let journal = open(&disk, 1, 40).unwrap();
        let told = commit(&journal, vec![plan("b", 1)]);
        assert_eq!(told[0].seq, Some(2));
        assert!(!disk.files().contains_key(&stray));
        assert_eq!(seqs(&journal), [1, 2]);
        let report = open(&disk, 1, 41).unwrap().verify().unwrap();
        assert!(
            report.ok && !report.warnings.iter().any(named),
            "{report:#?}"
        );
    }
}

/// Nothing is wrong with the request: whoever reads the error runs the same again.
#[test]
fn a_mode_that_somebody_changed_meanwhile_is_a_conflict_and_no_refusal() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    let mut other = open(&disk, 1, 42).unwrap();
    other.roll_back(heddle_journal::action::Mode::Off).unwrap();
    let told = journal.mutate_whole(vec![plan("b", 1)]).unwrap_err();
    let is_conflict = matches!(told, heddle_journal::JournalError::ModeChanged { .. });
    assert!(is_conflict, "{told:?}");
}

/// No seq is skipped for a name that somebody gave, and no loss is told that never was.
#[test]
fn a_segment_that_was_renamed_to_a_far_number_is_told_and_nothing_is_written_behind_it() {
    let disk = MemDisk::new();
    let journal = small(init(&disk), 900);
    for n in 0..12 {
        commit(&journal, vec![plan("a", n)]);
    }
    let last = |disk: &MemDisk| {
        let files = disk.files().into_keys();
        let mut names: Vec<PathBuf> = files
            .filter(|p| p.to_string_lossy().contains("/seg-"))
            .collect();
        names.sort();
        names.pop().unwrap()
    };
    let right = last(&disk);
    let receipt = commit(&journal, vec![plan("a", 12)]).remove(0);
    assert_eq!(last(&disk), right, "it has room for one more");
    drop(journal);
    let far = right.with_file_name("seg-00000000000000000900.jsonl");
    disk.rename(&right, &far).unwrap();
    for boot in [1, 2] {
        let image = disk.fork();
        let journal = open(&image, boot, 50).unwrap();
        let report = journal.verify().unwrap();
        assert!(!report.ok, "{report:#?}");
        let name = right.file_name().unwrap().to_str().unwrap();
        let told = report.warnings.iter().any(|told| told.contains(name));
        assert!(told, "{report:#?}");
        let refused = journal
            .mutate_whole(vec![plan("b", 1)])
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("mv ") && refused.contains(name),
            "{refused}"
        );
        // As it is said.
        image.rename(&far, &right).unwrap();
        let journal = open(&image, boot, 51).unwrap();
        let next = commit(&journal, vec![plan("b", 1)]).remove(0);
        assert_eq!(next.seq, receipt.seq.map(|seq| seq + 1));
        let report = journal.verify().unwrap();
        assert!(report.ok, "{report:#?}");
    }
}
