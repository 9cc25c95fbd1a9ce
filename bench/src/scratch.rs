//! The folder in which a run keeps everything, removed with all it holds when the run ends.

use std::path::{Path, PathBuf};

use crate::error::{Outcome, While as _};

/// `statfs` of a file system in memory: a sync costs nothing there.
const TMPFS_MAGIC: i64 = 0x0102_1994;

#[derive(Debug)]
pub struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    /// A short name, because a Unix socket's whole path has 107 bytes.
    pub fn new(parent: Option<&Path>) -> Outcome<Self> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let folder = tempfile::Builder::new()
            .prefix("hb")
            .tempdir_in(&parent)
            .or_fail(&parent.display().to_string())?;
        Ok(Self { folder })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A folder inside, made if need be.
    pub fn folder(&self, name: &str) -> Outcome<PathBuf> {
        let path = self.file(name);
        std::fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// What a reader must know of the disk below.
    pub fn warning(&self) -> Option<String> {
        let kind = rustix::fs::statfs(self.path()).ok()?.f_type;
        (kind == TMPFS_MAGIC).then(|| {
            format!(
                "{} is in memory, so syncs cost nothing: name a folder on a disk with --dir",
                self.path().display()
            )
        })
    }
}
