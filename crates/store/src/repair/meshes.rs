//! Rows of `mesh` that were lost are made again: every other table names its mesh, and the home knows the rest.

use std::collections::BTreeMap;

use heddle_core::clock::WallMs;
use heddle_core::ids::{MemberId, MeshId};
use heddle_core::names::{MemberName, MeshName};
use rusqlite::{Connection, OptionalExtension as _, params};
use ulid::Ulid;

use crate::backup::has_table;

/// What a home knows of its meshes beside its store: its settings and its keys.
#[derive(Debug, Clone)]
pub struct MeshHint {
    pub mesh: MeshId,
    pub name: MeshName,
    /// Who we are there, where an invitation has left that.
    pub member: Option<MemberId>,
    pub member_name: Option<MemberName>,
    pub broker_url: Option<String>,
}

/// What is known for a repair.
#[derive(Debug, Clone)]
pub struct RepairHints {
    /// Meshes that are hosted elsewhere.
    pub elsewhere: Vec<MeshHint>,
    /// What the mesh is called that every home has, and who its person is.
    pub home: MeshName,
    pub person: MemberName,
}

/// Tables that name a mesh in every home that was ever started.
const NAMES: [&str; 5] = [
    "agent",
    "outbox_sender",
    "lamport_clock",
    "roster",
    "delivery",
];
const HOMES: &str = "SELECT count(*) FROM mesh WHERE name = ?1";
const SENDER: &str = "SELECT member_id FROM outbox_sender WHERE mesh_id = ?1 LIMIT 1";
const WRITER: &str = "SELECT updated_by FROM state_kv WHERE mesh_id = ?1
    UNION ALL SELECT peer FROM memory WHERE mesh_id = ?1 LIMIT 1";
const ROSTER: &str = "SELECT document FROM roster WHERE mesh_id = ?1";
pub(super) const IS_SHARED: &str = "SELECT EXISTS (SELECT 1 FROM op_outbox WHERE mesh_id = ?1)
    OR EXISTS (SELECT 1 FROM op_inbox WHERE mesh_id = ?1)
    OR EXISTS (SELECT 1 FROM mesh_publish WHERE mesh_id = ?1)";
const EPOCH: &str = "SELECT max(epoch) FROM (
    SELECT history_epoch AS epoch FROM delivery WHERE mesh_id = ?1
    UNION ALL SELECT epoch FROM op_inbox WHERE mesh_id = ?1)";
const MAKE: &str = "
    INSERT INTO mesh (mesh_id, name, member_id, member_name, broker_url, created_at, kind, broker_epoch,
        replayed_epoch)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8) ON CONFLICT DO NOTHING";

/// Without its own mesh a start would begin another one, under which nobody finds what was saved.
pub(super) fn has_home(new: &Connection, hints: &RepairHints) -> rusqlite::Result<bool> {
    let count: i64 = new.query_row(HOMES, [hints.home.as_str()], |row| row.get(0))?;
    Ok(count > 0)
}

/// Makes the rows that can be made; how many. A mesh whose member nobody knows is none.
pub(super) fn make_again(
    new: &Connection,
    hints: &RepairHints,
    now: WallMs,
) -> rusqlite::Result<u64> {
    if !has_table(new, "op_inbox")? || !has_table(new, "mesh_publish")? {
        return Ok(0);
    }
    let mut made = 0;
    for mesh in unknown(new)? {
        let hint = hints.elsewhere.iter().find(|hint| hint.mesh == mesh);
        let has_home = has_home(new, hints)?;
        let name = match hint {
            Some(hint) => &hint.name,
            // A mesh that is neither in the settings nor the home's own has no name any more.
            None if has_home => continue,
            None => &hints.home,
        };
        let Some(member) = member_of(new, mesh, hint)? else {
            continue;
        };
        let called = hint.and_then(|hint| hint.member_name.clone());
        let called = match called {
            Some(called) => called,
            None => name_of(new, mesh, member)?.unwrap_or_else(|| hints.person.clone()),
        };
        made += one(new, (mesh, name), (member, &called), hint, now)?;
    }
    Ok(made)
}

fn one(
    new: &Connection,
    (mesh, name): (MeshId, &MeshName),
    (member, called): (MemberId, &MemberName),
    hint: Option<&MeshHint>,
    now: WallMs,
) -> rusqlite::Result<u64> {
    let key = mesh.0.to_bytes();
    let is_shared: bool = new.query_row(IS_SHARED, [key], |row| row.get(0))?;
    let kind = match (hint, is_shared) {
        (Some(_), _) => "shared_guest",
        (None, true) => "shared_owner",
        (None, false) => "personal",
    };
    let epoch: Option<i64> = new.query_row(EPOCH, [key], |row| row.get(0))?;
    let made = new.execute(
        MAKE,
        params![
            key,
            name.as_str(),
            member.0.to_bytes(),
            called.as_str(),
            hint.and_then(|hint| hint.broker_url.as_deref()),
            now.0,
            kind,
            epoch.unwrap_or(0),
        ],
    )?;
    Ok(made as u64)
}

/// Meshes that rows name and that are not in the list, those with the most rows first.
fn unknown(new: &Connection) -> rusqlite::Result<Vec<MeshId>> {
    let mut counts: BTreeMap<[u8; 16], usize> = BTreeMap::new();
    for table in NAMES {
        let sql = format!(
            "SELECT mesh_id FROM {table} WHERE length(mesh_id) = 16
             AND NOT EXISTS (SELECT 1 FROM mesh WHERE mesh.mesh_id = {table}.mesh_id)"
        );
        let mut statement = new.prepare(&sql)?;
        let rows = statement.query_map([], |row| row.get::<_, [u8; 16]>(0))?;
        for mesh in rows {
            *counts.entry(mesh?).or_default() += 1;
        }
    }
    let mut found: Vec<([u8; 16], usize)> = counts.into_iter().collect();
    found.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let id = |(bytes, _): ([u8; 16], usize)| MeshId(Ulid::from_bytes(bytes));
    Ok(found.into_iter().map(id).collect())
}

/// Who we are in it: as the settings say, as whoever sent from here, or in a mesh of one's own as whoever wrote.
fn member_of(
    new: &Connection,
    mesh: MeshId,
    hint: Option<&MeshHint>,
) -> rusqlite::Result<Option<MemberId>> {
    if let Some(member) = hint.and_then(|hint| hint.member) {
        return Ok(Some(member));
    }
    let key = mesh.0.to_bytes();
    let sender = new.query_row(SENDER, [key], |row| row.get::<_, [u8; 16]>(0));
    if let Some(sender) = sender.optional()? {
        return Ok(Some(MemberId(Ulid::from_bytes(sender))));
    }
    let is_shared: bool = new.query_row(IS_SHARED, [key], |row| row.get(0))?;
    if hint.is_some() || is_shared {
        return Ok(None);
    }
    let writer = new.query_row(WRITER, [key], |row| row.get::<_, String>(0));
    if let Some(writer) = writer.optional()? {
        let member = writer.split('/').next().unwrap_or_default().parse();
        return Ok(member.ok());
    }
    // Alone in a mesh of one's own.
    Ok(match everybody(new, mesh)?.as_slice() {
        [(only, _)] => Some(*only),
        _ => None,
    })
}

fn name_of(
    new: &Connection,
    mesh: MeshId,
    member: MemberId,
) -> rusqlite::Result<Option<MemberName>> {
    let everybody = everybody(new, mesh)?;
    let found = everybody.into_iter().find(|(id, _)| *id == member);
    Ok(found.map(|(_, name)| name))
}

/// Who was in the mesh as its broker last said.
pub(super) fn everybody(
    new: &Connection,
    mesh: MeshId,
) -> rusqlite::Result<Vec<(MemberId, MemberName)>> {
    let document = new.query_row(ROSTER, [mesh.0.to_bytes()], |row| row.get::<_, String>(0));
    let document = document.optional()?.unwrap_or_default();
    let document: serde_json::Value = serde_json::from_str(&document).unwrap_or_default();
    let members = document["members"].as_array().cloned().unwrap_or_default();
    let one = |member: &serde_json::Value| {
        let id = member["member"].as_str()?.parse().ok()?;
        Some((id, MemberName::parse(member["name"].as_str()?).ok()?))
    };
    Ok(members.iter().filter_map(one).collect())
}
