//! Taking bytes in: hashed while they stream into a private temporary file, synced, renamed, the
//! folder synced (C10, LF-29). At no moment has half a blob a blob's name.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use heddle_core::file::{ContentHash, ContentHasher};
use heddle_core::limits::{FILE_BYTES_MAX, FILE_INLINE_BYTES_MAX};
use rustix::fs::{AtFlags, Mode, OFlags};

use super::{BlobError, Blobs, Hold, names};

pub(super) const FILE_MODE: u32 = 0o600;
pub(super) const COPY_BYTES: usize = 256 << 10;

/// Bytes that came in whole.
#[derive(Debug)]
pub enum Incoming {
    /// Short enough to stand in a row.
    Inline { hash: ContentHash, bytes: Vec<u8> },
    /// On disk and synced, without a name yet.
    Blob(Landing),
}

impl Incoming {
    pub fn hash(&self) -> ContentHash {
        match self {
            Self::Inline { hash, .. } => *hash,
            Self::Blob(landing) => landing.hash,
        }
    }

    pub fn size(&self) -> u64 {
        match self {
            Self::Inline { bytes, .. } => bytes.len() as u64,
            Self::Blob(landing) => landing.size,
        }
    }
}

/// A whole blob in a temporary file. Dropped, it is gone.
#[derive(Debug)]
pub struct Landing {
    blobs: Blobs,
    /// It came from another home, part by part.
    is_fetched: bool,
    name: String,
    pub hash: ContentHash,
    pub size: u64,
}

/// A blob under its name, safe on disk, and held until this is dropped.
#[derive(Debug)]
pub struct Landed {
    pub hash: ContentHash,
    pub size: u64,
    pub hold: Hold,
}

impl Blobs {
    /// Reads to the end. Blocks: for a thread that may wait for disks.
    pub fn take_in(&self, source: &mut dyn Read) -> Result<Incoming, BlobError> {
        let mut head = Vec::new();
        let inline_max = FILE_INLINE_BYTES_MAX as u64;
        let mut first = source.take(inline_max);
        first.read_to_end(&mut head).map_err(BlobError::Source)?;
        if head.len() < FILE_INLINE_BYTES_MAX {
            let hash = ContentHash::of(&head);
            return Ok(Incoming::Inline { hash, bytes: head });
        }
        self.refuse_when_poisoned()?;
        // From here on a drop takes the temporary file away.
        let (mut landing, file) = self.temporary()?;
        let mut file = Hashing::new(file);
        file.keep(&head)?;
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            let read = read_some(source, &mut buffer).map_err(BlobError::Source)?;
            if read == 0 {
                break;
            }
            file.keep(&buffer[..read])?;
        }
        let io = |source| BlobError::io("sync", &landing.name, source);
        file.file.sync_all().map_err(io)?;
        landing.size = file.hasher.bytes();
        landing.hash = file.hasher.finish();
        Ok(Incoming::Blob(landing))
    }

    /// Hash and size of what could be taken in, keeping nothing.
    pub fn measure(source: &mut dyn Read) -> Result<(ContentHash, u64), BlobError> {
        let mut hasher = ContentHasher::default();
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            let read = read_some(source, &mut buffer).map_err(BlobError::Source)?;
            if read == 0 {
                let size = hasher.bytes();
                return Ok((hasher.finish(), size));
            }
            hasher.update(&buffer[..read]);
            if hasher.bytes() > FILE_BYTES_MAX {
                return Err(BlobError::TooLarge);
            }
        }
    }

    fn temporary(&self) -> Result<(Landing, File), BlobError> {
        let number = self.inner.next_name.fetch_add(1, Ordering::Relaxed);
        let name = format!("{number:016x}");
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(FILE_MODE);
        let file = rustix::fs::openat(&self.inner.incoming, name.as_str(), flags, mode)
            .map_err(|error| BlobError::io("create", &name, error.into()))?;
        let landing = Landing {
            blobs: self.clone(),
            is_fetched: false,
            name,
            hash: ContentHash([0; 32]),
            size: 0,
        };
        Ok((landing, File::from(file)))
    }

    /// What an earlier process left half-written. Nothing of this process is there yet.
    pub(super) fn empty_incoming(&self) -> Result<(), BlobError> {
        let folder = &self.inner.incoming;
        let io = |error: rustix::io::Errno| BlobError::io("empty", super::INCOMING, error.into());
        for name in super::walk::entries(folder.as_fd()).map_err(io)? {
            match rustix::fs::unlinkat(folder, name.as_c_str(), AtFlags::empty()) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                // A folder, say: not of our making, and in nobody's way.
                Err(error) => tracing::warn!(?name, %error, "a left-over stays in blobs/tmp"),
            }
        }
        Ok(())
    }
}

struct Hashing {
    file: File,
    hasher: ContentHasher,
}

impl Hashing {
    fn new(file: File) -> Self {
        let hasher = ContentHasher::default();
        Self { file, hasher }
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), BlobError> {
        self.hasher.update(bytes);
        if self.hasher.bytes() > FILE_BYTES_MAX {
            return Err(BlobError::TooLarge);
        }
        let written = self.file.write_all(bytes);
        written.map_err(|source| BlobError::io("write", "a temporary file", source))
    }
}

pub(super) fn read_some(source: &mut dyn Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match source.read(buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

impl Landing {
    /// What was fetched and found whole; synced already.
    pub(super) fn fetched(blobs: Blobs, hash: ContentHash, size: u64) -> Self {
        Self {
            blobs,
            is_fetched: true,
            name: hash.to_string(),
            hash,
            size,
        }
    }

    fn folder(&self) -> BorrowedFd<'_> {
        if self.is_fetched {
            self.blobs.inner.partial.as_fd()
        } else {
            self.blobs.inner.incoming.as_fd()
        }
    }

    /// Gives the blob its name. A blob that has it already is replaced by the same bytes: whatever the
    /// disk did to the old ones is healed.
    pub fn land(mut self) -> Result<Landed, BlobError> {
        self.blobs.refuse_when_poisoned()?;
        // IMPORTANT: before the rename, or a sweep could take it away between that and its row.
        let hold = self.blobs.hold(self.hash);
        let folder = self.blobs.folder_for(self.hash)?;
        let (folder_name, name) = names(self.hash);
        rustix::fs::renameat(self.folder(), self.name.as_str(), &folder, name.as_str())
            .map_err(|error| BlobError::io("rename", &name, error.into()))?;
        self.name.clear();
        self.blobs.sync_or_poison(folder.as_fd(), &folder_name)?;
        Ok(Landed {
            hash: self.hash,
            size: self.size,
            hold,
        })
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            let _ = rustix::fs::unlinkat(self.folder(), self.name.as_str(), AtFlags::empty());
        }
    }
}
