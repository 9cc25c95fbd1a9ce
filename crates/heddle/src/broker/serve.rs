//! `heddle broker serve`: claims its data folder, opens its tables, listens, drains when it is told to stop.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use heddle_broker::Broker;
use heddle_broker::storage::{AnyStorage, PostgresOptions, SqliteStorage, StorageError};
use heddle_core::clock::{Clock, Ids};
use heddle_core::names::MeshName;
use heddle_core::negotiate::ConnectionPolicy;
use heddle_daemon::home::write_private;
use heddle_daemon::{Home, HomeError, LocalToken, MetricsPage, is_damage, is_out_of_place};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::door::{self, Door, Entry};
use super::engine::{Engine, open_database, said_later};
use super::greeting::{Ready, greeting, reached, warnings};
use super::jobs::{cannot_open, damaged};
use super::limiter::{limiter, limiter_probe};
use super::marks;
use super::pages::Pages;
use super::places::Places;
use super::settings::{broker_config, mark_elsewhere, options, refuse_without_tables};
use super::tls::{TlsFiles, acceptor};
use crate::cli::{CliError, Context, exit};
use crate::system::{Runtime, Signals, SystemClock, SystemIds, Word};

/// How long stopping may take before the rest is left to the tables.
const STOP_WAIT: Duration = Duration::from_secs(8);
/// How often the store is asked whether it can still keep anything.
const STORE_LOOK: Duration = Duration::from_millis(500);

pub struct ServeOptions {
    pub listen: SocketAddr,
    pub data: PathBuf,
    pub policy: Option<ConnectionPolicy>,
    /// PostgreSQL instead of the file in the folder.
    pub database: Option<PostgresOptions>,
    /// A Redis that brokers share, instead of counting alone.
    pub limiter: Option<String>,
    /// The authorities that vouch for it, instead of the machine's.
    pub limiter_ca: Option<PathBuf>,
    pub tls: Option<TlsFiles>,
    /// Somebody in front of it does TLS.
    pub behind_proxy: bool,
    /// The token that daemons present, instead of the one in the folder.
    pub token_file: Option<PathBuf>,
    /// The same for the operator's: brokers behind one address share it.
    pub admin_token_file: Option<PathBuf>,
}

pub fn serve(context: &Context, options: &ServeOptions) -> Result<(), CliError> {
    refuse_open_doors(options)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let tls = options.tls.as_ref();
    let tls = tls.map(|files| acceptor(files, clock.wall())).transpose()?;
    let log = crate::up::log_start(context, Arc::clone(&clock), crate::up::Words::StandardError)?;
    let runtime = Runtime::many().map_err(|error| failed(&error))?;
    let result = runtime.run(run(context, options, (clock, tls), &log));
    log.finish();
    runtime.leave();
    result
}

/// Whoever listens beyond this machine protects what goes over the wire, or says who does.
fn refuse_open_doors(options: &ServeOptions) -> Result<(), CliError> {
    let is_protected = options.tls.is_some() || options.behind_proxy;
    if options.listen.ip().is_loopback() || is_protected {
        return Ok(());
    }
    Err(CliError::new(
        exit::REFUSED,
        format!(
            "{} is not on this machine: a broker for a team, with invitations, is reached by TLS",
            options.listen.ip()
        ),
    )
    .next(
        "Add --tls-cert and --tls-key, or --behind-proxy if something in front of it does TLS; or use --listen \
         127.0.0.1:0.",
    ))
}

async fn run(
    context: &Context,
    options: &ServeOptions,
    (clock, tls): (Arc<dyn Clock>, Option<Tls>),
    log: &crate::up::Log,
) -> Result<(), CliError> {
    let home = Home::claim_data(&options.data, clock.wall()).map_err(folder_error)?;
    log.keep_in(home.path(), &home.config.log)?;
    let serving = Serving {
        context,
        options,
        home,
        clock,
        tls,
    };
    match &options.database {
        // IMPORTANT: its settings are looked at and its tables brought up to date before the port is bound.
        Some(database) => {
            let storage = open_database(database).await?;
            mark_elsewhere(&serving.home);
            serving.on(AnyStorage::Postgres(storage)).await
        }
        None => {
            refuse_without_tables(&serving.home)?;
            let storage = open(context, &serving.home)?;
            serving.on(AnyStorage::Sqlite(storage)).await
        }
    }
}

/// What it serves with, and what is to be said of its certificate.
type Tls = (tokio_rustls::TlsAcceptor, Vec<String>);

/// What a broker is made of, before it has tables.
struct Serving<'a> {
    context: &'a Context,
    options: &'a ServeOptions,
    home: Home,
    clock: Arc<dyn Clock>,
    tls: Option<Tls>,
}

impl Serving<'_> {
    async fn on(mut self, storage: AnyStorage) -> Result<(), CliError> {
        // Before anybody is told that it is ready: whoever reads that may stop it at once.
        let signals = Signals::catch().map_err(|error| failed(&error))?;
        let options = self.options;
        let ids: Arc<dyn Ids> = Arc::new(SystemIds::new(Arc::clone(&self.clock)));
        let sources = (Arc::clone(&self.clock), Arc::clone(&ids));
        let decider = storage.decider(options, self.home.path(), sources).await?;
        let listener = TcpListener::bind(options.listen)
            .await
            .map_err(|error| cannot_listen(options.listen, &error))?;
        let listen = listener.local_addr().map_err(|error| failed(&error))?;
        let about_tls = self.tls.as_mut().map(|(_, said)| std::mem::take(said));
        let door = self.door(&storage, ids.as_ref(), &ids)?;
        door.broker.decided_by(Arc::clone(&decider.authority));
        // IMPORTANT: before anybody is served, who would be given places that others have seen.
        let seen = marks::read(self.home.path());
        let compared = door.broker.compared(&seen).await;
        compared.map_err(|error| self.unfit(&error))?;
        let forgotten = door.broker.forget_sessions().await;
        forgotten.map_err(|error| self.unfit(&error))?;
        let port_file = self.home.path().join("broker.port");
        write_private(&port_file, &listen.port().to_string()).map_err(|error| failed(&error))?;
        let upkeep = tokio::spawn({
            let (broker, stopping) = (door.broker.clone(), door.stopping.clone());
            let kept = (seen, marks::keeper(self.home.path()));
            async move { broker.housekeeping(kept, stopping).await }
        });
        let ready = Ready {
            mesh: self
                .context
                .mesh
                .clone()
                .unwrap_or_else(|| "team".to_owned()),
            listen: listen.to_string(),
            reached: reached(listen, options),
            data: self.home.path().to_owned(),
            token_file: self.token_file(),
            storage: if options.database.is_some() {
                "postgres"
            } else {
                "sqlite"
            },
            limiter: if options.limiter.is_some() {
                "redis"
            } else {
                "local"
            },
            tls: options.tls.is_some(),
            pid: std::process::id(),
            warnings: warnings(
                (&storage, about_tls.unwrap_or_default()),
                options,
                door.pages.as_deref(),
            )
            .await,
        };
        self.context.print(&ready, greeting)?;
        let stands_on = (&storage, self.home.broker_data());
        let ending = until_stopped(&door, listener, stands_on, signals).await;
        let stopped = stop(&door, storage, upkeep).await;
        decider.close().await;
        let _ = std::fs::remove_file(&port_file);
        ending.and(stopped)
    }

    /// What the tables say before anybody is served.
    fn unfit(&self, error: &StorageError) -> CliError {
        let named = self.options.database.as_ref();
        let known = named.and_then(|named| said_later(&error.to_string(), &named.schema));
        known.unwrap_or_else(|| failed(error))
    }

    /// Named on the command line, or in the folder; from the root, because it is read elsewhere.
    fn token_file(&self) -> PathBuf {
        let own = self.home.path().join("broker_token");
        let file = self.options.token_file.clone().unwrap_or(own);
        std::path::absolute(&file).unwrap_or(file)
    }

    fn door(
        &mut self,
        storage: &AnyStorage,
        minting: &dyn Ids,
        ids: &Arc<dyn Ids>,
    ) -> Result<Arc<Door>, CliError> {
        let options = self.options;
        let own = |name: &str| self.home.path().join(name);
        let bearer = token(
            "--token-file",
            options.token_file.as_deref(),
            own("broker_token"),
            minting,
        )?;
        let admin_file = options.admin_token_file.as_deref();
        let admin = token(
            "--admin-token-file",
            admin_file,
            own("admin_token"),
            minting,
        )?;
        let written = &self.home.config.broker;
        let mut config = broker_config(written);
        config.policy = options.policy.unwrap_or(config.policy);
        let limiter = Arc::new(limiter(options, written, Arc::clone(&self.clock))?);
        let mut probes = storage.probes(self.home.path());
        probes.extend(limiter_probe(&limiter));
        let stopping = CancellationToken::new();
        let pages = Pages {
            probes,
            metrics: MetricsPage::install().map_err(|error| failed(&error))?,
            admin,
            stopping: stopping.clone(),
        };
        let mesh_name = mesh_name(self.context)?;
        let entry = Entry::Anybody {
            token: bearer,
            mesh_name,
        };
        let storage = Arc::new(storage.clone());
        let clock = Arc::clone(&self.clock);
        Ok(Arc::new(Door {
            broker: Broker::new(storage, limiter, clock, Arc::clone(ids), config),
            entry,
            tls: self.tls.take().map(|(acceptor, _)| acceptor),
            is_behind_proxy: options.behind_proxy,
            pages: Some(Arc::new(pages)),
            places: Places::new(),
            connections: TaskTracker::new(),
            stopping,
        }))
    }
}

/// The token of the file that a person named, or of the folder's own, which is made if it is not there.
fn token(
    option: &str,
    named: Option<&Path>,
    own: PathBuf,
    minting: &dyn Ids,
) -> Result<LocalToken, CliError> {
    match named {
        None => LocalToken::load_or_mint(&own, minting).map_err(|error| failed(&error)),
        Some(file) => {
            let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
            LocalToken::load_named(&file, minting).map_err(|error| no_token(option, &error))
        }
    }
}

fn no_token(option: &str, error: &std::io::Error) -> CliError {
    CliError::new(exit::FAILED, format!("{option}: {error}")).next(
        "Name a file that holds the token of a broker, or one that is not there yet: then a token is made. Nothing was changed.",
    )
}

/// The first signal drains. A store that can keep nothing ends the broker: it must not look alive.
async fn until_stopped(
    door: &Arc<Door>,
    listener: TcpListener,
    (storage, data): (&AnyStorage, PathBuf),
    mut signals: Signals,
) -> Result<(), CliError> {
    let serving = door::run(Arc::clone(door), listener);
    tokio::select! {
        () = serving => Ok(()),
        _ = signals.next() => Ok(()),
        why = storage.broken(&data) => Err(why),
    }
}

/// Why a store that takes nothing more ends its broker.
pub fn takes_nothing(data: &Path, why: &str) -> CliError {
    if is_damage(why) {
        return damaged(data, why);
    }
    if is_out_of_place(why) {
        return CliError::new(exit::FAILED, why.to_owned()).next(
            "Put the file back if it was only moved, then start again. Where it is gone, a start makes a new one, and the homes \
             send again what only it had.",
        );
    }
    CliError::new(
        exit::FAILED,
        format!("the disk refused a sync ({why}); what was acknowledged before is safe"),
    )
    .next("Check the disk, then start again.")
}

pub async fn poisoned(storage: &SqliteStorage) -> String {
    loop {
        if let Some(why) = storage.look_at_place() {
            return why;
        }
        tokio::time::sleep(STORE_LOOK).await;
    }
}

/// Finishes what was read, says goodbye, closes the store. A second signal ends it at once.
async fn stop(
    door: &Door,
    storage: AnyStorage,
    upkeep: tokio::task::JoinHandle<()>,
) -> Result<(), CliError> {
    door.stopping.cancel();
    door.connections.close();
    let mut signals = Signals::catch().map_err(|error| failed(&error))?;
    let drained = async {
        door.connections.wait().await;
        let _ = upkeep.await;
        storage.close().await;
    };
    tokio::select! {
        drained = tokio::time::timeout(STOP_WAIT, drained) => {
            if drained.is_err() {
                tracing::warn!("not everything ended in time; what was acknowledged is on disk");
            }
            Ok(())
        }
        () = ended_at_once(&mut signals) => Err(at_once()),
    }
}

/// A terminal that is closed may say so twice, and means one word.
async fn ended_at_once(signals: &mut Signals) {
    while signals.next().await != Word::End {}
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
        HomeError::Unusable { .. } | HomeError::TooLong { .. } => {
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
