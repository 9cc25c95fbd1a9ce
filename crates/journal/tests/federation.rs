//! Slices between stores: order of import, conflicts, privacy, erasure, and what a crafted slice may not do.
#![cfg(test)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use heddle_journal::action::Action;
use heddle_journal::disk::MemDisk;
use heddle_journal::federation::{ExportAsk, Exported, Imported, Renew};
use heddle_journal::{Change, Journal, JournalError, Target, Who};
use serde_json::{Value, json};
use support::model::rebuilt;
use support::*;

struct Store {
    disk: MemDisk,
    journal: Journal,
}

fn store(seed: u64) -> Store {
    use heddle_journal::disk::Disk;
    let disk = MemDisk::new();
    disk.create_dir(Path::new("/repo")).unwrap();
    let who = Who {
        agent: format!("agent-{seed}"),
        agent_id: None,
        user: Some("alice".to_owned()),
    };
    let journal = Journal::init(world(Arc::new(disk.clone()), 1, seed), Path::new(ROOT), who);
    let journal = journal.unwrap().with_settings(quick());
    Store { disk, journal }
}

fn ask(since: u64) -> ExportAsk {
    ExportAsk {
        since,
        limit: usize::MAX,
        types: Vec::new(),
        renew: Renew::No,
    }
}

#[track_caller]
fn export(store: &Store, since: u64) -> Exported {
    store.journal.export_slice(&ask(since)).unwrap()
}

#[track_caller]
fn import(store: &Store, slice: &Exported) -> Imported {
    store.journal.import_slice(&slice.slice, false).unwrap()
}

fn plan_of(store: &Store, id: &str) -> (u64, Value) {
    let shown = store.journal.show("plan", id).unwrap();
    (shown.entity_rev, shown.payload)
}

/// Heads of everything but the candidates, which each store makes for itself.
fn heads(store: &Store) -> BTreeMap<(String, String), (u64, Option<Value>)> {
    let mut world = rebuilt(&store.journal, 0);
    world.retain(|(item_type, _), _| item_type != "candidate");
    world
}

fn candidates(store: &Store) -> Vec<Value> {
    let world = rebuilt(&store.journal, 0).into_iter();
    world
        .filter(|((item_type, _), _)| item_type == "candidate")
        .filter_map(|(_, (_, document))| document)
        .collect()
}

#[track_caller]
fn sound(store: &Store) {
    let report = store.journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
    assert_eq!(report.warnings, [""; 0]);
    assert_eq!(
        rebuilt(&store.journal, usize::MAX),
        rebuilt(&store.journal, 0)
    );
}

#[test]
fn a_slice_brings_another_store_level_and_the_second_time_nothing() {
    let (a, b) = (store(1), store(2));
    for n in 1..=3 {
        commit(&a.journal, vec![plan("x", n), plan("y", n)]);
    }
    commit(&a.journal, vec![delete("plan", "y")]);
    let slice = export(&a, 0);
    assert_eq!((slice.records, slice.more), (7, false));
    let told = import(&b, &slice);
    assert_eq!((told.applied, told.known, told.lost), (7, 0, 0));
    assert_eq!(told.conflicts, [""; 0]);
    assert_eq!(heads(&a), heads(&b));
    sound(&b);
    let before = seqs(&b.journal);
    let again = import(&b, &slice);
    assert_eq!((again.applied, again.known), (0, 7));
    assert_eq!(seqs(&b.journal), before, "a known slice writes nothing");
    // An edit on top of it goes back as a clean fast-forward.
    commit(&b.journal, vec![plan("x", 9)]);
    let back = import(&a, &export(&b, 0));
    assert_eq!((back.applied, back.conflicts.len()), (1, 0));
    assert_eq!(plan_of(&a, "x").0, 4);
    assert_eq!(heads(&a), heads(&b));
    sound(&a);
    // The rest since then, and no more.
    assert_eq!(export(&a, slice.seq_range[1]).records, 0);
    assert!(a.journal.export_slice(&ask(999)).is_err());
}

/// The attack of the seed: A edits 7 → 8 → 9, B offline 7 → 8.
#[test]
fn jn_36_a_concurrent_edit_yields_a_candidate_with_both_images_and_the_head_is_deterministic() {
    let (a, b) = (store(1), store(2));
    commit(&a.journal, vec![plan("e", 7)]);
    import(&b, &export(&a, 0));
    commit(&a.journal, vec![plan("e", 8)]);
    commit(&a.journal, vec![plan("e", 9)]);
    commit(&b.journal, vec![plan("e", 88)]);
    let (from_a, from_b) = (export(&a, 0), export(&b, 0));
    let at_a = import(&a, &from_b);
    assert_eq!((at_a.applied, at_a.lost, at_a.conflicts.len()), (0, 1, 1));
    assert_eq!(plan_of(&a, "e").1["n"], 9);
    let at_b = import(&b, &from_a);
    assert_eq!(at_b.conflicts.len(), 1);
    assert_eq!(heads(&a), heads(&b));
    assert_eq!(at_a.conflicts, at_b.conflicts, "one conflict, one name");
    for store in [&a, &b] {
        let told = candidates(store);
        assert_eq!(told.len(), 1);
        let of = |n: usize| told[0]["images"][n]["document"]["n"].clone();
        let mut images = [of(0), of(1)];
        images.sort_by_key(Value::as_u64);
        assert_eq!(images[1], 88, "{told:#?}");
        assert_eq!(told[0]["item_id"], "e");
        sound(store);
    }
    // Candidates do not travel, and what a person did with one stays done.
    assert_eq!(export(&a, 0).records, 3);
    commit(&a.journal, vec![delete("candidate", &at_a.conflicts[0])]);
    import(&a, &export(&b, 0));
    assert_eq!(candidates(&a).len(), 0);
}

/// Three stores edit at the same time; every order of import ends in the same heads.
#[test]
fn jn_36_the_order_of_import_never_changes_the_head() {
    let origins = [store(1), store(2), store(3)];
    commit(
        &origins[0].journal,
        vec![plan("e", 1), plan("f", 1), plan("g", 1)],
    );
    let seed = export(&origins[0], 0);
    import(&origins[1], &seed);
    import(&origins[2], &seed);
    for (index, origin) in origins.iter().enumerate() {
        let n = 10 + index as u64;
        commit(&origin.journal, vec![plan("e", n)]);
        if index > 0 {
            commit(&origin.journal, vec![plan("e", n + 10)]);
        }
        if index == 1 {
            commit(&origin.journal, vec![delete("plan", "f")]);
        }
        commit(&origin.journal, vec![plan(&format!("own{index}"), n)]);
    }
    commit(&origins[2].journal, vec![plan("f", 5), plan("h", 5)]);
    let slices: Vec<Exported> = origins.iter().map(|origin| export(origin, 0)).collect();
    let mut seen = Vec::new();
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let fresh = store(50 + order[0] as u64);
        for index in order {
            import(&fresh, &slices[index]);
        }
        // With duplicates.
        import(&fresh, &slices[order[0]]);
        sound(&fresh);
        seen.push(heads(&fresh));
    }
    for other in &seen[1..] {
        assert_eq!(other, &seen[0]);
    }
    for (index, origin) in origins.iter().enumerate() {
        for (other, slice) in slices.iter().enumerate() {
            if other != index {
                import(origin, slice);
            }
        }
        assert_eq!(heads(origin), seen[0], "origin {index}");
        assert!(!candidates(origin).is_empty());
        sound(origin);
    }
}

/// A relay: C gets B's edit of A's plan before it gets A's own history. That is no conflict.
#[test]
fn what_an_image_was_built_on_is_not_concurrent_with_it() {
    let (a, b, c) = (store(1), store(2), store(3));
    for n in 1..=4 {
        commit(&a.journal, vec![plan("e", n)]);
    }
    import(&b, &export(&a, 0));
    commit(&b.journal, vec![plan("e", 5)]);
    import(&c, &export(&b, 0));
    commit(&c.journal, vec![plan("e", 6)]);
    let told = import(&c, &export(&a, 0));
    assert_eq!(told.conflicts, [""; 0]);
    assert_eq!(
        plan_of(&c, "e"),
        (6, json!({"title": "the plan e", "n": 6}))
    );
    let d = store(4);
    for slice in [export(&c, 0), export(&a, 0), export(&b, 0)] {
        assert_eq!(import(&d, &slice).conflicts, [""; 0]);
    }
    assert_eq!(heads(&c), heads(&d));
    sound(&d);
}

#[test]
fn heads_origins_and_what_was_taken_in_survive_roll_checkpoint_and_gc() {
    let (a, b) = (store(1), store(2));
    commit(&a.journal, vec![plan("e", 1)]);
    let first = export(&a, 0);
    import(&b, &first);
    commit(&b.journal, vec![plan("e", 2)]);
    for n in 0..3 {
        commit(&b.journal, vec![plan("other", n)]);
        b.journal.checkpoint().unwrap();
    }
    b.journal.gc().unwrap();
    let with = rebuilt(&b.journal, 0);
    let federated = b.journal.rebuild(0).unwrap().replay.federated;
    assert_eq!(
        federated,
        b.journal.rebuild(usize::MAX).unwrap().replay.federated
    );
    assert!(!federated.is_empty());
    let told = import(&b, &first);
    assert_eq!((told.applied, told.known, told.conflicts.len()), (0, 1, 0));
    assert_eq!(rebuilt(&b.journal, 0), with);
    sound(&b);
    // The lineage is in the checkpoint: no conflict between A's record and what was built on it.
    let c = store(3);
    import(&c, &export(&b, 0));
    assert_eq!(import(&c, &first).conflicts, [""; 0]);
}

#[test]
fn execution_belongs_to_its_origin_and_is_read_only_elsewhere() {
    let (a, b) = (store(1), store(2));
    commit(
        &a.journal,
        vec![put(
            "claim",
            "c",
            json!({"status": "claimed", "agent": "x"}),
        )],
    );
    commit(
        &b.journal,
        vec![put(
            "claim",
            "c",
            json!({"status": "claimed", "agent": "y"}),
        )],
    );
    let slice = export(&a, 0);
    let told = import(&b, &slice);
    assert_eq!((told.applied, told.conflicts.len()), (1, 0));
    assert_eq!(b.journal.show("claim", "c").unwrap().payload["agent"], "y");
    let here = format!("{}.c", slice.origin_id);
    assert_eq!(
        b.journal.show("claim", &here).unwrap().payload["agent"],
        "x"
    );
    let refused = b
        .journal
        .mutate_whole(vec![put("claim", &here, json!({"status": "released"}))]);
    assert!(
        matches!(refused, Err(JournalError::Refused(_))),
        "{refused:?}"
    );
    assert!(
        b.journal
            .mutate_whole(vec![delete("claim", &here)])
            .is_err()
    );
    // What is foreign is not exported again.
    assert_eq!(export(&b, 0).records, 1);
    sound(&b);
}

#[test]
fn a_slice_holds_no_user_no_pid_and_no_absolute_path() {
    let a = store(1);
    let mut change = put(
        "plan",
        "x",
        json!({"title": "see /home/alice/secret.txt and /repo/src/a.rs", "pid": 4711, "run": {"user": "alice"}}),
    );
    change.summary = Some("log in /var/log/alice.log".to_owned());
    commit(&a.journal, vec![change]);
    let big = json!({"title": "big", "path": "/home/alice/x", "diff": "d".repeat(70_000)});
    commit(&a.journal, vec![put("plan", "big", big)]);
    let slice = export(&a, 0);
    let text = String::from_utf8(slice.slice.clone()).unwrap();
    let pid = format!("w_{}-", std::process::id());
    for private in ["alice", "4711", "/home", "/var", "/repo", &pid, "agent_id"] {
        assert!(!text.contains(private), "{private} in {text:.2000}");
    }
    assert!(slice.stripped >= 5, "{}", slice.stripped);
    let b = store(2);
    import(&b, &slice);
    assert_eq!(plan_of(&b, "x").1["title"], "see <path> and src/a.rs");
    assert_eq!(plan_of(&b, "big").1["diff"], "d".repeat(70_000));
    sound(&b);
}

#[test]
fn chunks_take_and_release_the_lock_and_a_second_run_goes_on_where_the_first_ended() {
    let (a, b) = (store(1), store(2));
    for n in 0..7 {
        let many = (0..50).map(|i| plan(&format!("p{}", n * 50 + i), i));
        commit(&a.journal, many.collect());
    }
    let slice = export(&a, 0);
    let told = import(&b, &slice);
    assert_eq!((told.applied, told.chunks), (350, 4));
    assert_eq!(heads(&a), heads(&b));
    sound(&b);
    // In pieces that are asked for one after the other.
    let c = store(3);
    let mut since = 0;
    let mut pieces = 0;
    loop {
        let piece = ExportAsk {
            limit: 99,
            ..ask(since)
        };
        let piece = a.journal.export_slice(&piece).unwrap();
        import(&c, &piece);
        since = piece.seq_range[1];
        pieces += 1;
        if !piece.more {
            break;
        }
    }
    assert_eq!(pieces, 4);
    assert_eq!(heads(&a), heads(&c));
    let taken = c.journal.rebuild(0).unwrap().replay.federated;
    let taken = taken.of(&slice.origin_id, 1).unwrap();
    assert_eq!(taken.ranges, [slice.seq_range], "no gap between the pieces");
}

#[test]
fn c15_what_an_origin_erased_is_erased_by_its_peers_and_never_comes_back() {
    let (a, b) = (store(1), store(2));
    let canary = "CANARY-7f3a9c-secret";
    commit(
        &a.journal,
        vec![put("plan", "s", json!({"title": canary})), plan("x", 1)],
    );
    let before = export(&a, 0);
    commit(
        &b.journal,
        vec![put("plan", "s", json!({"title": "b had its own"}))],
    );
    let told = import(&b, &before);
    assert_eq!(told.conflicts.len(), 1);
    for n in 0..2 {
        commit(&b.journal, vec![plan("y", n)]);
        b.journal.checkpoint().unwrap();
    }
    let target = Target::Item {
        item_type: Some("plan".to_owned()),
        item_id: "s".to_owned(),
    };
    a.journal.redact(&target, "asked for").unwrap();
    let after = export(&a, before.seq_range[1]);
    assert_eq!((after.records, after.redacted), (0, 1));
    let told = import(&b, &after);
    assert_eq!(told.leftovers, [""; 0]);
    let holding = |store: &Store| {
        let files = store.disk.files().into_iter();
        let holds = files.filter(|(_, bytes)| String::from_utf8_lossy(bytes).contains("CANARY"));
        holds.map(|(path, _)| path).collect::<Vec<_>>()
    };
    assert_eq!(holding(&b), [Path::new(""); 0]);
    sound(&b);
    // The old slice again: refused, also by a store that never had it.
    import(&b, &before);
    assert_eq!(holding(&b), [Path::new(""); 0]);
    let c = store(3);
    import(&c, &after);
    import(&c, &before);
    assert_eq!(holding(&c), [Path::new(""); 0]);
    assert!(c.journal.show("plan", "s").is_err());
    assert_eq!(plan_of(&c, "x").0, 1);
    sound(&c);
}

#[test]
fn rd_06_what_was_erased_here_is_not_taken_in_again() {
    let (a, b) = (store(1), store(2));
    commit(
        &a.journal,
        vec![put("plan", "s", json!({"title": "CANARY-7f3a9c-secret"}))],
    );
    let slice = export(&a, 0);
    import(&b, &slice);
    let target = Target::Item {
        item_type: None,
        item_id: "s".to_owned(),
    };
    b.journal.redact(&target, "asked for").unwrap();
    let told = import(&b, &slice);
    assert_eq!((told.applied, told.known), (0, 1));
    assert!(b.journal.show("plan", "s").is_err());
    sound(&b);
}

#[test]
fn t_66_a_slice_that_only_this_store_can_know_to_be_wrong_is_refused_whole() {
    let (a, b) = (store(1), store(2));
    commit(&a.journal, vec![plan("x", 1)]);
    let honest = export(&a, 0);
    let refused = |store: &Store, bytes: &[u8]| {
        let before = store.disk.files();
        let error = store.journal.import_slice(bytes, false).unwrap_err();
        let after = store.disk.files();
        let changed = after
            .keys()
            .filter(|path| before.get(*path) != after.get(*path));
        // Taking the lock may write caches; no record, no projection.
        let changed: Vec<_> = changed
            .filter(|path| {
                let name = path.to_string_lossy();
                name.contains("seg-") && !after[*path].is_empty() || name.contains("entities")
            })
            .collect();
        assert_eq!(changed, Vec::<&std::path::PathBuf>::new(), "{error}");
        assert!(matches!(error, JournalError::Refused(_)), "{error}");
        error.to_string()
    };
    assert!(refused(&a, &honest.slice).contains("--new-origin"));
    assert!(refused(&b, b"").contains("cut off"));
    let crafted = |change: &dyn Fn(&mut Value)| craft(&honest.slice, change);
    let far = crafted(&|record| record["entity_rev"] = json!(1_u64 << 40));
    assert!(refused(&b, &far).contains("revision"));
    let unknown = crafted(&|record| record["item_type"] = json!("no_such_type"));
    assert!(refused(&b, &unknown).contains("schemas"));
    let singleton = crafted(&|record| record["item_type"] = json!("state"));
    assert!(refused(&b, &singleton).contains("one of it"));
    let invalid = crafted(&|record| record["payload"] = json!({"title": 7}));
    assert!(refused(&b, &invalid).contains("--leave-out-bad"));
    let candidate = crafted(&|record| {
        record["item_type"] = json!("candidate");
        record["item_id"] = json!("cnf_x");
    });
    assert!(refused(&b, &candidate).contains("candidates"));
    // Left out as asked: said, and taken in when it is sound later.
    let told = b.journal.import_slice(&invalid, true).unwrap();
    assert_eq!((told.applied, told.refused.len()), (0, 1));
    assert_eq!(import(&b, &honest).applied, 1);
    sound(&b);
}

/// A store that was restored from a copy gives its seqs a second time.
#[test]
fn a_forked_origin_is_refused_until_it_has_a_new_epoch() {
    let (a, b) = (store(1), store(2));
    commit(&a.journal, vec![plan("x", 1)]);
    export(&a, 0);
    let copy = a.disk.fork();
    commit(&a.journal, vec![plan("x", 2)]);
    import(&b, &export(&a, 0));
    let restored = Store {
        journal: open(&copy, 1, 9).unwrap(),
        disk: copy,
    };
    commit(&restored.journal, vec![plan("x", 22)]);
    let forked = export(&restored, 0);
    assert_eq!(forked.origin_epoch, 1);
    let refused = b.journal.import_slice(&forked.slice, false).unwrap_err();
    assert!(refused.to_string().contains("--new-epoch"), "{refused}");
    let renewed = ExportAsk {
        renew: Renew::Epoch,
        ..ask(0)
    };
    let renewed = restored.journal.export_slice(&renewed).unwrap();
    assert_eq!(
        (renewed.origin_epoch, &renewed.origin_id),
        (2, &forked.origin_id)
    );
    let told = import(&b, &renewed);
    assert_eq!(told.conflicts.len(), 1, "two second revisions");
    assert_eq!(plan_of(&b, "x").1["n"], 22);
    sound(&b);
}

#[test]
fn observability_singletons_and_the_journals_own_records_do_not_travel() {
    let a = store(1);
    commit(
        &a.journal,
        vec![event(Action::SessionStart, "session", None)],
    );
    commit(&a.journal, vec![put("state", "s", json!({}))]);
    commit(
        &a.journal,
        vec![Change {
            action: Some(Action::RunRunning),
            ..event(Action::RunRunning, "agent_run", Some("r"))
        }],
    );
    a.journal.checkpoint().unwrap();
    let slice = export(&a, 0);
    assert_eq!(slice.records, 0);
    assert_eq!(slice.seq_range[0], 1);
    let b = store(2);
    assert_eq!(import(&b, &slice).applied, 0);
    assert_eq!(seqs(&b.journal), [0_u64; 0]);
}

/// Changes the first record and seals the slice anew, as somebody would who means harm.
fn craft(slice: &[u8], change: &dyn Fn(&mut Value)) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    let text = String::from_utf8(slice.to_vec()).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.pop();
    let mut record: Value = serde_json::from_str(&lines[1]).unwrap();
    change(&mut record);
    lines[1] = record.to_string();
    let body = lines.join("\n") + "\n";
    let seal: String = Sha256::digest(&body)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    format!("{body}{{\"sha256\":\"{seal}\"}}\n").into_bytes()
}
