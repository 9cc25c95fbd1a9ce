//! Claims on jobs: an advisory lock of the server says who does one, a row says who that is.
//!
//! The lock belongs to a connection of its own: a broker that dies gives it back with its connection, at once, and one
//! that takes longer than it meant to keeps it. The row is for people, and for a claim that was made in this process.

use deadpool_postgres::{ClientWrapper, Object, Transaction};
use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;

use super::super::error::StorageError;
use super::super::job_locks::{Here, Lock};
use super::super::upkeep::{Job, JobClaim, is_claimed};
use super::PostgresStorage;
use super::columns::{Columns, mesh_key};
use super::error::JobError;
use super::sql::{execute, query_opt};

const CLAIM: &str = "SELECT holder, claimed_until FROM job_claim WHERE mesh_id = $1 AND job = $2";

const TAKE_CLAIM: &str = "
INSERT INTO job_claim (mesh_id, job, holder, claimed_until) VALUES ($1, $2, $3, $4)
ON CONFLICT (mesh_id, job) DO UPDATE SET holder = excluded.holder,
    claimed_until = excluded.claimed_until";

const RELEASE: &str = "DELETE FROM job_claim WHERE mesh_id = $1 AND job = $2 AND holder = $3";

// Of this schema: two teams may share a database.
const TRY_LOCK: &str =
    "SELECT pg_try_advisory_lock(hashtextextended(current_schema() || ':' || $1, 0))";

const UNLOCK: &str = "SELECT pg_advisory_unlock_all()";

/// The server gives a lock back with its connection.
impl Lock for ClientWrapper {
    fn is_gone(&self) -> bool {
        self.is_closed()
    }

    async fn give_back(self) {
        // Said, so that it is free when this returns; the end of the connection would do it as well.
        let _ = self.simple_query(UNLOCK).await;
    }
}

async fn row_of(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    job: Job,
) -> Result<Option<(String, WallMs)>, JobError> {
    let found = query_opt(transaction, CLAIM, &[&mesh_key(mesh), &job.as_str()]).await?;
    found
        .map(|row| {
            let mut columns = Columns::of(&row);
            Ok((columns.text()?, columns.wall()?))
        })
        .transpose()
}

impl PostgresStorage {
    pub(super) async fn claim(
        &self,
        wanted: JobClaim,
    ) -> Result<Option<(String, WallMs)>, StorageError> {
        match self.claims.here(&wanted) {
            Here::Own => {}
            Here::Other => {
                if let Some((holder, until)) = self.noted(&wanted).await?
                    && holder != wanted.holder
                    && is_claimed(until, wanted.now)
                {
                    return Ok(Some((holder, until)));
                }
                self.claims.pass_on(&wanted);
            }
            Here::Nobody => {
                let Some(connection) = self.locked(&wanted).await? else {
                    let noted = self.noted(&wanted).await?;
                    let nameless = || ("another broker".to_owned(), wanted.until);
                    return Ok(Some(noted.unwrap_or_else(nameless)));
                };
                self.claims.keep(&wanted, connection);
            }
        }
        self.note(wanted).await?;
        Ok(None)
    }

    /// A connection that has the lock of the job.
    async fn locked(&self, wanted: &JobClaim) -> Result<Option<ClientWrapper>, StorageError> {
        let client = self.pools.effects.get().await.map_err(JobError::from)?;
        // It leaves the pool: whoever got it from there would have the lock with it.
        let client = Object::take(client);
        let name = format!("{}:{}", wanted.mesh, wanted.job.as_str());
        let asked = client.query_one(TRY_LOCK, &[&name]).await;
        let is_ours: bool = asked
            .and_then(|row| row.try_get(0))
            .map_err(JobError::from)?;
        Ok(is_ours.then_some(client))
    }

    async fn noted(&self, wanted: &JobClaim) -> Result<Option<(String, WallMs)>, StorageError> {
        let (mesh, job) = (wanted.mesh, wanted.job);
        self.write(mesh, (mesh, job), |tx, &(mesh, job)| {
            Box::pin(row_of(tx, mesh, job))
        })
        .await
    }

    async fn note(&self, wanted: JobClaim) -> Result<(), StorageError> {
        let mesh = wanted.mesh;
        self.write(mesh, wanted, |tx, wanted| {
            Box::pin(async move {
                let (key, job) = (mesh_key(wanted.mesh), wanted.job.as_str());
                let values = [
                    &key as _,
                    &job as _,
                    &wanted.holder as _,
                    &wanted.until.0 as _,
                ];
                execute(tx, TAKE_CLAIM, &values).await?;
                Ok(())
            })
        })
        .await
    }

    pub(super) async fn release(
        &self,
        mesh: MeshId,
        job: Job,
        holder: &str,
    ) -> Result<(), StorageError> {
        let input = (mesh, job, holder.to_owned());
        let forgotten = self.write(mesh, input, |tx, (mesh, job, holder)| {
            Box::pin(async move {
                let key = mesh_key(*mesh);
                execute(tx, RELEASE, &[&key, &job.as_str(), holder]).await?;
                Ok(())
            })
        });
        self.claims.release((mesh, job, holder), forgotten).await
    }
}
