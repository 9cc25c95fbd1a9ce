//! The snapshot of the oracle: one for each mesh.

use heddle_core::ids::{HistoryId, MemberId, MeshId, OpId};

use super::super::error::StorageError;
use super::super::snapshots::{OpenSnapshot, SnapshotVerdict, Snapshots, before, begun, committed};
use super::MemoryStorage;

impl Snapshots for MemoryStorage {
    async fn begin_snapshot(
        &self,
        mesh: MeshId,
        id: OpId,
        by: MemberId,
    ) -> Result<SnapshotVerdict, StorageError> {
        self.on(mesh, |tables| {
            let end = before(HistoryId {
                epoch: tables.epoch,
                seq: tables.next_seq,
            });
            let (verdict, next) = begun(tables.snapshot, id, by, end);
            tables.snapshot = next.or(tables.snapshot);
            Ok(verdict)
        })
    }

    async fn commit_snapshot(
        &self,
        mesh: MeshId,
        id: OpId,
        by: MemberId,
    ) -> Result<SnapshotVerdict, StorageError> {
        self.on(mesh, |tables| {
            let (verdict, next) = committed(tables.snapshot, id, by);
            tables.snapshot = next.or(tables.snapshot);
            Ok(verdict)
        })
    }

    async fn open_snapshot(&self, mesh: MeshId) -> Result<Option<OpenSnapshot>, StorageError> {
        self.on(mesh, |tables| {
            let open = tables.snapshot.filter(|kept| kept.is_open);
            Ok(open.map(|kept| kept.open))
        })
    }
}
