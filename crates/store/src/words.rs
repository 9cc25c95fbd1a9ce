//! Whether the indexes for searching hold the words of their rows. They keep no text of their own, so SQLite cannot compare them, and
//! a word that a disk has taken out of one hides a row from every search. Compared are the words that stand there with those that
//! the rows would be indexed by now, item by item.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use heddle_core::limits::SEARCH_ITEMS_COMPARED_MAX;
use rusqlite::{Connection, Error, params};

use crate::backup::has_table;
use crate::search_index::{is_of_index, problem};

const COLUMNS: usize = 3;
/// Items that are indexed anew at a time.
const ITEMS_AT_ONCE: usize = 500;

/// An index and the rows that it is made of.
struct Index {
    name: &'static str,
    /// What it finds.
    of: &'static str,
    columns: &'static str,
    /// The newest, so many of them.
    items: &'static str,
    /// Of one item: a word of each column; a column of which nobody knows what was indexed is null, and the last cell has a bit for it.
    words: &'static str,
}

const INDEXES: [Index; 2] = [
    Index {
        name: "memory_fts",
        of: "memories",
        columns: "key, words, tags",
        items: "SELECT place FROM memory WHERE tombstone = 0 ORDER BY place DESC LIMIT ?1",
        words: "SELECT key, words, tags, 0 FROM memory_words WHERE place = ?1",
    },
    Index {
        name: "inbox_fts",
        of: "messages",
        columns: "body, topic, sender",
        items: "SELECT arrival FROM inbox WHERE arrival <= (SELECT indexed_through FROM inbox_state)
            ORDER BY arrival DESC LIMIT ?1",
        words: "SELECT
                CASE WHEN json_valid(CAST(envelope AS TEXT)) THEN json_extract(CAST(envelope AS TEXT), '$.body') END,
                topic, sender_name || ' ' || sender_agent, NOT json_valid(CAST(envelope AS TEXT))
            FROM inbox WHERE arrival = ?1",
    },
];

/// Of each item, of each of its columns: what its words and their places add up to, in any order.
type Sums = HashMap<i64, [u64; COLUMNS]>;

/// What is wrong, one line for each index.
pub(crate) fn problems(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut found = Vec::new();
    for index in &INDEXES {
        if !has_table(connection, index.name)? {
            continue;
        }
        let wrong = match problem(connection, index.name, true)? {
            Some(problem) => Some(problem),
            None => match differing(connection, index) {
                Ok(0) => None,
                Ok(count) => Some(format!("{count} {} are not found by their words", index.of)),
                Err(error) if is_of_index(&error) => Some(format!("it cannot be read: {error}")),
                Err(error) => return Err(error),
            },
        };
        found.extend(wrong.map(|wrong| format!("{}, an index for searching: {wrong}", index.name)));
    }
    Ok(found)
}

/// How many items have other words there than they have. Items of which nobody can say are left to those who judge rows.
fn differing(connection: &Connection, index: &Index) -> rusqlite::Result<usize> {
    let limit = i64::try_from(SEARCH_ITEMS_COMPARED_MAX).unwrap_or(i64::MAX);
    let mut items = connection.prepare(index.items)?;
    let items = items.query_map([limit], |row| row.get(0))?;
    let items: Vec<i64> = items.collect::<rusqlite::Result<_>>()?;
    let there = sums(connection, index.name)?;
    let fresh = Connection::open_in_memory()?;
    let mut count = 0;
    for some in items.chunks(ITEMS_AT_ONCE) {
        let (wanted, unsaid) = anew(connection, &fresh, index, some)?;
        for item in some {
            let Some(unsaid) = unsaid.get(item) else {
                continue;
            };
            let words = |sums: &Sums| {
                let mut sums = sums.get(item).copied().unwrap_or_default();
                if *unsaid {
                    sums[0] = 0;
                }
                sums
            };
            count += usize::from(words(&there) != words(&wanted));
        }
    }
    Ok(count)
}

/// The same of an index that is made of these items now; and which of them could be read, with whether their first column says nothing.
fn anew(
    connection: &Connection,
    fresh: &Connection,
    index: &Index,
    items: &[i64],
) -> rusqlite::Result<(Sums, HashMap<i64, bool>)> {
    // As the schema makes it: an index under other rules would differ for every item.
    fresh.execute_batch(&format!(
        "DROP TABLE IF EXISTS fresh_index;
         CREATE VIRTUAL TABLE fresh_index USING fts5 ({}, content = '', contentless_delete = 1,
            tokenize = 'unicode61 remove_diacritics 2')",
        index.columns
    ))?;
    let mut read = connection.prepare_cached(index.words)?;
    let insert = format!(
        "INSERT INTO fresh_index (rowid, {}) VALUES (?1, ?2, ?3, ?4)",
        index.columns
    );
    let mut insert = fresh.prepare(&insert)?;
    let mut known = HashMap::new();
    for item in items {
        type Cells = (Option<String>, Option<String>, Option<String>, bool);
        let cells = read.query_row([item], |row| {
            Ok::<Cells, Error>((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        });
        // What cannot be read is told by others.
        let Ok((one, two, three, is_unsaid)) = cells else {
            continue;
        };
        insert.execute(params![item, one, two, three])?;
        known.insert(*item, is_unsaid);
    }
    drop(insert);
    Ok((sums(fresh, "fresh_index")?, known))
}

fn sums(connection: &Connection, index: &str) -> rusqlite::Result<Sums> {
    connection.execute_batch(&format!(
        "DROP TABLE IF EXISTS temp.heddle_words;
         CREATE VIRTUAL TABLE temp.heddle_words USING fts5vocab(main, {index}, instance)"
    ))?;
    let found = added_up(connection);
    connection.execute_batch("DROP TABLE IF EXISTS temp.heddle_words")?;
    found
}

fn added_up(connection: &Connection) -> rusqlite::Result<Sums> {
    let names = ["body", "key", "topic", "words", "sender", "tags"];
    let mut read = connection.prepare("SELECT doc, col, term, offset FROM temp.heddle_words")?;
    let mut rows = read.query([])?;
    let mut sums = Sums::new();
    while let Some(row) = rows.next()? {
        let column = row.get_ref(1)?.as_bytes().unwrap_or_default();
        let at = names.iter().position(|name| name.as_bytes() == column);
        let mut hasher = DefaultHasher::new();
        row.get_ref(2)?
            .as_bytes()
            .unwrap_or_default()
            .hash(&mut hasher);
        row.get::<_, i64>(3)?.hash(&mut hasher);
        let sum = &mut sums.entry(row.get(0)?).or_default()[at.unwrap_or_default() / 2];
        *sum = sum.wrapping_add(hasher.finish() | 1);
    }
    Ok(sums)
}
