//! The machine's own disk, opened with care: no links followed, modes 0600 and 0700.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

use super::{Appender, Disk, Entry, LockGuard, Looked, Reader, not_blank, not_plain};
use crate::lines::is_blank;

#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    // Non-blocking: a pipe under one of our names must not hang us.
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    options
        .mode(0o600)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0));
    options
}

/// A regular file with one name, and nothing else (T-64).
fn checked(file: File) -> io::Result<File> {
    plain(&file).map(|_| file)
}

fn plain(file: &File) -> io::Result<Metadata> {
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.nlink() > 1 {
        return Err(not_plain());
    }
    Ok(metadata)
}

fn open_read(path: &Path) -> io::Result<File> {
    open_sized(path).map(|(file, _)| file)
}

/// With its length: a call less for who needs it.
fn open_sized(path: &Path) -> io::Result<(File, u64)> {
    match options().read(true).open(path) {
        // A link; and a socket cannot be opened at all.
        Err(error) if is_no_file(&error) => Err(not_plain()),
        opened => {
            let file = opened?;
            let length = plain(&file)?.len();
            Ok((file, length))
        }
    }
}

/// As long as it was when it was opened: what grows meanwhile is the next look's.
fn whole(file: File, length: u64, limit: u64) -> io::Result<Vec<u8>> {
    if length > limit {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    let wanted = usize::try_from(length).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(wanted);
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Up to `bytes` from `offset` on.
fn read_piece(file: &File, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(filled);
    Ok(buffer)
}

fn is_no_file(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [rustix::io::Errno::LOOP, rustix::io::Errno::NXIO]
        .iter()
        .any(|errno| code == Some(errno.raw_os_error()))
}

impl Disk for RealDisk {
    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let all = self.list_all(dir)?.into_iter();
        let named = all.filter_map(|(name, is_dir)| {
            let name = name.into_string().ok()?;
            Some(Entry { name, is_dir })
        });
        Ok(named.collect())
    }

    fn list_all(&self, dir: &Path) -> io::Result<Vec<(OsString, bool)>> {
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut listed = Vec::new();
        for entry in entries {
            let entry = entry?;
            listed.push((entry.file_name(), entry.file_type()?.is_dir()));
        }
        listed.sort();
        Ok(listed)
    }

    fn look(&self, path: &Path, limit: u64) -> io::Result<Looked> {
        let file = match options().read(true).open(path) {
            Ok(file) => file,
            Err(error) if is_no_file(&error) => {
                return match std::fs::read_link(path) {
                    Ok(says) => Ok(Looked::Link(says)),
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                        Ok(Looked::Nothing)
                    }
                    Err(error) => Err(error),
                };
            }
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Ok(Looked::Folder);
        }
        if !metadata.is_file() {
            return Ok(Looked::Nothing);
        }
        whole(file, metadata.len(), limit).map(Looked::File)
    }

    fn real(&self, path: &Path) -> io::Result<PathBuf> {
        path.canonicalize()
    }

    fn len(&self, path: &Path) -> io::Result<Option<u64>> {
        match std::fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_file() => Ok(Some(metadata.len())),
            Ok(_) => Err(not_plain()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let (file, length) = open_sized(path)?;
        whole(file, length, limit)
    }

    fn read_at(&self, path: &Path, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let (file, length) = open_sized(path)?;
        let rest = length.saturating_sub(offset);
        let wanted = bytes.min(usize::try_from(rest).unwrap_or(usize::MAX));
        read_piece(&file, offset, wanted)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)?;
        self.check_dir(path)
    }

    fn check_dir(&self, path: &Path) -> io::Result<()> {
        if std::fs::symlink_metadata(path)?.is_dir() {
            Ok(())
        } else {
            Err(io::Error::other("not a plain folder"))
        }
    }

    fn create(&self, path: &Path) -> io::Result<()> {
        options().write(true).create_new(true).open(path).map(drop)
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn Appender>> {
        let file = checked(options().append(true).open(path)?)?;
        Ok(Box::new(RealAppender(file)))
    }

    fn open_room(&self, path: &Path, at: u64) -> io::Result<Box<dyn Appender>> {
        let file = checked(options().read(true).write(true).open(path)?)?;
        // Another writer would come through the lock; one that came past it must not meet us in the same bytes.
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(RealRoom { file, at }))
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn Reader>> {
        Ok(Box::new(RealReader(open_read(path)?)))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut options = options();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        // Only what is left of another time is cut: a file system takes a cut for a rewrite, and syncs at the close.
        if plain(&file)?.len() > 0 {
            file.set_len(0)?;
        }
        (&file).write_all(bytes)
    }

    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let file = options().write(true).create_new(true).open(path)?;
        (&file).write_all(bytes).inspect_err(|_| {
            // Half a file is worse than none.
            let _ = std::fs::remove_file(path);
        })
    }

    fn write_at(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let file = checked(options().write(true).open(path)?)?;
        file.write_all_at(bytes, offset)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        open_read(path)?.sync_data()
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        sync_file_system(&File::open(path)?)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn put_in_place(&self, from: &Path, to: &Path) -> io::Result<()> {
        if !is_exchanged(from, to) {
            return self.rename(from, to);
        }
        // What stood there has the temporary name now.
        self.remove(from)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockGuard>>> {
        loop {
            let file = options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            let held = plain(&file)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            // Somebody removed the file between open and lock: the lock is on a file without a name.
            let named = std::fs::symlink_metadata(path)
                .map(|m| (m.dev(), m.ino()))
                .ok();
            if named == Some((held.dev(), held.ino())) {
                return Ok(Some(Box::new(RealLock(file))));
            }
        }
    }

    fn network_name(&self, path: &Path) -> Option<&'static str> {
        network_of(path)
    }
}

#[cfg(target_os = "linux")]
fn network_of(path: &Path) -> Option<&'static str> {
    let magic = u32::try_from(rustix::fs::statfs(path).ok()?.f_type & 0xffff_ffff).ok()?;
    network_by(magic)
}

/// The numbers by which Linux knows its network file systems.
#[cfg(target_os = "linux")]
fn network_by(magic: u32) -> Option<&'static str> {
    [
        (0x6969, "NFS"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB2"),
        (0x517b, "SMB"),
        (0x0102_1997, "9p"),
        (0x5346_414f, "AFS"),
        (0x00c3_6400, "Ceph"),
    ]
    .iter()
    .find(|(known, _)| *known == magic)
    .map(|(_, name)| *name)
}

/// Two plain files trade names, atomically; false where that cannot be, and nothing happened. (ext4 writes the data of a
/// file that is renamed over another before it goes on; for each of a thousand projections that is a wait.)
#[cfg(target_os = "linux")]
fn is_exchanged(from: &Path, to: &Path) -> bool {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    std::fs::symlink_metadata(to).is_ok_and(|there| there.is_file())
        && renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn is_exchanged(_from: &Path, _to: &Path) -> bool {
    false
}

#[cfg(target_os = "linux")]
fn sync_file_system(folder: &File) -> io::Result<()> {
    Ok(rustix::fs::syncfs(folder)?)
}

/// Elsewhere nothing promises as much: the next boot looks for itself.
#[cfg(not(target_os = "linux"))]
fn sync_file_system(_folder: &File) -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

#[cfg(not(target_os = "linux"))]
fn network_of(_path: &Path) -> Option<&'static str> {
    None
}

#[derive(Debug)]
struct RealAppender(File);

impl Appender for RealAppender {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// Read at once of the place where a batch goes.
const LOOK_BYTES: usize = 64 << 10;

/// Holds a lock on the file itself, until it is closed.
#[derive(Debug)]
struct RealRoom {
    file: File,
    at: u64,
}

impl Appender for RealRoom {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut looked = 0;
        let mut there = vec![0; LOOK_BYTES.min(bytes.len())];
        while looked < bytes.len() {
            let piece = LOOK_BYTES.min(bytes.len() - looked);
            let read = self
                .file
                .read_at(&mut there[..piece], self.at + looked as u64)?;
            if !is_blank(&there[..read]) {
                return Err(not_blank());
            }
            // Where the file ends there is nothing to write over.
            looked += if read == 0 { piece } else { read };
        }
        let written = self.file.write_at(bytes, self.at)?;
        self.at += written as u64;
        Ok(written)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[derive(Debug)]
struct RealReader(File);

impl Reader for RealReader {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        read_piece(&self.0, offset, bytes)
    }
}

#[derive(Debug)]
struct RealLock(File);

impl LockGuard for RealLock {
    fn sign(&mut self, text: &str) -> io::Result<()> {
        // A writer that comes back finds itself signed.
        let signed = self.signed()?;
        if signed == text.as_bytes() {
            return Ok(());
        }
        if signed.len() > text.len() {
            self.0.set_len(text.len() as u64)?;
        }
        self.0.write_all_at(text.as_bytes(), 0)
    }

    fn signed(&self) -> io::Result<Vec<u8>> {
        let mut signed = [0; 256];
        let length = self.0.read_at(&mut signed, 0)?;
        Ok(signed[..length].to_vec())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn jn_38_network_file_systems_are_known_by_their_numbers_and_local_ones_are_none() {
        for (magic, name) in [(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0x0102_1997, "9p")] {
            assert_eq!(network_by(magic), Some(name));
        }
        // ext4, XFS, btrfs, tmpfs.
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994] {
            assert_eq!(network_by(local), None, "{local:x}");
        }
    }
}
