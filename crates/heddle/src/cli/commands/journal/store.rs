//! Where the journal of this folder is, who writes to it, and what its errors tell a person.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use heddle_core::clock::{Clock, Ids};
use heddle_journal::action::Mode;
use heddle_journal::disk::RealDisk;
use heddle_journal::{Glob, Journal, JournalError, Migrated, Who, World};

use crate::cli::{CliError, Context, exit};
use crate::system::{SystemClock, SystemIds};

const FOLDER: &str = ".heddle";

/// The store of the nearest folder, upwards from here, that has one.
pub fn open(context: &Context, reader: Option<String>) -> Result<Journal, CliError> {
    let here = here()?;
    let root = here
        .ancestors()
        .map(|folder| folder.join(FOLDER))
        .find(|root| root.join("journal.json").exists())
        .ok_or_else(|| told(JournalError::NoStore(here.clone())))?;
    Journal::open(world(), &root, who(context, reader)).map_err(told)
}

/// A pattern as typed here, from the repository's root on.
pub fn glob(journal: &Journal, text: &str) -> Result<Glob, CliError> {
    let refused = |reason: String| {
        CliError::new(exit::USAGE, reason)
            .next("Quote it for the shell, for example: heddle reserve 'src/parser/**'")
    };
    let here = here()?;
    let top = journal.layout().root().parent();
    let inside = top.and_then(|top| here.strip_prefix(top).ok());
    let text = match (text.strip_prefix('/'), inside) {
        (Some(from_top), _) => from_top.to_owned(),
        (None, Some(inside)) if !inside.as_os_str().is_empty() => {
            format!("{}/{text}", inside.display())
        }
        (None, _) => text.to_owned(),
    };
    Glob::parse(&text).map_err(refused)
}

/// In the repository that we are in, or right here where there is none.
pub fn init(context: &Context) -> Result<(Journal, PathBuf), CliError> {
    let root = place(context)?;
    let journal = Journal::init(world(), &root, who(context, None)).map_err(told)?;
    Ok((journal, root))
}

/// Where the store is or would be; an older store beside it is what it begins with.
pub fn migrate(
    context: &Context,
    source: Option<PathBuf>,
    to: Mode,
    leave_out_bad: bool,
) -> Result<Migrated, CliError> {
    let root = place(context)?;
    let beside = root.with_file_name(".brainclaw");
    let source = source.or_else(|| beside.is_dir().then_some(beside));
    if let Some(missing) = source.as_ref().filter(|folder| !folder.is_dir()) {
        let sentence = format!("{} is no folder", missing.display());
        return Err(CliError::new(exit::NOT_FOUND, sentence)
            .next("Name the folder that holds plans/, decisions/ and so on."));
    }
    let who = who(context, None);
    Journal::migrate(world(), &root, who, source.as_deref(), to, leave_out_bad).map_err(told)
}

fn place(context: &Context) -> Result<PathBuf, CliError> {
    let here = here()?;
    let repository = here.ancestors().find(|folder| folder.join(".git").exists());
    let root = repository.unwrap_or(&here).join(FOLDER);
    if is_same(&root, &context.home) {
        return Err(CliError::new(
            exit::REFUSED,
            format!("{} is the home of the daemon", root.display()),
        )
        .next("Change into a repository first."));
    }
    Ok(root)
}

fn is_same(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(a) == real(b)
}

fn here() -> Result<PathBuf, CliError> {
    std::env::current_dir()
        .map_err(|error| CliError::new(exit::FAILED, format!("the current folder: {error}")))
}

fn world() -> World {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let ids: Arc<dyn Ids> = Arc::new(SystemIds::new(Arc::clone(&clock)));
    World {
        disk: Arc::new(RealDisk),
        clock,
        ids,
    }
}

fn who(context: &Context, agent_id: Option<String>) -> Who {
    let user = context.environment.login.clone();
    let agent = context.agent.clone().or_else(|| user.clone());
    Who {
        agent: agent.unwrap_or_else(|| "cli".to_owned()),
        agent_id,
        user,
    }
}

/// A sentence, the next step, an exit code.
pub fn told(error: JournalError) -> CliError {
    let message = error.to_string();
    match error {
        JournalError::NoStore(_) => CliError::new(exit::NOT_FOUND, message)
            .next("Begin one with `heddle journal init` in the repository."),
        JournalError::Busy { .. } => CliError::new(exit::CONFLICT, message)
            .next("Nothing happened; try again. A process that hangs keeps the lock until it ends."),
        JournalError::Unknown(_) => CliError::new(exit::CONFLICT, message)
            .next("Look with `heddle journal log` whether the record is there before you write it again."),
        JournalError::Refused(_) => CliError::new(exit::USAGE, message)
            .next("Nothing was written; `heddle journal append --help` says what is needed."),
        JournalError::NotFound { .. } => CliError::new(exit::NOT_FOUND, message)
            .next("Check type and id; `heddle journal log` shows the history, deletions included."),
        JournalError::Entity { .. } => CliError::new(exit::FAILED, message)
            .next("Only this entity is affected; `heddle journal verify` shows all that is wrong."),
        JournalError::ShortWrite { .. } => CliError::new(exit::FAILED, message)
            .next("Free some space and write it again; nothing of it counts."),
        JournalError::SyncFailed { .. } => CliError::new(exit::FAILED, message).next(
            "Check the disk; then look with `heddle journal log` whether the record is there before you write it again.",
        ),
        JournalError::Io { .. } | JournalError::Damaged { .. } => {
            CliError::new(exit::FAILED, message)
                .next("Check the file and the disk; `heddle journal verify` says what else is affected.")
        }
    }
}
