//! The bytes of large files, each under the hash of its content: `blobs/ab/<sha256>`.
//!
//! A blob has its final name only when it is whole and synced (C10), and is not taken away while
//! somebody holds it ([`holds`]). Everything is opened beneath the folder's own descriptor, and nothing
//! follows a link. This module knows no database: who names a blob is for `data::files` to say.

mod beneath;
mod error;
mod holds;
mod incoming;
mod partial;
mod reader;
mod set_aside;
mod walk;

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use heddle_core::file::ContentHash;
use rustix::fs::{AtFlags, Mode, OFlags};

pub use error::BlobError;
pub use holds::Hold;
pub(crate) use holds::Removing;
pub use incoming::{Incoming, Landed, Landing};
pub use partial::Partial;
pub use reader::BlobReader;
pub(crate) use walk::Found;

use beneath::{Kind, lock, sync};

/// Where bytes wait until their hash is known. On the same file system, so that a rename suffices.
const INCOMING: &str = "tmp";
/// Where bytes of other homes gather until all of them are there; kept over a restart.
const PARTIAL: &str = "part";
const FOLDER_MODE: u32 = 0o700;

/// The blob folder of one home. Cheap to clone; all clones are one store. One process has it open at a
/// time: the lock on the home sees to that.
#[derive(Debug, Clone)]
pub struct Blobs {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: OwnedFd,
    incoming: OwnedFd,
    partial: OwnedFd,
    /// Which blobs are being fetched: each by one at a time.
    fetching: Mutex<BTreeSet<ContentHash>>,
    holds: holds::Holds,
    next_name: AtomicU64,
    /// Folders whose entry in the root this process has synced.
    synced: Mutex<BTreeSet<u8>>,
    /// Why nothing is written any more: a folder's sync failed, and a second one could lie.
    poison: Mutex<Option<String>>,
}

impl Blobs {
    /// Opens the folder, makes it if it is missing, and empties what a crash left half-written.
    pub fn open(path: &Path) -> Result<Self, BlobError> {
        let at = |what: &'static str| move |source| BlobError::io(what, "blobs", source);
        match DirBuilder::new().mode(FOLDER_MODE).create(path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(at("make")(error));
            }
            _ => {}
        }
        if let Some(above) = path.parent() {
            let above = std::fs::File::open(above).map_err(at("open the folder of"))?;
            above.sync_all().map_err(at("sync the folder of"))?;
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|error| BlobError::open("blobs", error))?;
        beneath::own(&root, Kind::Folder, "blobs")?;
        let incoming = folder(root.as_fd(), INCOMING)?;
        let partial = folder(root.as_fd(), PARTIAL)?;
        let blobs = Self {
            inner: Arc::new(Inner {
                root,
                incoming,
                partial,
                fetching: Mutex::default(),
                holds: holds::Holds::default(),
                next_name: AtomicU64::new(0),
                synced: Mutex::default(),
                poison: Mutex::default(),
            }),
        };
        blobs.empty_incoming()?;
        Ok(blobs)
    }

    /// Keeps the blob of this hash from being taken away, whether it is there or not.
    pub fn hold(&self, hash: ContentHash) -> Hold {
        self.inner.holds.hold(hash)
    }

    /// The right to take this blob away; `None` while somebody holds it.
    pub(crate) fn try_remove(&self, hash: ContentHash) -> Option<Removing> {
        self.inner.holds.try_remove(hash)
    }

    /// Takes the blob away; false when there was none.
    pub(crate) fn unlink(&self, right: &Removing) -> Result<bool, BlobError> {
        let hash = right.hash();
        let (folder, name) = names(hash);
        let folder = match beneath::folder(self.root(), &folder) {
            Ok(folder) => folder,
            Err(BlobError::Missing { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        match rustix::fs::unlinkat(&folder, name.as_str(), AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(BlobError::io("remove", &name, error.into())),
        }
    }

    fn root(&self) -> BorrowedFd<'_> {
        self.inner.root.as_fd()
    }

    /// The folder that blobs of this hash lie in, made if it is missing, its own name synced.
    fn folder_for(&self, hash: ContentHash) -> Result<OwnedFd, BlobError> {
        let (name, _) = names(hash);
        let folder = folder(self.root(), &name)?;
        let mut synced = lock(&self.inner.synced);
        if !synced.contains(&hash.0[0]) {
            // Also when it was there: who made it may have died before this line.
            self.sync_or_poison(self.root(), "blobs")?;
            synced.insert(hash.0[0]);
        }
        Ok(folder)
    }

    fn sync_or_poison(&self, folder: BorrowedFd<'_>, name: &str) -> Result<(), BlobError> {
        sync(folder).map_err(|error| {
            let why = format!("{name}: {error}");
            lock(&self.inner.poison).get_or_insert(why);
            BlobError::io("sync", name, error)
        })
    }

    fn refuse_when_poisoned(&self) -> Result<(), BlobError> {
        match lock(&self.inner.poison).as_ref() {
            Some(why) => Err(BlobError::Poisoned(why.clone())),
            None => Ok(()),
        }
    }
}

/// `("ab", "ab…")`.
fn names(hash: ContentHash) -> (String, String) {
    let name = hash.to_string();
    (name[..2].to_owned(), name)
}

fn folder(root: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, BlobError> {
    match rustix::fs::mkdirat(root, name, Mode::from_raw_mode(FOLDER_MODE)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => beneath::folder(root, name),
        Err(error) => Err(BlobError::io("make", name, error.into())),
    }
}
