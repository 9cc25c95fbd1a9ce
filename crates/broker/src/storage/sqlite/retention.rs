//! Message retention: old bodies go, and their ids say so in the same transaction (BR-13).

use heddle_core::envelope::{DestinationKind, Priority};
use heddle_core::ids::{BrokerMessageId, HistoryId, IdKey, MeshId};
use rusqlite::{Connection, params};

use super::columns::{Columns, integer, mesh_key, message_key};
use super::queues;

/// Places looked at in one read, and bodies deleted in one transaction.
const STRETCH_ROWS: usize = 500;

const NEXT: &str = "
SELECT h.epoch, h.seq, h.broker_message_id, m.accepted_at, m.sender_member, m.sender_agent,
    m.client_message_id, m.destination_kind, m.destination_ref
FROM message_history h
LEFT JOIN message m ON m.mesh_id = h.mesh_id AND m.broker_message_id = h.broker_message_id
WHERE h.mesh_id = ?1 AND (h.epoch, h.seq) > (?2, ?3)
ORDER BY h.epoch, h.seq LIMIT ?4";

const WAITS: &str = "
SELECT 1 FROM member m JOIN delivery_queue d ON d.mesh_id = m.mesh_id AND d.member_id = m.member_id
    AND d.is_delivered = 0 AND d.priority = ?4 AND d.epoch = ?2 AND d.seq = ?3
WHERE m.mesh_id = ?1";

const PRUNED: &str = "
UPDATE client_message_dedupe SET history_available = 0
WHERE mesh_id = ?1 AND id_key = ?2 AND broker_message_id = ?3";

const PRUNE: &str = "DELETE FROM message WHERE mesh_id = ?1 AND broker_message_id = ?2";

/// The statements above, for the test that looks at their plans.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[NEXT, WAITS, PRUNED, PRUNE];

/// How far the walk has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk(HistoryId);

impl Default for Walk {
    fn default() -> Self {
        Self(HistoryId::ZERO)
    }
}

/// A body that goes.
pub(super) struct Old {
    id: BrokerMessageId,
    key: IdKey,
}

/// Bodies up to a place that are due in the next stretch, and where to go on; `None` at the end. Nothing comes to wait for a message later on, so a reader can tell.
pub(super) fn find(
    connection: &Connection,
    mesh: MeshId,
    through: HistoryId,
    Walk(after): Walk,
) -> rusqlite::Result<(Vec<Old>, Option<Walk>)> {
    let mut statement = connection.prepare_cached(NEXT)?;
    let mut rows = statement.query(params![
        mesh_key(mesh),
        integer(after.epoch),
        integer(after.seq),
        super::upkeep::rows(STRETCH_ROWS),
    ])?;
    let (mut old, mut seen, mut last) = (Vec::new(), 0, after);
    while let Some(row) = rows.next()? {
        let mut columns = Columns::of(row);
        last = columns.history_id()?;
        if last > through {
            return Ok((old, None));
        }
        seen += 1;
        let id = columns.broker_message_id()?;
        if columns.maybe_wall()?.is_none() {
            continue;
        }
        // Nobody knows whose it is any more: it stays for the orphan check to name, and holds up no sweep.
        let Some((sender, client_message_id)) = columns.maybe_send_id() else {
            continue;
        };
        let queue = match columns.destination_kind() {
            // Whoever joins later needs it.
            Ok(DestinationKind::Log) | Err(_) => continue,
            Ok(DestinationKind::Queue) => match columns.text() {
                Ok(queue) => Some(queue),
                Err(_) => continue,
            },
            Ok(DestinationKind::Topic | DestinationKind::Dm) => None,
        };
        if !waits(connection, mesh, last, queue.as_deref())? {
            let key = IdKey::of(mesh, &sender, &client_message_id);
            old.push(Old { id, key });
        }
    }
    Ok((old, (seen == STRETCH_ROWS).then_some(Walk(last))))
}

fn waits(
    connection: &Connection,
    mesh: MeshId,
    at: HistoryId,
    queue: Option<&str>,
) -> rusqlite::Result<bool> {
    if let Some(queue) = queue {
        let item = queues::item(connection, mesh, queue, at)?;
        return Ok(item.is_some_and(|item| item.acked_at.is_none()));
    }
    let mut statement = connection.prepare_cached(WAITS)?;
    for priority in Priority::ALL {
        let (epoch, seq) = (integer(at.epoch), integer(at.seq));
        if statement.exists(params![mesh_key(mesh), epoch, seq, priority.rank()])? {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn prune(connection: &Connection, mesh: MeshId, old: &[Old]) -> rusqlite::Result<usize> {
    let mut pruned = connection.prepare_cached(PRUNED)?;
    let mut prune = connection.prepare_cached(PRUNE)?;
    let mut count = 0;
    for Old { id, key } in old {
        pruned.execute(params![mesh_key(mesh), key.0, message_key(*id)])?;
        count += prune.execute(params![mesh_key(mesh), message_key(*id)])?;
    }
    Ok(count)
}
