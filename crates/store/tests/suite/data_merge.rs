//! Ops of elsewhere in the data of a mesh: stamps at their end, the winner of two writes, any order of arrival.

use std::collections::BTreeSet;
use std::convert::Infallible;

use heddle_core::op::{DataOp, NewState, OpBody, StateChange};
use heddle_store::{MemoryMatch, Merged, Taken};
use serde_json::json;

use crate::data::{key, note};
use crate::fixture::Fixture;

/// The same op on the state of that key.
fn on_state(op: &DataOp) -> DataOp {
    let OpBody::Memory(change) = &op.body else {
        panic!("{op:?}");
    };
    let write = change.write.clone();
    DataOp {
        body: OpBody::State(StateChange {
            key: change.key.clone(),
            write: write.map(|new| NewState { value: new.value }),
        }),
        ..op.clone()
    }
}

#[tokio::test]
async fn lf_06_a_stamp_of_2_to_the_63_minus_1_is_refused_and_the_counter_stays() {
    let fixture = Fixture::new();
    fixture.remember("a", "k", &json!(1)).await;
    let before = fixture.everything();
    for poison in [(1 << 63) - 1, 1 << 63, u64::MAX] {
        let op = fixture.op(poison, "m/x", Some(json!("poison")));
        for op in [on_state(&op), op] {
            let merged = fixture.take_in(&op).await;
            assert!(matches!(merged, Merged::Refused(_)), "{merged:?}");
        }
    }
    assert_eq!(fixture.everything(), before);
    assert_eq!(fixture.remember("b", "k", &json!(1)).await.stamp.lamport, 2);
}

#[tokio::test]
async fn lf_06_a_counter_at_its_end_fails_and_never_becomes_a_float() {
    let fixture = Fixture::new();
    fixture.remember("a", "k", &json!(1)).await;
    let raw = fixture.raw();
    let end = "UPDATE lamport_clock SET value = 9223372036854775807";
    raw.execute_batch(end).unwrap();
    let before = fixture.everything();
    let change = fixture.change(fixture.party("planner"), "b", 1);
    let remembered = fixture
        .store
        .remember::<Infallible>(change, key("k"), Ok(note(&json!(2))));
    assert!(remembered.await.is_err());
    assert_eq!(fixture.everything(), before);
    assert!(
        raw.execute_batch("UPDATE lamport_clock SET value = value + 1")
            .is_err()
    );
    assert!(
        raw.execute_batch("UPDATE lamport_clock SET value = -1")
            .is_err()
    );
}

#[tokio::test]
async fn lf_07_a_decomposed_key_is_the_same_row_and_keys_are_ordered_by_bytes() {
    let fixture = Fixture::new();
    fixture.remember("a", "caf\u{e9}", &json!(1)).await;
    fixture.remember("b", "cafe\u{301}", &json!(2)).await;
    fixture.remember("c", "Z", &json!(3)).await;
    fixture.remember("d", "a", &json!(4)).await;
    let rows = fixture.recalled(MemoryMatch::All { after: None }).await;
    let keys: Vec<&str> = rows.iter().map(|row| row.key.as_str()).collect();
    assert_eq!(keys, ["Z", "a", "caf\u{e9}"]);
    assert_eq!(rows[2].value, "2");
}

#[tokio::test]
async fn lf_10_the_row_has_the_winners_stamp_and_a_losing_op_changes_no_byte_of_it() {
    let fixture = Fixture::new();
    let winner = fixture.op(7, "m/x", Some(json!("won")));
    let loser = fixture.op(6, "m/x", Some(json!("lost")));
    assert_eq!(
        fixture.take_in(&winner).await,
        Merged::Taken(Taken::Applied)
    );
    let row = fixture.one("k").await.unwrap();
    assert_eq!(
        row.stamp, winner.stamp,
        "the op's own, not the merged clock"
    );
    assert_eq!(
        fixture.store.data_clock(fixture.mesh).await.unwrap().value,
        8
    );
    let before = fixture.dump("memory");
    assert_eq!(fixture.take_in(&loser).await, Merged::Taken(Taken::Kept));
    assert_eq!(fixture.dump("memory"), before);
    let before = fixture.everything();
    assert_eq!(fixture.take_in(&winner).await, Merged::Taken(Taken::Same));
    assert_eq!(fixture.everything(), before, "C9: twice is once");
    assert_eq!(fixture.keys_with("lost").await, [] as [&str; 0]);
    assert_eq!(fixture.keys_with("won").await, ["k"]);
}

#[tokio::test]
async fn lf_11_an_older_write_does_not_bring_back_what_was_forgotten() {
    let fixture = Fixture::new();
    let ops = [
        fixture.op(9, "m/x", None),
        fixture.op(8, "m/x", Some(json!("old"))),
    ];
    for op in ops {
        fixture.take_in(&op).await;
    }
    assert_eq!(fixture.one("k").await, None);
    assert_eq!(fixture.keys_with("old").await, [] as [&str; 0]);
}

#[tokio::test]
async fn lf_08_any_order_of_the_same_ops_gives_the_same_rows() {
    let mint = Fixture::new();
    let mut ops = Vec::new();
    for lamport in 1..4 {
        for peer in ["m/a", "m/b"] {
            for write in [Some(json!(lamport)), None] {
                ops.push(mint.op(lamport, peer, write));
            }
        }
    }
    let mut dumps = BTreeSet::new();
    for turn in 0..ops.len() {
        let fixture = Fixture::new();
        let mut turned = ops.clone();
        turned.rotate_left(turn);
        if turn % 2 == 1 {
            turned.reverse();
        }
        for op in &turned {
            for op in [&on_state(op), op] {
                fixture.store.take_in(mint.mesh, op.clone()).await.unwrap();
            }
        }
        let memory =
            "SELECT group_concat(quote(peer) || quote(lamport) || quote(op_id) || quote(value))
            FROM (SELECT * FROM memory ORDER BY peer)";
        let state = "SELECT quote(updated_by) || quote(lamport) || quote(op_id) || quote(value) FROM state_kv";
        let look = |sql: &str| {
            fixture
                .raw()
                .query_row(sql, [], |row| row.get::<_, String>(0))
                .unwrap()
        };
        dumps.insert((look(memory), look(state)));
    }
    assert_eq!(dumps.len(), 1, "{dumps:#?}");
}
