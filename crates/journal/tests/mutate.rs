//! Writing: order of I/O, seqs, revisions, tombstones, ephemeral fields, unannotated changes, blobs.
#![cfg(test)]

mod support;

use std::path::Path;

use heddle_journal::action::Action;
use heddle_journal::disk::{Crash, Disk, Fault, MemDisk, Op};
use heddle_journal::{Change, Freshness, JournalError};
use serde_json::json;
use support::*;

#[test]
fn jn_02_the_segment_is_synced_before_the_first_projection_and_meta_comes_last() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    disk.start_trace();
    let committed = journal.mutate(vec![plan("a", 2), plan("b", 1)]).unwrap();
    let answered = disk.take_trace();
    let touched = |trace: &[(Op, std::path::PathBuf)]| {
        let name = |p: &Path| p.file_name().unwrap().to_str().unwrap().to_owned();
        trace
            .iter()
            .map(|(op, path)| (*op, name(path)))
            .collect::<Vec<_>>()
    };
    let segment = "seg-00000000000000000001.jsonl".to_owned();
    // P13: the answer waits for one append and one sync, and for nothing else.
    assert_eq!(
        touched(&answered),
        [(Op::Append, segment.clone()), (Op::Sync, segment)]
    );
    disk.start_trace();
    committed.finish().unwrap();
    let rest = touched(&disk.take_trace());
    let last = rest.last().unwrap();
    assert_eq!(last, &(Op::Rename, "meta.json".to_owned()));
    let index = rest
        .iter()
        .position(|(_, name)| name == "revisions.idx")
        .unwrap();
    let projection = rest.iter().position(|(_, name)| name == "a.json").unwrap();
    assert!(projection < index, "{rest:?}");
}

#[test]
fn jn_15_revisions_rise_by_one_and_never_begin_again() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    let rev = |changes| commit(&journal, changes)[0].entity_rev;
    assert_eq!(rev(vec![plan("a", 1)]), Some(1));
    assert_eq!(rev(vec![plan("a", 2)]), Some(2));
    assert_eq!(rev(vec![delete("plan", "a")]), Some(3));
    assert!(matches!(
        journal.show("plan", "a"),
        Err(JournalError::NotFound { .. })
    ));
    assert!(
        !disk
            .files()
            .contains_key(Path::new("/repo/.heddle/entities/plan/a.json"))
    );
    assert_eq!(rev(vec![plan("a", 1)]), Some(4));
    assert_eq!(journal.show("plan", "a").unwrap().entity_rev, 4);
    assert!(journal.verify().unwrap().ok);
    assert_eq!(seqs(&journal), [1, 2, 3, 4]);
}

#[test]
fn c23_one_mutation_is_one_batch_and_a_refused_part_refuses_all_of_it() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    let receipts = commit(&journal, vec![plan("a", 1), plan("b", 1)]);
    assert_eq!(receipts[0].batch, receipts[1].batch);
    assert_eq!((receipts[0].seq, receipts[1].seq), (Some(1), Some(2)));
    let refused = journal.mutate_whole(vec![plan("c", 1), delete("plan", "nobody")]);
    assert!(matches!(refused, Err(JournalError::NotFound { .. })));
    assert!(matches!(
        journal.show("plan", "c"),
        Err(JournalError::NotFound { .. })
    ));
    let twice = journal.mutate_whole(vec![plan("a", 5), plan("a", 6)]);
    assert!(matches!(twice, Err(JournalError::Refused(_))));
    assert_eq!(seqs(&journal), [1, 2]);
}

#[test]
fn jn_29_row_17_row_23_an_ephemeral_change_makes_no_record_and_no_revision() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    let claim = |at: &str| put("claim", "c", json!({"status": "claimed", "expires_at": at}));
    commit(&journal, vec![claim("1")]);
    let receipt = &commit(&journal, vec![claim("2")])[0];
    assert_eq!((receipt.seq, receipt.entity_rev), (None, None));
    let shown = journal.show("claim", "c").unwrap();
    assert_eq!(
        (shown.entity_rev, &shown.payload["expires_at"]),
        (1, &json!("2"))
    );
    // Row 23: the difference is no divergence, and a reconcile does not take it back (JN-05).
    assert!(journal.verify().unwrap().ok);
    disk.tamper(Path::new("/repo/.heddle/events/meta.json"), Vec::clear);
    assert_eq!(
        journal.show("claim", "c").unwrap().payload["expires_at"],
        json!("2")
    );
    assert_eq!(seqs(&journal), [1]);
}

#[test]
fn jn_30_an_unannotated_change_is_synthesised_and_counted() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    let bare = |document| Change {
        action: None,
        ..put("plan", "a", document)
    };
    commit(&journal, vec![bare(json!({"n": 1}))]);
    commit(&journal, vec![bare(json!({"n": 2}))]);
    assert_eq!(commit(&journal, vec![bare(json!({"n": 2}))])[0].seq, None);
    commit(
        &journal,
        vec![Change {
            document: None,
            ..bare(json!({}))
        }],
    );
    assert_eq!(actions(&journal), ["create", "update", "delete"]);
    let meta = &disk.files()[Path::new("/repo/.heddle/events/meta.json")];
    let meta: serde_json::Value = serde_json::from_slice(meta).unwrap();
    assert_eq!(meta["unannotated"], 3);
}

#[test]
fn jn_28_singletons_never_die_and_what_is_no_document_is_never_unlinked() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(
        &journal,
        vec![put("state", "state", json!({"x": 1})), plan("a", 1)],
    );
    assert!(matches!(
        journal.mutate_whole(vec![delete("state", "state")]),
        Err(JournalError::Refused(_))
    ));
    let path = Path::new("/repo/.heddle/entities/plan/a.json");
    disk.tamper(path, |bytes| bytes.truncate(4));
    let before = disk.files()[path].clone();
    // Kept aside, and whoever deletes is told under which name.
    let committed = journal.mutate(vec![delete("plan", "a")]).unwrap();
    let told = committed.finish_told().unwrap();
    assert_eq!(told.len(), 1);
    let aside = Path::new("/repo/.heddle/events/quarantine").join(&told[0]);
    assert_eq!(disk.files()[&aside], before, "evidence was unlinked");
    assert!(!disk.files().contains_key(path));
    let report = journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
    // One that is put there later stays where it is, and is named.
    disk.write(path, b"{\"a\"").unwrap();
    let report = journal.verify().unwrap();
    assert_eq!((report.ok, report.counters.unparseable_kept), (false, 1));
}

#[test]
fn row_10_row_22_jn_24_a_large_payload_goes_into_a_blob_that_is_synced_before_its_record() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("small", 1)]);
    let large = json!({"summary": "x".repeat(100_000)});
    disk.start_trace();
    let committed = journal
        .mutate(vec![put("handoff", "h", large.clone())])
        .unwrap();
    let trace = disk.take_trace();
    let append = trace.iter().position(|(op, _)| *op == Op::Append).unwrap();
    let blob_sync = trace
        .iter()
        .position(|(op, path)| *op == Op::Sync && path.to_string_lossy().contains("blobs"))
        .unwrap();
    let dir_sync = trace
        .iter()
        .rposition(|(op, path)| *op == Op::SyncDir && path.to_string_lossy().contains("blobs"))
        .unwrap();
    assert!(blob_sync < append && dir_sync < append, "{trace:?}");
    committed.finish().unwrap();
    assert_eq!(journal.show("handoff", "h").unwrap().payload, large);
    let lines =
        disk.files()[Path::new("/repo/.heddle/events/seg-00000000000000000001.jsonl")].clone();
    assert!(lines.len() < 2000);
    // Row 22, JN-25: a blob that is gone or other hurts its entity only.
    let path = disk
        .files()
        .into_keys()
        .find(|p| p.to_string_lossy().contains("blobs"))
        .unwrap();
    disk.tamper(&path, |bytes| bytes[7] ^= 1);
    let report = journal.verify().unwrap();
    assert!(!report.ok && report.divergent.len() == 1, "{report:?}");
    disk.tamper(
        Path::new("/repo/.heddle/entities/handoff/h.json"),
        Vec::clear,
    );
    assert!(matches!(
        journal.show("handoff", "h"),
        Err(JournalError::Entity { .. })
    ));
    assert!(journal.show("plan", "small").is_ok());
    disk.remove(&path).unwrap();
    assert!(matches!(
        journal.show("handoff", "h"),
        Err(JournalError::Entity { .. })
    ));
}

#[test]
fn row_11_jn_16_short_write_and_errors_fail_the_mutation_and_nothing_else_moves() {
    for fault in [
        Fault::Short(0),
        Fault::Short(1),
        Fault::Short(100),
        Fault::Error(std::io::ErrorKind::StorageFull),
    ] {
        let disk = MemDisk::new();
        let journal = init(&disk);
        commit(&journal, vec![plan("a", 1)]);
        let before = disk.files();
        disk.fault_at(disk.ops() + 1, fault);
        assert!(journal.mutate(vec![plan("a", 2)]).is_err(), "{fault:?}");
        for (path, bytes) in &before {
            let name = path.to_string_lossy();
            if !name.ends_with(".jsonl") {
                assert_eq!(disk.files().get(path), Some(bytes), "{fault:?} {name}");
            }
        }
        assert_eq!(commit(&journal, vec![plan("a", 3)])[0].entity_rev, Some(2));
        let report = journal.verify().unwrap();
        assert!(report.ok, "{fault:?} {report:?}");
        let noted = actions(&journal)
            .iter()
            .filter(|a| *a == "journal_note")
            .count() as u64;
        assert_eq!(noted, report.counters.torn_adjudicated);
        assert_eq!(
            noted,
            u64::from(fault == Fault::Short(100)),
            "JN-10: one note a torn tail"
        );
    }
}

#[test]
fn jn_16_a_failed_sync_poisons_and_is_never_taken_for_a_sync_later() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    let before = disk.files();
    disk.fault_at(disk.ops() + 2, Fault::Error(std::io::ErrorKind::Other));
    let failed = journal.mutate(vec![plan("a", 2)]);
    assert!(matches!(failed, Err(JournalError::SyncFailed { .. })));
    drop(failed);
    for (path, bytes) in before
        .iter()
        .filter(|(path, _)| path.extension().is_none_or(|end| end != "jsonl"))
    {
        assert_eq!(disk.files().get(path), Some(bytes), "{}", path.display());
    }
    // The record is readable although it is not on the disk; the next writer makes that true.
    commit(&journal, vec![plan("b", 1)]);
    let before = support::model::rebuilt(&journal, 0);
    let image = disk.crash(&Crash::LoseAll);
    let after = support::model::rebuilt(&open(&image, 2, 9).unwrap(), 0);
    assert_eq!(before, after, "a reader had seen what the power cut took");
    let report = open(&image, 2, 9).unwrap().rebuild(0).unwrap();
    assert_eq!(after[&("plan".into(), "a".into())].0, 2);
    assert!(report.replay.counters.duplicate_identical <= 1);
}

#[test]
fn jn_13_a_stale_meta_gets_one_seq_repair_and_a_missing_one_none() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    let meta = Path::new("/repo/.heddle/events/meta.json");
    let stale = disk.files()[meta].clone();
    commit(&journal, vec![plan("a", 2)]);
    disk.tamper(meta, |bytes| *bytes = stale);
    assert!(matches!(
        journal.freshness().unwrap(),
        Freshness::Behind(Some(_))
    ));
    assert_eq!(commit(&journal, vec![plan("a", 3)])[0].seq, Some(4));
    assert_eq!(
        actions(&journal),
        ["update", "update", "seq_repair", "update"]
    );
    for damage in [&b""[..], b"{", b"{\"v\":9}"] {
        disk.tamper(meta, |bytes| *bytes = damage.to_vec());
        commit(&journal, vec![event(Action::SessionStart, "session", None)]);
    }
    disk.remove(meta).unwrap();
    commit(&journal, vec![plan("a", 4)]);
    assert_eq!(seqs(&journal), (1..=8).collect::<Vec<_>>());
    let report = journal.verify().unwrap();
    assert!(report.ok && report.counters.seq_repairs == 1, "{report:?}");
}

#[test]
fn observability_and_registry_records_need_no_document_and_meta_records_are_ours() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![event(Action::SessionStart, "session", None)]);
    commit(
        &journal,
        vec![event(Action::RunRunning, "agent_run", Some("r1"))],
    );
    let amended = Change {
        action: Some(Action::RunAmended),
        ..put(
            "agent_run",
            "r1",
            json!({"status": "running", "artifacts": ["x"]}),
        )
    };
    assert_eq!(commit(&journal, vec![amended])[0].entity_rev, Some(1));
    assert_eq!(
        journal.show("agent_run", "r1").unwrap().payload["artifacts"],
        json!(["x"])
    );
    for refused in [
        event(Action::CheckpointRef, "session", None),
        event(Action::Create, "plan", Some("x")),
        event(Action::RunRunning, "agent_run", None),
        Change {
            action: Some(Action::RunProgress),
            ..put("agent_run", "r1", json!({}))
        },
        Change {
            action: Some(Action::Delete),
            ..plan("x", 1)
        },
        put("nonsense", "x", json!({})),
        put("plan", "../x", json!({})),
        put("plan", "x", json!([])),
        put("plan", "x", json!({"title": 7})),
        Change {
            summary: Some("s".repeat(5000)),
            ..plan("x", 1)
        },
    ] {
        let told = journal.mutate_whole(vec![refused.clone()]);
        assert!(
            matches!(told, Err(JournalError::Refused(_))),
            "{refused:?} {told:?}"
        );
    }
    assert!(journal.verify().unwrap().ok);
}

#[test]
fn row_21_a_crash_between_blob_and_record_leaves_an_orphan_never_a_dangling_reference() {
    let base = MemDisk::new();
    commit(&init(&base), vec![plan("a", 1)]);
    let mut stop = 1;
    let mut orphans = 0;
    loop {
        let disk = base.fork();
        disk.fault_at(disk.ops() + stop, Fault::Stop);
        let large = json!({"summary": "x".repeat(66_000)});
        let told =
            open(&disk, 1, 5)
                .unwrap()
                .mutate_whole(vec![put("handoff", "h", large.clone())]);
        let cuts = [
            Crash::Process,
            Crash::LoseAll,
            Crash::LoseData,
            Crash::LoseNames,
        ];
        for how in cuts.into_iter().chain((0..20).map(Crash::Random)) {
            let image = disk.crash(&how);
            let next = open(&image, 2, 6).unwrap();
            next.reconcile().unwrap();
            let report = next.verify().unwrap();
            assert!(report.ok, "stopped at {stop}, {how:?}: {report:#?}");
            let shown = next.show("handoff", "h");
            if told.is_ok() {
                assert_eq!(
                    shown.as_ref().unwrap().payload,
                    large,
                    "stopped at {stop}, {how:?}"
                );
            }
            let has_blob = image
                .files()
                .keys()
                .any(|p| p.to_string_lossy().contains("/blobs/"));
            orphans += u32::from(has_blob && shown.is_err());
        }
        if told.is_ok() {
            break;
        }
        stop += 1;
    }
    assert!(orphans > 0, "no crash fell between the two");
}

/// P16 as a count: a single-entity mutation touches the disk as often among 1,500 entities as among 40.
#[test]
fn p16_an_operation_costs_the_same_whatever_the_size_of_the_store() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    let mut costs = Vec::new();
    for round in [40, 1500] {
        for n in 0..round {
            commit(&journal, vec![plan(&format!("p{round}-{n}"), n)]);
        }
        let before = disk.ops();
        commit(&journal, vec![plan("p40-7", round)]);
        costs.push(disk.ops() - before);
    }
    assert_eq!(costs[0], costs[1]);
}
