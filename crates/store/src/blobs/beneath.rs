//! Opening beneath a folder without following a link, and the modes of what is found there (LF-37).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FileType, Mode, OFlags};

use super::error::BlobError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
}

impl Kind {
    fn mode(self) -> u32 {
        match self {
            Self::File => 0o600,
            Self::Folder => 0o700,
        }
    }
}

/// A folder right beneath `root`, ours and private.
pub(super) fn folder(root: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, BlobError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let found = open(root, &[name], flags).map_err(|error| BlobError::open(name, error))?;
    own(&found, Kind::Folder, name)?;
    Ok(found)
}

/// A file beneath `root`, ours, private and regular.
pub(super) fn file(root: BorrowedFd<'_>, names: &[&str]) -> Result<OwnedFd, BlobError> {
    let name = names.last().copied().unwrap_or_default();
    // A pipe in its place must not make us wait.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let found = open(root, names, flags).map_err(|error| BlobError::open(name, error))?;
    own(&found, Kind::File, name)?;
    Ok(found)
}

/// Opens what is there; creates nothing.
fn open(root: BorrowedFd<'_>, names: &[&str], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        use rustix::io::Errno;
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let path = names.join("/");
        match rustix::fs::openat2(root, path.as_str(), flags, Mode::empty(), resolve) {
            // An old kernel, or a sandbox that does not know the call.
            Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => {}
            opened => return opened,
        }
    }
    part_by_part(root, names, flags)
}

/// The same without `openat2`: no part may be a link. Names hold no `/` and no dots of ours.
fn part_by_part(
    root: BorrowedFd<'_>,
    names: &[&str],
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let (last, above) = names.split_last().ok_or(rustix::io::Errno::INVAL)?;
    let through = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut folder: Option<OwnedFd> = None;
    for name in above {
        let from = folder.as_ref().map_or(root, AsFd::as_fd);
        folder = Some(rustix::fs::openat(from, *name, through, Mode::empty())?);
    }
    let from = folder.as_ref().map_or(root, AsFd::as_fd);
    rustix::fs::openat(from, *last, flags, Mode::empty())
}

/// Refuses what is of another kind or another user; repairs a mode that has drifted.
pub(super) fn own(found: &OwnedFd, kind: Kind, name: &str) -> Result<(), BlobError> {
    let io = |what| move |error: rustix::io::Errno| BlobError::io(what, name, error.into());
    let foreign = |why| BlobError::Foreign {
        name: name.to_owned(),
        why,
    };
    let stat = rustix::fs::fstat(found).map_err(io("look at"))?;
    let is_kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => kind == Kind::File,
        FileType::Directory => kind == Kind::Folder,
        _ => false,
    };
    if !is_kind {
        return Err(foreign("not a regular file or folder"));
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(foreign("it belongs to another user"));
    }
    let mode = Mode::from_raw_mode(stat.st_mode).as_raw_mode() & 0o777;
    if mode != kind.mode() {
        let right = Mode::from_raw_mode(kind.mode());
        rustix::fs::fchmod(found, right).map_err(io("repair the mode of"))?;
        tracing::warn!(
            name,
            found = format_args!("{mode:o}"),
            "mode of a blob repaired"
        );
    }
    Ok(())
}

pub(super) fn sync(folder: BorrowedFd<'_>) -> io::Result<()> {
    rustix::fs::fsync(folder).map_err(io::Error::from)
}

/// What stands behind these locks is valid at every step.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn t_16_neither_way_of_opening_follows_a_link_at_any_part() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("real")).unwrap();
        std::fs::write(at("real/file"), "f").unwrap();
        symlink(outside.path(), at("out")).unwrap();
        symlink(outside.path().join("secret"), at("real/link")).unwrap();
        symlink("file", at("real/near")).unwrap();
        let root: OwnedFd = std::fs::File::open(folder.path()).unwrap().into();
        for open in [open, part_by_part] {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let open = |names: &[&str]| open(root.as_fd(), names, flags);
            assert!(open(&["real", "file"]).is_ok());
            for names in [
                &["out", "secret"][..],
                &["real", "link"],
                &["real", "near"],
                &["real", "missing"],
                &["missing", "file"],
            ] {
                assert!(open(names).is_err(), "{names:?}");
            }
        }
    }
}
