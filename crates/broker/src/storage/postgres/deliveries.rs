//! Deliveries: what waits for a member, page by page, and how far each has come.

use deadpool_postgres::{GenericClient, Transaction};
use futures_util::future::try_join_all;
use heddle_core::envelope::Priority;
use heddle_core::ids::{MemberId, MeshId};
use tokio_postgres::types::ToSql;

use super::super::rows::{Delivery, DeliveryCursor, PageLimit};
use super::super::story::{Receipt, ReceiptLevel};
use super::columns::{Columns, integer, member_key, mesh_key, rows};
use super::error::JobError;
use super::roster::require_mesh;
use super::sql::{count, execute, query};

// A range of the waiting index for each priority. The bytes are summed up where the rows are, so that no more
// than a page is ever sent.
pub(super) const AFTER: &str = "
SELECT epoch, seq, agent, sender_member, sender_agent, sender_name, client_message_id,
    broker_message_id, destination_kind, destination_ref, priority, accepted_at, envelope
FROM (
    SELECT d.epoch, d.seq, d.agent, m.sender_member, m.sender_agent, m.sender_name,
        m.client_message_id, m.broker_message_id, m.destination_kind, m.destination_ref,
        d.priority, m.accepted_at, m.envelope,
        row_number() OVER place AS number, sum(octet_length(m.envelope)) OVER place AS bytes
    FROM (
        SELECT * FROM (
            (SELECT * FROM delivery_queue WHERE mesh_id = $1 AND member_id = $2 AND delivered_at IS NULL
              AND priority = 0 AND (epoch, seq, agent) > ($5, $6, $7)
              ORDER BY epoch, seq, agent LIMIT $3)
            UNION ALL
            (SELECT * FROM delivery_queue WHERE mesh_id = $1 AND member_id = $2 AND delivered_at IS NULL
              AND priority = 1 AND (epoch, seq, agent) > ($8, $9, $10)
              ORDER BY epoch, seq, agent LIMIT $3)
            UNION ALL
            (SELECT * FROM delivery_queue WHERE mesh_id = $1 AND member_id = $2 AND delivered_at IS NULL
              AND priority = 2 AND (epoch, seq, agent) > ($11, $12, $13)
              ORDER BY epoch, seq, agent LIMIT $3)
        ) waiting ORDER BY priority, epoch, seq, agent LIMIT $3
    ) d
    JOIN message m ON m.mesh_id = d.mesh_id AND m.broker_message_id = d.broker_message_id
    WINDOW place AS (ORDER BY d.priority, d.epoch, d.seq, d.agent)
) page
WHERE number = 1 OR bytes <= $4 ORDER BY priority, epoch, seq, agent";

// What is shown was delivered, though its ack may have been lost; what is acknowledged was shown.
const RAISED: &str = "
UPDATE delivery_queue SET delivered_at = coalesce(delivered_at, $6), shown_at = coalesce(shown_at, $6),
    acked_at = CASE WHEN $7 THEN coalesce(acked_at, $6) ELSE acked_at END
WHERE mesh_id = $1 AND member_id = $2 AND epoch = $3 AND seq = $4 AND agent = $5
  AND (shown_at IS NULL OR ($7 AND acked_at IS NULL))";

pub(super) async fn after<C: GenericClient>(
    client: &C,
    mesh: MeshId,
    member: MemberId,
    after: &DeliveryCursor,
    limit: PageLimit,
) -> Result<Vec<Delivery>, JobError> {
    let (key, member) = (mesh_key(mesh), member_key(member));
    let (rows_max, bytes_max) = (rows(limit.rows_max), rows(limit.bytes_max));
    let places = Priority::ALL.map(|priority| {
        let place = after.place(priority);
        (
            integer(place.history_id.epoch),
            integer(place.history_id.seq),
            place.agent.as_str(),
        )
    });
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![&key, &member, &rows_max, &bytes_max];
    for (epoch, seq, agent) in &places {
        params.extend::<[&(dyn ToSql + Sync); 3]>([epoch, seq, agent]);
    }
    let found = query(client, AFTER, &params).await?;
    if found.is_empty() {
        require_mesh(client, mesh).await?;
    }
    found
        .iter()
        .map(|row| read(&mut Columns::of(row)))
        .collect()
}

/// The columns of a delivery.
pub(super) fn read(columns: &mut Columns<'_>) -> Result<Delivery, JobError> {
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

/// Sent together and run in their order: a later one of the same row sees what an earlier one did.
pub(super) async fn receipts(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    member: MemberId,
    items: &[Receipt],
) -> Result<usize, JobError> {
    let (mesh, member) = (mesh_key(mesh), member_key(member));
    let (mesh, member) = (&mesh, &member);
    let raise = |receipt: &Receipt| {
        let (epoch, seq) = (
            integer(receipt.history_id.epoch),
            integer(receipt.history_id.seq),
        );
        let (agent, at) = (receipt.agent.clone(), receipt.at.0);
        let is_acked = receipt.level == ReceiptLevel::Acked;
        async move {
            execute(
                transaction,
                RAISED,
                &[mesh, member, &epoch, &seq, &agent.as_str(), &at, &is_acked],
            )
            .await
        }
    };
    // Prepared before, or the first round of them would not keep its order.
    transaction.prepare_cached(RAISED).await?;
    let changed = try_join_all(items.iter().map(raise)).await?;
    Ok(count(changed.iter().sum()))
}
