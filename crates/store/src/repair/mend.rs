//! Rows that must not be lost for one cell that cannot be read: a mesh, under which everything else stands, and what was
//! sent, whose id is never free again. They come over with another cell in the place of that one.
//!
//! Of what was sent, the frozen envelope says most of it once more. A row whose sender or id is gone must not go out: the
//! broker may have it under the id that nobody knows any more.

use heddle_core::envelope::Priority;
use heddle_core::ids::MeshId;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Row, params};
use serde_json::Value as Json;
use ulid::Ulid;

use super::meshes::{IS_SHARED, RepairHints, everybody, has_home};
use crate::meaning::Meanings;
use crate::outbox::Identity;

/// The texts that a key of the outbox is made of.
const WHOSE: [&str; 2] = ["agent", "client_message_id"];
/// In the place of a name that cannot be read.
const UNREADABLE: &str = "unreadable";
const LOST_ID: &str =
    "damaged: its sender or its id could not be read, so it is not sent; its broker may have it";
const NAME_MESH: &str = "UPDATE OR IGNORE mesh SET name = ?2 WHERE mesh_id = ?1";
const NAME_MEMBER: &str = "UPDATE mesh SET member_name = ?2 WHERE mesh_id = ?1";
/// One's own mesh that has shared anything is no personal one.
const SET_OWNER: &str = "UPDATE mesh SET kind = 'shared_owner' WHERE mesh_id = ?1 AND kind = 'personal' AND broker_url IS NULL";
const SET_URL: &str =
    "UPDATE mesh SET broker_url = ?2 WHERE mesh_id = ?1 AND broker_url IS NOT NULL";

/// The cells of a row behind the first `skip`, and what of them is another than it was, by name; `None` where the row is
/// not to be had without them.
pub(super) fn cells(
    meanings: &Meanings,
    row: &Row<'_>,
    skip: usize,
) -> Option<(Vec<Value>, Option<String>)> {
    let mut cells = Vec::with_capacity(meanings.columns.len());
    let mut spoilt = Vec::new();
    for at in 0..meanings.columns.len() {
        let cell = row.get_ref(skip + at).ok()?;
        if meanings.is_wrong(at, cell) {
            spoilt.push(at);
        }
        cells.push(lossy(cell));
    }
    if spoilt.is_empty() {
        return Some((cells, None));
    }
    let mut taken = Cells {
        columns: &meanings.columns,
        cells,
    };
    let mut names = Vec::new();
    let is_proven = meanings.table == "outbox" && taken.prove(row, skip);
    for at in spoilt {
        let column = meanings.columns[at].as_str();
        if is_proven && WHOSE.contains(&column) {
            names.push(column);
            continue;
        }
        let instead = match meanings.table.as_str() {
            "mesh" => taken.of_mesh(column)?,
            "outbox" => taken.of_outbox(column)?,
            // What people read, and no decision hangs on.
            "outbox_attempt" | "outbox_lost" if is_text(&taken.cells[at]) => {
                taken.cells[at].clone()
            }
            _ => return None,
        };
        taken.cells[at] = instead;
        names.push(column);
    }
    let name = format!(
        "{} {}: {}",
        meanings.table,
        taken.known_by(),
        names.join(", ")
    );
    Some((taken.cells, Some(name)))
}

fn lossy(cell: ValueRef<'_>) -> Value {
    match cell {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
    }
}

fn is_text(cell: &Value) -> bool {
    matches!(cell, Value::Text(_))
}

struct Cells<'c> {
    columns: &'c [String],
    cells: Vec<Value>,
}

impl Cells<'_> {
    fn place(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|name| name == column)
    }

    fn id(&self, column: &str) -> Option<Ulid> {
        match self.cells.get(self.place(column)?)? {
            Value::Blob(bytes) => Some(Ulid::from_bytes(bytes.as_slice().try_into().ok()?)),
            _ => None,
        }
    }

    fn text(&self, column: &str) -> Option<String> {
        match self.cells.get(self.place(column)?)? {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    fn set(&mut self, column: &str, cell: Value) {
        if let Some(at) = self.place(column) {
            self.cells[at] = cell;
        }
    }

    fn known_by(&self) -> String {
        let id = ["row_id", "mesh_id"].iter().find_map(|name| self.id(name));
        id.map_or_else(|| "?".to_owned(), |id| id.to_string())
    }

    /// A mesh gets a name of which nobody has another; what the settings know of it comes behind (`settle`).
    fn of_mesh(&self, column: &str) -> Option<Value> {
        let mesh = MeshId(self.id("mesh_id")?);
        // From the beginning: what is known already changes nothing when it comes again.
        let numbers = ["broker_epoch", "replayed_epoch", "log_epoch", "log_seq"];
        if numbers.contains(&column) || ["sync_paused", "needs_resync"].contains(&column) {
            return Some(Value::Integer(0));
        }
        Some(Value::Text(match column {
            "name" => safe_name(mesh),
            "member_name" => UNREADABLE.to_owned(),
            "kind" if self.text("broker_url").is_some() => "shared_guest".to_owned(),
            "kind" => "personal".to_owned(),
            // Not none: a mesh that is hosted elsewhere must not become one of this home's own.
            "broker_url" => self.text("broker_url")?,
            _ => return None,
        }))
    }

    /// Whether the key of a row that was sent says what its sender and its id were.
    fn prove(&mut self, row: &Row<'_>, skip: usize) -> bool {
        let bytes = |column| {
            let cell = row.get_ref(skip + self.place(column)?).ok()?;
            Some(cell.as_bytes().ok()?.to_vec())
        };
        let now = || {
            let id = |column| self.id(column).map(|id| id.to_bytes());
            Some(Identity {
                row: id("row_id")?,
                key: bytes("id_key")?.try_into().ok()?,
                sender: (id("mesh_id")?, id("member_id")?, bytes("agent")?),
                id: bytes("client_message_id")?,
                is_op: self.text("kind").as_deref() == Some("op"),
            })
        };
        let Some(was) = now().and_then(|now| now.solve([].iter())) else {
            return false;
        };
        let text = |bytes: &[u8]| Value::Text(String::from_utf8_lossy(bytes).into_owned());
        self.set("agent", text(&was.sender.2));
        self.set("client_message_id", text(&was.id));
        true
    }

    fn of_outbox(&mut self, column: &str) -> Option<Value> {
        let envelope = self.envelope();
        Some(match column {
            "to_address" => Value::Text(address(&envelope).or_else(|| self.text(column))?),
            "mentions" => Value::Text(mentions(&envelope)),
            "priority" => {
                let said = envelope["priority"].as_str().and_then(Priority::parse);
                Value::Text(said.unwrap_or_default().as_str().to_owned())
            }
            "kind" => {
                let is_op = envelope["kind"] == "op";
                Value::Text(if is_op { "op" } else { "message" }.to_owned())
            }
            "attempts" => Value::Integer(0),
            "last_error" | "aborted_by" => Value::Text(self.text(column)?),
            "agent" => {
                self.keep_back();
                Value::Text(UNREADABLE.to_owned())
            }
            "client_message_id" => {
                self.keep_back();
                Value::Text(self.id("row_id")?.to_string())
            }
            _ => return None,
        })
    }

    fn keep_back(&mut self) {
        let waits = matches!(self.text("status").as_deref(), Some("pending" | "inflight"));
        if waits {
            self.set("status", Value::Text("dead".to_owned()));
            self.set("last_error", Value::Text(LOST_ID.to_owned()));
        }
    }

    fn envelope(&self) -> Json {
        let payload = self.place("payload").map(|at| &self.cells[at]);
        match payload {
            Some(Value::Blob(bytes)) => serde_json::from_slice(bytes).unwrap_or_default(),
            _ => Json::Null,
        }
    }
}

/// As a caller would write it. The envelope knows a recipient by its member's id, whose name it does not say.
fn address(envelope: &Json) -> Option<String> {
    let destination = &envelope["destination"];
    let to = destination["ref"].as_str()?;
    match destination["kind"].as_str()? {
        "topic" => Some(format!("#{to}")),
        "queue" => Some(format!("queue:{to}")),
        "dm" => Some(format!("@{}", to.rsplit('/').next()?)),
        _ => Some(to.to_owned()),
    }
}

fn mentions(envelope: &Json) -> String {
    let all = envelope["mentions"].as_array().cloned().unwrap_or_default();
    let one = |mention: &Json| Some(format!("@{}", mention.as_str()?.rsplit('/').next()?));
    let all: Vec<String> = all.iter().filter_map(one).collect();
    serde_json::to_string(&all).unwrap_or_else(|_| "[]".to_owned())
}

/// A name that no other mesh has.
pub(super) fn safe_name(mesh: MeshId) -> String {
    format!("mesh.{mesh}").to_lowercase()
}

/// Names of meshes as the settings and the rosters know them, where the rows could not say them any more.
pub(super) fn settle(new: &Connection, hints: &RepairHints) -> rusqlite::Result<()> {
    let mut statement = new.prepare(
        "SELECT mesh_id, name, member_name, member_id, broker_url FROM mesh ORDER BY created_at",
    )?;
    let rows = statement.query_map([], |row| {
        Ok((
            row.get::<_, [u8; 16]>(0)?,
            (row.get::<_, String>(1)?, row.get::<_, String>(2)?),
            row.get::<_, [u8; 16]>(3)?,
            row.get::<_, Option<String>>(4)?,
        ))
    })?;
    let rows: Vec<_> = rows.collect::<rusqlite::Result<_>>()?;
    for (key, (name, member_name), member, url) in rows {
        let mesh = MeshId(Ulid::from_bytes(key));
        let hint = hints.elsewhere.iter().find(|hint| hint.mesh == mesh);
        if name == safe_name(mesh) {
            let known = hint.map(|hint| &hint.name);
            // Without its own mesh a home would begin another one.
            let is_home = known.is_none() && url.is_none() && !has_home(new, hints)?;
            if let Some(known) = known.or(is_home.then_some(&hints.home)) {
                new.execute(NAME_MESH, params![key, known.as_str()])?;
            }
        }
        if member_name == UNREADABLE {
            let all = everybody(new, mesh)?.into_iter();
            let told = all.filter(|(id, _)| id.0.to_bytes() == member);
            let told = told.map(|(_, name)| name).next();
            let known = hint.and_then(|hint| hint.member_name.clone()).or(told);
            let known = known.unwrap_or_else(|| hints.person.clone());
            new.execute(NAME_MEMBER, params![key, known.as_str()])?;
        }
        let is_shared: bool = new.query_row(IS_SHARED, [key], |row| row.get(0))?;
        if is_shared {
            new.execute(SET_OWNER, [key])?;
        }
        if let Some(known) = hint.and_then(|hint| hint.broker_url.as_deref()) {
            new.execute(SET_URL, params![key, known])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use heddle_core::names::{AgentName, MemberName, MeshName};

    use super::*;

    #[test]
    fn what_stands_in_for_a_name_is_one() {
        assert!(AgentName::parse(UNREADABLE).is_ok());
        assert!(MemberName::parse(UNREADABLE).is_ok());
        assert!(MeshName::parse(&safe_name(MeshId(Ulid(u128::MAX)))).is_ok());
    }

    #[test]
    fn an_envelope_says_once_more_where_it_goes() {
        let to = |kind: &str, to: &str| {
            address(&serde_json::json!({"destination": {"kind": kind, "ref": to}}))
        };
        assert_eq!(to("topic", "ops").as_deref(), Some("#ops"));
        assert_eq!(to("queue", "work").as_deref(), Some("queue:work"));
        assert_eq!(to("dm", "01J/bob").as_deref(), Some("@bob"));
        assert_eq!(address(&Json::Null), None);
        let said = serde_json::json!({"mentions": ["01J/bob"]});
        assert_eq!(mentions(&said), "[\"@bob\"]");
        assert_eq!(mentions(&Json::Null), "[]");
    }
}
