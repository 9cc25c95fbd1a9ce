//! What this home knows of leases: when it saw each claim, on a clock that nobody sets (C18).

use heddle_core::ids::{MeshId, OpId};
use heddle_core::task::TaskId;
use heddle_core::task::fold::Claim;
use heddle_core::task::lease::Moment;
use rusqlite::{Connection, params};

use super::row::{self, claim, seen};
use crate::cells::Cells;
use crate::error::StoreError;
use crate::store::Store;

/// Claims that one look goes through; those behind them come with the next, when some have ended.
const CLAIMS_MAX: i64 = 1000;

/// A claimed task, as far as its lease is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldTask {
    pub id: TaskId,
    pub claim: Claim,
    pub seen: Moment,
}

macro_rules! unseen {
    () => {
        "FROM tasks INDEXED BY tasks_claimed
         WHERE tasks.mesh_id = ?1 AND status = 'claimed' AND NOT EXISTS (
            SELECT 1 FROM task_lease AS lease
            WHERE lease.mesh_id = tasks.mesh_id AND lease.task_id = tasks.task_id
                AND lease.renewed = tasks.renewed AND lease.boot = ?2)"
    };
}

pub(crate) const UNSEEN: &str = concat!("SELECT 1 ", unseen!(), " LIMIT 1");

/// A mark of another boot says nothing and is replaced: the lease counts anew.
pub(crate) const SEE: &str = concat!(
    "INSERT INTO task_lease (mesh_id, task_id, renewed, boot, seen_ms)
     SELECT mesh_id, task_id, renewed, ?2, ?3 ",
    unseen!(),
    " ON CONFLICT (mesh_id, task_id) DO UPDATE SET
        renewed = excluded.renewed, boot = excluded.boot, seen_ms = excluded.seen_ms"
);

pub(crate) const FORGET: &str = "DELETE FROM task_lease WHERE mesh_id = ?1 AND task_id = ?2";

pub(crate) const CLAIMS: &str = "
    SELECT tasks.task_id, claimed_by, claimed_at, fence, lease_ms, tasks.renewed, renewed_at,
        boot, seen_ms
    FROM tasks INDEXED BY tasks_claimed
    JOIN task_lease AS lease ON lease.mesh_id = tasks.mesh_id
        AND lease.task_id = tasks.task_id AND lease.renewed = tasks.renewed
    WHERE tasks.mesh_id = ?1 AND status = 'claimed' LIMIT ?2";

impl Store {
    /// Marks the claims and renewals that came in since the last look as seen now. Without a sync of
    /// its own: a mark that a power cut takes is made again, later, and no lease ends early by that.
    pub async fn see_leases(&self, mesh: MeshId, now: Moment) -> Result<(), StoreError> {
        let boot = now.boot.to_be_bytes();
        let is_unseen = self.read_few(move |connection| {
            let mut statement = connection.prepare_cached(UNSEEN)?;
            Ok(statement.exists(params![mesh.0.to_bytes(), boot])?)
        });
        if is_unseen.await? {
            self.write_relaxed(move |connection| see(connection, mesh, now))
                .await?;
        }
        Ok(())
    }

    /// The claims of a mesh that were seen already.
    pub async fn held_tasks(&self, mesh: MeshId) -> Result<Vec<HeldTask>, StoreError> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(CLAIMS)?;
            let mut rows = statement.query(params![mesh.0.to_bytes(), CLAIMS_MAX])?;
            let mut held = Vec::new();
            while let Some(row) = rows.next()? {
                let mut cells = Cells::of("tasks", row);
                let id = OpId::from_bytes(cells.get()?);
                // A row that is not what was folded ends nobody's lease; it is told elsewhere.
                if let Err(StoreError::Corrupt(_)) = row::one(connection, mesh, id) {
                    continue;
                }
                let claim = claim(&mut cells)?;
                let seen = seen(&mut cells)?;
                held.extend(
                    claim
                        .zip(seen)
                        .map(|(claim, seen)| HeldTask { id, claim, seen }),
                );
            }
            Ok(held)
        })
        .await
    }
}

pub(super) fn see(connection: &Connection, mesh: MeshId, now: Moment) -> Result<(), StoreError> {
    let ms = i64::try_from(now.since.as_millis()).unwrap_or(i64::MAX);
    connection.prepare_cached(SEE)?.execute(params![
        mesh.0.to_bytes(),
        now.boot.to_be_bytes(),
        ms
    ])?;
    Ok(())
}
