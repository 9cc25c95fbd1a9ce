//! What is answered from is compared where it is read: a byte that was changed is never somebody's result.

use heddle_core::clock::WallMs;
use heddle_registrar::carry::{Part, Unit};
use heddle_registrar::kept::KeptDigest;
use heddle_registrar::storage::memory::Memory;
use heddle_registrar::storage::postgres::Postgres;
use heddle_registrar::storage::sqlite::{Sqlite, kept_in};
use heddle_registrar::storage::{Storage, StorageError};

use crate::world::{
    Raw, World, agent, effect, ended, key, mesh, person, postgres, sqlite, taken_back,
    without_references,
};

async fn done<S: Storage>(w: &World<S>, of: &str) {
    w.registered(of).await;
    let by = agent();
    let begun = w.registrar.start(key(of), "a".into(), None, &by);
    begun.await.unwrap();
    let told = w.registrar.finish(key(of), "a".into(), ended(0), &by);
    told.await.unwrap();
}

/// Past the triggers, as a disk or a hand would.
async fn change<S>(w: &World<S>, table: &str, statement: &str) {
    let (off, on) = match &w.raw {
        Raw::None => panic!("memory has no disk"),
        Raw::Sqlite { .. } => (
            format!("DROP TRIGGER {table}_hold"),
            format!(
                "CREATE TRIGGER {table}_hold BEFORE UPDATE ON {table}
    BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            ),
        ),
        Raw::Postgres { .. } => (
            format!("ALTER TABLE {table} DISABLE TRIGGER {table}_hold"),
            format!("ALTER TABLE {table} ENABLE TRIGGER {table}_hold"),
        ),
    };
    if let Raw::Postgres { .. } = &w.raw {
        w.raw
            .run(&format!("GRANT UPDATE ON {table} TO CURRENT_USER"))
            .await
            .unwrap();
    }
    w.raw.run(&off).await.unwrap();
    assert!(w.raw.run(statement).await.unwrap() > 0, "{statement}");
    w.raw.run(&on).await.unwrap();
    if let Raw::Postgres { .. } = &w.raw {
        w.raw
            .run(&format!("REVOKE UPDATE ON {table} FROM CURRENT_USER"))
            .await
            .unwrap();
    }
}

#[track_caller]
fn is_changed<T: std::fmt::Debug>(read: Result<T, StorageError>) {
    match read {
        Err(StorageError::Changed { key, .. }) => assert_eq!(key, "k"),
        other => panic!("{other:?}"),
    }
}

const PRINTED: &str = "UPDATE effect_step SET body = replace(body, 'done', 'dune') WHERE logical_request_key = 'k' AND body LIKE '%done%'";

async fn one_changed_byte_of_a_result_is_found_wherever_it_is_read<S: Storage>(w: World<S>) {
    done(&w, "k").await;
    done(&w, "other").await;
    let before = w.registrar.kept().await.unwrap();
    assert_eq!((before.effects, before.without), (2, 0));
    assert!(before.changed.is_empty(), "{before:?}");
    change(&w, "effect_step", PRINTED).await;
    is_changed(w.registrar.facts(&key("k")).await);
    // Nothing is decided by it, either: no retry gets it, no verdict is given.
    is_changed(w.try_register(&effect("k"), None, None).await);
    let by = agent();
    let verdict = w.registrar.verify(key("k"), true, String::new(), &by);
    is_changed(verdict.await);
    let kept = w.registrar.kept().await.unwrap();
    assert_eq!(kept.changed.len(), 1, "{kept:?}");
    assert!(kept.changed[0].starts_with("k: "), "{kept:?}");
    // Everything else goes on, and the store is fit.
    assert_eq!(w.facts("other").await.outcome(), Some(&ended(0)));
    done(&w, "more").await;
    let criteria = w.registrar.surface_check().await.unwrap();
    assert!(criteria.iter().all(|one| one.is_met), "{criteria:?}");
}

async fn a_changed_receipt_or_another_effects_row_is_found<S: Storage>(w: World<S>) {
    done(&w, "k").await;
    let receipt = "UPDATE effect_registration SET receipt = replace(receipt, 'planner', 'plammer')";
    change(&w, "effect_registration", receipt).await;
    is_changed(w.registrar.facts(&key("k")).await);
    let back = "UPDATE effect_registration SET receipt = replace(receipt, 'plammer', 'planner')";
    change(&w, "effect_registration", back).await;
    w.facts("k").await;
    // The body and the digest of another effect's end: whole, and of another binding.
    done(&w, "other").await;
    let swapped = "UPDATE effect_step SET digest = (SELECT digest FROM effect_step o
        WHERE o.logical_request_key = 'other' AND o.step = effect_step.step) WHERE logical_request_key = 'k'";
    change(&w, "effect_step", swapped).await;
    is_changed(w.registrar.facts(&key("k")).await);
}

/// A row whose key was changed is not read under it any more: what is missing is found by what is left, and the row by
/// belonging to nothing.
async fn a_row_that_has_lost_its_key_is_found<S: Storage>(w: World<S>) {
    for (table, is_it) in [
        ("effect_step", "step = 'started'"),
        ("effect_step", "step = 'finished'"),
        ("effect_registration", "registration_id <> ''"),
    ] {
        let of = |key: &str| format!("logical_request_key = '{key}' AND {is_it}");
        let moved = |from: &str, to: &str| {
            let place = of(from);
            format!("UPDATE {table} SET logical_request_key = '{to}' WHERE {place}")
        };
        if w.facts("k").await.consumed.is_none() {
            done(&w, "k").await;
            let by = agent();
            let verdict = w.registrar.verify(key("k"), true, String::new(), &by);
            verdict.await.unwrap();
        }
        without_references(&w, table, &moved("k", "j")).await;
        is_changed(w.registrar.facts(&key("k")).await);
        is_changed(w.try_register(&effect("k"), None, None).await);
        let kept = w.registrar.kept().await.unwrap();
        let orphan = format!("j: a row of {table}");
        assert!(
            kept.changed.iter().any(|it| it.starts_with(&orphan)),
            "{kept:?}"
        );
        without_references(&w, table, &moved("j", "k")).await;
        w.facts("k").await;
        let kept = w.registrar.kept().await.unwrap();
        assert!(kept.changed.is_empty(), "{kept:?}");
    }
}

/// An approval that was taken back is not the last word again because its place was changed, and the one of another request
/// is not this one's.
async fn rg_05_a_changed_word_about_a_request_is_nobodys_approval<S: Storage>(w: World<S>) {
    done(&w, "other").await;
    let envelope = w.request(&effect("k")).await;
    let nonce = w.approve(&envelope).await;
    let revoked = w.registrar.turn_down(&envelope, &person()).await;
    revoked.unwrap().unwrap();
    let moved = |by: &str, ruling: &str| {
        format!(
            "UPDATE effect_decision SET seq = seq {by} WHERE envelope_id = '{envelope}' AND ruling = '{ruling}'"
        )
    };
    change(&w, "effect_decision", &moved("+ 10", "approved")).await;
    is_changed(w.try_register(&effect("k"), Some(&nonce), None).await);
    is_changed(w.registrar.facts(&key("k")).await);
    let kept = w.registrar.kept().await.unwrap();
    assert_eq!(kept.changed.len(), 1, "{kept:?}");
    assert!(kept.changed[0].starts_with("k: "), "{kept:?}");
    change(&w, "effect_decision", &moved("- 10", "approved")).await;
    let refused = w.register(&effect("k"), Some(&nonce)).await;
    assert!(refused.facts.consumed.is_none(), "it was taken back");
    // Of another request, under this one.
    let asked = w.request(&effect("foreign")).await;
    let nonce = w.approve(&asked).await;
    let foreign = format!(
        "UPDATE effect_decision SET envelope_id = '{envelope}', seq = seq + 20 WHERE envelope_id = '{asked}'"
    );
    without_references(&w, "effect_decision", &foreign).await;
    is_changed(w.try_register(&effect("k"), Some(&nonce), None).await);
    assert!(w.facts("other").await.outcome().is_some());
}

/// Whoever changes a row can take its digest away as easily: a row that was written with one and has none is nobody's word,
/// with and without changed cells.
async fn rg_05_a_row_that_has_lost_its_digest_is_nobodys_word<S: Storage>(w: World<S>) {
    let of_key = "logical_request_key = ";
    let of_request =
        "envelope_id = (SELECT envelope_id FROM effect_envelope WHERE logical_request_key = ";
    let places = [
        ("effect_step", format!("{of_key}'effect_step'")),
        (
            "effect_registration",
            format!("{of_key}'effect_registration'"),
        ),
        ("effect_decision", format!("{of_request}'effect_decision')")),
    ];
    for (nth, (table, place)) in places.iter().enumerate() {
        done(&w, table).await;
        let lost = format!("UPDATE {table} SET digest = NULL WHERE {place}");
        change(&w, table, &lost).await;
        let read = w.registrar.facts(&key(table)).await;
        assert!(
            matches!(read, Err(StorageError::Changed { .. })),
            "{read:?}"
        );
        let again = w.try_register(&effect(table), None, None).await;
        assert!(
            matches!(again, Err(StorageError::Changed { .. })),
            "{again:?}"
        );
        let kept = w.registrar.kept().await.unwrap();
        assert_eq!((kept.changed.len(), kept.without), (nth + 1, 0), "{kept:?}");
    }
    // Nor can one be called a row of before.
    let claim = "INSERT INTO effect_undigested (mesh_id, table_name, row_id, seq)
        SELECT mesh_id, 'effect_step', logical_request_key, seq FROM effect_step";
    let error = w.raw.run(claim).await.unwrap_err();
    assert!(error.contains("append-only"), "{error}");
    // An approval that was taken back, as the last word again.
    let envelope = w.request(&effect("taken")).await;
    let nonce = w.approve(&envelope).await;
    let revoked = w.registrar.turn_down(&envelope, &person()).await;
    revoked.unwrap().unwrap();
    let back = format!(
        "UPDATE effect_decision SET digest = NULL, seq = seq + 10 WHERE envelope_id = '{envelope}' AND ruling = 'approved'"
    );
    change(&w, "effect_decision", &back).await;
    let ran = w.try_register(&effect("taken"), Some(&nonce), None).await;
    assert!(matches!(ran, Err(StorageError::Changed { .. })), "{ran:?}");
}

/// A store of before the rows of before were written down: those that have no digest when it is opened are read and
/// counted, and no others ever.
async fn of_before<S: Storage>(w: &World<S>) {
    done(w, "k").await;
    for table in ["effect_step", "effect_registration", "effect_decision"] {
        change(w, table, &format!("UPDATE {table} SET digest = NULL")).await;
    }
    done(w, "later").await;
}

async fn are_read_and_no_others<S: Storage>(w: &World<S>, storage: &S) {
    let facts = storage.facts(mesh(), &key("k"), None).await.unwrap();
    assert_eq!(facts.outcome(), Some(&ended(0)));
    let kept = storage.kept().await.unwrap();
    assert_eq!((kept.effects, kept.without, kept.changed.len()), (2, 4, 0));
    let lost = "UPDATE effect_step SET digest = NULL WHERE logical_request_key = 'later'";
    change(w, "effect_step", lost).await;
    let later = storage.facts(mesh(), &key("later"), None).await;
    assert!(matches!(later, Err(StorageError::Changed { .. })));
    storage.facts(mesh(), &key("k"), None).await.unwrap();
}

#[tokio::test]
async fn a_file_of_before_there_were_digests_is_read_and_its_rows_counted() {
    let w = sqlite().await;
    of_before(&w).await;
    w.registrar.storage().stop();
    taken_back(&w, 8, &["DROP TABLE effect_undigested"]).await;
    let Raw::Sqlite { file, .. } = &w.raw else {
        panic!("a file");
    };
    // Who only looks does not bring it up to date.
    let looked = kept_in(file).unwrap().unwrap();
    assert_eq!((looked.without, looked.changed.len()), (4, 0));
    let again = Sqlite::open(file.clone()).unwrap();
    are_read_and_no_others(&w, &again).await;
    let looked = kept_in(file).unwrap().unwrap();
    assert_eq!((looked.without, looked.changed.len()), (4, 1));
}

#[tokio::test]
async fn a_schema_of_before_there_were_digests_is_read_and_its_rows_counted() {
    let w = postgres().await;
    of_before(&w).await;
    taken_back(&w, 9, &["DROP TABLE effect_undigested"]).await;
    let Raw::Postgres { url, schema } = &w.raw else {
        panic!("a schema");
    };
    let again = Postgres::connect(url, schema).await.unwrap();
    are_read_and_no_others(&w, &again).await;
}

on_both_databases!(
    one_changed_byte_of_a_result_is_found_wherever_it_is_read,
    a_changed_receipt_or_another_effects_row_is_found,
    rg_05_a_row_that_has_lost_its_digest_is_nobodys_word,
    a_row_that_has_lost_its_key_is_found,
    rg_05_a_changed_word_about_a_request_is_nobodys_approval,
);

/// A home of an earlier version tells what was changed there with its digest: it must not become a true result.
#[tokio::test]
async fn what_an_earlier_home_tells_as_changed_stays_changed() {
    let w = sqlite().await;
    done(&w, "k").await;
    done(&w, "other").await;
    let Raw::Sqlite { file, .. } = &w.raw else {
        panic!("a file");
    };
    assert_eq!(kept_in(file).unwrap().unwrap().changed.len(), 0);
    let home = w.registrar.storage();
    home.give_away(mesh(), WallMs(1)).await.unwrap();
    let (mut units, is_last) = home.carried(mesh(), 0, usize::MAX).await.unwrap();
    assert!(is_last);
    for unit in &mut units {
        if let Unit::Step { row, digest, .. } = unit
            && row.key == key("k")
        {
            *digest = Some(KeptDigest([5; 32]));
        }
    }
    // On its way it is text.
    let texts: Vec<String> = units.iter().map(|unit| unit.to_text().unwrap()).collect();
    let units = texts.iter().map(|text| Unit::parse(text).unwrap());
    let part = Part {
        from: 0,
        units: units.map(|unit| unit.of_member("alice")).collect(),
        is_last: true,
        at: WallMs(2),
    };
    let folder = tempfile::tempdir().unwrap();
    let there = Sqlite::open(folder.path().join("effects.db")).unwrap();
    there.take_over(mesh(), part.clone()).await.unwrap();
    is_changed(there.facts(mesh(), &key("k"), None).await);
    let other = there.facts(mesh(), &key("other"), None).await.unwrap();
    assert_eq!(other.outcome(), Some(&ended(0)));
    // The oracle has no disk.
    let memory = Memory::default();
    memory.take_over(mesh(), part).await.unwrap();
    assert_eq!(memory.kept().await.unwrap().effects, 2);
}
