//! A blob on its way from another home: bytes gather in `blobs/part/<sha256>` and become a blob only when
//! the whole has the hash that was wanted. A crash keeps what came; the next start goes on behind it.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use heddle_core::file::{ContentHash, ContentHasher};
use heddle_core::limits::FILE_BYTES_MAX;
use rustix::fs::{AtFlags, Mode, OFlags};

use super::beneath::{self, Kind, lock};
use super::incoming::{COPY_BYTES, FILE_MODE, read_some};
use super::walk::entries;
use super::{BlobError, Blobs, Landed, Landing, PARTIAL, names};

/// The bytes of a blob that have come so far. One at a time for each hash.
#[derive(Debug)]
pub struct Partial {
    blobs: Blobs,
    hash: ContentHash,
    file: File,
    have: u64,
}

impl Blobs {
    /// What has come of this blob; `None` while somebody else fetches it.
    pub fn partial(&self, hash: ContentHash) -> Result<Option<Partial>, BlobError> {
        self.refuse_when_poisoned()?;
        if !lock(&self.inner.fetching).insert(hash) {
            return Ok(None);
        }
        let opened = self.open_partial(hash);
        if opened.is_err() {
            lock(&self.inner.fetching).remove(&hash);
        }
        let (file, have) = opened?;
        Ok(Some(Partial {
            blobs: self.clone(),
            hash,
            file,
            have,
        }))
    }

    fn open_partial(&self, hash: ContentHash) -> Result<(File, u64), BlobError> {
        let name = hash.to_string();
        let flags = OFlags::RDWR
            | OFlags::CREATE
            | OFlags::APPEND
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(FILE_MODE);
        let opened = rustix::fs::openat(&self.inner.partial, name.as_str(), flags, mode)
            .map_err(|error| BlobError::open(&name, error))?;
        beneath::own(&opened, Kind::File, &name)?;
        let file = File::from(opened);
        let io = |source| BlobError::io("look at", &name, source);
        let have = file.metadata().map_err(io)?.len();
        Ok((file, have))
    }

    /// The blobs of which something has come.
    pub(crate) fn partials(&self) -> Result<Vec<ContentHash>, BlobError> {
        let io = |error: rustix::io::Errno| BlobError::io("list", PARTIAL, error.into());
        let names = entries(self.inner.partial.as_fd()).map_err(io)?;
        let hash = |name: &std::ffi::CString| name.to_str().ok()?.parse().ok();
        Ok(names.iter().filter_map(hash).collect())
    }

    /// Forgets what has come of a blob that nobody wants any more. One that is being fetched stays.
    pub(crate) fn forget_partial(&self, hash: ContentHash) -> Result<(), BlobError> {
        let fetching = lock(&self.inner.fetching);
        if fetching.contains(&hash) {
            return Ok(());
        }
        let name = hash.to_string();
        match rustix::fs::unlinkat(&self.inner.partial, name.as_str(), AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(BlobError::io("remove", &name, error.into())),
        }
    }

    /// At most `length` bytes of a blob from `offset` on, for somebody who checks the whole; none behind
    /// its end.
    pub fn read_part(
        &self,
        hash: ContentHash,
        size: u64,
        offset: u64,
        length: u32,
    ) -> Result<Vec<u8>, BlobError> {
        let (folder, name) = names(hash);
        let file = File::from(beneath::file(self.root(), &[&folder, &name])?);
        let io = |source| BlobError::io("read", &name, source);
        let found = file.metadata().map_err(io)?.len();
        if found != size {
            let why = format!("it has {found} bytes instead of {size}");
            return Err(BlobError::Damaged { hash, why });
        }
        let left = size.saturating_sub(offset).min(u64::from(length));
        let mut bytes = vec![0; usize::try_from(left).unwrap_or(0)];
        file.read_exact_at(&mut bytes, offset).map_err(io)?;
        Ok(bytes)
    }
}

impl Partial {
    /// How many bytes have come.
    pub fn have(&self) -> u64 {
        self.have
    }

    /// The next bytes. Not synced: after a power cut the hash of the whole says whether they are there.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), BlobError> {
        let have = self.have.saturating_add(bytes.len() as u64);
        if have > FILE_BYTES_MAX {
            return Err(BlobError::TooLarge);
        }
        let written = self.file.write_all(bytes);
        if let Err(source) = written {
            // Half of it may stand there; what is behind `have` must not count.
            let _ = self.file.set_len(self.have);
            return Err(BlobError::io("write", PARTIAL, source));
        }
        self.have = have;
        Ok(())
    }

    /// Forgets what has come, and begins anew.
    pub fn restart(&mut self) -> Result<(), BlobError> {
        let cut = self.file.set_len(0);
        cut.map_err(|source| BlobError::io("empty", PARTIAL, source))?;
        self.have = 0;
        Ok(())
    }

    /// Makes it a blob, if it is the one that was wanted; else what has come is forgotten. Blocks.
    pub fn finish(mut self, size: u64) -> Result<Landed, BlobError> {
        let io = |what| move |source| BlobError::io(what, PARTIAL, source);
        let mut hasher = ContentHasher::default();
        let mut buffer = vec![0; COPY_BYTES];
        let rewound = self.file.seek(SeekFrom::Start(0));
        rewound.map_err(io("rewind"))?;
        loop {
            let read = read_some(&mut self.file, &mut buffer).map_err(io("read"))?;
            if read == 0 {
                break;
            }
            hasher.update(&buffer[..read]);
        }
        let found = hasher.bytes();
        if found != size || hasher.finish() != self.hash {
            self.restart()?;
            let why = "what came from another home has another hash".to_owned();
            return Err(BlobError::Damaged {
                hash: self.hash,
                why,
            });
        }
        // IMPORTANT: the bytes before the name (C10, LF-29).
        self.file.sync_all().map_err(io("sync"))?;
        Landing::fetched(self.blobs.clone(), self.hash, size).land()
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        lock(&self.blobs.inner.fetching).remove(&self.hash);
    }
}
