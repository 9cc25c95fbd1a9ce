//! Bytes that are not the blob whose name they bear, kept in `blobs/bad/<sha256>` until good ones are here.

use std::os::fd::{AsFd, OwnedFd};

use heddle_core::file::ContentHash;
use rustix::fs::AtFlags;

use super::walk::entries;
use super::{BlobError, Blobs, Removing, beneath, folder, names};

const BAD: &str = "bad";

impl Blobs {
    /// Takes what bears the blob's name out of its place; nothing follows a link. False when there was nothing.
    pub(crate) fn set_aside(&self, right: &Removing) -> Result<bool, BlobError> {
        let (from, name) = names(right.hash());
        let from = match beneath::folder(self.root(), &from) {
            Ok(from) => from,
            Err(BlobError::Missing { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let bad = folder(self.root(), BAD)?;
        match rustix::fs::renameat(&from, name.as_str(), &bad, name.as_str()) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(BlobError::io("set aside", &name, error.into())),
        }
    }

    /// The blobs of which bad bytes lie there.
    pub(crate) fn all_set_aside(&self) -> Result<Vec<ContentHash>, BlobError> {
        let Some(bad) = self.bad()? else {
            return Ok(Vec::new());
        };
        let io = |error: rustix::io::Errno| BlobError::io("list", BAD, error.into());
        let names = entries(bad.as_fd()).map_err(io)?;
        let hash = |name: &std::ffi::CString| name.to_str().ok()?.parse().ok();
        Ok(names.iter().filter_map(hash).collect())
    }

    pub(crate) fn forget_set_aside(&self, hash: ContentHash) -> Result<(), BlobError> {
        let Some(bad) = self.bad()? else {
            return Ok(());
        };
        let name = hash.to_string();
        match rustix::fs::unlinkat(&bad, name.as_str(), AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(BlobError::io("remove", &name, error.into())),
        }
    }

    fn bad(&self) -> Result<Option<OwnedFd>, BlobError> {
        match beneath::folder(self.root(), BAD) {
            Ok(bad) => Ok(Some(bad)),
            Err(BlobError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
