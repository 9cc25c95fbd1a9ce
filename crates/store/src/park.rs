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
use crate::unclean::Heals;

/// Not yet decided: may be deleted at any time.
const DRAFT: &str = ".rebuild";
/// Why a file takes the place of another, as the names beside it say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// The old one is damaged.
    Parked,
    /// A backup was put back; the old one may be whole.
    Restored,
    /// The old one is damaged, and what could be read of it was carried over.
    Repaired,
}

impl Exchange {
    const ALL: [Self; 3] = [Self::Parked, Self::Restored, Self::Repaired];

    /// Decided: the exchange must be finished.
    fn next(self) -> &'static str {
        match self {
            Self::Parked => ".next-",
            Self::Restored => ".restored-",
            Self::Repaired => ".repaired-",
        }
    }

    /// What the old file is called afterwards.
    fn old(self) -> &'static str {
        match self {
            Self::Parked => ".parked-",
            Self::Restored => ".before-restore-",
            Self::Repaired => ".damaged-",
        }
    }
}

/// Where the blobs of an old file are kept that the new one does not name.
pub(crate) const BLOBS: &str = ".blobs";
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
pub(crate) fn park(path: &Path, now: WallMs) -> Result<Option<(PathBuf, Heals)>, ParkError> {
    let path = std::path::absolute(path)?;
    clear_draft(&draft_of(&path))?;
    let verdict = {
        let old = open_old(&path)?;
        let verdict = carry::judge(&old);
        if verdict != Verdict::OutsideOfInboxDamaged {
            // SQLite takes an empty file for a new database.
            let draft = new_draft(&path)?;
            let mut new = Connection::open_with_flags(&draft, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            carry::over(&old, &mut new, verdict)?;
            new.close().map_err(|(_, error)| error)?;
        }
        verdict
    };
    let Some(heals) = healed(verdict) else {
        return Ok(None);
    };
    // One that has lost nothing is no inbox that was set aside.
    let why = match heals {
        Heals::Inbox => Exchange::Parked,
        Heals::Everything => Exchange::Repaired,
    };
    let stamp = stamp(&path, why, now);
    Ok(Some((decide(&path, why, &stamp)?, heals)))
}

fn healed(verdict: Verdict) -> Option<Heals> {
    match verdict {
        Verdict::InboxDamaged => Some(Heals::Inbox),
        Verdict::InboxWhole => Some(Heals::Everything),
        Verdict::OutsideOfInboxDamaged => None,
    }
}

/// What [`park`] would save of the file; reads only.
pub(crate) fn can_park(path: &Path) -> Option<Heals> {
    let path = std::path::absolute(path).ok()?;
    healed(carry::judge(&open_old(&path).ok()?))
}

/// The draft, whole and closed, takes the place of the file; where the old one lies then.
pub(crate) fn decide(path: &Path, why: Exchange, stamp: &str) -> io::Result<PathBuf> {
    let draft = draft_of(path);
    File::open(&draft)?.sync_all()?;
    // The decision: before it the old file counts, behind it the new one.
    fs::rename(&draft, with_suffix(path, &format!("{}{stamp}", why.next())))?;
    sync_folder(path)?;
    exchange(path, why, stamp)?;
    Ok(old_of(path, why, stamp))
}

pub(crate) fn draft_of(path: &Path) -> PathBuf {
    with_suffix(path, DRAFT)
}

pub(crate) fn old_of(path: &Path, why: Exchange, stamp: &str) -> PathBuf {
    with_suffix(path, &format!("{}{stamp}", why.old()))
}

/// An empty file for the draft, private from its first moment; what an earlier try left is gone.
pub(crate) fn new_draft(path: &Path) -> io::Result<PathBuf> {
    let draft = draft_of(path);
    clear_draft(&draft)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(&draft)?;
    Ok(draft)
}

/// Finishes an exchange that a crash interrupted. To be called before the file is looked at.
pub(crate) fn finish(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    for why in Exchange::ALL {
        for stamp in stamps(&path, why.next())? {
            tracing::warn!(stamp, ?why, "finishing the exchange of a file");
            exchange(&path, why, &stamp)?;
        }
    }
    Ok(())
}

/// The files that were parked and are still there.
pub(crate) fn parked(path: &Path) -> Vec<PathBuf> {
    old_files(path, Exchange::Parked)
}

/// The files that were parked or repaired, and are still there.
pub(crate) fn damaged(path: &Path) -> Vec<PathBuf> {
    let mut files = old_files(path, Exchange::Parked);
    files.extend(old_files(path, Exchange::Repaired));
    files
}

/// Every file that once was this store and still lies beside it.
pub(crate) fn all_old(path: &Path) -> Vec<PathBuf> {
    let of = |why| old_files(path, why);
    Exchange::ALL.into_iter().flat_map(of).collect()
}

fn old_files(path: &Path, why: Exchange) -> Vec<PathBuf> {
    let stamps = std::path::absolute(path).and_then(|path| stamps(&path, why.old()));
    let mut stamps = stamps.unwrap_or_default();
    stamps.retain(|stamp| {
        ![LOG, SHARED_MEMORY, BLOBS]
            .iter()
            .any(|end| stamp.ends_with(end))
    });
    let old = |stamp: &String| old_of(path, why, stamp);
    stamps.iter().map(old).collect()
}

/// Every step may have been done before. IMPORTANT: the log goes before its file, and both before the
/// new file comes: SQLite would replay a log that it finds beside a file of that name.
fn exchange(path: &Path, why: Exchange, stamp: &str) -> io::Result<()> {
    let parked = old_of(path, why, stamp);
    move_if_there(&with_suffix(path, LOG), &with_suffix(&parked, LOG))?;
    match fs::remove_file(with_suffix(path, SHARED_MEMORY)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    sync_folder(path)?;
    move_if_there(path, &parked)?;
    sync_folder(path)?;
    fs::rename(with_suffix(path, &format!("{}{stamp}", why.next())), path)?;
    sync_folder(path)
}

fn move_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(crate) fn clear_draft(draft: &Path) -> io::Result<()> {
    for leftover in ["", LOG, SHARED_MEMORY, "-journal"] {
        match fs::remove_file(with_suffix(draft, leftover)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// To be read only, and never to be tidied up when it is closed.
pub(crate) fn open_old(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    heddle_sqlite::refuse_misplaced(path)?;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

/// The time as a part of a file name, and not one that is taken.
pub(crate) fn stamp(path: &Path, why: Exchange, now: WallMs) -> String {
    let time: String = now.to_rfc3339().replace([':', '.'], "");
    let is_free = |stamp: &str| {
        let parked = old_of(path, why, stamp);
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

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}
