//! Sessions in SQL: leases of members, each under its generation.

use deadpool_postgres::Transaction;
use heddle_core::clock::WallMs;
use heddle_core::ids::{MemberId, MeshId};

use super::super::error::StorageError;
use super::super::presence::{LeaseMs, Presence, Present};
use super::PostgresStorage;
use super::columns::{Columns, integer, member_key, mesh_key};
use super::error::JobError;
use super::roster::require_mesh;
use super::sql::{change, count, execute, query, query_opt};

const NEXT_GENERATION: &str = "
UPDATE member SET generation = generation + 1 WHERE mesh_id = $1 AND member_id = $2
RETURNING generation";

const BEGIN: &str = "
INSERT INTO member_session (mesh_id, member_id, generation, since, leased_until)
VALUES ($1, $2, $3, $4, $5)";

const RENEW: &str = "
UPDATE member_session SET leased_until = greatest(leased_until, $4)
WHERE mesh_id = $1 AND member_id = $2 AND generation = $3";

const END: &str = "
WITH ended AS (
    DELETE FROM member_session WHERE mesh_id = $1 AND member_id = $2 AND generation = $3
    RETURNING mesh_id, member_id)
UPDATE member m SET seen_at = greatest(m.seen_at, $4) FROM ended
WHERE m.mesh_id = ended.mesh_id AND m.member_id = ended.member_id";

const SEEN: &str = "
UPDATE member SET seen_at = greatest(seen_at, $3) WHERE mesh_id = $1 AND member_id = ANY ($2)";

const EXPIRE: &str =
    "DELETE FROM member_session WHERE mesh_id = $1 AND leased_until <= $2 RETURNING member_id";

const PRESENCE: &str = "
SELECT m.member_id, m.seen_at, (SELECT min(s.since) FROM member_session s
    WHERE s.mesh_id = m.mesh_id AND s.member_id = m.member_id AND s.leased_until > $2)
FROM member m WHERE m.mesh_id = $1 ORDER BY m.member_id";

const LEASE_TIME: &str = "SELECT lease_ms FROM mesh WHERE mesh_id = $1";

/// With what has passed on the database's clock since somebody who serves it moved the time on.
const LEASE_NOW: &str = "
SELECT lease_ms + greatest(0, coalesce(extract(epoch FROM clock_timestamp() - lease_at) * 1000, 0))::bigint
FROM mesh WHERE mesh_id = $1";

const REMEMBER: &str = "
UPDATE mesh SET lease_ms = $2, lease_at = clock_timestamp() WHERE mesh_id = $1 AND lease_ms < $2";

/// Keeps the newest lease time, so that it goes on from there after a restart.
pub(super) async fn remember_lease_time(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    now: LeaseMs,
) -> Result<(), JobError> {
    execute(transaction, REMEMBER, &[&mesh_key(mesh), &integer(now.0)]).await?;
    Ok(())
}

async fn begin(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    member: MemberId,
    (since, until): (WallMs, LeaseMs),
) -> Result<u64, JobError> {
    let (mesh_id, member_id) = (mesh_key(mesh), member_key(member));
    let row = query_opt(transaction, NEXT_GENERATION, &[&mesh_id, &member_id]).await?;
    let row = row.ok_or(StorageError::UnknownMember(member))?;
    let generation: i64 = Columns::of(&row).plain()?;
    execute(
        transaction,
        BEGIN,
        &[
            &mesh_id,
            &member_id,
            &generation,
            &since.0,
            &integer(until.0),
        ],
    )
    .await?;
    Columns::of(&row).number()
}

async fn expire(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    now: LeaseMs,
    at: WallMs,
) -> Result<usize, JobError> {
    let key = mesh_key(mesh);
    let over = query(transaction, EXPIRE, &[&key, &integer(now.0)]).await?;
    if over.is_empty() {
        return Ok(0);
    }
    let mut members = Vec::with_capacity(over.len());
    for row in &over {
        members.push(member_key(Columns::of(row).member()?));
    }
    execute(transaction, SEEN, &[&key, &members, &at.0]).await?;
    Ok(over.len())
}

impl PostgresStorage {
    /// What lease time is by now, for whoever looks and serves nobody: where every broker has died it goes on. No lease ends by it.
    pub async fn lease_now(&self, mesh: MeshId) -> Result<LeaseMs, StorageError> {
        let client = self.reader().await?;
        let row = query_opt(&client, LEASE_NOW, &[&mesh_key(mesh)]).await?;
        let row = row.ok_or(StorageError::UnknownMesh(mesh))?;
        Ok(LeaseMs(Columns::of(&row).number()?))
    }
}

impl Presence for PostgresStorage {
    async fn begin_session(
        &self,
        mesh: MeshId,
        member: MemberId,
        since: WallMs,
        until: LeaseMs,
    ) -> Result<u64, StorageError> {
        let input = (mesh, member, since, until);
        self.write(mesh, input, |tx, (mesh, member, since, until)| {
            Box::pin(begin(tx, *mesh, *member, (*since, *until)))
        })
        .await
    }

    async fn renew_session(
        &self,
        mesh: MeshId,
        member: MemberId,
        generation: u64,
        until: LeaseMs,
    ) -> Result<bool, StorageError> {
        let input = (mesh, member, integer(generation), integer(until.0));
        self.write(mesh, input, |tx, (mesh, member, generation, until)| {
            Box::pin(async move {
                let (mesh, member) = (mesh_key(*mesh), member_key(*member));
                change(tx, RENEW, &[&mesh, &member, generation, until]).await
            })
        })
        .await
    }

    async fn end_session(
        &self,
        mesh: MeshId,
        member: MemberId,
        generation: u64,
        at: WallMs,
    ) -> Result<bool, StorageError> {
        let input = (mesh, member, integer(generation), at.0);
        self.write(mesh, input, |tx, (mesh, member, generation, at)| {
            Box::pin(async move {
                let (mesh, member) = (mesh_key(*mesh), member_key(*member));
                let ended = execute(tx, END, &[&mesh, &member, generation, at]).await?;
                Ok(count(ended) > 0)
            })
        })
        .await
    }

    async fn expire_sessions(
        &self,
        mesh: MeshId,
        now: LeaseMs,
        at: WallMs,
    ) -> Result<usize, StorageError> {
        self.write(mesh, (mesh, now, at), |tx, (mesh, now, at)| {
            Box::pin(expire(tx, *mesh, *now, *at))
        })
        .await
    }

    async fn presence(&self, mesh: MeshId, now: LeaseMs) -> Result<Vec<Present>, StorageError> {
        let client = self.reader().await?;
        let found = query(&client, PRESENCE, &[&mesh_key(mesh), &integer(now.0)]).await?;
        if found.is_empty() {
            require_mesh(&client, mesh).await?;
        }
        let read = |row| {
            let mut columns = Columns::of(row);
            let member = columns.member()?;
            let seen_at = columns.maybe_wall()?;
            let since = columns.maybe_wall()?;
            Ok::<_, JobError>(Present {
                member,
                is_online: since.is_some(),
                since: since.or(seen_at),
            })
        };
        let present: Result<_, JobError> = found.iter().map(read).collect();
        Ok(present?)
    }

    async fn lease_time(&self, mesh: MeshId) -> Result<LeaseMs, StorageError> {
        let client = self.reader().await?;
        let row = query_opt(&client, LEASE_TIME, &[&mesh_key(mesh)]).await?;
        let row = row.ok_or(StorageError::UnknownMesh(mesh))?;
        Ok(LeaseMs(Columns::of(&row).number()?))
    }

    async fn pass_lease_time(&self, mesh: MeshId, now: LeaseMs) -> Result<LeaseMs, StorageError> {
        self.write(mesh, (mesh, now), |tx, (mesh, now)| {
            Box::pin(async move {
                remember_lease_time(tx, *mesh, *now).await?;
                let row = query_opt(tx, LEASE_TIME, &[&mesh_key(*mesh)]).await?;
                let row = row.ok_or(StorageError::UnknownMesh(*mesh))?;
                Ok(LeaseMs(Columns::of(&row).number()?))
            })
        })
        .await
    }
}
