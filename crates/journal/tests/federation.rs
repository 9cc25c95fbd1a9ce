//! Slices between stores: order of import, conflicts, lineage, privacy, chunks.
#![cfg(test)]

mod support;

use heddle_journal::JournalError;
use heddle_journal::federation::{ExportAsk, Exported};
use serde_json::{Value, json};
use support::model::rebuilt;
use support::stores::*;
use support::*;

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
