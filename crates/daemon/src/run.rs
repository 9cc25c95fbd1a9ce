//! A daemon's life: prepare (store, mesh, recovery), start (sockets, link), run, stop in bounds.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use heddle_core::clock::{Clock, Ids};
use heddle_core::ids::{HistoryId, MemberId, MeshId};
use heddle_core::limits::SHUTDOWN_TIMEOUT;
use heddle_core::names::{AgentName, MemberName, MeshName};
use heddle_store::{Durability, Mesh, NewMesh, Store, StoreError, StoreOptions};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::home::{Home, write_private};
use crate::ipc::{self, Ipc, Load};
use crate::link::{self, Connector};
use crate::mesh::MeshState;
use crate::shared::{Shared, lock};
use crate::token::LocalToken;

/// The personal mesh that every home has.
const HOME_MESH: &str = "home";
/// How long a start waits for its broker before it reports ready without one.
const CONNECT_WAIT: Duration = Duration::from_secs(3);
/// How often metric samples are folded away.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);
/// Kept back from the shutdown's time for closing the store.
const STORE_RESERVE: Duration = Duration::from_secs(2);

pub struct StartOptions {
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn Ids>,
    pub durability: Durability,
    /// The person's name, where the config gives none.
    pub login: String,
    /// The agent that callers without one speak for; the person by default.
    pub agent: Option<AgentName>,
    pub version: &'static str,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the store cannot be opened: {0}")]
    Store(#[from] StoreError),
    #[error(
        "data.db is missing or empty, but broker.db is there: put data.db back from a backup, or move broker.db away to begin anew"
    )]
    HalfAHome,
    #[error("{what}: {why}")]
    Io { what: &'static str, why: String },
    #[error("{0}")]
    Name(#[from] heddle_core::names::NameError),
    #[error("metrics cannot be recorded: {0}")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
}

/// A home whose store is open and recovered, before anything listens.
pub struct Prepared {
    home: Home,
    options: StartOptions,
    store: Store,
    mesh: Mesh,
    default_agent: AgentName,
}

/// What a start has to tell.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Ready {
    pub home: PathBuf,
    pub socket: PathBuf,
    pub http: String,
    /// The login link of the console; this version has none.
    pub console: Option<String>,
    pub mesh: String,
    pub agent: String,
    pub pid: u32,
}

/// Why a daemon ended.
#[derive(Debug)]
pub enum Ending {
    Asked,
    Failed(String),
}

pub struct Daemon {
    ready: Ready,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
    linking: JoinHandle<()>,
    home: Home,
}

impl Prepared {
    pub async fn open(home: Home, options: StartOptions) -> Result<Self, StartError> {
        refuse_half_a_home(&home)?;
        let store = Store::open(StoreOptions {
            path: home.data(),
            durability: options.durability,
            vfs: None,
        })?;
        // Before anything is sent: what was on its way when the last process ended goes back.
        let recovered = store.recover().await?;
        if recovered > 0 {
            tracing::info!(
                recovered,
                "rows were in flight at the last end; they are pending again"
            );
        }
        let member_name = match &home.config.daemon.member {
            Some(name) => name.clone(),
            None => MemberName::parse(&options.login).or_else(|_| MemberName::parse("me"))?,
        };
        let new = NewMesh {
            mesh: MeshId(options.ids.ulid()),
            name: MeshName::parse(HOME_MESH)?,
            member: MemberId(options.ids.ulid()),
            member_name,
            broker_url: None,
            now: options.clock.wall(),
        };
        let mesh = store.ensure_mesh(new).await?;
        let person = AgentName::parse(mesh.member_name.as_str())?;
        let default_agent = options.agent.clone().unwrap_or_else(|| person.clone());
        for agent in [person, default_agent.clone()] {
            store
                .register_agent(mesh.mesh, agent, options.clock.wall())
                .await?;
        }
        Ok(Self {
            home,
            options,
            store,
            mesh,
            default_agent,
        })
    }

    pub fn home(&self) -> &Home {
        &self.home
    }

    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// The newest place of the mesh's history that this home has seen.
    pub async fn seen(&self) -> Result<HistoryId, StartError> {
        Ok(self.store.delivery_cursor(self.mesh.mesh).await?)
    }

    /// Opens the doors and connects. Ready when the broker answered, or would not for a while.
    pub async fn start(self, connector: Arc<dyn Connector>) -> Result<Daemon, StartError> {
        let io = |what| {
            move |error: std::io::Error| StartError::Io {
                what,
                why: error.to_string(),
            }
        };
        let metrics = crate::metrics::install()?;
        let token = LocalToken::load_or_mint(&self.home.token(), self.options.ids.as_ref())
            .map_err(io("local_token"))?;
        let listeners = ipc::listen(&self.home.socket(), self.home.config.daemon.http_port)
            .await
            .map_err(io("listening failed"))?;
        write_private(&self.home.port_file(), &listeners.tcp_port.to_string())
            .map_err(io("http.port"))?;
        let mesh = MeshState::load(self.mesh, connector.label(), &self.store).await?;
        let mesh = Arc::new(mesh);
        let last_arrival = self.store.last_arrival().await?;
        let shared = Arc::new(Shared {
            store: self.store,
            clock: self.options.clock,
            ids: self.options.ids,
            meshes: vec![Arc::clone(&mesh)],
            max_age_hours_override: self.home.config.outbox.max_age_hours_override,
            arrivals: watch::Sender::new(last_arrival),
            shutdown: CancellationToken::new(),
            fatal: Mutex::new(None),
        });
        let ready = Ready {
            home: self.home.path().to_owned(),
            socket: self.home.socket(),
            http: format!("http://127.0.0.1:{}", listeners.tcp_port),
            console: None,
            mesh: mesh.mesh.name.to_string(),
            agent: self.default_agent.to_string(),
            pid: std::process::id(),
        };
        let door = Arc::new(Ipc {
            shared: Arc::clone(&shared),
            token,
            tcp_port: listeners.tcp_port,
            home: ready.home.clone(),
            socket: ready.socket.clone(),
            version: self.options.version,
            durability: durability_name(self.options.durability),
            default_agent: self.default_agent,
            metrics: metrics.clone(),
            load: Load::default(),
        });
        // Ends with the shutdown; nothing waits for it.
        tokio::spawn(keep_metrics_small(metrics, shared.shutdown.clone()));
        let linking = tokio::spawn(link::keep(
            Arc::clone(&shared),
            Arc::clone(&mesh),
            connector,
        ));
        tokio::select! {
            () = mesh.wait_connected() => {}
            () = shared.shutdown.cancelled() => {}
            () = tokio::time::sleep(CONNECT_WAIT) => {}
        }
        let serving = tokio::spawn(ipc::serve(door, listeners));
        Ok(Daemon {
            ready,
            shared,
            serving,
            linking,
            home: self.home,
        })
    }
}

/// A broker's file beside a missing or empty store means that the store was lost, not that the home
/// is new: starting over would free ids that are taken.
fn refuse_half_a_home(home: &Home) -> Result<(), StartError> {
    let bytes = |path: PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    if bytes(home.data()) == 0 && bytes(home.broker_data()) > 0 {
        return Err(StartError::HalfAHome);
    }
    Ok(())
}

fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::Full => "full",
        Durability::Normal => "normal",
    }
}

/// Samples pile up until somebody folds them into their buckets; a home that nobody scrapes must
/// not grow.
async fn keep_metrics_small(metrics: PrometheusHandle, shutdown: CancellationToken) {
    while !shutdown.is_cancelled() {
        metrics.run_upkeep();
        tokio::select! {
            () = tokio::time::sleep(METRICS_UPKEEP) => {}
            () = shutdown.cancelled() => {}
        }
    }
}

impl Daemon {
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Cancel it to stop the daemon; it is cancelled when the daemon stops by itself.
    pub fn shutdown(&self) -> CancellationToken {
        self.shared.shutdown.clone()
    }

    /// Runs until asked to stop or unable to go on; then drains within the named time.
    pub async fn run(self) -> Ending {
        self.watch_store().await;
        let deadline = SHUTDOWN_TIMEOUT.saturating_sub(STORE_RESERVE);
        let drained = tokio::time::timeout(deadline, async {
            let _ = self.linking.await;
            let _ = self.serving.await;
        });
        if drained.await.is_err() {
            tracing::warn!("not everything ended in time; what was acknowledged is on disk");
        }
        let store = self.shared.store.clone();
        let _ = tokio::task::spawn_blocking(move || store.stop()).await;
        // The socket would only mislead; nobody answers there any more.
        let _ = std::fs::remove_file(self.home.socket());
        let _ = std::fs::remove_file(self.home.port_file());
        match lock(&self.shared.fatal).take() {
            None => Ending::Asked,
            Some(why) => Ending::Failed(why),
        }
    }

    /// Waits for the end, and makes one if the store was poisoned: a daemon that can keep nothing
    /// must not look alive.
    async fn watch_store(&self) {
        const LOOK: Duration = Duration::from_millis(500);
        loop {
            tokio::select! {
                () = self.shared.shutdown.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            if self.linking.is_finished() {
                self.shared
                    .fail("the link to the broker ended unexpectedly".to_owned());
            }
            if let Some(why) = self.shared.store.poisoned() {
                self.shared.fail(format!(
                    "the disk refused a sync ({why}); what was acknowledged before is safe. Check the disk, then start again"
                ));
            }
        }
    }
}
