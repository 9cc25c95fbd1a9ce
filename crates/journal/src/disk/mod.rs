//! What the journal asks of a disk, as a trait with its promises in prose.
//!
//! Two implementations keep the same contract (`tests/disk_contract.rs`): [`RealDisk`], and [`MemDisk`],
//! which remembers what was synced, so that a test can cut the power after every single operation.
//!
//! Promises:
//! - `append` writes all of its buffer in one call or says how much it wrote; it never retries.
//! - Nothing but newlines is ever written over by an appender, also not where two of them are at it.
//! - What `sync` confirmed survives a power cut; a name survives once `sync_dir` of its folder confirmed.
//! - `rename` is atomic: after a crash the name means the old file or the new one.
//! - A lock is the kernel's: it ends with the process that holds it, and cannot be taken by force.
//! - Nothing follows a symbolic link, and nothing but a regular file with one name is opened (T-64); but for `look`, by which a redaction
//!   searches whatever lies in the store.

mod image;
mod memory;
mod memory_files;
mod real;

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};

pub use image::Crash;
pub use memory::{Fault, MemDisk, Op};
pub use real::RealDisk;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub is_dir: bool,
}

/// What stands under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Looked {
    File(Vec<u8>),
    /// A link, and where it says to lead.
    Link(PathBuf),
    Folder,
    /// A pipe, a socket, a device: no bytes lie in it.
    Nothing,
}

pub trait Disk: Send + Sync + Debug {
    /// The entries of a folder, sorted; a missing folder is empty. Links and pipes are named, and refused
    /// by whoever opens them.
    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>>;
    /// The length of a regular file; None where there is nothing.
    fn len(&self, path: &Path) -> io::Result<Option<u64>>;
    /// Up to `limit` bytes; a longer file is an error.
    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>>;
    /// The same, for whoever only searches: every name of a file will do, and whatever else stands there is told.
    /// IMPORTANT: never for a file of the journal's own that is believed or changed (T-64).
    fn look(&self, path: &Path, limit: u64) -> io::Result<Looked> {
        self.read(path, limit).map(Looked::File)
    }
    /// The place itself, behind all links on the way.
    fn real(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }
    /// The entries of a folder, those included whose names are no text; and whether each is a folder.
    fn list_all(&self, dir: &Path) -> io::Result<Vec<(OsString, bool)>> {
        let listed = self.list(dir)?.into_iter();
        Ok(listed
            .map(|entry| (entry.name.into(), entry.is_dir))
            .collect())
    }
    /// Up to `bytes` from `offset` on; fewer at the end of the file.
    fn read_at(&self, path: &Path, offset: u64, bytes: usize) -> io::Result<Vec<u8>>;
    /// With its parents; one that is there is fine.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// An empty file that was not there before.
    fn create(&self, path: &Path) -> io::Result<()>;
    /// To the end of a file that is there.
    fn open_append(&self, path: &Path) -> io::Result<Box<dyn Appender>>;
    /// Into the blank room that a file ends with, from `at` on. `WouldBlock` where somebody else is at it, and its
    /// `append` says `AlreadyExists` where anything but newlines stands there.
    fn open_room(&self, path: &Path, at: u64) -> io::Result<Box<dyn Appender>>;
    /// For many small reads of one file, whatever its name means by then.
    fn open_read(&self, path: &Path) -> io::Result<Box<dyn Reader>>;
    /// The whole content of a file, made or replaced in place: for temporary names only.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// A file that was not there, with its content. A crash may leave a part of it: for names whose content is
    /// compared before it is believed.
    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// In place, of a file that is there.
    fn write_at(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()>;
    fn sync(&self, path: &Path) -> io::Result<()>;
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Everything below this folder, names and data.
    fn sync_all(&self, path: &Path) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// As `rename`, for what need not survive a power cut: a file system that takes a rename for a promise, and writes
    /// the data at once, is spared it.
    fn put_in_place(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// None when somebody else holds it.
    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockGuard>>>;
    /// A folder itself, and no link to one.
    fn check_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    /// A file system where appends and locks are not what they seem; None where it is a local one.
    fn network_name(&self, _path: &Path) -> Option<&'static str> {
        None
    }
}

pub trait Appender: Send + Debug {
    /// How many bytes went in; fewer than asked is a torn write.
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize>;
    fn sync(&mut self) -> io::Result<()>;
}

pub trait Reader: Send + Debug {
    fn length(&self) -> io::Result<u64>;
    /// Up to `bytes` from `offset` on; fewer at the end of the file.
    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Vec<u8>>;
}

/// Dropping it gives the lock back.
pub trait LockGuard: Send + Debug {
    /// In place: who holds it, and the last seq that its owners have seen.
    fn sign(&mut self, text: &str) -> io::Result<()>;
    /// What stands there.
    fn signed(&self) -> io::Result<Vec<u8>>;
}

/// Puts a file under its name whole: temporary file, rename; synced on both sides where it must survive.
pub fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8], must_survive: bool) -> io::Result<()> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let temporary = path.with_file_name(format!(".{name}.tmp"));
    disk.write(&temporary, bytes)?;
    if !must_survive {
        return disk.put_in_place(&temporary, path);
    }
    disk.sync(&temporary)?;
    disk.rename(&temporary, path)?;
    path.parent().map_or(Ok(()), |dir| disk.sync_dir(dir))
}

/// Reads a file that may be missing.
pub fn read_if_there(disk: &dyn Disk, path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    match disk.read(path, limit) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Something other than a plain file with one name stands there: a link, a folder, a pipe (T-64).
pub fn is_not_plain(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput
}

pub(crate) fn not_blank() -> io::Error {
    io::Error::new(
        io::ErrorKind::AlreadyExists,
        "somebody else wrote here without the lock; was its file removed?",
    )
}

pub(crate) fn not_plain() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "not a plain file with one name",
    )
}
