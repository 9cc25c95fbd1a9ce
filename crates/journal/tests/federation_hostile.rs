//! Slices that must not have their way: erased records, forks, forgeries, and what never travels.
#![cfg(test)]

mod support;

use std::path::PathBuf;

use heddle_journal::action::Action;
use heddle_journal::federation::{ExportAsk, Renew};
use heddle_journal::{Change, JournalError, Target};
use serde_json::{Value, json};
use support::stores::*;
use support::*;

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
    assert_eq!(told.left.leftovers, [""; 0]);
    let holding = |store: &Store| {
        let files = store.disk.files().into_iter();
        let holds = files.filter(|(_, bytes)| String::from_utf8_lossy(bytes).contains("CANARY"));
        holds.map(|(path, _)| path).collect::<Vec<_>>()
    };
    assert_eq!(holding(&b), Vec::<PathBuf>::new());
    sound(&b);
    // The old slice again: refused, also by a store that never had it.
    import(&b, &before);
    assert_eq!(holding(&b), Vec::<PathBuf>::new());
    let c = store(3);
    import(&c, &after);
    import(&c, &before);
    assert_eq!(holding(&c), Vec::<PathBuf>::new());
    assert!(c.journal.show("plan", "s").is_err());
    assert_eq!(plan_of(&c, "x").0, 1);
    sound(&c);
}

/// A candidate is a record as any other: what it said before somebody closed or changed it is in the journal still.
#[test]
fn c15_an_erasure_reaches_the_images_of_candidates_that_were_closed_or_changed() {
    // What a person did with the candidate, and whether a checkpoint holds it.
    for (how, checkpoints) in [("close", 0), ("close", 2), ("change", 0), ("change", 2)] {
        let (a, b) = (store(1), store(2));
        // Large enough for a blob of its own, or not.
        let large = "x".repeat(if checkpoints == 0 { 10 } else { 70_000 });
        commit(
            &a.journal,
            vec![put(
                "plan",
                "s",
                json!({"title": "CANARY-7f3a9c-secret", "body": large}),
            )],
        );
        commit(&b.journal, vec![plan("s", 1)]);
        let before = export(&a, 0);
        let conflict = import(&b, &before).conflicts[0].clone();
        for n in 0..checkpoints {
            commit(&b.journal, vec![plan("y", n)]);
            b.journal.checkpoint().unwrap();
        }
        let closed = json!({"kind": "conflict", "status": "closed", "text": "settled"});
        let then = match how {
            "close" => delete("candidate", &conflict),
            _ => put("candidate", &conflict, closed),
        };
        commit(&b.journal, vec![then]);
        let target = Target::Item {
            item_type: Some("plan".to_owned()),
            item_id: "s".to_owned(),
        };
        a.journal.redact(&target, "asked for").unwrap();
        let told = import(&b, &export(&a, before.seq_range[1]));
        assert_eq!(told.left.leftovers, [""; 0], "{how}");
        assert_eq!(
            told.erased, 1,
            "{how}, {checkpoints}: the candidate alone had it"
        );
        let twice = import(&b, &export(&a, before.seq_range[1]));
        assert_eq!(twice.erased, 0, "{how}, {checkpoints}");
        let files = b.disk.files().into_iter();
        let holds = files.filter(|(_, bytes)| String::from_utf8_lossy(bytes).contains("CANARY"));
        let holding: Vec<PathBuf> = holds.map(|(path, _)| path).collect();
        assert_eq!(holding, Vec::<PathBuf>::new(), "{how}, {checkpoints}");
        sound(&b);
    }
}

/// Its own record by now: no erasure of another store reaches it, and whoever imports is told of it.
#[test]
fn c15_a_losing_image_that_was_taken_over_by_hand_is_named_when_its_origin_erases_it() {
    for (is_taken, is_large) in [(false, false), (true, false), (true, true)] {
        let (a, b) = (store(1), store(2));
        let body = "z".repeat(if is_large { 70_000 } else { 3 });
        let secret = json!({"title": "the plan s", "note": "CANARY-7f3a9c-secret", "body": body});
        commit(&a.journal, vec![put("plan", "s", secret.clone())]);
        for n in 1..=2 {
            commit(&b.journal, vec![plan("s", n)]);
        }
        let before = export(&a, 0);
        let told = import(&b, &before);
        assert_eq!((told.conflicts.len(), told.lost), (1, 1), "{told:?}");
        commit(&b.journal, vec![plan("other", 1)]);
        let mut expected = Vec::new();
        if is_taken {
            let receipt = &commit(&b.journal, vec![put("plan", "s", secret)])[0];
            expected.push(format!("seq {} (plan s)", receipt.seq.unwrap()));
        }
        let target = Target::Item {
            item_type: Some("plan".to_owned()),
            item_id: "s".to_owned(),
        };
        a.journal.redact(&target, "asked for").unwrap();
        let told = import(&b, &export(&a, before.seq_range[1]));
        assert_eq!(told.taken_over, expected, "large: {is_large}");
        sound(&b);
    }
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

/// The name of a store is needed for slices only: without it everything else goes on.
#[test]
fn a_damaged_origin_stops_slices_and_nothing_else() {
    let a = store(1);
    commit(&a.journal, vec![plan("x", 1)]);
    let before = export(&a, 0);
    a.disk
        .tamper(&a.journal.layout().origin(), |bytes| bytes.truncate(9));
    commit(&a.journal, vec![plan("x", 2)]);
    a.journal.checkpoint().unwrap();
    a.journal.checkpoint().unwrap();
    assert_eq!(a.journal.show("plan", "x").unwrap().entity_rev, 2);
    sound(&a);
    let refused = a.journal.export_slice(&ask(0)).unwrap_err();
    assert!(matches!(refused, JournalError::Damaged { .. }), "{refused}");
    let renewed = ExportAsk {
        renew: Renew::Origin,
        ..ask(0)
    };
    let renewed = a.journal.export_slice(&renewed).unwrap();
    assert_ne!(renewed.origin_id, before.origin_id);
    // The same history under two names is no conflict.
    let b = store(2);
    import(&b, &before);
    assert_eq!(import(&b, &renewed).conflicts, [""; 0]);
    sound(&b);
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
