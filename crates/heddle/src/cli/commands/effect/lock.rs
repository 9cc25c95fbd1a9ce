//! The lock of a run: taken before it starts, inherited by its command, freed by the kernel when both end.
//!
//! Beside it lie the mark of the process that was started, for a command that gives the lock away, and the end of
//! the command, until somebody has taken it.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use heddle_daemon::home::write_private;
use heddle_daemon::{END, PROCESS, RUNNER, end_text, process_mark};
use heddle_wire::broker::EffectCall;
use rustix::io::FdFlags;

use crate::cli::error::exit;
use crate::cli::{CliError, ui};

/// The daemon's own look holds it for a moment; one that stays away for longer is somebody's run.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// A run that is ours until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    file: File,
    path: PathBuf,
    /// Whether the end of the command lies beside it.
    keeps_end: Cell<bool>,
}

impl Held {
    /// Notes who runs it: what the command leaves behind has the lock as well, and is not who tells how it ended.
    fn taken(&self) {
        if let Some(mark) = process_mark(std::process::id())
            && let Err(error) = write_private(&self.path.with_extension(RUNNER), &mark)
        {
            tracing::debug!(%error, "the runner was not noted");
        }
    }

    /// Notes which process was started. A lock that a command has closed no longer says that it lives.
    pub(super) fn begun(&self, pid: u32) {
        if let Some(mark) = process_mark(pid)
            && let Err(error) = write_private(&self.path.with_extension(PROCESS), &mark)
        {
            tracing::debug!(%error, "the process of a command was not noted");
        }
    }

    /// Keeps how the command ended before anybody is told: whatever becomes of this process and of the daemon,
    /// it is known from here on.
    pub(super) fn ended(&self, call: &EffectCall) {
        let path = self.path.with_extension(END);
        let written = write_private(&path, &end_text(&path, call));
        self.keeps_end.set(written.is_ok());
        if let Err(error) = written {
            ui::note(&format!(
                "note: how the command ended could not be written down ({error}); it is told all the same"
            ));
        }
    }

    /// Whether what was told last can be taken from beside the lock.
    pub(super) fn keeps_end(&self) -> bool {
        self.keeps_end.get()
    }

    /// It was told.
    pub(super) fn told(&self) {
        let _ = std::fs::remove_file(self.path.with_extension(END));
    }
}

impl Drop for Held {
    /// Not only closed: what the command has left behind holds the file as well, and is no run any more.
    fn drop(&mut self) {
        for note in [PROCESS, RUNNER] {
            let _ = std::fs::remove_file(self.path.with_extension(note));
        }
        let _ = self.file.unlock();
    }
}

/// None while somebody else has it.
pub(super) fn take(path: &str) -> Result<Option<Held>, CliError> {
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
                let held = Held {
                    file,
                    path: PathBuf::from(path),
                    keeps_end: Cell::new(false),
                };
                held.taken();
                return Ok(Some(held));
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
