//! Looks for damage before the file is opened for writing. Reads only: a damaged file is refused with
//! its bytes unchanged.

use std::path::{Path, PathBuf};

use heddle_sqlite::{Condition, Depth, Look, OpenError, Options, Subject, examine};

use super::schema;

/// A file that was closed in order is checked up to this size, which takes a few milliseconds; a larger
/// one after a process that did not close it.
const CHECKED_BYTES_MAX: u64 = 4 << 20;

/// Refuses a damaged file, and one of a newer program. Only for whoever holds the folder: beside a running broker its
/// log would look like that of a crash.
pub(super) fn check(options: &Options) -> Result<(), OpenError> {
    if options.vfs.is_some() {
        return Ok(());
    }
    match condition(&options.path, Look::AsNeeded).refusal() {
        Some(refusal) => Err(refusal),
        None => Ok(()),
    }
}

/// What the file of a broker is: the judgement of every start, for whoever only wants to know. Reads only; nobody in
/// this process may have it open.
pub fn condition(path: &Path, how: Look) -> Condition {
    let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    // The last one to close in order takes the log away; a poisoned one leaves it.
    let was_closed = !log_of(path).exists();
    let subject = Subject {
        path,
        vfs: None,
        known: schema::MIGRATIONS.last().map_or(0, |step| step.version),
        alone: true,
    };
    examine(&subject, |_| {
        how.depth(|| {
            Ok(if was_closed && bytes > CHECKED_BYTES_MAX {
                Depth::Beginnings
            } else {
                Depth::Pages
            })
        })
    })
}

fn log_of(path: &Path) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push("-wal");
    PathBuf::from(name)
}
