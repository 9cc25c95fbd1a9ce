//! What a broker has lost: how much of it is sent again, and what is too old for that.

use heddle_core::envelope::Priority;
use heddle_core::ids::HistoryId;
use tempfile::TempDir;

use super::super::lost;
use super::{FakeBroker, START, World, start};

/// Sends this and gets it committed.
async fn commit(world: &World, broker: &FakeBroker, ids: &[&str]) {
    let live = broker.connect();
    for id in ids {
        world.accept(id, Priority::Next).await;
    }
    world.drain(&live).await;
    broker.sent();
}

/// The broker has lost everything, and begins a new epoch; what is sent again.
async fn lose_everything(world: &World, broker: &FakeBroker) -> Vec<String> {
    broker.committed.lock().unwrap().clear();
    let end = HistoryId { epoch: 2, seq: 0 };
    *broker.epochs.lock().unwrap() = (2, vec![end]);
    let id = world.mesh().mesh.mesh;
    world.shared.store.hear_epoch(id, 2).await.unwrap();
    let live = broker.connect();
    lost::round(&world.shared, world.mesh(), &live)
        .await
        .unwrap();
    broker.sent()
}

#[tokio::test]
async fn lf_16_what_is_older_than_anybody_keeps_it_is_not_sent_again_and_is_counted() {
    for (max_age_hours, days, is_old) in [
        (7884, 31, true),
        (7884, 29, false),
        (168, 8, true),
        (168, 6, false),
    ] {
        let folder = TempDir::new().unwrap();
        let broker = FakeBroker::new();
        let world = start(folder.path(), START, None, 1).await;
        world
            .mesh()
            .set_max_age_hours(&world.shared, max_age_hours)
            .await;
        commit(&world, &broker, &["old-1", "old-2"]).await;
        world.pass(days * 24).await;
        world.shared.store.forget_births().await.unwrap();
        commit(&world, &broker, &["new"]).await;
        world.pass(1).await;
        let again = lose_everything(&world, &broker).await;
        let said = lost::said(&world.shared, world.mesh())
            .await
            .unwrap()
            .unwrap();
        if is_old {
            assert_eq!(again, ["new"], "{max_age_hours} h, {days} days");
            assert!(
                said.words.contains("2 are too old to be sent again"),
                "{}",
                said.words
            );
        } else {
            assert_eq!(
                again,
                ["old-1", "old-2", "new"],
                "{max_age_hours} h, {days} days"
            );
        }
        assert!(!said.is_open, "{}", said.words);
    }
}

#[tokio::test]
async fn lf_16_a_jump_of_the_wall_makes_no_message_old() {
    let folder = TempDir::new().unwrap();
    let broker = FakeBroker::new();
    let world = start(folder.path(), START, None, 1).await;
    commit(&world, &broker, &["a"]).await;
    world.jump(3650);
    world.pass(1).await;
    assert_eq!(lose_everything(&world, &broker).await, ["a"]);
}
