//! Random operations through the oracle and through SQLite: every answer and every row must agree.

use heddle_core::clock::WallMs;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{BrokerMessageId, ClientMessageId, HistoryId, MemberId, MeshId, Party};
use heddle_core::names::{AgentName, MemberName, TopicName};
use proptest::prelude::*;
use ulid::Ulid;

use crate::storage::{
    Ack, DeliveryCursor, Destination, MemoryStorage, NewMessage, PageLimit, SendId, Storage,
};
use crate::test_support::{Dump, mesh, mesh_name, sqlite};

/// One operation on one mesh. Everything is drawn from a handful of values, so that they meet.
#[derive(Debug, Clone)]
enum Operation {
    Member(MemberId, MemberName),
    Session(MemberId),
    Agent(Party),
    Topic(TopicName),
    Subscribe(TopicName, Party),
    Unsubscribe(TopicName, Party),
    Accept(Vec<NewMessage>),
    Known(Vec<SendId>),
    Status(SendId),
    Deliveries(MemberId, DeliveryCursor, PageLimit),
    Ack(MemberId, Vec<Ack>),
    AckThrough(MemberId, HistoryId),
    History(HistoryId, usize),
    Roster,
}

fn members() -> impl Strategy<Value = MemberId> {
    (1..4_u128).prop_map(|n| MemberId(Ulid::from(n)))
}

fn agents() -> impl Strategy<Value = AgentName> {
    prop::sample::select(vec!["a", "b"]).prop_map(|name| AgentName::parse(name).unwrap())
}

fn parties() -> impl Strategy<Value = Party> {
    (members(), agents()).prop_map(|(member, agent)| Party { member, agent })
}

fn topics() -> impl Strategy<Value = TopicName> {
    prop::sample::select(vec!["x", "y"]).prop_map(|name| TopicName::parse(name).unwrap())
}

fn places() -> impl Strategy<Value = HistoryId> {
    (0..3_u64, 0..20_u64).prop_map(|(epoch, seq)| HistoryId { epoch, seq })
}

fn send_ids(mesh: MeshId) -> impl Strategy<Value = SendId> {
    let ids = prop::sample::select(vec!["1", "2", "3", "4", "5"]);
    (parties(), ids).prop_map(move |(sender, id)| {
        SendId::new(mesh, sender, ClientMessageId::parse(id).unwrap())
    })
}

fn messages(mesh: MeshId) -> impl Strategy<Value = NewMessage> {
    let destination = prop_oneof![
        topics().prop_map(Destination::Topic),
        parties().prop_map(Destination::Dm),
    ];
    (
        send_ids(mesh),
        // Few enough that some are taken.
        0..200_u128,
        0..2_u8,
        destination,
        prop::collection::btree_set(parties(), 0..3),
        0..40_usize,
        prop::option::of(0..9_i64),
    )
        .prop_map(
            |(id, minted, fingerprint, destination, mentions, bytes, expires_at)| NewMessage {
                sender_name: MemberName::parse("somebody").unwrap(),
                broker_message_id: BrokerMessageId(Ulid::from(minted)),
                wire_fingerprint: Fingerprint([fingerprint; 32]),
                destination,
                mentions: mentions.into_iter().collect(),
                envelope: "e".repeat(bytes).into(),
                accepted_at: WallMs(i64::try_from(minted).unwrap()),
                expires_at: expires_at.map(WallMs),
                id,
            },
        )
}

fn acks() -> impl Strategy<Value = Ack> {
    (places(), agents()).prop_map(|(history_id, agent)| Ack { history_id, agent })
}

fn operations(mesh: MeshId) -> impl Strategy<Value = Operation> {
    let names = prop::sample::select(vec!["ann", "bob"]);
    let names = names.prop_map(|name| MemberName::parse(name).unwrap());
    let cursors = (places(), prop::sample::select(vec!["", "a", "b"]));
    let cursors = cursors.prop_map(|(history_id, agent)| DeliveryCursor {
        history_id,
        agent: agent.to_owned(),
    });
    let limits = (0..6_usize, 0..100_usize).prop_map(|(rows_max, bytes_max)| PageLimit {
        rows_max,
        bytes_max,
    });
    prop_oneof![
        2 => (members(), names).prop_map(|(id, name)| Operation::Member(id, name)),
        1 => members().prop_map(Operation::Session),
        3 => parties().prop_map(Operation::Agent),
        1 => topics().prop_map(Operation::Topic),
        3 => (topics(), parties()).prop_map(|(t, p)| Operation::Subscribe(t, p)),
        1 => (topics(), parties()).prop_map(|(t, p)| Operation::Unsubscribe(t, p)),
        8 => prop::collection::vec(messages(mesh), 1..6).prop_map(Operation::Accept),
        2 => prop::collection::vec(send_ids(mesh), 0..4).prop_map(Operation::Known),
        1 => send_ids(mesh).prop_map(Operation::Status),
        3 => (members(), cursors, limits).prop_map(|(m, c, l)| Operation::Deliveries(m, c, l)),
        2 => (members(), prop::collection::vec(acks(), 0..4)).prop_map(|(m, a)| Operation::Ack(m, a)),
        1 => (members(), places()).prop_map(|(m, place)| Operation::AckThrough(m, place)),
        1 => (places(), 0..9_usize).prop_map(|(place, rows)| Operation::History(place, rows)),
        1 => Just(Operation::Roster),
    ]
}

/// Runs one operation and shows its answer. A failed message is shown without its reason, which is
/// each store's own.
async fn answer<S: Storage>(storage: &S, mesh: MeshId, operation: Operation) -> String {
    match operation {
        Operation::Member(id, name) => {
            format!("{:?}", storage.ensure_member(mesh, id, &name).await)
        }
        Operation::Session(id) => format!("{:?}", storage.begin_session(mesh, id).await),
        Operation::Agent(party) => format!("{:?}", storage.register_agent(mesh, &party).await),
        Operation::Topic(topic) => format!("{:?}", storage.create_topic(mesh, &topic).await),
        Operation::Subscribe(topic, party) => {
            format!("{:?}", storage.subscribe(mesh, &topic, &party).await)
        }
        Operation::Unsubscribe(topic, party) => {
            format!("{:?}", storage.unsubscribe(mesh, &topic, &party).await)
        }
        Operation::Accept(messages) => {
            let accepted = storage.accept(mesh, messages).await.unwrap();
            let shown = accepted.iter().map(|one| match one {
                crate::storage::Accepted::Failed(_) => "failed".to_owned(),
                other => format!("{other:?}"),
            });
            shown.collect::<Vec<_>>().join("\n")
        }
        Operation::Known(ids) => format!("{:?}", storage.known(mesh, ids).await),
        Operation::Status(id) => format!("{:?}", storage.status(mesh, id).await),
        Operation::Deliveries(member, cursor, limit) => {
            let page = storage.deliveries_after(mesh, member, cursor, limit);
            format!("{:?}", page.await)
        }
        Operation::Ack(member, items) => {
            format!("{:?}", storage.ack(mesh, member, items, WallMs(7)).await)
        }
        Operation::AckThrough(member, place) => {
            let through = storage.ack_through(mesh, member, place, WallMs(8));
            format!("{:?}", through.await)
        }
        Operation::History(place, rows) => {
            format!("{:?}", storage.history_after(mesh, place, rows).await)
        }
        Operation::Roster => format!("{:?}", storage.roster(mesh).await),
    }
}

async fn compare(operations: Vec<(u128, Operation)>) {
    let oracle = MemoryStorage::default();
    let sqlite = sqlite();
    for number in [1, 2] {
        let name = mesh_name("home");
        oracle.ensure_mesh(mesh(number), &name).await.unwrap();
        sqlite
            .storage
            .ensure_mesh(mesh(number), &name)
            .await
            .unwrap();
    }
    for (number, operation) in operations {
        let expected = answer(&oracle, mesh(number), operation.clone()).await;
        let got = answer(&sqlite.storage, mesh(number), operation.clone()).await;
        assert_eq!(expected, got, "{operation:?}");
    }
    assert_eq!(Dump::dump(&oracle).await, sqlite.storage.dump().await);
    for number in [1, 2] {
        assert_eq!(oracle.orphan_check(mesh(number)).await, Ok(Vec::new()));
        let orphans = sqlite.storage.orphan_check(mesh(number)).await;
        assert_eq!(orphans, Ok(Vec::new()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn br_14_sqlite_answers_and_stores_what_the_oracle_does(
        operations in prop::collection::vec(
            (1..3_u128).prop_flat_map(|n| operations(mesh(n)).prop_map(move |op| (n, op))),
            1..60,
        )
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(compare(operations));
    }
}
