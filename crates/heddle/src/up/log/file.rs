//! The log on disk: JSON lines, rotated by size, within a budget, losing lines rather than the daemon.
//!
//! `daemon.jsonl` is written, `daemon.jsonl.1` is the one before it, and so on. There are never more
//! files than told, and none larger than told: together that is the budget. Where little is free on the disk
//! the budget is a small share of it, and a log that finds nothing left writes nothing: the disk
//! is for what people send.

use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use heddle_core::pressure::FileSystem;
use heddle_daemon::home::{create_log_folder, open_private};
use rustix::fs::statvfs;

pub const LOG_NAME: &str = "daemon.jsonl";
/// Bytes after which the disk is looked at again.
const LOOK_EVERY: u64 = 8 << 10;

#[derive(Debug, Clone, Copy)]
pub struct Budget {
    pub file_bytes_max: u64,
    pub files: u32,
}

#[derive(Debug)]
pub struct LogFile {
    folder: PathBuf,
    budget: Budget,
    file: File,
    /// Which file that is.
    place: Place,
    bytes: u64,
    /// The last write ended within a line.
    is_torn: bool,
    /// Lines that could not be written since the last one that could.
    lost: u64,
    /// What all files together may hold on this disk; `None` while nothing may be written.
    share: Option<u64>,
    /// Written since the disk was looked at.
    unseen: u64,
    around: fn(&Path) -> Option<FileSystem>,
}

impl LogFile {
    /// Opens the log in `folder`, private, never through a link (T-10).
    pub fn open(folder: &Path, budget: Budget) -> io::Result<Self> {
        create_log_folder(folder)?;
        remove_beyond(folder, budget.files);
        let (file, place, bytes) = open_last(folder)?;
        Ok(Self {
            place,
            share: None,
            unseen: 0,
            around: file_system,
            folder: folder.to_owned(),
            budget,
            file,
            bytes,
            // A line that a crash cut off stays by itself.
            is_torn: bytes > 0,
            lost: 0,
        })
    }

    /// Appends a line. One that cannot be written is counted, and nothing else happens (L-27).
    /// Returns how many were lost before this one, once it could be written.
    pub fn write(&mut self, line: &str) -> Option<u64> {
        match self.try_write(line) {
            Ok(()) => {
                let lost = std::mem::take(&mut self.lost);
                (lost > 0).then_some(lost)
            }
            Err(_) => {
                self.lost += 1;
                metrics::counter!("heddle_log_lines_dropped_total").increment(1);
                None
            }
        }
    }

    fn try_write(&mut self, line: &str) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(line.len() + 2);
        if self.is_torn {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
        let length = bytes.len() as u64;
        self.follow()?;
        let file_bytes_max = self.file_bytes_max()?;
        if self.bytes > 0 && self.bytes + length > file_bytes_max {
            // A rotation that fails costs the line, not the budget; the next line tries again.
            self.rotate()?;
        }
        let written = self.file.write_all(&bytes);
        // Half a line helps nobody, and is in the way of whoever reads lines.
        self.is_torn = written.is_err() && self.cut_back().is_err();
        // After an error the disk may be another: look first.
        self.unseen = written
            .as_ref()
            .map_or(LOOK_EVERY, |()| self.unseen + length);
        // After an error nobody knows how much was written; the end of the file does.
        self.bytes = match written {
            Ok(()) => self.bytes + length,
            Err(_) => self.file.seek(SeekFrom::End(0)).unwrap_or(self.bytes),
        };
        written
    }

    /// Somebody has taken the file away, which is theirs to do: the log goes on in a new one.
    fn follow(&mut self) -> io::Result<()> {
        let here = std::fs::symlink_metadata(path(&self.folder, 0));
        if here.is_ok_and(|here| place(&here) == self.place) {
            return Ok(());
        }
        // Where the home itself was moved or removed no new one begins for a log: the last words go where the others are.
        if !self.folder.parent().is_some_and(Path::is_dir) {
            return Ok(());
        }
        create_log_folder(&self.folder)?;
        self.open_again()
    }

    fn cut_back(&mut self) -> io::Result<()> {
        self.file.set_len(self.bytes)?;
        self.file.seek(SeekFrom::End(0)).map(drop)
    }

    /// How long the file may become, on this disk, now.
    fn file_bytes_max(&mut self) -> io::Result<u64> {
        if self.share.is_none() || self.unseen >= LOOK_EVERY {
            let held = self.held();
            let around = (self.around)(&self.folder);
            self.share = around.map_or(Some(u64::MAX), |around| around.words_max(held));
            self.unseen = 0;
        }
        let share = self.share.ok_or(io::ErrorKind::StorageFull)?;
        self.remove_oldest(share);
        let part = share / u64::from(self.budget.files.max(1));
        Ok(self.budget.file_bytes_max.min(part))
    }

    fn held(&self) -> u64 {
        let older = (1..self.budget.files).map(|number| length(&path(&self.folder, number)));
        older.sum::<u64>() + self.bytes
    }

    /// The oldest files go where all of them hold more than their share; the one being written stays.
    fn remove_oldest(&self, share: u64) {
        if share == u64::MAX {
            return;
        }
        for number in (1..self.budget.files).rev() {
            if self.held() <= share {
                break;
            }
            // Failing that, an old file stays a little longer.
            let _ = std::fs::remove_file(path(&self.folder, number));
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..self.budget.files.saturating_sub(1)).rev() {
            rename_if_there(&path(&self.folder, number), &path(&self.folder, number + 1))?;
        }
        if self.budget.files > 1 {
            rename_if_there(&path(&self.folder, 0), &path(&self.folder, 1))?;
        } else {
            std::fs::remove_file(path(&self.folder, 0))?;
        }
        self.open_again()
    }

    fn open_again(&mut self) -> io::Result<()> {
        (self.file, self.place, self.bytes) = open_last(&self.folder)?;
        self.is_torn = self.bytes > 0;
        Ok(())
    }
}

/// The file of this number; 0 is the one being written.
pub fn path(folder: &Path, number: u32) -> PathBuf {
    match number {
        0 => folder.join(LOG_NAME),
        n => folder.join(format!("{LOG_NAME}.{n}")),
    }
}

/// What tells a file from another one under the same name.
type Place = (u64, u64);

fn place(of: &Metadata) -> Place {
    (of.dev(), of.ino())
}

fn open_last(folder: &Path) -> io::Result<(File, Place, u64)> {
    let mut file = open_private(&path(folder, 0))?;
    let place = place(&file.metadata()?);
    let bytes = file.seek(SeekFrom::End(0))?;
    Ok((file, place, bytes))
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn file_system(folder: &Path) -> Option<FileSystem> {
    let stat = statvfs(folder).ok()?;
    Some(FileSystem {
        size: stat.f_blocks.saturating_mul(stat.f_frsize),
        free: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}

/// A budget that was made smaller holds from the next start on.
fn remove_beyond(folder: &Path, files: u32) {
    for number in files.max(1)..=u32::from(u8::MAX) {
        // Failing that, an old file stays a little longer.
        let _ = std::fs::remove_file(path(folder, number));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const SMALL: Budget = Budget {
        file_bytes_max: 100,
        files: 3,
    };

    fn lines(folder: &Path) -> Vec<String> {
        let numbers = (0..10).rev();
        let texts = numbers.filter_map(|n| std::fs::read_to_string(path(folder, n)).ok());
        texts
            .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }

    #[test]
    fn the_files_stay_within_their_number_and_size_and_keep_the_newest_lines() {
        let folder = tempfile::tempdir().unwrap();
        let logs = folder.path().join("logs");
        let mut log = LogFile::open(&logs, SMALL).unwrap();
        for n in 0..200 {
            assert_eq!(log.write(&format!("line {n:05}")), None);
            let entries = std::fs::read_dir(&logs).unwrap();
            let sizes: Vec<u64> = entries
                .map(|e| e.unwrap().metadata().unwrap().len())
                .collect();
            assert!(
                sizes.len() <= 3 && sizes.iter().all(|size| *size <= 100),
                "{sizes:?}"
            );
        }
        let kept = lines(&logs);
        assert!(kept.len() > 16, "{kept:?}");
        let expected: Vec<String> = (200 - kept.len()..200)
            .map(|n| format!("line {n:05}"))
            .collect();
        assert_eq!(kept, expected);
        assert_eq!(
            std::fs::metadata(path(&logs, 0)).unwrap().mode() & 0o777,
            0o600
        );
        assert_eq!(std::fs::metadata(&logs).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_smaller_budget_holds_from_the_next_start_on() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..10 {
            std::fs::write(path(folder.path(), n), "x".repeat(50)).unwrap();
        }
        let mut log = LogFile::open(folder.path(), Budget { files: 1, ..SMALL }).unwrap();
        for _ in 0..20 {
            log.write("0123456789");
        }
        let files = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 1);
        assert!(std::fs::metadata(path(folder.path(), 0)).unwrap().len() <= 100);
    }

    #[test]
    fn l_27_a_full_disk_loses_lines_counts_them_and_tells_when_it_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogFile::open(folder.path(), SMALL).unwrap();
        log.write("before");
        let good = std::mem::replace(
            &mut log.file,
            std::fs::OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap(),
        );
        for _ in 0..5 {
            assert_eq!(log.write("lost"), None);
        }
        log.file = good;
        log.bytes = 7;
        assert_eq!(log.write("after"), Some(5));
        assert_eq!(log.write("more"), None);
        assert_eq!(lines(folder.path()), ["before", "", "after", "more"]);
    }

    #[test]
    fn a_log_that_was_taken_away_goes_on_in_a_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let logs = folder.path().join("logs");
        let mut log = LogFile::open(&logs, SMALL).unwrap();
        log.write("one");
        std::fs::remove_file(path(&logs, 0)).unwrap();
        log.write("two");
        assert_eq!(lines(&logs), ["two"]);
        let kept = folder.path().join("kept");
        std::fs::rename(path(&logs, 0), &kept).unwrap();
        log.write("three");
        assert_eq!(std::fs::read_to_string(kept).unwrap(), "two\n");
        assert_eq!(lines(&logs), ["three"]);
        std::fs::remove_dir_all(&logs).unwrap();
        log.write("four");
        assert_eq!(lines(&logs), ["four"]);
        // Never through a link (T-10).
        std::fs::remove_file(path(&logs, 0)).unwrap();
        let target = folder.path().join("target");
        std::fs::write(&target, "precious").unwrap();
        symlink(&target, path(&logs, 0)).unwrap();
        log.write("five");
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
        std::fs::remove_file(path(&logs, 0)).unwrap();
        assert_eq!(log.write("six"), Some(1));
    }

    #[test]
    fn l_27_no_half_line_stays_behind_on_a_disk_that_fills() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogFile::open(folder.path(), SMALL).unwrap();
        log.write("before");
        // As far as the kernel gets when the disk fills within a line.
        log.file.write_all(b"{\"at\":\"2026-11-").unwrap();
        log.cut_back().unwrap();
        log.write("after");
        assert_eq!(lines(folder.path()), ["before", "after"]);
    }

    /// A disk of which this much is free.
    const fn disk(free: u64) -> Option<FileSystem> {
        Some(FileSystem {
            size: 6 << 20,
            free,
        })
    }

    #[test]
    fn on_a_small_disk_the_log_keeps_to_its_share_and_stops_before_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let budget = Budget {
            file_bytes_max: 1 << 20,
            files: 3,
        };
        let mut log = LogFile::open(folder.path(), budget).unwrap();
        log.around = |_| disk(1 << 20);
        let line = "x".repeat(1000);
        for _ in 0..5000 {
            assert_eq!(log.write(&line), None);
        }
        // An eighth of what is free beyond the room of the databases, and one look's worth.
        assert!(log.held() <= (1 << 20) / 8 + LOOK_EVERY, "{}", log.held());
        assert!(log.held() > 50_000, "{}", log.held());
        let held = log.held();
        log.around = |_| disk(300 << 10);
        for _ in 0..100 {
            log.write(&line);
        }
        assert!(log.held() <= held + LOOK_EVERY + 2000, "it went on growing");
        assert!(path(folder.path(), 1).exists(), "old lines are no rubbish");
        log.around = |_| disk(1 << 30);
        assert!(log.write(&line).is_some_and(|lost| lost > 80));
    }

    #[test]
    fn l_12_a_rotation_that_fails_neither_grows_the_file_nor_stops_anything() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogFile::open(folder.path(), SMALL).unwrap();
        // A folder in the way of the rename.
        std::fs::create_dir(path(folder.path(), 2)).unwrap();
        std::fs::write(path(folder.path(), 2).join("x"), "").unwrap();
        for n in 0..100 {
            log.write(&format!("line {n:05}"));
        }
        assert!(std::fs::metadata(path(folder.path(), 0)).unwrap().len() <= 100);
        std::fs::remove_dir_all(path(folder.path(), 2)).unwrap();
        assert!(log.write("free again").is_some_and(|lost| lost > 80));
    }

    #[test]
    fn t_10_a_link_in_place_of_the_log_is_refused_and_its_target_untouched() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        std::fs::write(&target, "precious").unwrap();
        let logs = folder.path().join("logs");
        std::fs::create_dir(&logs).unwrap();
        symlink(&target, path(&logs, 0)).unwrap();
        assert!(LogFile::open(&logs, SMALL).is_err());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
    }
}
