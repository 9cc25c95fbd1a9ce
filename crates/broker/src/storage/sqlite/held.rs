//! What a member acknowledged and may have lost since, in SQL. It reads only.

use heddle_core::clock::WallMs;
use heddle_core::envelope::Priority;
use heddle_core::ids::{MemberId, MeshId};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};

use super::super::rows::{DeliveryPlace, PageLimit};
use super::super::story::{Held, HeldFilling, HeldPage, Levels};
use super::columns::{Columns, integer, member_key, mesh_key};
use super::deliveries;

// The columns of a delivery, then its levels, then its place for the rows whose message is gone.
const HELD: &str = "
SELECT d.epoch, d.seq, d.agent, m.sender_member, m.sender_agent, m.sender_name,
    m.client_message_id, m.broker_message_id, m.destination_kind, m.destination_ref,
    d.priority, m.accepted_at, m.envelope, d.delivered_at, d.shown_at, d.acked_at
FROM delivery_queue d
LEFT JOIN message m ON m.mesh_id = d.mesh_id AND m.broker_message_id = d.broker_message_id
WHERE d.mesh_id = ?1 AND d.member_id = ?2 AND d.is_delivered = 1 AND d.priority = ?6
  AND (d.epoch, d.seq, d.agent) > (?3, ?4, ?5)
ORDER BY d.epoch, d.seq, d.agent";

/// The column of the message's id, which is null where the message is gone.
const MESSAGE: usize = 7;

/// The statement above, for the test that looks at its plan.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[HELD];

pub(super) fn page(
    connection: &Connection,
    (mesh, member): (MeshId, MemberId),
    (first, mut place): (Priority, DeliveryPlace),
    limit: PageLimit,
) -> rusqlite::Result<HeldPage> {
    let mut filling = HeldFilling::new(limit);
    let mut statement = connection.prepare_cached(HELD)?;
    for priority in Priority::ALL
        .into_iter()
        .filter(|p| p.rank() >= first.rank())
    {
        if priority != first {
            place = DeliveryPlace::START;
        }
        let mut rows = statement.query(params![
            mesh_key(mesh),
            member_key(member),
            integer(place.history_id.epoch),
            integer(place.history_id.seq),
            place.agent,
            priority.rank(),
        ])?;
        while let Some(row) = rows.next()? {
            if !filling.take(read(row)?) {
                return Ok(filling.end(Some((priority, place))));
            }
            let mut columns = Columns::of(row);
            place = DeliveryPlace {
                history_id: columns.history_id()?,
                agent: columns.text()?,
            };
        }
    }
    Ok(filling.end(None))
}

/// `None` where the message is gone, or cannot be read any more.
fn read(row: &Row<'_>) -> rusqlite::Result<Option<Held>> {
    if row.get_ref(MESSAGE)? == ValueRef::Null {
        return Ok(None);
    }
    let at = |column: usize| -> rusqlite::Result<Option<WallMs>> {
        let at: Option<i64> = row.get(deliveries::COLUMNS + column)?;
        Ok(at.map(WallMs))
    };
    let Some(delivery) = deliveries::read_whole(row) else {
        return Ok(None);
    };
    Ok(Some(Held {
        delivery,
        levels: Levels {
            delivered_at: at(0)?,
            shown_at: at(1)?,
            acked_at: at(2)?,
        },
    }))
}
