//! What is said where there is no more room: of a budget, who holds it and whether anybody has to do something; of mailboxes.

use std::path::PathBuf;

use heddle_core::ids::MeshId;
use heddle_core::limits::AGENTS_MAX;
use heddle_core::names::AgentName;
use ulid::Ulid;

use super::{START, start};
use crate::outbox::count::Asks;
use crate::outbox::disk::Disk;

const MESH: MeshId = MeshId(Ulid(7));

#[test]
fn a_budget_that_delivered_messages_hold_eases_by_itself_and_is_not_said_to_wait() {
    let disk = Disk::new(PathBuf::from("/"), Some(1));
    let reserved = disk.reserve(Asks::Send, MESH, 900_000).ok().unwrap();
    for (waiting, says, not) in [
        (3, "that still wait", "by itself"),
        (0, "by itself", "wait"),
    ] {
        disk.note_waiting(waiting);
        let degraded = disk.degraded().unwrap();
        assert!(
            degraded.contains(says) && !degraded.contains(not),
            "{waiting}: {degraded}"
        );
        assert_eq!(disk.view().unwrap().gives_back, waiting == 0);
    }
    reserved.give_back();
    assert!(disk.degraded().is_none() && disk.view().is_none());
}

#[tokio::test]
async fn one_agent_more_than_a_hello_can_name_is_refused_when_it_is_to_be_made() {
    let folder = tempfile::tempdir().unwrap();
    let world = start(folder.path(), START, None, 1).await;
    let mesh = world.mesh();
    let names = (0..AGENTS_MAX).map(|number| AgentName::parse(&format!("a{number}")).unwrap());
    mesh.pretend_agents(names);
    let more = AgentName::parse("more").unwrap();
    let refused = mesh.register(&world.shared, &more).await.unwrap_err();
    assert_eq!(refused.code, "invalid_request");
    assert!(refused.next.contains("`heddle agent list`"), "{refused:?}");
    let known = AgentName::parse("a7").unwrap();
    assert!(!mesh.register(&world.shared, &known).await.unwrap());
}
