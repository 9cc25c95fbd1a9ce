//! Where the journal of this folder is, who writes to it, and what its errors tell a person.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use heddle_core::clock::{Clock, Ids};
use heddle_core::names::MemberName;
use heddle_core::shell::quoted;
use heddle_daemon::config::Config;
use heddle_journal::action::Mode;
use heddle_journal::disk::RealDisk;
use heddle_journal::{Glob, Journal, JournalError, Migrated, Receipt, Reservation, Who, World};
use serde_json::{Value, json};

use super::repository;
use crate::cli::text::printable;
use crate::cli::{CliError, Context, exit, ui};
use crate::system::{SystemClock, SystemIds};

const FOLDER: &str = ".heddle";

/// The store of the nearest folder, upwards from here, that has one; of a linked worktree the repository's.
pub fn open(context: &Context, reader: Option<String>) -> Result<Journal, CliError> {
    let journal = open_in_any_mode(context, reader)?;
    journal.check_off().map_err(told)?;
    Ok(journal)
}

/// Also where the journal is called off and its records are here: whoever changes the mode may be the one to end that.
pub fn open_in_any_mode(context: &Context, reader: Option<String>) -> Result<Journal, CliError> {
    let here = here()?;
    let root = find(&here).ok_or_else(|| told(JournalError::NoStore(here.clone())))?;
    let journal = Journal::open(world(), &root, who(context, reader)).map_err(told)?;
    Ok(journal.with_ear(|ended| ui::note(&super::redact::ended(ended))))
}

fn find(here: &Path) -> Option<PathBuf> {
    let main = repository::checkout(here).and_then(repository::main_of);
    let folders = main.iter().map(PathBuf::as_path).chain(here.ancestors());
    let mut roots = folders.map(|folder| folder.join(FOLDER));
    // One whose journal.json alone is gone is the store of this folder all the same, and says so. What cannot be looked at too.
    roots.find(|root| Journal::is_at(&RealDisk, root).unwrap_or(true))
}

/// A pattern as typed here, from the repository's root on.
pub fn glob(journal: &Journal, text: &str) -> Result<Glob, CliError> {
    let refused = |reason: String| {
        CliError::new(exit::USAGE, reason)
            .next("Quote it for the shell, for example: heddle reserve 'src/parser/**'")
    };
    let here = here()?;
    let base = base_of(journal, &here);
    let typed = if text.starts_with('/') {
        PathBuf::from(text)
    } else {
        // As text: `.` and `..` are for the pattern's own rules to refuse.
        PathBuf::from(format!("{}/{text}", here.display()))
    };
    let inside = typed.to_str().and_then(|typed| {
        let rest = typed.strip_prefix(base.to_str()?)?;
        rest.strip_prefix('/')
    });
    match inside {
        Some(inside) => Glob::parse(inside).map_err(refused),
        None if text.starts_with('/') => Err(refused(format!(
            "{text:?} is not inside of {}; a pattern is from where you stand, or a whole path of this repository",
            base.display()
        ))),
        None => Glob::parse(text).map_err(refused),
    }
}

/// The folder that patterns are from. In a linked worktree the same paths are below another one.
fn base_of<'p>(journal: &'p Journal, here: &'p Path) -> &'p Path {
    let top = journal.layout().root().parent().unwrap_or(here);
    let checkout = repository::checkout(here);
    let checkout = checkout.filter(|folder| repository::main_of(folder).as_deref() == Some(top));
    checkout.unwrap_or(top)
}

/// A pattern of the journal as it is typed in this folder, quoted for a shell.
pub fn typed(journal: &Journal, scope: &str) -> String {
    let means_it = |word: &str| glob(journal, word).is_ok_and(|glob| glob.as_str() == scope);
    let Ok(here) = here() else {
        return quoted(scope);
    };
    let base = base_of(journal, &here);
    let below = here.strip_prefix(base).ok().and_then(Path::to_str);
    let short = below.and_then(|below| scope.strip_prefix(below)?.strip_prefix('/'));
    let words = [Some(scope), short];
    let word = words.into_iter().flatten().find(|word| means_it(word));
    // From anywhere else in this checkout: the whole path.
    word.map_or_else(|| quoted(&base.join(scope).to_string_lossy()), quoted)
}

/// In the repository that we are in, or right here where there is none.
pub fn init(context: &Context) -> Result<(Journal, PathBuf), CliError> {
    let root = place(context)?;
    let journal = Journal::init(world(), &root, who(context, None)).map_err(told)?;
    let journal = journal.with_ear(|ended| ui::note(&super::redact::ended(ended)));
    Ok((journal, root))
}

/// Where the store is or would be; an older store beside it is what it begins with, once.
pub fn migrate(
    context: &Context,
    source: Option<PathBuf>,
    to: Option<Mode>,
    leave_out_bad: bool,
) -> Result<Migrated, CliError> {
    let root = place(context)?;
    let beside = root.with_file_name(".brainclaw");
    let mut not_taken = None;
    let source = match source {
        Some(folder) => Some(folder),
        None if !beside.is_dir() => None,
        None if Journal::begins_with_folder(&world(), &root).map_err(told)? => Some(beside),
        None => {
            // Where it was taken in before there is nothing to say.
            let began = Journal::began_with(&world(), &root, &beside).map_err(told)?;
            not_taken = (!began).then_some(beside);
            None
        }
    };
    let to = match to {
        Some(mode) => mode,
        // A store that is on stays what it is.
        None => match Journal::open(world(), &root, who(context, None)) {
            Ok(journal) if journal.mode() != Mode::Off => journal.mode(),
            Ok(_) | Err(JournalError::NoStore(_)) => Mode::Dual,
            Err(error) => return Err(told(error)),
        },
    };
    if let Some(missing) = source.as_ref().filter(|folder| !folder.is_dir()) {
        let sentence = format!("{} is no folder", missing.display());
        return Err(CliError::new(exit::NOT_FOUND, sentence)
            .next("Name the folder that holds plans/, decisions/ and so on."));
    }
    let who = who(context, None);
    let migrated = Journal::migrate(world(), &root, who, source.as_deref(), to, leave_out_bad);
    Ok(Migrated {
        not_taken,
        ..migrated.map_err(told)?
    })
}

fn place(context: &Context) -> Result<PathBuf, CliError> {
    let here = here()?;
    let checkout = repository::checkout(&here);
    let top = checkout.unwrap_or(&here).to_owned();
    let main = checkout.and_then(repository::main_of);
    // A worktree that has a journal of its own, from before its repository had one, keeps it.
    let root = match main.map(|main| main.join(FOLDER)) {
        Some(main) if main.join("journal.json").exists() => main,
        Some(main) if !top.join(FOLDER).join("journal.json").exists() => main,
        _ => top.join(FOLDER),
    };
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

/// As everywhere else: `--agent` or `HEDDLE_AGENT`, else the person of this home.
fn who(context: &Context, agent_id: Option<String>) -> Who {
    let agent = context.agent.as_deref();
    let agent = agent.map(|name| name.strip_prefix('@').unwrap_or(name).to_owned());
    Who {
        agent: agent.unwrap_or_else(|| person(context)),
        agent_id,
        user: context.environment.login.clone(),
    }
}

fn person(context: &Context) -> String {
    let config = Config::load(&context.home.join("config.toml")).ok();
    let member = config.and_then(|config| config.daemon.member);
    let login = context.environment.login.as_deref().unwrap_or_default();
    let member = member.or_else(|| MemberName::parse(login).ok());
    member.map_or_else(|| "me".to_owned(), |name| name.to_string())
}

/// What a record became, as both doors say it.
pub fn answer(receipt: &Receipt) -> Value {
    let mut answer = json!({
        "seq": receipt.seq,
        "writer": receipt.writer,
        "entity_rev": receipt.entity_rev,
        "batch": receipt.batch,
    });
    if receipt.duplicate {
        answer["duplicate"] = json!(true);
    }
    answer
}

/// A file that was no longer what had been written there.
pub fn edited(name: &str) -> String {
    format!(
        "a file was not what the journal had written there (edited by hand, brought by git from another clone, or its record is lost) and was written anew; what stood there is .heddle/events/quarantine/{name}"
    )
}

/// What a reader moved aside on its way.
pub fn note_aside(journal: &Journal) {
    for name in journal.take_kept_aside() {
        ui::note(&format!("note: {}", edited(&name)));
    }
}

/// As `append` says it: the record counts, whatever became of its file.
pub fn note_late(reservation: &Reservation) {
    if let Some(why) = &reservation.late {
        ui::note(&printable(&format!(
            "note: it is recorded, and everybody is told so; its projection follows with the next call ({why})"
        )));
    }
}

/// Beside an answer that is right as far as anybody knows.
pub fn note_losses(journal: &Journal) {
    // What cannot be looked at now was looked at for the answer itself.
    let lost = journal.losses().unwrap_or_default();
    if let (Some([first, _]), Some([_, last])) = (lost.first(), lost.last()) {
        ui::note(&format!(
            "warning: records between seq {first} and {last} are lost from the journal; reservations are told from the list and the files as well; `heddle journal verify` says what is missing"
        ));
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
        JournalError::ReaderBusy { .. } => CliError::new(exit::CONFLICT, message)
            .next("Nothing was shown and the watermark stands; try again when that one has ended. Each running instance takes a reader's name of its own."),
        JournalError::Unknown(_) => CliError::new(exit::CONFLICT, message)
            .next("Look with `heddle journal log` whether the record is there before you write it again."),
        JournalError::ModeChanged { .. } => CliError::new(exit::CONFLICT, message)
            .next("Nothing was written, and nothing is wrong with what you asked: run the same again."),
        JournalError::RequestReused { .. } => CliError::new(exit::CONFLICT, message)
            .next("Nothing was written. Take a fresh id for another request; the id of before goes with the request of before, word for word."),
        JournalError::RequestLost { .. } => CliError::new(exit::FAILED, message).next(
            "Nothing was written. `heddle journal verify` says what is missing: put a copy of .heddle/events back and ask again, or, when it is lost for good, `heddle journal verify --accept-gaps REASON`. Where `heddle journal show TYPE ID` says that it was not done, the same without an id is recorded now.",
        ),
        JournalError::Refused(_) => CliError::new(exit::USAGE, message)
            .next("Nothing was written."),
        JournalError::NotFound { .. } => CliError::new(exit::NOT_FOUND, message)
            .next("Check type and id; `heddle journal log` shows the history, deletions included."),
        JournalError::Lost { .. } => CliError::new(exit::FAILED, message).next(
            "Keep a copy of .heddle/ first; `heddle journal verify` says what is missing, and its file may still hold it.",
        ),
        JournalError::ReservationsLost(_) => CliError::new(exit::FAILED, message).next(
            "Nothing is taken for free. `heddle journal verify` says what is missing: put a copy of .heddle/events back, or, when it is lost for good, `heddle journal verify --accept-gaps REASON`.",
        ),
        JournalError::Incomplete(_) => CliError::new(exit::FAILED, message).next(
            "Nothing was written. Put them back (a copy of .heddle/events), or, when they are lost for good, `heddle journal verify --accept-gaps REASON`; then this again.",
        ),
        JournalError::Entity { .. } => CliError::new(exit::FAILED, message)
            .next("Only this entity is affected; `heddle journal verify` shows all that is wrong."),
        JournalError::ShortWrite { .. } => CliError::new(exit::FAILED, message)
            .next("Free some space and write it again; nothing of it counts."),
        JournalError::SyncFailed { .. } => CliError::new(exit::FAILED, message).next(
            "Check the disk; then look with `heddle journal log` whether the record is there before you write it again.",
        ),
        JournalError::Config { path, .. } => {
            let file = path.display();
            CliError::new(exit::FAILED, message).next(format!(
                "Nothing else is affected. Keep it aside and begin over what is there: `mv '{file}' '{file}.damaged' && heddle journal init`; no record and no file changes. Where the mode was not primary, `heddle journal migrate --mode MODE` or `rollback --to MODE` sets it again."
            ))
        }
        JournalError::ConfigGone(path) => {
            let file = path.display();
            CliError::new(exit::FAILED, message).next(format!(
                "No record is affected. Put it back: `git checkout -- '{file}'` where git has it (a branch without it may be checked out), or `heddle journal init`, which goes on with the records that are here and changes none."
            ))
        }
        JournalError::OffOverRecords(path) => {
            let file = path.display();
            CliError::new(exit::FAILED, message).next(format!(
                "Nothing is taken for free meanwhile. To go on with this journal: `mv '{file}' '{file}.off' && heddle journal init`, which changes no record, and commit that. To turn it off here as well: `heddle journal rollback`, which parks it. A migration that did not end is ended by `heddle journal migrate`."
            ))
        }
        JournalError::BaseGone(path) => {
            CliError::new(exit::FAILED, message).next(super::advice::bring_base_back(&path))
        }
        JournalError::Unerased { .. } => CliError::new(exit::FAILED, message).next(
            "Put the lost records back (a copy of .heddle/events) and run this again. When they are lost for good, look at the files that are named, at git and at other copies: what must go is removed there by hand.",
        ),
        JournalError::Newer(_) => CliError::new(exit::CONFLICT, message)
            .next("Nothing was written. Use the newer heddle in this repository; `heddle --version` says which one this is."),
        error @ (JournalError::Io { .. } | JournalError::Damaged { .. }) => {
            CliError::new(exit::FAILED, message).next(super::advice::of_file(&error))
        }
    }
}
