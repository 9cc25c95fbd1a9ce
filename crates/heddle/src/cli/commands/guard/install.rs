//! `heddle guard install`: writes the pre-commit hook where there is none, and chains where it is asked to.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use serde_json::json;

use super::git::git;
use crate::cli::{CliError, Context, exit};

const MARK: &str = "# heddle guard:";
/// A hook that was there before, when it is chained.
const BEFORE: &str = "pre-commit.before-heddle";

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Keep the hook that is there: it runs first, the guard after it
    #[arg(long)]
    chain: bool,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let folder = git(&["rev-parse", "--git-path", "hooks"])?;
    let folder = PathBuf::from(String::from_utf8_lossy(&folder).trim_end());
    let hook = folder.join("pre-commit");
    let failed = |path: &Path, error: &std::io::Error| {
        CliError::new(exit::FAILED, format!("{}: {error}", path.display()))
            .next("Check who may write to the hooks folder, and run this again.")
    };
    std::fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
    let state = match std::fs::symlink_metadata(&hook) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "installed",
        Err(error) => return Err(failed(&hook, &error)),
        Ok(found) if found.is_file() && is_ours(&hook) => "already there",
        Ok(_) if !args.chain => return Err(taken(&hook)),
        Ok(_) => {
            park(&hook, &folder.join(BEFORE)).map_err(|error| failed(&hook, &error))?;
            "chained behind the hook that was there"
        }
    };
    if state != "already there" {
        write(&hook).map_err(|error| failed(&hook, &error))?;
    }
    context.print_done(&json!({"hook": hook, "state": state}), |_| {
        format!("{}: {state}\n", hook.display())
    })
}

fn taken(hook: &Path) -> CliError {
    let sentence = format!("{} is there already and is not ours", hook.display());
    CliError::new(exit::CONFLICT, sentence).next(
        "Nothing was changed. `heddle guard install --chain` keeps it and runs the guard after it; or call `heddle guard check` from it yourself.",
    )
}

fn is_ours(hook: &Path) -> bool {
    std::fs::read(hook).is_ok_and(|bytes| {
        let text = String::from_utf8_lossy(&bytes);
        text.lines()
            .nth(1)
            .is_some_and(|line| line.starts_with(MARK))
    })
}

/// Never over something: a link takes the second name only where there is none.
fn park(hook: &Path, before: &Path) -> std::io::Result<()> {
    std::fs::hard_link(hook, before)?;
    std::fs::remove_file(hook)
}

fn write(hook: &Path) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o755)
        .open(hook)?;
    file.write_all(script().as_bytes())?;
    file.sync_all()
}

/// The binary that installed it, or whichever is on the PATH. Without one a commit goes on, and says so.
fn script() -> String {
    let own = std::env::current_exe().unwrap_or_default();
    let own = own.display().to_string().replace('\'', r"'\''");
    format!(
        "#!/bin/sh\n\
         {MARK} refuses commits that touch paths reserved by another agent. Remove this file to be rid of it.\n\
         before=\"$(dirname \"$0\")/{BEFORE}\"\n\
         if [ -x \"$before\" ]; then \"$before\" \"$@\" || exit $?; fi\n\
         heddle='{own}'\n\
         if [ ! -x \"$heddle\" ]; then heddle=\"$(command -v heddle)\"; fi\n\
         if [ -z \"$heddle\" ]; then echo 'heddle guard: heddle is not here; nothing was checked' >&2; exit 0; fi\n\
         exec \"$heddle\" guard check\n"
    )
}
