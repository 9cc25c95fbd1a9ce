//! Message retention: old bodies go, and their ids say so in the same transaction (BR-13).

use deadpool_postgres::Transaction;
use heddle_core::envelope::DestinationKind;
use heddle_core::ids::{BrokerMessageId, HistoryId, IdKey, MeshId};

use super::columns::{Columns, integer, mesh_key, message_key};
use super::error::JobError;
use super::roster::require_mesh;
use super::sql::{query, query_opt};

/// Places looked at in one read, and bodies deleted in one transaction.
const STRETCH_ROWS: i64 = 500;

const NEXT: &str = "
SELECT h.epoch, h.seq, h.broker_message_id, m.accepted_at, m.sender_member, m.sender_agent,
    m.client_message_id, m.destination_kind,
    EXISTS (SELECT 1 FROM queue_item i WHERE i.mesh_id = h.mesh_id AND m.destination_kind = 'queue'
        AND i.queue = m.destination_ref AND i.epoch = h.epoch AND i.seq = h.seq AND i.acked_at IS NULL)
    OR EXISTS (SELECT 1 FROM member p JOIN delivery_queue d ON d.mesh_id = p.mesh_id
        AND d.member_id = p.member_id AND d.epoch = h.epoch AND d.seq = h.seq
        WHERE p.mesh_id = h.mesh_id AND d.delivered_at IS NULL)
FROM message_history h
LEFT JOIN message m ON m.mesh_id = h.mesh_id AND m.broker_message_id = h.broker_message_id
WHERE h.mesh_id = $1 AND (h.epoch, h.seq) > ($2, $3)
ORDER BY h.epoch, h.seq LIMIT $4";

const PRUNE: &str = "
WITH old AS (SELECT * FROM unnest($2::bytea[], $3::bytea[]) AS o (id, id_key)),
gone AS (
    DELETE FROM message m USING old WHERE m.mesh_id = $1 AND m.broker_message_id = old.id
    RETURNING m.broker_message_id),
told AS (
    UPDATE client_message_dedupe d SET history_available = FALSE FROM old
    WHERE d.mesh_id = $1 AND d.id_key = old.id_key AND d.broker_message_id = old.id)
SELECT count(*) FROM gone";

/// A body that goes.
pub(super) struct Old {
    id: BrokerMessageId,
    key: IdKey,
}

/// Bodies up to a place that are due in the next stretch, and where to go on; `None` at the end. Nothing comes to wait for a message later on, so a reader can tell.
pub(super) async fn find(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    through: HistoryId,
    after: HistoryId,
) -> Result<(Vec<Old>, Option<HistoryId>), JobError> {
    require_mesh(transaction, mesh).await?;
    let (epoch, seq) = (integer(after.epoch), integer(after.seq));
    let key = mesh_key(mesh);
    let found = query(transaction, NEXT, &[&key, &epoch, &seq, &STRETCH_ROWS]).await?;
    let (mut old, mut last) = (Vec::new(), after);
    for row in &found {
        let mut columns = Columns::of(row);
        last = columns.history_id()?;
        if last > through {
            return Ok((old, None));
        }
        let id = columns.broker_message_id()?;
        if columns.maybe_wall()?.is_none() {
            continue;
        }
        let (sender, client_message_id) = (columns.party()?, columns.client_message_id()?);
        // Whoever joins later needs an op.
        let is_op = columns.destination_kind()? == DestinationKind::Log;
        if !is_op && !columns.flag()? {
            let key = IdKey::of(mesh, &sender, &client_message_id);
            old.push(Old { id, key });
        }
    }
    let is_whole = i64::try_from(found.len()).is_ok_and(|seen| seen == STRETCH_ROWS);
    Ok((old, is_whole.then_some(last)))
}

pub(super) async fn prune(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    old: &[Old],
) -> Result<usize, JobError> {
    let ids: Vec<Vec<u8>> = old.iter().map(|old| message_key(old.id)).collect();
    let keys: Vec<&[u8]> = old.iter().map(|old| old.key.0.as_slice()).collect();
    let row = query_opt(transaction, PRUNE, &[&mesh_key(mesh), &ids, &keys]).await?;
    let gone = row.map_or(Ok(0), |row| Columns::of(&row).number())?;
    Ok(usize::try_from(gone).unwrap_or(usize::MAX))
}
