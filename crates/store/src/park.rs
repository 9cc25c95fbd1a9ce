//! A damaged inbox is set aside: the old file is parked, a new one carries over everything else (DR-16).
//!
//! What was accepted lives in the outbox, and a file whose outbox is damaged is never touched. The
//! inbox is a copy of what brokers hold or held: without it the delivery cursor begins anew, and the
//! broker sends again what it still has.
//!
//! A crash anywhere leaves the old state or the new one. The new file is written and synced under a
//! name that nobody opens; its rename to `data.db.next-T` is the moment of decision; from then on every
//! start first finishes the exchange.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use heddle_core::clock::WallMs;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::carry::{self, Verdict};

/// Not yet decided: may be deleted at any time.
const DRAFT: &str = ".rebuild";
/// Decided: the exchange must be finished.
const NEXT: &str = ".next-";
const PARKED: &str = ".parked-";
const LOG: &str = "-wal";
const SHARED_MEMORY: &str = "-shm";

#[derive(Debug, thiserror::Error)]
pub(crate) enum ParkError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
}

/// Tries to save what is not the inbox. `None`: more than the inbox is damaged, nothing was changed.
pub(crate) fn park(path: &Path, now: WallMs) -> Result<Option<PathBuf>, ParkError> {
    let path = std::path::absolute(path)?;
    let draft = with_suffix(&path, DRAFT);
    clear_draft(&draft)?;
    let verdict = {
        let old = open_old(&path)?;
        let verdict = carry::judge(&old);
        if verdict != Verdict::OutsideOfInboxDamaged {
            // Private from its first moment; SQLite takes an empty file for a new database.
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            options.open(&draft)?;
            let mut new = Connection::open_with_flags(&draft, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            carry::over(&old, &mut new, verdict)?;
            new.close().map_err(|(_, error)| error)?;
        }
        verdict
    };
    if verdict == Verdict::OutsideOfInboxDamaged {
        return Ok(None);
    }
    File::open(&draft)?.sync_all()?;
    let stamp = stamp(&path, now);
    // The decision: before it the old file counts, behind it the new one.
    fs::rename(&draft, with_suffix(&path, &format!("{NEXT}{stamp}")))?;
    sync_folder(&path)?;
    exchange(&path, &stamp)?;
    Ok(Some(with_suffix(&path, &format!("{PARKED}{stamp}"))))
}

/// Finishes an exchange that a crash interrupted. To be called before the file is looked at.
pub(crate) fn finish(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    for stamp in stamps(&path, NEXT)? {
        tracing::warn!(stamp, "finishing the exchange of a damaged file");
        exchange(&path, &stamp)?;
    }
    Ok(())
}

/// The files that were parked and are still there.
pub(crate) fn parked(path: &Path) -> Vec<PathBuf> {
    let stamps = std::path::absolute(path).and_then(|path| stamps(&path, PARKED));
    let mut stamps = stamps.unwrap_or_default();
    stamps.retain(|stamp| !stamp.ends_with(LOG));
    stamps
        .iter()
        .map(|stamp| with_suffix(path, &format!("{PARKED}{stamp}")))
        .collect()
}

/// Every step may have been done before. IMPORTANT: the log goes before its file, and both before the
/// new file comes: SQLite would replay a log that it finds beside a file of that name.
fn exchange(path: &Path, stamp: &str) -> io::Result<()> {
    let parked = with_suffix(path, &format!("{PARKED}{stamp}"));
    move_if_there(&with_suffix(path, LOG), &with_suffix(&parked, LOG))?;
    match fs::remove_file(with_suffix(path, SHARED_MEMORY)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    sync_folder(path)?;
    move_if_there(path, &parked)?;
    sync_folder(path)?;
    fs::rename(with_suffix(path, &format!("{NEXT}{stamp}")), path)?;
    sync_folder(path)
}

fn move_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn clear_draft(draft: &Path) -> io::Result<()> {
    for leftover in ["", LOG, SHARED_MEMORY, "-journal"] {
        match fs::remove_file(with_suffix(draft, leftover)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn open_old(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

/// The time as a part of a file name, and not one that is taken.
fn stamp(path: &Path, now: WallMs) -> String {
    let time: String = now.to_rfc3339().replace([':', '.'], "");
    let is_free = |stamp: &str| {
        let parked = with_suffix(path, &format!("{PARKED}{stamp}"));
        !parked.exists() && !with_suffix(&parked, LOG).exists()
    };
    let numbered = (2_u32..).map(|n| format!("{time}-{n}"));
    let mut names = std::iter::once(time.clone()).chain(numbered);
    names.find(|name| is_free(name)).unwrap_or(time)
}

/// What stands behind `path` and `kind` in the names of its folder.
fn stamps(path: &Path, kind: &str) -> io::Result<Vec<String>> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(Vec::new());
    };
    let start = format!("{}{kind}", name.to_string_lossy());
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut stamps = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        stamps.extend(
            name.to_string_lossy()
                .strip_prefix(&start)
                .map(str::to_owned),
        );
    }
    stamps.sort();
    Ok(stamps)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}
