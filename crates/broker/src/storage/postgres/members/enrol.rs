//! An enrolment: one transaction, and the use of its invitation by one conditional update.

use std::collections::BTreeSet;

use deadpool_postgres::Transaction;
use heddle_core::ids::MeshId;
use heddle_core::membership::{Role, free_name};
use heddle_core::names::MemberName;

use super::super::columns::{Columns, mesh_key};
use super::super::error::JobError;
use super::super::roster;
use super::super::sql::{change, query, query_opt};
use super::keys;
use crate::members::{EnrolVerdict, Enrolment};

const INVITE: &str = "
SELECT role, expires_at, used >= uses_max FROM invite
WHERE mesh_id = $1 AND invite_id = $2 AND digest = $3";

/// IMPORTANT: whether a use is left is decided here and nowhere before (T-69).
const TAKE_USE: &str = "
UPDATE invite SET used = used + 1
WHERE mesh_id = $1 AND invite_id = $2 AND digest = $3 AND used < uses_max AND expires_at > $4";

const NAMES: &str = "SELECT name FROM member WHERE mesh_id = $1";

pub(super) async fn enrol(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    enrolment: &Enrolment,
) -> Result<EnrolVerdict, JobError> {
    if let Some(verdict) = known_key(transaction, mesh, enrolment).await? {
        return Ok(verdict);
    }
    let role = match invited(transaction, mesh, enrolment).await? {
        Ok(role) => role,
        Err(verdict) => return Ok(verdict),
    };
    if let Some(verdict) = taken_name(transaction, mesh, &enrolment.name).await? {
        return Ok(verdict);
    }
    let (key, at) = (mesh_key(mesh), enrolment.at);
    let (id, digest) = (enrolment.invite.0.to_bytes(), enrolment.digest.as_slice());
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
        [&key, &id.as_slice(), &digest, &at.0];
    if !change(transaction, TAKE_USE, &params).await? {
        return Ok(EnrolVerdict::UsedUp);
    }
    let (member, name) = (enrolment.member, enrolment.name.clone());
    roster::ensure_member(transaction, mesh, member, &name).await?;
    let invite = Some(enrolment.invite);
    keys::stand(transaction, mesh, member, (role, invite), at).await?;
    keys::rotate(transaction, mesh, member, enrolment.key, at).await?;
    Ok(EnrolVerdict::Enrolled { member, name })
}

/// The role that the invitation gives, or why it gives none.
async fn invited(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    enrolment: &Enrolment,
) -> Result<Result<Role, EnrolVerdict>, JobError> {
    let (id, digest) = (enrolment.invite.0.to_bytes(), enrolment.digest.as_slice());
    let key = mesh_key(mesh);
    let found = query_opt(transaction, INVITE, &[&key, &id.as_slice(), &digest]).await?;
    let Some(row) = found else {
        return Ok(Err(EnrolVerdict::UnknownInvite));
    };
    let mut columns = Columns::of(&row);
    let (role, expires_at, is_used_up) = (columns.role()?, columns.wall()?, columns.flag()?);
    Ok(if expires_at <= enrolment.at {
        Err(EnrolVerdict::Expired { at: expires_at })
    } else if is_used_up {
        Err(EnrolVerdict::UsedUp)
    } else {
        Ok(role)
    })
}

/// The same key again: the first answer, or none any more.
async fn known_key(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    enrolment: &Enrolment,
) -> Result<Option<EnrolVerdict>, JobError> {
    let Some((member, is_current)) = keys::holder(transaction, mesh, enrolment.key).await? else {
        return Ok(None);
    };
    let standing = keys::standing(transaction, mesh, member).await?;
    Ok(Some(match standing {
        Some(standing) if is_current && standing.revoked_at.is_none() => EnrolVerdict::Duplicate {
            member,
            name: standing.name,
        },
        _ => EnrolVerdict::Revoked,
    }))
}

/// Names are compared as people read them: `Bob` is `bob`.
async fn taken_name(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    name: &MemberName,
) -> Result<Option<EnrolVerdict>, JobError> {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for row in query(transaction, NAMES, &[&mesh_key(mesh)]).await? {
        taken.insert(Columns::of(&row).text()?.to_lowercase());
    }
    let is_taken = |name: &MemberName| taken.contains(&name.as_str().to_lowercase());
    Ok(is_taken(name).then(|| EnrolVerdict::NameTaken {
        suggestion: free_name(name, is_taken),
    }))
}
