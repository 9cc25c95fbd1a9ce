//! Standings and the keys behind them.

use deadpool_postgres::{GenericClient, Transaction};
use heddle_core::clock::WallMs;
use heddle_core::ids::{InviteId, MemberId, MeshId};
use heddle_core::membership::{PublicKey, Role};
use heddle_core::names::MemberName;
use tokio_postgres::Row;

use super::super::columns::{Columns, member_key, mesh_key};
use super::super::error::JobError;
use super::super::roster;
use super::super::sql::{execute, exists, query, query_opt};
use crate::members::Standing;

const ANY: &str = "SELECT 1 FROM member_key WHERE mesh_id = $1 LIMIT 1";

const STANDING: &str = "
SELECT s.member_id, m.name, s.role, k.public_key, s.enrolled_at, s.revoked_at,
    s.blocked_at, s.invite_id IS NULL
FROM member_standing s
JOIN member m ON m.mesh_id = s.mesh_id AND m.member_id = s.member_id
JOIN member_key k ON k.mesh_id = s.mesh_id AND k.member_id = s.member_id AND k.retired_at IS NULL
WHERE s.mesh_id = $1 AND s.member_id = $2";

const STANDINGS: &str = "
SELECT s.member_id, m.name, s.role, k.public_key, s.enrolled_at, s.revoked_at,
    s.blocked_at, s.invite_id IS NULL
FROM member_standing s
JOIN member m ON m.mesh_id = s.mesh_id AND m.member_id = s.member_id
JOIN member_key k ON k.mesh_id = s.mesh_id AND k.member_id = s.member_id AND k.retired_at IS NULL
WHERE s.mesh_id = $1 ORDER BY s.member_id";

const HOLDER: &str = "
SELECT member_id, retired_at FROM member_key WHERE mesh_id = $1 AND public_key = $2";

const RETIRE: &str = "
UPDATE member_key SET retired_at = $3
WHERE mesh_id = $1 AND member_id = $2 AND retired_at IS NULL";

const ADD: &str = "
INSERT INTO member_key (mesh_id, public_key, member_id, added_at) VALUES ($1, $2, $3, $4)";

const REVIVE: &str = "
UPDATE member_key SET retired_at = NULL WHERE mesh_id = $1 AND public_key = $2";

const STAND: &str = "
INSERT INTO member_standing (mesh_id, member_id, role, enrolled_at, invite_id)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (mesh_id, member_id) DO UPDATE SET role = excluded.role,
    enrolled_at = excluded.enrolled_at, invite_id = excluded.invite_id, revoked_at = NULL,
    blocked_at = NULL";

pub(super) async fn any<C: GenericClient>(client: &C, mesh: MeshId) -> Result<bool, JobError> {
    exists(client, ANY, &[&mesh_key(mesh)]).await
}

pub(super) async fn standing<C: GenericClient>(
    client: &C,
    mesh: MeshId,
    member: MemberId,
) -> Result<Option<Standing>, JobError> {
    let (mesh, member) = (mesh_key(mesh), member_key(member));
    let found = query_opt(client, STANDING, &[&mesh, &member]).await?;
    found.as_ref().map(read).transpose()
}

pub(super) async fn standings<C: GenericClient>(
    client: &C,
    mesh: MeshId,
) -> Result<Vec<Standing>, JobError> {
    let found = query(client, STANDINGS, &[&mesh_key(mesh)]).await?;
    found.iter().map(read).collect()
}

fn read(row: &Row) -> Result<Standing, JobError> {
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
pub(super) async fn holder(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    key: PublicKey,
) -> Result<Option<(MemberId, bool)>, JobError> {
    let key = key.to_bytes();
    let found = query_opt(transaction, HOLDER, &[&mesh_key(mesh), &key.as_slice()]).await?;
    let Some(row) = found else {
        return Ok(None);
    };
    let mut columns = Columns::of(&row);
    Ok(Some((columns.member()?, columns.maybe_wall()?.is_none())))
}

/// The member's key from now on. False if the key is, or was, somebody's.
pub(super) async fn rotate(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    member: MemberId,
    key: PublicKey,
    at: WallMs,
) -> Result<bool, JobError> {
    if holder(transaction, mesh, key).await?.is_some() {
        return Ok(false);
    }
    let (mesh, member) = (mesh_key(mesh), member_key(member));
    execute(transaction, RETIRE, &[&mesh, &member, &at.0]).await?;
    let key = key.to_bytes();
    execute(transaction, ADD, &[&mesh, &key.as_slice(), &member, &at.0]).await?;
    Ok(true)
}

/// A key that the member had before is its key again. False if it is not such a key.
async fn revive(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    member: MemberId,
    key: PublicKey,
    at: WallMs,
) -> Result<bool, JobError> {
    if holder(transaction, mesh, key).await? != Some((member, false)) {
        return Ok(false);
    }
    let (mesh, member) = (mesh_key(mesh), member_key(member));
    execute(transaction, RETIRE, &[&mesh, &member, &at.0]).await?;
    let key = key.to_bytes();
    execute(transaction, REVIVE, &[&mesh, &key.as_slice()]).await?;
    Ok(true)
}

pub(super) async fn stand(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    member: MemberId,
    (role, invite): (Role, Option<InviteId>),
    at: WallMs,
) -> Result<(), JobError> {
    let invite = invite.map(|invite| invite.0.to_bytes().to_vec());
    let (mesh, member) = (mesh_key(mesh), member_key(member));
    execute(
        transaction,
        STAND,
        &[&mesh, &member, &role.as_str(), &at.0, &invite],
    )
    .await?;
    Ok(())
}

pub(super) async fn enrol_owner(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    (member, name): (MemberId, &MemberName),
    key: PublicKey,
    at: WallMs,
) -> Result<bool, JobError> {
    let is_renamed = roster::ensure_member(transaction, mesh, member, name).await?;
    let is_owner = standing(transaction, mesh, member)
        .await?
        .is_some_and(|standing| standing.is_owner());
    if !is_owner {
        stand(transaction, mesh, member, (Role::Owner, None), at).await?;
    }
    let is_other_key = rotate(transaction, mesh, member, key, at).await?
        || revive(transaction, mesh, member, key, at).await?;
    Ok(is_renamed || !is_owner || is_other_key)
}
