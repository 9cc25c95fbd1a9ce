//! Reading a row cell by cell into our types. Bad data is an error that names its place, never a panic.

use std::fmt::Display;

use heddle_core::clock::WallMs;
use heddle_core::data::DataValue;
use heddle_core::fingerprint::{Fingerprint, hex};
use heddle_core::ids::{HistoryId, OpId};
use heddle_core::lamport::{PeerId, Stamp};
use rusqlite::Row;
use rusqlite::types::{FromSql, ValueRef};
use ulid::Ulid;

use crate::error::StoreError;

/// The cells of one row, taken from left to right. The first one must be what the row is known by.
pub(crate) struct Cells<'r, 's> {
    row: &'r Row<'s>,
    table: &'static str,
    next: usize,
    known_by: usize,
    /// The first cell that could not be read, where the reader goes on behind it.
    damage: Option<String>,
}

impl<'r, 's> Cells<'r, 's> {
    pub(crate) fn of(table: &'static str, row: &'r Row<'s>) -> Self {
        Self {
            row,
            table,
            next: 0,
            known_by: 0,
            damage: None,
        }
    }

    /// For a row whose name, which its owner knows, stands in another column.
    #[must_use]
    pub(crate) fn known_by(mut self, column: usize) -> Self {
        self.known_by = column;
        self
    }

    /// The next `width` cells; or, where they cannot be read, something in their place, and a note of it. For lists, which
    /// must not be lost for one row.
    pub(crate) fn or<T>(
        &mut self,
        width: usize,
        read: impl FnOnce(&mut Self) -> Result<T, StoreError>,
        instead: impl FnOnce(String) -> T,
    ) -> Result<T, StoreError> {
        let from = self.next;
        let read = read(self);
        self.next = from + width;
        match read {
            Err(StoreError::Corrupt(why)) => {
                self.damage.get_or_insert(why);
                let cell = self.row.get_ref(from).ok();
                let bytes = cell
                    .and_then(|cell| cell.as_bytes().ok())
                    .unwrap_or_default();
                Ok(instead(String::from_utf8_lossy(bytes).into_owned()))
            }
            other => other,
        }
    }

    /// What could not be read so far, if anything.
    pub(crate) fn damage(&mut self) -> Option<String> {
        self.damage.take()
    }

    /// The next cell as SQLite gives it.
    pub(crate) fn get<T: FromSql>(&mut self) -> Result<T, StoreError> {
        let index = self.next;
        self.next += 1;
        self.row.get(index).map_err(|error| self.bad(error))
    }

    /// The next cell, text, through a parser that knows why it refuses.
    pub(crate) fn parsed<T, E: Display>(
        &mut self,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, StoreError> {
        let text: String = self.get()?;
        parse(&text).map_err(|error| self.bad(error))
    }

    /// The next cell, a value as it was kept: canonical JSON. Whoever judges a store judges by the same.
    pub(crate) fn value(&mut self) -> Result<String, StoreError> {
        let text: String = self.get()?;
        self.kept(text)
    }

    /// The same where a mark of what was deleted has none.
    pub(crate) fn value_or_null(&mut self) -> Result<Option<String>, StoreError> {
        let text: Option<String> = self.get()?;
        text.map(|text| self.kept(text)).transpose()
    }

    fn kept(&self, text: String) -> Result<String, StoreError> {
        let kept = DataValue::kept(text).map_err(|error| self.bad(error))?;
        Ok(kept.into_string())
    }

    /// The next cell, one word of a closed list.
    pub(crate) fn word<T>(
        &mut self,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, StoreError> {
        self.parsed(|text| parse(text).ok_or_else(|| format!("{text:?} is not known here")))
    }

    /// The next cell, a number that is never below zero.
    pub(crate) fn count(&mut self) -> Result<u64, StoreError> {
        let number: i64 = self.get()?;
        u64::try_from(number).map_err(|error| self.bad(error))
    }

    pub(crate) fn ulid(&mut self) -> Result<Ulid, StoreError> {
        Ok(Ulid::from_bytes(self.get()?))
    }

    pub(crate) fn ulid_or_null(&mut self) -> Result<Option<Ulid>, StoreError> {
        Ok(self.get::<Option<_>>()?.map(Ulid::from_bytes))
    }

    pub(crate) fn fingerprint(&mut self) -> Result<Fingerprint, StoreError> {
        Ok(Fingerprint(self.get()?))
    }

    pub(crate) fn wall(&mut self) -> Result<WallMs, StoreError> {
        Ok(WallMs(self.get()?))
    }

    pub(crate) fn wall_or_null(&mut self) -> Result<Option<WallMs>, StoreError> {
        Ok(self.get::<Option<_>>()?.map(WallMs))
    }

    /// Three cells: lamport, peer, op id.
    pub(crate) fn stamp(&mut self) -> Result<Stamp, StoreError> {
        Ok(Stamp {
            lamport: self.count()?,
            peer: PeerId::new(&self.get::<String>()?),
            op: OpId::from_bytes(self.get()?),
        })
    }

    /// Two cells: epoch and seq.
    pub(crate) fn history(&mut self) -> Result<HistoryId, StoreError> {
        Ok(history_of(self.get()?, self.get()?))
    }

    /// Two cells: both or neither.
    pub(crate) fn history_or_null(&mut self) -> Result<Option<HistoryId>, StoreError> {
        match (self.get()?, self.get()?) {
            (Some(epoch), Some(seq)) => Ok(Some(history_of(epoch, seq))),
            (None, None) => Ok(None),
            _ => Err(self.bad("half a history id")),
        }
    }

    /// The error for the cell that was taken last.
    pub(crate) fn bad(&self, why: impl Display) -> StoreError {
        let column = self
            .row
            .as_ref()
            .column_name(self.next.saturating_sub(1))
            .unwrap_or("?");
        let known_by = match self.row.get_ref(self.known_by) {
            Ok(ValueRef::Integer(number)) => number.to_string(),
            Ok(ValueRef::Text(text)) => String::from_utf8_lossy(text).into_owned(),
            Ok(ValueRef::Blob(bytes)) => hex(bytes),
            _ => "?".to_owned(),
        };
        let table = self.table;
        StoreError::Corrupt(format!("{table} row {known_by}, column {column}: {why}"))
    }
}

/// The cell of such a number; beyond 2^63 there is none, and the whole job fails (LF-06).
pub(crate) fn count_cell(number: u64) -> Result<i64, StoreError> {
    i64::try_from(number)
        .map_err(|_| StoreError::Corrupt(format!("{number} is beyond what a row can hold")))
}

/// SQLite has no unsigned numbers. The two casts are inverse to each other, so nothing that a
/// broker can say is refused or changed here; order is compared in Rust, never in SQL.
pub(crate) fn history_cells(id: HistoryId) -> (i64, i64) {
    (id.epoch.cast_signed(), id.seq.cast_signed())
}

fn history_of(epoch: i64, seq: i64) -> HistoryId {
    HistoryId {
        epoch: epoch.cast_unsigned(),
        seq: seq.cast_unsigned(),
    }
}
