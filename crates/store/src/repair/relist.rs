//! A file whose list of tables is damaged: a copy of its pages under a list that is made anew.
//!
//! The fresh file says which tables there are. A file of the same version has each of them where the fresh
//! one has it, because both were made by the same steps before the first row; what an older version has made
//! lies elsewhere and is found by the shape of its rows, where only one tree has that shape. The tables that
//! take the rows check every one of them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, params};

use super::pages::{self, Cell, Kind, PAGE_BYTES, Pages};
use crate::backup::BackupError;
use crate::park::{clear_draft, draft_of, open_old, with_suffix};

/// What the names of copies end with.
const PAGES: &str = ".pages";
const PLAIN: &str = ".plain";
pub(super) const COPIES: [&str; 2] = [PAGES, PLAIN];

/// The copy; gone when this is dropped.
pub(super) struct Relisted {
    pub(super) connection: Connection,
    _copy: Copy,
}

pub(super) struct Copy(pub(super) PathBuf);

impl Drop for Copy {
    fn drop(&mut self) {
        for end in ["", "-journal"] {
            let _ = fs::remove_file(with_suffix(&self.0, end));
        }
    }
}

/// A table as the fresh file has it.
struct Wanted {
    name: String,
    kind: Kind,
    root: usize,
    columns: Vec<Column>,
}

struct Column {
    name: String,
    declared: String,
    default: Option<String>,
    /// A row of before the column was added does not have it.
    may_be_missing: bool,
    is_key: bool,
    key_place: u32,
}

/// Whether the list of tables can be read and has all that the fresh file has.
pub(super) fn is_listed(old: &Connection, fresh: &Connection) -> rusqlite::Result<bool> {
    let names = |connection: &Connection| -> rusqlite::Result<Vec<String>> {
        let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
        let mut statement = connection.prepare(sql)?;
        let rows = statement.query_map([], |row| row.get(0))?;
        rows.collect()
    };
    let wanted = names(fresh)?;
    Ok(names(old).is_ok_and(|there| wanted.iter().all(|name| there.contains(name))))
}

pub(super) fn relist(data: &Path, fresh: &Connection) -> Result<Relisted, BackupError> {
    let copy = Copy(with_suffix(&draft_of(data), PAGES));
    let path = copy.0.clone();
    copy_pages(data, &path).map_err(BackupError::io("copied", &path))?;
    let wanted = wanted(fresh)?;
    let mut pages = Pages::open(&path).map_err(BackupError::io("read", &path))?;
    let places = places(&mut pages, &wanted);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let list = Connection::open_with_flags(&path, flags)?;
    list.pragma_update(None, "writable_schema", true)?;
    let insert = "INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql)
        VALUES ('table', ?1, ?1, ?2, ?3)";
    for (table, place) in wanted.iter().zip(places) {
        if let Some(place) = place.and_then(|place| i64::try_from(place).ok()) {
            list.execute(insert, params![table.name, place, table.sql()])?;
        }
    }
    list.close().map_err(|(_, error)| error)?;
    let connection = open_old(&path)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(Relisted {
        connection,
        _copy: copy,
    })
}

/// A copy of the file whose header says what the header of every whole file of ours says: where only the header is
/// damaged, everything behind it is there.
pub(super) fn under_a_plain_header(data: &Path) -> Result<Relisted, BackupError> {
    let copy = plain_copy(data)?;
    let connection = open_old(&copy.0)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(Relisted {
        connection,
        _copy: copy,
    })
}

/// The same as a file, gone when this is dropped. Its free pages are on no list any more.
pub(super) fn plain_copy(data: &Path) -> Result<Copy, BackupError> {
    let copy = Copy(with_suffix(&draft_of(data), PLAIN));
    let path = copy.0.clone();
    let made = copy_log_in(data, &path).and_then(|(mut file, count)| {
        let mut first = vec![0; PAGE_BYTES];
        file.seek(SeekFrom::Start(0))?;
        file.read_exact(&mut first)?;
        pages::write(&mut file, 1, &pages::plain_header(first, count))
    });
    made.map_err(BackupError::io("copied", &path))?;
    Ok(copy)
}

/// Whole pages only, with what the log holds of them, under a first page that lists nothing.
fn copy_pages(data: &Path, to: &Path) -> io::Result<()> {
    let (mut copy, count) = copy_log_in(data, to)?;
    pages::write(&mut copy, 1, &pages::empty_list(count))
}

/// Whole pages only, with what the log holds of them; how many there are.
fn copy_log_in(data: &Path, to: &Path) -> io::Result<(File, u32)> {
    // With the journal of a copy that a kill has left: it would be played back into this one.
    clear_draft(to)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let mut copy = options.open(to)?;
    io::copy(&mut heddle_sqlite::open_plain(data)?, &mut copy)?;
    pages::take_log_in(&mut copy, &with_suffix(data, "-wal"))?;
    let page = PAGE_BYTES as u64;
    let count = copy.metadata()?.len().div_ceil(page).max(1);
    copy.set_len(count * page)?;
    let count = u32::try_from(count).map_err(io::Error::other)?;
    Ok((copy, count))
}

fn wanted(fresh: &Connection) -> rusqlite::Result<Vec<Wanted>> {
    let mut statement = fresh.prepare(
        "SELECT name, rootpage, sql LIKE '%WITHOUT ROWID%' FROM sqlite_schema
         WHERE type = 'table' AND rootpage > 1 AND name NOT LIKE 'sqlite|_%' ESCAPE '|'
         ORDER BY rowid",
    )?;
    let rows = statement.query_map([], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get(2)?))
    })?;
    let mut tables = Vec::new();
    for row in rows {
        let (name, root, without_rowid): (String, i64, bool) = row?;
        tables.push(Wanted {
            columns: columns(fresh, &name)?,
            kind: if without_rowid {
                Kind::Keyed
            } else {
                Kind::Numbered
            },
            root: usize::try_from(root).unwrap_or(0),
            name,
        });
    }
    Ok(tables)
}

fn columns(fresh: &Connection, table: &str) -> rusqlite::Result<Vec<Column>> {
    let sql =
        "SELECT name, type, dflt_value, pk, \"notnull\" FROM pragma_table_info(?1) ORDER BY cid";
    let mut statement = fresh.prepare(sql)?;
    let rows = statement.query_map([table], |row| {
        let (default, key_place): (Option<String>, u32) = (row.get(2)?, row.get(3)?);
        let is_needed: bool = row.get(4)?;
        Ok(Column {
            name: row.get(0)?,
            declared: row.get(1)?,
            may_be_missing: key_place == 0 && (default.is_some() || !is_needed),
            default,
            is_key: key_place > 0,
            key_place,
        })
    })?;
    rows.collect()
}

impl Wanted {
    /// The shape alone: constraints would need indexes, and the tables that take the rows have them.
    fn sql(&self) -> String {
        let number = self.number_alias();
        let column = |(place, column): (usize, &Column)| {
            let default = column.default.as_ref();
            let default = default.map_or_else(String::new, |value| format!(" DEFAULT {value}"));
            let key = if number == Some(place) {
                " INTEGER PRIMARY KEY"
            } else {
                ""
            };
            format!("{:?}{key}{default}", column.name)
        };
        let columns: Vec<String> = self.columns.iter().enumerate().map(column).collect();
        let columns = columns.join(", ");
        let name = &self.name;
        match self.kind {
            Kind::Numbered => format!("CREATE TABLE {name:?} ({columns})"),
            Kind::Keyed => {
                let mut key: Vec<&Column> = self.keys().collect();
                key.sort_by_key(|column| column.key_place);
                let key: Vec<String> = key
                    .iter()
                    .map(|column| format!("{:?}", column.name))
                    .collect();
                let key = key.join(", ");
                format!("CREATE TABLE {name:?} ({columns}, PRIMARY KEY ({key})) WITHOUT ROWID")
            }
        }
    }

    fn keys(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.is_key)
    }

    /// The column that is the row's number, and stands as nothing in the row itself.
    fn number_alias(&self) -> Option<usize> {
        let is_alias =
            |column: &Column| column.is_key && column.declared.eq_ignore_ascii_case("integer");
        let place = self.columns.iter().position(is_alias)?;
        (self.kind == Kind::Numbered && self.keys().count() == 1).then_some(place)
    }

    /// The columns in the order in which a row holds them.
    fn stored(&self) -> Vec<(usize, &Column)> {
        let mut all: Vec<(usize, &Column)> = self.columns.iter().enumerate().collect();
        if self.kind == Kind::Keyed {
            all.sort_by_key(|(place, column)| match column.key_place {
                0 => (1, *place),
                key => (0, usize::try_from(key).unwrap_or(0)),
            });
        }
        all
    }

    /// Whether a row may be one of this table. Columns that came later may be missing at its end.
    fn takes(&self, row: &[Cell]) -> bool {
        let (stored, alias) = (self.stored(), self.number_alias());
        let late = stored.iter().rev();
        let late = late.take_while(|(_, column)| column.may_be_missing);
        let least = stored.len().saturating_sub(late.count());
        if row.len() > stored.len() || row.len() < least.max(1) {
            return false;
        }
        row.iter().zip(stored).all(|(cell, (place, column))| {
            let declared = column.declared.to_ascii_uppercase();
            match cell {
                Cell::Null => alias == Some(place) || !column.is_key,
                Cell::Number => declared == "INTEGER" || declared == "REAL",
                Cell::Blob => declared == "BLOB",
                Cell::Text => declared == "TEXT",
            }
        })
    }
}

/// Where each table begins, as far as that can be told.
fn places(pages: &mut Pages, wanted: &[Wanted]) -> Vec<Option<usize>> {
    let fits = |pages: &mut Pages, table: &Wanted, root: usize, empty_is_fine: bool| match pages
        .look(root)
    {
        Some((kind, Some(row))) => kind == table.kind && table.takes(&row),
        Some((kind, None)) => empty_is_fine && kind == table.kind,
        None => false,
    };
    let mut places: Vec<Option<usize>> = wanted
        .iter()
        .map(|table| fits(pages, table, table.root, true).then_some(table.root))
        .collect();
    if places.iter().all(Option::is_some) {
        return places;
    }
    let taken: Vec<usize> = places.iter().flatten().copied().collect();
    let mut free = pages.roots();
    free.retain(|root| !taken.contains(root));
    for (table, place) in wanted.iter().zip(&mut places) {
        if place.is_none() {
            let mut likely = free.iter().filter(|root| fits(pages, table, **root, false));
            *place = match (likely.next(), likely.next()) {
                (Some(only), None) => Some(*only),
                _ => None,
            };
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERED: &str = "CREATE TABLE many (n INTEGER PRIMARY KEY, t TEXT NOT NULL) STRICT;";
    const KEYED: &str = "CREATE TABLE keyed (v INTEGER NOT NULL, k TEXT NOT NULL, PRIMARY KEY (k))
        STRICT, WITHOUT ROWID;";
    const LATER: &str = "ALTER TABLE keyed ADD COLUMN late TEXT NOT NULL DEFAULT 'none';";
    const ROWS_OF_KEYED: &str = "INSERT INTO keyed (v, k) VALUES (1, 'a'), (2, 'b');";
    const ROWS_OF_MANY: &str = "
        WITH RECURSIVE up (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < 900)
        INSERT INTO many SELECT n, 'text ' || n FROM up;";

    /// A file of these steps, the first page of which is gone.
    fn damaged(folder: &Path, steps: &[&str]) -> PathBuf {
        let path = folder.join("x.db");
        let connection = Connection::open(&path).unwrap();
        for step in steps {
            connection.execute_batch(step).unwrap();
        }
        drop(connection);
        let mut bytes = fs::read(&path).unwrap();
        bytes[..PAGE_BYTES].fill(0xa5);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn fresh(steps: &[&str]) -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        for step in steps {
            connection.execute_batch(step).unwrap();
        }
        connection
    }

    #[test]
    fn lf_39_tables_are_found_where_they_are_and_where_an_older_version_has_put_them() {
        for steps in [
            &[NUMBERED, KEYED, LATER, ROWS_OF_KEYED, ROWS_OF_MANY][..],
            // Rows from before a column came, and roots elsewhere.
            &[KEYED, ROWS_OF_KEYED, NUMBERED, LATER, ROWS_OF_MANY],
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = damaged(folder.path(), steps);
            let before = fs::read(&path).unwrap();
            let relisted = relist(&path, &fresh(&[NUMBERED, KEYED, LATER])).unwrap();
            let many = "SELECT count(*), max(t) FROM many";
            let many = relisted
                .connection
                .query_row(many, [], |row| Ok((row.get(0)?, row.get(1)?)));
            assert_eq!(many.unwrap(), (900_i64, "text 99".to_owned()));
            let keyed = "SELECT group_concat(k || v || late) FROM keyed";
            let keyed = relisted
                .connection
                .query_row(keyed, [], |row| row.get::<_, String>(0));
            assert_eq!(keyed.unwrap(), "a1none,b2none");
            drop(relisted);
            assert_eq!(fs::read(&path).unwrap(), before);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_journal_that_a_killed_repair_left_is_not_played_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = damaged(
            folder.path(),
            &[NUMBERED, KEYED, ROWS_OF_KEYED, ROWS_OF_MANY],
        );
        // The journal of a change in the middle of which its process died.
        let other = folder.path().join("y.db");
        let writer = Connection::open(&other).unwrap();
        for step in [
            NUMBERED,
            KEYED,
            ROWS_OF_MANY,
            "PRAGMA cache_size = 2; BEGIN",
        ] {
            writer.execute_batch(step).unwrap();
        }
        let change = "UPDATE many SET t = 'another text that is longer ' || n";
        writer.execute_batch(change).unwrap();
        let copy = with_suffix(&draft_of(&path), PAGES);
        let journal = with_suffix(&copy, "-journal");
        fs::copy(with_suffix(&other, "-journal"), &journal).unwrap();
        drop(writer);
        let relisted = relist(&path, &fresh(&[NUMBERED, KEYED])).unwrap();
        let sql = "SELECT count(*), max(t) FROM many";
        let many = relisted
            .connection
            .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(many.unwrap(), (900_i64, "text 99".to_owned()));
        let keyed = "SELECT group_concat(k || v) FROM keyed";
        let keyed = relisted
            .connection
            .query_row(keyed, [], |row| row.get::<_, String>(0));
        assert_eq!(keyed.unwrap(), "a1,b2");
    }

    #[test]
    fn what_the_log_holds_counts_more_than_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        let connection = Connection::open(&path).unwrap();
        connection
            .pragma_update(None, "journal_mode", "WAL")
            .unwrap();
        connection
            .pragma_update(None, "wal_autocheckpoint", 0)
            .unwrap();
        connection.execute_batch(NUMBERED).unwrap();
        connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .unwrap();
        connection
            .execute("INSERT INTO many VALUES (1, 'in the log')", [])
            .unwrap();
        // As a crash leaves it: the copy of both files, and a first page that is gone.
        let copy = folder.path().join("y.db");
        let mut bytes = fs::read(&path).unwrap();
        bytes[..PAGE_BYTES].fill(0);
        fs::write(&copy, bytes).unwrap();
        fs::copy(with_suffix(&path, "-wal"), with_suffix(&copy, "-wal")).unwrap();
        let relisted = relist(&copy, &fresh(&[NUMBERED])).unwrap();
        let text = relisted
            .connection
            .query_row("SELECT t FROM many", [], |row| row.get::<_, String>(0));
        assert_eq!(text.unwrap(), "in the log");
    }
}
