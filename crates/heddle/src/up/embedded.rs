//! The embedded broker: its own file, its own writer, reached through an in-process stream by this
//! home, and through a loopback port by those who were invited.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use heddle_broker::limiter::{AnyLimiter, LocalLimiter};
use heddle_broker::members::Members as _;
use heddle_broker::storage::sqlite::OpenError;
use heddle_broker::storage::{
    AnyStorage, DeliveryCursor, PageLimit, SqliteStorage, Storage as _, StorageError, Upkeep as _,
};
use heddle_broker::{AnyBroker, EffectAsked, EffectAuthority, Marks, Principal, Transport};
use heddle_core::clock::{Clock, Ids};
use heddle_daemon::link::{
    Asking, Bounding, ConnectError, Connector, Duplex, Hosted, Hosting, LinkStream, Looking,
    ws_config,
};
use heddle_daemon::{Durability, HomeDesks, Prepared};
use heddle_wire::broker::ReplyResult;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::put_back;
use super::reach::Reach;
use crate::broker::door::{Door, Entry};
use crate::broker::{
    Places, broker_config, budget, cannot_open, marks, options, poisoned, takes_nothing,
};
use crate::cli::{CliError, exit};

/// Bytes that wait between the two halves of the in-process stream.
const PIPE_BYTES: usize = 256 << 10;
/// The broker's share of the time for stopping.
const STOP_WAIT: Duration = Duration::from_secs(2);

pub struct Embedded {
    broker: Arc<AnyBroker>,
    storage: SqliteStorage,
    file: PathBuf,
    clock: Arc<dyn Clock>,
    principal: Principal,
    reach: Arc<Reach>,
    connections: TaskTracker,
    stopping: CancellationToken,
}

impl Embedded {
    pub async fn open(
        prepared: &Prepared,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        durability: Durability,
    ) -> Result<Self, CliError> {
        let file = prepared.home().broker_data();
        let storage = SqliteStorage::open_checked(options(&file, durability));
        let storage = storage.map_err(|error| match error {
            OpenError::Damaged(why) => damaged(&why),
            error => cannot_open(&file, &error),
        })?;
        let begun = put_back::begin_epochs(prepared.home().path(), &storage).await;
        begun.map_err(|error| cannot_start(&file, &error))?;
        let hosted = Hosted {
            mesh: prepared.mesh().clone(),
            key: prepared.public_key(),
            seen: prepared.seen().await.map_err(|e| failed(e.to_string()))?,
        };
        // One that has moved goes on elsewhere; what is left of it here stays as it was.
        if !prepared.has_moved() {
            let owned = own(&storage, &hosted, clock.as_ref()).await;
            owned.map_err(|error| cannot_start(&file, &error))?;
        }
        let was_shared = was_shared(&storage).await;
        let was_shared = was_shared.map_err(|error| cannot_start(&file, &error))?;
        let config = &prepared.home().config.broker;
        let limiter = AnyLimiter::Local(LocalLimiter::new(Arc::clone(&clock), budget(config)));
        let broker = AnyBroker::new(
            Arc::new(AnyStorage::Sqlite(storage.clone())),
            Arc::new(limiter),
            Arc::clone(&clock),
            ids,
            broker_config(config),
        );
        broker.decided_by(Arc::new(Authority(prepared.effects())));
        let seen = marks::read(prepared.home().path());
        let begun = begin(&broker, &seen).await;
        begun.map_err(|error| cannot_start(&file, &error))?;
        let (connections, stopping) = (TaskTracker::new(), CancellationToken::new());
        connections.spawn({
            let (broker, stopping) = (broker.clone(), stopping.clone());
            let kept = (seen, marks::keeper(prepared.home().path()));
            async move { broker.housekeeping(kept, stopping).await }
        });
        let (reach, listener) = Reach::open(prepared.home(), was_shared).await;
        let door = Door {
            broker: broker.clone(),
            entry: Entry::Strangers,
            tls: None,
            is_behind_proxy: false,
            pages: None,
            places: Places::new(),
            connections: connections.clone(),
            stopping: stopping.clone(),
        };
        connections.spawn(Arc::clone(&reach).serve(Arc::new(door), listener));
        Ok(Self {
            broker: Arc::new(broker),
            storage,
            file,
            clock,
            principal: principal(&hosted),
            reach,
            connections,
            stopping,
        })
    }

    pub fn connector(&self) -> Arc<dyn Connector> {
        Arc::new(InProcess {
            broker: Arc::clone(&self.broker),
            storage: self.storage.clone(),
            clock: Arc::clone(&self.clock),
            principal: self.principal.clone(),
            reach: Arc::clone(&self.reach),
            connections: self.connections.clone(),
            stopping: self.stopping.clone(),
        })
    }

    /// Waits for the moment from which on it can keep nothing: it must not look alive then.
    pub async fn broken(&self) -> CliError {
        takes_nothing(&self.file, &poisoned(&self.storage).await)
    }

    /// After the daemon has drained: finishes what is in flight and closes the file.
    pub async fn stop(self) {
        self.stopping.cancel();
        self.connections.close();
        if tokio::time::timeout(STOP_WAIT, self.connections.wait())
            .await
            .is_err()
        {
            tracing::warn!("the embedded broker did not end in time");
        }
        let storage = self.storage;
        let _ = tokio::task::spawn_blocking(move || storage.stop()).await;
    }
}

/// Before anybody is served.
async fn begin(broker: &AnyBroker, seen: &Marks) -> Result<(), StorageError> {
    broker.compared(seen).await?;
    // The home's lock says that nobody else is here.
    broker.forget_sessions().await
}

/// The broker's file of a home has a verb of its own that brings it back.
fn damaged(why: &str) -> CliError {
    let message = format!("broker.db is damaged: {why}; nothing was changed");
    CliError::new(exit::FAILED, message).next(heddle_daemon::upkeep::BROKER_DAMAGED)
}

fn cannot_start(file: &Path, error: &StorageError) -> CliError {
    match error {
        StorageError::Held => CliError::held(file),
        error => failed(error.to_string()),
    }
}

fn failed(error: String) -> CliError {
    let message = format!("the embedded broker cannot start: {error}");
    CliError::new(exit::FAILED, message)
        .next("Nothing was changed. On a full disk free some space; a damaged broker.db is best put back from a backup.")
}

/// Makes a mesh of this home exist here. Whoever owns the file owns the mesh; from the network even this member
/// needs its key.
async fn own(
    storage: &SqliteStorage,
    hosted: &Hosted,
    clock: &dyn Clock,
) -> Result<(), StorageError> {
    let mesh = &hosted.mesh;
    storage.ensure_mesh(mesh.mesh, &mesh.name).await?;
    storage
        .enrol_owner(
            mesh.mesh,
            mesh.member,
            &mesh.member_name,
            hosted.key,
            clock.wall(),
        )
        .await?;
    // Our own inbox knows how far the history went. A file that has not come so far is an older
    // one, or a new one: its places must not be given out twice.
    let seen = hosted.seen;
    if storage.raise_epoch_beyond(mesh.mesh, seen).await? {
        tracing::warn!(mesh = %mesh.name, %seen, "broker.db is older than data.db; a new epoch has begun");
    }
    Ok(())
}

/// Who this home is in a mesh that it hosts.
fn principal(hosted: &Hosted) -> Principal {
    let mesh = &hosted.mesh;
    Principal {
        mesh: mesh.mesh,
        member: mesh.member,
        member_name: mesh.member_name.clone(),
    }
}

/// True if anybody was ever invited to a mesh of this file.
async fn was_shared(storage: &SqliteStorage) -> Result<bool, StorageError> {
    for (mesh, _) in storage.meshes().await? {
        if storage.has_invites(mesh).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The home decides about the effects of the meshes that it hosts.
struct Authority(Arc<HomeDesks>);

impl EffectAuthority for Authority {
    fn call(
        &self,
        principal: Principal,
        asked: EffectAsked,
    ) -> Pin<Box<dyn Future<Output = ReplyResult> + Send + '_>> {
        Box::pin(async move {
            let member = (principal.mesh, &principal.member_name);
            let said = (asked.id, asked.seen);
            self.0.guest(member, &asked.agent, said, asked.call).await
        })
    }
}

/// A connection to the broker of this very process. Its identity needs no proof: it is our own.
#[derive(Clone)]
struct InProcess {
    broker: Arc<AnyBroker>,
    storage: SqliteStorage,
    clock: Arc<dyn Clock>,
    principal: Principal,
    reach: Arc<Reach>,
    connections: TaskTracker,
    stopping: CancellationToken,
}

impl Connector for InProcess {
    fn connect(
        &self,
    ) -> Pin<Box<dyn Future<Output = Result<LinkStream, ConnectError>> + Send + '_>> {
        Box::pin(async {
            if self.stopping.is_cancelled() {
                return Err(ConnectError::passing(
                    "the embedded broker is stopping".to_owned(),
                ));
            }
            let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
            let broker = Arc::clone(&self.broker);
            let (principal, stopping) = (self.principal.clone(), self.stopping.clone());
            self.connections.spawn(async move {
                let config = Some(heddle_broker::ws_config());
                let theirs: Box<dyn Transport> = Box::new(theirs);
                let ws = WebSocketStream::from_raw_socket(theirs, Role::Server, config).await;
                broker.session(ws, principal, stopping).await;
            });
            let ours: Box<dyn Duplex> = Box::new(ours);
            Ok(WebSocketStream::from_raw_socket(ours, Role::Client, Some(ws_config())).await)
        })
    }

    fn label(&self) -> String {
        "embedded".to_owned()
    }

    fn reach(&self) -> Option<String> {
        self.reach.url()
    }

    fn trouble(&self) -> Option<String> {
        self.reach.trouble()
    }

    fn orphans(&self) -> usize {
        self.broker.orphans()
    }

    fn is_held(&self) -> Option<Asking<'_>> {
        Some(Box::pin(self.storage.is_held()))
    }

    fn hosts(&self) -> bool {
        true
    }

    fn holds_any(&self) -> Option<Looking<'_>> {
        Some(Box::pin(async {
            let Principal { mesh, member, .. } = self.principal;
            let one = PageLimit {
                rows_max: 1,
                bytes_max: 1,
            };
            let first = DeliveryCursor::START;
            let waiting = self
                .storage
                .deliveries_after(mesh, member, first, one)
                .await;
            let waiting = waiting.map_err(|error| ConnectError::passing(error.to_string()))?;
            Ok(!waiting.is_empty())
        }))
    }

    fn bound(&self, growth: Option<u64>, free: u64) -> Option<Bounding<'_>> {
        self.storage.bound_log(free);
        Some(Box::pin(async move {
            let bounded = self.storage.bound_growth(growth).await;
            bounded.map_err(|error| ConnectError::passing(error.to_string()))
        }))
    }

    fn host(&self, mesh: Hosted) -> Option<Hosting<'_>> {
        Some(Box::pin(async move {
            let owned = own(&self.storage, &mesh, self.clock.as_ref()).await;
            owned.map_err(|error| ConnectError::passing(error.to_string()))?;
            let connector: Arc<dyn Connector> = Arc::new(Self {
                principal: principal(&mesh),
                ..self.clone()
            });
            Ok(connector)
        }))
    }
}
