//! What a file was before its owner shared it anew, as long as the new bytes are not here. Whoever is cut off reads that (seed
//! §14), and is told that it is not the last word.

use heddle_core::clock::WallMs;
use heddle_core::file::ContentHash;
use heddle_core::ids::{MeshId, OpId};
use rusqlite::{Connection, Row, params};

use super::look::{FileBytes, FileRow};
use crate::cells::Cells;
use crate::error::StoreError;
use crate::store::Store;

/// A file as it was, with its bytes where they are few.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBefore {
    pub row: FileRow,
    pub content: Option<Vec<u8>>,
    /// What stands under its path now.
    pub newer: OpId,
    pub newer_at: WallMs,
}

macro_rules! before {
    ($and:literal) => {
        concat!(
            "SELECT files.path, was.place, was.sha256, was.size, was.mime, was.storage, was.lamport,
                files.peer, was.op_id, was.incarnation, was.updated_at, was.content, files.op_id,
                files.updated_at
            FROM file_before AS was CROSS JOIN files ON files.place = was.place
            WHERE files.mesh_id = ?1 AND files.storage = 'blob' AND (was.storage = 'inline'
                OR EXISTS (SELECT 1 FROM blob_refs WHERE blob_refs.sha256 = was.sha256
                    AND blob_refs.here = 1 AND blob_refs.bytes = was.size)) AND ",
            $and
        )
    };
}

pub(crate) const BEFORE: &str = before!("was.place = ?2");
/// They are few: those whose new bytes are on their way.
pub(crate) const BEFORE_BY_OP: &str = before!("was.op_id = ?2");

pub(crate) const IS_BEFORE: &str = "
    SELECT 1 FROM file_before CROSS JOIN files ON files.place = file_before.place
    WHERE file_before.sha256 = ?1 AND file_before.storage = 'blob' AND files.storage = 'blob'
    LIMIT 1";

impl Store {
    /// What this file was, if its new bytes are not here and the old ones are.
    pub async fn file_before(
        &self,
        mesh: MeshId,
        now: &FileRow,
    ) -> Result<Option<FileBefore>, StoreError> {
        let place = now.place;
        self.read_few(move |connection| {
            let mut statement = connection.prepare_cached(BEFORE)?;
            let mut rows = statement.query(params![mesh.0.to_bytes(), place])?;
            rows.next()?.map(read).transpose().map(Option::flatten)
        })
        .await
    }

    /// The same by the id that it had.
    pub async fn file_before_by_id(
        &self,
        mesh: MeshId,
        id: OpId,
    ) -> Result<Option<FileBefore>, StoreError> {
        self.read_few(move |connection| {
            let mut statement = connection.prepare_cached(BEFORE_BY_OP)?;
            let mut rows = statement.query(params![mesh.0.to_bytes(), id.to_bytes()])?;
            rows.next()?.map(read).transpose().map(Option::flatten)
        })
        .await
    }
}

/// Whether the sweep leaves this blob alone, which no file names any more.
pub(super) fn is_before(connection: &Connection, hash: ContentHash) -> Result<bool, StoreError> {
    Ok(connection.prepare_cached(IS_BEFORE)?.exists([hash.0])?)
}

/// None where its bytes are not those that were shared.
fn read(row: &Row<'_>) -> Result<Option<FileBefore>, StoreError> {
    let mut cells = Cells::of("file_before", row);
    let path = cells.get()?;
    let place = cells.get()?;
    let hash = ContentHash(cells.get()?);
    let size = cells.count()?;
    let mime = cells.get()?;
    let storage: String = cells.get()?;
    let row = FileRow {
        place,
        path,
        hash,
        size,
        mime,
        bytes: match storage.as_str() {
            "inline" => FileBytes::Inline,
            _ => FileBytes::Blob,
        },
        stamp: cells.stamp()?,
        incarnation: cells.count()?,
        updated_at: cells.wall()?,
    };
    let content: Option<Vec<u8>> = cells.get()?;
    let newer = OpId::from_bytes(cells.get()?);
    let newer_at = cells.wall()?;
    if content
        .as_ref()
        .is_some_and(|bytes| ContentHash::of(bytes) != hash)
    {
        return Ok(None);
    }
    Ok(Some(FileBefore {
        row,
        content,
        newer,
        newer_at,
    }))
}
