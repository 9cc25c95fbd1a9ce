//! Blobs that rows say are here and that are not: gone from the folder, or other bytes under their name (LF-27).
//!
//! Of a file that others may have, the row is told first, in the writer; then the bad bytes are set aside. A crash
//! between the two leaves a blob that is wanted, and whoever fetches looks at what lies there before taking it. A file
//! of a mesh of one's own is nobody else's: its row stays as it is, and sharing it again is what helps.

use heddle_core::file::ContentHash;
use heddle_core::limits::SWEEP_BLOBS_MAX;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::blobs::{BlobError, Blobs, Removing};
use crate::cells::Cells;
use crate::error::StoreError;
use crate::store::Store;

pub(crate) const MARK_LOST: &str = "
    UPDATE blob_refs SET here = 0 WHERE sha256 = ?1 AND here = 1 AND ref_count > 0 AND EXISTS (
        SELECT 1 FROM mesh CROSS JOIN files INDEXED BY files_by_hash
            ON files.mesh_id = mesh.mesh_id AND files.sha256 = ?1 AND files.storage = 'blob'
        WHERE mesh.kind <> 'personal')";

pub(crate) const HERE: &str = "
    SELECT sha256, bytes FROM blob_refs
    WHERE sha256 > ?1 AND here = 1 AND ref_count > 0 ORDER BY sha256 LIMIT ?2";

pub(crate) const PATH: &str = "
    SELECT path FROM mesh CROSS JOIN files INDEXED BY files_by_hash
        ON files.mesh_id = mesh.mesh_id AND files.sha256 = ?1 AND files.storage = 'blob'
    LIMIT 1";

const PATH_HERE: &str = "
    SELECT path FROM mesh CROSS JOIN files INDEXED BY files_by_hash
        ON files.mesh_id = mesh.mesh_id AND files.sha256 = ?1 AND files.storage = 'blob'
    WHERE EXISTS (SELECT 1 FROM blob_refs WHERE sha256 = ?1 AND here = 1) LIMIT 1";

/// What one look hands on of blobs that nobody else has.
const GONE_MAX: usize = 100;
const VERIFY_BYTES: usize = 256 << 10;

/// What one look has found of a blob.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// That there is a file of its length.
    Length,
    /// And that every byte of it is right.
    Bytes,
}

impl Store {
    /// A read has found no blob of this hash, or a wrong one. True where it is wanted from now on: others may have it. `None`
    /// where nothing is wrong with it. For a thread that may wait for a disk, as the sweep.
    pub async fn blob_lost(
        &self,
        blobs: &Blobs,
        hash: ContentHash,
        size: u64,
    ) -> Result<Option<bool>, StoreError> {
        let Some(right) = bad(blobs, hash, size, Depth::Bytes) else {
            return Ok(None);
        };
        let marked = self.write(move |connection| mark(connection, hash)).await?;
        if marked {
            aside(blobs, &right);
        }
        Ok(Some(marked))
    }

    /// Looks whether each blob that is said to be here has a file of its length; those that have none are wanted again. The
    /// first ones that nobody else has: sharing them again is what helps.
    pub async fn look_for_lost(
        &self,
        blobs: &Blobs,
        stop: &dyn Fn() -> bool,
    ) -> Result<Vec<(ContentHash, u64)>, StoreError> {
        let (mut after, mut gone) = ([0; 32], Vec::new());
        while !stop() {
            let some = self.read(move |connection| here(connection, after)).await?;
            let Some((last, _)) = some.last() else {
                return Ok(gone);
            };
            after = last.0;
            for (hash, size) in some {
                let Some(right) = bad(blobs, hash, size, Depth::Length) else {
                    continue;
                };
                if self.write(move |connection| mark(connection, hash)).await? {
                    tracing::warn!(%hash, "the bytes of a shared file are gone from the blob folder; they are fetched again");
                    aside(blobs, &right);
                } else if gone.len() < GONE_MAX {
                    gone.push((hash, size));
                }
            }
        }
        Ok(gone)
    }

    /// A path that a blob of this hash is shared as, while it is said to be here.
    pub async fn path_of_blob(&self, hash: ContentHash) -> Result<Option<String>, StoreError> {
        self.read_few(move |connection| {
            let mut statement = connection.prepare_cached(PATH_HERE)?;
            let path = statement.query_row([hash.0], |row| row.get(0));
            Ok(path.optional()?)
        })
        .await
    }
}

/// The same in a file that nobody has open, and down to the last byte; the paths of those that are wanted again.
pub(crate) fn mark_all_lost(
    connection: &Connection,
    blobs: &Blobs,
) -> Result<Vec<String>, StoreError> {
    let mut paths = Vec::new();
    let mut after = [0; 32];
    loop {
        let some = here(connection, after)?;
        let Some((last, _)) = some.last() else {
            return Ok(paths);
        };
        after = last.0;
        for (hash, size) in some {
            let Some(right) = bad(blobs, hash, size, Depth::Bytes) else {
                continue;
            };
            if mark(connection, hash)? {
                aside(blobs, &right);
                let path = connection.query_row(PATH, [hash.0], |row| row.get(0));
                paths.push(path?);
            }
        }
    }
}

/// The right to set it aside, if it is bad: nobody puts good bytes there meanwhile.
fn bad(blobs: &Blobs, hash: ContentHash, size: u64, depth: Depth) -> Option<Removing> {
    let right = blobs.try_remove(hash)?;
    let looked = blobs.read(hash, size).and_then(|mut reader| match depth {
        Depth::Length => Ok(()),
        Depth::Bytes => reader.verify(&mut vec![0; VERIFY_BYTES]),
    });
    match looked {
        Err(BlobError::Missing { .. } | BlobError::Damaged { .. } | BlobError::Foreign { .. }) => {
            Some(right)
        }
        // A disk that cannot be read just now has not lost anything yet.
        Ok(()) | Err(_) => None,
    }
}

fn mark(connection: &Connection, hash: ContentHash) -> Result<bool, StoreError> {
    let mut statement = connection.prepare_cached(MARK_LOST)?;
    Ok(statement.execute([hash.0])? > 0)
}

/// What stays in its place is replaced when the good bytes come.
fn aside(blobs: &Blobs, right: &Removing) {
    if let Err(error) = blobs.set_aside(right) {
        tracing::warn!(%error, "the bad bytes of a shared file stay where they are");
    }
}

fn here(connection: &Connection, after: [u8; 32]) -> Result<Vec<(ContentHash, u64)>, StoreError> {
    let limit = i64::try_from(SWEEP_BLOBS_MAX).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(HERE)?;
    let mut rows = statement.query(params![after, limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let mut cells = Cells::of("blob_refs", row);
        found.push((ContentHash(cells.get()?), cells.count()?));
    }
    Ok(found)
}
