//! Deliveries: what waits for a member, page by page, and how far each has come.

use heddle_core::clock::WallMs;
use heddle_core::envelope::Priority;
use heddle_core::ids::{MemberId, MeshId};
use rusqlite::{Connection, Row, params};

use super::super::rows::{Ack, Delivery, DeliveryCursor, PageLimit};
use super::super::story::{Receipt, ReceiptLevel};
use super::columns::{Columns, integer, member_key, mesh_key};
use super::error::JobError;

// One range of the queue's own tree, and one look-up of a message for each row.
const AFTER: &str = "
SELECT d.epoch, d.seq, d.agent, m.sender_member, m.sender_agent, m.sender_name,
    m.client_message_id, m.broker_message_id, m.destination_kind, m.destination_ref,
    d.priority, m.accepted_at, m.envelope
FROM delivery_queue d
JOIN message m ON m.mesh_id = d.mesh_id AND m.broker_message_id = d.broker_message_id
WHERE d.mesh_id = ?1 AND d.member_id = ?2 AND d.is_delivered = 0 AND d.priority = ?7
  AND (d.epoch, d.seq, d.agent) > (?3, ?4, ?5)
ORDER BY d.epoch, d.seq, d.agent LIMIT ?6";

const DELIVERED: &str = "
UPDATE delivery_queue SET is_delivered = 1, delivered_at = ?6
WHERE mesh_id = ?1 AND member_id = ?2 AND is_delivered = 0 AND priority = ?7
  AND epoch = ?3 AND seq = ?4 AND agent = ?5";

const SHOWN: &str = "
UPDATE delivery_queue SET shown_at = ?6
WHERE mesh_id = ?1 AND member_id = ?2 AND is_delivered = 1 AND priority = ?7
  AND epoch = ?3 AND seq = ?4 AND agent = ?5 AND shown_at IS NULL";

const ACKED: &str = "
UPDATE delivery_queue SET shown_at = coalesce(shown_at, ?6), acked_at = ?6
WHERE mesh_id = ?1 AND member_id = ?2 AND is_delivered = 1 AND priority = ?7
  AND epoch = ?3 AND seq = ?4 AND agent = ?5 AND acked_at IS NULL";

/// The statements above, for the test that looks at their plans.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[AFTER, DELIVERED, SHOWN, ACKED];

/// An ack names no priority. Tried in this order: most messages are ordinary.
const TRIED: [Priority; 3] = [Priority::Next, Priority::Now, Priority::Low];

pub(super) fn after(
    connection: &Connection,
    mesh: MeshId,
    member: MemberId,
    after: &DeliveryCursor,
    limit: PageLimit,
) -> Result<Vec<Delivery>, JobError> {
    let mut statement = connection.prepare_cached(AFTER)?;
    let mut page = Vec::new();
    let mut bytes = 0;
    for priority in Priority::ALL {
        let place = after.place(priority);
        let mut rows = statement.query(params![
            mesh_key(mesh),
            member_key(member),
            integer(place.history_id.epoch),
            integer(place.history_id.seq),
            place.agent,
            i64::try_from(limit.rows_max - page.len()).unwrap_or(i64::MAX),
            priority.rank(),
        ])?;
        while let Some(row) = rows.next()? {
            let Some(delivery) = read_whole(row) else {
                continue;
            };
            bytes += delivery.envelope.len();
            if bytes > limit.bytes_max && !page.is_empty() {
                return Ok(page);
            }
            page.push(delivery);
        }
    }
    Ok(page)
}

/// How many columns [`read`] takes.
pub(super) const COLUMNS: usize = 13;

/// The columns of [`AFTER`].
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
        priority: columns.priority()?,
        accepted_at: columns.wall()?,
        envelope: columns.envelope()?,
    })
}

/// `None` of a row whose names are none any more: it must not hold up those behind it, and stays where it is. The orphan
/// check names its message.
pub(super) fn read_whole(row: &Row<'_>) -> Option<Delivery> {
    let read = read(row).inspect_err(|error| {
        let place = Columns::of(row).history_id();
        let place = place.map_or_else(|_| "?".to_owned(), |place| place.to_string());
        tracing::error!(%error, %place, "a stored message cannot be read and is passed over");
    });
    read.ok()
}

/// Runs one of the updates above on the one row that it is about, whatever its priority.
fn step(
    connection: &Connection,
    sql: &str,
    (mesh, member): (MeshId, MemberId),
    item: &Ack,
    at: WallMs,
) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached(sql)?;
    for priority in TRIED {
        let changed = statement.execute(params![
            mesh_key(mesh),
            member_key(member),
            integer(item.history_id.epoch),
            integer(item.history_id.seq),
            item.agent.as_str(),
            at.0,
            priority.rank(),
        ])?;
        if changed > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn ack(
    connection: &Connection,
    mesh: MeshId,
    member: MemberId,
    items: &[Ack],
    at: WallMs,
) -> Result<usize, JobError> {
    let mut count = 0;
    for item in items {
        count += usize::from(step(connection, DELIVERED, (mesh, member), item, at)?);
    }
    Ok(count)
}

pub(super) fn receipts(
    connection: &Connection,
    mesh: MeshId,
    member: MemberId,
    items: &[Receipt],
) -> Result<usize, JobError> {
    let whose = (mesh, member);
    let mut count = 0;
    for receipt in items {
        let item = Ack {
            history_id: receipt.history_id,
            agent: receipt.agent.clone(),
        };
        // What is shown was delivered, though its ack may have been lost.
        let delivered = step(connection, DELIVERED, whose, &item, receipt.at)?;
        let sql = match receipt.level {
            ReceiptLevel::Shown => SHOWN,
            ReceiptLevel::Acked => ACKED,
        };
        let raised = step(connection, sql, whose, &item, receipt.at)?;
        count += usize::from(delivered || raised);
    }
    Ok(count)
}
