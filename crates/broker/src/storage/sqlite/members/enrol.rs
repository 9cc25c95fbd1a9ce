//! An enrolment: one transaction, and the use of its invitation by one conditional update.

use std::collections::BTreeSet;

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use heddle_core::membership::{Role, free_name};
use heddle_core::names::MemberName;
use rusqlite::{Connection, OptionalExtension, params};

use super::super::columns::{Columns, mesh_key};
use super::super::error::JobError;
use super::super::roster;
use super::keys;
use crate::members::{EnrolVerdict, Enrolment};

const INVITE: &str = "
SELECT role, expires_at, used >= uses_max FROM invite
WHERE mesh_id = ?1 AND invite_id = ?2 AND digest = ?3";

/// IMPORTANT: whether a use is left is decided here and nowhere before (T-69).
const TAKE_USE: &str = "
UPDATE invite SET used = used + 1
WHERE mesh_id = ?1 AND invite_id = ?2 AND digest = ?3 AND used < uses_max AND expires_at > ?4";

const NAMES: &str = "SELECT name FROM member WHERE mesh_id = ?1";

pub(super) fn enrol(
    connection: &Connection,
    mesh: MeshId,
    enrolment: &Enrolment,
) -> Result<EnrolVerdict, JobError> {
    if let Some(verdict) = known_key(connection, mesh, enrolment)? {
        return Ok(verdict);
    }
    let (id, at) = (enrolment.invite.0.to_bytes(), enrolment.at);
    let found: Option<(Role, WallMs, bool)> = connection
        .prepare_cached(INVITE)?
        .query_row(params![mesh_key(mesh), id, enrolment.digest], |row| {
            let mut columns = Columns::of(row);
            Ok((columns.role()?, columns.wall()?, columns.flag()?))
        })
        .optional()?;
    let role = match found {
        None => return Ok(EnrolVerdict::UnknownInvite),
        Some((_, expires_at, _)) if expires_at <= at => {
            return Ok(EnrolVerdict::Expired { at: expires_at });
        }
        Some((_, _, true)) => return Ok(EnrolVerdict::UsedUp),
        Some((role, _, false)) => role,
    };
    if let Some(verdict) = taken_name(connection, mesh, &enrolment.name)? {
        return Ok(verdict);
    }
    let taken = connection.prepare_cached(TAKE_USE)?.execute(params![
        mesh_key(mesh),
        id,
        enrolment.digest,
        at.0
    ])?;
    if taken == 0 {
        return Ok(EnrolVerdict::UsedUp);
    }
    let (member, name) = (enrolment.member, enrolment.name.clone());
    roster::ensure_member(connection, mesh, member, &name)?;
    let invite = Some(enrolment.invite);
    keys::stand(connection, mesh, member, (role, invite), at)?;
    keys::rotate(connection, mesh, member, enrolment.key, at)?;
    Ok(EnrolVerdict::Enrolled { member, name })
}

/// The same key again: the first answer, or none any more.
fn known_key(
    connection: &Connection,
    mesh: MeshId,
    enrolment: &Enrolment,
) -> Result<Option<EnrolVerdict>, JobError> {
    let Some((member, is_current)) = keys::holder(connection, mesh, enrolment.key)? else {
        return Ok(None);
    };
    let standing = keys::standing(connection, mesh, member)?;
    Ok(Some(match standing {
        Some(standing) if is_current && standing.revoked_at.is_none() => EnrolVerdict::Duplicate {
            member,
            name: standing.name,
        },
        _ => EnrolVerdict::Revoked,
    }))
}

/// Names are compared as people read them: `Bob` is `bob`.
fn taken_name(
    connection: &Connection,
    mesh: MeshId,
    name: &MemberName,
) -> Result<Option<EnrolVerdict>, JobError> {
    let taken = connection
        .prepare_cached(NAMES)?
        .query_map([mesh_key(mesh)], |row| Columns::of(row).text())?
        .map(|name| name.map(|name| name.to_lowercase()))
        .collect::<rusqlite::Result<BTreeSet<String>>>()?;
    let is_taken = |name: &MemberName| taken.contains(&name.as_str().to_lowercase());
    Ok(is_taken(name).then(|| EnrolVerdict::NameTaken {
        suggestion: free_name(name, is_taken),
    }))
}
