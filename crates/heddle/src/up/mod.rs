//! `heddle up`: daemon and embedded broker in one process.
//!
//! The daemon knows nothing of the broker: it is handed a connector, and this connector happens to
//! end in the same process. Everything else is the path that a broker elsewhere would take.

mod detach;
mod embedded;
mod log;

use std::sync::Arc;

use heddle_core::clock::Clock;
use heddle_daemon::link::{Connector, UrlConnector};
use heddle_daemon::{Daemon, Ending, Home, HomeError, Prepared, Ready, StartOptions};
use tokio::signal::unix::{SignalKind, signal};

pub use detach::detach;
use embedded::Embedded;
pub use log::{Words, file_path as log_file_path};

use crate::cli::{CliError, Context, exit};
use crate::system::{SystemClock, SystemIds};

/// Runs until Ctrl-C, `heddle down` or a failure.
pub fn foreground(context: &Context, words: Words) -> Result<(), CliError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let log = log::start(context, Arc::clone(&clock), words)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::new(exit::FAILED, error.to_string()))?;
    let result = runtime.block_on(run(context, clock, &log));
    log.finish();
    // What still blocks now (a stuck disk) must not keep the process.
    runtime.shutdown_background();
    result
}

async fn run(context: &Context, clock: Arc<dyn Clock>, log: &log::Log) -> Result<(), CliError> {
    let ids = Arc::new(SystemIds::new(Arc::clone(&clock)));
    let home = Home::claim(&context.home, clock.wall()).map_err(home_error)?;
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
        },
    )
    .await
    .map_err(start_error)?;
    let (daemon, embedded) = match prepared.home().config.broker.url.clone() {
        Some(url) => {
            let connector: Arc<dyn Connector> = Arc::new(UrlConnector::new(url));
            (prepared.start(connector).await.map_err(start_error)?, None)
        }
        None => {
            let embedded = Embedded::open(&prepared, clock, ids, durability).await?;
            let connector = embedded.connector();
            let daemon = prepared.start(connector).await.map_err(start_error)?;
            (daemon, Some(embedded))
        }
    };
    context.print(daemon.ready(), |ready| greeting(ready, false))?;
    let ending = until_stopped(daemon).await?;
    if let Some(embedded) = embedded {
        embedded.stop().await;
    }
    match ending {
        Ending::Asked => Ok(()),
        Ending::Failed(why) => Err(CliError::new(exit::FAILED, why)
            .next("Mend that and run `heddle up` again; what was accepted is on disk.")),
    }
}

/// The first signal drains; a second one ends at once.
async fn until_stopped(daemon: Daemon) -> Result<Ending, CliError> {
    let failed = |error: std::io::Error| CliError::new(exit::FAILED, error.to_string());
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let shutdown = daemon.shutdown();
    let mut running = std::pin::pin!(daemon.run());
    loop {
        tokio::select! {
            ending = running.as_mut() => return Ok(ending),
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
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

fn home_error(error: HomeError) -> CliError {
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
    CliError::new(exit::FAILED, error.to_string())
        .next("Nothing was changed; `heddle logs` may say more.")
}

/// What a person sees when it is up.
pub fn greeting(ready: &Ready, detached: bool) -> String {
    let stop = if detached { "heddle down" } else { "Ctrl-C" };
    format!(
        "heddle is up (process {pid})\n\
         \x20 home    {home}\n\
         \x20 socket  {socket}\n\
         \x20 http    {http}  (token in local_token)\n\
         \x20 mesh    {mesh}, you are @{agent}\n\
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
        agent = ready.agent,
    )
}
