//! T-29: how many one message reaches.

use futures_util::future::join_all;
use heddle_core::limits::RECIPIENTS_MAX;
use heddle_core::names::MemberName;

use crate::storage::StorageError;
use crate::test_support::{
    TestStorage, member, memory, mesh, mesh_name, party, postgres, sqlite, topic,
};

const AT_ONCE: usize = 300;

async fn t_29_a_topic_takes_no_more_subscribers_than_a_message_may_reach<S: TestStorage>(
    storage: &S,
) {
    storage.ensure_mesh(mesh(1), &mesh_name("m")).await.unwrap();
    let name = MemberName::parse("a").unwrap();
    let ensured = storage.ensure_member(mesh(1), member("a"), &name).await;
    ensured.unwrap();
    let agents: Vec<_> = (0..=RECIPIENTS_MAX)
        .map(|n| party(&format!("a/n{n}")))
        .collect();
    // Many at once, because they share commits; as many as a line takes.
    let ops = topic("#ops");
    let mut told = Vec::new();
    for some in agents.chunks(AT_ONCE) {
        let registering = some.iter().map(|one| storage.register_agent(mesh(1), one));
        for registered in join_all(registering).await {
            assert_eq!(registered, Ok(true));
        }
        let subscribing = some.iter().map(|one| storage.subscribe(mesh(1), &ops, one));
        told.extend(join_all(subscribing).await);
    }
    let full = Err(StorageError::TopicFull(ops.clone()));
    let taken = told.iter().filter(|one| **one == Ok(true)).count();
    let refused: Vec<usize> = (0..agents.len()).filter(|n| told[*n] == full).collect();
    assert_eq!(
        (taken, refused.len()),
        (RECIPIENTS_MAX, 1),
        "however they race"
    );
    let (late, early) = (&agents[refused[0]], &agents[usize::from(refused[0] == 0)]);
    // Whoever is in it stays in it, another topic is another matter, and one that leaves makes room.
    assert_eq!(storage.subscribe(mesh(1), &ops, early).await, Ok(false));
    assert_eq!(
        storage.subscribe(mesh(1), &topic("#dev"), late).await,
        Ok(true)
    );
    assert_eq!(storage.subscribe(mesh(1), &ops, late).await, full);
    assert_eq!(storage.unsubscribe(mesh(1), &ops, early).await, Ok(true));
    assert_eq!(storage.subscribe(mesh(1), &ops, late).await, Ok(true));
    let roster = storage.roster(mesh(1)).await.unwrap();
    let ops = roster.topics.iter().find(|one| one.topic == ops).unwrap();
    assert_eq!(ops.subscribers.len(), RECIPIENTS_MAX);
}

#[tokio::test]
async fn t_29_on_every_store() {
    t_29_a_topic_takes_no_more_subscribers_than_a_message_may_reach(memory().as_ref()).await;
    t_29_a_topic_takes_no_more_subscribers_than_a_message_may_reach(&sqlite().storage).await;
    t_29_a_topic_takes_no_more_subscribers_than_a_message_may_reach(&postgres().await).await;
}
