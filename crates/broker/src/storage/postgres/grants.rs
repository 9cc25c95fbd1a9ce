//! What members let each other send them, on PostgreSQL.

use std::collections::BTreeMap;

use deadpool_postgres::Transaction;
use heddle_core::ids::{MemberId, MeshId};
use heddle_core::membership::{Capabilities, GrantChange};
use tokio_postgres::Row;

use super::super::error::StorageError;
use super::PostgresStorage;
use super::columns::{Columns, member_key, mesh_key};
use super::error::JobError;
use super::roster::require_mesh;
use super::sql::{execute, exists, query, query_opt};
use crate::members::{Granted, Grants};

const MEMBER: &str = "SELECT 1 FROM member WHERE mesh_id = $1 AND member_id = $2";

const GRANTED: &str = "
SELECT may_dm, may_topic FROM member_grant WHERE mesh_id = $1 AND peer_id = $2 AND member_id = $3";

const KEEP: &str = "
INSERT INTO member_grant (mesh_id, peer_id, member_id, may_dm, may_topic) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (mesh_id, peer_id, member_id) DO UPDATE SET may_dm = $4, may_topic = $5";

const FORGET: &str = "
DELETE FROM member_grant WHERE mesh_id = $1 AND peer_id = $2 AND member_id = $3";

/// Those who withhold something from one of these senders.
pub(super) const OF_SENDERS: &str = "
SELECT peer_id, member_id, may_dm, may_topic FROM member_grant
WHERE mesh_id = $1 AND peer_id = ANY ($2)";

const OF_RECIPIENT: &str = "
SELECT peer_id, may_dm, may_topic FROM member_grant WHERE mesh_id = $1 AND member_id = $2
ORDER BY peer_id";

/// By sender and recipient.
pub(super) type GrantMap = BTreeMap<(MemberId, MemberId), Capabilities>;

fn capabilities(columns: &mut Columns<'_>) -> Result<Capabilities, JobError> {
    Ok(Capabilities {
        dm: columns.flag()?,
        topic: columns.flag()?,
    })
}

pub(super) fn map(rows: &[Row]) -> Result<GrantMap, JobError> {
    let one = |row: &Row| {
        let mut columns = Columns::of(row);
        let key = (columns.member()?, columns.member()?);
        Ok((key, capabilities(&mut columns)?))
    };
    rows.iter().map(one).collect()
}

async fn change(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    (member, peer): (MemberId, MemberId),
    change: GrantChange,
) -> Result<Granted, JobError> {
    let mesh = mesh_key(mesh);
    for one in [member, peer] {
        if !exists(transaction, MEMBER, &[&mesh, &member_key(one)]).await? {
            return Err(StorageError::UnknownMember(one).into());
        }
    }
    let (peer, member) = (member_key(peer), member_key(member));
    let before = match query_opt(transaction, GRANTED, &[&mesh, &peer, &member]).await? {
        None => Capabilities::ALL,
        Some(row) => capabilities(&mut Columns::of(&row))?,
    };
    let after = change.apply(before);
    if after == Capabilities::ALL {
        execute(transaction, FORGET, &[&mesh, &peer, &member]).await?;
    } else if after != before {
        let Capabilities { dm, topic } = after;
        execute(transaction, KEEP, &[&mesh, &peer, &member, &dm, &topic]).await?;
    }
    Ok(Granted {
        capabilities: after,
        changed: after != before,
    })
}

impl Grants for PostgresStorage {
    async fn change_grant(
        &self,
        mesh: MeshId,
        member: MemberId,
        peer: MemberId,
        wanted: GrantChange,
    ) -> Result<Granted, StorageError> {
        let input = (mesh, member, peer, wanted);
        self.write(mesh, input, |tx, (mesh, member, peer, wanted)| {
            Box::pin(change(tx, *mesh, (*member, *peer), *wanted))
        })
        .await
    }

    async fn grants(
        &self,
        mesh: MeshId,
        member: MemberId,
    ) -> Result<Vec<(MemberId, Capabilities)>, StorageError> {
        let client = self.reader().await?;
        require_mesh(&client, mesh).await?;
        let key = [mesh_key(mesh), member_key(member)];
        let rows = query(&client, OF_RECIPIENT, &[&key[0], &key[1]]).await?;
        let one = |row: &Row| {
            let mut columns = Columns::of(row);
            Ok((columns.member()?, capabilities(&mut columns)?))
        };
        let read: Result<_, JobError> = rows.iter().map(one).collect();
        Ok(read?)
    }
}
