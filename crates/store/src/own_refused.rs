//! Ops of this home's own that carry stamps which no home takes: a Heddle of before asked its clock for them while a disk had
//! put that clock far ahead. They are named as this home's, and a repair ends what would be done for them for ever.

use heddle_core::ids::{MemberId, MeshId};
use heddle_core::op::DataOp;
use rusqlite::{Connection, params};
use serde_json::Value;
use ulid::Ulid;

use crate::backup::has_table;

// By name, as all looks at what was not applied. Without bytes: for good (`sync/apply.rs`).
pub(crate) const REFUSED: &str = "
    SELECT sender, epoch, seq FROM op_inbox INDEXED BY op_inbox_open
    WHERE mesh_id = ?1 AND state <> 'applied' AND state = 'quarantined' AND length(op) = 0
        AND reason LIKE 'stamp %'";

const FORGET: &str =
    "UPDATE op_inbox SET state = 'dropped' WHERE mesh_id = ?1 AND epoch = ?2 AND seq = ?3";

const WAITING: &str = "
    SELECT outbox.arrival, outbox.payload, lamport_clock.value FROM op_outbox
    JOIN outbox ON outbox.arrival = op_outbox.arrival
    JOIN lamport_clock ON lamport_clock.mesh_id = op_outbox.mesh_id";

const KEEP_BACK: &str = "
    UPDATE outbox SET status = 'aborted', aborted_at = enqueued_at, aborted_by = 'repair'
    WHERE arrival = ?1";

/// The places of a mesh's log at which such ops stand.
pub(crate) fn places(
    connection: &Connection,
    mesh: MeshId,
    own: MemberId,
) -> rusqlite::Result<Vec<(i64, i64)>> {
    let prefix = format!("{own}/");
    let mut statement = connection.prepare_cached(REFUSED)?;
    let mut rows = statement.query([mesh.0.to_bytes()])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        if row.get_ref(0)?.as_bytes()?.starts_with(prefix.as_bytes()) {
            found.push((row.get(1)?, row.get(2)?));
        }
    }
    Ok(found)
}

/// One line for each mesh that has any.
pub(crate) fn problems(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut found = Vec::new();
    if !has_table(connection, "op_inbox")? {
        return Ok(found);
    }
    for (mesh, own, name) in meshes(connection)? {
        match places(connection, mesh, own)?.len() {
            0 => {}
            1 => found.push(format!(
                "a change that this home wrote in mesh {name} while its clock was far ahead is taken by no home"
            )),
            count => found.push(format!(
                "{count} changes that this home wrote in mesh {name} while its clock was far ahead are taken by no home"
            )),
        }
    }
    Ok(found)
}

/// In a file that is being put together anew, behind its clocks: they are not told of any more, and those that have not gone
/// out stay here.
pub(crate) fn give_up(new: &Connection) -> rusqlite::Result<()> {
    for (mesh, own, _) in meshes(new)? {
        for (epoch, seq) in places(new, mesh, own)? {
            new.execute(FORGET, params![mesh.0.to_bytes(), epoch, seq])?;
        }
    }
    let mut statement = new.prepare(WAITING)?;
    let mut rows = statement.query([])?;
    let mut ahead = Vec::new();
    while let Some(row) = rows.next()? {
        let clock = u64::try_from(row.get::<_, i64>(2)?).unwrap_or(u64::MAX);
        if stamp_of(row.get_ref(1)?.as_bytes()?).is_some_and(|stamp| stamp > clock) {
            ahead.push(row.get::<_, i64>(0)?);
        }
    }
    for arrival in ahead {
        new.execute(KEEP_BACK, [arrival])?;
        new.execute("DELETE FROM op_outbox WHERE arrival = ?1", [arrival])?;
    }
    Ok(())
}

fn stamp_of(payload: &[u8]) -> Option<u64> {
    let envelope: Value = serde_json::from_slice(payload).ok()?;
    let op = DataOp::parse(envelope["body"].as_str()?.as_bytes()).ok()?;
    Some(op.stamp.lamport)
}

fn meshes(connection: &Connection) -> rusqlite::Result<Vec<(MeshId, MemberId, String)>> {
    let mut statement = connection
        .prepare("SELECT mesh_id, member_id, CAST(name AS BLOB) FROM mesh ORDER BY mesh_id")?;
    let rows = statement.query_map([], |row| {
        Ok((
            MeshId(Ulid::from_bytes(row.get(0)?)),
            MemberId(Ulid::from_bytes(row.get(1)?)),
            String::from_utf8_lossy(&row.get::<_, Vec<u8>>(2)?).into_owned(),
        ))
    })?;
    rows.collect()
}
