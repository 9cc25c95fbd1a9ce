//! Ops over a connection: sent once, read by every member, with a hint and the epoch of now.

use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, OpId};
use heddle_core::membership::MemberKey;
use heddle_wire::broker::{EnvelopeBytes, ReplyResult, Request, SendItem, UploadItem};

use super::client::Client;
use super::house::House;
use crate::members::Members as _;
use crate::storage::{Log, UploadEnd, UploadVerdict, Uploads as _};
use crate::test_support::{mesh, principal, refused_code, send_item};

fn op(id: &str, epoch: u64) -> SendItem {
    SendItem {
        epoch: Some(epoch),
        ..send_item("one", id, "log:ops", "{}")
    }
}

async fn read(client: &mut Client, after: HistoryId) -> (u64, Vec<(String, String)>) {
    let body = Request::LogRead { after, limit: 100 };
    let ReplyResult::Log { epoch, items } = client.request(body).await else {
        panic!("no log");
    };
    let items = items.into_iter();
    let shown = items.map(|item| {
        (
            item.history_id.to_string(),
            item.client_message_id.to_string(),
        )
    });
    (epoch, shown.collect())
}

#[tokio::test]
async fn lf_13_every_member_reads_an_op_and_hears_that_there_is_one() {
    let house = House::new().await;
    let (mut a, _serving_a) = house.enter("a", &["one"]).await;
    let (mut b, _serving_b) = house.enter("b", &["one"]).await;
    assert_eq!(read(&mut b, HistoryId::ZERO).await, (1, vec![]));
    a.send(1, vec![op("A", 1), op("A", 1)]).await;
    let (epoch, verdicts) = a.verdict_epoch().await;
    assert_eq!(epoch, Some(1));
    let codes: Vec<&str> = verdicts.iter().map(refused_code).collect();
    assert_eq!(codes, ["created", "duplicate"]);
    b.log_grew().await;
    let expected = vec![("1.1".to_owned(), "A".to_owned())];
    assert_eq!(read(&mut b, HistoryId::ZERO).await, (1, expected.clone()));
    // Its sender too: that is how it hears that the op has arrived.
    assert_eq!(read(&mut a, HistoryId::ZERO).await, (1, expected));
}

#[tokio::test]
async fn lf_16_answers_carry_the_epoch_of_now() {
    let house = House::new().await;
    let (mut a, _serving) = house.enter("a", &["one"]).await;
    a.send(1, vec![op("A", 1)]).await;
    assert_eq!(a.verdict_epoch().await.0, Some(1));
    house.storage.bump_epoch(mesh(1)).await.unwrap();
    a.send(2, vec![op("A", 1), op("B", 1)]).await;
    let (epoch, verdicts) = a.verdict_epoch().await;
    assert_eq!(epoch, Some(2));
    let codes: Vec<&str> = verdicts.iter().map(refused_code).collect();
    assert_eq!(codes, ["duplicate", "epoch_mismatch"]);
    a.send(3, vec![send_item("one", "M", "#none", "x")]).await;
    assert_eq!(a.verdict_epoch().await.0, None, "messages know no epoch");
}

fn snapshot(number: u8) -> OpId {
    OpId::from_bytes([number; 16])
}

#[tokio::test]
async fn lf_34_others_read_nothing_of_a_snapshot_before_its_commit_and_then_all_of_it() {
    let house = House::new().await;
    let owner = principal("a");
    let key = MemberKey::from_seed([1; 32]).public();
    let enrolled =
        house
            .storage
            .enrol_owner(mesh(1), owner.member, &owner.member_name, key, WallMs(1));
    enrolled.await.unwrap();
    let (mut a, _serving_a) = house.enter("a", &["one"]).await;
    let (mut b, _serving_b) = house.enter("b", &["one"]).await;
    a.send(1, vec![op("before", 1)]).await;
    a.verdict_epoch().await;
    let snapshot = snapshot(7);
    let begin = Request::SnapshotBegin { snapshot };
    let commit = Request::SnapshotCommit { snapshot };
    for body in [begin.clone(), commit.clone()] {
        let ReplyResult::Refused(refused) = b.request(body).await else {
            panic!("a guest hides the log from everybody");
        };
        assert_eq!(refused.code, "not_owner");
    }
    let changed = |reply| match reply {
        ReplyResult::Ok { changed } => changed,
        other => panic!("{other:?}"),
    };
    assert!(changed(a.request(begin.clone()).await));
    assert!(!changed(a.request(begin).await), "again is nothing");
    a.send(2, vec![op("one", 1), op("two", 1)]).await;
    a.verdict_epoch().await;
    let shown = |ids: &[&str]| -> Vec<(String, String)> {
        let places = (1..).zip(ids);
        let shown = places.map(|(place, id)| (format!("1.{place}"), (*id).to_owned()));
        shown.collect()
    };
    let some = (1, shown(&["before"]));
    assert_eq!(read(&mut b, HistoryId::ZERO).await, some);
    let all = (1, shown(&["before", "one", "two"]));
    assert_eq!(read(&mut a, HistoryId::ZERO).await, all);
    // What a guest does meanwhile waits behind it, and is lost to nobody.
    b.send(1, vec![op("three", 1)]).await;
    b.verdict_epoch().await;
    assert_eq!(read(&mut b, HistoryId::ZERO).await, some);
    assert!(changed(a.request(commit.clone()).await));
    b.log_grew().await;
    let all = (1, shown(&["before", "one", "two", "three"]));
    assert_eq!(read(&mut b, HistoryId::ZERO).await, all);
    assert!(!changed(a.request(commit).await));
}

fn staged(at: u64, id: &str) -> UploadItem {
    let item = op(id, 1);
    UploadItem {
        at,
        agent: item.agent,
        client_message_id: item.client_message_id,
        envelope: EnvelopeBytes(item.envelope.get().as_bytes().to_vec()),
    }
}

fn stand(reply: ReplyResult) -> (Option<u64>, Option<String>) {
    match reply {
        ReplyResult::Upload { through, first } => (through, first.map(|at| at.to_string())),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn lf_34_an_upload_goes_on_after_a_lost_connection_and_hides_nothing_of_others() {
    let house = House::new().await;
    let owner = principal("a");
    let key = MemberKey::from_seed([1; 32]).public();
    let name = &owner.member_name;
    let enrolled = house
        .storage
        .enrol_owner(mesh(1), owner.member, name, key, WallMs(1));
    enrolled.await.unwrap();
    let (mut a, serving_a) = house.enter("a", &["one"]).await;
    let (mut b, _serving_b) = house.enter("b", &["one"]).await;
    let snapshot = snapshot(7);
    let begin = Request::UploadBegin { snapshot };
    let chunk = |after, items| Request::UploadChunk {
        snapshot,
        after,
        items,
    };
    let commit = |through| Request::UploadCommit { snapshot, through };
    for body in [begin.clone(), chunk(0, vec![staged(1, "x")]), commit(0)] {
        let ReplyResult::Refused(refused) = b.request(body).await else {
            panic!("a guest publishes nothing");
        };
        assert_eq!(refused.code, "not_owner");
    }
    assert_eq!(stand(a.request(begin.clone()).await), (Some(0), None));
    let first = chunk(0, vec![staged(3, "one"), staged(5, "two")]);
    assert_eq!(stand(a.request(first.clone()).await), (Some(5), None));
    // What falls back behind itself is refused; nothing of it was taken.
    let ReplyResult::Refused(refused) = a.request(chunk(5, vec![staged(5, "two")])).await else {
        panic!("places must rise");
    };
    assert_eq!(refused.code, "invalid_request");
    drop(a);
    serving_a.abort();
    // Meanwhile a guest goes on, and is read at once.
    b.send(1, vec![op("guest", 1)]).await;
    b.verdict_epoch().await;
    let some = vec![("1.1".to_owned(), "guest".to_owned())];
    assert_eq!(read(&mut b, HistoryId::ZERO).await, (1, some));
    let (mut a, _serving_a) = house.enter("a", &["one"]).await;
    assert_eq!(stand(a.request(begin).await), (Some(5), None));
    assert_eq!(
        stand(a.request(first).await),
        (Some(5), None),
        "again is nothing"
    );
    let rest = chunk(5, vec![staged(6, "three")]);
    assert_eq!(stand(a.request(rest).await), (Some(6), None));
    let place = Some("1.2".to_owned());
    assert_eq!(stand(a.request(commit(6)).await), (None, place.clone()));
    b.log_grew().await;
    let ids = |page: (u64, Vec<(String, String)>)| -> Vec<String> {
        page.1.into_iter().map(|(_, id)| id).collect()
    };
    let all = ["guest", "one", "two", "three"];
    assert_eq!(ids(read(&mut b, HistoryId::ZERO).await), all);
    assert_eq!(stand(a.request(commit(6)).await), (None, place));
    // Sent by itself afterwards, each is known.
    a.send(2, vec![op("one", 1), op("three", 1)]).await;
    let (_, verdicts) = a.verdict_epoch().await;
    let codes: Vec<&str> = verdicts.iter().map(refused_code).collect();
    assert_eq!(codes, ["duplicate", "duplicate"]);
}

/// More rows than one transaction takes, and a broker that was killed in the middle of showing them: an owner who never
/// comes back holds nobody up, and nobody has seen some of them only.
#[tokio::test]
async fn lf_34_whoever_cannot_read_on_brings_a_commit_to_its_end() {
    const ROWS: u64 = 600;
    let house = House::new().await;
    let owner = principal("a");
    let key = MemberKey::from_seed([1; 32]).public();
    let (by, name) = (owner.member, &owner.member_name);
    let enrolled = house.storage.enrol_owner(mesh(1), by, name, key, WallMs(1));
    enrolled.await.unwrap();
    let (mut a, serving_a) = house.enter("a", &["one"]).await;
    let (mut b, _serving_b) = house.enter("b", &["one"]).await;
    let snapshot = snapshot(7);
    a.request(Request::UploadBegin { snapshot }).await;
    let mut after = 0;
    while after < ROWS {
        let through = (after + 100).min(ROWS);
        let items = (after + 1..=through).map(|at| staged(at, &format!("op-{at}")));
        let chunk = Request::UploadChunk {
            snapshot,
            after,
            items: items.collect(),
        };
        assert_eq!(stand(a.request(chunk).await), (Some(through), None));
        after = through;
    }
    let end = UploadEnd {
        through: ROWS,
        sender_name: name.clone(),
        at: WallMs(2),
        expires_at: None,
    };
    let step = house.storage.commit_upload(mesh(1), by, snapshot, end);
    assert_eq!(step.await, Ok(UploadVerdict::Going));
    drop(a);
    serving_a.abort();
    let (mut after, mut seen) = (HistoryId::ZERO, Vec::new());
    loop {
        let (_, page) = read(&mut b, after).await;
        let Some((place, _)) = page.last() else {
            break;
        };
        after = place.parse().unwrap();
        seen.extend(page.into_iter().map(|(_, id)| id));
    }
    let all: Vec<String> = (1..=ROWS).map(|at| format!("op-{at}")).collect();
    assert_eq!(seen, all);
}
