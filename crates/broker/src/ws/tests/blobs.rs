//! Parts of files between two members: asked for, given, bounded, and kept nowhere.

use heddle_core::file::ContentHash;
use heddle_core::limits::BLOB_ASKS_MAX;
use heddle_wire::broker::{BlobPlace, ClientFrame, PartBytes, ReplyResult, Request, ServerFrame};

use super::client::Client;
use super::house::House;
use crate::test_support::member;

fn part() -> BlobPlace {
    BlobPlace {
        sha256: ContentHash::of(b"x"),
        offset: 3,
        length: 4,
    }
}

pub(super) async fn ask(client: &mut Client, request: u64, from: &str) {
    let body = Request::BlobRead {
        member: member(from),
        part: part(),
    };
    client.say(&ClientFrame::Request { request, body }).await;
}

pub(super) async fn asked(client: &mut Client) -> u64 {
    loop {
        if let ServerFrame::BlobAsked { ask, part: wanted } = client.frame().await {
            assert_eq!(wanted, part());
            return ask;
        }
    }
}

pub(super) async fn reply(client: &mut Client) -> (u64, ReplyResult) {
    loop {
        if let ServerFrame::Reply { request, result } = client.frame().await {
            return (request, result);
        }
    }
}

pub(super) fn words(result: &ReplyResult) -> String {
    match result {
        ReplyResult::BlobPart { data } => String::from_utf8(data.0.clone()).unwrap(),
        ReplyResult::Absent => "absent".to_owned(),
        ReplyResult::Refused(refused) => refused.code.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_part_goes_from_the_member_that_was_asked_to_the_one_that_asked() {
    let house = House::new().await;
    let (mut a, _serving_a) = house.enter("a", &["one"]).await;
    let (mut b, _serving_b) = house.enter("b", &["one"]).await;
    let (mut c, _serving_c) = house.enter("c", &["one"]).await;
    ask(&mut b, 1, "a").await;
    let number = asked(&mut a).await;
    let give = |data: &str| ClientFrame::BlobPart {
        ask: number,
        data: Some(PartBytes(data.as_bytes().to_vec())),
    };
    // Somebody who was not asked is not heard.
    c.say(&give("evil")).await;
    ask(&mut c, 9, "nobody").await;
    assert_eq!(words(&reply(&mut c).await.1), "absent");
    a.say(&give("good")).await;
    let (request, result) = reply(&mut b).await;
    assert_eq!((request, words(&result).as_str()), (1, "good"));
    // More than was asked for, or nothing at all, is nothing.
    for data in ["too long", ""] {
        ask(&mut b, 2, "a").await;
        let ask = asked(&mut a).await;
        let data = Some(PartBytes(data.as_bytes().to_vec()));
        a.say(&ClientFrame::BlobPart { ask, data }).await;
        assert_eq!(words(&reply(&mut b).await.1), "absent");
    }
}

#[tokio::test]
async fn what_is_on_its_way_is_bounded_and_whoever_leaves_answers_nothing() {
    let house = House::new().await;
    let (mut a, serving_a) = house.enter("a", &["one"]).await;
    let (mut b, _serving_b) = house.enter("b", &["one"]).await;
    let asks = BLOB_ASKS_MAX as u64;
    for request in 0..asks {
        ask(&mut b, request, "a").await;
    }
    ask(&mut b, asks, "a").await;
    let (request, result) = reply(&mut b).await;
    assert_eq!((request, words(&result).as_str()), (asks, "daemon_busy"));
    asked(&mut a).await;
    drop(a);
    let _ = serving_a.await;
    let mut absent: Vec<u64> = Vec::new();
    for _ in 0..asks {
        let (request, result) = reply(&mut b).await;
        assert_eq!(words(&result), "absent");
        absent.push(request);
    }
    absent.sort_unstable();
    assert_eq!(absent, (0..asks).collect::<Vec<_>>());
    // The places are free again.
    ask(&mut b, 77, "a").await;
    assert_eq!(words(&reply(&mut b).await.1), "absent");
}
