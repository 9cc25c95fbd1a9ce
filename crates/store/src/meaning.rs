//! What the cells of every table must be so that the program can read them: text is text everywhere, and a name, a word, an
//! id or a number is what its column says. SQLite looks at none of it. One table says it, and a start, the doctor, the
//! status and a repair all ask here, so that none of them finds a row well which another one cannot read.

use std::fmt;

use heddle_core::envelope::Priority;
use heddle_core::fingerprint::hex;
use heddle_core::ids::ClientMessageId;
use heddle_core::names::{AgentName, MemberName, MeshName, NameError, TopicName};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use ulid::Ulid;

use crate::error::StoreError;
use crate::outbox::look_at_identities;
use crate::store::Store;
use crate::sync::MeshKind;

/// What a cell holds beyond the type of its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Text,
    Agent,
    Mesh,
    Member,
    Topic,
    ClientId,
    Kind,
    MeshKind,
    Priority,
    /// A list of texts.
    List,
    Id,
    /// A number that is never below zero and fits 32 bits.
    Small,
    /// A number that is never below zero.
    Count,
    /// The number of the only row.
    One,
    /// No or yes.
    Flag,
}

/// Columns that say more than their type; every other text is only text.
const MEANINGS: [(&str, &str, Meaning); 50] = [
    ("mesh", "mesh_id", Meaning::Id),
    ("mesh", "name", Meaning::Mesh),
    ("mesh", "member_id", Meaning::Id),
    ("mesh", "member_name", Meaning::Member),
    ("mesh", "kind", Meaning::MeshKind),
    ("mesh", "broker_epoch", Meaning::Count),
    ("mesh", "replayed_epoch", Meaning::Count),
    ("mesh", "sync_paused", Meaning::Flag),
    ("mesh", "log_epoch", Meaning::Count),
    ("mesh", "log_seq", Meaning::Count),
    ("mesh", "needs_resync", Meaning::Flag),
    ("store_state", "only_row", Meaning::One),
    ("store_state", "rows_sealed", Meaning::Flag),
    ("age_clock", "only_row", Meaning::One),
    ("inbox_state", "only_row", Meaning::One),
    ("outbox_reach", "looked_epoch", Meaning::Count),
    ("agent", "mesh_id", Meaning::Id),
    ("agent", "agent", Meaning::Agent),
    ("roster", "mesh_id", Meaning::Id),
    ("delivery", "mesh_id", Meaning::Id),
    ("delivery", "history_epoch", Meaning::Count),
    ("delivery", "history_seq", Meaning::Count),
    ("outbox_reach", "history_epoch", Meaning::Count),
    ("outbox_reach", "history_seq", Meaning::Count),
    ("mesh_window", "max_age_hours", Meaning::Small),
    ("age_clock", "age_ms", Meaning::Count),
    ("age_clock", "boot_ms", Meaning::Count),
    ("outbox_sender", "mesh_id", Meaning::Id),
    ("outbox_sender", "member_id", Meaning::Id),
    ("outbox_sender", "agent", Meaning::Agent),
    ("outbox", "row_id", Meaning::Id),
    ("outbox", "mesh_id", Meaning::Id),
    ("outbox", "member_id", Meaning::Id),
    ("outbox", "agent", Meaning::Agent),
    ("outbox", "client_message_id", Meaning::ClientId),
    ("outbox", "kind", Meaning::Kind),
    ("outbox", "mentions", Meaning::List),
    ("outbox", "priority", Meaning::Priority),
    ("outbox", "attempts", Meaning::Small),
    ("outbox", "broker_message_id", Meaning::Id),
    ("outbox", "superseded_by", Meaning::Id),
    ("outbox_attempt", "number", Meaning::Small),
    ("inbox", "mesh_id", Meaning::Id),
    ("inbox", "agent", Meaning::Agent),
    ("inbox", "member_id", Meaning::Id),
    ("inbox", "sender_agent", Meaning::Agent),
    ("inbox", "sender_name", Meaning::Member),
    ("inbox", "client_message_id", Meaning::ClientId),
    ("inbox", "topic", Meaning::Topic),
    ("inbox", "priority", Meaning::Priority),
];

/// What a start reads before it can say anything else. They are small.
const AT_START: [&str; 14] = [
    "store_state",
    "mesh",
    "agent",
    "roster",
    "delivery",
    "outbox_sender",
    "age_clock",
    "mesh_window",
    "inbox_state",
    "inbox_lost",
    "lamport_clock",
    "mesh_publish",
    "mesh_publish_cursor",
    "outbox_reach",
];

/// Places that a broker elsewhere has named: whatever it says must not keep this home from starting.
const SAID_BY_BROKERS: [&str; 2] = ["history_epoch", "history_seq"];

/// Tables whose rows are judged by their own readers, which know more (`unreadable`, `senseless`).
const ELSEWHERE: [&str; 6] = [
    "memory",
    "state_kv",
    "files",
    "vector_metadata",
    "vector_models",
    "task_op",
];

/// A cell that nobody can read, by what its row is known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spoilt {
    pub table: String,
    /// As far as it is text.
    pub row: String,
    pub column: String,
    pub why: String,
}

impl fmt::Display for Spoilt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            table,
            row,
            column,
            why,
        } = self;
        write!(f, "{table} {row}, column {column}: {why}")
    }
}

impl Store {
    /// An error where a start could not read what it needs.
    pub async fn refuse_spoilt(&self) -> Result<(), StoreError> {
        self.read(|connection| match spoilt_at_start(connection)?.first() {
            None => Ok(()),
            Some(first) => Err(StoreError::Corrupt(first.to_string())),
        })
        .await
    }

    /// Cells that nobody can read, among the first `rows_max` rows of each table.
    pub async fn spoilt(&self, rows_max: u64) -> Result<Vec<String>, StoreError> {
        let found = self.read(move |connection| Ok(spoilt(connection, rows_max)?));
        Ok(found.await?.iter().map(ToString::to_string).collect())
    }
}

/// The meanings of the columns of one table, for whoever reads its rows one by one.
pub(crate) struct Meanings {
    pub(crate) table: String,
    pub(crate) columns: Vec<String>,
    /// `None` where only text has to be text.
    each: Vec<Option<Meaning>>,
}

impl Meanings {
    pub(crate) fn of(table: &str, columns: &[String]) -> Self {
        let meaning = |name: &String| {
            let mut all = MEANINGS.iter();
            let found = all.find(|(of, column, _)| *of == table && column == name);
            found.map(|(_, _, meaning)| *meaning)
        };
        Self {
            table: table.to_owned(),
            each: columns.iter().map(meaning).collect(),
            columns: columns.to_vec(),
        }
    }

    pub(crate) fn is_wrong(&self, at: usize, cell: ValueRef<'_>) -> bool {
        match (self.each.get(at).copied().flatten(), cell) {
            (Some(meaning), cell) => wrong(cell, meaning).is_some(),
            (None, ValueRef::Text(_)) => wrong(cell, Meaning::Text).is_some(),
            (None, _) => false,
        }
    }
}

/// The first cell that nobody can read in the store at `data`, and whether a start needs it: what a start reads is looked
/// at first, then the first `rows_max` rows of every table. None where the file cannot be looked at, which others say.
pub fn spoilt_in(data: &std::path::Path, rows_max: u64) -> Option<(Spoilt, bool)> {
    let data = std::path::absolute(data).ok()?;
    let connection = crate::park::open_old(&data).ok()?;
    if let Some(first) = spoilt_at_start(&connection).ok()?.into_iter().next() {
        return Some((first, true));
    }
    let found = spoilt(&connection, rows_max).ok()?;
    found.into_iter().next().map(|first| (first, false))
}

pub(crate) fn spoilt_at_start(connection: &Connection) -> rusqlite::Result<Vec<Spoilt>> {
    let mut found = Vec::new();
    for table in AT_START {
        look(connection, table, u64::MAX, &mut found)?;
    }
    found.retain(|one| !SAID_BY_BROKERS.contains(&one.column.as_str()));
    Ok(found)
}

/// In every table that has no reader of its own.
pub(crate) fn spoilt(connection: &Connection, rows_max: u64) -> rusqlite::Result<Vec<Spoilt>> {
    let mut found = Vec::new();
    for table in own_tables(connection)? {
        look(connection, &table, rows_max, &mut found)?;
    }
    for one in look_at_identities(connection, rows_max)?.changed {
        found.push(Spoilt {
            table: "outbox".to_owned(),
            row: String::from_utf8_lossy(&one.now.id).into_owned(),
            column: one.column().to_owned(),
            why: "its key was made of another one".to_owned(),
        });
    }
    Ok(found)
}

/// Tables of our own: not SQLite's, not the list of versions, and not those that an index for searching or for vectors
/// keeps itself.
pub(crate) const IS_OWN: &str =
    "type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' AND name <> '_migrations'
     AND name NOT LIKE 'sqlite|_%' ESCAPE '|' AND name NOT LIKE 'inbox|_fts|_%' ESCAPE '|'
     AND name NOT LIKE 'memory|_fts|_%' ESCAPE '|' AND name NOT LIKE 'vectors|_%' ESCAPE '|'";

fn own_tables(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let sql = format!("SELECT name FROM sqlite_schema WHERE {IS_OWN} ORDER BY rowid");
    let mut statement = connection.prepare(&sql)?;
    let names = statement.query_map([], |row| row.get::<_, String>(0))?;
    let names = names.collect::<rusqlite::Result<Vec<_>>>()?;
    let is_ours = |name: &String| !ELSEWHERE.contains(&name.as_str());
    Ok(names.into_iter().filter(is_ours).collect())
}

/// The columns of a table that are looked at, each with what it means; the first one is what the row is known by.
fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<(String, Meaning)>> {
    let mut statement =
        connection.prepare("SELECT name, type FROM pragma_table_info(?1) ORDER BY cid")?;
    let rows = statement.query_map([table], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut columns = Vec::new();
    for row in rows {
        let (name, kind): (String, String) = row?;
        let mut meanings = MEANINGS.iter();
        let said = meanings.find(|(of, column, _)| *of == table && *column == name);
        match said {
            Some((_, _, meaning)) => columns.push((name, *meaning)),
            None if kind == "TEXT" => columns.push((name, Meaning::Text)),
            None => {}
        }
    }
    Ok(columns)
}

fn look(
    connection: &Connection,
    table: &str,
    rows_max: u64,
    found: &mut Vec<Spoilt>,
) -> rusqlite::Result<()> {
    let columns = columns(connection, table)?;
    if columns.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = columns
        .iter()
        .map(|(name, _)| format!("{name:?}"))
        .collect();
    let sql = format!(
        "SELECT {} FROM {table:?} NOT INDEXED LIMIT {}",
        names.join(", "),
        i64::try_from(rows_max).unwrap_or(i64::MAX)
    );
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        for (at, (column, meaning)) in columns.iter().enumerate() {
            if let Some(why) = wrong(row.get_ref(at)?, *meaning) {
                found.push(Spoilt {
                    table: table.to_owned(),
                    row: known_by(row, &columns, at),
                    column: column.clone(),
                    why,
                });
            }
        }
    }
    Ok(())
}

/// What a row is called: its first cell that can be read, and is not the one in question.
fn known_by(row: &Row<'_>, columns: &[(String, Meaning)], but: usize) -> String {
    let cells = (0..columns.len()).filter(|at| *at != but);
    let mut shown = cells.filter_map(|at| match row.get_ref(at).ok()? {
        ValueRef::Text(text) => Some(format!("{:?}", std::str::from_utf8(text).ok()?)),
        ValueRef::Blob(bytes) => Some(match <[u8; 16]>::try_from(bytes) {
            Ok(id) => Ulid::from_bytes(id).to_string(),
            Err(_) => hex(bytes),
        }),
        ValueRef::Integer(number) => Some(number.to_string()),
        _ => None,
    });
    shown.next().unwrap_or_else(|| "?".to_owned())
}

/// Why a cell is not what it means. That it may be null its table says, and SQLite checks that.
fn wrong(cell: ValueRef<'_>, meaning: Meaning) -> Option<String> {
    match cell {
        ValueRef::Null => None,
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => wrong_text(text, meaning).err(),
            Err(_) => {
                let shown = String::from_utf8_lossy(bytes);
                Some(format!("{:?} is no text", shorten(&shown)))
            }
        },
        ValueRef::Integer(number) => {
            (!is_number(number, meaning)).then(|| "there is no such number".to_owned())
        }
        ValueRef::Blob(bytes) if meaning == Meaning::Id && bytes.len() == 16 => None,
        _ => Some("it is something else".to_owned()),
    }
}

fn is_number(number: i64, meaning: Meaning) -> bool {
    match meaning {
        Meaning::Small => u32::try_from(number).is_ok(),
        Meaning::Count => number >= 0,
        Meaning::One => number == 1,
        Meaning::Flag => number == 0 || number == 1,
        _ => false,
    }
}

fn wrong_text(text: &str, meaning: Meaning) -> Result<(), String> {
    let known = |is_known: bool| {
        let unknown = || format!("{:?} is not known here", shorten(text));
        if is_known { Ok(()) } else { Err(unknown()) }
    };
    let name = |error: NameError| error.to_string();
    match meaning {
        Meaning::Text => Ok(()),
        Meaning::Agent => AgentName::parse(text).map(drop).map_err(name),
        Meaning::Mesh => MeshName::parse(text).map(drop).map_err(name),
        Meaning::Member => MemberName::parse(text).map(drop).map_err(name),
        Meaning::Topic => TopicName::parse(text).map(drop).map_err(name),
        Meaning::ClientId => {
            let parsed = ClientMessageId::parse(text).map(drop);
            parsed.map_err(|error| error.to_string())
        }
        Meaning::MeshKind => known(MeshKind::parse(text).is_some()),
        Meaning::Kind => known(matches!(text, "message" | "op")),
        Meaning::Priority => known(Priority::parse(text).is_some()),
        Meaning::List => {
            let parsed = serde_json::from_str::<Vec<String>>(text).map(drop);
            parsed.map_err(|error| error.to_string())
        }
        Meaning::Id | Meaning::Small | Meaning::Count | Meaning::One | Meaning::Flag => {
            Err("it is text".to_owned())
        }
    }
}

/// A cell may be long.
fn shorten(text: &str) -> String {
    const SHOWN_CHARS: usize = 60;
    let mut short: String = text.chars().take(SHOWN_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::MIGRATIONS;

    fn schema() -> Connection {
        heddle_sqlite::link_vectors().unwrap();
        let connection = Connection::open_in_memory().unwrap();
        for step in MIGRATIONS {
            connection.execute_batch(step.sql).unwrap();
        }
        connection
    }

    #[test]
    fn every_column_that_has_a_meaning_and_every_table_of_a_start_is_in_the_schema() {
        let connection = schema();
        for (table, column, _) in MEANINGS {
            let names = columns(&connection, table).unwrap();
            assert!(
                names.iter().any(|(name, _)| name == column),
                "{table}.{column}"
            );
        }
        let tables = own_tables(&connection).unwrap();
        for table in AT_START {
            assert!(tables.iter().any(|name| name == table), "{table}");
        }
        for table in ELSEWHERE {
            assert!(!tables.iter().any(|name| name == table), "{table}");
            assert!(
                crate::backup::has_table(&connection, table).unwrap(),
                "{table}"
            );
        }
    }

    #[test]
    fn every_text_of_every_table_is_looked_at() {
        let connection = schema();
        for table in own_tables(&connection).unwrap() {
            let mut statement = connection
                .prepare("SELECT name FROM pragma_table_info(?1) WHERE type = 'TEXT'")
                .unwrap();
            let texts = statement.query_map([&table], |row| row.get::<_, String>(0));
            let looked = columns(&connection, &table).unwrap();
            for text in texts.unwrap() {
                let text = text.unwrap();
                assert!(
                    looked.iter().any(|(name, _)| *name == text),
                    "{table}.{text}"
                );
            }
        }
    }

    #[test]
    fn a_cell_that_is_not_what_it_means_is_named_with_its_row() {
        let connection = schema();
        let insert = "INSERT INTO mesh (mesh_id, name, member_id, member_name, created_at)
            VALUES (zeroblob(16), 'home', zeroblob(16), 'ada', 1)";
        connection.execute_batch(insert).unwrap();
        assert_eq!(spoilt(&connection, u64::MAX).unwrap(), []);
        for bad in ["CAST(x'686fff65' AS TEXT)", "'ho me'", "''"] {
            let change = format!("UPDATE mesh SET name = {bad}");
            connection.execute_batch(&change).unwrap();
            let found = spoilt_at_start(&connection).unwrap();
            assert_eq!(found.len(), 1, "{bad}: {found:?}");
            assert_eq!(
                (found[0].table.as_str(), found[0].column.as_str()),
                ("mesh", "name")
            );
            assert_eq!(found[0].row, Ulid::nil().to_string());
        }
        connection
            .execute_batch("UPDATE mesh SET name = 'home', broker_url = CAST(x'ff' AS TEXT)")
            .unwrap();
        assert_eq!(
            spoilt_at_start(&connection).unwrap()[0].column,
            "broker_url"
        );
    }
}
