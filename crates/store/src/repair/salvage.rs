//! Reading what can be read of one table, from both sides of what cannot.

use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, Row, Statement, params_from_iter};

use super::Kept;

/// Numbers that are tried one by one behind what cannot be read; then in leaps that double.
const STEPS_MAX: u32 = 100_000;
/// The widest leap; rows are numbered far below it.
const LEAP_MAX: i64 = 1 << 50;

/// A table of the fresh file, which the damaged one should have, too.
pub(super) struct Table {
    name: String,
    columns: Vec<String>,
    /// Empty where rows have numbers.
    key: Vec<String>,
}

/// Those that hold rows of their own: not SQLite's, not what is derived, not the list of versions.
pub(super) fn tables(new: &Connection) -> rusqlite::Result<Vec<Table>> {
    let mut statement = new.prepare(
        "SELECT name, sql LIKE '%WITHOUT ROWID%' FROM sqlite_schema
         WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' AND name <> '_migrations'
             AND name NOT LIKE 'sqlite|_%' ESCAPE '|' AND name NOT LIKE 'inbox|_fts|_%' ESCAPE '|'
             AND name NOT LIKE 'memory|_fts|_%' ESCAPE '|' AND name NOT LIKE 'vectors|_%' ESCAPE '|'
         ORDER BY rowid",
    )?;
    let names = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    names
        .map(|row| {
            let (name, without_rowid): (String, bool) = row?;
            describe(new, name, without_rowid)
        })
        .collect()
}

fn describe(new: &Connection, name: String, without_rowid: bool) -> rusqlite::Result<Table> {
    let mut statement = new.prepare("SELECT name, pk FROM pragma_table_info(?1) ORDER BY cid")?;
    let rows = statement.query_map([&name], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let columns: Vec<(String, u32)> = rows.collect::<rusqlite::Result<_>>()?;
    let mut key: Vec<&(String, u32)> = columns.iter().filter(|(_, place)| *place > 0).collect();
    key.sort_by_key(|(_, place)| *place);
    let key = key.into_iter().map(|(name, _)| name.clone());
    Ok(Table {
        key: if without_rowid {
            key.collect()
        } else {
            Vec::new()
        },
        columns: columns.iter().map(|(name, _)| name.clone()).collect(),
        name,
    })
}

pub(super) fn carry(old: &Connection, new: &Connection, table: &Table) -> rusqlite::Result<Kept> {
    let quoted: Vec<String> = table
        .columns
        .iter()
        .map(|name| format!("{name:?}"))
        .collect();
    let columns = quoted.join(", ");
    let places = vec!["?"; quoted.len()].join(", ");
    let name = &table.name;
    let insert = format!("INSERT OR REPLACE INTO {name:?} ({columns}) VALUES ({places})");
    let mut sink = Sink {
        write: new.prepare(&insert)?,
        kept: Kept {
            table: name.clone(),
            rows: 0,
            refused: 0,
            gaps: 0,
        },
    };
    if table.key.is_empty() {
        by_number(old, name, &columns, &mut sink)?;
    } else {
        from_both_ends(old, table, &columns, &mut sink)?;
    }
    Ok(sink.kept)
}

struct Sink<'c> {
    write: Statement<'c>,
    kept: Kept,
}

impl Sink<'_> {
    /// The cells behind the first `skip`. A row that the tables refuse is counted, not forced.
    fn take(
        &mut self,
        row: &Row<'_>,
        skip: usize,
    ) -> rusqlite::Result<Result<(), rusqlite::Error>> {
        let count = row.as_ref().column_count();
        let cells: rusqlite::Result<Vec<Value>> = (skip..count).map(|at| row.get(at)).collect();
        let cells = match cells {
            Ok(cells) => cells,
            Err(error) => return Ok(Err(error)),
        };
        match self.write.execute(params_from_iter(cells)) {
            Ok(_) => self.kept.rows += 1,
            Err(error) if is_refusal(&error) => self.kept.refused += 1,
            Err(error) => return Err(error),
        }
        Ok(Ok(()))
    }
}

fn is_refusal(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(
        code,
        Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig)
    )
}

/// Goes on behind what cannot be read, number by number until something can.
fn by_number(
    old: &Connection,
    name: &str,
    columns: &str,
    sink: &mut Sink<'_>,
) -> rusqlite::Result<()> {
    let sql = format!(
        "SELECT rowid, {columns} FROM {name:?} NOT INDEXED WHERE rowid > ?1 ORDER BY rowid"
    );
    let Ok(mut read) = old.prepare(&sql) else {
        sink.kept.gaps += 1;
        return Ok(());
    };
    let (mut from, mut steps, mut leap) = (-1_i64, 0_u32, 1_i64);
    loop {
        let mut rows = read.query([from])?;
        let is_end = loop {
            match rows.next() {
                Ok(None) => break true,
                Err(_) => break false,
                Ok(Some(row)) => {
                    let Ok(number) = row.get::<_, i64>(0) else {
                        break false;
                    };
                    if sink.take(row, 1)?.is_err() {
                        break false;
                    }
                    (from, steps, leap) = (number, 0, 1);
                }
            }
        };
        if is_end {
            return Ok(());
        }
        sink.kept.gaps += u64::from(steps == 0);
        steps = steps.saturating_add(1);
        if steps > STEPS_MAX {
            leap *= 2;
        }
        if leap > LEAP_MAX {
            return Ok(());
        }
        from = from.saturating_add(leap);
    }
}

/// Rows without numbers: from the first one on, and where that ends early, from the last one back.
fn from_both_ends(
    old: &Connection,
    table: &Table,
    columns: &str,
    sink: &mut Sink<'_>,
) -> rusqlite::Result<()> {
    for direction in ["ASC", "DESC"] {
        let key = |name: &String| format!("{name:?} {direction}");
        let order: Vec<String> = table.key.iter().map(key).collect();
        let sql = format!(
            "SELECT {columns} FROM {:?} NOT INDEXED ORDER BY {}",
            table.name,
            order.join(", ")
        );
        let is_end = match old.prepare(&sql) {
            Err(_) => false,
            Ok(mut read) => {
                let mut rows = read.query([])?;
                loop {
                    match rows.next() {
                        Ok(None) => break true,
                        Err(_) => break false,
                        Ok(Some(row)) => {
                            if sink.take(row, 0)?.is_err() {
                                break false;
                            }
                        }
                    }
                }
            }
        };
        if is_end {
            return Ok(());
        }
    }
    sink.kept.gaps += 1;
    Ok(())
}
