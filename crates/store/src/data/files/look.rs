//! Reading shared files: one by id or path, its bytes, or a list page by page.

use heddle_core::clock::WallMs;
use heddle_core::file::{ContentHash, FilePath};
use heddle_core::ids::{MeshId, OpId};
use heddle_core::lamport::{PeerId, Stamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::cells::Cells;
use crate::data::seal::{FILES, changed, file_head};
use crate::error::StoreError;
use crate::store::Store;
use crate::unreadable::or_without;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRow {
    pub place: i64,
    pub path: String,
    pub hash: ContentHash,
    pub size: u64,
    pub mime: Option<String>,
    pub bytes: FileBytes,
    pub stamp: Stamp,
    pub incarnation: u64,
    pub updated_at: WallMs,
}

impl FileRow {
    /// The op that made the row: the file, until its path is shared again.
    pub fn id(&self) -> OpId {
        self.stamp.op
    }
}

/// Where a file's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileBytes {
    Inline,
    Blob,
    /// Another home has them; this one knows only who they are.
    Elsewhere,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileFind {
    Id(OpId),
    Path(PeerId, FilePath),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFilter {
    pub mesh: MeshId,
    /// Whose; `None` for everybody's.
    pub peer: Option<PeerId>,
    /// What the paths begin with; empty for all of them.
    pub prefix: String,
    /// The place of the last row of the page before.
    pub after: Option<i64>,
    pub limit: usize,
}

// A blob of another length than its owner says is not what its owner means.
macro_rules! file_columns {
    () => {
        concat!(
            "path, place, sha256, size, mime, storage, storage = 'blob' AND EXISTS (
            SELECT 1 FROM blob_refs WHERE blob_refs.sha256 = files.sha256 AND here = 1
                AND bytes = size), lamport, peer, op_id, incarnation, updated_at, ",
            file_head!()
        )
    };
}

pub(crate) const BY_OP: &str = concat!(
    "SELECT ",
    file_columns!(),
    " FROM files WHERE mesh_id = ?1 AND op_id = ?2"
);

pub(crate) const BY_PATH: &str = concat!(
    "SELECT ",
    file_columns!(),
    " FROM files WHERE mesh_id = ?1 AND peer = ?2 AND path = ?3"
);

pub(crate) const LIST: &str = concat!(
    "SELECT ",
    file_columns!(),
    " FROM files WHERE mesh_id = ?1 AND (peer, path) > (?3, ?4)
        AND (?2 IS NULL OR peer = ?2)
        AND substr(path, 1, length(?5)) = ?5
      ORDER BY peer, path"
);

pub(crate) const PLACE_OF: &str = "SELECT peer, path FROM files WHERE place = ?1 AND mesh_id = ?2";

pub(crate) const CONTENT: &str = "
    SELECT content, path FROM files
    WHERE mesh_id = ?1 AND op_id = ?2 AND sha256 = ?3 AND storage = 'inline'";

impl Store {
    pub async fn find_file(
        &self,
        mesh: MeshId,
        find: FileFind,
    ) -> Result<Option<FileRow>, StoreError> {
        self.read_few(move |connection| by(connection, mesh, &find))
            .await
    }

    /// The bytes of a file that holds them in its row; `None` when it does not any more.
    pub async fn file_content(
        &self,
        mesh: MeshId,
        row: &FileRow,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let (op, hash) = (row.id().to_bytes(), row.hash.0);
        self.read_few(move |connection| {
            let mut statement = connection.prepare_cached(CONTENT)?;
            let found = statement.query_row(params![mesh.0.to_bytes(), op, hash], |row| {
                let bytes = row.get_ref(0)?.as_blob().ok().map(<[u8]>::to_vec);
                Ok((
                    bytes,
                    row.get_ref(1)?.as_bytes().unwrap_or_default().to_vec(),
                ))
            });
            let Some((bytes, path)) = found.optional()? else {
                return Ok(None);
            };
            let bytes = bytes.filter(|bytes| ContentHash::of(bytes).0 == hash);
            bytes.map(Some).ok_or_else(|| changed("files", &path))
        })
        .await
    }

    /// In order of owners and paths; and whether there are more behind the last of them.
    pub async fn list_files(&self, filter: FileFilter) -> Result<(Vec<FileRow>, bool), StoreError> {
        let left_out = self.left_out.clone();
        self.read(move |connection| {
            let (owner, path) = behind(connection, &filter)?;
            let peer = filter.peer.as_ref().map(PeerId::as_str);
            let mut statement = connection.prepare_cached(LIST)?;
            let mesh = filter.mesh.0.to_bytes();
            let mut rows = statement.query(params![mesh, peer, owner, path, filter.prefix])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                if found.len() == filter.limit {
                    return Ok((found, true));
                }
                let read = or_without(read(row), left_out.as_ref(), ("files", row, 0))?;
                found.extend(read.flatten());
            }
            Ok((found, false))
        })
        .await
    }
}

/// The file, if there is one.
pub(super) fn by(
    connection: &Connection,
    mesh: MeshId,
    find: &FileFind,
) -> Result<Option<FileRow>, StoreError> {
    let mesh = mesh.0.to_bytes();
    match find {
        FileFind::Id(op) => {
            let mut statement = connection.prepare_cached(BY_OP)?;
            let mut rows = statement.query(params![mesh, op.to_bytes()])?;
            // An op id from elsewhere is only a claim: there may be several, and marks of deleted ones among them.
            while let Some(row) = rows.next()? {
                if let Some(found) = read(row)? {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        }
        FileFind::Path(peer, path) => {
            let mut statement = connection.prepare_cached(BY_PATH)?;
            let mut rows = statement.query(params![mesh, peer.as_str(), path.as_str()])?;
            Ok(rows.next()?.map(read).transpose()?.flatten())
        }
    }
}

/// Where a page goes on; a place that is not there any more begins anew. With an owner: at his rows.
fn behind(connection: &Connection, filter: &FileFilter) -> Result<(String, String), StoreError> {
    let mut statement = connection.prepare_cached(PLACE_OF)?;
    let mut rows = statement.query(params![filter.after, filter.mesh.0.to_bytes()])?;
    if let Some(row) = rows.next()? {
        return Ok((row.get(0)?, row.get(1)?));
    }
    let owner = filter.peer.as_ref().map(PeerId::as_str).unwrap_or_default();
    Ok((owner.to_owned(), String::new()))
}

/// None for the mark of a deleted one.
fn read(row: &Row<'_>) -> Result<Option<FileRow>, StoreError> {
    FILES.check(row)?;
    let mut cells = Cells::of("files", row);
    let path = cells.get()?;
    let place = cells.get()?;
    let Some(hash) = cells.get::<Option<_>>()?.map(ContentHash) else {
        return Ok(None);
    };
    let size = cells.count()?;
    let mime = cells.get()?;
    let storage: String = cells.get()?;
    let is_here: bool = cells.get()?;
    let bytes = match (storage.as_str(), is_here) {
        ("inline", _) => FileBytes::Inline,
        ("blob", true) => FileBytes::Blob,
        _ => FileBytes::Elsewhere,
    };
    Ok(Some(FileRow {
        place,
        path,
        hash,
        size,
        mime,
        bytes,
        stamp: cells.stamp()?,
        incarnation: cells.count()?,
        updated_at: cells.wall()?,
    }))
}
