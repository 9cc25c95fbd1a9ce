//! What is refused, under which code, on every store.

use std::sync::Arc;

use heddle_wire::broker::{SendItem, Verdict};
use serde_json::value::{RawValue, to_raw_value};

use crate::storage::StorageError;
use crate::test_support::{
    Gate, TestStorage, envelope, mesh, on_every_storage, refused_code, send_item,
};

on_every_storage!(
    what_cannot_be_an_envelope_is_refused_and_under_a_known_id_a_conflict,
    ops_go_to_the_log_and_messages_do_not,
    a_mesh_that_does_not_exist_is_refused_for_now,
);

async fn what_cannot_be_an_envelope_is_refused_and_under_a_known_id_a_conflict<S: TestStorage>(
    storage: Arc<S>,
) {
    let gate = Gate::open(storage).await;
    gate.subscribe_all(&["a/one"]).await;
    gate.send("a/one", "known", "#ops", "x").await;
    for bad in [
        "7",
        "{}",
        r#"{"v":1,"v":1}"#,
        r#"{"v":9,"kind":"message","destination":{"kind":"topic","ref":"ops"},"priority":"next","body":"x"}"#,
        r#"{"v":1,"kind":"message","destination":{"kind":"topic","ref":"a b"},"priority":"next","body":"x"}"#,
        r#"{"v":1,"kind":"message","destination":{"kind":"dm","ref":"ops"},"priority":"next","body":"x"}"#,
    ] {
        let item = |id| SendItem {
            envelope: RawValue::from_string(bad.to_owned()).unwrap(),
            ..send_item("one", id, "#ops", "x")
        };
        let decided = gate.batch("a", vec![item("new"), item("known")]).await;
        let codes: Vec<&str> = decided.verdicts.iter().map(refused_code).collect();
        assert_eq!(codes, ["invalid_request", "conflict"], "{bad}");
    }
}

async fn ops_go_to_the_log_and_messages_do_not<S: TestStorage>(storage: Arc<S>) {
    let gate = Gate::open(storage).await;
    gate.subscribe_all(&["a/one"]).await;
    let item = |to: &str, kind: &str| {
        let mut written = envelope(to, "x", &[]);
        written["kind"] = kind.into();
        SendItem {
            envelope: to_raw_value(&written).unwrap(),
            ..send_item("one", "op", to, "x")
        }
    };
    let items = vec![
        item("#ops", "op"),
        item("log:ops", "message"),
        item("log:diary", "op"),
    ];
    let decided = gate.batch("a", items).await;
    let details: Vec<&str> = decided
        .verdicts
        .iter()
        .map(|verdict| match verdict {
            Verdict::Refused(refused) => refused.detail.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        details,
        [
            "an op goes to the log, and nowhere else",
            "only ops go to the log",
            "there is no such log",
        ]
    );
}

async fn a_mesh_that_does_not_exist_is_refused_for_now<S: TestStorage>(storage: Arc<S>) {
    let gate = Gate::open(storage).await;
    let mut stranger = crate::test_support::principal("a");
    stranger.mesh = mesh(9);
    let items = vec![send_item("one", "A", "#ops", "x")];
    let decided = gate.accept.accept(&stranger, items).await;
    assert_eq!(refused_code(&decided.verdicts[0]), "unknown_mesh");
    let known = gate.storage().known(mesh(9), vec![]).await;
    assert_eq!(known, Err(StorageError::UnknownMesh(mesh(9))));
}
