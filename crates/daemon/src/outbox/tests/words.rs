//! What is said of a full budget: who holds it, and whether anybody has to do something.

use std::path::PathBuf;

use heddle_core::ids::MeshId;
use ulid::Ulid;

use crate::outbox::disk::Disk;

const MESH: MeshId = MeshId(Ulid(7));

#[test]
fn a_budget_that_delivered_messages_hold_eases_by_itself_and_is_not_said_to_wait() {
    let disk = Disk::new(PathBuf::from("/"), Some(1));
    let reserved = disk.reserve(MESH, 900_000).ok().unwrap();
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
