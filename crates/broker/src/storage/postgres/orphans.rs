//! The orphan check in SQL: each query finds rows of one kind that lack another (BR-14).

use deadpool_postgres::Transaction;
use heddle_core::ids::MeshId;
use tokio_postgres::Row;

use super::super::rows::Orphan;
use super::columns::{Columns, mesh_key};
use super::error::JobError;
use super::roster::require_mesh;

/// How the columns of a query become the text of an orphan.
#[derive(Clone, Copy)]
pub(super) enum Shown {
    /// Sender and client message id.
    Id,
    Message,
    /// Place, then message.
    Place,
    /// Place alone.
    At,
    /// Place, then mailbox.
    Mailbox,
    Epoch,
}

#[rustfmt::skip]
pub(super) const QUERIES: [(&str, Shown, &str); 15] = [
    ("dedupe_without_history", Shown::Id, "
SELECT d.sender_member, d.sender_agent, d.client_message_id FROM client_message_dedupe d
WHERE d.mesh_id = $1 AND NOT EXISTS (SELECT 1 FROM message_history h
    WHERE h.mesh_id = d.mesh_id AND h.epoch = d.epoch AND h.seq = d.seq
      AND h.broker_message_id = d.broker_message_id)"),
    ("dedupe_disagrees_with_message", Shown::Id, "
SELECT d.sender_member, d.sender_agent, d.client_message_id FROM client_message_dedupe d
WHERE d.mesh_id = $1 AND d.history_available <> EXISTS (SELECT 1 FROM message m
    WHERE m.mesh_id = d.mesh_id AND m.broker_message_id = d.broker_message_id)"),
    ("dedupe_of_expired_history", Shown::Id, "
SELECT d.sender_member, d.sender_agent, d.client_message_id FROM client_message_dedupe d
WHERE d.mesh_id = $1 AND EXISTS (SELECT 1 FROM message_history h
    WHERE h.mesh_id = d.mesh_id AND h.epoch = d.epoch AND h.seq = d.seq AND h.is_expired
      AND h.broker_message_id = d.broker_message_id)"),
    ("message_differs_from_dedupe", Shown::Message, "
SELECT m.broker_message_id FROM client_message_dedupe d
JOIN message m ON m.mesh_id = d.mesh_id AND m.broker_message_id = d.broker_message_id
WHERE d.mesh_id = $1 AND (d.sender_member <> m.sender_member OR d.sender_agent <> m.sender_agent
    OR d.client_message_id <> m.client_message_id OR d.destination_kind <> m.destination_kind
    OR d.destination_ref <> m.destination_ref OR d.first_seen_at <> m.accepted_at)"),
    ("message_without_dedupe", Shown::Message, "
SELECT m.broker_message_id FROM message m
WHERE m.mesh_id = $1 AND NOT EXISTS (SELECT 1 FROM client_message_dedupe d
    WHERE d.mesh_id = m.mesh_id AND d.broker_message_id = m.broker_message_id)
  AND NOT EXISTS (SELECT 1 FROM message_history h
    WHERE h.mesh_id = m.mesh_id AND h.broker_message_id = m.broker_message_id AND h.is_expired)"),
    ("message_without_history", Shown::Message, "
SELECT m.broker_message_id FROM message m
WHERE m.mesh_id = $1 AND NOT EXISTS (SELECT 1 FROM message_history h
    WHERE h.mesh_id = m.mesh_id AND h.broker_message_id = m.broker_message_id)"),
    ("dm_without_delivery", Shown::Message, "
SELECT m.broker_message_id FROM message m
WHERE m.mesh_id = $1 AND m.destination_kind = 'dm'
  AND EXISTS (SELECT 1 FROM message_history h
    WHERE h.mesh_id = m.mesh_id AND h.broker_message_id = m.broker_message_id)
  AND NOT EXISTS (SELECT 1 FROM delivery_queue q
    WHERE q.mesh_id = m.mesh_id AND q.broker_message_id = m.broker_message_id
      AND q.agent = split_part(m.destination_ref, '/', 2))
  AND NOT EXISTS (SELECT 1 FROM delivery_withheld w JOIN message_history h
      ON h.mesh_id = w.mesh_id AND h.epoch = w.epoch AND h.seq = w.seq
    WHERE w.mesh_id = m.mesh_id AND h.broker_message_id = m.broker_message_id)"),
    ("queue_message_without_item", Shown::Message, "
SELECT m.broker_message_id FROM message m
WHERE m.mesh_id = $1 AND m.destination_kind = 'queue'
  AND EXISTS (SELECT 1 FROM message_history h
    WHERE h.mesh_id = m.mesh_id AND h.broker_message_id = m.broker_message_id)
  AND NOT EXISTS (SELECT 1 FROM queue_item i
    WHERE i.mesh_id = m.mesh_id AND i.broker_message_id = m.broker_message_id)"),
    ("queue_item_without_history", Shown::At, "
SELECT i.epoch, i.seq FROM queue_item i
WHERE i.mesh_id = $1 AND NOT EXISTS (SELECT 1 FROM message_history h
    WHERE h.mesh_id = i.mesh_id AND h.epoch = i.epoch AND h.seq = i.seq
      AND h.broker_message_id = i.broker_message_id)"),
    ("op_without_log_row", Shown::Message, "
SELECT m.broker_message_id FROM message m
WHERE m.mesh_id = $1 AND m.destination_kind = 'log'
  AND EXISTS (SELECT 1 FROM message_history h
    WHERE h.mesh_id = m.mesh_id AND h.broker_message_id = m.broker_message_id)
  AND NOT EXISTS (SELECT 1 FROM log_row l
    WHERE l.mesh_id = m.mesh_id AND l.broker_message_id = m.broker_message_id)"),
    ("log_row_without_history", Shown::At, "
SELECT l.epoch, l.seq FROM log_row l
WHERE l.mesh_id = $1 AND NOT EXISTS (SELECT 1 FROM message_history h
    WHERE h.mesh_id = l.mesh_id AND h.epoch = l.epoch AND h.seq = l.seq
      AND h.broker_message_id = l.broker_message_id)"),
    ("history_without_dedupe", Shown::Place, "
SELECT h.epoch, h.seq, h.broker_message_id FROM message_history h
WHERE h.mesh_id = $1 AND NOT h.is_expired AND NOT EXISTS (SELECT 1 FROM client_message_dedupe d
    WHERE d.mesh_id = h.mesh_id AND d.epoch = h.epoch AND d.seq = h.seq)"),
    ("delivery_without_history", Shown::Mailbox, "
SELECT q.epoch, q.seq, q.member_id, q.agent FROM delivery_queue q
WHERE q.mesh_id = $1 AND NOT EXISTS (SELECT 1 FROM message_history h
    WHERE h.mesh_id = q.mesh_id AND h.epoch = q.epoch AND h.seq = q.seq
      AND h.broker_message_id = q.broker_message_id)"),
    ("mention_without_history", Shown::Mailbox, "
SELECT i.epoch, i.seq, i.member_id, i.agent FROM mention_index i
WHERE i.mesh_id = $1 AND NOT EXISTS (SELECT 1 FROM message_history h
    WHERE h.mesh_id = i.mesh_id AND h.epoch = i.epoch AND h.seq = i.seq)"),
    // What the log knows to have lost is told by itself (`log_hole`): it is mended, and whoever made it sends it again.
    ("gap_in_history", Shown::Epoch, "
SELECT g.epoch FROM (
    SELECT epoch, seq, lead(seq) OVER (PARTITION BY epoch ORDER BY seq) AS next FROM message_history
    WHERE mesh_id = $1) g
WHERE g.next > g.seq + 1 AND NOT EXISTS (SELECT 1 FROM log_hole o WHERE o.mesh_id = $1
    AND (o.after_epoch, o.after_seq) <= (g.epoch, g.seq)
    AND (o.through_epoch, o.through_seq) >= (g.epoch, g.next - 1))
UNION SELECT h.epoch FROM message_history h JOIN mesh ON mesh.mesh_id = h.mesh_id
WHERE h.mesh_id = $1 GROUP BY h.epoch
HAVING h.epoch = max(mesh.epoch) AND max(h.seq) <> max(mesh.next_seq) - 1"),
];

pub(super) async fn check(
    transaction: &Transaction<'_>,
    mesh: MeshId,
) -> Result<Vec<Orphan>, JobError> {
    require_mesh(transaction, mesh).await?;
    let key = mesh_key(mesh);
    let mut orphans = Vec::new();
    for (problem, shown, sql) in QUERIES {
        for row in transaction.query(sql, &[&key]).await? {
            let row = show(shown, &row)?;
            orphans.push(Orphan { problem, row });
        }
    }
    orphans.sort_unstable();
    Ok(orphans)
}

fn show(shown: Shown, row: &Row) -> Result<String, JobError> {
    let mut columns = Columns::of(row);
    Ok(match shown {
        Shown::Id => format!("{} {}", columns.party()?, columns.client_message_id()?),
        Shown::Message => columns.broker_message_id()?.to_string(),
        Shown::Place => format!("{} {}", columns.history_id()?, columns.broker_message_id()?),
        Shown::At => columns.history_id()?.to_string(),
        Shown::Mailbox => format!("{} {}", columns.history_id()?, columns.party()?),
        Shown::Epoch => format!("epoch {}", columns.number()?),
    })
}
