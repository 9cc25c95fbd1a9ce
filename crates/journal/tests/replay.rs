//! Replay: duplicate seqs, damaged lines, checkpoints that lie, gc, migrations.
#![cfg(test)]

mod support;

use std::path::{Path, PathBuf};

use heddle_journal::JournalError;
use heddle_journal::disk::{Disk, MemDisk};
use heddle_journal::record::decode;
use heddle_journal::registry::{ItemType, Registry};
use serde_json::{Value, json};
use support::model::rebuilt;
use support::*;

const SEGMENT: &str = "/repo/.heddle/events/seg-00000000000000000001.jsonl";

fn line(seq: u64, writer: &str, id: &str, rev: u64, n: u64) -> Vec<u8> {
    forged(seq, writer, id, rev, &json!({"n": n}))
}

/// A store whose only segment holds these bytes.
fn holding(bytes: Vec<u8>) -> MemDisk {
    let disk = MemDisk::new();
    drop(init(&disk));
    disk.create(Path::new(SEGMENT)).unwrap();
    disk.tamper(Path::new(SEGMENT), |segment| *segment = bytes);
    disk
}

/// What the newest image of `x` is, and the counters: identical, conflicting, seq, ties, gaps, regress.
fn outcome(lines: &[Vec<u8>]) -> (u64, [u64; 6], bool) {
    let journal = open(&holding(lines.concat()), 1, 2).unwrap();
    let replay = journal.rebuild(0).unwrap().replay;
    let c = &replay.counters;
    let counts = [
        c.duplicate_identical,
        c.duplicate_conflicting,
        c.duplicate_seq,
        c.rev_ties,
        c.rev_gaps,
        c.rev_regressions,
    ];
    let world = rebuilt(&journal, 0);
    let n = world[&("plan".into(), "x".into())].1.as_ref().unwrap()["n"]
        .as_u64()
        .unwrap();
    (n, counts, replay.flagged.is_empty())
}

#[test]
fn jn_14_row_5_row_6_the_five_cases_of_a_seq_that_comes_twice() {
    let first = line(1, "w1", "x", 1, 1);
    // 1: the same record again.
    assert_eq!(
        outcome(&[first.clone(), first.clone()]),
        (1, [1, 0, 0, 0, 0, 0], true)
    );
    // 2: one writer, one seq, other content: both, the later wins, the entity is flagged.
    let own = line(1, "w1", "x", 2, 2);
    assert_eq!(
        outcome(&[first.clone(), own]),
        (2, [0, 1, 0, 0, 0, 0], false)
    );
    // 3: two writers: both in file order.
    let other = line(1, "w2", "x", 2, 2);
    assert_eq!(
        outcome(&[first.clone(), other]),
        (2, [0, 0, 1, 0, 0, 0], true)
    );
    // 4: with one revision: the later line wins wholesale, flagged.
    let tie = line(1, "w2", "x", 1, 2);
    assert_eq!(
        outcome(&[first.clone(), tie]),
        (2, [0, 0, 1, 1, 0, 0], false)
    );
    // 5: a revision is missing.
    let gap = line(2, "w1", "x", 5, 2);
    assert_eq!(
        outcome(&[first.clone(), gap]),
        (2, [0, 0, 0, 0, 1, 0], true)
    );
    // And one below the newest never regresses.
    let low = line(3, "w1", "x", 1, 3);
    let newer = line(2, "w1", "x", 2, 2);
    assert_eq!(
        outcome(&[first, newer, low]),
        (2, [0, 0, 0, 0, 0, 1], false)
    );
}

#[test]
fn jn_12_row_20_a_malformed_line_in_the_middle_is_skipped_and_reported() {
    let lines = [
        line(1, "w", "x", 1, 1),
        b"\n{\"v\":2,oops\n".to_vec(),
        line(2, "w", "x", 2, 2),
    ];
    let journal = open(&holding(lines.concat()), 1, 2).unwrap();
    let report = journal.verify().unwrap();
    assert_eq!((report.ok, report.counters.damaged_lines), (false, 1));
    assert_eq!(rebuilt(&journal, 0)[&("plan".into(), "x".into())].0, 2);
    // A writer does not explain away what it did not leave.
    commit(&journal, vec![plan("y", 1)]);
    assert_eq!(journal.verify().unwrap().counters.damaged_lines, 1);
}

/// JN-31, row 14: every time stamp replaced by noise, the checksums renewed: the same state.
#[test]
fn jn_31_row_14_time_stamps_order_nothing() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    for n in 1..=6 {
        commit(&journal, vec![plan("a", n), plan(&format!("b{n}"), n)]);
    }
    let before = rebuilt(&journal, 0);
    disk.tamper(Path::new(SEGMENT), |bytes| {
        let mut noisy = Vec::new();
        for (n, line) in bytes
            .split(|b| *b == b'\n')
            .filter(|l| !l.is_empty())
            .enumerate()
        {
            let (mut record, _) = decode(line).unwrap();
            record.ts = format!("{}-01-01T00:00:00.000Z", 9999 - n).into();
            record.encode_into(&mut noisy).unwrap();
        }
        *bytes = noisy;
    });
    assert_eq!(rebuilt(&journal, 0), before);
}

type Damage = fn(&mut Vec<u8>);

/// Everything that is unsound about a checkpoint: the one before serves, and verify says so.
#[test]
fn row_9_jn_20_t_67_a_damaged_checkpoint_falls_back_and_is_reported() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    for n in 1..=3 {
        commit(&journal, vec![plan("a", n), plan("b", n)]);
        journal.checkpoint().unwrap();
    }
    commit(&journal, vec![delete("plan", "b")]);
    let whole = rebuilt(&journal, 0);
    let newest = disk
        .files()
        .into_keys()
        .filter(|p| is(p, "ckpt-"))
        .max()
        .unwrap();
    let damages: [Damage; 6] = [
        Vec::clear,
        |bytes| bytes.truncate(bytes.len() / 2),
        |bytes| bytes[60] ^= 4,
        |bytes| bytes.extend_from_slice(b"\n"),
        |bytes| bytes.splice(0..0, *b"<<<<<<< HEAD\n").for_each(drop),
        |bytes| {
            let text = String::from_utf8(bytes.clone()).unwrap();
            *bytes = text.replace("\"n\":3", "\"n\":4").into_bytes();
        },
    ];
    for damage in damages {
        let image = disk.fork();
        image.tamper(&newest, damage);
        let reader = open(&image, 1, 4).unwrap();
        assert_eq!(rebuilt(&reader, 0), whole);
        assert!(
            reader.rebuild(0).unwrap().from.is_some(),
            "the second newest serves"
        );
        let report = reader.verify().unwrap();
        assert_eq!(
            (report.ok, report.counters.checkpoints_rejected),
            (false, 1)
        );
    }
    // An old checkpoint under the newest name: sealed, but not the one that the journal knows.
    let oldest = disk
        .files()
        .into_iter()
        .find(|(p, _)| is(p, "ckpt-"))
        .unwrap()
        .1;
    let image = disk.fork();
    image.tamper(&newest, |bytes| *bytes = oldest);
    assert_eq!(rebuilt(&open(&image, 1, 4).unwrap(), 0), whole);
    assert!(!open(&image, 1, 4).unwrap().verify().unwrap().ok);
}

fn is(path: &Path, prefix: &str) -> bool {
    path.file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .starts_with(prefix)
}

fn live_segments(disk: &MemDisk) -> Vec<PathBuf> {
    let all = disk.files().into_keys();
    all.filter(|p| is(p, "seg-") && !p.to_string_lossy().contains("archive"))
        .collect()
}

#[test]
fn jn_17_jn_21_jn_26_c24_gc_keeps_what_the_second_newest_checkpoint_needs() {
    let disk = MemDisk::new();
    let journal = init(&disk).with_settings(heddle_journal::Settings {
        roll_bytes: 2000,
        ..quick()
    });
    let large = |n: u64| {
        put(
            "handoff",
            "h",
            json!({"summary": format!("{n}{}", "x".repeat(70_000))}),
        )
    };
    commit(&journal, vec![large(1), plan("doomed", 1)]);
    commit(&journal, vec![large(2), delete("plan", "doomed")]);
    for n in 1..=40 {
        commit(&journal, vec![plan("a", n), plan("b", n)]);
    }
    assert!(live_segments(&disk).len() > 5);
    let sealed: Vec<_> = live_segments(&disk)
        .iter()
        .map(|p| disk.files()[p].clone())
        .collect();
    let whole = rebuilt(&journal, 0);
    let collected = journal.gc().unwrap();
    assert!(
        collected.segments > 2 && collected.checkpoints > 2,
        "{collected:?}"
    );
    assert_eq!(collected.blobs, 1, "the first handoff is named by nobody");
    assert_eq!(
        journal.gc().unwrap().segments,
        0,
        "a second run finds nothing"
    );
    // JN-17: moved, not changed.
    let after: Vec<_> = disk
        .files()
        .into_iter()
        .filter(|(p, _)| is(p, "seg-"))
        .map(|(_, b)| b)
        .collect();
    assert!(sealed.iter().all(|bytes| after.contains(bytes)));
    for skip in [0, 1, usize::MAX] {
        assert_eq!(rebuilt(&journal, skip), whole, "skip {skip}");
    }
    // The archive may go altogether, and the newest checkpoint too.
    let image = disk.fork();
    for path in image
        .files()
        .into_keys()
        .filter(|p| p.to_string_lossy().contains("archive"))
    {
        image.remove(&path).unwrap();
    }
    let newest = image
        .files()
        .into_keys()
        .filter(|p| is(p, "ckpt-"))
        .max()
        .unwrap();
    image.tamper(&newest, |bytes| bytes[100] ^= 1);
    assert_eq!(rebuilt(&open(&image, 1, 6).unwrap(), 0), whole);
    // C24: the revision of what was deleted before the floor goes on.
    assert_eq!(
        commit(&journal, vec![plan("doomed", 9)])[0].entity_rev,
        Some(3)
    );
    assert_eq!(journal.show("handoff", "h").unwrap().entity_rev, 2);
    assert!(journal.verify().unwrap().ok);
}

#[test]
fn jn_21_without_two_sound_checkpoints_nothing_moves() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    journal.checkpoint().unwrap();
    assert_eq!(journal.gc().unwrap().floor_seq, None);
    commit(&journal, vec![plan("a", 2)]);
    journal.checkpoint().unwrap();
    let newest = disk
        .files()
        .into_keys()
        .filter(|p| is(p, "ckpt-"))
        .max()
        .unwrap();
    disk.tamper(&newest, |bytes| bytes[50] ^= 1);
    assert_eq!(
        journal.gc().unwrap().floor_seq,
        None,
        "a damaged one counts for nothing"
    );
}

/// A clone of the repository brings projections and checkpoints, no segments (J2).
#[test]
fn j2_a_bare_clone_is_restored_from_its_checkpoint_and_goes_on_behind_it() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1), plan("b", 1)]);
    commit(&journal, vec![delete("plan", "b")]);
    journal.checkpoint().unwrap();
    let whole = rebuilt(&journal, 0);
    let clone = disk.fork();
    for path in clone.files().into_keys() {
        let name = path.to_string_lossy();
        if name.contains("/events/") && !name.contains("/checkpoints/") {
            clone.remove(&path).unwrap();
        }
    }
    clone.remove(&Path::new(ROOT).join("events/lock")).unwrap();
    let restored = open(&clone, 9, 9).unwrap();
    assert_eq!(rebuilt(&restored, 0), whole);
    assert_eq!(restored.show("plan", "a").unwrap().entity_rev, 1);
    let receipt = &commit(&restored, vec![plan("b", 2)])[0];
    // Behind the note that says where the clone's own records begin.
    assert_eq!((receipt.seq, receipt.entity_rev), (Some(5), Some(3)));
    let after = rebuilt(&restored, 0);
    assert_eq!(after[&("plan".into(), "b".into())].0, 3);
    // What only the checkpoint knows is still known once the clone has records of its own.
    assert_eq!(
        after[&("plan".into(), "a".into())],
        whole[&("plan".into(), "a".into())]
    );
    assert!(restored.verify().unwrap().ok);
}

fn second_version() -> Registry {
    let mut registry = Registry::builtin().unwrap();
    let schema = br#"{"type":"object","required":["name"],"x-schema-version":2}"#;
    let item_type = ItemType::parse("plan", schema).unwrap();
    registry.put(item_type.with_migration(1, |mut object| {
        let title = object.remove("title").ok_or("it has no title")?;
        object.insert("name".into(), title);
        Ok(object)
    }));
    registry
}

#[test]
fn jn_34_old_payloads_replay_and_a_newest_that_fails_leaves_its_projection() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("old", 1)]);
    commit(&journal, vec![put("plan", "bad", json!({"no_title": 1}))]);
    let newer = open(&disk, 1, 3).unwrap().with_registry(second_version());
    disk.remove(Path::new("/repo/.heddle/events/meta.json"))
        .unwrap();
    let before = disk.files()[Path::new("/repo/.heddle/entities/plan/bad.json")].clone();
    assert_eq!(
        newer.show("plan", "old").unwrap().payload["name"],
        json!("the plan old")
    );
    assert!(matches!(
        newer.show("plan", "bad"),
        Err(JournalError::Entity { .. })
    ));
    let after = disk.files()[Path::new("/repo/.heddle/entities/plan/bad.json")].clone();
    assert_eq!(before, after, "the projection stays where it was");
    let report = newer.verify().unwrap();
    assert_eq!((report.ok, report.counters.invalid_documents), (false, 1));
    // A checkpoint lifts what can be read to the version of this build.
    let file = newer.checkpoint().unwrap().file;
    let path = Path::new("/repo/.heddle/events/checkpoints").join(file);
    let text = String::from_utf8(disk.files()[&path].clone()).unwrap();
    assert!(text.contains("\"name\":\"the plan old\"") && text.contains("no_title"));
    // And it can be mended by writing it anew.
    commit(
        &newer,
        vec![put(
            "plan",
            "bad",
            json!({"name": "good", "schema_version": 2}),
        )],
    );
    assert!(newer.verify().unwrap().ok);
}

#[test]
fn t_60_a_projection_edited_by_hand_is_drift_and_never_truth() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    let path = Path::new("/repo/.heddle/entities/plan/a.json");
    disk.tamper(path, |bytes| {
        *bytes = br#"{"title":"mine","n":99}"#.to_vec();
    });
    let report = journal.verify().unwrap();
    assert!(!report.ok && report.divergent[0].item_id == "a");
    assert_eq!(
        rebuilt(&journal, 0)[&("plan".into(), "a".into())]
            .1
            .as_ref()
            .unwrap()["n"],
        1
    );
    disk.write(
        Path::new("/repo/.heddle/entities/plan/stranger.json"),
        b"{}",
    )
    .unwrap();
    assert_eq!(journal.verify().unwrap().divergent.len(), 2);
    let seen: Value = serde_json::from_slice(&disk.files()[path]).unwrap();
    assert_eq!(seen["n"], 99, "verify changes nothing");
}

/// A large state is not written anew for every segment: that would grow with the square of what is recorded.
#[test]
fn jn_20_checkpoints_of_a_large_state_cost_in_proportion_to_what_is_recorded() {
    let disk = MemDisk::new();
    let journal = init(&disk).with_settings(heddle_journal::Settings {
        roll_bytes: 2_000,
        every_roll_bytes: 4_000,
        ..quick()
    });
    for n in 0..300 {
        commit(&journal, vec![plan(&format!("p{n}"), n)]);
    }
    let files = disk.files();
    let size = |part: &str| {
        let named = files
            .iter()
            .filter(|(path, _)| path.to_string_lossy().contains(part));
        named.fold((0, 0), |(count, sum), (_, bytes)| {
            (count + 1, sum + bytes.len())
        })
    };
    let ((segments, recorded), (checkpoints, states)) = (size("/seg-"), size("/ckpt-"));
    assert!(
        checkpoints > 2 && checkpoints * 2 < segments,
        "{checkpoints} of {segments}"
    );
    assert!(states < 3 * recorded, "{states} for {recorded}");
    let report = journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
    let heads = |skip| journal.rebuild(skip).unwrap().replay.head_seq;
    assert_eq!(heads(0), heads(usize::MAX));
}
