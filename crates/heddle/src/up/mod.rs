//! `heddle up`: daemon and embedded broker in one process.
//!
//! The daemon knows nothing of the broker: it is handed a connector, and this connector happens to
//! end in the same process. Everything else is the path that a broker elsewhere would take.

mod detach;
mod embedded;
mod log;
mod reach;

use std::sync::Arc;

use heddle_core::clock::Clock;
use heddle_daemon::link::{Connector, UrlConnector};
use heddle_daemon::{
    Daemon, Ending, Home, HomeError, OpenError, Prepared, Ready, StartError, StartOptions,
    StoreError, is_damage, upkeep,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

pub use detach::detach;
use embedded::Embedded;
pub use log::last_words;
pub use log::{Log, Words, file_path as log_file_path, start as log_start};

use crate::cli::{CliError, Context, exit};
use crate::system::{Runtime, SystemClock, SystemIds};

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

/// Runs until Ctrl-C, `heddle down` or a failure.
pub fn foreground(context: &Context, flavour: Flavour, words: Words) -> Result<(), CliError> {
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
    let ids = Arc::new(SystemIds::new(Arc::clone(&clock)));
    let home = Home::claim(&context.home, clock.wall()).map_err(home_error)?;
    // To the very end: `heddle down` says that it is over when the home is free, and somebody may copy it then.
    let _claim = home.keep_claim();
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
    .map_err(start_error)?;
    let (daemon, embedded) = start(prepared, flavour, clock, ids, durability).await?;
    // Before anybody hears that it is ready: a signal that comes at once must drain, too.
    let signals = Signals::catch()?;
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
        Ending::Failed(why) => Err(CliError::new(exit::FAILED, why)
            .next("Mend that and run `heddle up` again; what was accepted is on disk.")),
    }
}

async fn start(
    prepared: Prepared,
    flavour: Flavour,
    clock: Arc<dyn Clock>,
    ids: Arc<SystemIds>,
    durability: heddle_daemon::Durability,
) -> Result<(Daemon, Option<Embedded>), CliError> {
    let url = prepared.home().config.broker.url.clone();
    let started = match (url, flavour) {
        (Some(url), _) => {
            let token_file = prepared.home().config.broker.token_file.as_ref();
            let token_file = token_file.map(|file| prepared.home().path().join(file));
            let connector = UrlConnector::new(url).with_token_file(token_file);
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
            Err(start_error(error))
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

/// Ctrl-C and SIGTERM, caught from here on.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn catch() -> Result<Self, CliError> {
        let failed = |error: std::io::Error| CliError::new(exit::FAILED, error.to_string());
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }
}

/// The first signal drains; a second one ends at once.
async fn until_stopped(daemon: Daemon, mut signals: Signals) -> Result<Ending, CliError> {
    let shutdown = daemon.shutdown();
    let mut running = std::pin::pin!(daemon.run());
    loop {
        tokio::select! {
            ending = running.as_mut() => return Ok(ending),
            _ = signals.interrupt.recv() => {}
            _ = signals.terminate.recv() => {}
        }
        if shutdown.is_cancelled() {
            return Err(CliError::new(
                exit::FAILED,
                "stopped at once; what was accepted is on disk",
            ));
        }
        shutdown.cancel();
    }
}

/// A home that cannot be had, in words.
pub fn home_error(error: HomeError) -> CliError {
    let message = error.to_string();
    match error {
        HomeError::Held { .. } => CliError::new(exit::CONFLICT, message)
            .next("It is up already: use it, or stop it with `heddle down`."),
        HomeError::Unusable { .. } => CliError::new(exit::FAILED, message)
            .next("Choose a folder that is yours and can be written, with HEDDLE_HOME or --home."),
        HomeError::Config(_) => {
            CliError::new(exit::USAGE, message).next("Correct the file and start again.")
        }
    }
}

fn start_error(error: heddle_daemon::StartError) -> CliError {
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
        StartError::HalfAHome => CliError::new(exit::FAILED, message)
            .next("`heddle doctor` says what is there and what is not; nothing was changed."),
        StartError::Store(StoreError::Open(OpenError::NewerSchema { found, .. })) => {
            CliError::new(exit::REFUSED, message).next(upkeep::newer_next("data.db", found))
        }
        StartError::Store(_) if message.contains("nothing was changed") => {
            CliError::new(exit::FAILED, message)
                .next("`heddle doctor` says what is wrong and how to mend it.")
        }
        StartError::Store(_) if is_damage(&message) => {
            CliError::new(exit::FAILED, message).next(
                "Start again: that start checks all of data.db, and sets a damaged inbox aside.",
            )
        }
        StartError::Effects(ref error) if error.newer().is_some() => {
            let found = error.newer().unwrap_or_default();
            CliError::new(exit::REFUSED, message).next(upkeep::newer_next("effects.db", found))
        }
        StartError::Effects(_) if message.contains("the disk is full") => {
            CliError::new(exit::FAILED, message)
                .next("Nothing was changed; free some space and start again.")
        }
        StartError::Effects(_) => CliError::new(exit::FAILED, message).next(
            "Nothing was changed. Mend what it names: effects.toml by hand, effects.db from a copy of the home; without it \
             nobody can say which effects have happened.",
        ),
        StartError::Refused(_) => CliError::new(exit::FAILED, message)
            .next("Mend that and start again; what was accepted is on disk."),
        _ => CliError::new(exit::FAILED, message)
            .next("Nothing was changed. On a full disk free some space; `heddle logs` may say more."),
    }
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
         {stop} stops it.\n",
        pid = ready.pid,
        home = ready.home.display(),
        socket = ready.socket.display(),
        http = ready.http,
        mesh = ready.mesh,
        member = ready.member,
        agent = ready.agent,
    )
}
