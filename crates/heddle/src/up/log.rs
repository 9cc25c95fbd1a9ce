//! The daemon's log: JSON lines on standard error, which `--detach` points at a file of bounded size.

use std::io::Write;
use std::path::{Path, PathBuf};

use tracing::level_filters::LevelFilter;

use crate::cli::{CliError, Context, exit};

/// A log larger than this is set aside at the next start; one old one is kept.
const LOG_BYTES_MAX: u64 = 8 << 20;

pub fn log_path(home: &Path) -> PathBuf {
    let path = home.join("daemon.log");
    if std::fs::metadata(&path).is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX) {
        // Failing that, the log merely goes on growing until the next start.
        let _ = std::fs::rename(&path, home.join("daemon.log.1"));
    }
    path
}

/// Standard error, without a word when nobody can take what is written there.
struct Lossy;

impl Write for Lossy {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = crate::cli::log_bytes(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub fn start(context: &Context) -> Result<(), CliError> {
    let level = match context.environment.log.as_deref() {
        None => LevelFilter::WARN,
        Some(text) => text.parse().map_err(|_| {
            CliError::new(exit::USAGE, format!("HEDDLE_LOG={text} is not a level"))
                .next("Use error, warn, info, debug or trace.")
        })?,
    };
    tracing_subscriber::fmt()
        .json()
        .with_max_level(level)
        // A full disk under the log costs the log, never the daemon (L-27).
        .log_internal_errors(false)
        .with_writer(|| Lossy)
        .try_init()
        .map_err(|error| CliError::new(exit::FAILED, error.to_string()))
}
