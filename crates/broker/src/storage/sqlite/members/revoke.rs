//! Shutting a member out: its standing, mailboxes, subscriptions and sessions in one transaction.

use heddle_core::clock::WallMs;
use heddle_core::ids::{MemberId, MeshId};
use rusqlite::{Connection, params};

use super::super::columns::{member_key, mesh_key};
use super::super::error::JobError;
use super::keys;
use crate::members::RevokeVerdict;

const REVOKE: &str = "
UPDATE member_standing SET revoked_at = ?3
WHERE mesh_id = ?1 AND member_id = ?2 AND revoked_at IS NULL";

/// In the order of their references.
const CLEAR: [&str; 3] = [
    "DELETE FROM topic_subscription WHERE mesh_id = ?1 AND member_id = ?2",
    "DELETE FROM agent WHERE mesh_id = ?1 AND member_id = ?2",
    "DELETE FROM member_session WHERE mesh_id = ?1 AND member_id = ?2",
];

pub(super) const SEEN: &str = "
UPDATE member SET seen_at = max(coalesce(seen_at, ?3), ?3) WHERE mesh_id = ?1 AND member_id = ?2";

pub(super) fn revoke(
    connection: &Connection,
    mesh: MeshId,
    by: MemberId,
    member: MemberId,
    at: WallMs,
) -> Result<RevokeVerdict, JobError> {
    let by = keys::standing(connection, mesh, by)?;
    if !by.is_some_and(|by| by.is_owner()) {
        return Ok(RevokeVerdict::NotOwner);
    }
    match keys::standing(connection, mesh, member)? {
        None => return Ok(RevokeVerdict::UnknownMember),
        Some(standing) if standing.is_owner() => return Ok(RevokeVerdict::IsOwner),
        Some(standing) if standing.revoked_at.is_some() => return Ok(RevokeVerdict::Already),
        Some(_) => {}
    }
    let (mesh, member) = (mesh_key(mesh), member_key(member));
    connection
        .prepare_cached(REVOKE)?
        .execute(params![mesh, member, at.0])?;
    for sql in CLEAR {
        connection
            .prepare_cached(sql)?
            .execute(params![mesh, member])?;
    }
    connection
        .prepare_cached(SEEN)?
        .execute(params![mesh, member, at.0])?;
    Ok(RevokeVerdict::Revoked)
}
