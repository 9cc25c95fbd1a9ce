//! Changes that this home made in a mesh it shares, and that nobody else can have: they are not in the log as it was read, and the
//! outbox has no row of them any more. A repair sends them from the rows that they made.

use std::str::FromStr as _;

use heddle_core::clock::WallMs;
use heddle_core::ids::{ClientMessageId, IdKey, MemberId, MeshId, OpId, Party};
use heddle_core::op::DataOp;
use rusqlite::{Connection, OptionalExtension as _, params};
use ulid::Ulid;

use crate::data::{OLD_TABLES, OldTable, queue_published};
use crate::error::StoreError;
use crate::unreadable::{Unreadable, meshes, named, row_of};

/// Changes that one sentence names.
const NAMED_MAX: usize = 10;
const ROWS_AT_ONCE: i64 = 500;

// Before a log was read nobody knows what it has, and a mesh that is being published sends its rows in their turn.
pub(crate) const JUDGED: &str = "
    SELECT member_id FROM mesh
    WHERE mesh_id = ?1 AND kind <> 'personal' AND (log_epoch > 0 OR log_seq > 0)
        AND NOT EXISTS (SELECT 1 FROM mesh_publish WHERE mesh_id = ?1 AND finished_at IS NULL)";

pub(crate) const HAS_ROW: &str = "SELECT 1 FROM outbox WHERE id_key = ?1";
pub(crate) const CAME_BACK: &str =
    "SELECT 1 FROM op_inbox WHERE mesh_id = ?1 AND sender = ?2 AND op_id = ?3";

/// Who this home is in a mesh whose own changes can be judged.
pub(crate) fn judged(
    connection: &Connection,
    mesh: MeshId,
) -> Result<Option<MemberId>, StoreError> {
    let own = connection
        .prepare_cached(JUDGED)?
        .query_row([mesh.0.to_bytes()], |row| row.get::<_, [u8; 16]>(0));
    let own = own.optional()?;
    Ok(own.map(|own| MemberId(Ulid::from_bytes(own))))
}

/// Whose change it is, if it is this home's own and was never sent.
pub(crate) fn unsent(
    connection: &Connection,
    (mesh, own): (MeshId, MemberId),
    op: &DataOp,
) -> Result<Option<Party>, StoreError> {
    let peer = op.stamp.peer.as_str();
    let sender = Party::from_str(peer).ok();
    let Some(sender) = sender.filter(|party| party.member == own && party.to_string() == peer)
    else {
        return Ok(None);
    };
    let knows = |id: OpId| -> Result<bool, StoreError> {
        let text = id.to_string();
        // Another id than an op has is nobody's.
        let Ok(id) = ClientMessageId::parse(&text) else {
            return Ok(true);
        };
        let key = IdKey::of(mesh, &sender, &id);
        Ok(connection.prepare_cached(HAS_ROW)?.exists([key.0])?
            || connection.prepare_cached(CAME_BACK)?.exists(params![
                mesh.0.to_bytes(),
                peer,
                text
            ])?)
    };
    let is_known = knows(op.stamp.op)? || knows(op.published_id(mesh))?;
    Ok((!is_known).then_some(sender))
}

/// One that was never sent, with who made it.
struct Unsent {
    mesh: MeshId,
    sender: Party,
    op: DataOp,
    row: Unreadable,
}

fn of_table(
    connection: &Connection,
    table: &OldTable,
    (mesh, own): (MeshId, MemberId),
    found: &mut Vec<Unsent>,
) -> Result<(), StoreError> {
    let mut through = Vec::new();
    loop {
        let rows = (table.read)(connection, mesh, &through, ROWS_AT_ONCE)?;
        // Only forwards: pages that are damaged may say anything.
        let next = rows.last().map(|row| row.through.clone());
        for row in rows {
            let Ok(op) = row.op else { continue };
            if let Some(sender) = unsent(connection, (mesh, own), &op)? {
                let row = row_of(connection, table, mesh, &row.through)?;
                found.push(Unsent {
                    mesh,
                    sender,
                    op,
                    row,
                });
            }
        }
        match next.filter(|next| *next > through) {
            Some(next) => through = next,
            None => return Ok(()),
        }
    }
}

fn all(connection: &Connection) -> Result<Vec<Unsent>, StoreError> {
    let mut found = Vec::new();
    for mesh in meshes(connection)? {
        let Some(own) = judged(connection, mesh)? else {
            continue;
        };
        for table in &OLD_TABLES {
            of_table(connection, table, (mesh, own), &mut found)?;
        }
    }
    Ok(found)
}

/// Of a file of the newest schema.
pub(crate) fn problem(connection: &Connection) -> Result<Option<String>, StoreError> {
    let found: Vec<Unreadable> = all(connection)?.into_iter().map(|one| one.row).collect();
    let named = named(&found, NAMED_MAX);
    Ok(match found.len() {
        0 => None,
        1 => Some(format!(
            "a change of this home was never sent to the others, and its row of the outbox is gone: {named}"
        )),
        count => Some(format!(
            "{count} changes of this home were never sent to the others, and their rows of the outbox are gone: {named}"
        )),
    })
}

/// In a file that is being put together anew: they go out as what their rows hold, under the ids that a publish gives. Whose they
/// are, by name.
pub(crate) fn send(new: &Connection, now: WallMs) -> Result<Vec<String>, StoreError> {
    let found = all(new)?;
    for one in &found {
        queue_published(new, one.mesh, &one.sender, &one.op, now)?;
    }
    Ok(found.iter().map(|one| one.row.called()).collect())
}
