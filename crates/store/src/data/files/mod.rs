//! Shared files: share, delete, and the one way in which an op on a file is applied.
//!
//! A file's bytes stand in its row when they are few; else the row names a blob, which was synced
//! before (LF-29). How many rows name a blob is counted by the schema's triggers (LF-26, C22).

mod blobs;
mod look;
mod sweep;

use heddle_core::file::{ContentHash, FileChange, FileContent, FilePath, MediaType};
use heddle_core::ids::{MeshId, OpId};
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::lww::{Merge, merge};
use rusqlite::{Connection, params};

pub use blobs::WantedBlob;
pub use look::{FileBytes, FileFilter, FileFind, FileRow};
pub use sweep::Swept;

#[cfg(test)]
pub(crate) use {
    blobs::{ARRIVED, WANTED},
    look::{BY_OP, BY_PATH, CONTENT, LIST, PLACE_OF},
    sweep::{FORGET, NAMED, OLD_MARKS, PENDING, RELEASE},
};

use crate::blobs::{Incoming, Landed};
use crate::cells::{Cells, count_cell};
use crate::data::request::{Applied, ChangeKey, Fresh, Receipt, apply};
use crate::error::StoreError;
use crate::store::Store;
use heddle_core::clock::WallMs;

/// Content that is safe on disk, or short enough to go into its row.
#[derive(Debug)]
pub enum NewContent {
    Inline(Vec<u8>),
    /// Held until the row names it.
    Blob(Landed),
}

#[derive(Debug)]
pub struct NewFile {
    pub content: NewContent,
    pub mime: Option<MediaType>,
}

pub(crate) const STAMP: &str = "
    SELECT path, lamport, op_id, tombstone FROM files
    WHERE mesh_id = ?1 AND peer = ?2 AND path = ?3";

pub(crate) const FLOOR: &str = "
    SELECT peer, lamport, op_id FROM file_floor WHERE mesh_id = ?1 AND peer = ?2";

const WRITE: &str = "
    INSERT INTO files (mesh_id, peer, path, created_at, updated_at, lamport, incarnation, op_id,
        tombstone, storage, sha256, size, mime, content)
    VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
    ON CONFLICT (mesh_id, peer, path) DO UPDATE SET
        updated_at = excluded.updated_at, lamport = excluded.lamport,
        incarnation = excluded.incarnation, op_id = excluded.op_id,
        tombstone = excluded.tombstone, storage = excluded.storage, sha256 = excluded.sha256,
        size = excluded.size, mime = excluded.mime, content = excluded.content";
