//! Random operations through the oracle and through both databases: every answer and every row must agree.

use std::time::Duration;

use heddle_core::age::AgeMark;
use heddle_core::clock::WallMs;
use heddle_core::envelope::Priority;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{
    BrokerMessageId, ClientMessageId, HistoryId, IdKey, MemberId, MeshId, Party,
};
use heddle_core::membership::{Capabilities, GrantChange};
use heddle_core::names::{AgentName, MemberName, QueueName, TopicName};
use heddle_core::witness::Witness;
use heddle_core::work::Settle;
use proptest::prelude::*;
use ulid::Ulid;

use crate::storage::{
    Ack, DeliveryCursor, DeliveryPlace, Destination, LeaseMs, Leased, LimiterNote, MemoryStorage,
    NewMessage, PageLimit, Receipt, ReceiptLevel, SendId, Storage, Taker, Upkeep,
};
use crate::test_support::{Dump, TestStorage, mesh, mesh_name, postgres, sqlite};

/// One operation on one mesh. Everything is drawn from a handful of values, so that they meet.
#[derive(Debug, Clone)]
enum Operation {
    Member(MemberId, MemberName),
    Session(MemberId, u64),
    Renew(MemberId, u64, u64),
    End(MemberId, u64),
    Expire(u64),
    Presence(u64),
    Take(QueueName, Party, u64, usize),
    Settle(QueueName, Party, Settle, Vec<Leased>),
    Receipts(MemberId, Vec<Receipt>),
    Explain(SendId),
    Mentions(Party, HistoryId),
    Age(u64, u64),
    Sweep(u64),
    Prune(u64),
    Count,
    Agent(Party),
    Topic(TopicName),
    Subscribe(TopicName, Party),
    Unsubscribe(TopicName, Party),
    Accept(Vec<NewMessage>),
    Known(Vec<SendId>),
    Status(SendId),
    Deliveries(MemberId, DeliveryCursor, PageLimit),
    Ack(MemberId, Vec<Ack>),
    History(HistoryId, usize),
    Log(HistoryId, PageLimit),
    Epochs,
    Bump,
    Part(Vec<Witness>),
    Roster,
    Grant(MemberId, MemberId, GrantChange),
    Grants(MemberId),
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

fn witnesses(mesh: MeshId) -> impl Strategy<Value = Witness> {
    (places(), send_ids(mesh)).prop_map(move |(place, id)| Witness {
        place,
        id: IdKey::of(mesh, &id.sender, &id.client_message_id),
    })
}

fn messages(mesh: MeshId) -> impl Strategy<Value = NewMessage> {
    let destination = prop_oneof![
        topics().prop_map(Destination::Topic),
        parties().prop_map(Destination::Dm),
        queues().prop_map(Destination::Queue),
        Just(Destination::Log),
    ];
    (
        send_ids(mesh),
        // Few enough that some are taken.
        0..200_u128,
        (0..2_u8, prop::sample::select(Priority::ALL.to_vec())),
        destination,
        prop::collection::btree_set(parties(), 0..3),
        0..40_usize,
        prop::option::of(0..9_i64),
    )
        .prop_map(
            |(id, minted, (fingerprint, priority), destination, mentions, bytes, expires_at)| {
                NewMessage {
                    is_heard: false,
                    sender_name: MemberName::parse("somebody").unwrap(),
                    broker_message_id: BrokerMessageId(Ulid::from(minted)),
                    wire_fingerprint: Fingerprint([fingerprint; 32]),
                    destination,
                    priority,
                    limiter: (minted % 3 > 0).then_some(LimiterNote {
                        window: 7,
                        counted: minted % 3 == 1,
                    }),
                    mentions: mentions.into_iter().collect(),
                    envelope: "e".repeat(bytes).into(),
                    accepted_at: WallMs(i64::try_from(minted).unwrap()),
                    expires_at: expires_at
                        .map(|kept| WallMs(i64::try_from(minted).unwrap() + kept)),
                    epoch: (minted % 4 == 0).then_some(1),
                    session: None,
                    id,
                }
            },
        )
}

fn acks() -> impl Strategy<Value = Ack> {
    (places(), agents()).prop_map(|(history_id, agent)| Ack { history_id, agent })
}

fn queues() -> impl Strategy<Value = QueueName> {
    prop::sample::select(vec!["q", "r"]).prop_map(|name| QueueName::parse(name).unwrap())
}

fn receipts() -> impl Strategy<Value = Receipt> {
    let levels = prop::sample::select(vec![ReceiptLevel::Shown, ReceiptLevel::Acked]);
    (places(), agents(), levels, 0..99_i64).prop_map(|(history_id, agent, level, at)| Receipt {
        history_id,
        agent,
        level,
        at: WallMs(at),
    })
}

fn work_operations() -> impl Strategy<Value = Operation> {
    let leased = (places(), 0..9_u64).prop_map(|(history_id, fence)| Leased { history_id, fence });
    let settle = prop::sample::select(vec![Settle::Ack, Settle::Release, Settle::Renew]);
    let settled = (
        queues(),
        parties(),
        settle,
        prop::collection::vec(leased, 0..6),
    );
    prop_oneof![
        2 => (queues(), parties(), 0..60_u64, 0..4_usize)
            .prop_map(|(q, p, now, max)| Operation::Take(q, p, now, max)),
        2 => settled.prop_map(|(q, p, what, items)| Operation::Settle(q, p, what, items)),
    ]
}

fn more_operations(mesh: MeshId) -> impl Strategy<Value = Operation> {
    let receipts = prop::collection::vec(receipts(), 0..5);
    prop_oneof![
        (members(), 0..99_u64).prop_map(|(m, until)| Operation::Session(m, until)),
        (members(), 0..5_u64, 0..99_u64).prop_map(|(m, g, until)| Operation::Renew(m, g, until)),
        (members(), 0..5_u64).prop_map(|(m, g)| Operation::End(m, g)),
        (0..99_u64).prop_map(Operation::Expire),
        (0..99_u64).prop_map(Operation::Presence),
        (members(), receipts).prop_map(|(m, items)| Operation::Receipts(m, items)),
        send_ids(mesh).prop_map(Operation::Explain),
        (parties(), places()).prop_map(|(p, after)| Operation::Mentions(p, after)),
        (0..30_u64, 0..30_u64).prop_map(|(age, from)| Operation::Age(age, from)),
        (0..40_u64).prop_map(Operation::Sweep),
        (0..30_u64).prop_map(Operation::Prune),
        Just(Operation::Count),
        members().prop_map(Operation::Grants),
    ]
}

fn grants() -> impl Strategy<Value = Operation> {
    let some = (any::<bool>(), any::<bool>()).prop_map(|(dm, topic)| Capabilities { dm, topic });
    let change = prop_oneof![
        some.clone().prop_map(GrantChange::Grant),
        some.prop_map(GrantChange::Revoke),
    ];
    (members(), members(), change).prop_map(|(who, peer, what)| Operation::Grant(who, peer, what))
}

fn operations(mesh: MeshId) -> impl Strategy<Value = Operation> {
    let names = prop::sample::select(vec!["ann", "bob"]);
    let names = names.prop_map(|name| MemberName::parse(name).unwrap());
    let place = (places(), prop::sample::select(vec!["", "a", "b"]));
    let place = place.prop_map(|(history_id, agent)| DeliveryPlace {
        history_id,
        agent: agent.to_owned(),
    });
    let cursors = prop::collection::vec(place, 3).prop_map(|places| {
        let pairs = Priority::ALL.into_iter().zip(places);
        pairs.fold(DeliveryCursor::START, |cursor, (priority, place)| {
            cursor.at(priority, place)
        })
    });
    let limits = (0..6_usize, 0..100_usize).prop_map(|(rows_max, bytes_max)| PageLimit {
        rows_max,
        bytes_max,
    });
    prop_oneof![
        2 => (members(), names).prop_map(|(id, name)| Operation::Member(id, name)),
        1 => more_operations(mesh),
        1 => work_operations(),
        1 => grants(),
        3 => parties().prop_map(Operation::Agent),
        1 => topics().prop_map(Operation::Topic),
        3 => (topics(), parties()).prop_map(|(t, p)| Operation::Subscribe(t, p)),
        1 => (topics(), parties()).prop_map(|(t, p)| Operation::Unsubscribe(t, p)),
        8 => prop::collection::vec(messages(mesh), 1..6).prop_map(Operation::Accept),
        2 => prop::collection::vec(send_ids(mesh), 0..4).prop_map(Operation::Known),
        1 => send_ids(mesh).prop_map(Operation::Status),
        3 => (members(), cursors, limits).prop_map(|(m, c, l)| Operation::Deliveries(m, c, l)),
        2 => (members(), prop::collection::vec(acks(), 0..4)).prop_map(|(m, a)| Operation::Ack(m, a)),
        1 => (places(), 0..9_usize).prop_map(|(place, rows)| Operation::History(place, rows)),
        1 => (places(), 0..6_usize, 0..100_usize).prop_map(|(place, rows_max, bytes_max)| {
            Operation::Log(place, PageLimit { rows_max, bytes_max })
        }),
        1 => prop::sample::select(vec![Operation::Roster, Operation::Epochs, Operation::Bump]),
        1 => prop::collection::vec(witnesses(mesh), 0..4).prop_map(Operation::Part),
    ]
}

/// Runs one operation and shows its answer. A failed message is shown without its reason, which is
/// each store's own.
async fn answer<S: Storage>(storage: &S, mesh: MeshId, operation: Operation) -> String {
    match operation {
        Operation::Member(id, name) => {
            format!("{:?}", storage.ensure_member(mesh, id, &name).await)
        }
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
        Operation::History(place, rows) => {
            format!("{:?}", storage.history_after(mesh, place, rows).await)
        }
        Operation::Log(place, limit) => {
            format!("{:?}", storage.log_after(mesh, place, limit).await)
        }
        Operation::Epochs => format!("{:?}", storage.epochs(mesh).await),
        Operation::Bump => format!("{:?}", storage.bump_epoch(mesh).await),
        Operation::Part(seen) => format!("{:?}", storage.part(mesh, seen).await),
        Operation::Roster => format!("{:?}", storage.roster(mesh).await),
        Operation::Grant(who, peer, what) => {
            format!("{:?}", storage.change_grant(mesh, who, peer, what).await)
        }
        Operation::Grants(member) => format!("{:?}", storage.grants(mesh, member).await),
        other => answer_more(storage, mesh, other).await,
    }
}

async fn keep_age<S: Storage>(storage: &S, mesh: MeshId, age: u64, from: u64) -> String {
    let mark = AgeMark {
        age: Duration::from_millis(age),
        wall: WallMs(0),
        boot: None,
    };
    let kept = storage.keep_age(mesh, mark, Duration::from_millis(from));
    format!("{:?}", kept.await)
}

async fn answer_more<S: Storage>(storage: &S, mesh: MeshId, operation: Operation) -> String {
    let (at, ms) = (WallMs(50), Duration::from_millis);
    match operation {
        Operation::Session(member, until) => {
            let begun = storage.begin_session(mesh, member, at, LeaseMs(until));
            format!("{:?}", begun.await)
        }
        Operation::Renew(member, generation, until) => {
            let renewed = storage.renew_session(mesh, member, generation, LeaseMs(until));
            format!("{:?}", renewed.await)
        }
        Operation::End(member, generation) => {
            let ended = storage.end_session(mesh, member, generation, at);
            format!("{:?}", ended.await)
        }
        Operation::Expire(now) => {
            let over = storage.expire_sessions(mesh, LeaseMs(now), WallMs(60));
            format!("{:?}", over.await)
        }
        Operation::Presence(now) => format!("{:?}", storage.presence(mesh, LeaseMs(now)).await),
        Operation::Take(queue, agent, now, rows_max) => {
            let taker = Taker {
                agent,
                now: LeaseMs(now),
                until: LeaseMs(now + 10),
                at,
                floor: now / 2,
            };
            let limit = PageLimit {
                rows_max,
                bytes_max: 50,
            };
            let taken = storage.queue_take(mesh, &queue, taker, limit);
            format!("{:?}", taken.await)
        }
        Operation::Settle(queue, agent, Settle::Renew, items) => {
            let now = LeaseMs(u64::try_from(at.0).unwrap_or(0));
            let until = now.after(5);
            let taker = Taker {
                agent,
                now,
                until,
                at,
                floor: 0,
            };
            let renewed = storage.queue_renew(mesh, &queue, taker, items);
            format!("{:?}", renewed.await)
        }
        Operation::Settle(queue, agent, what, items) => {
            let settled = storage.queue_settle(mesh, &queue, &agent, (what, items), at);
            format!("{:?}", settled.await)
        }
        Operation::Receipts(member, items) => {
            format!("{:?}", storage.receipts(mesh, member, items).await)
        }
        Operation::Explain(id) => format!("{:?}", storage.explain(mesh, id).await),
        Operation::Mentions(party, after) => {
            format!("{:?}", storage.mentions_after(mesh, &party, after, 5).await)
        }
        Operation::Age(age, from) => keep_age(storage, mesh, age, from).await,
        Operation::Sweep(age) => format!("{:?}", storage.sweep_expired(mesh, ms(age)).await),
        Operation::Prune(born) => format!("{:?}", storage.prune_messages(mesh, ms(born)).await),
        _ => {
            let counted = storage.count_traffic(mesh).await;
            let rows = storage.effect_rows(mesh).await;
            format!("{counted:?} {rows:?} {:?}", storage.traffic(mesh).await)
        }
    }
}

/// Ids that a broker mints are new for ever; only within a batch some are given twice, to make rows fail.
fn mint(operation: &mut Operation, minted: &mut u128) {
    let Operation::Accept(messages) = operation else {
        return;
    };
    for message in messages {
        if message.broker_message_id.0.random() % 10 > 0 {
            *minted += 1;
        }
        message.broker_message_id = BrokerMessageId(Ulid::from(*minted));
    }
    // The next batch begins with an id of its own.
    *minted += 1;
}

/// The same operations through the oracle and through a database.
async fn compare<S: TestStorage>(storage: &S, operations: Vec<(u128, Operation)>) {
    let oracle = MemoryStorage::default();
    for number in [1, 2] {
        let name = mesh_name("home");
        oracle.ensure_mesh(mesh(number), &name).await.unwrap();
        storage.ensure_mesh(mesh(number), &name).await.unwrap();
    }
    let mut minted = 0;
    for (number, mut operation) in operations {
        mint(&mut operation, &mut minted);
        let expected = answer(&oracle, mesh(number), operation.clone()).await;
        let got = answer(storage, mesh(number), operation.clone()).await;
        assert_eq!(expected, got, "{operation:?}");
    }
    assert_eq!(Dump::dump(&oracle).await, Dump::dump(storage).await);
    for number in [1, 2] {
        assert_eq!(oracle.orphan_check(mesh(number)).await, Ok(Vec::new()));
        assert_eq!(storage.orphan_check(mesh(number)).await, Ok(Vec::new()));
    }
}

fn sequences() -> impl Strategy<Value = Vec<(u128, Operation)>> {
    let one = (1..3_u128).prop_flat_map(|n| operations(mesh(n)).prop_map(move |op| (n, op)));
    prop::collection::vec(one, 1..120)
}

fn run(comparison: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(comparison);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn br_14_sqlite_answers_and_stores_what_the_oracle_does(operations in sequences()) {
        run(async { compare(&sqlite().storage, operations).await });
    }
}

proptest! {
    // Each of them makes tables of its own.
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 64, ..ProptestConfig::default() })]

    #[test]
    fn br_14_postgres_answers_and_stores_what_the_oracle_does(operations in sequences()) {
        run(async { compare(&postgres().await, operations).await });
    }
}
