//! Standings, keys and invitations on PostgreSQL.

mod change;
mod enrol;
mod keys;
mod revoke;

use heddle_core::clock::WallMs;
use heddle_core::ids::{BrokerId, InviteId, MemberId, MeshId};
use heddle_core::membership::{Change, ChangeVerdict, PublicKey};
use heddle_core::names::MemberName;

use super::super::error::StorageError;
use super::PostgresStorage;
use super::columns::{Columns, member_key, mesh_key};
use super::error::JobError;
use super::roster::require_mesh;
use super::sql::{change, execute, exists, query_opt};
use crate::members::{
    Credentials, EnrolVerdict, Enrolment, Members, NewInvite, RevokeVerdict, Standing,
};

const OFFER_BROKER: &str =
    "INSERT INTO broker (one, broker_id) VALUES (1, $1) ON CONFLICT DO NOTHING";

const BROKER: &str = "SELECT broker_id FROM broker WHERE one = 1";

const NEW_INVITE: &str = "
INSERT INTO invite (mesh_id, invite_id, digest, inviter, role, uses_max, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING";

const INVITE: &str = "
SELECT digest, inviter, role, uses_max, created_at, expires_at FROM invite
WHERE mesh_id = $1 AND invite_id = $2";

const ANY_INVITE: &str = "SELECT 1 FROM invite WHERE mesh_id = $1 LIMIT 1";

impl Members for PostgresStorage {
    async fn broker_id(&self, fresh: BrokerId) -> Result<BrokerId, StorageError> {
        let client = self.writer().await?;
        // Two statements: the second sees what another broker has offered before.
        execute(&client, OFFER_BROKER, &[&fresh.0.to_bytes().as_slice()]).await?;
        let row = query_opt(&client, BROKER, &[]).await?;
        let row = row.ok_or_else(|| JobError::BadRow("there is no broker id".to_owned()))?;
        Ok(Columns::of(&row).broker()?)
    }

    async fn enrol_owner(
        &self,
        mesh: MeshId,
        member: MemberId,
        name: &MemberName,
        key: PublicKey,
        at: WallMs,
    ) -> Result<bool, StorageError> {
        let input = (mesh, member, name.clone(), key, at);
        self.write(mesh, input, |tx, (mesh, member, name, key, at)| {
            Box::pin(keys::enrol_owner(tx, *mesh, (*member, name), *key, *at))
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
        let input = (mesh, member, key, at);
        self.write(mesh, input, |tx, (mesh, member, key, at)| {
            Box::pin(async move {
                match keys::standing(tx, *mesh, *member).await? {
                    None => Err(StorageError::UnknownMember(*member).into()),
                    Some(standing) if standing.revoked_at.is_some() => Ok(false),
                    Some(_) => keys::rotate(tx, *mesh, *member, *key, *at).await,
                }
            })
        })
        .await
    }

    async fn credentials(
        &self,
        mesh: MeshId,
        member: MemberId,
    ) -> Result<Credentials, StorageError> {
        self.snapshot((mesh, member), |tx, (mesh, member)| {
            Box::pin(async move {
                require_mesh(tx, *mesh).await?;
                Ok(Credentials {
                    mesh_has_keys: keys::any(tx, *mesh).await?,
                    standing: keys::standing(tx, *mesh, *member).await?,
                })
            })
        })
        .await
    }

    async fn standings(&self, mesh: MeshId) -> Result<Vec<Standing>, StorageError> {
        let client = self.reader().await?;
        let standings = keys::standings(&client, mesh).await?;
        if standings.is_empty() {
            require_mesh(&client, mesh).await?;
        }
        Ok(standings)
    }

    async fn create_invite(&self, mesh: MeshId, invite: NewInvite) -> Result<bool, StorageError> {
        self.write(mesh, (mesh, invite), |tx, (mesh, invite)| {
            Box::pin(async move {
                change(
                    tx,
                    NEW_INVITE,
                    &[
                        &mesh_key(*mesh),
                        &invite.invite.0.to_bytes().as_slice(),
                        &invite.digest.as_slice(),
                        &member_key(invite.inviter),
                        &invite.role.as_str(),
                        &i64::from(invite.uses_max),
                        &invite.created_at.0,
                        &invite.expires_at.0,
                    ],
                )
                .await
            })
        })
        .await
    }

    async fn invite(
        &self,
        mesh: MeshId,
        invite: InviteId,
    ) -> Result<Option<NewInvite>, StorageError> {
        let client = self.reader().await?;
        require_mesh(&client, mesh).await?;
        let id = invite.0.to_bytes();
        let found = query_opt(&client, INVITE, &[&mesh_key(mesh), &id.as_slice()]).await?;
        let Some(row) = found else {
            return Ok(None);
        };
        let mut columns = Columns::of(&row);
        Ok(Some(NewInvite {
            invite,
            digest: columns.fingerprint()?.0,
            inviter: columns.member()?,
            role: columns.role()?,
            uses_max: u32::try_from(columns.number()?).unwrap_or(u32::MAX),
            created_at: columns.wall()?,
            expires_at: columns.wall()?,
        }))
    }

    async fn has_invites(&self, mesh: MeshId) -> Result<bool, StorageError> {
        let client = self.reader().await?;
        require_mesh(&client, mesh).await?;
        Ok(exists(&client, ANY_INVITE, &[&mesh_key(mesh)]).await?)
    }

    async fn enrol(
        &self,
        mesh: MeshId,
        enrolment: Enrolment,
    ) -> Result<EnrolVerdict, StorageError> {
        self.write(mesh, (mesh, enrolment), |tx, (mesh, enrolment)| {
            Box::pin(enrol::enrol(tx, *mesh, enrolment))
        })
        .await
    }

    async fn revoke(
        &self,
        mesh: MeshId,
        by: MemberId,
        member: MemberId,
        at: WallMs,
    ) -> Result<RevokeVerdict, StorageError> {
        let input = (mesh, by, member, at);
        self.write(mesh, input, |tx, (mesh, by, member, at)| {
            Box::pin(revoke::revoke(tx, *mesh, *by, *member, *at))
        })
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
        let input = (mesh, by, member, change, at);
        self.write(mesh, input, |tx, (mesh, by, member, change, at)| {
            Box::pin(change::change(tx, *mesh, (*by, *member), *change, *at))
        })
        .await
    }
}
