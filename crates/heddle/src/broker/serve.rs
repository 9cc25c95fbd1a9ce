//! `heddle broker serve`: claims its data folder, listens on loopback, drains when it is told to stop.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use heddle_broker::Broker;
use heddle_broker::limiter::LocalLimiter;
use heddle_broker::storage::SqliteStorage;
use heddle_core::clock::{Clock, Ids};
use heddle_core::names::MeshName;
use heddle_core::negotiate::ConnectionPolicy;
use heddle_daemon::home::write_private;
use heddle_daemon::{Home, HomeError, LocalToken, is_damage};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::door::{self, Door, Entry};
use super::jobs::{cannot_open, damaged};
use super::settings::{broker_config, budget, options};
use crate::cli::{CliError, Context, exit};
use crate::system::{SystemClock, SystemIds};

/// How long stopping may take before the rest is left to the tables.
const STOP_WAIT: Duration = Duration::from_secs(8);
/// How often the store is asked whether it can still keep anything.
const STORE_LOOK: Duration = Duration::from_millis(500);

pub struct ServeOptions {
    pub listen: SocketAddr,
    pub data: PathBuf,
    pub policy: Option<ConnectionPolicy>,
}

#[derive(Serialize)]
struct Ready {
    listen: String,
    data: PathBuf,
    pid: u32,
}

pub fn serve(context: &Context, options: &ServeOptions) -> Result<(), CliError> {
    if !options.listen.ip().is_loopback() {
        return Err(CliError::new(
            exit::REFUSED,
            format!(
                "{} is not on this machine; a broker for a team comes with invitations",
                options.listen.ip()
            ),
        )
        .next("Use --listen 127.0.0.1:0."));
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let log = crate::up::log_start(context, Arc::clone(&clock), crate::up::Words::StandardError)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(&error))?;
    let result = runtime.block_on(run(context, options, clock, &log));
    log.finish();
    // What still blocks now (a stuck disk) must not keep the process.
    runtime.shutdown_background();
    result
}

async fn run(
    context: &Context,
    options: &ServeOptions,
    clock: Arc<dyn Clock>,
    log: &crate::up::Log,
) -> Result<(), CliError> {
    let ids: Arc<dyn Ids> = Arc::new(SystemIds::new(Arc::clone(&clock)));
    let home = Home::claim_data(&options.data, clock.wall()).map_err(folder_error)?;
    log.keep_in(home.path(), &home.config.log)?;
    let storage = open(context, &home)?;
    let mut config = broker_config(&home.config.broker);
    config.policy = options.policy.unwrap_or(config.policy);
    let limiter = LocalLimiter::new(Arc::clone(&clock), budget(&home.config.broker));
    let broker = Broker::new(
        Arc::new(storage.clone()),
        Arc::new(limiter),
        clock,
        Arc::clone(&ids),
        config,
    );
    broker
        .forget_sessions()
        .await
        .map_err(|error| failed(&error))?;
    let token = LocalToken::load_or_mint(&home.path().join("broker_token"), ids.as_ref())
        .map_err(|error| failed(&error))?;
    let listener = TcpListener::bind(options.listen)
        .await
        .map_err(|error| cannot_listen(options.listen, &error))?;
    let listen = listener.local_addr().map_err(|error| failed(&error))?;
    let port_file = home.path().join("broker.port");
    write_private(&port_file, &listen.port().to_string()).map_err(|error| failed(&error))?;
    let door = Arc::new(Door {
        broker: broker.clone(),
        entry: Entry::Bearers {
            token,
            mesh_name: mesh_name(context)?,
        },
        connections: TaskTracker::new(),
        stopping: CancellationToken::new(),
    });
    let upkeep = tokio::spawn({
        let (broker, stopping) = (broker.clone(), door.stopping.clone());
        async move { broker.upkeep(stopping).await }
    });
    let ready = Ready {
        listen: listen.to_string(),
        data: home.path().to_owned(),
        pid: std::process::id(),
    };
    context.print(&ready, greeting)?;
    let ending = until_stopped(&door, listener, (&storage, &home.broker_data())).await;
    let stopped = stop(&door, storage, upkeep).await;
    let _ = std::fs::remove_file(&port_file);
    ending.and(stopped)
}

/// The first signal drains. A store that can keep nothing ends the broker: it must not look alive.
async fn until_stopped(
    door: &Arc<Door>,
    listener: TcpListener,
    (storage, data): (&SqliteStorage, &Path),
) -> Result<(), CliError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| failed(&error))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| failed(&error))?;
    let serving = door::run(Arc::clone(door), listener);
    tokio::select! {
        () = serving => Ok(()),
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        why = poisoned(storage) => Err(takes_nothing(data, &why)),
    }
}

/// Why a store that takes nothing more ends its broker.
pub fn takes_nothing(data: &Path, why: &str) -> CliError {
    if is_damage(why) {
        return damaged(data, why);
    }
    CliError::new(
        exit::FAILED,
        format!("the disk refused a sync ({why}); what was acknowledged before is safe"),
    )
    .next("Check the disk, then start again.")
}

pub async fn poisoned(storage: &SqliteStorage) -> String {
    loop {
        if let Some(why) = storage.is_poisoned() {
            return why;
        }
        tokio::time::sleep(STORE_LOOK).await;
    }
}

/// Finishes what was read, says goodbye, closes the file. A second signal ends it at once.
async fn stop(
    door: &Door,
    storage: SqliteStorage,
    upkeep: tokio::task::JoinHandle<()>,
) -> Result<(), CliError> {
    door.stopping.cancel();
    door.connections.close();
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| failed(&error))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| failed(&error))?;
    let drained = async {
        door.connections.wait().await;
        let _ = upkeep.await;
        let _ = tokio::task::spawn_blocking(move || storage.stop()).await;
    };
    tokio::select! {
        drained = tokio::time::timeout(STOP_WAIT, drained) => {
            if drained.is_err() {
                tracing::warn!("not everything ended in time; what was acknowledged is on disk");
            }
            Ok(())
        }
        _ = interrupt.recv() => Err(at_once()),
        _ = terminate.recv() => Err(at_once()),
    }
}

fn at_once() -> CliError {
    CliError::new(
        exit::FAILED,
        "stopped at once; what was acknowledged is on disk",
    )
}

fn open(context: &Context, home: &Home) -> Result<SqliteStorage, CliError> {
    let options = options(&home.broker_data(), context.durability()?);
    let storage = SqliteStorage::open_checked(options);
    storage.map_err(|error| cannot_open(&home.broker_data(), &error))
}

fn mesh_name(context: &Context) -> Result<MeshName, CliError> {
    let name = context.mesh.as_deref().unwrap_or("home");
    MeshName::parse(name).map_err(|error| CliError::new(exit::USAGE, error.to_string()))
}

fn folder_error(error: HomeError) -> CliError {
    let message = error.to_string();
    match error {
        HomeError::Held { .. } => CliError::new(exit::CONFLICT, message).next(
            "A broker or a daemon serves this folder already: use it, or choose another --data.",
        ),
        HomeError::Unusable { .. } => {
            CliError::new(exit::FAILED, message).next("Mend the folder, or choose another --data.")
        }
        HomeError::Config(_) => {
            CliError::new(exit::USAGE, message).next("Correct the file and start again.")
        }
    }
}

fn cannot_listen(listen: SocketAddr, error: &std::io::Error) -> CliError {
    CliError::new(exit::FAILED, format!("{listen}: {error}"))
        .next("Choose another port; --listen 127.0.0.1:0 takes any free one.")
}

fn failed(error: &dyn std::fmt::Display) -> CliError {
    CliError::new(exit::FAILED, error.to_string())
}

fn greeting(ready: &Ready) -> String {
    let token = Path::new(&ready.data).join("broker_token");
    format!(
        "the broker is up (process {pid})\n\
         \x20 listen  ws://{listen}/\n\
         \x20 data    {data}\n\
         \n\
         To share a mesh, put into config.toml of each home, with a `member` of its own, then\n\
         `heddle up` there and `heddle --mesh team peers`:\n\
         \x20 [[mesh]]\n\
         \x20 name = \"team\"\n\
         \x20 member = \"YOUR NAME\"\n\
         \x20 url = \"ws://{listen}/\"\n\
         \x20 token_file = \"{token}\"\n\
         \n\
         Ctrl-C stops it.\n",
        pid = ready.pid,
        listen = ready.listen,
        data = ready.data.display(),
        token = token.display(),
    )
}
