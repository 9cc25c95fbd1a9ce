//! What whoever carries blobs between homes asks of the store: which ones a mesh lacks and who shared
//! them, which ones may be given to its members, and which half-fetched ones nobody wants any more.

use heddle_core::file::ContentHash;
use heddle_core::ids::{MeshId, OpId};
use heddle_core::lamport::PeerId;
use rusqlite::{Connection, OptionalExtension, params};

use crate::blobs::{BlobError, Blobs, Landed};
use crate::cells::Cells;
use crate::error::StoreError;
use crate::store::Store;

/// A blob that a live file of a mesh names and this home does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingBlob {
    pub hash: ContentHash,
    /// As its owner says; the bytes that come decide.
    pub size: u64,
    /// Who shared the file.
    pub owner: PeerId,
    /// The op that shared it: another one after it was shared again.
    pub shared: OpId,
}

pub(crate) const MISSING: &str = "
    SELECT blob_refs.sha256, files.size, files.peer, files.op_id
    FROM blob_refs INDEXED BY blob_refs_wanted
    CROSS JOIN files INDEXED BY files_by_hash
        ON files.mesh_id = ?1 AND files.sha256 = blob_refs.sha256 AND files.storage = 'blob'
    WHERE blob_refs.here = 0 AND blob_refs.pending_unlink = 0 AND blob_refs.sha256 > ?2
    ORDER BY blob_refs.sha256 LIMIT ?3";

/// Only of a mesh whose member asks: a hash is no password.
pub(crate) const SHARED_IN: &str = "
    SELECT size FROM files INDEXED BY files_by_hash
    WHERE mesh_id = ?1 AND sha256 = ?2 AND storage = 'blob' AND EXISTS (
        SELECT 1 FROM blob_refs WHERE blob_refs.sha256 = ?2 AND here = 1 AND bytes = size)
    LIMIT 1";

pub(crate) const IS_WANTED: &str = "
    SELECT 1 FROM blob_refs WHERE sha256 = ?1 AND here = 0 AND pending_unlink = 0";

impl Store {
    /// The next ones behind this hash, in the order of their hashes.
    pub async fn missing_blobs(
        &self,
        mesh: MeshId,
        after: Option<ContentHash>,
        limit: usize,
    ) -> Result<Vec<MissingBlob>, StoreError> {
        // Before every hash; a hash of zeros is nobody's.
        let after = after.map_or([0; 32], |hash| hash.0);
        self.read(move |connection| {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let mut statement = connection.prepare_cached(MISSING)?;
            let mut rows = statement.query(params![mesh.0.to_bytes(), after, limit])?;
            let mut missing = Vec::new();
            while let Some(row) = rows.next()? {
                let mut cells = Cells::of("blob_refs", row);
                let hash = ContentHash(cells.get()?);
                let size = cells.count()?;
                let owner = PeerId::new(&cells.get::<String>()?);
                let shared = OpId::from_bytes(cells.get()?);
                missing.push(MissingBlob {
                    hash,
                    size,
                    owner,
                    shared,
                });
            }
            Ok(missing)
        })
        .await
    }

    /// How many bytes the blob has, if a live file of this mesh names it and it is here.
    pub async fn blob_shared_in(
        &self,
        mesh: MeshId,
        hash: ContentHash,
    ) -> Result<Option<u64>, StoreError> {
        self.read_few(move |connection| {
            let mut statement = connection.prepare_cached(SHARED_IN)?;
            let mut rows = statement.query(params![mesh.0.to_bytes(), hash.0])?;
            match rows.next()? {
                Some(row) => Ok(Some(Cells::of("files", row).count()?)),
                None => Ok(None),
            }
        })
        .await
    }

    /// Notes a blob that lies in the folder already, if it is the right one: somebody died between its
    /// name and its row. Blocks on the folder: for a thread that may wait for a disk.
    pub fn found_blob(blobs: &Blobs, hash: ContentHash, size: u64) -> Option<Landed> {
        let hold = blobs.hold(hash);
        let mut reader = blobs.read(hash, size).ok()?;
        reader.verify(&mut vec![0; 256 << 10]).ok()?;
        Some(Landed { hash, size, hold })
    }

    /// Takes away what has come of blobs that are not wanted any more. As for the sweep: on a thread
    /// that may wait for a disk.
    pub(super) async fn sweep_partials(&self, blobs: &Blobs) -> Result<(), StoreError> {
        let found = match blobs.partials() {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "half-fetched blobs cannot be swept");
                return Ok(());
            }
        };
        let unwanted = self.read(move |connection| {
            let mut unwanted = Vec::new();
            for hash in found {
                if !is_wanted(connection, hash)? {
                    unwanted.push(hash);
                }
            }
            Ok(unwanted)
        });
        for hash in unwanted.await? {
            let forgotten: Result<(), BlobError> = blobs.forget_partial(hash);
            if let Err(error) = forgotten {
                tracing::warn!(%error, "a half-fetched blob that nobody wants stays");
            }
        }
        Ok(())
    }

    /// Takes away bad bytes that were set aside, once good ones are here or nobody names them any more.
    pub(super) async fn sweep_set_aside(&self, blobs: &Blobs) -> Result<(), StoreError> {
        let found = match blobs.all_set_aside() {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "bad blobs that were set aside cannot be swept");
                return Ok(());
            }
        };
        for hash in found {
            let wanted = self.read(move |connection| is_wanted(connection, hash));
            if wanted.await? {
                continue;
            }
            if let Err(error) = blobs.forget_set_aside(hash) {
                tracing::warn!(%error, "a bad blob that was set aside stays");
            }
        }
        Ok(())
    }
}

fn is_wanted(connection: &Connection, hash: ContentHash) -> Result<bool, StoreError> {
    let mut statement = connection.prepare_cached(IS_WANTED)?;
    let found = statement.query_row([hash.0], |row| row.get::<_, i64>(0));
    Ok(found.optional()?.is_some())
}
