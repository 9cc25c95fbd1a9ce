//! The lock of a run: taken before it starts, inherited by its command, freed by the kernel when both end.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::io::FdFlags;

use crate::cli::CliError;
use crate::cli::error::exit;

/// The daemon's own look holds it for a moment; one that stays away for longer is somebody's run.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// None while somebody else has it.
pub(super) fn take(path: &str) -> Result<Option<File>, CliError> {
    let failed = |error: std::io::Error| {
        CliError::new(exit::FAILED, format!("{path}: {error}"))
            .next("The run must be able to lock this file; nothing was started.")
    };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(no_follow())
        .open(Path::new(path))
        .map_err(failed)?;
    for _ in 0..TRIES {
        match file.try_lock() {
            Ok(()) => {
                // IMPORTANT: the command inherits it. A command that outlives its runner still runs.
                rustix::io::fcntl_setfd(&file, FdFlags::empty())
                    .map_err(|error| failed(error.into()))?;
                return Ok(Some(file));
            }
            Err(std::fs::TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
    Ok(None)
}

fn no_follow() -> i32 {
    i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0)
}
