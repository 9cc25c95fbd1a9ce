//! What a member acknowledged and may have lost since, in SQL. It reads only.

use deadpool_postgres::Transaction;
use heddle_core::envelope::Priority;
use heddle_core::ids::{MemberId, MeshId};
use tokio_postgres::Row;

use super::super::rows::{DeliveryPlace, PageLimit};
use super::super::story::{Held, HeldPage, Levels};
use super::columns::{Columns, integer, member_key, mesh_key, rank, rows};
use super::deliveries;
use super::error::JobError;
use super::sql::query;

/// Rows that one page may pass whose bodies are gone: a read has its end.
const GONE_MAX: usize = 10_000;

// The columns of a delivery, then its levels. Of the rows whose message is gone only the place is read. The bytes
// are summed up where the rows are, so that no more than a page is ever sent at once.
const HELD: &str = "
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
    let mut filling = Filling {
        page: HeldPage::default(),
        limit,
        bytes: 0,
        gone: 0,
    };
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
                if !filling.take(row, &mut place)? {
                    filling.page.next = Some((priority, place));
                    return Ok(filling.page);
                }
            }
        }
    }
    Ok(filling.page)
}

struct Filling {
    page: HeldPage,
    limit: PageLimit,
    bytes: usize,
    gone: usize,
}

impl Filling {
    /// False if the page is full: the row is the next one's.
    fn take(&mut self, row: &Row, place: &mut DeliveryPlace) -> Result<bool, JobError> {
        let mut message = Columns::of(row);
        message.pass(BEFORE_MESSAGE);
        let is_gone = message.is_missing()?;
        let levels_of = |columns: &mut Columns<'_>| -> Result<Levels, JobError> {
            Ok(Levels {
                delivered_at: columns.maybe_wall()?,
                shown_at: columns.maybe_wall()?,
                acked_at: columns.maybe_wall()?,
            })
        };
        let held = if is_gone {
            None
        } else {
            let mut columns = Columns::of(row);
            Some(Held {
                delivery: deliveries::read(&mut columns)?,
                levels: levels_of(&mut columns)?,
            })
        };
        self.bytes += held.as_ref().map_or(0, |held| held.delivery.envelope.len());
        let is_full = self.page.items.len() >= self.limit.rows_max || self.gone >= GONE_MAX;
        if is_full || (self.bytes > self.limit.bytes_max && !self.page.items.is_empty()) {
            return Ok(false);
        }
        let mut columns = Columns::of(row);
        *place = DeliveryPlace {
            history_id: columns.history_id()?,
            agent: columns.text()?,
        };
        match held {
            Some(held) => self.page.items.push(held),
            None => {
                self.gone += 1;
                self.page.gone += 1;
            }
        }
        Ok(true)
    }
}
