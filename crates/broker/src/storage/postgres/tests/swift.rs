//! Accepts in one statement: that they are, and that nothing of what was read before is taken for true once it has changed,
//! whoever has changed it.

use heddle_core::clock::WallMs;
use heddle_core::ids::HistoryId;
use heddle_core::membership::Bar;
use heddle_core::names::MemberName;

use super::super::PostgresStorage;
use super::sets::statements_run;
use super::{message, two};
use crate::storage::{
    Accepted, Destination, LeaseMs, NewMessage, Presence as _, Storage as _, StorageError,
    Upkeep as _,
};
use crate::test_support::{member, mesh, party, postgres_options, topic};

async fn accepted(storage: &PostgresStorage, one: NewMessage) -> Accepted {
    let mut answers = storage.accept(mesh(1), vec![one]).await.unwrap();
    answers.remove(0)
}

/// Members that got a delivery.
fn recipients(answer: &Accepted) -> Vec<heddle_core::ids::MemberId> {
    let Accepted::Created { recipients, .. } = answer else {
        panic!("{answer:?}");
    };
    recipients.to_vec()
}

async fn mark(storage: &PostgresStorage) -> i64 {
    let client = storage.reader().await.unwrap();
    let row = client.query_one("SELECT roster_mark FROM mesh", &[]).await;
    row.unwrap().get(0)
}

#[tokio::test]
async fn a_set_that_asks_nothing_new_is_one_statement_with_all_five_rows() {
    let [one, _] = two(&postgres_options().await).await;
    let first = message("first", 1, 1);
    assert!(matches!(
        accepted(&one, first).await,
        Accepted::Created { .. }
    ));
    let before = statements_run(&one).await;
    let mut set = vec![message("A", 1, 2), message("B", 1, 3)];
    // The same id twice in one set: one of them is the message.
    set.push(message("A", 1, 4));
    set.push(message("B", 2, 5));
    let mut direct = message("C", 1, 6);
    direct.destination = Destination::Dm(party("a/one"));
    set.push(direct);
    let answers = one.accept(mesh(1), set).await.unwrap();
    assert_eq!(statements_run(&one).await - before, 1);
    let places: Vec<u64> = answers
        .iter()
        .map(|answer| match answer {
            Accepted::Created { history_id, .. } => history_id.seq,
            Accepted::Duplicate(consumed) => 100 + consumed.history_id.seq,
            Accepted::Conflict(consumed) => 200 + consumed.history_id.seq,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(places, [2, 3, 102, 203, 4]);
    for table in ["client_message_dedupe", "message", "message_history"] {
        assert_eq!(one.count_of(table).await, 4, "{table}");
    }
    for table in ["delivery_queue", "mention_index"] {
        assert_eq!(one.count_of(table).await, 4, "{table}");
    }
    assert_eq!(one.orphan_check(mesh(1)).await, Ok(Vec::new()));
}

#[tokio::test]
async fn br_03_what_another_broker_has_changed_is_seen_by_the_next_accept() {
    let [one, other] = two(&postgres_options().await).await;
    let (mesh, b) = (mesh(1), party("b/one"));
    accepted(&one, message("first", 1, 1)).await;
    let mentions_b = |id: &str, minted| {
        let mut new = message(id, 1, minted);
        new.mentions = vec![b.clone()];
        new
    };
    // Asked while it is nobody's mailbox: that too was read, and is kept.
    assert_eq!(
        recipients(&accepted(&one, mentions_b("nobody", 2)).await),
        [member("a")]
    );
    let mentions = one.count_of("mention_index").await;
    let name = MemberName::parse("b").unwrap();
    other.ensure_member(mesh, b.member, &name).await.unwrap();
    other.register_agent(mesh, &b).await.unwrap();
    other.subscribe(mesh, &topic("#ops"), &b).await.unwrap();
    let answer = accepted(&one, mentions_b("somebody", 3)).await;
    assert_eq!(recipients(&answer), [member("a"), member("b")]);
    assert_eq!(one.count_of("mention_index").await, mentions + 1);
    other.unsubscribe(mesh, &topic("#ops"), &b).await.unwrap();
    let answer = accepted(&one, mentions_b("left", 4)).await;
    assert_eq!(recipients(&answer), [member("a")]);
    // A newer session of the sender has begun elsewhere.
    let session = |storage: &PostgresStorage| {
        let storage = storage.clone();
        async move {
            let until = LeaseMs(1_000_000);
            let begun = storage.begin_session(mesh, member("a"), WallMs(1), until);
            begun.await.unwrap()
        }
    };
    let older = session(&one).await;
    let of_session = |id: &str, minted, session| {
        let mut new = message(id, 1, minted);
        new.session = Some(session);
        new
    };
    let answer = accepted(&one, of_session("mine", 5, older)).await;
    assert!(matches!(answer, Accepted::Created { .. }), "{answer:?}");
    let newer = session(&other).await;
    assert!(newer > older);
    let answer = accepted(&one, of_session("late", 6, older)).await;
    assert_eq!(answer, Accepted::Superseded);
    // It is blocked elsewhere.
    let block = "INSERT INTO member_standing (mesh_id, member_id, role, enrolled_at, blocked_at)
        SELECT mesh_id, member_id, 'member', 1, 2 FROM member WHERE name = 'a'";
    other.batch(block).await;
    let answer = accepted(&one, message("blocked", 1, 7)).await;
    assert_eq!(answer, Accepted::Barred(Bar::Blocked));
}

/// Every table that an accept asks, every way in which its rows change, and no mark ever comes back.
#[tokio::test]
async fn every_change_of_what_an_accept_asks_draws_a_new_mark() {
    let [one, _] = two(&postgres_options().await).await;
    let of_a = "(SELECT mesh_id, member_id FROM member WHERE name = 'a')";
    let changes = [
        "INSERT INTO topic SELECT mesh_id, 'new' FROM mesh".to_owned(),
        "UPDATE topic SET topic = 'other' WHERE topic = 'new'".to_owned(),
        "DELETE FROM topic WHERE topic = 'other'".to_owned(),
        "DELETE FROM topic_subscription".to_owned(),
        "INSERT INTO topic_subscription SELECT mesh_id, 'ops', member_id, agent FROM agent"
            .to_owned(),
        "UPDATE member SET generation = generation + 1".to_owned(),
        "INSERT INTO member SELECT mesh_id, substr(sha256(mesh_id), 1, 16), 'c' FROM mesh"
            .to_owned(),
        "INSERT INTO agent SELECT mesh_id, member_id, 'two' FROM member WHERE name = 'c'"
            .to_owned(),
        "UPDATE agent SET agent = 'three' WHERE agent = 'two'".to_owned(),
        "DELETE FROM agent WHERE agent = 'three'".to_owned(),
        "DELETE FROM member WHERE name = 'c'".to_owned(),
        format!(
            "INSERT INTO member_standing SELECT a.mesh_id, a.member_id, 'member', 1 FROM {of_a} AS a"
        ),
        "UPDATE member_standing SET revoked_at = 2".to_owned(),
        "DELETE FROM member_standing".to_owned(),
        format!(
            "INSERT INTO member_grant SELECT a.mesh_id, a.member_id, a.member_id, FALSE, TRUE FROM {of_a} AS a"
        ),
        "UPDATE member_grant SET may_dm = TRUE".to_owned(),
        "DELETE FROM member_grant".to_owned(),
        "TRUNCATE member_grant".to_owned(),
        "TRUNCATE topic_subscription".to_owned(),
        "SET session_replication_role = replica;
         INSERT INTO topic_subscription SELECT mesh_id, 'ops', member_id, agent FROM agent;
         RESET session_replication_role"
            .to_owned(),
    ];
    let mut marks = vec![mark(&one).await];
    for change in changes {
        one.batch(&change).await;
        let now = mark(&one).await;
        assert!(!marks.contains(&now), "{change}");
        marks.push(now);
    }
    // What no accept asks leaves it as it is, or every heartbeat would make all brokers read anew.
    one.batch("UPDATE member SET seen_at = 5, name = 'renamed'")
        .await;
    accepted(&one, message("A", 1, 1)).await;
    assert_eq!(marks.last(), Some(&mark(&one).await));
}

/// An id that another broker has written since it was looked up: nobody beside it is harmed, and no place is left out.
#[tokio::test]
async fn br_07_br_08_an_id_that_another_broker_wrote_is_answered_and_its_neighbours_stay() {
    let [one, other] = two(&postgres_options().await).await;
    accepted(&one, message("first", 1, 1)).await;
    accepted(&other, message("raced", 1, 2)).await;
    let set = vec![
        message("A", 1, 3),
        message("raced", 1, 4),
        message("B", 1, 5),
    ];
    let answers = one.accept(mesh(1), set).await.unwrap();
    let [
        Accepted::Created { .. },
        Accepted::Duplicate(consumed),
        Accepted::Created { .. },
    ] = answers.as_slice()
    else {
        panic!("{answers:?}");
    };
    assert_eq!(consumed.history_id.seq, 2);
    let answer = accepted(&one, message("raced", 2, 6)).await;
    assert!(matches!(answer, Accepted::Conflict(_)), "{answer:?}");
    let history = one
        .history_after(mesh(1), HistoryId::ZERO, 99)
        .await
        .unwrap();
    let places: Vec<u64> = history.iter().map(|row| row.history_id.seq).collect();
    assert_eq!(places, [1, 2, 3, 4]);
    assert_eq!(one.orphan_check(mesh(1)).await, Ok(Vec::new()));
}

/// As `pg_restore --clean` does it under a broker that runs: everything has the same name and another number.
#[tokio::test]
async fn types_that_were_dropped_and_put_back_under_a_broker_stop_it_for_a_moment_only() {
    let [one, _] = two(&postgres_options().await).await;
    let ask = || one.known(mesh(1), vec![message("first", 1, 1).id]);
    for n in 1..=2 {
        let new = message(&format!("before-{n}"), 1, n);
        assert!(matches!(
            accepted(&one, new).await,
            Accepted::Created { .. }
        ));
        ask().await.unwrap();
    }
    one.batch(
        "DROP TYPE sent_message, sent_delivery, sent_mention, sent_id;
        CREATE TYPE sent_message AS (id_key BYTEA, member BYTEA, agent TEXT, name TEXT, client_id TEXT, print BYTEA,
            id BYTEA, place BIGINT, kind TEXT, ref TEXT, at BIGINT, until BIGINT, slot BIGINT, counted BIGINT, envelope TEXT);
        CREATE TYPE sent_delivery AS (member BYTEA, agent TEXT, place BIGINT, priority SMALLINT, id BYTEA);
        CREATE TYPE sent_mention AS (member BYTEA, agent TEXT, place BIGINT);
        CREATE TYPE sent_id AS (id_key BYTEA, member BYTEA, agent TEXT, client_id TEXT);",
    )
    .await;
    // What is refused meanwhile is to be tried again (BR-09), and each refusal ends one of the old connections.
    let refused = |error: StorageError| assert!(matches!(error, StorageError::Unavailable(_)));
    let mut tries = 0..20;
    while let Err(error) = one.accept(mesh(1), vec![message("after", 1, 9)]).await {
        refused(error);
        assert!(tries.next().is_some());
    }
    while let Err(error) = ask().await {
        refused(error);
        assert!(tries.next().is_some());
    }
    let history = one
        .history_after(mesh(1), HistoryId::ZERO, 99)
        .await
        .unwrap();
    assert_eq!(history.len(), 3);
}
