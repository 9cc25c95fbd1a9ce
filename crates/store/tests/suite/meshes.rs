//! Meshes, agents and the roster.

use heddle_core::clock::{Ids, WallMs};
use heddle_core::ids::{MemberId, MeshId};
use heddle_core::names::{MemberName, MeshName};
use heddle_store::NewMesh;

use crate::fixture::{Fixture, NOW, agent, at};

pub(crate) fn new_mesh(fixture: &Fixture, name: &str) -> NewMesh {
    NewMesh {
        mesh: MeshId(fixture.ids.ulid()),
        name: MeshName::parse(name).unwrap(),
        member: MemberId(fixture.ids.ulid()),
        member_name: MemberName::parse("alice").unwrap(),
        broker_url: Some("wss://broker.example".to_owned()),
        now: NOW,
    }
}

#[tokio::test]
async fn a_mesh_keeps_its_ids_however_often_it_is_ensured() {
    let fixture = Fixture::new();
    let first = fixture.store.ensure_mesh(new_mesh(&fixture, "home")).await;
    let mut later = new_mesh(&fixture, "home");
    later.broker_url = None;
    later.now = WallMs(NOW.0 + 1);
    let second = fixture.store.ensure_mesh(later).await.unwrap();
    assert_eq!(second, first.unwrap());
    fixture
        .store
        .ensure_mesh(new_mesh(&fixture, "abc"))
        .await
        .unwrap();
    let meshes = fixture.store.meshes().await.unwrap();
    let names: Vec<&str> = meshes.iter().map(|mesh| mesh.name.as_str()).collect();
    assert_eq!(names, ["abc", "home"]);
    assert_eq!(meshes[1], second);
}

#[tokio::test]
async fn a_mesh_id_cannot_have_two_names() {
    let fixture = Fixture::new();
    let home = new_mesh(&fixture, "home");
    let mut alias = new_mesh(&fixture, "alias");
    alias.mesh = home.mesh;
    fixture.store.ensure_mesh(home).await.unwrap();
    assert!(fixture.store.ensure_mesh(alias).await.is_err());
}

#[tokio::test]
async fn an_agent_is_fresh_once_and_counts_what_lies_unread_in_its_own_mailbox() {
    let fixture = Fixture::new();
    let register = |name: &str, now| fixture.store.register_agent(fixture.mesh, agent(name), now);
    assert!(register("coder", NOW).await.unwrap());
    assert!(!register("coder", WallMs(NOW.0 + 1)).await.unwrap());
    assert!(register("builder", NOW).await.unwrap());
    let batch = vec![
        fixture.item("coder", "a", at(1, 1)),
        fixture.item("coder", "b", at(1, 2)),
        fixture.item("builder", "c", at(1, 3)),
    ];
    fixture.store.receive(fixture.mesh, batch).await.unwrap();
    let acked = fixture.store.inbox_ack(vec![1], None, NOW).await;
    acked.unwrap();
    let agents = fixture.store.agents(fixture.mesh).await.unwrap();
    let seen: Vec<_> = agents
        .iter()
        .map(|row| (row.agent.as_str(), row.registered_at, row.unread))
        .collect();
    assert_eq!(seen, [("builder", NOW, 1), ("coder", NOW, 1)]);
    let other = MeshId(fixture.ids.ulid());
    assert!(fixture.store.agents(other).await.unwrap().is_empty());
}

#[tokio::test]
async fn c29_a_roster_comes_back_with_the_time_at_which_it_was_true() {
    let fixture = Fixture::new();
    let roster = || fixture.store.roster(fixture.mesh);
    assert_eq!(roster().await.unwrap(), None);
    for (text, time) in [("first", NOW), ("second", WallMs(NOW.0 + 9))] {
        let saved = fixture
            .store
            .save_roster(fixture.mesh, text.to_owned(), time);
        saved.await.unwrap();
        assert_eq!(roster().await.unwrap(), Some((text.to_owned(), time)));
    }
}
