//! Shared files: share, delete, and the one way in which an op on a file is applied.
//!
//! A file's bytes stand in its row when they are few; else the row names a blob, which was synced
//! before (LF-29). How many rows name a blob is counted by the schema's triggers (LF-26, C22).

mod before;
mod blobs;
mod fetch;
mod look;
mod lost;
mod refs;
mod sweep;

use heddle_core::file::{ContentHash, FileContent, FilePath, MediaType};
use heddle_core::ids::{MeshId, OpId};
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::op::{DataOp, FileChange, OpBody};
use rusqlite::{Connection, Row, params};
use serde_json::json;

pub use before::FileBefore;
pub use blobs::WantedBlob;
pub use fetch::MissingBlob;
pub use look::{FileBytes, FileFilter, FileFind, FileRow};
pub(crate) use lost::mark_all_lost;
pub(crate) use refs::{miscounted, named_by_rows, note_all_anew};
pub use sweep::Swept;

#[cfg(test)]
pub(crate) use {
    before::{BEFORE as FILE_BEFORE, BEFORE_BY_OP, IS_BEFORE},
    blobs::{ARRIVED, WANTED},
    fetch::{IS_WANTED, MISSING, SHARED_IN},
    look::{BY_OP, BY_PATH, CONTENT, LIST, PLACE_OF},
    lost::{HERE, MARK_LOST, PATH as LOST_PATH},
    refs::{NAMING, NEXT_MESH, NOTED, SET_COUNT},
    sweep::{FORGET, OLD_MARKS, PENDING, RELEASE},
};

use crate::blobs::Landed;
use crate::cells::{Cells, count_cell};
use crate::data::request::{Applied, ChangeKey, Plan, apply};
use crate::data::seal::{FILES, IS_CHANGED, file_head};
use crate::data::take::Taken;
use crate::error::StoreError;
use crate::store::Store;
use crate::unreadable::{LeftOut, or_without};

/// Content on its way into a row.
#[derive(Debug)]
pub enum NewContent {
    Inline(Vec<u8>),
    /// Safe on disk, and held until the row names it.
    Blob(Landed),
}

#[derive(Debug)]
pub struct NewFile {
    pub content: NewContent,
    pub mime: Option<MediaType>,
}

pub(crate) const STAMP: &str = concat!(
    "SELECT path, lamport, peer, op_id, ",
    file_head!(),
    " FROM files WHERE mesh_id = ?1 AND peer = ?2 AND path = ?3"
);

pub(crate) const FLOOR: &str = "
    SELECT mesh_id, lamport, peer, op_id FROM file_floor WHERE mesh_id = ?1 AND peer = ?2";

const WRITE: &str = "
    INSERT INTO files (mesh_id, peer, path, created_at, updated_at, lamport, incarnation, op_id,
        tombstone, storage, sha256, size, mime, content, digest)
    VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
    ON CONFLICT (mesh_id, peer, path) DO UPDATE SET
        updated_at = excluded.updated_at, lamport = excluded.lamport,
        incarnation = excluded.incarnation, op_id = excluded.op_id,
        tombstone = excluded.tombstone, storage = excluded.storage, sha256 = excluded.sha256,
        size = excluded.size, mime = excluded.mime, content = excluded.content,
        digest = excluded.digest";

impl Store {
    /// As [`Store::remember`]: a known id is answered whatever `fresh` says. The receipt's note holds
    /// path, hash and size; the file's id is the op of the stamp.
    pub async fn share_file<R: Send + 'static>(
        &self,
        id: ChangeKey,
        path: FilePath,
        fresh: Result<NewFile, R>,
    ) -> Result<Applied<R>, StoreError> {
        // The job keeps the hold on the blob: a caller that goes away does not let the sweep in.
        self.write(move |connection| {
            let (new, refusal) = match fresh {
                Ok(new) => (Some(held(new)?), None),
                Err(refusal) => (None, Some(refusal)),
            };
            let (content, landed) = new.unzip();
            let owner = PeerId::new(&id.peer.to_string());
            let applied = apply(connection, &id, |connection| {
                Ok(match (content, refusal) {
                    (Some(content), _) => {
                        let find = FileFind::Path(owner, path.clone());
                        let replaced = match look::by(connection, id.mesh, &find) {
                            Ok(row) => row.map(|row| row.id()),
                            // A row that cannot be read is mended by being shared again.
                            Err(StoreError::Corrupt(_)) => None,
                            Err(error) => return Err(error),
                        };
                        share(path, content, replaced)
                    }
                    (None, Some(refusal)) => Plan::Refused(refusal),
                    (None, None) => Plan::Absent,
                })
            })?;
            if let (Applied::Fresh(_), Some(Some(landed))) = (&applied, &landed)
                && !blobs::is_here(connection, landed)?
            {
                let why = "a blob is not named by the file that was just shared";
                return Err(StoreError::Corrupt(why.to_owned()));
            }
            Ok(applied)
        })
        .await
    }

    /// Leaves a tombstone; a file that is not there is [`Applied::Absent`]. One of somebody else is
    /// refused with what `foreign` makes of it.
    pub async fn delete_file<R: Send + 'static>(
        &self,
        id: ChangeKey,
        find: FileFind,
        foreign: impl FnOnce(&FileRow) -> R + Send + 'static,
    ) -> Result<Applied<R>, StoreError> {
        self.write(move |connection| {
            let owner = PeerId::new(&id.peer.to_string());
            apply(connection, &id, |connection| {
                let path = match (look::by(connection, id.mesh, &find), find) {
                    (Ok(None), _) => return Ok(Plan::Absent),
                    (Ok(Some(row)), _) if row.stamp.peer != owner => {
                        return Ok(Plan::Refused(foreign(&row)));
                    }
                    (Ok(Some(row)), _) => FilePath::kept(&row.path)
                        .map_err(|error| StoreError::Corrupt(format!("files: {error}")))?,
                    // One that is not what was written is mended by being deleted, under the name that it was asked for by.
                    (Err(StoreError::Corrupt(_)), FileFind::Path(of, path)) if of == owner => path,
                    (Err(error), _) => return Err(error),
                };
                let note = json!({"path": path.as_str()});
                let body = OpBody::File(FileChange { path, write: None });
                Ok(Plan::Go { body, note })
            })
        })
        .await
    }
}

fn held(new: NewFile) -> Result<(FileContent, Option<Landed>), StoreError> {
    let (content, landed) = match new.content {
        NewContent::Inline(bytes) => (FileContent::inline(bytes, new.mime), None),
        NewContent::Blob(landed) => {
            let content = FileContent::blob(landed.hash, landed.size, new.mime);
            (content, Some(landed))
        }
    };
    let content = content.map_err(|error| StoreError::Corrupt(error.to_string()))?;
    Ok((content, landed))
}

/// `replaced`: the file that stands under the path now.
fn share<R>(path: FilePath, content: FileContent, replaced: Option<OpId>) -> Plan<R> {
    let note = json!({
        "path": path.as_str(),
        "sha256": content.hash().to_string(),
        "size": content.size(),
        "replaced": replaced.map(|id| id.to_string()),
    });
    let write = Some(content);
    let body = OpBody::File(FileChange { path, write });
    Plan::Go { body, note }
}

pub(crate) fn take(
    connection: &Connection,
    mesh: MeshId,
    op: &DataOp,
    change: &FileChange,
) -> Result<Taken, StoreError> {
    let owner = &op.stamp.peer;
    let mut existing = stamp(connection, mesh, owner, &change.path)?;
    if existing.is_none() {
        existing = floor(connection, mesh, owner)?;
    }
    let taken = Taken::by_stamp(existing.as_ref(), op);
    if taken == Taken::Applied {
        put(connection, mesh, op, change)?;
    }
    Ok(taken)
}

fn stamp(
    connection: &Connection,
    mesh: MeshId,
    owner: &PeerId,
    path: &FilePath,
) -> Result<Option<Stamp>, StoreError> {
    let mut statement = connection.prepare_cached(STAMP)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), owner.as_str(), path.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    FILES.check_head(row)?;
    let mut cells = Cells::of("files", row);
    let _: String = cells.get()?;
    cells.stamp().map(Some)
}

/// The youngest mark of this owner that was collected (LF-11): in the place of the row that it was.
pub(crate) fn floor(
    connection: &Connection,
    mesh: MeshId,
    owner: &PeerId,
) -> Result<Option<Stamp>, StoreError> {
    let mut statement = connection.prepare_cached(FLOOR)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), owner.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let mut cells = Cells::of("file_floor", row);
    let _: [u8; 16] = cells.get()?;
    cells.stamp().map(Some)
}

fn put(
    connection: &Connection,
    mesh: MeshId,
    op: &DataOp,
    change: &FileChange,
) -> Result<(), StoreError> {
    let write = change.write.as_ref();
    let storage = match write.map(FileContent::bytes) {
        None => "none",
        Some(Some(_)) => "inline",
        Some(None) => "blob",
    };
    let size = write
        .map(|content| count_cell(content.size()))
        .transpose()?;
    let (mesh, peer, path) = (
        mesh.0.to_bytes(),
        op.stamp.peer.as_str(),
        change.path.as_str(),
    );
    let at = op.at.0;
    let lamport = count_cell(op.stamp.lamport)?;
    let incarnation = count_cell(op.incarnation)?;
    let (op, is_gone) = (op.stamp.op.to_bytes(), write.is_none());
    let hash = write.map(|content| content.hash().0);
    let mime = write.and_then(FileContent::mime).map(MediaType::as_str);
    let bytes = write.and_then(FileContent::bytes);
    let head = params![
        mesh,
        peer,
        path,
        at,
        lamport,
        incarnation,
        op,
        is_gone,
        storage,
        hash,
        size,
        mime
    ];
    let digest = FILES.of(head, &[])?;
    connection.prepare_cached(WRITE)?.execute(params![
        mesh,
        peer,
        path,
        at,
        lamport,
        incarnation,
        op,
        is_gone,
        storage,
        hash,
        size,
        mime,
        bytes,
        digest
    ])?;
    Ok(())
}

/// The replicated columns, in order of owners and paths; what is this home's own is left out.
const DUMP: &str = concat!(
    "SELECT path, peer, lamport, peer, op_id, incarnation, updated_at, tombstone, sha256, size, mime,
        content, storage, ",
    file_head!(),
    " FROM files WHERE mesh_id = ?1 ORDER BY peer, path"
);

/// For the canonical dump (LF-09).
pub(crate) fn dump(
    connection: &Connection,
    mesh: MeshId,
    left_out: Option<&LeftOut>,
    line: &mut dyn FnMut(serde_json::Value) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(DUMP)?;
    let mut rows = statement.query([mesh.0.to_bytes()])?;
    while let Some(row) = rows.next()? {
        if let Some(dumped) = or_without(dumped(row), left_out, ("files", row, 0))? {
            line(dumped)?;
        }
    }
    Ok(())
}

fn dumped(row: &Row<'_>) -> Result<serde_json::Value, StoreError> {
    FILES.check(row)?;
    let mut cells = Cells::of("files", row);
    let (path, peer): (String, String) = (cells.get()?, cells.get()?);
    let stamp = cells.stamp()?;
    let (incarnation, at) = (cells.count()?, cells.wall()?);
    let tombstone: bool = cells.get()?;
    let hash = cells.get::<Option<_>>()?.map(ContentHash);
    let size: Option<i64> = cells.get()?;
    let mime: Option<String> = cells.get()?;
    let content = cells.get::<Option<Vec<u8>>>()?;
    let inline = content.map(|bytes| ContentHash::of(&bytes));
    let is_inline = cells.get::<String>()? == "inline";
    if inline != hash.filter(|_| is_inline) {
        return Err(cells.bad(IS_CHANGED));
    }
    Ok(json!({
        "table": "files", "peer": peer, "path": path, "lamport": stamp.lamport,
        "op_id": stamp.op.to_string(), "incarnation": incarnation, "updated_at": at.0,
        "tombstone": tombstone, "sha256": hash.map(|hash| hash.to_string()), "size": size,
        "mime": mime, "inline_sha256": inline.map(|hash| hash.to_string()),
    }))
}
