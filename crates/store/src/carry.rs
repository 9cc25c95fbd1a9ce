//! Which tables of a damaged file are whole, and carrying them over into a new one.
//!
//! Tables are copied as the old file describes them, row by row, before their indexes and triggers are
//! made: a row that was `done` must come over without having begun as `pending` again. Whatever tables
//! a later version adds outside of the inbox come along by themselves.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params_from_iter};

use crate::inbox::mark_all;

/// The tables of the inbox begin with this; beside them only the delivery cursor belongs to it.
const INBOX: &str = "inbox";
const SEARCH_INDEX: &str = "inbox_fts";
/// Derived from the table `memory`, and filled anew from it.
const MEMORY_INDEX: &str = "memory_fts";
const DELIVERY_CURSOR: &str = "delivery";
/// The table of each model's vectors is called so, and its own tables are called after it.
const VECTORS: &str = "vectors_";
const OWED_HOOKS: &str = "inbox_hook";
/// Between the highest place of arrival that is known and the first new one, where the counter itself
/// cannot be read: a place is never given twice.
const ARRIVAL_LEAP: i64 = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The inbox's rows cannot be trusted: it begins anew.
    InboxDamaged,
    /// Only what is derived from them (the search index, free pages): they come over, too.
    InboxWhole,
    /// Nothing may be touched.
    OutsideOfInboxDamaged,
}

/// Reads only.
pub(crate) fn judge(old: &Connection) -> Verdict {
    let Ok(tables) = tables(old) else {
        return Verdict::OutsideOfInboxDamaged;
    };
    let outside_is_whole = tables
        .iter()
        .filter(|table| !is_inbox(&table.name) && table.name != MEMORY_INDEX)
        .all(|table| is_whole(old, &table.name) && vectors_are_whole(old, &table.name));
    if tables.is_empty() || !outside_is_whole {
        return Verdict::OutsideOfInboxDamaged;
    }
    let rows_are_whole = tables
        .iter()
        .filter(|table| table.name == INBOX || table.name == DELIVERY_CURSOR)
        .all(|table| is_whole(old, &table.name));
    if rows_are_whole {
        Verdict::InboxWhole
    } else {
        Verdict::InboxDamaged
    }
}

/// Fills `new`, an empty file, in one transaction.
pub(crate) fn over(
    old: &Connection,
    new: &mut Connection,
    verdict: Verdict,
) -> rusqlite::Result<()> {
    // One file without companions: it is renamed as a whole.
    new.pragma_update(None, "journal_mode", "DELETE")?;
    new.pragma_update(None, "synchronous", "FULL")?;
    let transaction = new.transaction()?;
    for table in tables(old)? {
        transaction.execute_batch(&table.sql)?;
        let left_behind = match table.name.as_str() {
            SEARCH_INDEX | MEMORY_INDEX => true,
            INBOX | DELIVERY_CURSOR => verdict == Verdict::InboxDamaged,
            OWED_HOOKS => verdict == Verdict::InboxDamaged || !is_whole(old, &table.name),
            // Ids of what retention took, cursors, receipts: kept where they can be read.
            name => is_inbox(name) && !is_whole(old, name),
        };
        if is_vectors(&table.name) {
            copy_vectors(old, &transaction, &table.name)?;
        } else if !left_behind {
            copy(old, &transaction, &table.name)?;
        }
    }
    carry_counter(old, &transaction)?;
    begin_search_anew(&transaction)?;
    let mut others = old.prepare(
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND (type = 'index' OR type = 'trigger' OR type = 'view')",
    )?;
    let mut rows = others.query([])?;
    while let Some(row) = rows.next()? {
        transaction.execute_batch(&row.get::<_, String>(0)?)?;
    }
    index_memory_anew(&transaction)?;
    if verdict == Verdict::InboxDamaged {
        mark_all(&transaction)?;
    }
    let version: u32 = old.pragma_query_value(None, "user_version", |row| row.get(0))?;
    transaction.pragma_update(None, "user_version", version)?;
    transaction.commit()
}

struct Table {
    name: String,
    sql: String,
}

/// Without SQLite's own, and without the tables behind the search indexes, which they make themselves.
fn tables(old: &Connection) -> rusqlite::Result<Vec<Table>> {
    let mut statement = old.prepare(
        "SELECT name, sql FROM sqlite_schema
         WHERE type = 'table' AND sql IS NOT NULL AND name NOT LIKE 'sqlite|_%' ESCAPE '|'
             AND name NOT LIKE 'inbox|_fts|_%' ESCAPE '|'
             AND name NOT LIKE 'memory|_fts|_%' ESCAPE '|'
             AND name NOT LIKE 'vectors|_%|_%' ESCAPE '|'
         ORDER BY rowid",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(Table {
            name: row.get(0)?,
            sql: row.get(1)?,
        })
    })?;
    rows.collect()
}

fn is_inbox(name: &str) -> bool {
    name == DELIVERY_CURSOR || name.starts_with(INBOX)
}

/// The virtual table of a model, not one of those behind it.
fn is_vectors(name: &str) -> bool {
    name.strip_prefix(VECTORS)
        .is_some_and(|model| !model.contains('_'))
}

/// Of a virtual table SQLite checks nothing; its rows stand in the tables behind it.
fn vectors_are_whole(old: &Connection, name: &str) -> bool {
    if !is_vectors(name) {
        return true;
    }
    let behind = old
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE ?1 ESCAPE '|'")
        .and_then(|mut statement| {
            let like = format!("{}|_%", name.replace('_', "|_"));
            let names = statement.query_map([like], |row| row.get::<_, String>(0))?;
            names.collect::<rusqlite::Result<Vec<_>>>()
        });
    behind.is_ok_and(|names| names.iter().all(|name| is_whole(old, name)))
}

/// The vectors under the numbers that they had: what belongs to them is found by those.
fn copy_vectors(old: &Connection, new: &Connection, table: &str) -> rusqlite::Result<()> {
    let mut read = old.prepare(&format!("SELECT rowid, embedding FROM {table:?}"))?;
    let insert = format!("INSERT INTO {table:?} (rowid, embedding) VALUES (?1, ?2)");
    let mut write = new.prepare(&insert)?;
    let mut rows = read.query([])?;
    while let Some(row) = rows.next()? {
        let (rowid, embedding): (i64, Value) = (row.get(0)?, row.get(1)?);
        write.execute((rowid, embedding))?;
    }
    Ok(())
}

/// The table with its indexes, as SQLite checks it.
fn is_whole(old: &Connection, table: &str) -> bool {
    let sql = format!("PRAGMA integrity_check({table:?})");
    let verdict = old.query_row(&sql, [], |row| row.get::<_, String>(0));
    verdict.is_ok_and(|verdict| verdict == "ok")
}

fn copy(old: &Connection, new: &Connection, table: &str) -> rusqlite::Result<()> {
    let mut read = old.prepare(&format!("SELECT * FROM {table:?}"))?;
    let columns = read.column_count();
    let names: Vec<String> = read
        .column_names()
        .map(|name| format!("{name:?}"))
        .collect();
    // Rows that the schema puts there by itself (the one row of a state table) are replaced.
    let mut write = new.prepare(&format!(
        "INSERT OR REPLACE INTO {table:?} ({}) VALUES ({})",
        names.join(", "),
        vec!["?"; columns].join(", ")
    ))?;
    let mut rows = read.query([])?;
    while let Some(row) = rows.next()? {
        let cells: Vec<Value> = (0..columns)
            .map(|index| row.get(index))
            .collect::<rusqlite::Result<_>>()?;
        write.execute(params_from_iter(cells))?;
    }
    Ok(())
}

/// A place of arrival that was given is never given again, also to a reader who resumes behind it.
fn carry_counter(old: &Connection, new: &Connection) -> rusqlite::Result<()> {
    let counter = old.query_row(
        "SELECT seq FROM sqlite_sequence WHERE name = 'inbox'",
        [],
        |row| row.get::<_, i64>(0),
    );
    let last = match counter.optional() {
        Ok(last) => last.unwrap_or(0),
        Err(_) => highest_known(old).saturating_add(ARRIVAL_LEAP),
    };
    let set = "UPDATE sqlite_sequence SET seq = max(seq, ?1) WHERE name = 'inbox'";
    if new.execute(set, [last])? == 0 && last > 0 {
        new.execute(
            "INSERT INTO sqlite_sequence (name, seq) VALUES ('inbox', ?1)",
            [last],
        )?;
    }
    Ok(())
}

fn highest_known(old: &Connection) -> i64 {
    [
        "SELECT max(arrival) FROM inbox",
        "SELECT max(indexed_through, pruned_through) FROM inbox_state",
        "SELECT max(read_through) FROM inbox_session",
    ]
    .iter()
    .filter_map(|sql| {
        old.query_row(sql, [], |row| row.get::<_, Option<i64>>(0))
            .ok()?
    })
    .max()
    .unwrap_or(0)
}

/// The index is empty, so nothing is indexed. A file of a version without one has nothing to mark.
pub(crate) fn begin_search_anew(new: &Connection) -> rusqlite::Result<()> {
    let has_state = new
        .prepare("SELECT 1 FROM sqlite_schema WHERE name = 'inbox_state'")?
        .exists([])?;
    if has_state {
        let seeded = "INSERT INTO inbox_state (only_row) VALUES (1) ON CONFLICT DO NOTHING";
        new.execute(seeded, [])?;
        new.execute("UPDATE inbox_state SET indexed_through = 0", [])?;
    }
    Ok(())
}

/// The words of every memory, through the view that the triggers use, too. A file of a version without
/// data has none.
pub(crate) fn index_memory_anew(new: &Connection) -> rusqlite::Result<()> {
    let has_words = new
        .prepare("SELECT 1 FROM sqlite_schema WHERE name = 'memory_words'")?
        .exists([])?;
    if has_words {
        new.execute(
            "INSERT INTO memory_fts (rowid, key, words, tags)
             SELECT place, key, words, tags FROM memory_words",
            [],
        )?;
    }
    Ok(())
}
