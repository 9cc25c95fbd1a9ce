//! Reading a blob: its length, kind and mode checked when it is opened, its hash while it streams by.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt as _;

use heddle_core::file::{ContentHash, ContentHasher};

use super::{BlobError, Blobs, beneath, names};

/// An open blob. It gives its last bytes only when all of them were the right ones, so that nobody ever
/// gets a whole file that is not the one that was shared.
#[derive(Debug)]
pub struct BlobReader {
    file: File,
    hash: ContentHash,
    size: u64,
    hasher: ContentHasher,
}

impl Blobs {
    /// The blob of this hash, which has so many bytes.
    pub fn read(&self, hash: ContentHash, size: u64) -> Result<BlobReader, BlobError> {
        let (folder, name) = names(hash);
        let file = File::from(beneath::file(self.root(), &[&folder, &name])?);
        let io = |source| BlobError::io("look at", &name, source);
        let found = file.metadata().map_err(io)?.len();
        if found != size {
            let why = format!("it has {found} bytes instead of {size}");
            return Err(BlobError::Damaged { hash, why });
        }
        Ok(BlobReader {
            file,
            hash,
            size,
            hasher: ContentHasher::default(),
        })
    }
}

impl Blobs {
    /// Which file lies there, and since when: another answer once anybody has put bytes in its place. None where there is none
    /// of ours.
    pub fn stamp(&self, hash: ContentHash) -> Option<(u64, i64, i64)> {
        let (folder, name) = names(hash);
        let file = beneath::file(self.root(), &[&folder, &name]).ok()?;
        let found = File::from(file).metadata().ok()?;
        Some((found.ino(), found.ctime(), found.ctime_nsec()))
    }
}

impl BlobReader {
    /// Reads all of it once without giving any of it away; then it stands at its beginning again.
    pub fn verify(&mut self, buffer: &mut [u8]) -> Result<(), BlobError> {
        while self.next(buffer)? > 0 {}
        let rewound = self.file.seek(SeekFrom::Start(0));
        rewound.map_err(|source| BlobError::io("rewind", &self.hash.to_string(), source))?;
        self.hasher = ContentHasher::default();
        Ok(())
    }

    /// The next bytes; 0 at the end. The piece that reaches the end comes only if the hash is right.
    pub fn next(&mut self, buffer: &mut [u8]) -> Result<usize, BlobError> {
        let left = self.size - self.hasher.bytes();
        if left == 0 || buffer.is_empty() {
            return Ok(0);
        }
        let most = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let read = loop {
            match self.file.read(&mut buffer[..most]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let read = read.map_err(|source| BlobError::io("read", &self.hash.to_string(), source))?;
        if read == 0 {
            return Err(self.damaged("it ends too early"));
        }
        self.hasher.update(&buffer[..read]);
        if self.hasher.bytes() == self.size && self.hasher.clone().finish() != self.hash {
            return Err(self.damaged("its content has another hash"));
        }
        Ok(read)
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    fn damaged(&self, why: &str) -> BlobError {
        BlobError::Damaged {
            hash: self.hash,
            why: why.to_owned(),
        }
    }
}
