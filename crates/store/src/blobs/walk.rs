//! Walking the blob folders: which blobs are there, and since when.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd};

use heddle_core::clock::WallMs;
use heddle_core::file::ContentHash;
use rustix::fs::{AtFlags, Dir};

use super::{BlobError, Blobs, beneath};

/// A blob that lies in its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) hash: ContentHash,
    pub(crate) changed_at: WallMs,
    pub(crate) bytes: u64,
}

impl Blobs {
    /// The blobs of one folder (`0` to `255`). What has no blob's name is left alone.
    pub(crate) fn walk(&self, folder: u8) -> Result<Vec<Found>, BlobError> {
        let name = format!("{folder:02x}");
        let opened = match beneath::folder(self.root(), &name) {
            Ok(opened) => opened,
            Err(BlobError::Missing { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let io = |error: rustix::io::Errno| BlobError::io("list", &name, error.into());
        let mut found = Vec::new();
        for entry in entries(opened.as_fd()).map_err(io)? {
            let hash = entry.to_str().ok().and_then(|text| text.parse().ok());
            let Some(hash) = hash.filter(|hash: &ContentHash| hash.0[0] == folder) else {
                tracing::warn!(folder = %name, ?entry, "not a blob; left alone");
                continue;
            };
            let stat = rustix::fs::statat(&opened, entry.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
            match stat {
                Ok(stat) => found.push(Found {
                    hash,
                    changed_at: WallMs(stat.st_mtime.saturating_mul(1000)),
                    bytes: u64::try_from(stat.st_size).unwrap_or(0),
                }),
                Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(io(error)),
            }
        }
        Ok(found)
    }
}

/// The names in a folder, without itself and the one above.
pub(super) fn entries(folder: BorrowedFd<'_>) -> rustix::io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if name.to_bytes() != b"." && name.to_bytes() != b".." {
            names.push(name);
        }
    }
    Ok(names)
}
