//! What is refused, under which code, on every store.

use std::sync::Arc;

use heddle_core::ids::{ClientMessageId, HistoryId};
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
    t_22_what_goes_to_nobody_is_refused_and_leaves_no_row,
    t_27_whatever_an_id_and_a_text_look_like_they_are_only_kept,
);

/// What ends a literal, a statement, a comment or a text in some language, or looks as if it did.
const HOSTILE: [&str; 12] = [
    "x'; DROP TABLE mesh.message; --",
    "\"; DELETE FROM message; --",
    "' OR '1'='1",
    "1) UNION SELECT * FROM member --",
    "$1",
    "?1",
    "%s%n",
    "\\'; SELECT pg_sleep(60); --",
    "$$; DROP SCHEMA mesh CASCADE; $$",
    "{a,b}\",NULL",
    "E'\\x00'",
    "\u{202e}\u{fffd}\u{1f4a3}",
];

async fn t_22_what_goes_to_nobody_is_refused_and_leaves_no_row<S: TestStorage>(storage: Arc<S>) {
    let gate = Gate::open(storage).await;
    gate.subscribe_all(&["a/one"]).await;
    let before = gate.storage().dump().await;
    for to in ["#nowhere", "@b/one", "@a/ghost"] {
        let refused = gate.send("a/one", "A", to, "x").await;
        assert_eq!(refused_code(&refused), "unknown_recipient", "{to}");
    }
    for hostile in HOSTILE {
        let mut written = envelope("#ops", "x", &[]);
        written["destination"]["ref"] = hostile.into();
        let item = SendItem {
            envelope: to_raw_value(&written).unwrap(),
            ..send_item("one", "A", "#ops", "x")
        };
        let decided = gate.batch("a", vec![item]).await;
        let refused = matches!(decided.verdicts[..], [Verdict::Refused(_)]);
        assert!(refused, "{hostile}: {:?}", decided.verdicts);
    }
    assert_eq!(gate.storage().dump().await, before);
}

async fn t_27_whatever_an_id_and_a_text_look_like_they_are_only_kept<S: TestStorage>(
    storage: Arc<S>,
) {
    let gate = Gate::open(storage).await;
    gate.subscribe_all(&["a/one", "b/one"]).await;
    // An id is shorter of alphabet than a text is: what it may not be never comes so far.
    let ids = HOSTILE.map(|text| ClientMessageId::parse(text).is_ok());
    let mut kept = Vec::new();
    for (hostile, may_be_id) in HOSTILE.into_iter().zip(ids) {
        let id = if may_be_id { hostile } else { "plain" };
        let mut written = envelope("#ops", hostile, &[]);
        written["meta"] = serde_json::json!({hostile: hostile});
        let item = || SendItem {
            envelope: to_raw_value(&written).unwrap(),
            ..send_item("one", id, "#ops", "x")
        };
        if !may_be_id && gate.holds("a/one", id).await {
            continue;
        }
        let decided = gate.batch("a", vec![item()]).await;
        assert_eq!(refused_code(&decided.verdicts[0]), "created", "{hostile}");
        let again = gate.batch("a", vec![item()]).await;
        assert_eq!(refused_code(&again.verdicts[0]), "duplicate", "{hostile}");
        assert!(!gate.holds("b/one", id).await, "{hostile}");
        kept.push(written.to_string());
    }
    assert!(ids.contains(&true), "no id of them gets so far");
    let history = gate.storage().history_after(mesh(1), HistoryId::ZERO, 99);
    let found: Vec<String> = history
        .await
        .unwrap()
        .into_iter()
        .map(|row| serde_json::from_str::<serde_json::Value>(&row.envelope.unwrap()))
        .map(|envelope| envelope.unwrap().to_string())
        .collect();
    assert_eq!(found, kept);
}

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
