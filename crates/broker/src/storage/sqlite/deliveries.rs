//! Deliveries: what waits for a member, page by page, and what it has acknowledged.

use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, MemberId, MeshId};
use rusqlite::{Connection, Row, params};

use super::super::rows::{Ack, Delivery, DeliveryCursor, PageLimit};
use super::columns::{Columns, integer, member_key, mesh_key};
use super::error::JobError;

// One range of the queue's own tree, and one look-up of a message for each row.
const AFTER: &str = "
SELECT d.epoch, d.seq, d.agent, m.sender_member, m.sender_agent, m.sender_name,
    m.client_message_id, m.broker_message_id, m.destination_kind, m.destination_ref,
    m.accepted_at, m.envelope
FROM delivery_queue d
JOIN message m ON m.mesh_id = d.mesh_id AND m.broker_message_id = d.broker_message_id
WHERE d.mesh_id = ?1 AND d.member_id = ?2 AND d.is_acked = 0
  AND (d.epoch, d.seq, d.agent) > (?3, ?4, ?5)
ORDER BY d.epoch, d.seq, d.agent LIMIT ?6";

const ACK: &str = "
UPDATE delivery_queue SET is_acked = 1, acked_at = ?6
WHERE mesh_id = ?1 AND member_id = ?2 AND is_acked = 0 AND epoch = ?3 AND seq = ?4 AND agent = ?5";

pub(super) const ACK_THROUGH: &str = "
UPDATE delivery_queue SET is_acked = 1, acked_at = ?5
WHERE (mesh_id, member_id, is_acked, epoch, seq, agent) IN (
    SELECT mesh_id, member_id, is_acked, epoch, seq, agent FROM delivery_queue
    WHERE mesh_id = ?1 AND member_id = ?2 AND is_acked = 0 AND (epoch, seq) <= (?3, ?4)
    LIMIT ?6)";

/// Rows that one cumulative ack moves in one transaction, which has to stay short for everybody else.
pub(super) const ACK_ROWS_MAX: usize = 2048;

/// The statements above, for the test that looks at their plans.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[AFTER, ACK, ACK_THROUGH];

pub(super) fn after(
    connection: &Connection,
    mesh: MeshId,
    member: MemberId,
    after: &DeliveryCursor,
    limit: PageLimit,
) -> Result<Vec<Delivery>, JobError> {
    let mut statement = connection.prepare_cached(AFTER)?;
    let mut rows = statement.query(params![
        mesh_key(mesh),
        member_key(member),
        integer(after.history_id.epoch),
        integer(after.history_id.seq),
        after.agent,
        i64::try_from(limit.rows_max).unwrap_or(i64::MAX)
    ])?;
    let mut page = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let delivery = read(row)?;
        bytes += delivery.envelope.len();
        if bytes > limit.bytes_max && !page.is_empty() {
            break;
        }
        page.push(delivery);
    }
    Ok(page)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    let mut columns = Columns::of(row);
    Ok(Delivery {
        history_id: columns.history_id()?,
        agent: columns.agent()?,
        sender: columns.party()?,
        sender_name: columns.member_name()?,
        client_message_id: columns.client_message_id()?,
        broker_message_id: columns.broker_message_id()?,
        destination_kind: columns.destination_kind()?,
        destination_ref: columns.text()?,
        accepted_at: columns.wall()?,
        envelope: columns.text()?.into(),
    })
}

pub(super) fn ack(
    connection: &Connection,
    mesh: MeshId,
    member: MemberId,
    items: &[Ack],
    at: WallMs,
) -> Result<usize, JobError> {
    let mut statement = connection.prepare_cached(ACK)?;
    let mut count = 0;
    for item in items {
        count += statement.execute(params![
            mesh_key(mesh),
            member_key(member),
            integer(item.history_id.epoch),
            integer(item.history_id.seq),
            item.agent.as_str(),
            at.0
        ])?;
    }
    Ok(count)
}

/// Marks the next rows; fewer than [`ACK_ROWS_MAX`] when there are no more.
pub(super) fn ack_through(
    connection: &Connection,
    mesh: MeshId,
    member: MemberId,
    through: HistoryId,
    at: WallMs,
) -> Result<usize, JobError> {
    let mut statement = connection.prepare_cached(ACK_THROUGH)?;
    Ok(statement.execute(params![
        mesh_key(mesh),
        member_key(member),
        integer(through.epoch),
        integer(through.seq),
        at.0,
        i64::try_from(ACK_ROWS_MAX).unwrap_or(i64::MAX)
    ])?)
}
