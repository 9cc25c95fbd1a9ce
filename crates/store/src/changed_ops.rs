//! Changes that wait for their broker with other bytes than they were made with: a disk has changed them. They are not sent, for
//! everybody else would keep what nobody wrote; a repair says them again from the rows that they made here.

use std::str::FromStr as _;

use heddle_core::clock::WallMs;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{MemberId, MeshId, Party};
use heddle_core::op::{DataOp, is_sealed_as};
use rusqlite::Connection;
use ulid::Ulid;

use crate::data::{OLD_TABLES, queue_published};
use crate::error::StoreError;

/// Changes that one sentence names.
const NAMED_MAX: usize = 10;
const ROWS_AT_ONCE: i64 = 500;

const WAITING: &str = "
    SELECT outbox.arrival, outbox.mesh_id, CAST(outbox.client_message_id AS BLOB), outbox.payload,
        outbox.wire_fingerprint, outbox.member_id
    FROM op_outbox JOIN outbox ON outbox.arrival = op_outbox.arrival
    WHERE outbox.status = 'pending' ORDER BY outbox.arrival";

const KEEP_BACK: &str = "
    UPDATE outbox SET status = 'aborted', aborted_at = enqueued_at, aborted_by = 'repair'
    WHERE arrival = ?1";
const UNQUEUE: &str = "DELETE FROM op_outbox WHERE arrival = ?1";

struct Changed {
    arrival: i64,
    mesh: MeshId,
    id: String,
    own: MemberId,
}

fn changed(connection: &Connection) -> rusqlite::Result<Vec<Changed>> {
    let mut statement = connection.prepare(WAITING)?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        // Cells of another shape are told of as such (`meaning.rs`).
        let (Ok(mesh), Ok(made), Ok(own)) = (row.get(1), row.get(4), row.get(5)) else {
            continue;
        };
        let payload = row.get_ref(3)?.as_bytes().unwrap_or_default();
        if !is_sealed_as(payload, Fingerprint(made)) {
            found.push(Changed {
                arrival: row.get(0)?,
                mesh: MeshId(Ulid::from_bytes(mesh)),
                id: String::from_utf8_lossy(&row.get::<_, Vec<u8>>(2)?).into_owned(),
                own: MemberId(Ulid::from_bytes(own)),
            });
        }
    }
    Ok(found)
}

pub(crate) fn problem(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let found = changed(connection)?;
    let named: Vec<&str> = found
        .iter()
        .take(NAMED_MAX)
        .map(|op| op.id.as_str())
        .collect();
    let named = named.join(", ");
    Ok(match found.len() {
        0 => None,
        1 => Some(format!(
            "a change that waits in the outbox is not what was made, so it is not sent: {named}"
        )),
        count => Some(format!(
            "{count} changes that wait in the outbox are not what was made, so they are not sent: {named}"
        )),
    })
}

/// In a file that is being put together anew, with its triggers away: they stay here, and what their rows hold goes out in
/// their place, under the ids that a publish gives. A row that was written over since has a change of its own.
pub(crate) fn say_again(new: &Connection, now: WallMs) -> Result<(), StoreError> {
    for op in changed(new)? {
        new.execute(KEEP_BACK, [op.arrival])?;
        new.execute(UNQUEUE, [op.arrival])?;
        let Some((made, sender)) = made(new, &op)? else {
            continue;
        };
        queue_published(new, op.mesh, &sender, &made, now)?;
    }
    Ok(())
}

/// What the row holds that this change made, if it is sound and this home's own.
fn made(new: &Connection, op: &Changed) -> Result<Option<(DataOp, Party)>, StoreError> {
    for table in &OLD_TABLES {
        let mut through = Vec::new();
        loop {
            let rows = (table.read)(new, op.mesh, &through, ROWS_AT_ONCE)?;
            let Some(last) = rows.last() else { break };
            through.clone_from(&last.through);
            let mut ops = rows.into_iter().filter_map(|row| row.op.ok());
            let is_it = |made: &DataOp| {
                made.stamp.op.to_string() == op.id
                    || made.published_id(op.mesh).to_string() == op.id
            };
            let Some(made) = ops.find(is_it) else {
                continue;
            };
            let peer = made.stamp.peer.as_str();
            let sender = Party::from_str(peer).ok();
            let sender = sender.filter(|party| party.member == op.own && party.to_string() == peer);
            return Ok(sender.map(|sender| (made, sender)));
        }
    }
    Ok(None)
}
