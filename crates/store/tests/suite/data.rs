//! The data of a mesh: stamps, the gate, merging, searching, and what a failure leaves behind.

use std::collections::BTreeSet;
use std::convert::Infallible;

use heddle_core::clock::Ids;
use heddle_core::data::{DataKey, DataValue, Tags};
use heddle_core::ids::{OpId, Party};
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::op::{DataOp, MemoryChange, NewMemory, NewState, OpBody, Over};
use heddle_store::{
    Applied, ChangeKey, MemoryFilter, MemoryMatch, MemoryRow, Merged, Receipt, SearchQuery,
    StateFilter,
};
use serde_json::{Value, json};

use crate::fixture::{Fixture, NOW, client_id, open, print};
use crate::park::{damage, open_or_park};
pub(crate) const TABLES: [&str; 4] = ["lamport_clock", "memory", "state_kv", "applied_request"];

pub(crate) fn key(text: &str) -> DataKey {
    DataKey::parse(text).unwrap()
}

pub(crate) fn value(value: &Value) -> DataValue {
    DataValue::new(value).unwrap()
}

pub(crate) fn note(text: &Value) -> NewMemory {
    NewMemory {
        value: value(text),
        tags: Tags::parse(&["b", "a"]).unwrap(),
    }
}

pub(crate) fn fresh<R: std::fmt::Debug>(applied: Applied<R>) -> Receipt {
    match applied {
        Applied::Fresh(receipt) => receipt,
        other => panic!("{other:?}"),
    }
}

impl Fixture {
    pub(crate) fn change(&self, peer: Party, id: &str, fingerprint: u8) -> ChangeKey {
        ChangeKey {
            mesh: self.mesh,
            peer,
            id: client_id(id),
            fingerprint: print(fingerprint),
            op: OpId(self.ids.uuid_v7()),
            now: NOW,
        }
    }

    pub(crate) async fn remember(&self, id: &str, at: &str, text: &Value) -> Receipt {
        let change = self.change(self.party("planner"), id, 1);
        let applied = self
            .store
            .remember::<Infallible>(change, key(at), Ok(note(text)))
            .await;
        fresh(applied.unwrap())
    }

    pub(crate) async fn forget(&self, id: &str, at: &str) -> Applied<Infallible> {
        let change = self.change(self.party("planner"), id, 2);
        self.store.forget(change, key(at)).await.unwrap()
    }

    pub(crate) async fn set(&self, id: &str, at: &str, text: &Value) -> Receipt {
        let change = self.change(self.party("planner"), id, 1);
        let new = NewState { value: value(text) };
        let applied = self.store.set_state::<Infallible>(change, key(at), Ok(new));
        fresh(applied.await.unwrap())
    }

    pub(crate) async fn recalled(&self, matches: MemoryMatch) -> Vec<MemoryRow> {
        let filter = MemoryFilter {
            mesh: self.mesh,
            peer: None,
            matches,
            limit: 100,
            bytes_max: usize::MAX,
        };
        self.store.recall(filter).await.unwrap().0
    }

    pub(crate) async fn one(&self, at: &str) -> Option<MemoryRow> {
        self.recalled(MemoryMatch::Key(key(at))).await.pop()
    }

    pub(crate) async fn keys_with(&self, words: &str) -> Vec<String> {
        let words = SearchQuery::parse(words).unwrap();
        let rows = self.recalled(MemoryMatch::Words(words)).await;
        rows.into_iter().map(|row| row.key).collect()
    }

    pub(crate) fn everything(&self) -> Vec<Vec<String>> {
        TABLES.iter().map(|table| self.dump(table)).collect()
    }

    pub(crate) fn op(&self, lamport: u64, peer: &str, write: Option<Value>) -> DataOp {
        DataOp {
            stamp: Stamp {
                lamport,
                peer: PeerId::new(peer),
                op: OpId(self.ids.uuid_v7()),
            },
            incarnation: 1,
            at: NOW,
            over: Over::Unsaid,
            body: OpBody::Memory(MemoryChange {
                key: key("k"),
                write: write.as_ref().map(note),
            }),
        }
    }

    pub(crate) async fn take_in(&self, op: &DataOp) -> Merged {
        self.store.take_in(self.mesh, op.clone()).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lf_01_a_hundred_concurrent_changes_get_consecutive_distinct_stamps() {
    let fixture = Fixture::new();
    let tasks: Vec<_> = (0..100)
        .map(|n| {
            let store = fixture.store.clone();
            let change = fixture.change(fixture.party("planner"), &format!("id-{n}"), 1);
            tokio::spawn(async move {
                if n % 2 == 0 {
                    let at = key(&format!("k{}", n % 10));
                    let new = note(&json!(n));
                    fresh(
                        store
                            .remember::<Infallible>(change, at, Ok(new))
                            .await
                            .unwrap(),
                    )
                } else {
                    let new = NewState {
                        value: value(&json!(n)),
                    };
                    let set = store.set_state::<Infallible>(change, key("s"), Ok(new));
                    fresh(set.await.unwrap())
                }
            })
        })
        .collect();
    let mut stamps = BTreeSet::new();
    for task in tasks {
        assert!(stamps.insert(task.await.unwrap().stamp.lamport));
    }
    assert_eq!(stamps, (1..=100).collect());
    let clock = fixture.store.data_clock(fixture.mesh).await.unwrap();
    assert_eq!((clock.value, clock.incarnation), (100, 1));
}

#[tokio::test]
async fn lf_01_each_mesh_has_a_clock_of_its_own() {
    let mut fixture = Fixture::new();
    fixture.remember("a", "k", &json!(1)).await;
    let first = fixture.mesh;
    fixture.mesh = heddle_core::ids::MeshId(fixture.ids.ulid());
    assert_eq!(fixture.remember("a", "k", &json!(1)).await.stamp.lamport, 1);
    assert_eq!(fixture.store.data_clock(first).await.unwrap().value, 1);
}

#[tokio::test]
async fn lf_03_a_change_that_fails_leaves_clock_row_key_and_index_as_they_were() {
    let fixture = Fixture::new();
    fixture.remember("a", "k", &json!("first words")).await;
    fixture.set("b", "s", &json!(1)).await;
    let before = fixture.everything();
    // Fails behind the tick and behind the row.
    fixture
        .raw()
        .execute_batch(
            "CREATE TRIGGER boom BEFORE INSERT ON applied_request
             BEGIN SELECT RAISE(ABORT, 'boom'); END",
        )
        .unwrap();
    let planner = || fixture.party("planner");
    let (remember, set) = (
        fixture.change(planner(), "c", 1),
        fixture.change(planner(), "d", 1),
    );
    let new = NewState {
        value: value(&json!(2)),
    };
    let second = Ok(note(&json!("second")));
    let remembered = fixture
        .store
        .remember::<Infallible>(remember, key("k"), second);
    assert!(remembered.await.is_err());
    let set = fixture
        .store
        .set_state::<Infallible>(set, key("s"), Ok(new));
    assert!(set.await.is_err());
    let forget = fixture.change(planner(), "e", 1);
    assert!(
        fixture
            .store
            .forget::<Infallible>(forget, key("k"))
            .await
            .is_err()
    );
    assert_eq!(fixture.everything(), before);
    assert_eq!(fixture.keys_with("first").await, ["k"]);
    assert_eq!(fixture.keys_with("second").await, [] as [&str; 0]);
}

#[tokio::test]
async fn lf_04_one_tick_for_each_change_and_none_for_anything_else() {
    let fixture = Fixture::new();
    assert_eq!(fixture.remember("a", "k", &json!(1)).await.stamp.lamport, 1);
    // The same value under another id is another event.
    assert_eq!(fixture.remember("b", "k", &json!(1)).await.stamp.lamport, 2);
    assert_eq!(fresh(fixture.forget("c", "k").await).stamp.lamport, 3);
    let before = fixture.everything();
    assert_eq!(fixture.forget("d", "k").await, Applied::Absent);
    assert_eq!(fixture.forget("d", "never").await, Applied::Absent);
    let refused = fixture.change(fixture.party("planner"), "e", 1);
    let refused = fixture.store.remember(refused, key("k"), Err("full")).await;
    assert_eq!(refused.unwrap(), Applied::Refused("full"));
    fixture.recalled(MemoryMatch::All { after: None }).await;
    assert_eq!(fixture.everything(), before, "no tick, no row, no key");
}

#[tokio::test]
async fn the_gate_gives_the_first_answer_again_and_refuses_another_request() {
    let fixture = Fixture::new();
    let first = fixture.remember("a", "k", &json!(1)).await;
    fixture.remember("b", "k", &json!(2)).await;
    let before = fixture.everything();
    // A known id is answered whatever stands against a new one.
    let again = fixture.change(fixture.party("planner"), "a", 1);
    let again = fixture.store.remember(again, key("k"), Err("full")).await;
    assert_eq!(again.unwrap(), Applied::Duplicate(first));
    let other = fixture.change(fixture.party("planner"), "a", 9);
    let other = fixture
        .store
        .forget::<Infallible>(other, key("k"))
        .await
        .unwrap();
    let conflict = Applied::Conflict {
        stored: print(1),
        at: NOW,
    };
    assert_eq!(other, conflict);
    assert_eq!(fixture.everything(), before);
    // Another agent's ids are its own (C1).
    let coder = fixture.change(fixture.party("coder"), "a", 9);
    let coder = fixture
        .store
        .remember::<Infallible>(coder, key("k"), Ok(note(&json!(3))));
    assert_eq!(fresh(coder.await.unwrap()).stamp.lamport, 3);
    assert_eq!(fixture.recalled(MemoryMatch::Key(key("k"))).await.len(), 2);
}

#[tokio::test]
async fn words_of_keys_tags_texts_and_numbers_are_found_and_forgotten_ones_are_not() {
    let fixture = Fixture::new();
    let deep = json!({"Hinweis": ["line one\nline two", {"port": 5432}], "flag": true});
    fixture.remember("a", "deploy.notes", &deep).await;
    fixture
        .remember("b", "other", &json!("nul \u{0} inside"))
        .await;
    for (typed, expected) in [
        ("deploy", &["deploy.notes"][..]),
        ("hinweis", &["deploy.notes"]),
        ("line two", &["deploy.notes"]),
        ("5432", &["deploy.notes"]),
        ("nul*", &["other"]),
        ("true", &[]),
    ] {
        assert_eq!(fixture.keys_with(typed).await, expected, "{typed}");
    }
    assert_eq!(fixture.keys_with("a b").await.len(), 2, "tags");
    fixture
        .remember("c", "deploy.notes", &json!("changed"))
        .await;
    assert_eq!(fixture.keys_with("hinweis").await, [] as [&str; 0]);
    assert_eq!(fixture.keys_with("changed").await, ["deploy.notes"]);
    fresh(fixture.forget("d", "deploy.notes").await);
    assert_eq!(fixture.keys_with("deploy").await, [] as [&str; 0]);
    // The index agrees with the table, as FTS5 itself sees it.
    fixture
        .raw()
        .execute_batch("INSERT INTO memory_fts (memory_fts) VALUES ('integrity-check')")
        .unwrap();
}

#[tokio::test]
async fn lists_go_on_behind_their_last_row_by_count_and_by_bytes() {
    let fixture = Fixture::new();
    for n in 0..7 {
        fixture
            .remember(&format!("m{n}"), &format!("k{n}"), &json!(n))
            .await;
        let at = format!("p/{n}");
        fixture.set(&format!("s{n}"), &at, &json!("xxxxxxxx")).await;
    }
    fixture.set("q", "q%_", &json!(0)).await;
    let (mut after, mut keys) = (None, Vec::new());
    loop {
        let filter = MemoryFilter {
            mesh: fixture.mesh,
            peer: None,
            matches: MemoryMatch::All { after },
            limit: 3,
            bytes_max: usize::MAX,
        };
        let (rows, more) = fixture.store.recall(filter).await.unwrap();
        after = rows.last().map(|row| row.place);
        keys.extend(rows.into_iter().map(|row| row.key));
        if !more {
            break;
        }
    }
    assert_eq!(keys, ["k0", "k1", "k2", "k3", "k4", "k5", "k6"]);
    let (mut after, mut keys) = (None, Vec::new());
    loop {
        let filter = StateFilter {
            mesh: fixture.mesh,
            prefix: "p/".to_owned(),
            after,
            limit: 100,
            bytes_max: 15,
        };
        let (rows, more) = fixture.store.list_state(filter).await.unwrap();
        assert!(rows.len() <= 2);
        after = rows.last().map(|row| row.key.clone());
        keys.extend(rows.into_iter().map(|row| row.key));
        if !more {
            break;
        }
    }
    assert_eq!(keys, ["p/0", "p/1", "p/2", "p/3", "p/4", "p/5", "p/6"]);
}

#[tokio::test]
async fn what_was_answered_is_there_after_a_crash_with_its_clock_and_its_key() {
    let fixture = Fixture::new();
    let first = fixture.remember("a", "k", &json!("kept")).await;
    let (_folder, store) = fixture.crashed_copy();
    let change = fixture.change(fixture.party("planner"), "a", 1);
    let again = store.remember::<Infallible>(change, key("k"), Ok(note(&json!("kept"))));
    assert_eq!(again.await.unwrap(), Applied::Duplicate(first));
    let change = fixture.change(fixture.party("planner"), "b", 1);
    let next = store.remember::<Infallible>(change, key("k"), Ok(note(&json!("more"))));
    assert_eq!(fresh(next.await.unwrap()).stamp.lamport, 2);
}

#[tokio::test]
async fn data_that_cannot_be_right_is_an_error_and_no_panic() {
    let fixture = Fixture::new();
    fixture.remember("a", "k", &json!(1)).await;
    let raw = fixture.raw();
    raw.execute_batch("UPDATE memory SET tags = 'no list'")
        .unwrap();
    raw.execute_batch("UPDATE applied_request SET answer = '{}'")
        .unwrap();
    let filter = MemoryFilter {
        mesh: fixture.mesh,
        peer: None,
        matches: MemoryMatch::Key(key("k")),
        limit: 1,
        bytes_max: 1,
    };
    assert!(fixture.store.recall(filter).await.is_err());
    let change = fixture.change(fixture.party("planner"), "a", 1);
    assert!(
        fixture
            .store
            .forget::<Infallible>(change, key("k"))
            .await
            .is_err()
    );
    drop(raw);
    fixture.store.stop();
    assert!(open(&fixture.path()).is_ok());
}

#[tokio::test]
async fn xc_09_a_damaged_inbox_or_search_index_costs_no_memory_and_no_key() {
    for broken in [
        "inbox",
        "memory_fts_data",
        "memory_fts_idx",
        "memory_fts_docsize",
    ] {
        let fixture = Fixture::new();
        for n in 0..50 {
            let id = format!("a{n}");
            fixture
                .remember(&id, &format!("k{n}"), &json!(format!("words {n}")))
                .await;
            fixture
                .set(&format!("s{n}"), &format!("k{n}"), &json!(n))
                .await;
        }
        fresh(fixture.forget("f", "k7").await);
        fixture.store.stop();
        fixture
            .raw()
            .execute_batch("UPDATE store_state SET clean = 0")
            .unwrap();
        let before = fixture.everything();
        damage(&fixture.path(), broken);
        let (store, parked) = open_or_park(&fixture.path()).unwrap();
        assert!(parked.is_some(), "{broken}");
        let fixture = Fixture { store, ..fixture };
        assert_eq!(fixture.everything(), before, "{broken}");
        assert_eq!(fixture.keys_with("words").await.len(), 49, "{broken}");
        // The triggers came along.
        fixture.remember("z", "k1", &json!("other")).await;
        assert_eq!(fixture.keys_with("words").await.len(), 48, "{broken}");
    }
}

#[tokio::test]
async fn dr_16_damaged_data_is_refused_and_never_begun_anew() {
    for broken in ["memory", "state_kv", "lamport_clock", "applied_request"] {
        let fixture = Fixture::new();
        fixture.remember("a", "k", &json!(1)).await;
        fixture.set("b", "k", &json!(1)).await;
        fixture.store.stop();
        fixture
            .raw()
            .execute_batch("UPDATE store_state SET clean = 0")
            .unwrap();
        damage(&fixture.path(), broken);
        let before = std::fs::read(fixture.path()).unwrap();
        assert!(open_or_park(&fixture.path()).is_err(), "{broken}");
        assert_eq!(std::fs::read(fixture.path()).unwrap(), before, "{broken}");
    }
}
