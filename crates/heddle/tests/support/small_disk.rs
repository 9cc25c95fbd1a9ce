//! A disk of a few megabytes: a tmpfs that the test mounts (as root; it fails where it may not).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system over a home; gone when dropped.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    pub fn over(folder: &Path, mb: u32) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let size = format!("size={mb}m,mode=0700");
        let ran = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "heddle-test"])
            .arg(folder)
            .output()
            .unwrap();
        assert!(
            ran.status.success(),
            "this test mounts a tmpfs and is not allowed to ({}); run it as root, in a container with CAP_SYS_ADMIN",
            String::from_utf8_lossy(&ran.stderr).trim()
        );
        Self(folder.to_owned())
    }

    /// Others make room: the same disk, larger.
    pub fn grow(&self, mb: u32) {
        let size = format!("remount,size={mb}m");
        let ran = Command::new("mount")
            .args(["-o", &size])
            .arg(&self.0)
            .status();
        assert!(ran.unwrap().success());
    }

    pub fn free_bytes(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.0).unwrap();
        stat.f_bavail * stat.f_frsize
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Takes every byte that is left.
    pub fn fill(&self) {
        let mut file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.ballast())
            .unwrap();
        for size in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![7; size]).is_ok() {}
        }
    }

    /// Lets go of so much of what was filled.
    pub fn give_back(&self, bytes: u64) {
        let file = std::fs::File::options().write(true).open(self.ballast());
        let file = file.unwrap();
        let held = file.metadata().unwrap().len();
        file.set_len(held.saturating_sub(bytes)).unwrap();
    }

    pub fn free(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazy: a process of a failed test may still have a file open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
