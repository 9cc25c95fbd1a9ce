//! Standings and the keys behind them.

use heddle_core::clock::WallMs;
use heddle_core::ids::{InviteId, MemberId, MeshId};
use heddle_core::membership::{PublicKey, Role};
use heddle_core::names::MemberName;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::columns::{Columns, member_key, mesh_key};
use super::super::error::JobError;
use super::super::roster;
use crate::members::Standing;

const ANY: &str = "SELECT 1 FROM member_key WHERE mesh_id = ?1 LIMIT 1";

const STANDING: &str = "
SELECT s.member_id, m.name, s.role, k.public_key, s.enrolled_at, s.revoked_at,
    s.blocked_at, s.invite_id IS NULL
FROM member_standing s
JOIN member m ON m.mesh_id = s.mesh_id AND m.member_id = s.member_id
JOIN member_key k ON k.mesh_id = s.mesh_id AND k.member_id = s.member_id AND k.retired_at IS NULL
WHERE s.mesh_id = ?1 AND s.member_id = ?2";

const STANDINGS: &str = "
SELECT s.member_id, m.name, s.role, k.public_key, s.enrolled_at, s.revoked_at,
    s.blocked_at, s.invite_id IS NULL
FROM member_standing s
JOIN member m ON m.mesh_id = s.mesh_id AND m.member_id = s.member_id
JOIN member_key k ON k.mesh_id = s.mesh_id AND k.member_id = s.member_id AND k.retired_at IS NULL
WHERE s.mesh_id = ?1 ORDER BY s.member_id";

const HOLDER: &str = "
SELECT member_id, retired_at FROM member_key WHERE mesh_id = ?1 AND public_key = ?2";

const RETIRE: &str = "
UPDATE member_key SET retired_at = ?3
WHERE mesh_id = ?1 AND member_id = ?2 AND retired_at IS NULL";

const ADD: &str = "
INSERT INTO member_key (mesh_id, public_key, member_id, added_at) VALUES (?1, ?2, ?3, ?4)";

const REVIVE: &str = "
UPDATE member_key SET retired_at = NULL WHERE mesh_id = ?1 AND public_key = ?2";

const STAND: &str = "
INSERT INTO member_standing (mesh_id, member_id, role, enrolled_at, invite_id)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (mesh_id, member_id) DO UPDATE SET role = excluded.role,
    enrolled_at = excluded.enrolled_at, invite_id = excluded.invite_id, revoked_at = NULL,
    blocked_at = NULL";

pub(super) fn any(connection: &Connection, mesh: MeshId) -> rusqlite::Result<bool> {
    connection.prepare_cached(ANY)?.exists([mesh_key(mesh)])
}

pub(super) fn standing(
    connection: &Connection,
    mesh: MeshId,
    member: MemberId,
) -> rusqlite::Result<Option<Standing>> {
    connection
        .prepare_cached(STANDING)?
        .query_row(params![mesh_key(mesh), member_key(member)], read)
        .optional()
}

pub(super) fn standings(connection: &Connection, mesh: MeshId) -> rusqlite::Result<Vec<Standing>> {
    connection
        .prepare_cached(STANDINGS)?
        .query_map([mesh_key(mesh)], read)?
        .collect()
}

fn read(row: &Row<'_>) -> rusqlite::Result<Standing> {
    let mut columns = Columns::of(row);
    Ok(Standing {
        member: columns.member()?,
        name: columns.member_name()?,
        role: columns.role()?,
        key: columns.public_key()?,
        enrolled_at: columns.wall()?,
        revoked_at: columns.maybe_wall()?,
        blocked_at: columns.maybe_wall()?,
        is_founder: columns.flag()?,
    })
}

/// Whose key this is or was, and whether it still is.
pub(super) fn holder(
    connection: &Connection,
    mesh: MeshId,
    key: PublicKey,
) -> rusqlite::Result<Option<(MemberId, bool)>> {
    connection
        .prepare_cached(HOLDER)?
        .query_row(params![mesh_key(mesh), key.to_bytes()], |row| {
            let mut columns = Columns::of(row);
            Ok((columns.member()?, columns.maybe_wall()?.is_none()))
        })
        .optional()
}

/// The member's key from now on. False if the key is, or was, somebody's.
pub(super) fn rotate(
    connection: &Connection,
    mesh: MeshId,
    member: MemberId,
    key: PublicKey,
    at: WallMs,
) -> rusqlite::Result<bool> {
    if holder(connection, mesh, key)?.is_some() {
        return Ok(false);
    }
    let (mesh, member) = (mesh_key(mesh), member_key(member));
    connection
        .prepare_cached(RETIRE)?
        .execute(params![mesh, member, at.0])?;
    let added = params![mesh, key.to_bytes(), member, at.0];
    connection.prepare_cached(ADD)?.execute(added)?;
    Ok(true)
}

/// A key that the member had before is its key again. False if it is not such a key.
fn revive(
    connection: &Connection,
    mesh: MeshId,
    member: MemberId,
    key: PublicKey,
    at: WallMs,
) -> rusqlite::Result<bool> {
    if holder(connection, mesh, key)? != Some((member, false)) {
        return Ok(false);
    }
    let mesh = mesh_key(mesh);
    connection
        .prepare_cached(RETIRE)?
        .execute(params![mesh, member_key(member), at.0])?;
    connection
        .prepare_cached(REVIVE)?
        .execute(params![mesh, key.to_bytes()])?;
    Ok(true)
}

pub(super) fn stand(
    connection: &Connection,
    mesh: MeshId,
    member: MemberId,
    (role, invite): (Role, Option<InviteId>),
    at: WallMs,
) -> rusqlite::Result<()> {
    let invite = invite.map(|invite| invite.0.to_bytes());
    connection.prepare_cached(STAND)?.execute(params![
        mesh_key(mesh),
        member_key(member),
        role.as_str(),
        at.0,
        invite,
    ])?;
    Ok(())
}

pub(super) fn enrol_owner(
    connection: &Connection,
    mesh: MeshId,
    (member, name): (MemberId, &MemberName),
    key: PublicKey,
    at: WallMs,
) -> Result<bool, JobError> {
    let is_renamed = roster::ensure_member(connection, mesh, member, name)?;
    let is_owner = standing(connection, mesh, member)?.is_some_and(|standing| standing.is_owner());
    if !is_owner {
        stand(connection, mesh, member, (Role::Owner, None), at)?;
    }
    let is_other_key =
        rotate(connection, mesh, member, key, at)? || revive(connection, mesh, member, key, at)?;
    Ok(is_renamed || !is_owner || is_other_key)
}
