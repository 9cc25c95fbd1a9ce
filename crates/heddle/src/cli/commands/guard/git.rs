//! What the guard asks of git, as a process: git knows its own hooks folder and its own index.

use std::process::Command;

use crate::cli::{CliError, exit};

pub(super) fn git(args: &[&str]) -> Result<Vec<u8>, CliError> {
    let output = Command::new("git").args(args).output().map_err(|error| {
        CliError::new(exit::FAILED, format!("git cannot be run: {error}"))
            .next("Install git, or put it on the PATH.")
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    // Behind its first line git may print all of its options.
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().lines().next().unwrap_or_default().to_owned();
    Err(CliError::new(exit::FAILED, format!("git: {said}"))
        .next("Run this inside of a git repository."))
}
