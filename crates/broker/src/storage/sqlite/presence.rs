//! Sessions in SQL: leases of members, each under its generation.

use heddle_core::clock::WallMs;
use heddle_core::ids::{MemberId, MeshId};
use rusqlite::{Connection, OptionalExtension, params};

use super::super::error::StorageError;
use super::super::presence::{LeaseMs, Presence, Present};
use super::SqliteStorage;
use super::columns::{Columns, integer, member_key, mesh_key};
use super::error::JobError;

const NEXT_GENERATION: &str = "
UPDATE member SET generation = generation + 1 WHERE mesh_id = ?1 AND member_id = ?2
RETURNING generation";

const BEGIN: &str = "
INSERT INTO member_session (mesh_id, member_id, generation, since, leased_until)
VALUES (?1, ?2, ?3, ?4, ?5)";

const RENEW: &str = "
UPDATE member_session SET leased_until = max(leased_until, ?4)
WHERE mesh_id = ?1 AND member_id = ?2 AND generation = ?3";

const END: &str = "
DELETE FROM member_session WHERE mesh_id = ?1 AND member_id = ?2 AND generation = ?3";

const SEEN: &str = "
UPDATE member SET seen_at = max(coalesce(seen_at, ?3), ?3) WHERE mesh_id = ?1 AND member_id = ?2";

const OVER: &str = "
SELECT member_id, generation FROM member_session WHERE mesh_id = ?1 AND leased_until <= ?2";

const PRESENCE: &str = "
SELECT m.member_id, m.seen_at, (SELECT min(s.since) FROM member_session s
    WHERE s.mesh_id = m.mesh_id AND s.member_id = m.member_id AND s.leased_until > ?2)
FROM member m WHERE m.mesh_id = ?1 ORDER BY m.member_id";

const LEASE_TIME: &str = "SELECT lease_ms FROM mesh WHERE mesh_id = ?1";

const REMEMBER: &str = "UPDATE mesh SET lease_ms = ?2 WHERE mesh_id = ?1 AND lease_ms < ?2";

/// Keeps the newest lease time, so that it goes on from there after a restart.
pub(super) fn remember_lease_time(
    connection: &Connection,
    mesh: MeshId,
    now: LeaseMs,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(REMEMBER)?;
    statement.execute(params![mesh_key(mesh), integer(now.0)])?;
    Ok(())
}

fn begin(
    connection: &Connection,
    mesh: MeshId,
    member: MemberId,
    (since, until): (WallMs, LeaseMs),
) -> Result<u64, JobError> {
    let generation: u64 = connection
        .prepare_cached(NEXT_GENERATION)?
        .query_row(params![mesh_key(mesh), member_key(member)], |row| {
            Columns::of(row).number()
        })
        .optional()?
        .ok_or(StorageError::UnknownMember(member))?;
    connection.prepare_cached(BEGIN)?.execute(params![
        mesh_key(mesh),
        member_key(member),
        integer(generation),
        since.0,
        integer(until.0),
    ])?;
    Ok(generation)
}

fn end(
    connection: &Connection,
    mesh: MeshId,
    member: MemberId,
    generation: u64,
    at: WallMs,
) -> rusqlite::Result<bool> {
    let (mesh, member) = (mesh_key(mesh), member_key(member));
    let ended =
        connection
            .prepare_cached(END)?
            .execute(params![mesh, member, integer(generation)])?;
    if ended > 0 {
        let mut statement = connection.prepare_cached(SEEN)?;
        statement.execute(params![mesh, member, at.0])?;
    }
    Ok(ended > 0)
}

fn expire(
    connection: &Connection,
    mesh: MeshId,
    now: LeaseMs,
    at: WallMs,
) -> Result<usize, JobError> {
    let over = connection
        .prepare_cached(OVER)?
        .query_map(params![mesh_key(mesh), integer(now.0)], |row| {
            let mut columns = Columns::of(row);
            Ok((columns.member()?, columns.number()?))
        })?
        .collect::<rusqlite::Result<Vec<(MemberId, u64)>>>()?;
    for (member, generation) in &over {
        end(connection, mesh, *member, *generation, at)?;
    }
    Ok(over.len())
}

fn presence(connection: &Connection, mesh: MeshId, now: LeaseMs) -> Result<Vec<Present>, JobError> {
    let present = connection
        .prepare_cached(PRESENCE)?
        .query_map(params![mesh_key(mesh), integer(now.0)], |row| {
            let mut columns = Columns::of(row);
            let member = columns.member()?;
            let seen_at = columns.maybe_wall()?;
            let since = columns.maybe_wall()?;
            Ok(Present {
                member,
                is_online: since.is_some(),
                since: since.or(seen_at),
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(present)
}

impl Presence for SqliteStorage {
    async fn begin_session(
        &self,
        mesh: MeshId,
        member: MemberId,
        since: WallMs,
        until: LeaseMs,
    ) -> Result<u64, StorageError> {
        self.write(mesh, move |c| begin(c, mesh, member, (since, until)))
            .await
    }

    async fn renew_session(
        &self,
        mesh: MeshId,
        member: MemberId,
        generation: u64,
        until: LeaseMs,
    ) -> Result<bool, StorageError> {
        let renewed = self.database.write_relaxed(move |connection| {
            super::roster::require_mesh(connection, mesh)?;
            let renewed = connection.prepare_cached(RENEW)?.execute(params![
                mesh_key(mesh),
                member_key(member),
                integer(generation),
                integer(until.0),
            ])?;
            Ok::<_, JobError>(renewed > 0)
        });
        Ok(renewed.await?)
    }

    async fn end_session(
        &self,
        mesh: MeshId,
        member: MemberId,
        generation: u64,
        at: WallMs,
    ) -> Result<bool, StorageError> {
        self.write(mesh, move |c| Ok(end(c, mesh, member, generation, at)?))
            .await
    }

    async fn expire_sessions(
        &self,
        mesh: MeshId,
        now: LeaseMs,
        at: WallMs,
    ) -> Result<usize, StorageError> {
        self.write(mesh, move |c| expire(c, mesh, now, at)).await
    }

    async fn presence(&self, mesh: MeshId, now: LeaseMs) -> Result<Vec<Present>, StorageError> {
        self.read(mesh, move |c| presence(c, mesh, now)).await
    }

    async fn lease_time(&self, mesh: MeshId) -> Result<LeaseMs, StorageError> {
        self.read(mesh, move |c| {
            let mut statement = c.prepare_cached(LEASE_TIME)?;
            let ms = statement.query_row([mesh_key(mesh)], |row| Columns::of(row).number())?;
            Ok(LeaseMs(ms))
        })
        .await
    }

    async fn pass_lease_time(&self, mesh: MeshId, now: LeaseMs) -> Result<LeaseMs, StorageError> {
        let passed = self.database.write_relaxed(move |connection| {
            super::roster::require_mesh(connection, mesh)?;
            remember_lease_time(connection, mesh, now)?;
            let mut statement = connection.prepare_cached(LEASE_TIME)?;
            let ms = statement.query_row([mesh_key(mesh)], |row| Columns::of(row).number())?;
            Ok::<_, JobError>(LeaseMs(ms))
        });
        Ok(passed.await?)
    }
}
