//! Where the table of a model says that a vector lies is rows as all others: a disk that changes one of them takes one vector,
//! by name, and no search with it (LF-32).

use heddle_store::VectorQuery;

use crate::fixture::Fixture;
use crate::mended::{mend, senseless};
use crate::vectors::{model, query, vector, with_vectors};

/// Each takes the vector at place 2, `b`.
const CHANGES: [&str; 6] = [
    "UPDATE T_rowids SET rowid = 77 WHERE rowid = 2",
    "DELETE FROM T_rowids WHERE rowid = 2",
    "UPDATE T_rowids SET chunk_offset = 900 WHERE rowid = 2",
    "UPDATE T_rowids SET chunk_offset = -1 WHERE rowid = 2",
    "UPDATE T_rowids SET chunk_offset = 1 << 40 WHERE rowid = 2",
    "UPDATE T_rowids SET chunk_id = 9 WHERE rowid = 2",
];

/// Each leaves every vector where it is, but the next one may be written over it, or not at all.
const UNSOUND: [&str; 4] = [
    "UPDATE T_chunks SET validity = CAST(x'05' || substr(validity, 2) AS BLOB)",
    "UPDATE T_chunks SET rowids = CAST(substr(rowids, 1, 8) || x'4d00000000000000' || substr(rowids, 17) AS BLOB)",
    "UPDATE T_chunks SET rowids = x'0100'",
    "DELETE FROM T_chunks",
];

/// What a search finds, and what it says that it went on without.
async fn found(fixture: &Fixture) -> (Vec<String>, Vec<String>) {
    let (store, left_out) = fixture.store.leniently();
    let asked: VectorQuery = query(fixture.mesh, &model("one", 2), &[1.0, 0.0]);
    let hits = store.search_vectors(asked).await.unwrap();
    let mut keys: Vec<String> = hits.into_iter().map(|hit| hit.row.key).collect();
    keys.sort();
    (keys, left_out.take())
}

fn change(fixture: &Fixture, sql: &str) {
    let raw = fixture.raw();
    let table = "SELECT vec_table FROM vector_models";
    let table: String = raw.query_row(table, [], |row| row.get(0)).unwrap();
    let changed = raw.execute(&sql.replace("T_", &format!("{table}_")), []);
    assert_eq!(changed.unwrap(), 1, "{sql}");
}

#[tokio::test]
async fn lf_32_a_changed_place_takes_one_vector_by_name_and_no_search_with_it() {
    for sql in CHANGES {
        let fixture = with_vectors().await;
        assert_eq!(senseless(&fixture, false), "");
        change(&fixture, sql);
        let (keys, without) = found(&fixture).await;
        assert_eq!(keys, ["a", "c"], "{sql}");
        assert_eq!(without, ["vector \"b\""], "{sql}");
        let said = senseless(&fixture, false);
        assert!(said.contains("vector \"b\""), "{sql}: {said}");
        let (fixture, _) = mend(fixture);
        assert_eq!(
            found(&fixture).await,
            (vec!["a".into(), "c".into()], vec![])
        );
        assert_eq!(senseless(&fixture, false), "", "{sql}");
    }
}

#[tokio::test]
async fn lf_32_a_write_or_a_delete_of_the_key_mends_a_changed_place() {
    let one = model("one", 2);
    for sql in CHANGES {
        let fixture = with_vectors().await;
        change(&fixture, sql);
        fixture
            .vector("b2", "b", vector(&one, &[0.5, 0.5], "b2"))
            .await;
        let all = ["a", "b", "c"].map(str::to_owned).to_vec();
        assert_eq!(found(&fixture).await, (all, vec![]), "{sql}");
        let fixture = with_vectors().await;
        change(&fixture, sql);
        fixture.delete_vector("x", "b").await;
        let rest = ["a", "c"].map(str::to_owned).to_vec();
        assert_eq!(found(&fixture).await, (rest, vec![]), "{sql}");
    }
}

#[tokio::test]
async fn lf_32_rooms_that_are_not_marked_as_taken_are_noticed_before_another_vector_lies_there() {
    for sql in UNSOUND {
        let fixture = with_vectors().await;
        change(&fixture, sql);
        let said = senseless(&fixture, false);
        assert!(said.contains("where vectors lie"), "{sql}: {said}");
        let (fixture, _) = mend(fixture);
        assert_eq!(senseless(&fixture, false), "", "{sql}");
        let one = model("one", 2);
        fixture
            .vector("d", "d", vector(&one, &[0.5, 0.5], "d"))
            .await;
        let all = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        assert_eq!(found(&fixture).await, (all, vec![]), "{sql}");
    }
}
