//! Snapshots: what is hidden and from when, the same in every store.

use heddle_core::ids::{HistoryId, OpId};

use crate::storage::{AnyStorage, OpenSnapshot, SnapshotVerdict};
use crate::test_support::{TestStorage, member, memory, mesh, mesh_name, postgres, sqlite};

fn id(number: u128) -> OpId {
    OpId::from_bytes(number.to_be_bytes())
}

async fn lf_34<S: TestStorage>(storage: &S) {
    storage.ensure_mesh(mesh(1), &mesh_name("m")).await.unwrap();
    let (a, b) = (member("a"), member("b"));
    let open = || async { storage.open_snapshot(mesh(1)).await.unwrap() };
    let begin = |number, by| storage.begin_snapshot(mesh(1), id(number), by);
    let commit = |number, by| storage.commit_snapshot(mesh(1), id(number), by);
    assert_eq!(open().await, None);
    assert_eq!(commit(1, a).await, Ok(SnapshotVerdict::Other));
    assert_eq!(begin(1, a).await, Ok(SnapshotVerdict::Changed));
    let behind = HistoryId { epoch: 1, seq: 0 };
    let expected = Some(OpenSnapshot { by: a, behind });
    assert_eq!(open().await, expected);
    // Again: the same, also when the history has gone on.
    storage.bump_epoch(mesh(1)).await.unwrap();
    assert_eq!(begin(1, a).await, Ok(SnapshotVerdict::Same));
    assert_eq!(open().await, expected);
    // Nobody else's begins meanwhile, and nobody else ends it.
    assert_eq!(begin(2, b).await, Ok(SnapshotVerdict::Other));
    assert_eq!(commit(1, b).await, Ok(SnapshotVerdict::Other));
    assert_eq!(commit(2, a).await, Ok(SnapshotVerdict::Other));
    // One's own in its place hides from the same place on.
    assert_eq!(begin(3, a).await, Ok(SnapshotVerdict::Changed));
    assert_eq!(open().await, expected);
    assert_eq!(commit(3, a).await, Ok(SnapshotVerdict::Changed));
    assert_eq!(open().await, None);
    assert_eq!(commit(3, a).await, Ok(SnapshotVerdict::Same));
    // A begin that comes late opens nothing again.
    assert_eq!(begin(3, a).await, Ok(SnapshotVerdict::Same));
    assert_eq!(open().await, None);
    assert_eq!(begin(4, b).await, Ok(SnapshotVerdict::Changed));
    let behind = HistoryId { epoch: 2, seq: 0 };
    assert_eq!(open().await, Some(OpenSnapshot { by: b, behind }));
    assert!(storage.open_snapshot(mesh(9)).await.is_err());
}

#[tokio::test]
async fn lf_34_a_snapshot_is_begun_once_committed_once_and_of_one_member() {
    lf_34(memory().as_ref()).await;
    let disk = sqlite();
    lf_34(&AnyStorage::Sqlite(disk.storage.clone())).await;
    lf_34(&AnyStorage::Postgres(postgres().await)).await;
}
