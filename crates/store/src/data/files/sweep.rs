//! Taking away what nobody names: blobs, bad ones that were set aside and are replaced, and the marks of what was deleted long ago.
//!
//! IMPORTANT, the order for a blob (C22): the right to remove it, which nobody gets who shares it just
//! now; the look under the writer, where every share that has run is seen, committed or not; the commit
//! of `here = 0`; the unlink; the row. A crash between any two leaves what the next sweep finishes, and
//! at no moment a row that says `here` without its file (LF-27). That nobody names it is what the rows say, not
//! their count alone (`refs.rs`).

use std::time::Duration;

use heddle_core::clock::WallMs;
use heddle_core::file::ContentHash;
use heddle_core::limits::{SWEEP_BLOBS_MAX, TOMBSTONE_LIFE};
use rusqlite::{Connection, params};

use crate::blobs::{Blobs, Found, Removing};
use crate::cells::Cells;
use crate::data::files::refs::{Note, is_nobodys, look};
use crate::data::floor;
use crate::data::seal::{FILES, file_head};
use crate::error::StoreError;
use crate::store::Store;

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    pub blobs: u64,
    pub bytes: u64,
    /// Nobody names them, but they are younger than the grace.
    pub young: u64,
    /// Could not be taken away; the next sweep tries again.
    pub failed: u64,
    pub tombstones: u64,
}

pub(crate) const PENDING: &str = "
    SELECT sha256, bytes FROM blob_refs INDEXED BY blob_refs_pending
    WHERE pending_unlink = 1 AND sha256 > ?1 ORDER BY sha256 LIMIT ?2";

pub(crate) const RELEASE: &str = "
    UPDATE blob_refs SET here = 0 WHERE sha256 = ?1 AND ref_count = 0";

pub(crate) const FORGET: &str = "DELETE FROM blob_refs WHERE sha256 = ?1 AND ref_count = 0";

// Only of meshes whose ops never leave this home: then nothing older can come from elsewhere. A mesh
// that is shared keeps its marks for ever; they hold a path and a stamp, no content.
pub(crate) const OLD_MARKS: &str = concat!(
    "SELECT place, mesh_id, peer, lamport, op_id, ",
    file_head!(),
    " FROM files INDEXED BY files_deleted
    WHERE tombstone = 1 AND updated_at < ?2 AND mesh_id = ?1
    ORDER BY updated_at LIMIT ?3"
);

const RAISE_FLOOR: &str = "
    INSERT INTO file_floor (mesh_id, peer, lamport, op_id) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (mesh_id, peer) DO UPDATE SET lamport = excluded.lamport, op_id = excluded.op_id
    WHERE (excluded.lamport, excluded.op_id) > (lamport, op_id)";

const TAKE_MARK: &str = "DELETE FROM files WHERE place = ?1 AND tombstone = 1";

/// A blob that may be nobody's.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    hash: ContentHash,
    bytes: u64,
}

/// What keeps blobs that nobody names.
struct Age {
    now: WallMs,
    grace: Duration,
    /// Not looked at yet where there is none.
    has_changed_files: Option<bool>,
}

impl Store {
    /// One whole sweep; `stop` ends it early, between two steps. It works on folders where it stands, so
    /// it wants a thread that may wait for a disk: `Handle::block_on` on one of those.
    pub async fn sweep_files(
        &self,
        blobs: &Blobs,
        now: WallMs,
        grace: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        self.sweep_pending(blobs, &mut swept, stop).await?;
        let mut age = Age {
            now,
            grace,
            has_changed_files: None,
        };
        for folder in 0..=u8::MAX {
            if stop() {
                return Ok(swept);
            }
            match blobs.walk(folder) {
                Ok(found) => {
                    self.sweep_found(blobs, found, &mut age, &mut swept).await?;
                }
                Err(error) => {
                    swept.failed += 1;
                    tracing::warn!(%error, folder, "a blob folder cannot be swept");
                }
            }
        }
        for (hash, _) in self.look_for_lost(blobs, stop).await? {
            tracing::warn!(%hash, "the bytes of a shared file are gone from the blob folder, and nobody else has them");
        }
        self.sweep_partials(blobs).await?;
        self.sweep_set_aside(blobs).await?;
        while !stop() {
            let cutoff = before(now, TOMBSTONE_LIFE);
            let collected = self.write(move |connection| {
                Ok(collect(connection, cutoff)? + floor::collect(connection, cutoff)?)
            });
            match collected.await? {
                0 => break,
                taken => swept.tombstones += taken,
            }
        }
        Ok(swept)
    }

    /// Only what is known to be nobody's: what a delete leaves to be done.
    pub async fn sweep_deleted(&self, blobs: &Blobs) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        self.sweep_pending(blobs, &mut swept, &|| false).await?;
        Ok(swept)
    }

    async fn sweep_pending(
        &self,
        blobs: &Blobs,
        swept: &mut Swept,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), StoreError> {
        // Before every hash; a hash of zeros is nobody's.
        let mut after = [0; 32];
        while !stop() {
            let pending = self.read(move |connection| pending(connection, after));
            let pending = pending.await?;
            let Some(last) = pending.last() else {
                return Ok(());
            };
            after = last.hash.0;
            self.remove(blobs, &pending, swept).await?;
        }
        Ok(())
    }

    /// Blobs of one folder: those that nobody names and that are old enough go (C10).
    async fn sweep_found(
        &self,
        blobs: &Blobs,
        found: Vec<Found>,
        age: &mut Age,
        swept: &mut Swept,
    ) -> Result<(), StoreError> {
        if found.is_empty() {
            return Ok(());
        }
        let looked = self.read(move |connection| {
            let (mut nobodys, mut noted_wrong) = (Vec::new(), Vec::new());
            for found in found {
                match look(connection, found.hash, found.bytes)? {
                    Note::Right => {}
                    Note::Wrong => noted_wrong.push(found),
                    Note::Nobodys => nobodys.push(found),
                }
            }
            Ok((nobodys, noted_wrong))
        });
        let (nobodys, noted_wrong) = looked.await?;
        for found in noted_wrong {
            self.note_anew(blobs, found.hash, found.bytes).await?;
        }
        // In either direction: a clock that was wrong must not protect a file for years.
        let Age { now, grace, .. } = *age;
        let is_young = |found: &Found| {
            let age = now.0.saturating_sub(found.changed_at.0).unsigned_abs();
            u128::from(age) < grace.as_millis()
        };
        let (young, old): (Vec<&Found>, Vec<&Found>) =
            nobodys.iter().partition(|found| is_young(found));
        swept.young += young.len() as u64;
        if !old.is_empty() && self.may_be_meant(age).await? {
            return Ok(());
        }
        let old: Vec<Candidate> = old
            .into_iter()
            .map(|found: &Found| Candidate {
                hash: found.hash,
                bytes: found.bytes,
            })
            .collect();
        for some in old.chunks(SWEEP_BLOBS_MAX) {
            self.remove(blobs, some, swept).await?;
        }
        Ok(())
    }

    /// Looked at once in a sweep, and only in one that has found something to take.
    async fn may_be_meant(&self, age: &mut Age) -> Result<bool, StoreError> {
        if let Some(known) = age.has_changed_files {
            return Ok(known);
        }
        let has = self.has_changed_files().await?;
        if has {
            tracing::warn!(
                "blobs that nobody names stay: a row of a file is not what was written, and may have named one of them"
            );
        }
        age.has_changed_files = Some(has);
        Ok(has)
    }

    async fn remove(
        &self,
        blobs: &Blobs,
        candidates: &[Candidate],
        swept: &mut Swept,
    ) -> Result<(), StoreError> {
        let mut rights: Vec<(Removing, u64)> = candidates
            .iter()
            .filter_map(|one| Some((blobs.try_remove(one.hash)?, one.bytes)))
            .collect();
        let hashes: Vec<ContentHash> = rights.iter().map(|(right, _)| right.hash()).collect();
        let free = self.write(move |connection| {
            let mut free = Vec::new();
            for hash in hashes {
                if is_nobodys(connection, hash)? {
                    connection.prepare_cached(RELEASE)?.execute([hash.0])?;
                    free.push(hash);
                }
            }
            Ok(free)
        });
        let free = free.await?;
        rights.retain(|(right, _)| free.contains(&right.hash()));
        let mut gone = Vec::new();
        for (right, bytes) in &rights {
            match blobs.unlink(right) {
                Ok(true) => {
                    swept.blobs += 1;
                    swept.bytes += bytes;
                    gone.push(right.hash());
                }
                Ok(false) => gone.push(right.hash()),
                Err(error) => {
                    swept.failed += 1;
                    tracing::warn!(%error, "a blob that nobody names cannot be removed");
                }
            }
        }
        let forgotten = self.write(move |connection| {
            for hash in gone {
                connection.prepare_cached(FORGET)?.execute([hash.0])?;
            }
            Ok(())
        });
        // The rights are given back behind this line.
        forgotten.await
    }
}

fn before(now: WallMs, life: Duration) -> WallMs {
    let life = i64::try_from(life.as_millis()).unwrap_or(i64::MAX);
    WallMs(now.0.saturating_sub(life))
}

fn pending(connection: &Connection, after: [u8; 32]) -> Result<Vec<Candidate>, StoreError> {
    let limit = i64::try_from(SWEEP_BLOBS_MAX).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(PENDING)?;
    let mut rows = statement.query(params![after, limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let mut cells = Cells::of("blob_refs", row);
        let hash = ContentHash(cells.get()?);
        let bytes = cells.count()?;
        found.push(Candidate { hash, bytes });
    }
    Ok(found)
}

/// A batch of old marks, and the floor that stays in their place (LF-11).
fn collect(connection: &Connection, cutoff: WallMs) -> Result<u64, StoreError> {
    let limit = i64::try_from(SWEEP_BLOBS_MAX).unwrap_or(i64::MAX);
    let mut taken = 0;
    for mesh in floor::personal_meshes(connection)? {
        let mut statement = connection.prepare_cached(OLD_MARKS)?;
        let mut rows = statement.query(params![mesh, cutoff.0, limit])?;
        let mut places: Vec<i64> = Vec::new();
        while let Some(row) = rows.next()? {
            // One that is not what was written must not become the measure of others; it stays, and is told of.
            if let Err(StoreError::Corrupt(_)) = FILES.check(row) {
                continue;
            }
            let mut cells = Cells::of("files", row);
            places.push(cells.get()?);
            let (mesh, peer): ([u8; 16], String) = (cells.get()?, cells.get()?);
            let (lamport, op): (i64, [u8; 16]) = (cells.get()?, cells.get()?);
            let floor = params![mesh, peer, lamport, op];
            connection.prepare_cached(RAISE_FLOOR)?.execute(floor)?;
        }
        for place in places {
            taken += connection.prepare_cached(TAKE_MARK)?.execute([place])? as u64;
        }
    }
    Ok(taken)
}
