//! A row that is gone, or is under another key now, is missed by the number of rows that were written of its key: what has
//! happened does not happen again because nobody reads that it has.

use heddle_core::clock::WallMs;
use heddle_registrar::carry::{Part, Unit};
use heddle_registrar::chain::Link;
use heddle_registrar::storage::postgres::Postgres;
use heddle_registrar::storage::sqlite::{Sqlite, kept_in};
use heddle_registrar::storage::{Seen, Storage, StorageError};

use crate::world::{
    Raw, World, agent, effect, ended, key, mesh, postgres, sqlite, taken_back, without_references,
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
        Err(
            StorageError::Gone { key, .. }
            | StorageError::Changed { key, .. }
            | StorageError::CameDamaged { key },
        ) => {
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
    rg_01_a_row_that_is_gone_is_missed_by_its_key_and_not_by_the_store,
);

/// What the steps from the one of the counts on have made.
const LATER: [&str; 3] = [
    "DROP TABLE effect_undigested",
    "DROP TABLE effect_tally",
    "ALTER TABLE effect_decision DROP COLUMN digest",
];

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
    taken_back(&w, 6, &LATER).await;
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
    taken_back(&w, 7, &LATER).await;
    let again = Postgres::connect(url, schema).await.unwrap();
    assert_eq!(again.kept().await.unwrap().changed.len(), 0);
    let sql = "DELETE FROM effect_step WHERE logical_request_key = 'k'";
    without_references(&w, "effect_step", sql).await;
    is_gone(again.facts(mesh(), &key("k"), None).await, "k");
    again.facts(mesh(), &key("later"), None).await.unwrap();
}

/// One row less of one key makes no earlier copy of a store, whichever row it is; what does not have the link is one.
async fn rg_01_a_row_that_is_gone_is_missed_by_its_key_and_not_by_the_store<S: Storage>(
    w: World<S>,
) {
    for of in ["step", "used", "word"] {
        closed(&w, of).await;
    }
    closed(&w, "later").await;
    let storage = w.registrar.storage();
    let full = storage.reached(Seen::default()).await.unwrap();
    let seen = Seen {
        rows: 0,
        last: full.last,
        link: full.link,
    };
    // As a home's own store remembers it, by its number of rows alone.
    let counted = Seen {
        rows: full.rows,
        ..Seen::default()
    };
    let gone = [
        (
            "step",
            "effect_step",
            "logical_request_key = 'step' AND step = 'verified'",
        ),
        ("used", "effect_consume", "logical_request_key = 'used'"),
        (
            "word",
            "effect_decision",
            "envelope_id IN (SELECT envelope_id FROM effect_envelope WHERE logical_request_key = 'word')",
        ),
    ];
    for (of, table, which) in gone {
        let sql = format!("DELETE FROM {table} WHERE {which}");
        without_references(&w, table, &sql).await;
        assert!(storage.reached(seen).await.unwrap().has_seen, "{of}");
        let by_number = storage.reached(counted).await.unwrap();
        assert!(
            by_number.rows + by_number.gone >= full.rows,
            "{by_number:?}"
        );
        nothing_runs_again(&w, of).await;
    }
    // The others go on, and what is written now is written.
    closed(&w, "more").await;
    // The newest registration, of which a link says more than its row.
    let last = "DELETE FROM effect_consume WHERE logical_request_key = 'later'";
    without_references(&w, "effect_consume", last).await;
    assert!(storage.reached(seen).await.unwrap().has_seen);
    // A store of before all this is noticed by what it does not have.
    let later = Link {
        seq: full.link.unwrap().seq + 1000,
        digest: [1; 32],
    };
    let later = Seen {
        link: Some(later),
        ..seen
    };
    assert!(!storage.reached(later).await.unwrap().has_seen);
}

/// The ways in which a home's file can be damaged, each with the key that it is damaged for.
const DAMAGES: [(&str, &str, &str); 8] = [
    (
        "printed",
        "effect_step",
        "UPDATE effect_step SET body = replace(body, 'done', 'dune') WHERE logical_request_key = 'printed'",
    ),
    (
        "body",
        "effect_step",
        "UPDATE effect_step SET body = 'x', digest = NULL WHERE logical_request_key = 'body'",
    ),
    (
        "target",
        "effect_consume",
        "UPDATE effect_consume SET canonical_target = 'other' WHERE logical_request_key = 'target'",
    ),
    (
        "asked",
        "effect_envelope",
        "UPDATE effect_envelope SET canonical_target = 'other' WHERE logical_request_key = 'asked'",
    ),
    (
        "moved",
        "effect_step",
        "UPDATE effect_step SET logical_request_key = 'q' WHERE logical_request_key = 'moved'",
    ),
    (
        "half",
        "effect_registration",
        "DELETE FROM effect_registration WHERE logical_request_key = 'half'",
    ),
    (
        "used",
        "effect_consume",
        "DELETE FROM effect_consume WHERE logical_request_key = 'used'",
    ),
    (
        "word",
        "effect_decision",
        "DELETE FROM effect_decision WHERE envelope_id IN (SELECT envelope_id FROM effect_envelope WHERE logical_request_key = 'word')",
    ),
];

/// What nobody can carry is not free where the mesh moves to: each such key is refused there, by its name, and every other
/// one goes over.
async fn rg_01_a_mesh_moves_with_its_damaged_keys_and_none_of_them_is_free<S: Storage>(
    w: World<S>,
) {
    let home = crate::world::sqlite_of(77).await;
    for (of, ..) in DAMAGES {
        if of == "asked" {
            home.request(&effect(of)).await;
        } else {
            closed(&home, of).await;
        }
    }
    closed(&home, "none").await;
    closed(&home, "later").await;
    for (_, table, sql) in DAMAGES {
        without_references(&home, table, sql).await;
    }
    for table in [
        "effect_step",
        "effect_registration",
        "effect_consume",
        "effect_envelope",
    ] {
        let sql = format!("DELETE FROM {table} WHERE logical_request_key = 'none'");
        without_references(&home, table, &sql).await;
    }
    let from = home.registrar.storage();
    from.give_away(mesh(), WallMs(1)).await.unwrap();
    // A row at a time: what is damaged keeps its place.
    let (mut place, there) = (0, w.registrar.storage());
    loop {
        let (units, is_last) = from.carried(mesh(), place, 1).await.unwrap();
        let texts: Vec<String> = units.iter().map(|unit| unit.to_text().unwrap()).collect();
        let units = texts.iter().map(|text| Unit::parse(text).unwrap());
        let part = Part {
            from: place,
            units: units.map(|unit| unit.of_member("alice")).collect(),
            is_last,
            at: WallMs(2),
        };
        let taken = there.take_over(mesh(), part).await.unwrap();
        assert_eq!(taken.skipped, 0);
        place = taken.through;
        if is_last {
            break;
        }
    }
    let damaged = DAMAGES.map(|(of, ..)| of);
    let listed = w.registrar.list(100).await.unwrap();
    for of in damaged.into_iter().chain(["none", "q"]) {
        let told = w.registrar.facts(&key(of)).await;
        assert!(
            matches!(told, Err(StorageError::CameDamaged { .. })),
            "{of}: {told:?}"
        );
        is_gone(w.registrar.request(effect(of), &agent()).await, of);
        is_gone(w.try_register(&effect(of), None, None).await, of);
        let begun = w.registrar.start(key(of), "b".into(), None, &agent()).await;
        is_gone(begun, of);
        let log = w.registrar.log(Some(&key(of)), 1000).await.unwrap();
        let mut told = log.iter().filter(|line| line.row.event == "came damaged");
        let words = &told.next().unwrap().row.detail;
        assert!(words.starts_with(&format!("{of}: ")), "{words}");
        assert!(
            listed.iter().any(|one| one.key == key(of)),
            "{of} {listed:?}"
        );
    }
    assert_eq!(w.facts("later").await.verdict(), Some(true));
    assert_eq!(w.facts("later").await.outcome(), Some(&ended(0)));
    closed(&w, "more").await;
}

mod moved {
    use crate::world;

    #[tokio::test]
    async fn memory() {
        super::rg_01_a_mesh_moves_with_its_damaged_keys_and_none_of_them_is_free(
            world::memory().await,
        )
        .await;
    }

    #[tokio::test]
    async fn sqlite() {
        super::rg_01_a_mesh_moves_with_its_damaged_keys_and_none_of_them_is_free(
            world::sqlite().await,
        )
        .await;
    }

    #[tokio::test]
    async fn postgres() {
        super::rg_01_a_mesh_moves_with_its_damaged_keys_and_none_of_them_is_free(
            world::postgres().await,
        )
        .await;
    }
}
