//! Looking ids up: B0's read, and the same look inside the accept transaction.

use deadpool_postgres::{GenericClient, Transaction};
use heddle_core::ids::MeshId;
use tokio_postgres::types::ToSql;

use super::super::error::StorageError;
use super::super::rows::{Consumed, Look, SendId};
use super::columns::{Columns, member_key, mesh_key};
use super::error::JobError;
use super::record::{Cell, Record};
use super::roster::require_mesh;
use super::sql::{query, query_opt};

/// For each id in its place: the row that holds it, if there is one, and whether its sender is registered.
/// The text beside the digest decides. No row at all where there is no mesh. By LATERAL, as in `accept/facts`.
pub(super) const KNOWN: &str = "
SELECT d.wire_fingerprint, d.broker_message_id, d.epoch, d.seq, d.history_available, d.first_seen_at,
    a.agent IS NOT NULL
FROM unnest($2::sent_id[]) WITH ORDINALITY AS k (id_key, member, agent, client_id, place)
LEFT JOIN LATERAL (SELECT c.* FROM client_message_dedupe c WHERE c.mesh_id = $1 AND c.id_key = k.id_key
    AND c.sender_member = k.member AND c.sender_agent = k.agent AND c.client_message_id = k.client_id
    OFFSET 0) AS d ON TRUE
LEFT JOIN LATERAL (SELECT o.agent FROM agent o
    WHERE o.mesh_id = $1 AND o.member_id = k.member AND o.agent = k.agent OFFSET 0) AS a ON TRUE
WHERE EXISTS (SELECT 1 FROM mesh m WHERE m.mesh_id = $1) ORDER BY k.place";

const STATUS: &str = "
SELECT wire_fingerprint, broker_message_id, epoch, seq, history_available, first_seen_at
FROM client_message_dedupe
WHERE mesh_id = $1 AND id_key = $2
  AND sender_member = $3 AND sender_agent = $4 AND client_message_id = $5";

/// Ids, column by column.
pub(super) struct IdArrays<'i> {
    keys: Vec<&'i [u8]>,
    members: Vec<Vec<u8>>,
    agents: Vec<&'i str>,
    ids: Vec<&'i str>,
}

impl<'i> IdArrays<'i> {
    pub(super) fn of(ids: impl Iterator<Item = &'i SendId>) -> Self {
        let mut arrays = Self {
            keys: Vec::new(),
            members: Vec::new(),
            agents: Vec::new(),
            ids: Vec::new(),
        };
        for id in ids {
            arrays.keys.push(&id.key.0);
            arrays.members.push(member_key(id.sender.member));
            arrays.agents.push(id.sender.agent.as_str());
            arrays.ids.push(id.client_message_id.as_str());
        }
        arrays
    }

    /// Behind the mesh.
    pub(super) fn params<'p>(&'p self, mesh: &'p Vec<u8>) -> [&'p (dyn ToSql + Sync); 5] {
        [mesh, &self.keys, &self.members, &self.agents, &self.ids]
    }
}

/// The first six columns of [`KNOWN`], all there or all missing.
pub(super) fn consumed_of(columns: &mut Columns<'_>) -> Result<Option<Consumed>, JobError> {
    if columns.is_missing()? {
        columns.pass(6);
        return Ok(None);
    }
    Ok(Some(Consumed {
        wire_fingerprint: columns.fingerprint()?,
        broker_message_id: columns.broker_message_id()?,
        history_id: columns.history_id()?,
        history_available: columns.flag()?,
        first_seen_at: columns.wall()?,
    }))
}

/// As [`KNOWN`] is asked.
fn record(id: &SendId) -> Record<'_, 4> {
    Record([
        Cell::Bytes(&id.key.0),
        Cell::Id(id.sender.member.0),
        Cell::text(id.sender.agent.as_str()),
        Cell::text(id.client_message_id.as_str()),
    ])
}

pub(super) async fn known<C: GenericClient>(
    client: &C,
    mesh: MeshId,
    ids: &[&SendId],
) -> Result<Vec<Look>, JobError> {
    let key = mesh_key(mesh);
    if ids.is_empty() {
        require_mesh(client, mesh).await?;
        return Ok(Vec::new());
    }
    let records: Vec<Record<'_, 4>> = ids.iter().map(|id| record(id)).collect();
    let rows = query(client, KNOWN, &[&key, &records]).await?;
    if rows.is_empty() {
        return Err(StorageError::UnknownMesh(mesh).into());
    }
    rows.iter()
        .map(|row| {
            let mut columns = Columns::of(row);
            Ok(Look {
                consumed: consumed_of(&mut columns)?,
                sender_registered: columns.flag()?,
            })
        })
        .collect()
}

pub(super) async fn status(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    id: &SendId,
) -> Result<Option<Consumed>, JobError> {
    let params: [&(dyn ToSql + Sync); 5] = [
        &mesh_key(mesh),
        &id.key.0.as_slice(),
        &member_key(id.sender.member),
        &id.sender.agent.as_str(),
        &id.client_message_id.as_str(),
    ];
    match query_opt(transaction, STATUS, &params).await? {
        None => Ok(None),
        Some(row) => consumed_of(&mut Columns::of(&row)),
    }
}
