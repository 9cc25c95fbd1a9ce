//! The sync of a mesh's data with its log: a loop of its own for every mesh, as long as the daemon runs.
//!
//! Each tick applies what waits, in every state, before it asks the network for anything; so neither a
//! broker that is away nor an op that is refused holds up what is here already (§12.4). Then it reads the
//! log, sends again what a broker has lost, and sends what is new. Decisions are `core::sync`'s.

mod apply;
mod kept;
mod known;
mod publish;
mod pull;
mod push;
mod replay;
mod set_aside;
pub(crate) mod split;
mod upload;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use heddle_core::backoff::backoff;
use heddle_core::limits::{SYNC_ACTIVE_TICK, SYNC_IDLE_TICK, SYNC_QUIET};
use heddle_core::sync::{SyncState, Tick, next_state};
use heddle_store::{LostPlaces, StoreError, SyncHead};
use tokio::sync::Notify;

use crate::link::Live;
use crate::mesh::MeshState;
use crate::shared::{Shared, lock};

pub(crate) use set_aside::{set_aside, set_aside_next};

/// What helps where the log of a mesh has a hole that its broker has not mended.
pub(crate) fn log_hole_next(mesh: &str) -> String {
    format!(
        "`heddle doctor --resume-sync {mesh}` reads the log again: its broker mends the hole meanwhile, and the homes that made the \
         lost changes send them again. Where the gap stays, the broker is an older Heddle: whoever runs it has to update it."
    )
}

/// Between two looks at a mesh whose ops go nowhere; becoming shared wakes it.
const LOCAL_TICK: Duration = Duration::from_secs(60);

/// What the rest of the daemon knows of a mesh's sync.
#[derive(Debug, Default)]
pub(crate) struct Sync {
    /// A local change, a hint of the broker, a new connection. The tables are the truth.
    wake: Notify,
    /// The connection was made or lost. It ends even a wait for a broker that wants nothing.
    linked: Notify,
    view: Mutex<View>,
    kept: Mutex<Kept>,
}

/// What this home keeps and the log has lost.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    pub(crate) lost: LostPlaces,
    /// Rows of others at those places.
    pub(crate) of_others: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    pub(crate) state: SyncState,
    pub(crate) head: SyncHead,
    /// It is personal here, and others share it at its broker.
    pub(crate) split: bool,
    /// Why nothing got through last time.
    pub(crate) last_error: Option<String>,
}

impl Sync {
    /// There may be something to do.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Something changed here; of interest to a mesh that has others.
    pub(crate) fn changed(&self) {
        if self.is_shared() {
            self.wake();
        }
    }

    /// Whether the mesh has others, as far as is known: then changes wait in the outbox.
    pub(crate) fn is_shared(&self) -> bool {
        lock(&self.view).head.kind.is_shared()
    }

    pub(crate) fn linked(&self) {
        self.linked.notify_one();
    }

    pub(crate) fn view(&self) -> View {
        lock(&self.view).clone()
    }

    pub(crate) fn kept(&self) -> Kept {
        lock(&self.kept).clone()
    }

    /// A person has said that it is well as it is.
    pub(crate) fn forget_kept(&self) {
        lock(&self.kept).of_others = 0;
    }

    fn set_kept(&self, kept: Kept) {
        *lock(&self.kept) = kept;
    }

    fn set_view(&self, view: View) {
        *lock(&self.view) = view;
    }
}

/// How one exchange with the broker ended.
#[derive(Debug, PartialEq, Eq)]
enum Exchange {
    /// Everything that was there was done; true if there was something.
    Done(bool),
    /// There is more to do at once.
    More,
    /// The broker does not want it now, or did not answer: later.
    Later(String),
}

/// Runs until the daemon stops.
pub(crate) async fn run(shared: Arc<Shared>, mesh: Arc<MeshState>) {
    match shared.store.retry_quarantined(mesh.mesh.mesh).await {
        Ok(0) => {}
        Ok(count) => {
            tracing::info!(count, mesh = %mesh.mesh.name, "ops that were set aside are looked at again");
        }
        Err(error) => tracing::warn!(%error, "ops that were set aside stay there"),
    }
    let mut syncing = Loop::new(&shared);
    while !shared.shutdown.is_cancelled() {
        let wait = match syncing.tick(&shared, &mesh).await {
            Ok(wait) => wait,
            Err(StoreError::Stopped | StoreError::Poisoned(_)) => return,
            Err(error) => {
                tracing::warn!(%error, mesh = %mesh.mesh.name, "a tick of the sync failed");
                SYNC_ACTIVE_TICK
            }
        };
        tokio::select! {
            () = mesh.sync.wake.notified(), if syncing.failures == 0 => {}
            () = mesh.sync.linked.notified() => {}
            () = tokio::time::sleep(wait) => {}
            () = shared.shutdown.cancelled() => {}
        }
    }
}

/// What a loop remembers between two ticks.
struct Loop {
    state: SyncState,
    /// Exchanges in a row that did not work.
    failures: u32,
    /// When something last happened.
    active_at: Duration,
    /// The log was read from its beginning since it last had a gap.
    has_reread: bool,
    kept: kept::Look,
}

impl Loop {
    fn new(shared: &Shared) -> Self {
        Self {
            state: SyncState::default(),
            failures: 0,
            active_at: shared.clock.mono(),
            has_reread: false,
            kept: kept::Look::default(),
        }
    }

    /// One tick; how long to wait for the next one.
    async fn tick(&mut self, shared: &Shared, mesh: &MeshState) -> Result<Duration, StoreError> {
        let mut did = apply::run(shared, mesh).await?;
        let live = mesh.live();
        let published = publish::run(shared, mesh, live.as_deref()).await?;
        let mut head = shared.store.sync_head(mesh.mesh.mesh).await?;
        let split = split::look(mesh, live.as_deref(), head.kind).await;
        let live = live.filter(|_| head.kind.is_shared());
        let mut last_error = None;
        // Rows of before wait to become ops: the next ones at once, after those that are ops got their turn.
        let mut wait = (published == publish::Step::More).then_some(Duration::ZERO);
        did |= published != publish::Step::Idle;
        if let Some(live) = &live {
            match self.exchange(shared, mesh, live).await? {
                Exchange::Done(something) => {
                    self.failures = 0;
                    did |= something || publish::commit(shared, mesh, live).await?;
                }
                Exchange::More => {
                    self.failures = 0;
                    did = true;
                    wait = Some(Duration::ZERO);
                }
                Exchange::Later(why) => {
                    // A connection that is gone is made again by the link; a new one begins at once.
                    if mesh.is_connected() {
                        wait = Some(backoff(self.failures, shared.ids.below(u64::MAX)));
                        self.failures = self.failures.saturating_add(1);
                    }
                    last_error = Some(why);
                }
            }
            head = shared.store.sync_head(mesh.mesh.mesh).await?;
        } else {
            self.failures = 0;
        }
        let now = shared.clock.mono();
        if did {
            // Among what was applied may be files whose bytes are elsewhere.
            mesh.fetch.wake();
            self.active_at = now;
        }
        let tick = Tick {
            is_shared: head.kind.is_shared(),
            is_paused: head.paused,
            is_connected: mesh.is_connected(),
            did_something: did,
            is_quiet: now.saturating_sub(self.active_at) >= SYNC_QUIET,
        };
        self.state = next_state(self.state, tick);
        mesh.sync.set_view(View {
            state: self.state,
            head,
            split,
            last_error,
        });
        Ok(wait.unwrap_or(match self.state {
            SyncState::Local => LOCAL_TICK,
            SyncState::Active => SYNC_ACTIVE_TICK,
            SyncState::Idle | SyncState::Reconnecting | SyncState::Paused => SYNC_IDLE_TICK,
        }))
    }

    /// In, then again, then out: what others did is here before our own goes on.
    async fn exchange(
        &mut self,
        shared: &Shared,
        mesh: &MeshState,
        live: &Live,
    ) -> Result<Exchange, StoreError> {
        let pulled = pull::run(shared, mesh, live, &mut self.has_reread).await?;
        let something = match pulled {
            Exchange::Done(something) => something,
            Exchange::More => true,
            Exchange::Later(why) => return Ok(Exchange::Later(why)),
        };
        if let Exchange::Later(why) = replay::run(shared, mesh, live).await? {
            return Ok(Exchange::Later(why));
        }
        self.kept.heard |= something;
        if let Exchange::Later(why) = kept::run(shared, mesh, live, &mut self.kept).await? {
            return Ok(Exchange::Later(why));
        }
        // While a publish is uploaded its ops, and those behind them, are not sent one by one.
        let sent = match upload::run(shared, mesh, live).await? {
            Some(uploaded) => uploaded,
            None => push::run(shared, mesh, live).await?,
        };
        Ok(match sent {
            Exchange::Done(_) if pulled == Exchange::More => Exchange::More,
            Exchange::Done(pushed) => Exchange::Done(something || pushed),
            other => other,
        })
    }
}
