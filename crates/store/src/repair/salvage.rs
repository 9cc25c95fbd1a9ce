//! Reading what can be read of one table, from both sides of what cannot, and in between.

mod between;

use std::cmp::Ordering;

use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, Row, Statement, params_from_iter};

use super::{Kept, mend};
use crate::meaning::{IS_OWN, Meanings};

/// Numbers that are tried one by one behind what cannot be read; then in leaps that double, back to where what was
/// found begins.
const STEPS_MAX: u32 = 10_000;
/// And in one table as a whole: a table with very many holes is leapt through from there on.
const STEPS_TOTAL: u64 = 200_000;
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
    let mut statement = new.prepare(&format!(
        "SELECT name, sql LIKE '%WITHOUT ROWID%' FROM sqlite_schema WHERE {IS_OWN} ORDER BY rowid"
    ))?;
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

impl Table {
    fn key_of(&self, row: &Row<'_>) -> rusqlite::Result<Vec<Value>> {
        self.key.iter().map(|name| row.get(name.as_str())).collect()
    }
}

pub(super) fn carry(old: &Connection, new: &Connection, table: &Table) -> rusqlite::Result<Kept> {
    carry_counted(old, new, table).map(|(kept, _)| kept)
}

/// With how often the damaged file was asked for a row.
fn carry_counted(
    old: &Connection,
    new: &Connection,
    table: &Table,
) -> rusqlite::Result<(Kept, u64)> {
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
        meanings: Meanings::of(name, &table.columns),
        kept: Kept {
            table: name.clone(),
            rows: 0,
            refused: 0,
            gaps: 0,
            mended: Vec::new(),
        },
        looks: 0,
    };
    if table.key.is_empty() {
        by_number(old, name, &columns, &mut sink)?;
    } else {
        from_both_ends(old, table, &columns, &mut sink)?;
    }
    Ok((sink.kept, sink.looks))
}

struct Sink<'c> {
    write: Statement<'c>,
    meanings: Meanings,
    kept: Kept,
    /// How often the damaged file was asked for a row.
    looks: u64,
}

impl Sink<'_> {
    /// The cells behind the first `skip`. A row that the tables refuse is counted, not forced; one of which a cell cannot
    /// be read is mended or refused as well.
    fn take(&mut self, row: &Row<'_>, skip: usize) -> rusqlite::Result<()> {
        let Some((cells, mended)) = mend::cells(&self.meanings, row, skip) else {
            self.kept.refused += 1;
            return Ok(());
        };
        match self.write.execute(params_from_iter(cells)) {
            Ok(_) => {
                self.kept.rows += 1;
                self.kept.mended.extend(mended);
            }
            Err(error) if is_refusal(&error) => self.kept.refused += 1,
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn is_refusal(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(
        code,
        Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig)
    )
}

/// Where reading by number stands. It only ever goes up: a damaged tree can give its numbers in any order, and those of
/// a page that leads back to itself for ever.
struct Climb {
    /// The lowest number that is still to be read. Asked for by itself: to find what stands behind a number SQLite
    /// first goes where that number stands, and that may be what cannot be read.
    from: i64,
    /// Steps since the last row that was read.
    steps: u32,
    leap: i64,
    /// Steps of the whole table.
    total: u64,
}

impl Climb {
    fn new() -> Self {
        Self {
            from: 0,
            steps: 0,
            leap: 1,
            total: 0,
        }
    }

    /// Whether this is a row to take: a number that was passed before is damage.
    fn reach(&mut self, number: i64) -> bool {
        let rises = number >= self.from && number < i64::MAX;
        if rises {
            (self.from, self.steps, self.leap) = (number.saturating_add(1), 0, 1);
        }
        rises
    }

    /// Goes on behind what could not be read; false where there is nowhere to go.
    fn step(&mut self) -> bool {
        self.steps = self.steps.saturating_add(1);
        self.total += 1;
        if self.steps > STEPS_MAX || self.total > STEPS_TOTAL {
            self.leap *= 2;
        }
        if self.leap > LEAP_MAX || self.from >= i64::MAX - 1 {
            return false;
        }
        self.from = self.from.saturating_add(self.leap).min(i64::MAX - 1);
        true
    }
}

/// Goes on behind what cannot be read, number by number until something can.
fn by_number(
    old: &Connection,
    name: &str,
    columns: &str,
    sink: &mut Sink<'_>,
) -> rusqlite::Result<()> {
    let sql = format!(
        "SELECT rowid, {columns} FROM {name:?} NOT INDEXED WHERE rowid >= ?1 ORDER BY rowid"
    );
    let Ok(mut read) = old.prepare(&sql) else {
        sink.kept.gaps += 1;
        return Ok(());
    };
    let mut climb = Climb::new();
    loop {
        let mut rows = read.query([climb.from])?;
        let is_end = loop {
            sink.looks += 1;
            match rows.next() {
                Ok(None) => break true,
                Err(_) => break false,
                Ok(Some(row)) => {
                    let Ok(number) = row.get::<_, i64>(0) else {
                        break false;
                    };
                    if !climb.reach(number) {
                        break false;
                    }
                    sink.take(row, 1)?;
                }
            }
        };
        drop(rows);
        if is_end {
            return Ok(());
        }
        sink.kept.gaps += u64::from(climb.steps == 0);
        if !climb.step() {
            return Ok(());
        }
        if climb.leap > 1 {
            climb.from = beginning(&mut read, climb.from - climb.leap, climb.from, sink)?;
        }
    }
}

/// The lowest number above `below`, where nothing can be read, from which on something can; `at` if that is none.
fn beginning(
    read: &mut Statement<'_>,
    below: i64,
    at: i64,
    sink: &mut Sink<'_>,
) -> rusqlite::Result<i64> {
    let mut gives = |from: i64| -> rusqlite::Result<bool> {
        sink.looks += 1;
        let mut rows = read.query([from])?;
        Ok(match rows.next() {
            Ok(Some(row)) => row.get::<_, i64>(0).is_ok_and(|number| number >= from),
            // The leap went over the last row.
            Ok(None) => true,
            Err(_) => false,
        })
    };
    let (mut low, mut high) = (below, at);
    if !gives(high)? {
        return Ok(at);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if gives(middle)? {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(high)
}

/// Rows without numbers: from the first one on, and where that ends early, from the last one back; then what stands
/// between the two.
fn from_both_ends(
    old: &Connection,
    table: &Table,
    columns: &str,
    sink: &mut Sink<'_>,
) -> rusqlite::Result<()> {
    let mut reached: Option<Vec<Value>> = None;
    let (mut ends, mut have_met) = (Vec::new(), false);
    for (direction, onward) in [("ASC", Ordering::Less), ("DESC", Ordering::Greater)] {
        let key = |name: &String| format!("{name:?} {direction}");
        let order: Vec<String> = table.key.iter().map(key).collect();
        let sql = format!(
            "SELECT {columns} FROM {:?} NOT INDEXED ORDER BY {}",
            table.name,
            order.join(", ")
        );
        let Ok(mut read) = old.prepare(&sql) else {
            continue;
        };
        let mut rows = read.query([])?;
        let mut last: Option<Vec<Value>> = None;
        loop {
            sink.looks += 1;
            let row = match rows.next() {
                Ok(None) if direction == "ASC" => return Ok(()),
                Ok(None) | Err(_) => break,
                Ok(Some(row)) => row,
            };
            let Ok(key) = table.key_of(row) else {
                break;
            };
            // A page that leads back to itself gives its rows for ever; and what came from the other end is here.
            let is_onward = |last: &Vec<Value>| order_of(last, &key) == onward;
            let is_new = |reached: &Vec<Value>| order_of(reached, &key).is_lt();
            if !last.as_ref().is_none_or(is_onward) {
                break;
            }
            if direction == "DESC" && !reached.as_ref().is_none_or(is_new) {
                have_met = true;
                break;
            }
            sink.take(row, 0)?;
            last = Some(key);
        }
        ends.extend(last.clone());
        reached = last;
    }
    sink.kept.gaps += 1;
    match <[Vec<Value>; 2]>::try_from(ends) {
        Ok([low, high]) if !have_met => between::between(old, table, columns, sink, (low, high)),
        _ => Ok(()),
    }
}

/// As SQLite sorts keys: by kind, then by what they hold. Our keys have no collation of their own.
fn order_of(one: &[Value], other: &[Value]) -> Ordering {
    let kind = |value: &Value| match value {
        Value::Null => 0,
        Value::Integer(_) | Value::Real(_) => 1,
        Value::Text(_) => 2,
        Value::Blob(_) => 3,
    };
    let cells = one
        .iter()
        .zip(other)
        .map(|(one, other)| match (one, other) {
            (Value::Integer(one), Value::Integer(other)) => one.cmp(other),
            (Value::Text(one), Value::Text(other)) => one.cmp(other),
            (Value::Blob(one), Value::Blob(other)) => one.cmp(other),
            _ => kind(one).cmp(&kind(other)),
        });
    cells
        .into_iter()
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests;
