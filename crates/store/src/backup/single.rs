//! Copies of one SQLite file of a home, whoever its tables belong to: taken at one moment, and put back.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use heddle_core::clock::WallMs;

use super::{BackupError, copy, problem_of};
use crate::park::{self, Exchange, open_old, sync_folder};

/// One moment of the file at `from` in a new file at `to`, while others go on writing. A damaged one is not
/// copied.
pub fn copy_database(from: &Path, to: &Path) -> Result<(), BackupError> {
    let old = open_old(&absolute(from)?)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(to).map_err(BackupError::io("created", to))?;
    let copied = copy(&old, to).and_then(|new| {
        let problem = problem_of(&new)?;
        new.close().map_err(|(_, error)| error)?;
        Ok(problem)
    });
    let whole = match copied {
        Ok(None) => Ok(()),
        Ok(Some(problem)) => Err(BackupError::Damaged {
            path: from.to_owned(),
            problem,
        }),
        Err(error) => Err(error),
    };
    if whole.is_err() {
        let _ = std::fs::remove_file(to);
        return whole;
    }
    let synced = File::open(to).and_then(|file| file.sync_all());
    synced
        .and_then(|()| sync_folder(to))
        .map_err(BackupError::io("synced", to))
}

/// Puts a copy in the place of the file at `to`, which nobody may use meanwhile; where that one lies then. A crash
/// leaves the old one or the new one, once `Store::finish_parking` has looked.
pub fn replace_database(
    from: &Path,
    to: &Path,
    now: WallMs,
) -> Result<Option<PathBuf>, BackupError> {
    let (from, to) = (absolute(from)?, absolute(to)?);
    std::fs::metadata(&from).map_err(BackupError::io("read", &from))?;
    park::finish(&to).map_err(BackupError::io("exchanged", &to))?;
    let source = open_old(&from)?;
    if let Some(problem) = problem_of(&source)? {
        return Err(BackupError::Damaged {
            path: from,
            problem,
        });
    }
    let draft = park::new_draft(&to).map_err(BackupError::io("prepared", &to))?;
    let new = copy(&source, &draft)?;
    new.close().map_err(|(_, error)| error)?;
    let had_file = to.exists();
    let stamp = park::stamp(&to, Exchange::Restored, now);
    let before = park::decide(&to, Exchange::Restored, &stamp);
    let before = before.map_err(BackupError::io("exchanged", &to))?;
    Ok(had_file.then_some(before))
}

fn absolute(path: &Path) -> Result<PathBuf, BackupError> {
    std::path::absolute(path).map_err(BackupError::io("named", path))
}
