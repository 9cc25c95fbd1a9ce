//! The row of a model is changed by a disk, or lost: what hashes to the fingerprint is put right, other models go on, and no
//! vector whose text and numbers are whole is thrown away (LF-31, LF-32).

use std::convert::Infallible;

use heddle_core::clock::WallMs;
use heddle_core::data::DataKey;
use heddle_core::vector::ModelIdentity;
use heddle_store::{Applied, Kept, Repaired, SaidOfModel, StoreError, repair};

use crate::fixture::{Fixture, NOW, open};
use crate::mended::{hints, senseless};
use crate::vectors::{model, query, vector, with_vectors};

/// `a`, `b` and `c` under the model `one`, and `x` under `two`.
async fn two_models() -> (Fixture, ModelIdentity, ModelIdentity) {
    let fixture = with_vectors().await;
    let two = model("two", 3);
    fixture
        .vector("x", "x", vector(&two, &[1.0, 0.0, 0.0], "x"))
        .await;
    (fixture, model("one", 2), two)
}

fn spoil(fixture: &Fixture, sql: &str) {
    fixture.raw().execute_batch(sql).unwrap();
}

/// With what the settings say of models.
fn mend_knowing(mut fixture: Fixture, models: &[[&str; 3]]) -> (Fixture, Repaired) {
    fixture.store.stop();
    let mut hints = hints();
    let said = models.iter().map(|texts| SaidOfModel {
        texts: texts.map(|text| text.as_bytes().to_vec()),
        dim: None,
    });
    hints.models = said.collect();
    let mended = repair(&fixture.path(), &fixture.blobs(), &hints, NOW).unwrap();
    fixture.store = open(&fixture.path()).unwrap();
    (fixture, mended.unwrap())
}

#[tokio::test]
async fn lf_31_a_repair_proves_what_the_row_of_a_model_was_and_takes_every_vector_along() {
    for change in [
        "dim = 17",
        "dim = 1",
        "provider = 'openai'",
        "provider = 'tesu'",
        "model = 'ona'",
        "model = CAST(x'6f6eff' AS TEXT)",
        "model_version = '9'",
        "quantization = 'int8'",
        "id = '0123456789abcdef'",
        "id = 'no id of any sort'",
        "vec_table = 'outbox; DROP TABLE outbox; --'",
    ] {
        let (fixture, one, two) = two_models().await;
        spoil(
            &fixture,
            &format!(
                "PRAGMA ignore_check_constraints = ON; UPDATE vector_models SET {change} WHERE model = 'one'"
            ),
        );
        assert!(
            senseless(&fixture, false).contains("vector_models"),
            "{change}"
        );
        let (fixture, mended) = mend_knowing(fixture, &[]);
        let lost: Vec<&Kept> = mended
            .tables
            .iter()
            .filter(|kept| !kept.is_whole())
            .collect();
        assert!(lost.is_empty(), "{change}: {lost:?}");
        assert_eq!(mended.unreadable, [""; 0], "{change}");
        assert_eq!(mended.nameless_models, [""; 0], "{change}");
        assert_eq!(
            fixture.nearest(&one, &[1.0, 0.0]).await,
            ["a", "c", "b"],
            "{change}"
        );
        assert_eq!(
            fixture.nearest(&two, &[1.0, 0.0, 0.0]).await,
            ["x"],
            "{change}"
        );
        assert_eq!(senseless(&fixture, false), "", "{change}");
        let known = fixture.store.vector_models().await.unwrap();
        let mut known: Vec<ModelIdentity> = known.into_iter().map(|row| row.identity).collect();
        known.sort();
        assert_eq!(known, [one, two], "{change}");
    }
}

#[tokio::test]
async fn lf_31_vectors_of_a_model_that_nobody_can_name_stay_and_are_named_by_whoever_searches_them()
{
    let lose = "DELETE FROM vector_models WHERE model = 'one'";
    let (fixture, one, _) = two_models().await;
    spoil(&fixture, lose);
    // The settings know it: then it is called as before.
    let (fixture, mended) = mend_knowing(fixture, &[["test", "one", "1"]]);
    assert_eq!(mended.nameless_models, [""; 0]);
    assert_eq!(senseless(&fixture, false), "");
    let named: Vec<&String> = mended.tables.iter().flat_map(|kept| &kept.mended).collect();
    assert_eq!(named, ["model test:one:1:2:float32"]);

    // A row that says something else altogether says as little as none.
    spoil(
        &fixture,
        "UPDATE vector_models SET model = 'some other' WHERE model = 'one'",
    );
    let (fixture, mended) = mend_knowing(fixture, &[]);
    let print = one.fingerprint().to_string();
    assert_eq!(mended.nameless_models, std::slice::from_ref(&print));
    assert!(mended.tables.iter().all(Kept::is_whole), "{mended:?}");
    assert_eq!(mended.unreadable, [""; 0]);
    assert!(senseless(&fixture, false).contains(&print));
    assert_eq!(fixture.store.nameless_models().await.unwrap().len(), 1);
    assert_eq!(
        fixture
            .store
            .dump_vectors(fixture.mesh)
            .await
            .unwrap()
            .len(),
        4
    );
    assert_eq!(fixture.nearest(&one, &[1.0, 0.0]).await, ["a", "c", "b"]);
    let known = fixture.store.know_vector_model(one.clone(), NOW);
    known.await.unwrap();
    assert_eq!(senseless(&fixture, false), "");
    assert_eq!(fixture.nearest(&one, &[1.0, 0.0]).await, ["a", "c", "b"]);
}

#[tokio::test]
async fn lf_31_a_bad_row_of_a_model_stops_no_other_model_and_nothing_is_made_of_it() {
    for change in [
        "dim = 17",
        "provider = 'somebody'",
        "id = '0123456789abcdef'",
        "vec_table = 'outbox; DROP TABLE outbox; --'",
    ] {
        let (fixture, one, two) = two_models().await;
        spoil(
            &fixture,
            &format!("UPDATE vector_models SET {change} WHERE model = 'one'"),
        );
        assert_eq!(
            fixture.nearest(&two, &[1.0, 0.0, 0.0]).await,
            ["x"],
            "{change}"
        );
        let (store, left_out) = fixture.store.leniently();
        let known = store.vector_models().await.unwrap();
        assert_eq!(known.len(), 1, "{change}: {known:?}");
        assert_eq!(known[0].identity, two);
        let id = if change.starts_with("id") {
            "0123456789abcdef".to_owned()
        } else {
            one.fingerprint().to_string()
        };
        assert_eq!(left_out.take(), [format!("model {id:?}")], "{change}");
        assert!(matches!(
            fixture.store.vector_models().await,
            Err(StoreError::Corrupt(_))
        ));
        let far = WallMs(NOW.0 + 400 * 86_400_000);
        assert_eq!(
            fixture.store.drop_left_vector_tables(far).await.unwrap(),
            0,
            "{change}"
        );
        // What is taken away needs no row of its model.
        assert!(
            matches!(fixture.delete_vector("d", "b").await, Applied::Fresh(_)),
            "{change}"
        );
        let change = fixture.change(fixture.party("planner"), "e", 3);
        let key = DataKey::parse("a").unwrap();
        let deleted =
            fixture
                .store
                .delete_vector::<Infallible>(change, key, Some(one.fingerprint()));
        assert!(matches!(deleted.await.unwrap(), Applied::Fresh(_)));
        let left: i64 = fixture
            .raw()
            .query_row(
                &format!("SELECT count(*) FROM {}_rowids", one.fingerprint().table()),
                [],
                |row| row.get(0),
            )
            .unwrap();
        assert_eq!(left, 1);
    }
}

#[tokio::test]
async fn lf_32_a_lost_table_of_a_model_is_told_in_words_and_its_numbers_are_saved_from_beneath_it()
{
    let (fixture, one, two) = two_models().await;
    let table = one.fingerprint().table();
    fixture.store.stop();
    spoil(
        &fixture,
        &format!("PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = '{table}'"),
    );
    let fixture = Fixture {
        store: open(&fixture.path()).unwrap(),
        ..fixture
    };
    let told = |error: StoreError| {
        assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
        assert!(
            error
                .to_string()
                .contains("the table of a model, is missing"),
            "{error}"
        );
    };
    let search = fixture
        .store
        .search_vectors(query(fixture.mesh, &one, &[1.0, 0.0]));
    told(search.await.unwrap_err());
    let change = fixture.change(fixture.party("planner"), "s", 1);
    let key = DataKey::parse("d").unwrap();
    let new = Ok(vector(&one, &[0.5, 0.5], "d"));
    let stored = fixture.store.store_vector::<Infallible>(change, key, new);
    told(stored.await.unwrap_err());
    fixture.delete_vector("d", "b").await;
    assert_eq!(fixture.nearest(&two, &[1.0, 0.0, 0.0]).await, ["x"]);
    let (fixture, mended) = mend_knowing(fixture, &[]);
    assert!(mended.tables.iter().all(Kept::is_whole), "{mended:?}");
    assert_eq!(fixture.nearest(&one, &[1.0, 0.0]).await, ["a", "c"]);
}
