//! Standings, keys and invitations in SQLite.

mod change;
mod enrol;
mod keys;
mod revoke;

use heddle_core::clock::WallMs;
use heddle_core::ids::{BrokerId, InviteId, MemberId, MeshId};
use heddle_core::membership::{Change, ChangeVerdict, PublicKey};
use heddle_core::names::MemberName;
use rusqlite::{OptionalExtension as _, params};

use super::super::error::StorageError;
use super::SqliteStorage;
use super::columns::{Columns, member_key, mesh_key};
use super::error::JobError;
use crate::members::{
    Credentials, EnrolVerdict, Enrolment, Members, NewInvite, RevokeVerdict, Standing,
};

const OFFER_BROKER: &str =
    "INSERT INTO broker (one, broker_id) VALUES (1, ?1) ON CONFLICT DO NOTHING";

const BROKER: &str = "SELECT broker_id FROM broker WHERE one = 1";

const NEW_INVITE: &str = "
INSERT INTO invite (mesh_id, invite_id, digest, inviter, role, uses_max, created_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING";

const INVITE: &str = "
SELECT digest, inviter, role, uses_max, created_at, expires_at FROM invite
WHERE mesh_id = ?1 AND invite_id = ?2";

const ANY_INVITE: &str = "SELECT 1 FROM invite WHERE mesh_id = ?1 LIMIT 1";

impl Members for SqliteStorage {
    async fn broker_id(&self, fresh: BrokerId) -> Result<BrokerId, StorageError> {
        let written = self.database.write(move |connection| {
            connection.execute(OFFER_BROKER, [fresh.0.to_bytes()])?;
            let id = connection.query_row(BROKER, [], |row| Columns::of(row).broker())?;
            Ok::<_, JobError>(id)
        });
        Ok(written.await?)
    }

    async fn enrol_owner(
        &self,
        mesh: MeshId,
        member: MemberId,
        name: &MemberName,
        key: PublicKey,
        at: WallMs,
    ) -> Result<bool, StorageError> {
        let name = name.clone();
        self.write(mesh, move |c| {
            keys::enrol_owner(c, mesh, (member, &name), key, at)
        })
        .await
    }

    async fn rotate_key(
        &self,
        mesh: MeshId,
        member: MemberId,
        key: PublicKey,
        at: WallMs,
    ) -> Result<bool, StorageError> {
        self.write(mesh, move |c| match keys::standing(c, mesh, member)? {
            None => Err(StorageError::UnknownMember(member).into()),
            Some(standing) if standing.revoked_at.is_some() => Ok(false),
            Some(_) => Ok(keys::rotate(c, mesh, member, key, at)?),
        })
        .await
    }

    async fn credentials(
        &self,
        mesh: MeshId,
        member: MemberId,
    ) -> Result<Credentials, StorageError> {
        self.read(mesh, move |c| {
            Ok(Credentials {
                mesh_has_keys: keys::any(c, mesh)?,
                standing: keys::standing(c, mesh, member)?,
            })
        })
        .await
    }

    async fn standings(&self, mesh: MeshId) -> Result<Vec<Standing>, StorageError> {
        self.read(mesh, move |c| Ok(keys::standings(c, mesh)?))
            .await
    }

    async fn create_invite(&self, mesh: MeshId, invite: NewInvite) -> Result<bool, StorageError> {
        self.write(mesh, move |connection| {
            let written = connection.prepare_cached(NEW_INVITE)?.execute(params![
                mesh_key(mesh),
                invite.invite.0.to_bytes(),
                invite.digest,
                member_key(invite.inviter),
                invite.role.as_str(),
                invite.uses_max,
                invite.created_at.0,
                invite.expires_at.0,
            ])?;
            Ok(written > 0)
        })
        .await
    }

    async fn invite(
        &self,
        mesh: MeshId,
        invite: InviteId,
    ) -> Result<Option<NewInvite>, StorageError> {
        self.read(mesh, move |connection| {
            let key = params![mesh_key(mesh), invite.0.to_bytes()];
            let found = connection.prepare_cached(INVITE)?.query_row(key, |row| {
                let mut columns = Columns::of(row);
                Ok(NewInvite {
                    invite,
                    digest: columns.fingerprint()?.0,
                    inviter: columns.member()?,
                    role: columns.role()?,
                    uses_max: u32::try_from(columns.number()?).unwrap_or(u32::MAX),
                    created_at: columns.wall()?,
                    expires_at: columns.wall()?,
                })
            });
            Ok(found.optional()?)
        })
        .await
    }

    async fn has_invites(&self, mesh: MeshId) -> Result<bool, StorageError> {
        self.read(mesh, move |c| {
            Ok(c.prepare_cached(ANY_INVITE)?.exists([mesh_key(mesh)])?)
        })
        .await
    }

    async fn enrol(
        &self,
        mesh: MeshId,
        enrolment: Enrolment,
    ) -> Result<EnrolVerdict, StorageError> {
        self.write(mesh, move |c| enrol::enrol(c, mesh, &enrolment))
            .await
    }

    async fn revoke(
        &self,
        mesh: MeshId,
        by: MemberId,
        member: MemberId,
        at: WallMs,
    ) -> Result<RevokeVerdict, StorageError> {
        self.write(mesh, move |c| revoke::revoke(c, mesh, by, member, at))
            .await
    }

    async fn change_standing(
        &self,
        mesh: MeshId,
        by: MemberId,
        member: MemberId,
        change: Change,
        at: WallMs,
    ) -> Result<ChangeVerdict, StorageError> {
        self.write(mesh, move |c| {
            change::change(c, mesh, (by, member), change, at)
        })
        .await
    }
}
