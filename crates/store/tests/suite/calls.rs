//! Keys of calls that change no data: consumed before the call runs, answered behind it, and true whatever comes between.

use heddle_core::ids::OpId;
use heddle_store::{Applied, Called, ChangeKey};
use serde_json::{Value, json};

use crate::data::{key, value};
use crate::fixture::{Fixture, print};

fn call(fixture: &Fixture, id: &str, fingerprint: u8) -> ChangeKey {
    let key = fixture.change(fixture.party("planner"), id, fingerprint);
    ChangeKey {
        op: OpId::from_bytes([0; 16]),
        ..key
    }
}

async fn begin(fixture: &Fixture, key: &ChangeKey) -> Called {
    fixture.store.begin_call(key.clone()).await.unwrap()
}

#[tokio::test]
async fn a_call_is_fresh_once_and_answered_with_its_first_answer() {
    let fixture = Fixture::new().with_mesh().await;
    let one = call(&fixture, "k", 1);
    assert_eq!(begin(&fixture, &one).await, Called::Fresh);
    let answer = json!({"topic": "ops", "changed": true});
    fixture
        .store
        .end_call(one.clone(), answer.clone())
        .await
        .unwrap();
    for _ in 0..2 {
        assert_eq!(
            begin(&fixture, &one).await,
            Called::Duplicate(answer.clone())
        );
    }
    let other = begin(&fixture, &call(&fixture, "k", 2)).await;
    assert!(
        matches!(other, Called::Conflict { stored, .. } if stored == print(1)),
        "{other:?}"
    );
}

/// Killed between its beginning and its answer: nobody knows how it ended, and another request is another one all the same.
#[tokio::test]
async fn a_call_that_a_crash_cut_off_is_unknown_until_it_was_run_again() {
    let fixture = Fixture::new().with_mesh().await;
    let one = call(&fixture, "k", 1);
    assert_eq!(begin(&fixture, &one).await, Called::Fresh);
    let (_folder, store) = fixture.crashed_copy();
    assert_eq!(
        store.begin_call(one.clone()).await.unwrap(),
        Called::Unknown
    );
    let other = store.begin_call(call(&fixture, "k", 2)).await.unwrap();
    assert!(matches!(other, Called::Conflict { .. }), "{other:?}");
    store.end_call(one.clone(), json!(1)).await.unwrap();
    assert_eq!(
        store.begin_call(one).await.unwrap(),
        Called::Duplicate(json!(1))
    );
}

#[tokio::test]
async fn a_refusal_gives_the_key_back_and_an_answer_never_does() {
    let fixture = Fixture::new().with_mesh().await;
    let one = call(&fixture, "k", 1);
    begin(&fixture, &one).await;
    fixture.store.take_back_call(one.clone()).await.unwrap();
    let other = call(&fixture, "k", 2);
    assert_eq!(begin(&fixture, &other).await, Called::Fresh);
    fixture
        .store
        .end_call(other.clone(), Value::Null)
        .await
        .unwrap();
    fixture.store.take_back_call(other.clone()).await.unwrap();
    assert_eq!(
        begin(&fixture, &other).await,
        Called::Duplicate(Value::Null)
    );
}

#[tokio::test]
async fn a_call_and_a_change_of_data_share_their_keys() {
    let fixture = Fixture::new().with_mesh().await;
    begin(&fixture, &call(&fixture, "k", 7)).await;
    let change = fixture.change(fixture.party("planner"), "k", 1);
    let new = heddle_core::op::NewState {
        value: value(&json!(1)),
    };
    let applied = fixture
        .store
        .set_state::<()>(change, key("k"), Ok(new))
        .await;
    assert!(matches!(applied.unwrap(), Applied::Conflict { .. }));
    fixture.set("s", "k", &json!(1)).await;
    let taken = begin(&fixture, &call(&fixture, "s", 7)).await;
    assert!(matches!(taken, Called::Conflict { .. }), "{taken:?}");
}
