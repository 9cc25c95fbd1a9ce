//! Vectors: models that never mix, two rows that never part, memory that follows the table.

use std::convert::Infallible;
use std::time::Duration;

use heddle_core::clock::{Ids as _, WallMs};
use heddle_core::data::{DataKey, DataValue};
use heddle_core::ids::{MeshId, OpId};
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::limits::VECTOR_GRACE;
use heddle_core::op::{DataOp, NewVector, OpBody, Over, VectorChange, VectorContent};
use heddle_core::vector::{Embedding, ModelFingerprint, ModelIdentity, Scan};
use heddle_store::{Applied, Merged, Receipt, Store, StoreError, Taken, VectorMove, VectorQuery};
use serde_json::json;

use crate::fixture::{Fixture, NOW, open};
use crate::park::{damage, open_or_park};

pub(crate) fn model(name: &str, dim: usize) -> ModelIdentity {
    ModelIdentity::new("test", name, "1", dim, "float32").unwrap()
}

fn key(text: &str) -> DataKey {
    DataKey::parse(text).unwrap()
}

pub(crate) fn vector(model: &ModelIdentity, numbers: &[f32], content: &str) -> NewVector {
    NewVector::new(
        model.clone(),
        Embedding::new(numbers.to_vec()).unwrap(),
        VectorContent::new(content.to_owned()).unwrap(),
        DataValue::new(&json!({"of": content})).unwrap(),
    )
    .unwrap()
}

/// Three vectors of one model, the nearest to (1, 0) first: `a`, `c`, `b`.
pub(crate) async fn with_vectors() -> Fixture {
    let fixture = Fixture::new().with_mesh().await;
    let one = model("one", 2);
    for (id, numbers) in [("a", [1.0, 0.0]), ("b", [0.0, 1.0]), ("c", [1.0, 1.0])] {
        fixture.vector(id, id, vector(&one, &numbers, id)).await;
    }
    fixture
}

pub(crate) fn query(mesh: MeshId, model: &ModelIdentity, numbers: &[f32]) -> VectorQuery {
    VectorQuery {
        mesh,
        model: model.clone(),
        embedding: Embedding::new(numbers.to_vec()).unwrap(),
        scan: Scan::Exact,
        limit: 10,
    }
}

impl Fixture {
    pub(crate) async fn vector(&self, id: &str, at: &str, new: NewVector) -> Receipt {
        let change = self.change(self.party("planner"), id, 1);
        let stored = self
            .store
            .store_vector::<Infallible>(change, key(at), Ok(new));
        match stored.await.unwrap() {
            Applied::Fresh(receipt) => receipt,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn delete_vector(&self, id: &str, at: &str) -> Applied<Infallible> {
        let change = self.change(self.party("planner"), id, 2);
        self.store
            .delete_vector(change, key(at), None)
            .await
            .unwrap()
    }

    pub(crate) async fn nearest(&self, model: &ModelIdentity, numbers: &[f32]) -> Vec<String> {
        let hits = self.store.search_vectors(query(self.mesh, model, numbers));
        let hits = hits.await.unwrap();
        hits.into_iter().map(|hit| hit.row.key).collect()
    }

    /// LF-32, as anybody can count it.
    fn assert_paired(&self) {
        paired(&self.raw());
    }

    fn vector_op(&self, lamport: u64, peer: &str, change: VectorChange) -> DataOp {
        DataOp {
            stamp: Stamp {
                lamport,
                peer: PeerId::new(peer),
                op: OpId(self.ids.uuid_v7()),
            },
            incarnation: 1,
            at: NOW,
            over: Over::Unsaid,
            body: OpBody::Vector(change),
        }
    }
}

fn paired(raw: &rusqlite::Connection) {
    let mut models = raw
        .prepare("SELECT id, vec_table FROM vector_models")
        .unwrap();
    let models = models
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    for model in models {
        let (id, table): (String, String) = model.unwrap();
        let places = |sql: &str| -> Vec<i64> {
            let mut statement = raw.prepare(sql).unwrap();
            let places = statement.query_map([], |row| row.get(0)).unwrap();
            places.map(Result::unwrap).collect()
        };
        let live = format!(
            "SELECT place FROM vector_metadata WHERE model_id = '{id}' AND tombstone = 0 ORDER BY 1"
        );
        let kept = format!("SELECT rowid FROM {table} ORDER BY 1");
        assert_eq!(places(&live), places(&kept), "{id}");
    }
}

#[tokio::test]
async fn lf_31_a_search_stays_within_its_model_and_its_mesh() {
    let fixture = Fixture::new();
    let (a, b, deep) = (model("a", 2), model("b", 2), model("a", 3));
    fixture
        .vector("1", "east", vector(&a, &[1.0, 0.0], "east"))
        .await;
    fixture
        .vector("2", "north", vector(&a, &[0.0, 2.0], "north"))
        .await;
    fixture
        .vector("3", "east of b", vector(&b, &[1.0, 0.0], "b"))
        .await;
    assert_eq!(fixture.nearest(&a, &[1.0, 0.1]).await, ["east", "north"]);
    assert_eq!(fixture.nearest(&b, &[1.0, 0.1]).await, ["east of b"]);
    assert_eq!(
        fixture.nearest(&deep, &[1.0, 0.0, 0.0]).await,
        [] as [String; 0]
    );
    let elsewhere = MeshId(fixture.ids.ulid());
    let hits = fixture
        .store
        .search_vectors(query(elsewhere, &a, &[1.0, 0.0]));
    assert_eq!(hits.await.unwrap(), []);
    let hits = fixture
        .store
        .search_vectors(query(fixture.mesh, &a, &[3.0, 0.0]))
        .await
        .unwrap();
    assert_eq!((hits[0].distance, hits[1].distance), (0.0, 1.0));
    assert_eq!(hits[0].row.content, "east");
    assert_eq!(hits[0].row.metadata, r#"{"of":"east"}"#);
    fixture.assert_paired();
}

#[tokio::test]
async fn what_is_in_memory_follows_every_change_and_no_failed_one() {
    let fixture = Fixture::new();
    let a = model("a", 2);
    assert_eq!(fixture.nearest(&a, &[1.0, 0.0]).await, [] as [String; 0]);
    fixture
        .vector("1", "k", vector(&a, &[1.0, 0.0], "first"))
        .await;
    fixture
        .vector("2", "l", vector(&a, &[1.0, 1.0], "other"))
        .await;
    assert_eq!(fixture.nearest(&a, &[1.0, 0.0]).await, ["k", "l"]);
    fixture
        .vector("3", "k", vector(&a, &[-1.0, 0.0], "second"))
        .await;
    assert_eq!(fixture.nearest(&a, &[1.0, 0.0]).await, ["l", "k"]);
    // A key that is taken by another request changes nothing.
    let change = fixture.change(fixture.party("planner"), "3", 9);
    let again = fixture.store.store_vector::<Infallible>(
        change,
        key("z"),
        Ok(vector(&a, &[1.0, 0.0], "z")),
    );
    assert!(matches!(again.await.unwrap(), Applied::Conflict { .. }));
    assert_eq!(fixture.nearest(&a, &[1.0, 0.0]).await, ["l", "k"]);
    assert!(matches!(
        fixture.delete_vector("4", "l").await,
        Applied::Fresh(_)
    ));
    assert_eq!(fixture.nearest(&a, &[1.0, 0.0]).await, ["k"]);
    assert_eq!(fixture.delete_vector("5", "l").await, Applied::Absent);
    // A tombstone that is collected makes everybody read anew.
    fixture
        .raw()
        .execute("DELETE FROM vector_metadata WHERE tombstone = 1", [])
        .unwrap();
    assert_eq!(fixture.nearest(&a, &[1.0, 0.0]).await, ["k"]);
    assert!(
        fixture
            .raw()
            .execute("DELETE FROM vector_metadata", [])
            .is_err()
    );
    fixture
        .vector("6", "l", vector(&a, &[1.0, 0.0], "back"))
        .await;
    assert_eq!(fixture.nearest(&a, &[1.0, 0.0]).await, ["l", "k"]);
    fixture.assert_paired();
}

#[tokio::test]
async fn lf_31_a_forged_table_name_gives_an_error_and_no_sql() {
    for (column, forged) in [
        ("vec_table", "outbox"),
        ("vec_table", "vectors_0000000000000000"),
        ("vec_table", "vectors_x; DROP TABLE outbox; --"),
        ("provider", "somebody"),
        ("model", "a:b"),
        ("dim", "3"),
        ("quantization", "int8"),
    ] {
        let fixture = Fixture::new();
        let a = model("a", 2);
        fixture
            .vector("1", "k", vector(&a, &[1.0, 0.0], "text"))
            .await;
        let sql = format!("UPDATE vector_models SET {column} = ?1");
        fixture.raw().execute(&sql, [forged]).unwrap();
        let everything = || {
            let count =
                "SELECT count(*), (SELECT count(*) FROM vector_metadata) FROM sqlite_schema";
            let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
            fixture.raw().query_row(count, [], row).unwrap()
        };
        let before = everything();
        let corrupt = |error: StoreError| {
            assert!(matches!(error, StoreError::Corrupt(_)), "{column}: {error}");
            assert!(!error.to_string().contains("DROP"), "{error}");
        };
        let search = fixture
            .store
            .search_vectors(query(fixture.mesh, &a, &[1.0, 0.0]));
        corrupt(search.await.unwrap_err());
        let change = || fixture.change(fixture.party("planner"), "2", 1);
        let new = Ok(vector(&a, &[0.0, 1.0], "more"));
        corrupt(
            fixture
                .store
                .store_vector::<Infallible>(change(), key("l"), new)
                .await
                .unwrap_err(),
        );
        corrupt(fixture.store.dump_vectors(fixture.mesh).await.unwrap_err());
        corrupt(fixture.store.vector_models().await.unwrap_err());
        // What takes away goes by the name that the fingerprint gives, and touches nothing else.
        let dropped = fixture.store.drop_left_vector_tables(NOW);
        assert_eq!(dropped.await.unwrap(), 0);
        fixture.delete_vector("3", "k").await;
        assert_eq!(everything(), before, "{column}");
    }
}

/// Small numbers from a seed.
fn numbers(seed: &mut u64, dim: usize) -> Vec<f32> {
    let mut next = || {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        f32::from(u16::try_from(*seed >> 48).unwrap()) / 32_768.0 - 1.0
    };
    (0..dim).map(|_| next()).collect()
}

#[tokio::test]
async fn lf_32_both_rows_of_a_vector_survive_or_neither_wherever_the_power_goes() {
    let fixture = Fixture::new();
    let models = [model("a", 8), model("b", 8)];
    let mut seed = 3;
    for n in 0..120_u64 {
        let at = format!("k{}", (seed >> 33) % 17);
        let new = vector(
            &models[usize::try_from(n % 2).unwrap()],
            &numbers(&mut seed, 8),
            "text",
        );
        if n % 5 == 4 {
            fixture.delete_vector(&format!("d{n}"), &at).await;
        } else {
            fixture.vector(&format!("s{n}"), &at, new).await;
        }
        if n % 10 == 0 {
            let (folder, store) = fixture.crashed_copy();
            paired(&rusqlite::Connection::open(folder.path().join("data.db")).unwrap());
            assert_eq!(
                store.dump_vectors(fixture.mesh).await.unwrap(),
                fixture.store.dump_vectors(fixture.mesh).await.unwrap()
            );
            store.stop();
        }
    }
    fixture.assert_paired();
}

#[tokio::test]
async fn the_order_of_hits_is_that_of_stock_sqlite_vec() {
    let fixture = Fixture::new();
    let a = model("a", 48);
    let mut seed = 11;
    for n in 0..200 {
        let new = vector(&a, &numbers(&mut seed, 48), "text");
        fixture.vector(&format!("{n}"), &format!("k{n}"), new).await;
    }
    for _ in 0..5 {
        let asked = numbers(&mut seed, 48);
        let bytes = Embedding::new(asked.clone()).unwrap().to_bytes();
        let sql = format!(
            "SELECT key FROM {} JOIN vector_metadata ON place = {0}.rowid
             WHERE embedding MATCH ?1 AND k = 10 ORDER BY distance",
            a.fingerprint().table()
        );
        let raw = fixture.raw();
        let mut statement = raw.prepare(&sql).unwrap();
        let stock = statement.query_map([bytes], |row| row.get(0)).unwrap();
        let stock: Vec<String> = stock.map(Result::unwrap).collect();
        assert_eq!(fixture.nearest(&a, &asked).await, stock);
    }
}

#[tokio::test]
async fn lf_08_ops_on_vectors_leave_the_same_bytes_in_any_order() {
    let origin = Fixture::new();
    let (a, b) = (model("a", 2), model("b", 2));
    let store = |at: &str, new, replaces| VectorChange::Store {
        key: key(at),
        new: Box::new(new),
        replaces,
    };
    let old: ModelFingerprint = a.fingerprint();
    let ops = [
        origin.vector_op(1, "M/p", store("k", vector(&a, &[1.0, 0.0], "one"), None)),
        origin.vector_op(2, "M/p", store("k", vector(&a, &[0.0, 1.0], "two"), None)),
        origin.vector_op(2, "M/q", store("k", vector(&a, &[0.5, 1.0], "of q"), None)),
        origin.vector_op(
            3,
            "M/p",
            store("k", vector(&b, &[0.0, 3.0], "moved"), Some(old)),
        ),
        origin.vector_op(
            4,
            "M/q",
            VectorChange::Delete {
                key: key("k"),
                models: vec![old],
            },
        ),
        origin.vector_op(5, "M/q", store("l", vector(&a, &[0.1, 0.2], "new"), None)),
    ];
    let mut dumps = Vec::new();
    for turn in 0..ops.len() {
        let replica = Fixture::new();
        let mut order: Vec<&DataOp> = ops.iter().collect();
        order.rotate_left(turn);
        if turn % 2 == 1 {
            order.reverse();
        }
        for op in &order {
            // As bytes, as they would come.
            let op = DataOp::parse(&op.to_bytes().unwrap()).unwrap();
            assert!(matches!(
                replica.store.take_in(origin.mesh, op).await.unwrap(),
                Merged::Taken(_)
            ));
        }
        let again = replica
            .store
            .take_in(origin.mesh, order[0].clone())
            .await
            .unwrap();
        assert!(
            matches!(again, Merged::Taken(Taken::Same | Taken::Kept)),
            "{again:?}"
        );
        replica.assert_paired();
        dumps.push(replica.store.dump_vectors(origin.mesh).await.unwrap());
    }
    assert!(dumps.iter().all(|dump| *dump == dumps[0]), "{dumps:#?}");
    assert_eq!(dumps[0].len(), 4);
}

#[tokio::test]
async fn a_moved_vector_is_under_one_model_and_an_old_table_goes_after_its_grace() {
    let fixture = Fixture::new();
    let (a, b) = (model("a", 2), model("b", 2));
    let receipt = fixture
        .vector("1", "k", vector(&a, &[1.0, 0.0], "text"))
        .await;
    let moved = |stamp: &Stamp| VectorMove {
        key: key("k"),
        from: a.fingerprint(),
        stamp: stamp.clone(),
        new: vector(&b, &[0.0, 1.0], "text"),
    };
    let planner = || fixture.party("planner");
    // The row is another one by now.
    let mut other = receipt.stamp.clone();
    other.lamport += 1;
    let change = fixture.change(planner(), "m0", 1);
    let none = fixture
        .store
        .move_vector::<Infallible>(change, moved(&other));
    assert_eq!(none.await.unwrap(), Applied::Absent);
    let change = fixture.change(planner(), "m1", 1);
    let done = fixture
        .store
        .move_vector::<Infallible>(change, moved(&receipt.stamp));
    assert!(matches!(done.await.unwrap(), Applied::Fresh(_)));
    assert_eq!(fixture.nearest(&a, &[1.0, 0.0]).await, [] as [String; 0]);
    assert_eq!(fixture.nearest(&b, &[1.0, 0.0]).await, ["k"]);
    fixture.assert_paired();
    let later = |grace: Duration| WallMs(NOW.0 + i64::try_from(grace.as_millis()).unwrap());
    let dropped = |now| fixture.store.drop_left_vector_tables(now);
    assert_eq!(dropped(later(VECTOR_GRACE / 2)).await.unwrap(), 0);
    // Somebody asks: the grace begins anew.
    let read = fixture
        .store
        .note_vector_read(a.fingerprint(), later(VECTOR_GRACE / 2));
    read.await.unwrap();
    assert_eq!(dropped(later(VECTOR_GRACE)).await.unwrap(), 0);
    assert_eq!(dropped(later(VECTOR_GRACE * 2)).await.unwrap(), 1);
    assert_eq!(
        dropped(later(VECTOR_GRACE * 9)).await.unwrap(),
        0,
        "b is in use"
    );
    // The model may come back, and the tombstone still refuses what is older.
    fixture
        .vector("2", "k", vector(&a, &[1.0, 0.0], "again"))
        .await;
    assert_eq!(fixture.nearest(&a, &[1.0, 0.0]).await, ["k"]);
    fixture.assert_paired();
}

#[tokio::test]
async fn dr_16_a_damaged_inbox_costs_no_vector_and_damaged_vectors_are_refused() {
    for broken in [
        "inbox",
        "_rowids",
        "_vector_chunks00",
        "vector_metadata",
        "vector_models",
    ] {
        let fixture = Fixture::new();
        let a = model("a", 16);
        let mut seed = 5;
        for n in 0..150 {
            let new = vector(&a, &numbers(&mut seed, 16), "text");
            fixture
                .vector(&format!("{n}"), &format!("k{}", n % 100), new)
                .await;
        }
        fixture.delete_vector("d", "k7").await;
        let before = fixture.store.dump_vectors(fixture.mesh).await.unwrap();
        fixture.store.stop();
        fixture
            .raw()
            .execute_batch("UPDATE store_state SET clean = 0")
            .unwrap();
        let name = match broken.strip_prefix('_') {
            Some(_) => format!("{}{broken}", a.fingerprint().table()),
            None => broken.to_owned(),
        };
        damage(&fixture.path(), &name);
        let opened = open_or_park(&fixture.path());
        if broken == "inbox" {
            let (store, parked) = opened.unwrap();
            assert!(parked.is_some());
            assert_eq!(store.dump_vectors(fixture.mesh).await.unwrap(), before);
            paired(&rusqlite::Connection::open(fixture.path()).unwrap());
        } else {
            assert!(opened.is_err(), "{broken}");
        }
    }
}

#[tokio::test]
async fn a_reopened_store_finds_what_was_kept() {
    let fixture = Fixture::new();
    let a = model("a", 2);
    fixture
        .vector("1", "k", vector(&a, &[1.0, 0.0], "text"))
        .await;
    fixture.store.stop();
    let store: Store = open(&fixture.path()).unwrap();
    let hits = store
        .search_vectors(query(fixture.mesh, &a, &[1.0, 0.0]))
        .await
        .unwrap();
    assert_eq!(hits.len(), 1);
}

/// A changed key is a key like any other, and another owner an owner: nothing but the digest of the name tells.
#[tokio::test]
async fn lf_32_a_vector_under_a_changed_key_is_nobodys_and_is_named() {
    for (column, value) in [("key", "mallory"), ("peer", "somebody/else")] {
        let fixture = Fixture::new();
        let model = model("m", 2);
        for (nth, at) in [(0_u8, "a"), (1, "b"), (2, "c")] {
            let new = vector(&model, &[1.0, f32::from(nth)], at);
            fixture.vector(&format!("v{nth}"), at, new).await;
        }
        assert_eq!(fixture.nearest(&model, &[1.0, 1.0]).await.len(), 3);
        let sql = format!("UPDATE vector_metadata SET {column} = ?1 WHERE key = 'b'");
        assert_eq!(fixture.raw().execute(&sql, [value]).unwrap(), 1);
        let shown = if column == "key" { value } else { "b" };
        // In the memory of a search, in a fresh one, in a dump, and by whoever looks through all rows.
        let unread = fixture
            .store
            .unreadable(fixture.mesh, u64::MAX)
            .await
            .unwrap();
        assert_eq!(unread.len(), 1, "{column}: {unread:?}");
        assert_eq!(unread[0].to_string(), format!("vector {shown:?}"));
        let (_folder, fresh) = fixture.crashed_copy();
        for store in [&fixture.store, &fresh] {
            let strict = store
                .search_vectors(query(fixture.mesh, &model, &[1.0, 1.0]))
                .await;
            assert!(matches!(strict, Err(StoreError::Corrupt(_))), "{strict:?}");
            let (lenient, left_out) = store.leniently();
            let hits = lenient.search_vectors(query(fixture.mesh, &model, &[1.0, 1.0]));
            let keys: Vec<String> = hits
                .await
                .unwrap()
                .into_iter()
                .map(|hit| hit.row.key)
                .collect();
            assert_eq!(keys.len(), 2, "{column}: {keys:?}");
            assert_eq!(left_out.take(), [format!("vector {shown:?}")]);
        }
        assert!(fixture.store.dump_vectors(fixture.mesh).await.is_err());
        // Who writes the key anew has it again.
        let op = if column == "key" { value } else { "b" };
        let new = vector(&model, &[0.5, 0.5], "anew");
        fixture.vector("anew", op, new).await;
        let unread = fixture
            .store
            .unreadable(fixture.mesh, u64::MAX)
            .await
            .unwrap();
        assert_eq!(unread.len(), usize::from(column == "peer"), "{unread:?}");
    }
}
