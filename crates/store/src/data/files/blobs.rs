//! Which blobs this home has and which it lacks: the seam for whoever fetches them.
//!
//! An op on a large file names its blob and does not carry it. A home without the bytes says so
//! ([`super::FileBytes::Elsewhere`]). To fetch: take [`Store::missing_blobs`], gather the bytes in a
//! [`crate::Partial`], finish it, which compares the hash with the one that was wanted, and hand what
//! landed to [`Store::blob_arrived`].

use heddle_core::file::ContentHash;
use rusqlite::{Connection, params};

use crate::blobs::Landed;
use crate::cells::{Cells, count_cell};
use crate::error::StoreError;
use crate::store::Store;

/// A blob that live files name and this home does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedBlob {
    pub hash: ContentHash,
    /// As the first who named it says; the bytes that come decide.
    pub size: u64,
}

pub(crate) const WANTED: &str = "
    SELECT sha256, bytes FROM blob_refs INDEXED BY blob_refs_wanted
    WHERE here = 0 AND pending_unlink = 0 ORDER BY sha256 LIMIT ?1";

pub(crate) const ARRIVED: &str = "
    UPDATE blob_refs SET here = 1, bytes = ?2 WHERE sha256 = ?1 AND ref_count > 0";

impl Store {
    pub async fn wanted_blobs(&self, limit: usize) -> Result<Vec<WantedBlob>, StoreError> {
        self.read(move |connection| {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let mut statement = connection.prepare_cached(WANTED)?;
            let mut rows = statement.query([limit])?;
            let mut wanted = Vec::new();
            while let Some(row) = rows.next()? {
                let mut cells = Cells::of("blob_refs", row);
                let hash = ContentHash(cells.get()?);
                let size = cells.count()?;
                wanted.push(WantedBlob { hash, size });
            }
            Ok(wanted)
        })
        .await
    }

    /// The bytes are in the folder now. False when nobody names them any more: then the sweep takes
    /// them away.
    pub async fn blob_arrived(&self, landed: Landed) -> Result<bool, StoreError> {
        // The job keeps the hold: a caller that goes away does not let the sweep in.
        self.write(move |connection| is_here(connection, &landed))
            .await
    }
}

/// In the transaction that names it, or after one that did.
pub(super) fn is_here(connection: &Connection, landed: &Landed) -> Result<bool, StoreError> {
    let mut statement = connection.prepare_cached(ARRIVED)?;
    let changed = statement.execute(params![landed.hash.0, count_cell(landed.size)?])?;
    Ok(changed > 0)
}
