//! What a row of the data was when it was written, and whether it still is.
//!
//! A changed letter is a letter like any other and a changed number a number, so nothing but a digest tells that a disk has
//! changed one: served, it would be somebody's word, and sent, everybody's. Each row keeps one of two halves. The second is over
//! its value; the first is over everything else that means something and over the second, so that whoever compares stamps
//! needs not read the value. Every writer of these tables makes it, every reader compares; what differs is
//! [`StoreError::Corrupt`], as any other row that nobody can read.
//!
//! Cells count with their types: a text that became a blob is another cell. What is a home's own (`place`, `created_at`,
//! `changed`) is not covered. A file's content is covered by its hash, a vector's numbers by `vectors::numbers`.

use heddle_core::file::ContentHasher;
use heddle_core::ids::OpId;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::error::StoreError;

/// As `digest` holds it: of the head, then of the value.
pub(crate) type Digest = [u8; 32];
type Half = [u8; 16];

/// Why a row is not shown, in words.
pub const IS_CHANGED: &str =
    "it is not what was written here; the disk, or another program, has changed it";

/// A table whose rows are sealed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seal {
    pub(crate) table: &'static str,
    /// The column that its owner knows a row by.
    name: &'static str,
    /// Head, digest, value: what [`Seal::check`] takes the last columns of a row for.
    pub(crate) columns: &'static str,
    head: usize,
    value: usize,
}

// The last columns of a row that `Seal::check_head` is asked about, and with the value those of `Seal::check`.
macro_rules! memory_head {
    () => {
        "mesh_id, peer, key, tags, updated_at, lamport, incarnation, op_id, tombstone, digest"
    };
}
macro_rules! memory_whole {
    () => {
        concat!($crate::data::seal::memory_head!(), ", value")
    };
}
macro_rules! state_head {
    () => {
        "mesh_id, key, updated_by, updated_at, lamport, incarnation, op_id, tombstone, digest"
    };
}
macro_rules! state_whole {
    () => {
        concat!($crate::data::seal::state_head!(), ", value")
    };
}
macro_rules! file_head {
    () => {
        "mesh_id, peer, path, updated_at, lamport, incarnation, op_id, tombstone, storage,
         sha256, size, mime, digest"
    };
}
macro_rules! vector_head {
    () => {
        "mesh_id, peer, key, model_id, updated_at, lamport, incarnation, op_id, tombstone, digest"
    };
}
macro_rules! vector_whole {
    () => {
        concat!($crate::data::seal::vector_head!(), ", metadata, content")
    };
}
macro_rules! task_op_whole {
    () => {
        "mesh_id, task_id, op_id, digest, body"
    };
}
pub(crate) use {
    file_head, memory_head, memory_whole, state_head, state_whole, task_op_whole, vector_head,
    vector_whole,
};

pub(crate) const MEMORY: Seal = Seal {
    table: "memory",
    name: "key",
    columns: memory_whole!(),
    head: 9,
    value: 1,
};
pub(crate) const STATE: Seal = Seal {
    table: "state_kv",
    name: "key",
    columns: state_whole!(),
    head: 8,
    value: 1,
};
pub(crate) const FILES: Seal = Seal {
    table: "files",
    name: "path",
    columns: file_head!(),
    head: 12,
    value: 0,
};
pub(crate) const VECTORS: Seal = Seal {
    table: "vector_metadata",
    name: "key",
    columns: vector_whole!(),
    head: 9,
    value: 2,
};
pub(crate) const TASK_OP: Seal = Seal {
    table: "task_op",
    name: "task_id",
    columns: task_op_whole!(),
    head: 3,
    value: 1,
};

/// Those that have a number of their own, by which they are gone through.
pub(crate) const BY_PLACE: [Seal; 4] = [MEMORY, STATE, FILES, VECTORS];

impl Seal {
    /// The digest of a row that is about to be written, its cells in the order of its columns.
    pub(crate) fn of(
        &self,
        head: &[&dyn ToSql],
        value: &[&dyn ToSql],
    ) -> Result<Digest, StoreError> {
        debug_assert_eq!((head.len(), value.len()), (self.head, self.value));
        let value = half(self.table, |print| print.written(value))?;
        let head = half(self.table, |print| {
            print.written(head)?;
            print.bytes(&value);
            Ok(())
        })?;
        Ok(joined(head, value))
    }

    /// Whether everything but the value is what was written.
    pub(crate) fn check_head(&self, row: &Row<'_>) -> Result<(), StoreError> {
        self.compare(row, 0)
    }

    /// Whether all of it is.
    pub(crate) fn check(&self, row: &Row<'_>) -> Result<(), StoreError> {
        self.compare(row, self.value)
    }

    /// The digest of a row as it stands, whose last columns are all of these.
    pub(crate) fn of_row(&self, row: &Row<'_>) -> Result<Digest, StoreError> {
        let value = self.value_of(row)?;
        Ok(joined(self.head_of(row, self.value, value)?, value))
    }

    fn compare(&self, row: &Row<'_>, value: usize) -> Result<(), StoreError> {
        let at = row.as_ref().column_count().saturating_sub(value + 1);
        let kept = row.get_ref(at)?.as_blob().ok();
        let kept = kept.and_then(|bytes| bytes.split_at_checked(size_of::<Half>()));
        let is_kept = match kept {
            Some((head, of_value)) => match Half::try_from(of_value) {
                Ok(of_value) => {
                    head == self.head_of(row, value, of_value)?
                        && (value == 0 || of_value == self.value_of(row)?)
                }
                Err(_) => false,
            },
            None => false,
        };
        if is_kept {
            return Ok(());
        }
        Err(changed(self.table, self.name_cell(row)))
    }

    /// What its owner knows the row by, as far as it is text.
    pub(crate) fn name_of(&self, row: &Row<'_>) -> String {
        String::from_utf8_lossy(self.name_cell(row)).into_owned()
    }

    fn name_cell<'r>(&self, row: &'r Row<'_>) -> &'r [u8] {
        let at = row.as_ref().column_index(self.name).ok();
        let name = at.and_then(|at| row.get_ref(at).ok());
        let name = name.and_then(|name| name.as_bytes().ok());
        name.unwrap_or_default()
    }

    fn head_of(&self, row: &Row<'_>, value: usize, of_value: Half) -> Result<Half, StoreError> {
        let count = row.as_ref().column_count();
        let from = count.saturating_sub(value + 1 + self.head);
        half(self.table, |print| {
            for at in from..from + self.head {
                print.cell(row.get_ref(at)?);
            }
            print.bytes(&of_value);
            Ok(())
        })
    }

    fn value_of(&self, row: &Row<'_>) -> Result<Half, StoreError> {
        let count = row.as_ref().column_count();
        half(self.table, |print| {
            for at in count.saturating_sub(self.value)..count {
                print.cell(row.get_ref(at)?);
            }
            Ok(())
        })
    }
}

/// How the words begin for a task whose steps are not all here as they were written.
pub const A_STEP_OF: &str = "a step of task ";

pub(crate) fn changed_step(task: OpId, why: &str) -> String {
    format!("{A_STEP_OF}{task}: {why}")
}

/// The error for a row that is not what was written.
pub(crate) fn changed(table: &str, name: &[u8]) -> StoreError {
    let what = match (table, <[u8; 16]>::try_from(name).map(OpId::from_bytes)) {
        ("task_op", Ok(task)) => return StoreError::Corrupt(changed_step(task, IS_CHANGED)),
        (_, Ok(task)) if table.starts_with("task") => format!("task {task}"),
        _ => format!("{table} row {}", String::from_utf8_lossy(name)),
    };
    StoreError::Corrupt(format!("{what}: {IS_CHANGED}"))
}

pub(crate) fn joined(head: Half, value: Half) -> Digest {
    let mut digest = [0; 32];
    digest[..16].copy_from_slice(&head);
    digest[16..].copy_from_slice(&value);
    digest
}

/// Half of a digest over what `add` names.
pub(crate) fn half(
    table: &str,
    add: impl FnOnce(&mut Print) -> Result<(), StoreError>,
) -> Result<Half, StoreError> {
    let mut print = Print(ContentHasher::default());
    print.bytes(table.as_bytes());
    add(&mut print)?;
    let whole = print.0.finish().0;
    let mut half = Half::default();
    half.copy_from_slice(&whole[..size_of::<Half>()]);
    Ok(half)
}

/// Cells, one behind the other: none can pass for another one, each is told with its type and its length.
pub(crate) struct Print(ContentHasher);

impl Print {
    pub(crate) fn cell(&mut self, cell: ValueRef<'_>) {
        match cell {
            ValueRef::Null => self.0.update(b"n"),
            ValueRef::Integer(number) => self.fixed(*b"i", number.to_be_bytes()),
            ValueRef::Real(number) => self.fixed(*b"r", number.to_bits().to_be_bytes()),
            ValueRef::Text(bytes) => self.sized(*b"t", bytes),
            ValueRef::Blob(bytes) => self.sized(*b"b", bytes),
        }
    }

    /// Values that are about to be written, as SQLite will hold them.
    pub(crate) fn written(&mut self, cells: &[&dyn ToSql]) -> Result<(), StoreError> {
        for cell in cells {
            match cell.to_sql()? {
                ToSqlOutput::Borrowed(cell) => self.cell(cell),
                ToSqlOutput::Owned(cell) => self.cell(ValueRef::from(&cell)),
                _ => return Err(StoreError::Corrupt("a cell of no known kind".to_owned())),
            }
        }
        Ok(())
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.sized(*b"b", bytes);
    }

    fn fixed(&mut self, kind: [u8; 1], bytes: [u8; 8]) {
        self.0.update(&kind);
        self.0.update(&bytes);
    }

    fn sized(&mut self, kind: [u8; 1], bytes: &[u8]) {
        self.fixed(kind, (bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }
}

/// Whether every row of this file has got its digest: one without is changed from then on, and not only old.
pub(crate) fn is_sealed(connection: &Connection) -> rusqlite::Result<bool> {
    let sealed = connection.query_row("SELECT rows_sealed FROM store_state", [], |row| row.get(0));
    // A file that has lost the row is not the worse for it: a start puts it back.
    Ok(sealed.optional()?.unwrap_or(false))
}
