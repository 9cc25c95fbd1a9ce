//! Rows of `mesh` that were lost are made again: every other table names its mesh, and the home knows the rest.
//!
//! A row that is there under an id which nothing else has is the lost one with a changed cell. A new mesh that a start has
//! begun in its place, and that nobody has used, makes way.

use heddle_core::clock::WallMs;
use heddle_core::ids::{MemberId, MeshId};
use heddle_core::names::{MemberName, MeshName};
use rusqlite::{Connection, OptionalExtension as _, params};
use ulid::Ulid;

use super::mend::safe_name;
use crate::backup::has_table;
use crate::data::SaidOfModel;
use crate::meshless::{Meshless, is_without_home, meshless, tables};

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
    /// Models of vectors that the settings name.
    pub models: Vec<SaidOfModel>,
}

/// Tables that a home fills by itself: a mesh that only they name holds nothing that anybody wrote.
const BY_ITSELF: [&str; 6] = [
    "agent",
    "roster",
    "delivery",
    "outbox_reach",
    "mesh_window",
    "lamport_clock",
];
const HOMES: &str = "SELECT count(*) FROM mesh WHERE name = ?1";
// The most: one of them may be damaged as well.
const SENDER: &str = "
    SELECT member_id FROM (
        SELECT member_id FROM outbox_sender WHERE mesh_id = ?1
        UNION ALL SELECT member_id FROM outbox WHERE mesh_id = ?1)
    WHERE length(member_id) = 16 GROUP BY member_id ORDER BY count(*) DESC LIMIT 1";
const NAMED: &str = "SELECT mesh_id, name, broker_url IS NULL FROM mesh ORDER BY mesh_id";
const MOVE: &str = "UPDATE mesh SET mesh_id = ?2 WHERE mesh_id = ?1";
const NAME_HOME: &str = "UPDATE mesh SET name = ?2 WHERE mesh_id = ?1";
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

/// What became of the meshes.
#[derive(Debug, Default)]
pub(super) struct Again {
    pub(super) made: u64,
    /// Those that nobody can name any more, in words.
    pub(super) left: Vec<String>,
}

/// Makes the rows that can be made. `is_torn`: rows of the list itself could not be read.
pub(super) fn make_again(
    new: &Connection,
    hints: &RepairHints,
    is_torn: bool,
    now: WallMs,
) -> rusqlite::Result<Again> {
    let mut again = Again::default();
    if !has_table(new, "op_inbox")? || !has_table(new, "mesh_publish")? {
        return Ok(again);
    }
    for lost in meshless(new)? {
        if !is_torn && !lost.is_mesh() && !is_without_home(new, &hints.home)? {
            continue;
        }
        match one_again(new, &lost, hints, now)? {
            0 if lost.is_mesh() => again.left.push(lost.in_words()),
            made => again.made += made,
        }
    }
    if !has_home(new, hints)? {
        again.made += name_home(new, hints)?;
    }
    Ok(again)
}

fn one_again(
    new: &Connection,
    lost: &Meshless,
    hints: &RepairHints,
    now: WallMs,
) -> rusqlite::Result<u64> {
    let mesh = lost.mesh;
    let hint = hints.elsewhere.iter().find(|hint| hint.mesh == mesh);
    if let Some(under) = changed_row(new, hint, hints)? {
        return Ok(new.execute(MOVE, params![under, mesh.0.to_bytes()])? as u64);
    }
    let Some(member) = member_of(new, mesh, hint)? else {
        return Ok(0);
    };
    if hint.is_none() && is_used(lost.tables.iter().map(|(table, _)| table.as_str())) {
        make_way(new, hints)?;
    }
    let is_shared: bool = new.query_row(IS_SHARED, [mesh.0.to_bytes()], |row| row.get(0))?;
    let name = match hint {
        Some(hint) => hint.name.clone(),
        None if !has_home(new, hints)? => hints.home.clone(),
        // One that has others and is not in the settings may be anybody's: it must not become one of this home's own.
        None if is_shared => return Ok(0),
        None => match MeshName::parse(&safe_name(mesh)) {
            Ok(name) => name,
            Err(_) => return Ok(0),
        },
    };
    let called = hint.and_then(|hint| hint.member_name.clone());
    let called = match called {
        Some(called) => called,
        None => name_of(new, mesh, member)?.unwrap_or_else(|| hints.person.clone()),
    };
    one(new, (mesh, &name), (member, &called), hint, now)
}

fn is_used<'t>(mut tables: impl Iterator<Item = &'t str>) -> bool {
    tables.any(|table| !BY_ITSELF.contains(&table))
}

/// Which tables name this mesh.
fn named_in(new: &Connection, mesh: &[u8]) -> rusqlite::Result<Vec<String>> {
    let mut named = Vec::new();
    for table in tables(new)? {
        let sql = format!("SELECT 1 FROM {table:?} WHERE mesh_id = ?1");
        if new.prepare(&sql)?.exists([mesh])? {
            named.push(table);
        }
    }
    Ok(named)
}

/// The row that can be the lost one: nothing stands under its id. A start has given every other one a mailbox.
fn changed_row(
    new: &Connection,
    hint: Option<&MeshHint>,
    hints: &RepairHints,
) -> rusqlite::Result<Option<Vec<u8>>> {
    for (id, name, is_own) in listed(new)? {
        let is_it = match hint {
            Some(hint) => name == hint.name.as_str(),
            None => {
                is_own
                    && hints
                        .elsewhere
                        .iter()
                        .all(|hint| name != hint.name.as_str())
            }
        };
        if is_it && named_in(new, &id)?.is_empty() {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// A mesh that was begun in the place of the lost one, and in which nobody has written anything.
fn make_way(new: &Connection, hints: &RepairHints) -> rusqlite::Result<()> {
    for (id, name, is_own) in listed(new)? {
        let named = named_in(new, &id)?;
        if name != hints.home.as_str() || !is_own || is_used(named.iter().map(String::as_str)) {
            continue;
        }
        for table in named.iter().map(String::as_str).chain(["mesh"]) {
            new.execute(&format!("DELETE FROM {table:?} WHERE mesh_id = ?1"), [&id])?;
        }
    }
    Ok(())
}

/// The home's own mesh is the first that it ever had.
fn name_home(new: &Connection, hints: &RepairHints) -> rusqlite::Result<u64> {
    let is_known = |name: &str| {
        hints
            .elsewhere
            .iter()
            .any(|hint| name == hint.name.as_str())
    };
    let mut all = listed(new)?.into_iter();
    match all.find(|(_, name, is_own)| *is_own && !is_known(name)) {
        Some((id, ..)) => Ok(new.execute(NAME_HOME, params![id, hints.home.as_str()])? as u64),
        None => Ok(0),
    }
}

/// In the order in which they were made: their ids begin with the time.
fn listed(new: &Connection) -> rusqlite::Result<Vec<(Vec<u8>, String, bool)>> {
    let mut statement = new.prepare(NAMED)?;
    let rows = statement.query_map([], |row| {
        let name = String::from_utf8_lossy(row.get_ref(1)?.as_bytes()?).into_owned();
        Ok((row.get(0)?, name, row.get(2)?))
    })?;
    rows.collect()
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
