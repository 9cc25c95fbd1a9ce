//! The door of the broker: one WebSocket connection, from its challenge to its close.
//!
//! Per connection there are a reader, a lane that does the work in the order in which it came, a pump
//! that pushes deliveries, a herald that tells of roster changes, and one writer. They are joined by
//! bounded channels and end together; [`Broker::serve`] returns when all of them have.

mod blobs;
mod config;
mod connection;
mod decode;
mod ending;
mod enrol;
mod errands;
mod explain;
mod grants;
mod held;
mod hello;
mod herald;
mod hub;
mod identify;
mod lane;
mod log;
mod marks;
mod others;
mod people;
mod pulse;
mod pump;
mod reader;
mod requests;
mod snapshots;
#[cfg(test)]
mod tests;
mod waits;
mod window;
mod work;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use heddle_core::clock::{Clock, Ids};
use heddle_core::ids::{BrokerId, MeshId};
use heddle_core::names::MeshName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OnceCell;
use tokio_tungstenite::WebSocketStream;
use tokio_util::sync::CancellationToken;

pub use config::{BrokerConfig, ws_config};
pub use ending::Ending;
pub use marks::Marks;

use crate::accept::Accept;
use crate::effects::EffectAuthority;
use crate::jobs;
use crate::lease::LeaseClock;
use crate::limiter::Limiter;
use crate::principal::Claim;
use crate::storage::{LeaseMs, Storage, StorageError};
use blobs::Relays;
use hub::Hub;

/// A broker over one store. Cheap to clone.
pub struct Broker<S, L> {
    shared: Arc<Shared<S, L>>,
}

impl<S, L> Clone for Broker<S, L> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

/// What all connections stand on.
pub(crate) struct Shared<S, L> {
    pub(crate) accept: Accept<S, L>,
    pub(crate) lease: LeaseClock,
    pub(crate) config: BrokerConfig,
    hub: Hub,
    relays: Relays,
    /// Meshes that somebody has entered since they were marked last.
    entered: Mutex<BTreeSet<MeshId>>,
    /// When a history last parted by the word of a member.
    parted_at: Mutex<BTreeMap<MeshId, Duration>>,
    /// Read once; it never changes.
    broker_id: OnceCell<BrokerId>,
    /// Who decides about effects, if anybody does.
    effects: OnceLock<Arc<dyn EffectAuthority>>,
    /// Rows that the last check by the clock found not to fit together.
    pub(crate) orphans: AtomicUsize,
}

impl<S: Storage, L> Shared<S, L> {
    /// Who this broker is to those who sign for it.
    pub(crate) async fn broker_id(&self) -> Result<BrokerId, StorageError> {
        let offer = || {
            let fresh = BrokerId(self.accept.ids.ulid());
            self.storage().broker_id(fresh)
        };
        self.broker_id.get_or_try_init(offer).await.copied()
    }
}

impl<S, L> Shared<S, L> {
    pub(crate) fn storage(&self) -> &S {
        &self.accept.storage
    }
}

impl<S: Storage, L: Limiter> Broker<S, L> {
    pub fn new(
        storage: Arc<S>,
        limiter: Arc<L>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        config: BrokerConfig,
    ) -> Self {
        let lease = LeaseClock::new(Arc::clone(&clock));
        let accept = Accept {
            storage,
            limiter,
            clock,
            ids,
            dedupe: config.dedupe,
        };
        let shared = Shared {
            accept,
            lease,
            config,
            hub: Hub::default(),
            relays: Relays::default(),
            entered: Mutex::default(),
            parted_at: Mutex::default(),
            broker_id: OnceCell::new(),
            effects: OnceLock::new(),
            orphans: AtomicUsize::new(0),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Makes a mesh exist here. Connections to a mesh that does not are refused.
    pub async fn ensure_mesh(&self, mesh: MeshId, name: &MeshName) -> Result<bool, StorageError> {
        self.shared.storage().ensure_mesh(mesh, name).await
    }

    /// Names who decides about effects; the first one stays.
    pub fn decided_by(&self, authority: Arc<dyn EffectAuthority>) {
        let _ = self.shared.effects.set(authority);
    }

    /// How many rows the last check by the clock found not to fit together.
    pub fn orphans(&self) -> usize {
        self.shared.orphans.load(Ordering::Relaxed)
    }

    /// The gate, for callers inside this process.
    pub fn accept(&self) -> &Accept<S, L> {
        &self.shared.accept
    }

    /// Ops of a mesh became readable other than through a connection: its members hear of it.
    pub fn log_grew(&self, mesh: MeshId) {
        self.shared.log_grew(mesh);
    }

    /// Does the jobs by the clock until `shutdown`. One call for each broker that serves.
    pub async fn upkeep(&self, shutdown: CancellationToken) {
        let jobs = jobs::run(Arc::clone(&self.shared));
        let _ = shutdown.run_until_cancelled(jobs).await;
    }

    /// Hears the other brokers on the same store until `shutdown`. One call for each broker that serves.
    pub async fn attend(&self, shutdown: CancellationToken) {
        let others = others::run(Arc::clone(&self.shared));
        let _ = shutdown.run_until_cancelled(others).await;
    }

    /// Before anybody is served: whoever was here when the last process ended is not here now, if that
    /// process had the store to itself.
    pub async fn forget_sessions(&self) -> Result<(), StorageError> {
        let storage = self.shared.storage();
        let at = self.shared.accept.clock.wall();
        for (mesh, _) in storage.meshes().await? {
            self.shared
                .lease
                .go_on_from(storage.lease_time(mesh).await?);
            if storage.is_shared() {
                // They may be somebody else's; those of the dead run out.
                continue;
            }
            storage.expire_sessions(mesh, LeaseMs::MAX, at).await?;
        }
        Ok(())
    }

    /// Before anybody is served: whether the histories are still those that `marks` were made of.
    pub async fn compare(&self, marks: &Marks) -> Result<(), StorageError> {
        marks::compare_all(&self.shared, marks).await
    }

    /// Marks what the histories hold, and compares, until `shutdown`. One call for each broker that serves.
    pub async fn mark(
        &self,
        marks: Marks,
        keep: impl Fn(&Marks) + Send,
        shutdown: CancellationToken,
    ) {
        marks::run(&self.shared, marks, keep, shutdown).await;
    }

    /// Serves one connection to its end. Whoever calls has proven what it claims about the peer and
    /// has made the stream with [`ws_config`].
    ///
    /// When `shutdown` is cancelled nothing more is read; what was read is finished and answered, and
    /// the connection is closed with 1001. Everything that ran for it has ended when this returns, or
    /// when its future is dropped.
    pub async fn serve<T>(
        &self,
        socket: WebSocketStream<T>,
        claim: impl Into<Claim>,
        shutdown: CancellationToken,
    ) -> Ending
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        connection::serve(&self.shared, socket, claim.into(), shutdown).await
    }
}
