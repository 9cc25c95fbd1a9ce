//! A row that is gone, or is under another key now, is missed by the number of rows that were written of its key: what has
//! happened does not happen again because nobody reads that it has.

use heddle_core::clock::WallMs;
use heddle_registrar::carry::{Part, Unit};
use heddle_registrar::storage::postgres::Postgres;
use heddle_registrar::storage::sqlite::{Sqlite, kept_in};
use heddle_registrar::storage::{Storage, StorageError};

use crate::world::{
    Raw, World, agent, effect, ended, key, mesh, postgres, sqlite, without_references,
};

/// Its runner is gone: nobody knows how it ended.
async fn begun<S: Storage>(w: &World<S>, of: &str) {
    w.registered(of).await;
    let by = agent();
    let started = w.registrar.start(key(of), "a".into(), None, &by).await;
    started.unwrap();
}

async fn closed<S: Storage>(w: &World<S>, of: &str) {
    begun(w, of).await;
    let by = agent();
    let told = w.registrar.finish(key(of), "a".into(), ended(0), &by);
    told.await.unwrap();
    let verdict = w.registrar.verify(key(of), true, String::new(), &by);
    verdict.await.unwrap();
}

#[track_caller]
fn is_gone<T: std::fmt::Debug>(read: Result<T, StorageError>, of: &str) {
    match read {
        Err(StorageError::Gone { key, .. } | StorageError::Changed { key, .. }) => {
            assert_eq!(key, of);
        }
        other => panic!("{other:?}"),
    }
}

/// Nobody may ask for it, register it, begin it or be told of it; the others go on; and the look names it.
async fn nothing_runs_again<S: Storage>(w: &World<S>, of: &str) {
    let by = agent();
    is_gone(w.registrar.facts(&key(of)).await, of);
    is_gone(w.registrar.request(effect(of), &by).await, of);
    is_gone(w.try_register(&effect(of), None, None).await, of);
    let again = w.registrar.start(key(of), "b".into(), None, &by).await;
    is_gone(again, of);
    let kept = w.registrar.kept().await.unwrap();
    let named = format!("{of}: ");
    let is_named = kept.changed.iter().any(|it| it.starts_with(&named));
    assert!(is_named, "{kept:?}");
    assert!(w.facts("later").await.verdict() == Some(true));
}

async fn rg_01_a_beginning_under_another_key_or_mesh_is_no_second_run<S: Storage>(w: World<S>) {
    let elsewhere = match &w.raw {
        Raw::Postgres { .. } => "decode(repeat('00', 16), 'hex')",
        _ => "zeroblob(16)",
    };
    let changes = [
        ("a", "logical_request_key = 'q'".to_owned()),
        ("b", format!("mesh_id = {elsewhere}")),
        ("c", "digest = NULL, logical_request_key = 'r'".to_owned()),
        // Under another effect that is there.
        ("d", "logical_request_key = 'registered'".to_owned()),
    ];
    for (of, _) in &changes {
        begun(&w, of).await;
    }
    w.registered("registered").await;
    closed(&w, "later").await;
    assert!(w.registrar.kept().await.unwrap().changed.is_empty());
    for (of, change) in &changes {
        let sql = format!("UPDATE effect_step SET {change} WHERE logical_request_key = '{of}'");
        without_references(&w, "effect_step", &sql).await;
        nothing_runs_again(&w, of).await;
    }
}

async fn rg_01_deleted_rows_are_missed_and_free_no_key<S: Storage>(w: World<S>) {
    begun(&w, "lone").await;
    for of in ["steps", "all", "word", "request", "used"] {
        closed(&w, of).await;
    }
    closed(&w, "later").await;
    assert!(w.registrar.kept().await.unwrap().changed.is_empty());
    let rows = |tables: &[&str]| tables.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    for (of, tables) in [
        ("lone", rows(&["effect_step"])),
        ("steps", rows(&["effect_step"])),
        (
            "used",
            rows(&["effect_step", "effect_registration", "effect_consume"]),
        ),
        ("request", rows(&["effect_envelope"])),
        (
            "all",
            rows(&[
                "effect_step",
                "effect_registration",
                "effect_consume",
                "effect_envelope",
            ]),
        ),
    ] {
        for table in tables {
            let sql = format!("DELETE FROM {table} WHERE logical_request_key = '{of}'");
            without_references(&w, &table, &sql).await;
        }
        nothing_runs_again(&w, of).await;
    }
    let word = "DELETE FROM effect_decision WHERE envelope_id IN
        (SELECT envelope_id FROM effect_envelope WHERE logical_request_key = 'word')";
    without_references(&w, "effect_decision", word).await;
    nothing_runs_again(&w, "word").await;
}

async fn links_that_are_gone_are_named<S: Storage>(w: World<S>) {
    closed(&w, "later").await;
    let sql = "DELETE FROM effect_chain WHERE seq = 2";
    without_references(&w, "effect_chain", sql).await;
    let kept = w.registrar.kept().await.unwrap();
    assert_eq!(
        kept.changed,
        ["the chain: 1 of its links are gone from the store"]
    );
    w.facts("later").await;
}

on_both_databases!(
    rg_01_a_beginning_under_another_key_or_mesh_is_no_second_run,
    rg_01_deleted_rows_are_missed_and_free_no_key,
    links_that_are_gone_are_named,
);

/// A store of the step before: what is in it is counted when it is opened, and missed from then on.
#[tokio::test]
async fn a_file_of_before_there_were_counts_is_counted_when_it_is_opened() {
    let w = sqlite().await;
    begun(&w, "k").await;
    closed(&w, "later").await;
    let Raw::Sqlite { file, .. } = &w.raw else {
        panic!("a file");
    };
    w.registrar.storage().stop();
    let connection = rusqlite::Connection::open(file).unwrap();
    let before = "DROP TRIGGER effect_migration_keep; DELETE FROM _migrations WHERE version = 6;
        DROP TABLE effect_tally; PRAGMA user_version = 5;
        CREATE TRIGGER effect_migration_keep BEFORE DELETE ON _migrations
    BEGIN SELECT RAISE(ABORT, '_migrations is append-only'); END";
    connection.execute_batch(before).unwrap();
    drop(connection);
    // Who only looks does not bring it up to date.
    let looked = kept_in(file).unwrap().unwrap();
    assert_eq!((looked.effects, looked.changed.len()), (2, 0));
    let again = Sqlite::open(file.clone()).unwrap();
    assert_eq!(again.kept().await.unwrap().changed.len(), 0);
    again.facts(mesh(), &key("k"), None).await.unwrap();
    let sql = "DELETE FROM effect_step WHERE logical_request_key = 'k'";
    without_references(&w, "effect_step", sql).await;
    is_gone(again.facts(mesh(), &key("k"), None).await, "k");
    again.facts(mesh(), &key("later"), None).await.unwrap();
}

#[tokio::test]
async fn a_schema_of_before_there_were_counts_is_counted_when_it_is_opened() {
    let w = postgres().await;
    begun(&w, "k").await;
    closed(&w, "later").await;
    let Raw::Postgres { url, schema } = &w.raw else {
        panic!("a schema");
    };
    let version = "DELETE FROM effect_migration WHERE version = 7";
    without_references(&w, "effect_migration", version).await;
    w.raw.run("DROP TABLE effect_tally").await.unwrap();
    let again = Postgres::connect(url, schema).await.unwrap();
    assert_eq!(again.kept().await.unwrap().changed.len(), 0);
    let sql = "DELETE FROM effect_step WHERE logical_request_key = 'k'";
    without_references(&w, "effect_step", sql).await;
    is_gone(again.facts(mesh(), &key("k"), None).await, "k");
    again.facts(mesh(), &key("later"), None).await.unwrap();
}

/// What nobody can carry is not free where the mesh moves to.
#[tokio::test]
async fn rg_01_a_mesh_that_moves_takes_along_that_rows_are_gone() {
    let w = sqlite().await;
    begun(&w, "k").await;
    closed(&w, "later").await;
    let sql = "DELETE FROM effect_step WHERE logical_request_key = 'k'";
    without_references(&w, "effect_step", sql).await;
    let home = w.registrar.storage();
    home.give_away(mesh(), WallMs(1)).await.unwrap();
    let (units, is_last) = home.carried(mesh(), 0, usize::MAX).await.unwrap();
    let texts: Vec<String> = units.iter().map(|unit| unit.to_text().unwrap()).collect();
    let units = texts.iter().map(|text| Unit::parse(text).unwrap());
    let part = Part {
        from: 0,
        units: units.map(|unit| unit.of_member("alice")).collect(),
        is_last,
        at: WallMs(2),
    };
    let folder = tempfile::tempdir().unwrap();
    let there = Sqlite::open(folder.path().join("effects.db")).unwrap();
    there.take_over(mesh(), part).await.unwrap();
    is_gone(there.facts(mesh(), &key("k"), None).await, "k");
    let kept = there.kept().await.unwrap();
    assert_eq!(kept.changed.len(), 1, "{kept:?}");
    // What was taken over is counted as well.
    let later = there.facts(mesh(), &key("later"), None).await.unwrap();
    assert_eq!(later.verdict(), Some(true));
}
