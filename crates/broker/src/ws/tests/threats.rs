//! The rows of the threat table about who may say what: T-21, T-22, T-23, T-27, T-28, T-29, T-31. What cannot even be
//! written down (a sender's field in a message) is shown by what is there instead.

use heddle_core::ids::HistoryId;
use heddle_core::limits::MENTIONS_MAX;
use heddle_wire::broker::{SendItem, Verdict};
use serde_json::json;
use serde_json::value::to_raw_value;

use super::client::Hello;
use super::house::House;
use crate::storage::{Log as _, Storage as _, Upkeep as _};
use crate::test_support::{envelope, mesh, party, principal, refused_code, send_item, topic};

fn with(id: &str, envelope: &serde_json::Value) -> SendItem {
    SendItem {
        envelope: to_raw_value(envelope).unwrap(),
        ..send_item("one", id, "#ops", "x")
    }
}

fn codes(verdicts: &[Verdict]) -> Vec<&str> {
    verdicts.iter().map(refused_code).collect()
}

#[tokio::test]
async fn t_21_a_connection_speaks_for_the_member_that_was_proven_and_for_no_other() {
    let house = House::new().await;
    let (mut b, _serving_b) = house.enter("b", &["one"]).await;
    // The transport has proven a; the hello says b.
    let (mut a, serving) = house.connect("a").await;
    a.frame().await;
    a.hello(Hello::of(&principal("b"), &["one"])).await;
    let (code, _) = a.closed().await;
    assert!(code >= 1008, "{code}");
    drop(serving);
    // What a sends as `one` is a's, though b has an agent of that name, and no field of the envelope changes that.
    let (mut a, _serving_a) = house.enter("a", &["one"]).await;
    let mut forged = envelope("@b/one", "hello", &[]);
    a.send(1, vec![with("A", &forged)]).await;
    assert_eq!(codes(&a.verdicts().await.1), ["created"]);
    let delivered = b.deliveries().await;
    assert_eq!(delivered[0].from.party, party("a/one"));
    for field in ["from", "sender", "sender_member", "member"] {
        forged[field] = json!(party("b/one").to_string());
        a.send(2, vec![with(field, &forged)]).await;
        assert_eq!(codes(&a.verdicts().await.1), ["invalid_request"], "{field}");
        forged.as_object_mut().unwrap().remove(field);
    }
    // An agent that is b's alone is not a's to send as.
    a.send(3, vec![send_item("planner", "B", "@b/one", "x")])
        .await;
    assert_eq!(codes(&a.verdicts().await.1), ["unknown_agent"]);
}

#[tokio::test]
async fn t_22_t_27_what_goes_to_nobody_is_refused_and_hostile_names_are_only_names() {
    let house = House::new().await;
    let (mut a, _serving) = house.enter("a", &["one"]).await;
    let hostile = "x'; DROP TABLE message; --";
    let mut to_hostile = envelope("#ops", "x", &[]);
    to_hostile["destination"]["ref"] = json!(hostile);
    let mut to_stranger = envelope("@a/one", "x", &[]);
    to_stranger["destination"]["ref"] = json!("01ARZ3NDEKTSV4RRFFQ69G5FAV/one");
    let items = vec![
        send_item("one", "A", "#nowhere", "x"),
        send_item("one", "B", "@b/one", "x"),
        with("C", &to_stranger),
        with("D", &to_hostile),
    ];
    a.send(1, items).await;
    let (_, verdicts) = a.verdicts().await;
    assert_eq!(
        codes(&verdicts),
        [
            "unknown_recipient",
            "unknown_recipient",
            "unknown_recipient",
            "invalid_request"
        ]
    );
    assert_eq!(house.storage.effect_rows(mesh(1)).await, Ok(0), "no rows");
    // In a body and in meta it is text like any other.
    house
        .storage
        .create_topic(mesh(1), &topic("#ops"))
        .await
        .unwrap();
    let mut item = envelope("#ops", hostile, &[]);
    item["meta"] = json!({hostile: hostile});
    a.send(2, vec![with("E", &item)]).await;
    assert_eq!(codes(&a.verdicts().await.1), ["created"]);
    let history = house
        .storage
        .history_after(mesh(1), HistoryId::ZERO, 9)
        .await;
    let kept = history.unwrap()[0].envelope.clone();
    assert!(kept.is_some_and(|kept| kept.contains("DROP TABLE")));
}

#[tokio::test]
async fn t_23_t_28_an_id_of_somebody_else_tells_nothing_and_a_conflict_shows_eight_bytes() {
    let house = House::new().await;
    let (mut a, _serving_a) = house.enter("a", &["one"]).await;
    let (mut b, _serving_b) = house.enter("b", &["one"]).await;
    house
        .storage
        .create_topic(mesh(1), &topic("#ops"))
        .await
        .unwrap();
    let secret = "the-body-of-a";
    for (client, texts) in [(&mut a, [secret, secret]), (&mut b, [secret, "another"])] {
        client
            .send(1, vec![send_item("one", "deploy-42", "#ops", texts[0])])
            .await;
        assert_eq!(codes(&client.verdicts().await.1), ["created"]);
        client
            .send(2, vec![send_item("one", "deploy-42", "#ops", texts[1])])
            .await;
        let (_, verdicts) = client.verdicts().await;
        match &verdicts[0] {
            Verdict::Conflict {
                broker_fingerprint_prefix,
                ..
            } => assert_eq!(broker_fingerprint_prefix.len(), 16),
            other => assert!(matches!(other, Verdict::Duplicate { .. }), "{other:?}"),
        }
        let said = serde_json::to_string(&verdicts).unwrap();
        assert!(!said.contains(secret), "{said}");
    }
}

#[tokio::test]
async fn t_29_t_31_more_mentions_than_a_message_may_have_and_an_epoch_of_ones_own_are_refused() {
    let house = House::new().await;
    let (mut a, _serving) = house.enter("a", &["one"]).await;
    house
        .storage
        .create_topic(mesh(1), &topic("#ops"))
        .await
        .unwrap();
    let many = |count: usize| {
        let mut item = envelope("#ops", "x", &[]);
        let who = principal("a").member;
        let names: Vec<String> = (0..count).map(|n| format!("{who}/n{n:06}")).collect();
        item["mentions"] = json!(names);
        item
    };
    let items = vec![
        with("A", &many(MENTIONS_MAX)),
        with("B", &many(MENTIONS_MAX + 1)),
        with("C", &many(10_000)),
    ];
    a.send(1, items).await;
    let (_, verdicts) = a.verdicts().await;
    assert_eq!(
        codes(&verdicts),
        ["created", "invalid_request", "invalid_request"]
    );
    let forged = SendItem {
        epoch: Some(9),
        ..send_item("one", "D", "log:ops", "{}")
    };
    a.send(2, vec![forged]).await;
    let (epoch, verdicts) = a.verdict_epoch().await;
    assert_eq!((epoch, codes(&verdicts)), (Some(1), vec!["epoch_mismatch"]));
    assert_eq!(house.storage.epochs(mesh(1)).await.unwrap().epoch, 1);
}
