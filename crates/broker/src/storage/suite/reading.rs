//! Reading, acknowledging, the roster, and meshes that are apart.

use heddle_core::ids::HistoryId;

use super::check;
use crate::storage::{DeliveryCursor, LeaseMs, PageLimit, StorageError};
use crate::test_support::{TestStorage, member, mesh, mesh_name, on_every_storage, party, topic};

#[tokio::test]
async fn paging_is_exact_where_several_agents_share_a_place() {
    check(
        "
        member a
        agent a/one
        agent a/three
        agent a/two
        subscribe a/one #ops
        subscribe a/two #ops
        subscribe a/three #ops
        send from=a/one id=A fp=1 to=#ops
        send from=a/one id=B fp=1 to=#ops bytes=50
        deliveries a rows=2 -> 1.1/one 1.1/three
        deliveries a rows=2 after=1.1/three -> 1.1/two 1.2/one
        deliveries a rows=9 after=1.2/one -> 1.2/three 1.2/two
        deliveries a after=1.2/two -> none
        -- Bytes bound a page, but never to nothing.
        deliveries a after=1.1/one bytes=60 -> 1.1/three 1.1/two 1.2/one
        deliveries a after=1.1/two bytes=1 -> 1.2/one
        deliveries a rows=0 -> none
        ",
    )
    .await;
}

#[tokio::test]
async fn acks_are_kept_once_and_only_for_their_member_and_place() {
    check(
        "
        member a
        member b
        agent a/one
        agent a/two
        agent b/one
        subscribe a/one #ops
        subscribe a/two #ops
        subscribe b/one #ops
        send from=a/one id=A fp=1 to=#ops
        send from=a/one id=B fp=1 to=#ops
        send from=a/one id=C fp=1 to=#ops
        ack a 1.1/one 1.2/two -> 2
        ack a 1.1/one 9.9/one 1.1/none -> 0
        deliveries a -> 1.1/two 1.2/one 1.3/one 1.3/two
        deliveries b -> 1.1/one 1.2/one 1.3/one
        rows -> dedupe=3 message=3 history=3 delivery=9 mention=0
        ",
    )
    .await;
}

#[tokio::test]
async fn the_roster_says_what_changed_and_a_renamed_member_keeps_its_id() {
    check(
        "
        agent a/one -> unknown_member
        session a -> unknown_member
        member a -> new
        member a -> known
        agent a/one -> new
        agent a/one -> known
        session a -> 1
        session a -> 2
        subscribe a/two #ops -> unknown_agent
        topics -> none
        subscribe a/one #ops -> new
        member a anna -> new
        names -> a=anna
        topics -> ops:a/one
        session a -> 3
        unsubscribe a/one #none -> known
        ",
    )
    .await;
}

#[tokio::test]
async fn history_is_paged_in_order() {
    check(
        "
        member a
        agent a/one
        topic #ops
        send from=a/one id=A fp=1 to=#ops ; send from=a/one id=B fp=1 to=#ops ; send from=a/one id=C fp=1 to=#ops
        history rows=2 -> 1.1=A 1.2=B
        history after=1.2 rows=2 -> 1.3=C
        history after=1.3 -> none
        history after=2.0 -> none
        ",
    )
    .await;
}

on_every_storage!(
    br_17_meshes_are_apart,
    however_many_ask_for_a_name_at_once_there_is_one_mesh_of_it,
    a_mesh_that_was_never_ensured_is_unknown_to_every_operation,
    lf_16_a_history_that_fell_back_begins_a_new_epoch_and_never_falls,
);

async fn however_many_ask_for_a_name_at_once_there_is_one_mesh_of_it<S: TestStorage>(
    storage: std::sync::Arc<S>,
) {
    let asked = (1..=16).map(|number| {
        let storage = std::sync::Arc::clone(&storage);
        tokio::spawn(async move {
            let name = mesh_name("team");
            storage.mesh_named(&name, mesh(number)).await.unwrap()
        })
    });
    let mut answers = Vec::new();
    for answer in asked.collect::<Vec<_>>() {
        answers.push(answer.await.unwrap());
    }
    let made: Vec<_> = answers.iter().filter(|(_, is_new)| *is_new).collect();
    assert_eq!(made.len(), 1, "{answers:?}");
    assert!(answers.iter().all(|(mesh, _)| *mesh == made[0].0));
    assert_eq!(storage.meshes().await.unwrap().len(), 1);
    assert_eq!(storage.epoch(made[0].0).await, Ok(1));
    // Another name is another mesh, and the first one keeps its own.
    let other = storage.mesh_named(&mesh_name("other"), mesh(99)).await;
    assert_eq!(other, Ok((mesh(99), true)));
    assert_eq!(storage.mesh_name(made[0].0).await, Ok(mesh_name("team")));
}

async fn br_17_meshes_are_apart<S: TestStorage>(storage: std::sync::Arc<S>) {
    for number in [1, 2] {
        let name = mesh_name("twin");
        assert!(storage.ensure_mesh(mesh(number), &name).await.unwrap());
        assert!(!storage.ensure_mesh(mesh(number), &name).await.unwrap());
        let alice = principal_name();
        storage
            .ensure_member(mesh(number), member("a"), &alice)
            .await
            .unwrap();
    }
    let names = storage.meshes().await.unwrap();
    let names: Vec<String> = names.iter().map(|(_, name)| name.to_string()).collect();
    assert_eq!(names, ["twin", "twin-2"], "people cannot tell them apart");
    for (number, name) in [(1, "twin"), (2, "twin-2")] {
        let own = storage.mesh_name(mesh(number)).await.unwrap();
        assert_eq!(own, mesh_name(name));
    }
    let agent = party("a/one");
    storage.register_agent(mesh(1), &agent).await.unwrap();
    storage
        .subscribe(mesh(1), &topic("#ops"), &agent)
        .await
        .unwrap();
    let other = storage.roster(mesh(2)).await.unwrap();
    assert_eq!((other.agents.len(), other.topics.len()), (0, 0));
    let unknown = storage.subscribe(mesh(2), &topic("#ops"), &agent).await;
    assert_eq!(unknown, Err(StorageError::UnknownAgent(agent)));
    assert_eq!(storage.epoch(mesh(2)).await, Ok(1));
}

fn principal_name() -> heddle_core::names::MemberName {
    heddle_core::names::MemberName::parse("alice").unwrap()
}

async fn a_mesh_that_was_never_ensured_is_unknown_to_every_operation<S: TestStorage>(
    storage: std::sync::Arc<S>,
) {
    let nowhere = mesh(9);
    let unknown = || StorageError::UnknownMesh(nowhere);
    let (a, agent, ops) = (member("a"), party("a/one"), topic("#ops"));
    let at = heddle_core::clock::WallMs(0);
    let limit = PageLimit {
        rows_max: 1,
        bytes_max: 1,
    };
    let name = principal_name();
    assert_eq!(
        storage.ensure_member(nowhere, a, &name).await,
        Err(unknown())
    );
    let lease = LeaseMs(0);
    let begun = storage.begin_session(nowhere, a, at, lease);
    assert_eq!(begun.await, Err(unknown()));
    let renewed = storage.renew_session(nowhere, a, 1, lease);
    assert_eq!(renewed.await, Err(unknown()));
    let ended = storage.end_session(nowhere, a, 1, at);
    assert_eq!(ended.await, Err(unknown()));
    assert_eq!(storage.presence(nowhere, lease).await, Err(unknown()));
    assert_eq!(storage.lease_time(nowhere).await, Err(unknown()));
    assert_eq!(storage.receipts(nowhere, a, vec![]).await, Err(unknown()));
    let age = std::time::Duration::from_secs(9);
    assert_eq!(storage.sweep_expired(nowhere, age).await, Err(unknown()));
    assert_eq!(storage.prune_messages(nowhere, age).await, Err(unknown()));
    assert_eq!(storage.age(nowhere).await, Err(unknown()));
    assert_eq!(storage.count_traffic(nowhere).await, Err(unknown()));
    assert_eq!(storage.effect_rows(nowhere).await, Err(unknown()));
    assert_eq!(
        storage.register_agent(nowhere, &agent).await,
        Err(unknown())
    );
    assert_eq!(storage.create_topic(nowhere, &ops).await, Err(unknown()));
    assert_eq!(
        storage.subscribe(nowhere, &ops, &agent).await,
        Err(unknown())
    );
    assert_eq!(
        storage.unsubscribe(nowhere, &ops, &agent).await,
        Err(unknown())
    );
    assert_eq!(storage.roster(nowhere).await, Err(unknown()));
    assert_eq!(storage.known(nowhere, Vec::new()).await, Err(unknown()));
    assert_eq!(storage.accept(nowhere, Vec::new()).await, Err(unknown()));
    let page = storage.deliveries_after(nowhere, a, DeliveryCursor::START, limit);
    assert_eq!(page.await, Err(unknown()));
    assert_eq!(
        storage.ack(nowhere, a, Vec::new(), at).await,
        Err(unknown())
    );
    assert_eq!(storage.epoch(nowhere).await, Err(unknown()));
    assert_eq!(storage.mesh_name(nowhere).await, Err(unknown()));
    let history = storage.history_after(nowhere, HistoryId::ZERO, 1);
    assert_eq!(history.await, Err(unknown()));
    assert_eq!(storage.orphan_check(nowhere).await, Err(unknown()));
    assert_eq!(storage.dump().await, Vec::<String>::new());
}

async fn lf_16_a_history_that_fell_back_begins_a_new_epoch_and_never_falls<S: TestStorage>(
    storage: std::sync::Arc<S>,
) {
    let at = |epoch, seq| HistoryId { epoch, seq };
    let name = mesh_name("home");
    storage.ensure_mesh(mesh(1), &name).await.unwrap();
    for (seen, raised, epoch) in [
        (HistoryId::ZERO, false, 1),
        (at(1, 0), false, 1),
        (at(1, 1), true, 2),
        (at(1, 900), false, 2),
        (at(2, 0), false, 2),
        (at(7, 3), true, 8),
        (at(7, 3), false, 8),
    ] {
        let answer = storage.raise_epoch_beyond(mesh(1), seen).await.unwrap();
        assert_eq!(answer, raised, "{seen}");
        assert_eq!(storage.epoch(mesh(1)).await.unwrap(), epoch, "{seen}");
    }
}
