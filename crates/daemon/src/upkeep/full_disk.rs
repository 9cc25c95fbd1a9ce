//! A disk that has no room for a start: which one it is, what is free on it, what a start needs, and the step that helps.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use heddle_core::limits::START_ROOM;
use heddle_core::pressure::FileSystem;

use super::look::{bytes, size};
use super::steps;

/// Less room than a start needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullDisk {
    /// Where the disk begins in the tree of folders: what people, and `df`, know it by.
    mount: PathBuf,
    disk: FileSystem,
    needed: u64,
    /// Of that, for the steps of the schema that wait.
    steps: u64,
    /// There is room for bytes, but not for one file more.
    has_no_files_left: bool,
}

impl FullDisk {
    /// The disk of a home, where the next start has too little room on it: what every start needs, and what the steps of
    /// the schema need that wait. One judgement for whoever starts and whoever looks. Nobody has the home open.
    pub fn for_start(home: &Path) -> Option<Self> {
        // Most disks have room for whatever it may be: nothing has to be opened.
        let files = ["data.db", "data.db-wal"].map(|name| bytes(home, name));
        Self::of(home, 2 * files.iter().sum::<u64>())?;
        Self::of(home, steps::room(home))
    }

    /// The disk of a home, where a start has too little room on it. `more`: what the steps of its schema need.
    pub fn of(home: &Path, more: u64) -> Option<Self> {
        let folder = home.ancestors().find(|folder| folder.is_dir())?;
        let stat = rustix::fs::statvfs(folder).ok()?;
        let disk = FileSystem {
            size: stat.f_blocks.saturating_mul(stat.f_frsize),
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
        };
        // No disk at all: `/proc` and the like are never full, and nobody can make room on them.
        if disk.size == 0 {
            return None;
        }
        let needed = START_ROOM.saturating_add(more);
        // Some file systems count no files at all.
        let has_no_files_left = stat.f_files > 0 && stat.f_favail == 0;
        (disk.free < needed || has_no_files_left).then(|| Self {
            mount: mount_of(folder),
            disk,
            needed,
            steps: more,
            has_no_files_left,
        })
    }

    /// Whether no start can have gone well on it.
    pub fn is_full(&self) -> bool {
        self.has_no_files_left || self.disk.is_full()
    }

    /// The step that helps.
    pub fn next(&self) -> String {
        let mount = self.mount.display();
        let room = if self.has_no_files_left {
            format!("remove files on {mount} (`df -i {mount}` shows it)")
        } else {
            let lacking = self.needed.saturating_sub(self.disk.free).max(1 << 20);
            let lacking = size(lacking);
            format!("free some space on {mount}, at least {lacking} (`df -h {mount}` shows it)")
        };
        format!(
            "Nothing is lost, and what was accepted is on disk; {room}, or give the home a larger disk, and start again."
        )
    }
}

impl fmt::Display for FullDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mount = self.mount.display();
        if self.has_no_files_left {
            return write!(
                f,
                "the disk is full: {mount} takes no more files (no inode is free)"
            );
        }
        let how = if self.is_full() { "" } else { "nearly " };
        write!(
            f,
            "the disk is {how}full: {} of {} are free on {mount}, and a start may need {}",
            size(self.disk.free),
            size(self.disk.size),
            size(self.needed)
        )?;
        match self.steps {
            0 => Ok(()),
            steps => write!(
                f,
                ", {} of it for steps of the schema of data.db and a copy from before them",
                size(steps)
            ),
        }
    }
}

/// The first folder upwards that lies on the same disk.
fn mount_of(folder: &Path) -> PathBuf {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let device = |path: &Path| std::fs::metadata(path).ok().map(|metadata| metadata.dev());
    let own = device(&folder);
    let on_it = folder.ancestors().take_while(|path| device(path) == own);
    on_it.last().unwrap_or(&folder).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_named_with_what_is_free_and_what_is_needed() {
        let full = FullDisk {
            mount: PathBuf::from("/mnt/small"),
            disk: FileSystem {
                size: 8 << 20,
                free: 12 << 10,
            },
            needed: 4 << 20,
            steps: 0,
            has_no_files_left: false,
        };
        assert_eq!(
            full.to_string(),
            "the disk is full: 12 KB of 8 MB are free on /mnt/small, and a start may need 4 MB"
        );
        assert!(
            full.next()
                .contains("free some space on /mnt/small, at least 4 MB"),
            "{}",
            full.next()
        );
    }

    #[test]
    fn a_home_that_is_not_there_yet_lies_on_the_disk_of_the_folder_above_it() {
        let plenty = tempfile::tempdir().unwrap();
        let home = plenty.path().join("not/there/yet");
        assert_eq!(FullDisk::of(&home, 0), None);
        let full = FullDisk::of(&home, u64::MAX).unwrap();
        assert_eq!(full.mount, mount_of(plenty.path()));
    }

    #[test]
    fn what_has_no_size_is_no_disk_and_is_not_called_full() {
        assert_eq!(FullDisk::of(Path::new("/proc/heddle/home"), 0), None);
    }
}
