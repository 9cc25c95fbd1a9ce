//! What verbs do to the files of a home in which no daemon runs, and how they say it.

use std::path::{Path, PathBuf};

use heddle_core::clock::Clock as _;
use heddle_daemon::upkeep::{self, BROKER_BEYOND, BrokerMend, Trouble};
use heddle_daemon::{BackupError, Home, HomeError};
use heddle_wire::client::ClientError;
use heddle_wire::ipc::{BackupBody, BackupView, RestoreView};

use super::error::{CliError, exit};
use super::{Context, repaired, text};
use crate::system::SystemClock;
use crate::up::{WITHOUT_DATA, put_back as broker_put_back};

/// What helps with rows that a copy has and nobody can read.
const UNREADABLE_NEXT: &str = "  next: Keep older backups, which may still have them. Write each key again or delete it, or \
    `heddle down` and `heddle doctor --repair` take them out; then make another backup.\n";

/// Through the daemon where one runs, and from the files where none does.
pub fn back_up(context: &Context, to: &Path) -> Result<(), CliError> {
    let to = absolute(to)?;
    let body = BackupBody {
        file: to.display().to_string(),
    };
    let made = match context.client().back_up(&body) {
        Err(ClientError::NotRunning { .. }) => {
            let home = claim(context)?;
            upkeep::back_up(&home, &to).map_err(refused)?
        }
        other => other?,
    };
    context.print_said(&made, backed_up)
}

pub fn restore(context: &Context, from: &Path) -> Result<(), CliError> {
    let from = absolute(from)?;
    let home = claim(context)?;
    let now = SystemClock::start().wall();
    let restored = noted(&home, || upkeep::restore(&home, &from, now))?;
    context.print(&restored, put_back)
}

pub fn restore_broker(context: &Context, from: &Path) -> Result<(), CliError> {
    let from = absolute(from)?;
    let home = claim(context)?;
    let now = SystemClock::start().wall();
    let restored = noted(&home, || upkeep::restore_broker(&home, &from, now))?;
    context.print(&restored, put_back)
}

/// IMPORTANT: the note comes before the file. A start that finds an older broker without it would give places of the history
/// out twice.
fn noted(
    home: &Home,
    restore: impl FnOnce() -> Result<RestoreView, BackupError>,
) -> Result<RestoreView, CliError> {
    let failed = |error: std::io::Error| not_noted(&error);
    let note = broker_put_back::note(home.path(), &home.broker_data()).map_err(failed)?;
    let restored = restore();
    note.settle().map_err(failed)?;
    restored.map_err(refused)
}

fn not_noted(error: &std::io::Error) -> CliError {
    let message = format!("that the broker is put back cannot be noted in the home: {error}");
    CliError::new(exit::FAILED, message)
        .next("Free some space, or mend the folder; then run the same again.")
}

pub fn repair(context: &Context) -> Result<(), CliError> {
    if context.home.join("data.db").symlink_metadata().is_err() {
        return Err(no_data(&context.home));
    }
    let home = claim(context)?;
    let now = SystemClock::start().wall();
    let login = context.environment.login.clone().unwrap_or_default();
    let mut made = upkeep::repair(&home, &login, now).map_err(refused)?;
    let broker = heddle_broker::storage::sqlite::condition;
    let mended = upkeep::mend_broker(&home, broker, now).map_err(refused)?;
    match mended {
        BrokerMend::Nothing => {}
        BrokerMend::Mended(path) => made.broker_damaged = Some(path.display().to_string()),
        BrokerMend::Beyond(why) if made.repaired => made.broker_beyond = Some(why),
        BrokerMend::Beyond(why) => return Err(broker_beyond(&why)),
    }
    if let Some(trouble) = upkeep::trouble(&context.home, broker).filter(|_| !made.repaired) {
        return Err(not_ours_to_mend(&trouble));
    }
    context.print(&made, repaired::in_words)?;
    match made.unmended.first() {
        None => Ok(()),
        Some(why) => Err(still_locked_out(why)),
    }
}

/// What could be read is in the fresh file, and a start refuses that.
fn still_locked_out(why: &str) -> CliError {
    let message = format!(
        "the repair could not mend all of it, and the home does not start: {}",
        why.replace('\n', " ")
    );
    CliError::new(exit::FAILED, message).next(
        "Put the last backup back with `heddle daemon restore FILE`; the damaged file is kept.",
    )
}

/// Where something else of the home is there, `up` refuses to begin anew: then that is no way out.
pub(super) fn no_data(home: &Path) -> CliError {
    let is_empty = |file: &str| home.join(file).metadata().map_or(0, |file| file.len()) == 0;
    let none = CliError::new(exit::NOT_FOUND, "there is no data.db in this home");
    if is_empty("broker.db") && is_empty("effects.db") {
        none.next("Put a backup back with `heddle daemon restore FILE`, or begin with `heddle up`.")
    } else {
        none.next(format!("{WITHOUT_DATA} Nothing was changed."))
    }
}

/// data.db is whole, and the broker's file is not.
fn broker_beyond(why: &str) -> CliError {
    let message = format!(
        "a repair can mend nothing here: data.db is whole, but broker.db is damaged: {}",
        why.replace('\n', " ")
    );
    CliError::new(exit::FAILED, message).next(BROKER_BEYOND)
}

/// data.db is whole, and something else keeps the home from starting.
fn not_ours_to_mend(trouble: &Trouble) -> CliError {
    let code = if trouble.is_newer {
        exit::REFUSED
    } else {
        exit::FAILED
    };
    let message = format!(
        "a repair can mend nothing here: data.db is whole, but {}",
        trouble.says.replace('\n', " ")
    );
    CliError::new(code, message).next(
        "`heddle doctor` says what else helps, a backup of that file say; nothing was changed.",
    )
}

/// The lock on the home, which a running daemon has.
pub(super) fn claim(context: &Context) -> Result<Home, CliError> {
    let now = SystemClock::start().wall();
    Home::claim_data(&context.home, now).map_err(|error| match error {
        HomeError::Held { .. } => CliError::new(exit::CONFLICT, error.to_string())
            .next("Stop it with `heddle down` first; nothing was changed."),
        // The settings or the lock may be no file at all.
        error => match crate::up::refuse_misplaced(&context.home) {
            Err(misplaced) => misplaced,
            Ok(()) => crate::up::home_error(error),
        },
    })
}

fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    std::path::absolute(path).map_err(|error| {
        CliError::new(exit::USAGE, format!("{}: {error}", path.display()))
            .next("Name the file with its whole path.")
    })
}

pub(super) fn refused(error: BackupError) -> CliError {
    let message = error.to_string();
    let (code, next) = match error {
        BackupError::Exists { .. } | BackupError::Unfinished { .. } => {
            (exit::CONFLICT, "Nothing was written.")
        }
        BackupError::Misplaced { .. } => (exit::FAILED, "`heddle doctor` says what to do."),
        BackupError::NotAStore { .. } => (
            exit::USAGE,
            "Name a file that `heddle doctor --backup FILE` has made; nothing was changed.",
        ),
        BackupError::Newer { found, .. } => {
            let message = format!("{message}; nothing was changed");
            let next = upkeep::newer_next("data.db", found);
            return CliError::new(exit::REFUSED, message).next(next);
        }
        BackupError::Damaged { .. } => (
            exit::FAILED,
            "Take an older backup. For data.db itself, `heddle doctor --repair` saves what can be read.",
        ),
        BackupError::Empty { .. } => (
            exit::NOT_FOUND,
            "Put the last backup back with `heddle daemon restore FILE`; without one, move data.db, broker.db and effects.db away and begin anew with `heddle up`.",
        ),
        BackupError::StepRefused { .. } => (
            exit::FAILED,
            "Start the Heddle of before, which reads data.db as it is, or put a backup back with `heddle daemon restore FILE`.",
        ),
        BackupError::NothingLeft { .. } => (
            exit::FAILED,
            "Put a backup back with `heddle daemon restore FILE`; without one, move data.db and broker.db away to begin anew.",
        ),
        BackupError::Io { ref source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            (exit::NOT_FOUND, "Check the path; nothing was changed.")
        }
        _ => (exit::FAILED, "The store in the home was not changed."),
    };
    CliError::new(code, message).next(next)
}

fn backed_up(made: &BackupView) -> String {
    let file = text::printable(&made.file);
    let is_whole = made.unreadable.is_empty();
    let kind = if is_whole {
        "a whole copy of the store"
    } else {
        "a copy of the store as it is, with rows that nobody can read"
    };
    let mut words = format!("{file} ({} bytes) is {kind}\n", made.bytes);
    for unreadable in &made.unreadable {
        words.push_str(&format!("  ! {}\n", text::printable(unreadable)));
    }
    if !is_whole {
        words.push_str(UNREADABLE_NEXT);
    }
    if made.blobs > 0 {
        words.push_str(&format!(
            "  with {} blobs ({} bytes) in the folder {}.blobs beside it; they belong together\n",
            made.blobs, made.blob_bytes, file
        ));
    }
    if made.blobs_missing > 0 {
        words.push_str(&format!(
            "  ! {} blobs could not be read and are not in it\n",
            made.blobs_missing
        ));
    }
    if !made.with.is_empty() {
        words.push_str(&format!(
            "  with {} in the folder {}.home beside it; it holds the keys of this home: keep it as safe as the home itself\n",
            text::printable(&made.with.join(", ")),
            file
        ));
    }
    for left_out in &made.left_out {
        words.push_str(&format!("  ! not in it: {}\n", text::printable(left_out)));
    }
    words
}

fn put_back(restored: &RestoreView) -> String {
    let file = text::printable(&restored.file);
    let mut words = match restored.incarnation {
        Some(incarnation) => {
            format!("{file} is in place; its meshes begin incarnation {incarnation}\n")
        }
        None => format!("the broker.db of {file} is in place; data.db stays as it was\n"),
    };
    if restored.incarnation.is_some() && !restored.with.is_empty() {
        words.push_str(&format!(
            "  what was missing came back with it: {}\n",
            text::printable(&restored.with.join(", "))
        ));
    }
    if let Some(before) = &restored.before {
        words.push_str(&format!(
            "  what was there before lies at {}\n",
            text::printable(before)
        ));
    }
    if restored.blobs_missing > 0 {
        words.push_str(&format!(
            "  ! the bytes of {} large files are neither here nor in the backup\n",
            restored.blobs_missing
        ));
    }
    words.push_str("  next: heddle up\n");
    words
}
