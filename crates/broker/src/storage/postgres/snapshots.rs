//! The snapshot of a mesh in SQL: one row.

use deadpool_postgres::GenericClient;
use heddle_core::ids::{HistoryId, MemberId, MeshId, OpId};

use super::super::error::StorageError;
use super::super::snapshots::{
    Kept, OpenSnapshot, SnapshotVerdict, Snapshots, before, begun, committed,
};
use super::PostgresStorage;
use super::columns::{Columns, integer, member_key, mesh_key};
use super::error::JobError;
use super::history;
use super::roster::require_mesh;
use super::sql::{execute, query_opt};

const FIND: &str = "
SELECT snapshot_id, member_id, behind_epoch, behind_seq, is_open FROM log_snapshot WHERE mesh_id = $1";

const KEEP: &str = "
INSERT INTO log_snapshot (mesh_id, snapshot_id, member_id, behind_epoch, behind_seq, is_open)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (mesh_id) DO UPDATE SET snapshot_id = excluded.snapshot_id,
    member_id = excluded.member_id, behind_epoch = excluded.behind_epoch,
    behind_seq = excluded.behind_seq, is_open = excluded.is_open";

pub(super) async fn find<C: GenericClient>(
    client: &C,
    mesh: MeshId,
) -> Result<Option<Kept>, JobError> {
    let Some(row) = query_opt(client, FIND, &[&mesh_key(mesh)]).await? else {
        return Ok(None);
    };
    let mut columns = Columns::of(&row);
    Ok(Some(Kept {
        id: columns.op()?,
        open: OpenSnapshot {
            by: columns.member()?,
            behind: columns.history_id()?,
        },
        is_open: columns.flag()?,
    }))
}

pub(super) async fn keep<C: GenericClient>(
    client: &C,
    mesh: MeshId,
    kept: Option<Kept>,
) -> Result<(), JobError> {
    let Some(Kept { id, open, is_open }) = kept else {
        return Ok(());
    };
    let (id, member) = (id.to_string(), member_key(open.by));
    let (epoch, seq) = (integer(open.behind.epoch), integer(open.behind.seq));
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
        [&mesh_key(mesh), &id, &member, &epoch, &seq, &is_open];
    execute(client, KEEP, &values).await?;
    Ok(())
}

/// The last place that the log of a mesh has now.
async fn end<C: GenericClient>(client: &C, mesh: MeshId) -> Result<HistoryId, JobError> {
    Ok(before(history::next(client, mesh).await?))
}

impl Snapshots for PostgresStorage {
    async fn begin_snapshot(
        &self,
        mesh: MeshId,
        id: OpId,
        by: MemberId,
    ) -> Result<SnapshotVerdict, StorageError> {
        self.write(mesh, (mesh, id, by), |tx, &(mesh, id, by)| {
            Box::pin(async move {
                let end = end(tx, mesh).await?;
                let (verdict, kept) = begun(find(tx, mesh).await?, id, by, end);
                keep(tx, mesh, kept).await?;
                Ok(verdict)
            })
        })
        .await
    }

    async fn commit_snapshot(
        &self,
        mesh: MeshId,
        id: OpId,
        by: MemberId,
    ) -> Result<SnapshotVerdict, StorageError> {
        self.write(mesh, (mesh, id, by), |tx, &(mesh, id, by)| {
            Box::pin(async move {
                let (verdict, kept) = committed(find(tx, mesh).await?, id, by);
                keep(tx, mesh, kept).await?;
                Ok(verdict)
            })
        })
        .await
    }

    async fn open_snapshot(&self, mesh: MeshId) -> Result<Option<OpenSnapshot>, StorageError> {
        let client = self.reader().await?;
        require_mesh(&client, mesh).await?;
        let open = find(&client, mesh).await?.filter(|kept| kept.is_open);
        Ok(open.map(|kept| kept.open))
    }
}
