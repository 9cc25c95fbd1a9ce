//! A daemon's life: prepare (store, mesh, recovery), start (sockets, link), run, stop in bounds.

use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use heddle_core::clock::{Clock, Ids};
use heddle_core::ids::HistoryId;
use heddle_core::limits::SHUTDOWN_TIMEOUT;
use heddle_core::membership::{MemberKey, PublicKey};
use heddle_core::names::AgentName;
use heddle_store::{Blobs, Durability, Mesh, Store};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::effects::{Effects, Speaks};
use crate::files;
use crate::home::{Home, write_private};
use crate::hooks::{self, Hooks};
use crate::inbox;
use crate::ipc::{self, Ipc, Load};
use crate::link::{self, Connector};
use crate::membership::{self, Link, home_mesh, keys, of_config, refuse_another_name};
use crate::mesh::Identity;
use crate::open_store::{last_words, open_store};
use crate::outbox::{age, disk};
use crate::share::share;
use crate::shared::{Shared, lock};
use crate::start_error::StartError;
use crate::sync;
use crate::tasks;
use crate::token::LocalToken;
use crate::upkeep;
use crate::vectors::{self, VectorKey};

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
    /// True in CI: a policy is read, but no hook runs.
    pub hooks_paused: bool,
    /// The key of the provider of embeddings, where the environment has one.
    pub vectors_key: Option<VectorKey>,
}

/// A home whose store is open and recovered, before anything listens.
pub struct Prepared {
    home: Home,
    options: StartOptions,
    store: Store,
    blobs: Blobs,
    mesh: Mesh,
    /// Who we are in it, should anybody ask over a network.
    key: Arc<MemberKey>,
    /// Further meshes of this home's own, by their names.
    own: Vec<Mesh>,
    /// Meshes of `[[mesh]]`, in the order of the config.
    elsewhere: Vec<Link>,
    person: AgentName,
    default_agent: AgentName,
    hooks: Arc<Hooks>,
    effects: Arc<Effects>,
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
    /// Who this home is in that mesh.
    pub member: String,
    pub pid: u32,
    pub notes: Vec<String>,
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
    /// What looks after the outbox: ages and disk.
    keeping: Vec<JoinHandle<()>>,
    effects: Arc<Effects>,
    home: Home,
}

impl Prepared {
    pub async fn open(home: Home, options: StartOptions) -> Result<Self, StartError> {
        // Before anything is touched: what is refused here changes nothing.
        let hooks = Arc::new(Hooks::load(home.path(), options.hooks_paused)?);
        refuse_other_than_files(&home)?;
        // In the middle of an exchange the file is missing, but not lost.
        Store::finish_parking(&home.data())?;
        Store::finish_parking(&home.broker_data())?;
        refuse_half_a_home(&home)?;
        let store = open_store(&home, &options).await?;
        let blobs = Blobs::open(&home.blobs())?;
        let (ids, clock) = (options.ids.as_ref(), options.clock.as_ref());
        let new = home_mesh(&home, &options.login, ids, clock)?;
        let mesh = store.ensure_mesh(new).await?;
        refuse_another_name(&home, &mesh)?;
        let key = keys::load_or_mint(home.path(), mesh.mesh, ids).map_err(|error| {
            let file = keys::file_of(mesh.mesh).display().to_string();
            StartError::Mesh {
                mesh: mesh.name.to_string(),
                why: format!("{file}: {error}"),
            }
        })?;
        let person = AgentName::parse(mesh.member_name.as_str())?;
        let default_agent = options.agent.clone().unwrap_or_else(|| person.clone());
        let mut own = store.meshes().await?;
        own.retain(|one| one.broker_url.is_none() && one.mesh != mesh.mesh);
        let mut elsewhere = Vec::new();
        for config in &home.config.mesh {
            let sources = (ids, clock);
            let link = of_config(config, home.path(), &mesh.member_name, &store, sources);
            elsewhere.push(link.await?);
        }
        own.retain(|one| elsewhere.iter().all(|link| link.mesh.mesh != one.mesh));
        for link in &elsewhere {
            // It moved there, and the crash came before its rows could follow.
            membership::go_on(&store, &link.mesh, &home, clock).await?;
        }
        let (clock, ids) = (Arc::clone(&options.clock), Arc::clone(&options.ids));
        let whose = (mesh.mesh, mesh.member_name.clone());
        let speaks = Speaks {
            person: person.clone(),
            default: default_agent.clone(),
        };
        let effects = Effects::open(&home, whose, (speaks, store.clone()), (clock, ids)).await?;
        let now = options.clock.wall();
        for one in elsewhere
            .iter()
            .map(|link: &Link| &link.mesh)
            .chain(&own)
            .chain([&mesh])
        {
            for agent in [&person, &default_agent] {
                store.register_agent(one.mesh, agent.clone(), now).await?;
            }
        }
        Ok(Self {
            home,
            options,
            store,
            blobs,
            mesh,
            key: Arc::new(key),
            own,
            elsewhere,
            person,
            default_agent,
            hooks,
            effects: Arc::new(effects),
        })
    }

    pub fn home(&self) -> &Home {
        &self.home
    }

    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Whether the mesh that every home has is hosted elsewhere by now.
    pub fn has_moved(&self) -> bool {
        let mut elsewhere = self.elsewhere.iter();
        elsewhere.any(|link| link.mesh.mesh == self.mesh.mesh)
    }

    /// The public half of this home's key in its own mesh.
    pub fn public_key(&self) -> PublicKey {
        self.key.public()
    }

    /// Who decides about the effects of its own mesh: for the broker that serves the mesh.
    pub fn effects(&self) -> Arc<crate::HomeDesks> {
        Arc::clone(&self.effects.desks)
    }

    /// The newest place of the mesh's history that this home has seen.
    pub async fn seen(&self) -> Result<HistoryId, StartError> {
        let seen = self.store.history_seen(self.mesh.mesh).await?;
        // No broker of ours gives such a place: a damaged cell says so, and the doctor names it.
        let is_real = i64::try_from(seen.epoch).is_ok() && i64::try_from(seen.seq).is_ok();
        Ok(if is_real { seen } else { HistoryId::default() })
    }

    /// With the mesh `home` behind this connector, and the meshes of the config.
    pub async fn start(mut self, home: Arc<dyn Connector>) -> Result<Daemon, StartError> {
        // It may have moved to a broker elsewhere; it stays the first one.
        let moved = |link: &Link| link.mesh.mesh == self.mesh.mesh;
        let mut links = match self.elsewhere.iter().position(moved) {
            Some(place) => vec![self.elsewhere.remove(place)],
            None => vec![Link {
                mesh: self.mesh.clone(),
                connector: Arc::clone(&home),
                identity: Identity {
                    key: Some(Arc::clone(&self.key)),
                    pinned: None,
                },
            }],
        };
        let sources = (self.home.path(), self.options.ids.as_ref());
        for mesh in std::mem::take(&mut self.own) {
            let hosted = membership::host(&home, mesh, sources, &self.effects, &self.store);
            links.extend(hosted.await?);
        }
        links.append(&mut self.elsewhere);
        let host = home.hosts().then_some(home);
        self.start_with(links, host).await
    }

    /// With the meshes of the config only.
    pub async fn start_elsewhere(mut self) -> Result<Daemon, StartError> {
        let links = std::mem::take(&mut self.elsewhere);
        if links.is_empty() {
            return Err(StartError::NoMesh);
        }
        self.start_with(links, None).await
    }

    fn ready(&self, links: &[Link], tcp_port: u16) -> Ready {
        let first = links.first().map(|link| &link.mesh);
        Ready {
            home: self.home.path().to_owned(),
            socket: self.home.socket(),
            http: format!("http://127.0.0.1:{tcp_port}"),
            console: None,
            mesh: first.map_or_else(String::new, |mesh| mesh.name.to_string()),
            agent: self.default_agent.to_string(),
            member: first.map_or_else(String::new, |mesh| mesh.member_name.to_string()),
            pid: std::process::id(),
            notes: self.store.start_notes(),
        }
    }

    /// Opens the doors and connects. Ready when every broker answered, or would not for a while.
    async fn start_with(
        self,
        links: Vec<Link>,
        host: Option<Arc<dyn Connector>>,
    ) -> Result<Daemon, StartError> {
        let metrics = crate::metrics::install()?;
        let token = LocalToken::load_or_mint(&self.home.token(), self.options.ids.as_ref())
            .map_err(io("local_token"))?;
        let listeners = ipc::listen(&self.home.socket(), self.home.config.daemon.http_port)
            .await
            .map_err(StartError::listening)?;
        write_private(&self.home.port_file(), &listeners.tcp_port.to_string())
            .map_err(io("http.port"))?;
        let ready = self.ready(&links, listeners.tcp_port);
        let stores = (self.store, self.blobs);
        let whose = (&self.options, self.person.clone());
        let shared = share(&self.home, stores, whose, (links, host)).await?;
        let door = Arc::new(Ipc {
            shared: Arc::clone(&shared),
            token,
            tcp_port: listeners.tcp_port,
            home: ready.home.clone(),
            socket: ready.socket.clone(),
            version: self.options.version,
            durability: durability_name(self.options.durability),
            default_agent: self.default_agent,
            person: self.person,
            metrics: metrics.clone(),
            load: Load::default(),
            hooks: Arc::clone(&self.hooks),
            effects: Arc::clone(&self.effects),
        });
        start_jobs(&shared, metrics.clone());
        tokio::spawn(crate::effects::run(
            Arc::clone(&shared),
            Arc::clone(&self.effects),
        ));
        let mut keeping = start_keeping(&shared, &self.hooks).await?;
        // From here on nothing of the links is missed.
        let events = shared.events.subscribe();
        if let Err(error) = connect(&shared).await {
            join_all(keeping).await;
            close(&shared, &self.effects, &self.home).await;
            return Err(error);
        }
        let serving = tokio::spawn(ipc::serve(door, listeners));
        keeping.push(tokio::spawn(crate::metrics::file::run(
            Arc::clone(&shared),
            ready.home.clone(),
            metrics,
        )));
        keeping.push(tokio::spawn(hooks::run(
            Arc::clone(&shared),
            self.hooks,
            events,
        )));
        Ok(Daemon {
            ready,
            shared,
            serving,
            keeping,
            effects: self.effects,
            home: self.home,
        })
    }
}

fn io(what: &'static str) -> impl Fn(std::io::Error) -> StartError {
    move |error| StartError::Io {
        what,
        why: error.to_string(),
    }
}

/// One link for each mesh, with a drain of its own. Waits a little for the first try of each, and for no broker that is
/// away; one that this home must not work with ends the start.
async fn connect(shared: &Arc<Shared>) -> Result<(), StartError> {
    let mut first_tries = Vec::new();
    for mesh in &shared.meshes {
        first_tries.push(mesh.first_try());
        let keep = link::keep(Arc::clone(shared), Arc::clone(mesh));
        lock(&shared.links).push(tokio::spawn(keep));
    }
    tokio::select! {
        _ = join_all(first_tries) => {}
        () = shared.shutdown.cancelled() => {}
        () = tokio::time::sleep(CONNECT_WAIT) => {}
    }
    match lock(&shared.fatal).take() {
        Some(why) => Err(StartError::Refused(why)),
        None => Ok(()),
    }
}

/// Closes the store and takes the signs off the doors.
async fn close(shared: &Shared, effects: &Arc<Effects>, home: &Home) {
    let (store, effects) = (shared.store.clone(), Arc::clone(effects));
    let stop = move || {
        store.stop();
        effects.stop();
    };
    let _ = tokio::task::spawn_blocking(stop).await;
    // The socket would only mislead; nobody answers there any more. What else lies there is not ours.
    if std::fs::symlink_metadata(home.socket()).is_ok_and(|found| found.file_type().is_socket()) {
        let _ = std::fs::remove_file(home.socket());
    }
    let _ = std::fs::remove_file(home.port_file());
}

/// What looks after the outbox and the sync of the data, and the mark from which on mail has hooks.
async fn start_keeping(
    shared: &Arc<Shared>,
    hooks: &Hooks,
) -> Result<Vec<JoinHandle<()>>, StartError> {
    // Before anything is taken: a disk that is full already must be known.
    disk::refresh(shared).await;
    age::resume(shared).await?;
    hooks::prepare(shared, hooks).await?;
    let mut keeping = vec![
        tokio::spawn(age::run(Arc::clone(shared))),
        tokio::spawn(disk::run(Arc::clone(shared))),
    ];
    for mesh in &shared.meshes {
        let syncing = sync::run(Arc::clone(shared), Arc::clone(mesh));
        keeping.push(tokio::spawn(syncing));
        let fetching = files::fetch::run(Arc::clone(shared), Arc::clone(mesh));
        keeping.push(tokio::spawn(fetching));
    }
    Ok(keeping)
}

/// What runs beside the doors and the links. Ends with the shutdown; nothing waits for it.
fn start_jobs(shared: &Arc<Shared>, metrics: PrometheusHandle) {
    tokio::spawn(keep_metrics_small(metrics, shared.shutdown.clone()));
    tokio::spawn(inbox::index::run(Arc::clone(shared)));
    tokio::spawn(inbox::retention::run(Arc::clone(shared)));
    tokio::spawn(inbox::damage::run(Arc::clone(shared)));
    tokio::spawn(tasks::run(Arc::clone(shared)));
    tokio::spawn(files::sweep::run(Arc::clone(shared)));
    tokio::spawn(files::gone::run(Arc::clone(shared)));
    tokio::spawn(vectors::left::run(Arc::clone(shared)));
    tokio::spawn(upkeep::unreadable::run(Arc::clone(shared)));
}

/// Before a file that a link hides is taken for a missing one.
fn refuse_other_than_files(home: &Home) -> Result<(), StartError> {
    match upkeep::first_misplaced(home.path(), &home.config) {
        Some(found) => Err(StartError::Misplaced(found)),
        None => Ok(()),
    }
}

/// A broker's or a registrar's file beside a missing or empty store means that the store was lost, not that the home
/// is new: starting over would free ids that are taken. A young store is empty, too, where its log was lost.
fn refuse_half_a_home(home: &Home) -> Result<(), StartError> {
    let bytes = |path: PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let is_new = bytes(home.broker_data()) == 0 && bytes(home.effects_data()) == 0;
    if !is_new && (bytes(home.data()) == 0 || heddle_store::is_bare(&home.data())) {
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
            let links = std::mem::take(&mut *lock(&self.shared.links));
            join_all(links).await;
            let _ = self.serving.await;
            join_all(self.keeping).await;
        });
        if drained.await.is_err() {
            tracing::warn!("not everything ended in time; what was acknowledged is on disk");
        } else if self.shared.store.poisoned().is_none() {
            files::sweep::at_the_end(&self.shared).await;
        }
        close(&self.shared, &self.effects, &self.home).await;
        match lock(&self.shared.fatal).take() {
            None => Ending::Asked,
            Some(why) => Ending::Failed(why.to_string()),
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
            let has_ended = lock(&self.shared.links).iter().any(JoinHandle::is_finished);
            // IMPORTANT: asked last. A link that ended because it was told to has been told so before.
            if has_ended && !self.shared.shutdown.is_cancelled() {
                self.shared
                    .fail("the link to the broker ended unexpectedly".to_owned());
            }
            if let Some(why) = self.shared.store.look_at_place() {
                self.shared.fail(last_words(&why));
            }
        }
    }
}
