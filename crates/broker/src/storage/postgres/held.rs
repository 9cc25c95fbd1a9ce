//! What a member acknowledged and may have lost since, in SQL. It reads only.

use deadpool_postgres::Transaction;
use heddle_core::envelope::Priority;
use heddle_core::ids::{MemberId, MeshId};
use tokio_postgres::Row;

use super::super::rows::{DeliveryPlace, PageLimit};
use super::super::story::{Held, HeldFilling, HeldPage, Levels};
use super::columns::{Columns, integer, member_key, mesh_key, rank, rows};
use super::deliveries;
use super::error::JobError;
use super::sql::query;

// The columns of a delivery, then its levels. Of the rows whose message is gone only the place is read. The bytes
// are summed up where the rows are, so that no more than a page is ever sent at once.
pub(super) const HELD: &str = "
SELECT epoch, seq, agent, sender_member, sender_agent, sender_name, client_message_id,
    broker_message_id, destination_kind, destination_ref, priority, accepted_at, envelope,
    delivered_at, shown_at, acked_at
FROM (
    SELECT d.epoch, d.seq, d.agent, m.sender_member, m.sender_agent, m.sender_name,
        m.client_message_id, m.broker_message_id, m.destination_kind, m.destination_ref,
        d.priority, m.accepted_at, m.envelope, d.delivered_at, d.shown_at, d.acked_at,
        row_number() OVER place AS number,
        sum(coalesce(octet_length(m.envelope), 0)) OVER place AS bytes
    FROM (SELECT * FROM delivery_queue WHERE mesh_id = $1 AND member_id = $2
            AND delivered_at IS NOT NULL AND priority = $6 AND (epoch, seq, agent) > ($3, $4, $5)
        ORDER BY epoch, seq, agent LIMIT $7) d
    LEFT JOIN message m ON m.mesh_id = d.mesh_id AND m.broker_message_id = d.broker_message_id
    WINDOW place AS (ORDER BY d.epoch, d.seq, d.agent)
) page
WHERE number = 1 OR bytes <= $8 ORDER BY epoch, seq, agent";

/// The columns before the message's id, which is null where the message is gone.
const BEFORE_MESSAGE: usize = 7;

pub(super) async fn page(
    transaction: &Transaction<'_>,
    (mesh, member): (MeshId, MemberId),
    (first, mut place): (Priority, DeliveryPlace),
    limit: PageLimit,
) -> Result<HeldPage, JobError> {
    let mut filling = HeldFilling::new(limit);
    for priority in Priority::ALL
        .into_iter()
        .filter(|p| p.rank() >= first.rank())
    {
        if priority != first {
            place = DeliveryPlace::START;
        }
        loop {
            let found = query(
                transaction,
                HELD,
                &[
                    &mesh_key(mesh),
                    &member_key(member),
                    &integer(place.history_id.epoch),
                    &integer(place.history_id.seq),
                    &place.agent,
                    &rank(priority),
                    &rows(limit.rows_max.saturating_add(1)),
                    &rows(limit.bytes_max),
                ],
            )
            .await?;
            if found.is_empty() {
                break;
            }
            for row in &found {
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
    }
    Ok(filling.end(None))
}

/// `None` where the message is gone.
fn read(row: &Row) -> Result<Option<Held>, JobError> {
    let mut message = Columns::of(row);
    message.pass(BEFORE_MESSAGE);
    if message.is_missing()? {
        return Ok(None);
    }
    let mut columns = Columns::of(row);
    Ok(Some(Held {
        delivery: deliveries::read(&mut columns)?,
        levels: Levels {
            delivered_at: columns.maybe_wall()?,
            shown_at: columns.maybe_wall()?,
            acked_at: columns.maybe_wall()?,
        },
    }))
}
