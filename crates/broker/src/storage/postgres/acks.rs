//! Acknowledgements of deliveries: those of a group are one statement, whoever sent them. They stand in the line of their
//! mesh, because a receiver of many would otherwise wait for as many commits, and the accepts beside it as well.

use std::collections::HashSet;

use deadpool_postgres::{GenericClient, Object};
use futures_util::future::try_join4;
use heddle_core::clock::WallMs;
use heddle_core::ids::{MemberId, MeshId};
use tokio::sync::oneshot;

use super::super::error::StorageError;
use super::super::rows::Ack;
use super::columns::{integer, member_key, mesh_key};
use super::error::JobError;
use super::job::Settle;
use super::line::LOCK;
use super::sql::{exists, query};

/// The rows are found by their key before they are changed: a plan that was made while the table was empty would read
/// all of a member's deliveries for each of them. Nobody changes them in between, under the lock of the mesh's row.
pub(super) const DELIVERED: &str = "
UPDATE delivery_queue d SET delivered_at = found.at
FROM (SELECT f.place, k.at, k.job
    FROM unnest($2::bytea[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[])
        AS k (member_id, epoch, seq, agent, at, job)
    CROSS JOIN LATERAL (SELECT w.ctid AS place, w.delivered_at FROM delivery_queue w
        WHERE w.mesh_id = $1 AND w.member_id = k.member_id AND w.epoch = k.epoch AND w.seq = k.seq
          AND w.agent = k.agent OFFSET 0) AS f
    WHERE f.delivered_at IS NULL OFFSET 0) AS found
WHERE d.ctid = found.place
RETURNING found.job";

/// What one receiver acknowledges.
pub(super) struct AckJob {
    pub(super) member: MemberId,
    pub(super) items: Vec<Ack>,
    pub(super) at: WallMs,
    /// How many it changed.
    pub(super) changed: usize,
    pub(super) answer: oneshot::Sender<Result<usize, StorageError>>,
}

impl Settle for AckJob {
    fn settle(self: Box<Self>, committed: Result<(), StorageError>) {
        // Whoever does not wait any more finds the answer in the tables.
        let _ = self.answer.send(committed.map(|()| self.changed));
    }
}

/// The same rows, column by column.
#[derive(Default)]
struct Columns<'a> {
    member: Vec<Vec<u8>>,
    epoch: Vec<i64>,
    seq: Vec<i64>,
    agent: Vec<&'a str>,
    at: Vec<i64>,
    job: Vec<i64>,
}

impl<'a> Columns<'a> {
    /// Each delivery once, for whoever named it first.
    fn of(jobs: &[&'a AckJob]) -> Self {
        let mut columns = Self::default();
        let mut named = HashSet::new();
        for (number, job) in (0_i64..).zip(jobs) {
            for item in &job.items {
                if !named.insert((job.member, item.history_id, item.agent.as_str())) {
                    continue;
                }
                columns.member.push(member_key(job.member));
                columns.epoch.push(integer(item.history_id.epoch));
                columns.seq.push(integer(item.history_id.seq));
                columns.agent.push(item.agent.as_str());
                columns.at.push(job.at.0);
                columns.job.push(number);
            }
        }
        columns
    }
}

/// Marks what the jobs name as delivered; how many rows each of them changed. The mesh's row is locked.
pub(super) async fn mark<C: GenericClient>(
    client: &C,
    mesh: MeshId,
    jobs: &[&AckJob],
) -> Result<Vec<usize>, JobError> {
    let mut changed = vec![0; jobs.len()];
    let columns = Columns::of(jobs);
    if columns.seq.is_empty() {
        return Ok(changed);
    }
    let mesh = mesh_key(mesh);
    let rows = query(
        client,
        DELIVERED,
        &[
            &mesh,
            &columns.member,
            &columns.epoch,
            &columns.seq,
            &columns.agent,
            &columns.at,
            &columns.job,
        ],
    )
    .await?;
    for row in rows {
        let number: i64 = row.try_get(0)?;
        let of_job = usize::try_from(number)
            .ok()
            .and_then(|n| changed.get_mut(n));
        let count = of_job.ok_or_else(|| JobError::BadRow(format!("there is no job {number}")))?;
        *count += 1;
    }
    Ok(changed)
}

/// A whole transaction of acknowledgements alone, in one trip. After an error the connection may be in the middle of it:
/// the caller undoes it.
pub(super) async fn at_once(
    client: &Object,
    mesh: MeshId,
    jobs: &[&AckJob],
) -> Result<Vec<usize>, JobError> {
    // IMPORTANT: what is prepared is sent in the order in which it is polled.
    client.prepare_cached(LOCK).await?;
    client.prepare_cached(DELIVERED).await?;
    let key = mesh_key(mesh);
    let begin = async { Ok(client.batch_execute("BEGIN").await?) };
    let commit = async { Ok(client.batch_execute("COMMIT").await?) };
    let lock: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&key];
    let lock = exists(client, LOCK, &lock);
    let ((), is_there, changed, ()) =
        try_join4(begin, lock, mark(client, mesh, jobs), commit).await?;
    if is_there {
        Ok(changed)
    } else {
        Err(StorageError::UnknownMesh(mesh).into())
    }
}
