//! Rows that name a mesh which is none, where one cell of theirs was changed: they go back to the mesh they were of where that
//! can be told, and what must not be free again stays with the home; the rest is what a broker or a start says again.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::Kept;
use super::meshes::RepairHints;
use super::senders::proven_members;
use crate::backup::has_table;
use crate::meshless::{Meshless, meshless};

/// Bytes of an id in which a damaged one differs from what it was.
const BYTES_MAX: usize = 2;
/// Judged, taken out and told by their own looks, which compare a digest.
const SEALED: [&str; 6] = [
    "memory",
    "state_kv",
    "files",
    "vector_metadata",
    "task_op",
    "tasks",
];
/// An id or a key that was ever used must not be free again.
const KEPT: [&str; 2] = ["outbox", "applied_request"];

const BY_MEMBER: &str = "
    UPDATE OR IGNORE outbox SET mesh_id = (SELECT mesh_id FROM mesh WHERE member_id = outbox.member_id)
    WHERE mesh_id = ?1 AND 1 = (SELECT count(*) FROM mesh WHERE member_id = outbox.member_id)";
/// Nobody knows any more where it was to go.
const NOT_SENT: &str = "
    UPDATE outbox SET status = 'dead', last_error = 'damaged: its mesh could not be read, so it is not sent'
    WHERE mesh_id = ?1 AND (status = 'pending' OR status = 'inflight')";
const IS_MEMBER: &str = "UPDATE mesh SET member_id = ?2 WHERE mesh_id = ?1";
/// Where nothing is left of what was sent, those who sent are all that is known.
const MEMBERS: &str = "
    UPDATE mesh SET member_id = ifnull((SELECT member_id FROM outbox_sender
        WHERE outbox_sender.mesh_id = mesh.mesh_id AND length(member_id) = 16
        GROUP BY member_id ORDER BY count(*) DESC LIMIT 1), member_id)
    WHERE broker_url IS NULL AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.mesh_id = mesh.mesh_id);
    DELETE FROM outbox_sender WHERE NOT EXISTS (SELECT 1 FROM outbox
            WHERE outbox.mesh_id = outbox_sender.mesh_id AND outbox.member_id = outbox_sender.member_id)
        AND EXISTS (SELECT 1 FROM mesh
            WHERE mesh.mesh_id = outbox_sender.mesh_id AND mesh.member_id <> outbox_sender.member_id);
    INSERT OR IGNORE INTO outbox_sender (mesh_id, member_id, agent)
        SELECT DISTINCT mesh_id, member_id, agent FROM outbox;";
const HOME: &str = "SELECT mesh_id FROM mesh WHERE name = ?1";

pub(super) fn settle(
    new: &Connection,
    hints: &RepairHints,
    kept: &mut [Kept],
) -> rusqlite::Result<()> {
    if !has_table(new, "mesh_publish")? {
        return Ok(());
    }
    // One whose row is lost is whole but for that; it waits for whoever can name it.
    for stray in meshless(new)?.iter().filter(|stray| !stray.is_mesh()) {
        let near = nearest(new, stray)?;
        for (table, _) in &stray.tables {
            let lost = settle_one(new, (table, stray), near.as_deref(), hints)?;
            if let Some(kept) = kept.iter_mut().find(|kept| kept.table == *table) {
                kept.rows = kept.rows.saturating_sub(lost);
                kept.refused += lost;
            }
        }
    }
    settle_members(new, hints)
}

/// Who we are in each mesh: as config.toml says, else as the keys of what was sent prove it. Who ever sent is said by the
/// outbox.
fn settle_members(new: &Connection, hints: &RepairHints) -> rusqlite::Result<()> {
    let mut members = proven_members(new)?;
    for hint in &hints.elsewhere {
        if let Some(member) = hint.member {
            members.insert(hint.mesh.0.to_bytes(), member.0.to_bytes());
        }
    }
    for (mesh, member) in members {
        new.execute(IS_MEMBER, params![mesh, member])?;
    }
    new.execute_batch(MEMBERS)
}

/// How many rows had to go.
fn settle_one(
    new: &Connection,
    (table, stray): (&str, &Meshless),
    near: Option<&[u8]>,
    hints: &RepairHints,
) -> rusqlite::Result<u64> {
    let key = stray.mesh.0.to_bytes();
    let to = format!("UPDATE OR IGNORE {table:?} SET mesh_id = ?2 WHERE mesh_id = ?1");
    // Under its digest it proves itself, but for a vector, whose bytes are kept by its mesh.
    if let Some(near) = near.filter(|_| table != "vector_metadata") {
        new.execute(&to, params![key, near])?;
    }
    if SEALED.contains(&table) {
        return Ok(0);
    }
    if table == "outbox" {
        new.execute(BY_MEMBER, [key])?;
        new.execute(NOT_SENT, [key])?;
    }
    if KEPT.contains(&table) {
        let home = new.query_row(HOME, [hints.home.as_str()], |row| row.get::<_, Vec<u8>>(0));
        if let Some(home) = home.optional()? {
            new.execute(&to, params![key, home])?;
        }
    }
    let gone = new.execute(&format!("DELETE FROM {table:?} WHERE mesh_id = ?1"), [key])?;
    Ok(gone as u64)
}

/// The one mesh of this home whose id differs in a byte or two.
fn nearest(new: &Connection, stray: &Meshless) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut statement = new.prepare("SELECT mesh_id FROM mesh")?;
    let ids = statement.query_map([], |row| row.get::<_, Vec<u8>>(0))?;
    let ids = ids.collect::<rusqlite::Result<Vec<_>>>()?;
    let bytes = stray.mesh.0.to_bytes();
    let differs = |id: &Vec<u8>| id.iter().zip(&bytes).filter(|(a, b)| a != b).count();
    let mut near = ids.into_iter().filter(|id| differs(id) <= BYTES_MAX);
    let first = near.next();
    Ok(first.filter(|_| near.next().is_none()))
}
