//! A copy of the store that can be put back: `FILE` with every table, `FILE.blobs/` with the blobs that
//! its rows name.
//!
//! The copy is one moment of the store, taken through SQLite's own backup while others go on writing.
//! It is made under a name that ends in `.part`, checked, synced, and only then gets its own name, the
//! file last: a `FILE` that is there is whole, with its blobs. Nothing that is there is ever replaced.

mod error;
mod restore;
mod single;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use heddle_core::file::ContentHash;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

pub use error::BackupError;
pub use restore::{Restored, check_backup, restore};
pub(crate) use restore::{begin_new_life, issued, keep_blobs_of};
pub use single::{copy_database, replace_database};

use crate::blobs::{BlobError, BlobReader, Blobs, Hold, Incoming};
use crate::park::{BLOBS, open_old, sync_folder, with_suffix};
use crate::senseless::senseless;

const DRAFT: &str = ".part";
/// Where blobs wait for their name; empty in a finished backup.
const INCOMING: &str = "tmp";
const BUSY_WAIT: Duration = Duration::from_millis(20);
const BUSY_WAITS_MAX: u32 = 500;

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackedUp {
    pub file: PathBuf,
    pub bytes: u64,
    pub blobs: u64,
    pub blob_bytes: u64,
    /// Blobs that rows name and that could not be read; in the copy they count as not here.
    pub missing: u64,
    /// Rows that are in it as they are in the store, and that nobody can read; one line for each kind.
    pub unreadable: Vec<String>,
}

/// A blob that rows name and whose bytes are here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named {
    pub(crate) hash: ContentHash,
    pub(crate) bytes: u64,
}

/// Copies the store of `data` and `blobs` to `to`. Blocks; others may go on using both.
pub fn back_up(data: &Path, blobs: &Blobs, to: &Path) -> Result<BackedUp, BackupError> {
    let to = std::path::absolute(to).map_err(BackupError::io("named", to))?;
    let folder = with_suffix(&to, BLOBS);
    if to.symlink_metadata().is_err() {
        clear(&to, &folder)?;
    }
    for path in [&to, &folder] {
        if path.symlink_metadata().is_ok() {
            return Err(BackupError::Exists { path: path.clone() });
        }
    }
    // Before any of its tables is looked at.
    heddle_sqlite::link_vectors()?;
    let old = open_old(&std::path::absolute(data).map_err(BackupError::io("named", data))?)?;
    // What is shared now is not swept away while it is being copied.
    let _held: Vec<Hold> = named(&old)?
        .iter()
        .map(|one| blobs.hold(one.hash))
        .collect();
    let draft = Draft::new(&to)?;
    let new = copy(&old, &draft.file)?;
    if let Some(problem) = problem_of(&new)? {
        let path = data.to_owned();
        return Err(BackupError::Damaged { path, problem });
    }
    // Such rows come along as they are: nothing is lost by copying them, but nobody is to rely on them.
    let unreadable = senseless(&new)?;
    let wanted = named(&new)?;
    let (mut blob_count, mut blob_bytes, mut missing) = (0, 0, 0);
    if !wanted.is_empty() {
        let copies = Blobs::open(&draft.folder)?;
        for one in &wanted {
            if keep(&copies, blobs.read(one.hash, one.bytes).map(Streamed), *one)? {
                blob_count += 1;
                blob_bytes += one.bytes;
            } else {
                missing += 1;
                not_here(&new, *one)?;
            }
        }
        drop(copies);
        let incoming = draft.folder.join(INCOMING);
        fs::remove_dir(&incoming).map_err(BackupError::io("removed", &incoming))?;
    }
    new.close().map_err(|(_, error)| error)?;
    let bytes = draft.name(&to, &folder, !wanted.is_empty())?;
    Ok(BackedUp {
        file: to,
        bytes,
        blobs: blob_count,
        blob_bytes,
        missing,
        unreadable,
    })
}

/// Takes away what a backup left that was killed: its draft is there from its first step to its last. What is no draft
/// of ours stays, and what is locked is being made.
fn clear(to: &Path, folder: &Path) -> Result<(), BackupError> {
    let path = with_suffix(to, DRAFT);
    let Ok(mut draft) = heddle_sqlite::open_plain(&path) else {
        return Ok(());
    };
    let mut head = Vec::new();
    let read = Read::by_ref(&mut draft).take(16).read_to_end(&mut head);
    read.map_err(BackupError::io("read", &path))?;
    let is_ours = head.is_empty() || head == *b"SQLite format 3\0";
    if !is_ours || draft.try_lock().is_err() {
        return Err(BackupError::Unfinished { path });
    }
    for folder in [
        folder.to_owned(),
        with_suffix(to, &format!("{BLOBS}{DRAFT}")),
    ] {
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(BackupError::io("removed", &folder)(error));
            }
            _ => {}
        }
    }
    for end in ["-journal", "-wal", "-shm"] {
        let _ = fs::remove_file(with_suffix(&path, end));
    }
    // Last: it is what tells that the others are leftovers.
    fs::remove_file(&path).map_err(BackupError::io("removed", &path))
}

/// The files of a backup that is being made. Dropped without a name, they are gone.
struct Draft {
    file: PathBuf,
    folder: PathBuf,
    /// Whoever else is to write the same backup sees that it is being made.
    lock: Option<File>,
}

impl Draft {
    fn new(to: &Path) -> Result<Self, BackupError> {
        let mut draft = Self {
            lock: None,
            file: with_suffix(to, DRAFT),
            folder: with_suffix(to, &format!("{BLOBS}{DRAFT}")),
        };
        if draft.folder.symlink_metadata().is_ok() {
            let path = draft.folder.clone();
            std::mem::forget(draft);
            return Err(BackupError::Unfinished { path });
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        match options.open(&draft.file) {
            Ok(file) => {
                let _ = file.try_lock();
                draft.lock = Some(file);
                Ok(draft)
            }
            Err(error) => {
                let path = draft.file.clone();
                // What is there is not ours to take away.
                std::mem::forget(draft);
                Err(match error.kind() {
                    io::ErrorKind::AlreadyExists => BackupError::Unfinished { path },
                    _ => BackupError::io("created", &path)(error),
                })
            }
        }
    }

    /// Everything is synced before the file has its name, and the file comes last.
    fn name(self, to: &Path, folder: &Path, has_blobs: bool) -> Result<u64, BackupError> {
        let file = File::open(&self.file).map_err(BackupError::io("opened", &self.file))?;
        file.sync_all()
            .map_err(BackupError::io("synced", &self.file))?;
        let bytes = file
            .metadata()
            .map_err(BackupError::io("measured", &self.file))?;
        if has_blobs {
            fs::rename(&self.folder, folder).map_err(BackupError::io("named", folder))?;
        }
        let named = sync_folder(to).and_then(|()| name_new(&self.file, to));
        if let Err(error) = named {
            if has_blobs {
                // Back under the name that the drop takes away.
                let _ = fs::rename(folder, &self.folder);
            }
            return Err(match error.kind() {
                io::ErrorKind::AlreadyExists => BackupError::Exists {
                    path: to.to_owned(),
                },
                _ => BackupError::io("named", to)(error),
            });
        }
        sync_folder(to).map_err(BackupError::io("synced", to))?;
        Ok(bytes.len())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        for end in ["", "-journal", "-wal", "-shm"] {
            let _ = fs::remove_file(with_suffix(&self.file, end));
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A link fails where the name is taken, which a rename does not. Not every file system has links.
fn name_new(draft: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(draft, to) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists && !to.exists() => {
            fs::rename(draft, to)
        }
        other => other,
    }
}

/// One moment of `old` in the empty file at `to`, which becomes one file without companions.
pub(super) fn copy(old: &Connection, to: &Path) -> Result<Connection, BackupError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut new = Connection::open_with_flags(to, flags)?;
    new.pragma_update(None, "synchronous", "FULL")?;
    let backup = Backup::new(old, &mut new)?;
    let mut waits = 0;
    // In one step: between two, a write would make it begin anew.
    while backup.step(-1)? != StepResult::Done {
        waits += 1;
        if waits > BUSY_WAITS_MAX {
            return Err(BackupError::Prepare(
                "another process keeps it locked".to_owned(),
            ));
        }
        std::thread::sleep(BUSY_WAIT);
    }
    drop(backup);
    new.pragma_update(None, "journal_mode", "DELETE")?;
    Ok(new)
}

/// The first problem that SQLite names.
pub(crate) fn problem_of(connection: &Connection) -> Result<Option<String>, BackupError> {
    let verdict: rusqlite::Result<String> =
        connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0));
    match verdict {
        Ok(verdict) if verdict == "ok" => Ok(None),
        Ok(problem) => Ok(Some(problem)),
        Err(error) => match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
                Ok(Some(error.to_string()))
            }
            _ => Err(error.into()),
        },
    }
}

/// The blobs that rows name and that are here. A file of a version without files names none.
pub(crate) fn named(connection: &Connection) -> rusqlite::Result<Vec<Named>> {
    if !has_table(connection, "blob_refs")? {
        return Ok(Vec::new());
    }
    // Whatever was counted, also what a live row names.
    let mut statement = connection.prepare(
        "SELECT sha256, bytes FROM blob_refs WHERE here = 1 AND (ref_count > 0
            OR sha256 IN (SELECT sha256 FROM files WHERE storage = 'blob'))",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(Named {
            hash: ContentHash(row.get(0)?),
            bytes: u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0),
        })
    })?;
    rows.collect()
}

pub(crate) fn has_table(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    connection
        .prepare("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1")?
        .exists([name])
}

/// In this copy the rows stay, and the bytes are wanted from whoever has them (LF-27).
pub(super) fn not_here(connection: &Connection, one: Named) -> rusqlite::Result<()> {
    let forget = "UPDATE blob_refs SET here = 0 WHERE sha256 = ?1";
    connection.execute(forget, [one.hash.0])?;
    Ok(())
}

/// Takes a blob in, if it can be read and is the right one.
pub(super) fn keep(
    into: &Blobs,
    source: Result<impl Read, BlobError>,
    one: Named,
) -> Result<bool, BackupError> {
    let Ok(mut source) = source else {
        return Ok(false);
    };
    match into.take_in(&mut source) {
        Ok(Incoming::Blob(landing)) if landing.hash == one.hash => {
            landing.land()?;
            Ok(true)
        }
        Ok(_) | Err(BlobError::Source(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A blob as a stream; bytes that are not the right ones end it with an error.
struct Streamed(BlobReader);

impl Read for Streamed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.next(buffer).map_err(io::Error::other)
    }
}
