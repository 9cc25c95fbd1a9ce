//! What the rows say of a blob. The count in `blob_refs` is derived from them: it says where to look, and nothing is removed
//! on its word alone (LF-26).
//!
//! A disk that changes a count, or the hash that it stands under, would else make the only bytes of a live file nobody's. So
//! whoever removes asks the rows, under the writer, and whoever finds a count that is not theirs puts it right and says so.

use heddle_core::file::ContentHash;
use rusqlite::{Connection, OptionalExtension, params};

use crate::blobs::Blobs;
use crate::cells::{Cells, count_cell};
use crate::data::files::before;
use crate::data::files::blobs::is_here;
use crate::data::seal::{FILES, file_head};
use crate::error::StoreError;
use crate::store::Store;

pub(crate) const NOTED: &str = "SELECT ref_count, bytes, here FROM blob_refs WHERE sha256 = ?1";

// By the index alone, and under every mesh that it knows, also one that is none of this home: a row whose own cells were
// changed still protects what it named.
pub(crate) const NEXT_MESH: &str = "
    SELECT min(mesh_id) FROM files INDEXED BY files_by_hash
    WHERE storage = 'blob' AND mesh_id > ?1";

pub(crate) const NAMING: &str = "
    SELECT size FROM files INDEXED BY files_by_hash
    WHERE mesh_id = ?1 AND sha256 = ?2 AND storage = 'blob'";

pub(crate) const SET_COUNT: &str = "
    INSERT INTO blob_refs (sha256, ref_count, bytes, pending_unlink) VALUES (?1, ?2, ?3, 0)
    ON CONFLICT (sha256) DO UPDATE SET ref_count = excluded.ref_count, pending_unlink = 0";

const ALL_FILES: &str = concat!("SELECT ", file_head!(), " FROM files");

const NAMED_BY_ROWS: &str = "
    SELECT DISTINCT sha256 FROM files WHERE storage = 'blob' AND length(sha256) = 32";

// What waits for the sweep is counted as nobody's in both.
const DIFFERENT: &str = "
    SELECT CAST(coalesce(path, lower(hex(blob_refs.sha256))) AS BLOB) FROM (
        SELECT sha256, count(*) AS named, min(path) AS path FROM files
        WHERE storage = 'blob' GROUP BY sha256) AS naming
    FULL JOIN blob_refs ON blob_refs.sha256 = naming.sha256
    WHERE ifnull(named, 0) <> ifnull(ref_count, 0) OR pending_unlink <> (ref_count = 0)
    ORDER BY 1 LIMIT ?1";

/// What `blob_refs` says of a blob.
struct Noted {
    count: i64,
    bytes: u64,
    here: bool,
}

/// What the rows say of it.
#[derive(Default)]
struct Naming {
    count: i64,
    sizes: Vec<u64>,
}

/// Whether nobody names it, by the count and by the rows. A count that is too low is put right.
pub(super) fn is_nobodys(connection: &Connection, hash: ContentHash) -> Result<bool, StoreError> {
    let noted = noted(connection, hash)?.map_or(0, |noted| noted.count);
    let naming = naming(connection, hash)?;
    if naming.count == 0 {
        if before::is_before(connection, hash)? {
            return Ok(false);
        }
        // A count without rows may be that of a row which is not what was written; a repair counts anew.
        return Ok(noted == 0);
    }
    if noted == 0 {
        count_anew(connection, hash, &naming)?;
    }
    Ok(false)
}

fn count_anew(
    connection: &Connection,
    hash: ContentHash,
    naming: &Naming,
) -> Result<(), StoreError> {
    let size = naming.sizes.iter().max().copied().unwrap_or_default();
    connection.prepare_cached(SET_COUNT)?.execute(params![
        hash.0,
        naming.count,
        count_cell(size)?
    ])?;
    let says = "live files name a blob that was counted as nobody's; its count is put right";
    tracing::warn!(%hash, files = naming.count, says);
    Ok(())
}

/// How what is noted of a blob that lies in the folder stands to what the rows and the folder say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Note {
    Right,
    Wrong,
    /// Neither the count nor any row names it.
    Nobodys,
}

/// `lies`: its length in the folder.
pub(super) fn look(
    connection: &Connection,
    hash: ContentHash,
    lies: u64,
) -> Result<Note, StoreError> {
    let naming = naming(connection, hash)?;
    let noted = noted(connection, hash)?.filter(|noted| noted.count > 0);
    let is_as_named = naming.sizes.contains(&lies);
    Ok(match noted {
        Some(noted) if is_as_named && (!noted.here || noted.bytes != lies) => Note::Wrong,
        Some(_) => Note::Right,
        None if naming.count > 0 => Note::Wrong,
        None => Note::Nobodys,
    })
}

impl Store {
    /// Puts right what is noted of such a blob. For a thread that may wait for a disk.
    pub(super) async fn note_anew(
        &self,
        blobs: &Blobs,
        hash: ContentHash,
        lies: u64,
    ) -> Result<(), StoreError> {
        self.write(move |connection| is_nobodys(connection, hash).map(|_| ()))
            .await?;
        // Every byte of it is compared: what was bad and could not be set aside lies there as well.
        if let Some(landed) = Self::found_blob(blobs, hash, lies) {
            tracing::warn!(%hash, "the bytes of a shared file are here, and were not noted as what they are; now they are");
            self.blob_arrived(landed).await?;
        }
        Ok(())
    }

    /// Whether a row of a file is not what was written: any blob may be the one that it named.
    pub(super) async fn has_changed_files(&self) -> Result<bool, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare(ALL_FILES)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                if let Err(StoreError::Corrupt(_)) = FILES.check(row) {
                    return Ok(true);
                }
            }
            Ok(false)
        })
        .await
    }
}

/// The same for all that lie in the folder, in a file that nobody has open.
pub(crate) fn note_all_anew(connection: &Connection, blobs: &Blobs) -> Result<(), StoreError> {
    for folder in 0..=u8::MAX {
        // One that cannot be read is told of by whoever sweeps.
        for found in blobs.walk(folder).unwrap_or_default() {
            if look(connection, found.hash, found.bytes)? != Note::Wrong {
                continue;
            }
            is_nobodys(connection, found.hash)?;
            if let Some(landed) = Store::found_blob(blobs, found.hash, found.bytes) {
                is_here(connection, &landed)?;
            }
        }
    }
    Ok(())
}

/// The blobs that live rows name, whatever was counted.
pub(crate) fn named_by_rows(connection: &Connection) -> rusqlite::Result<Vec<[u8; 32]>> {
    let mut statement = connection.prepare(NAMED_BY_ROWS)?;
    let rows = statement.query_map([], |row| row.get(0))?;
    rows.collect()
}

/// Files whose blobs are not counted as the rows name them, as paths, or as hashes where no row names them; `most` at the most.
pub(crate) fn miscounted(connection: &Connection, most: usize) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(DIFFERENT)?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let rows = statement.query_map([most], |row| row.get::<_, Vec<u8>>(0))?;
    let rows = rows.map(|name| Ok(String::from_utf8_lossy(&name?).into_owned()));
    rows.collect()
}

fn noted(connection: &Connection, hash: ContentHash) -> Result<Option<Noted>, StoreError> {
    let mut statement = connection.prepare_cached(NOTED)?;
    let found = statement.query_row([hash.0], |row| {
        Ok(Noted {
            count: row.get(0)?,
            // One that cannot be is no length of any file.
            bytes: u64::try_from(row.get::<_, i64>(1)?).unwrap_or(u64::MAX),
            here: row.get(2)?,
        })
    });
    Ok(found.optional()?)
}

fn naming(connection: &Connection, hash: ContentHash) -> Result<Naming, StoreError> {
    let mut next = connection.prepare_cached(NEXT_MESH)?;
    let mut statement = connection.prepare_cached(NAMING)?;
    let mut found = Naming::default();
    let mut after = Vec::new();
    while let Some(mesh) = next.query_row([&after], |row| row.get::<_, Option<Vec<u8>>>(0))? {
        let mut rows = statement.query(params![mesh, hash.0])?;
        while let Some(row) = rows.next()? {
            found.count += 1;
            found.sizes.extend(Cells::of("files", row).count().ok());
        }
        after = mesh;
    }
    Ok(found)
}
