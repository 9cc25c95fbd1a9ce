//! `heddle up`: daemon and embedded broker in one process.
//!
//! The daemon knows nothing of the broker: it is handed a connector, and this connector happens to
//! end in the same process. Everything else is the path that a broker elsewhere would take.

mod detach;
mod embedded;
mod log;
pub mod put_back;
mod reach;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use heddle_core::clock::Clock;
use heddle_daemon::link::{Connector, UrlConnector};
use heddle_daemon::upkeep::FullDisk;
use heddle_daemon::{
    Claim, Daemon, Ending, Fatal, Home, HomeError, OpenError, Prepared, Ready, StartError,
    StartOptions, StoreError, is_damage, is_out_of_place, upkeep,
};

pub use detach::detach;
use embedded::Embedded;
pub use log::{LastWords, last_words};
pub use log::{Log, Words, file_path as log_file_path, start as log_start};

use crate::cli::{CliError, Context, exit};
use crate::system::{Runtime, Signals, SystemClock, SystemIds, Word};

/// Which broker the mesh `home` has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// One of this very process, unless the config names another.
    Embedded,
    /// None of this process: only what is hosted elsewhere.
    Elsewhere,
}

impl Flavour {
    /// The verb that starts it.
    pub fn verb(self) -> &'static [&'static str] {
        match self {
            Self::Embedded => &["up"],
            Self::Elsewhere => &["daemon", "up"],
        }
    }
}

/// What lies in a wrong place is told before anything is made, opened or claimed for it.
pub fn refuse_misplaced(home: &Path) -> Result<(), CliError> {
    match upkeep::first_misplaced_in(home) {
        None => Ok(()),
        Some(found) => Err(in_words(home, StartError::Misplaced(found))),
    }
}

/// Runs until Ctrl-C, `heddle down` or a failure.
pub fn foreground(context: &Context, flavour: Flavour, words: Words) -> Result<(), CliError> {
    refuse_misplaced(&context.home)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let log = log::start(context, Arc::clone(&clock), words)?;
    let runtime =
        Runtime::many().map_err(|error| CliError::new(exit::FAILED, error.to_string()))?;
    let result = runtime.run(run(context, flavour, clock, &log));
    log.finish();
    runtime.leave();
    result
}

async fn run(
    context: &Context,
    flavour: Flavour,
    clock: Arc<dyn Clock>,
    log: &log::Log,
) -> Result<(), CliError> {
    let copy = upkeep::latest_copy(&context.home);
    let begun = begin(context, flavour, clock, log).await;
    let (daemon, embedded, _claim) = begun.map_err(|error| {
        let made = upkeep::latest_copy(&context.home).filter(|made| Some(made) != copy.as_ref());
        behind_steps(made, on_full_disk(&context.home, error))
    })?;
    // Before anybody hears that it is ready: a signal that comes at once must drain, too.
    let signals =
        Signals::catch().map_err(|error| CliError::new(exit::FAILED, error.to_string()))?;
    context.print(daemon.ready(), |ready| greeting(ready, false))?;
    let shutdown = daemon.shutdown();
    let (ending, broken) = {
        let mut stopped = std::pin::pin!(until_stopped(daemon, signals));
        tokio::select! {
            ending = stopped.as_mut() => (ending, None),
            broken = broken(embedded.as_ref()) => {
                // What the daemon has is safe; it is closed in order.
                shutdown.cancel();
                (stopped.await, Some(broken))
            }
        }
    };
    let ending = ending?;
    if let Some(embedded) = embedded {
        embedded.stop().await;
    }
    if let Some(broken) = broken {
        return Err(broken);
    }
    match ending {
        Ending::Asked => Ok(()),
        Ending::Failed(why) => {
            let next = if is_out_of_place(&why) {
                "What was accepted is in the file that was open: put that one back if it was only moved, and run `heddle up` again."
            } else {
                "Mend that and run `heddle up` again; what was accepted is on disk."
            };
            Err(CliError::new(exit::FAILED, why).next(next))
        }
    }
}

/// Everything up to the moment at which it is ready. The claim lasts to the very end: `heddle down` says that it is over
/// when the home is free, and somebody may copy it then.
async fn begin(
    context: &Context,
    flavour: Flavour,
    clock: Arc<dyn Clock>,
    log: &log::Log,
) -> Result<(Daemon, Option<Embedded>, Claim), CliError> {
    let ids = Arc::new(SystemIds::new(Arc::clone(&clock)));
    let home = Home::claim(&context.home, clock.wall()).map_err(home_error)?;
    let claim = home.keep_claim();
    log.keep_in(home.path(), &home.config.log)?;
    let durability = context.durability()?;
    let agent = context.agent_name()?;
    let prepared = Prepared::open(
        home,
        StartOptions {
            clock: Arc::clone(&clock),
            ids: ids.clone(),
            durability,
            login: context.environment.login.clone().unwrap_or_default(),
            agent,
            version: env!("CARGO_PKG_VERSION"),
            hooks_paused: context.environment.is_ci,
            vectors_key: context.environment.vectors_key.clone(),
        },
    )
    .await
    .map_err(|error| start_error(&context.home, error))?;
    let (daemon, embedded) = start(prepared, flavour, clock, ids, durability).await?;
    Ok((daemon, embedded, claim))
}

async fn start(
    prepared: Prepared,
    flavour: Flavour,
    clock: Arc<dyn Clock>,
    ids: Arc<SystemIds>,
    durability: heddle_daemon::Durability,
) -> Result<(Daemon, Option<Embedded>), CliError> {
    let url = prepared.home().config.broker.url.clone();
    let folder = prepared.home().path().to_owned();
    let started = match (url, flavour) {
        (Some(url), _) => {
            let named = |file: &Option<PathBuf>| file.as_ref().map(|file| folder.join(file));
            let written = &prepared.home().config.broker;
            let connector = UrlConnector::new(url)
                .with_token_file(named(&written.token_file))
                .with_ca_file(named(&written.ca_file));
            let connector: Arc<dyn Connector> = Arc::new(connector);
            (prepared.start(connector).await, None)
        }
        (None, Flavour::Elsewhere) => (prepared.start_elsewhere().await, None),
        (None, Flavour::Embedded) => {
            let embedded = Embedded::open(&prepared, clock, ids, durability).await?;
            let connector = embedded.connector();
            (prepared.start(connector).await, Some(embedded))
        }
    };
    match started {
        (Ok(daemon), embedded) => Ok((daemon, embedded)),
        (Err(error), embedded) => {
            if let Some(embedded) = embedded {
                embedded.stop().await;
            }
            Err(start_error(&folder, error))
        }
    }
}

/// The end of an embedded broker whose file takes nothing more; never, where there is none.
async fn broken(embedded: Option<&Embedded>) -> CliError {
    match embedded {
        Some(embedded) => embedded.broken().await,
        None => std::future::pending().await,
    }
}

/// The first signal drains; a second one ends at once. A terminal that is closed may say so twice, and means one word.
async fn until_stopped(daemon: Daemon, mut signals: Signals) -> Result<Ending, CliError> {
    let shutdown = daemon.shutdown();
    let mut running = std::pin::pin!(daemon.run());
    loop {
        let word = tokio::select! {
            ending = running.as_mut() => return Ok(ending),
            word = signals.next() => word,
        };
        if shutdown.is_cancelled() && word == Word::End {
            return Err(CliError::new(
                exit::FAILED,
                "stopped at once; what was accepted is on disk",
            ));
        }
        shutdown.cancel();
    }
}

/// What leads on in a home that has lost its store and nothing else.
pub const WITHOUT_DATA: &str = "Put the last backup in its place: `heddle daemon restore FILE`, where FILE is what `heddle doctor --backup FILE` \
    made. Without one, move broker.db, effects.db and the folder effects of the home away, and `heddle up` begins anew.";

/// A home that cannot be had, in words.
pub fn home_error(error: HomeError) -> CliError {
    let message = error.to_string();
    match error {
        HomeError::Held { .. } => CliError::new(exit::CONFLICT, message)
            .next("It is up already: use it, or stop it with `heddle down`."),
        HomeError::Unusable { .. } => CliError::new(exit::FAILED, message)
            .next("Choose a folder that is yours and can be written, with HEDDLE_HOME or --home."),
        HomeError::TooLong { .. } => CliError::new(exit::FAILED, message)
            .next("Choose a folder with a shorter path, with HEDDLE_HOME or --home."),
        HomeError::Config(_) => {
            CliError::new(exit::USAGE, message).next("Correct the file and start again.")
        }
    }
}

/// A failure on a disk that has no room for a start: which disk, how much it lacks, and what helps, before anything else
/// that was said.
pub(crate) fn on_full_disk(home: &Path, error: CliError) -> CliError {
    if error.code != exit::FAILED {
        return error;
    }
    let disk = FullDisk::for_start(home);
    match disk.filter(|disk| disk.is_full() || is_about_room(&error.message)) {
        // Told already, by the process that was started.
        Some(_) if error.message.starts_with("the disk is ") => error,
        Some(disk) => {
            let message = format!("{disk} ({})", error.message);
            CliError::new(exit::FAILED, message).next(disk.next())
        }
        None => error,
    }
}

/// What was wrong came behind the steps of the schema: the file is not as it was any more, and whoever goes back to the
/// Heddle of before needs the copy.
fn behind_steps(made: Option<(SystemTime, PathBuf)>, error: CliError) -> CliError {
    let is_taken = made.filter(|_| !error.message.contains("nothing was changed"));
    let Some((_, copy)) = is_taken else {
        return error;
    };
    let message = format!(
        "{}; before that, data.db was brought up to date with this Heddle, and for the one of before it is kept as {}",
        error.message,
        copy.display()
    );
    let next = error
        .next
        .map(|next| next.replace("Nothing was changed", "Nothing is lost"));
    CliError {
        message,
        next,
        ..error
    }
}

/// What is said of a process that could not even write why it ended.
const WORDLESS: &str = "it ended before it was ready";

/// In the words of the system and of SQLite; their codes are behind us by now.
fn is_about_room(message: &str) -> bool {
    let words = [
        "No space left",
        "disk is full",
        "Disk quota",
        "disk I/O error",
        "wait for a copy",
        WORDLESS,
    ];
    words.iter().any(|words| message.contains(words))
}

fn start_error(home: &Path, error: heddle_daemon::StartError) -> CliError {
    on_full_disk(home, in_words(home, error))
}

fn in_words(home: &Path, error: heddle_daemon::StartError) -> CliError {
    let message = error.to_string();
    match error {
        StartError::NoMesh => CliError::new(exit::USAGE, message).next(
            "Add a [[mesh]] with name and url to config.toml, or run `heddle up` with its own broker.",
        ),
        StartError::AnotherName { .. } => CliError::new(exit::USAGE, message).next(
            "Take the line out of [daemon], or write the old name there. Another name needs another home (HEDDLE_HOME or --home); a [[mesh]] can have a `member` of its own at any time.",
        ),
        StartError::Mesh { .. } => CliError::new(exit::FAILED, message).next(
            "Mend that, or take the [[mesh]] out of config.toml, and start again; nothing was changed.",
        ),
        StartError::Hooks(_) => CliError::new(exit::USAGE, message)
            .next("Correct hooks.toml and start again; without that file no hook runs."),
        StartError::PortTaken { port } => CliError::new(exit::FAILED, message).next(format!(
            "Take another http_port in [daemon] of config.toml, or take the line out for any free port; or stop that program \
             (`ss -ltnp sport = :{port}` names it). Then start again.",
        )),
        StartError::PortRefused { .. } => CliError::new(exit::FAILED, message).next(
            "Take another http_port in [daemon] of config.toml, from 1024 on, or take the line out for any free port; then start \
             again.",
        ),
        StartError::Misplaced(found) => CliError::new(exit::FAILED, message).next(found.next),
        StartError::HalfAHome => CliError::new(exit::FAILED, message)
            .next(format!("{WITHOUT_DATA} Nothing was changed.")),
        StartError::Store(StoreError::Open(OpenError::NewerSchema { found, .. })) => {
            CliError::new(exit::REFUSED, message).next(upkeep::newer_next("data.db", found))
        }
        StartError::Store(StoreError::Held) => CliError::held(&home.join("data.db")),
        StartError::Store(StoreError::Corrupt(_)) => CliError::new(exit::FAILED, message).next(
            "`heddle doctor --repair` mends it, names what is lost and keeps the file as it is now.",
        ),
        StartError::Store(_) if message.contains("nothing was changed") => {
            CliError::new(exit::FAILED, message)
                .next("`heddle doctor` says what is wrong and how to mend it.")
        }
        StartError::Store(_) if is_damage(&message) => {
            CliError::new(exit::FAILED, message).next(
                "Start again: that start checks all of data.db, makes a damaged index for searching anew, and sets a damaged inbox aside.",
            )
        }
        StartError::Effects(ref error) if error.newer().is_some() => {
            let found = error.newer().unwrap_or_default();
            CliError::new(exit::REFUSED, message).next(upkeep::newer_next("effects.db", found))
        }
        StartError::Effects(_) => CliError::new(exit::FAILED, message).next(
            "Nothing was changed. Mend what it names: effects.toml by hand. Where another program holds effects.db, end that one and \
             start again; only one that is damaged is put back, from the newest copy of the home: without it nobody can say which \
             effects have happened.",
        ),
        StartError::Refused(Fatal::Override(_)) => {
            CliError::new(exit::FAILED, message).next(
                "Lower max_age_hours_override in [outbox] of config.toml, or take the line out, and start again; \
                 what was accepted is on disk and waits.",
            )
        }
        // Nothing in this home can be mended then.
        StartError::Refused(Fatal::Broker(_)) => {
            CliError::new(exit::FAILED, message).next(
                "Whoever runs that broker has to update or reconfigure it, or config.toml has to name another one; \
                 `heddle doctor` says more. What was accepted is on disk and waits.",
            )
        }
        StartError::Refused(Fatal::Broken(_)) => CliError::new(exit::FAILED, message)
            .next("Mend that and start again; what was accepted is on disk."),
        _ => CliError::new(exit::FAILED, message)
            .next("Nothing was changed; `heddle logs` may say more."),
    }
}

/// What has happened at the start, behind a line of its own.
fn notes(ready: &Ready) -> String {
    let notes = ready.notes.iter().map(|note| format!("\nnote: {note}\n"));
    notes.collect()
}

/// What a person sees when it is up.
pub fn greeting(ready: &Ready, detached: bool) -> String {
    let stop = if detached { "heddle down" } else { "Ctrl-C" };
    format!(
        "heddle is up (process {pid})\n\
         \x20 home    {home}\n\
         \x20 socket  {socket}\n\
         \x20 http    {http}  (token in local_token)\n\
         \x20 mesh    {mesh}, you are @{member}/{agent}\n\
         \n\
         Try next, in another terminal:\n\
         \x20 heddle agent register planner\n\
         \x20 heddle send @planner 'hello'\n\
         \x20 heddle inbox --agent planner\n\
         \n\
         {stop} stops it.\n{notes}",
        notes = notes(ready),
        pid = ready.pid,
        home = ready.home.display(),
        socket = ready.socket.display(),
        http = ready.http,
        mesh = ready.mesh,
        member = ready.member,
        agent = ready.agent,
    )
}
