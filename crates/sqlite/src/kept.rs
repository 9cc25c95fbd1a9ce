//! A copy of a file as it was before its schema took a step: the way back where the step has none.
//!
//! `FILE.before-migration-N` is the file as it stood when step N was the next one. It is made before the steps are
//! committed, checked, synced, and has its name only then; where it cannot be made, no step is taken. A start makes one,
//! however many steps it takes, and none where a step fails. Of the same step there is one, of the latest time; of all
//! steps a few.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use crate::connection::refusal;
use crate::error::OpenError;
use crate::fault;

const MARK: &str = ".before-migration-";
const DRAFT: &str = ".part";
/// Copies of one file that stay.
const KEPT_MAX: usize = 3;
/// A copy that was made so soon after another is of a step that was undone and taken again.
const RETRY_MAX: Duration = Duration::from_hours(24);
const BUSY_WAIT: Duration = Duration::from_millis(20);
const BUSY_WAITS_MAX: u32 = 500;

/// The copies that lie beside a file, with the step that each was made before; in the order of the steps.
pub fn copies_before_steps(path: &Path) -> Vec<(u32, PathBuf)> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Vec::new();
    };
    let start = format!("{}{MARK}", name.to_string_lossy());
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let number = name.to_str()?.strip_prefix(&start)?;
            Some((number.parse().ok()?, entry.path()))
        })
        .collect();
    found.sort();
    found
}

/// Keeps the file as `connection` sees it, before it takes the step `next`; where the copy lies.
pub(crate) fn keep_before(
    connection: &Connection,
    path: &Path,
    next: u32,
) -> Result<PathBuf, OpenError> {
    let to = with_suffix(path, &format!("{MARK}{next}"));
    let draft = with_suffix(&to, DRAFT);
    let copied = copy(connection, &draft).and_then(|()| {
        File::open(&draft)?.sync_all()?;
        fs::rename(&draft, &to)?;
        Ok(sync_folder(&to)?)
    });
    let Err(error) = copied else {
        return Ok(to);
    };
    remove(&draft);
    Err(match error {
        CopyError::Damaged(verdict) => OpenError::Damaged(verdict),
        CopyError::Sqlite(error) if fault::is_damage(&error) => refusal(error),
        other => OpenError::Kept {
            path: to,
            reason: other.to_string(),
        },
    })
}

/// Takes copies away until few enough are left, but never the one that was `made` just now. First those of retries: the
/// version that somebody came from outlives whatever is tried afterwards.
pub(crate) fn thin_out(path: &Path, made: u32) {
    let time = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    let copies = copies_before_steps(path).into_iter();
    let mut copies: Vec<_> = copies
        .filter_map(|(next, copy)| Some((time(&copy)?, next, copy)))
        .collect();
    copies.sort();
    while copies.len() > KEPT_MAX {
        let is_retry = |at: usize| {
            let gap = copies[at].0.duration_since(copies[at - 1].0);
            gap.is_ok_and(|gap| gap < RETRY_MAX)
        };
        let may_go = |at: &usize| copies[*at].1 != made;
        let retry = (1..copies.len())
            .rev()
            .find(|at| may_go(at) && is_retry(*at));
        let oldest = (0..copies.len())
            .filter(may_go)
            .min_by_key(|at| copies[*at].1);
        let Some(at) = retry.or(oldest) else {
            return;
        };
        remove(&copies.remove(at).2);
    }
}

#[derive(Debug, thiserror::Error)]
enum CopyError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    #[error("another process keeps the file locked")]
    Locked,
    #[error("the copy is damaged: {0}")]
    Damaged(String),
}

/// One moment of the file in a new one without companions, which SQLite finds nothing wrong with.
fn copy(old: &Connection, draft: &Path) -> Result<(), CopyError> {
    // What a crash left; it never had its name.
    remove(draft);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(draft)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut new = Connection::open_with_flags(draft, flags)?;
    let backup = Backup::new(old, &mut new)?;
    let mut waits = 0;
    // In one step: between two, a write would make it begin anew.
    while backup.step(-1)? != StepResult::Done {
        waits += 1;
        if waits > BUSY_WAITS_MAX {
            return Err(CopyError::Locked);
        }
        std::thread::sleep(BUSY_WAIT);
    }
    drop(backup);
    new.pragma_update(None, "journal_mode", "DELETE")?;
    let verdict: String = new.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if verdict != "ok" {
        return Err(CopyError::Damaged(verdict));
    }
    Ok(new.close().map_err(|(_, error)| error)?)
}

fn remove(path: &Path) {
    for end in ["", "-journal", "-wal", "-shm"] {
        let _ = fs::remove_file(with_suffix(path, end));
    }
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
