//! The daemon's door: HTTP/1.1 on the Unix socket and on loopback TCP.
//!
//! Order at the door: who are you (guard), is there room (load), what do you want (routes). Every
//! wait on a client is bounded, every body and every list too.

mod body;
mod bucket;
mod door;
mod guard;
mod hook_caller;
mod lane;
mod listen;
mod own_words;
mod parameters;
mod reply;
mod routes;
mod stream;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::Arc;

use heddle_core::limits::{
    EVENT_STREAMS_MAX, FILE_STREAMS_MAX, HOUSE_REQUESTS_MAX, QUEUE_WAITS_MAX,
    REQUESTS_IN_FLIGHT_MAX,
};
use heddle_core::names::AgentName;
use heddle_store::SessionKey;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::{Mutex, MutexGuard, Semaphore};

use crate::effects::Effects;
use crate::hooks::Hooks;
use crate::shared::Shared;
use crate::token::LocalToken;
use bucket::Bucket;

pub(crate) use door::serve;
pub(crate) use listen::{Listeners, PortRefused, listen};
pub(crate) use routes::inbox::item;

/// What the routes know beyond the shared state.
pub(crate) struct Ipc {
    pub(crate) shared: Arc<Shared>,
    pub(crate) token: LocalToken,
    pub(crate) tcp_port: u16,
    pub(crate) home: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) version: &'static str,
    pub(crate) durability: &'static str,
    pub(crate) default_agent: AgentName,
    /// The mailbox of the home's person.
    pub(crate) person: AgentName,
    pub(crate) metrics: PrometheusHandle,
    pub(crate) load: Load,
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) effects: Arc<Effects>,
}

/// Sessions share so many turns: two that meet wait for each other's read and for nothing more.
const SESSION_TURNS: usize = 16;

/// The places that are left, and the pace of TCP.
pub(crate) struct Load {
    requests: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    /// Kept for those who look after the daemon: no load locks them out.
    house: Arc<Semaphore>,
    /// Takes that wait for work.
    queue_waits: Semaphore,
    /// Files that are read in, looked through or streamed out.
    files: Arc<Semaphore>,
    /// What a session is given and where it stands then are one step: of each session one reader at a time.
    sessions: [Mutex<()>; SESSION_TURNS],
    /// Calls under a key that run now; as many as requests at most.
    calls: routes::Running,
    bucket: Bucket,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            requests: Arc::new(Semaphore::new(REQUESTS_IN_FLIGHT_MAX)),
            streams: Arc::new(Semaphore::new(EVENT_STREAMS_MAX)),
            house: Arc::new(Semaphore::new(HOUSE_REQUESTS_MAX)),
            queue_waits: Semaphore::new(QUEUE_WAITS_MAX),
            files: Arc::new(Semaphore::new(FILE_STREAMS_MAX)),
            sessions: std::array::from_fn(|_| Mutex::default()),
            calls: routes::Running::default(),
            bucket: Bucket::default(),
        }
    }
}

impl Load {
    /// The turn of a session that reads and moves its cursor.
    async fn turn_of(&self, session: &SessionKey) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        session.hash(&mut hasher);
        let turn = usize::try_from(hasher.finish() % SESSION_TURNS as u64).unwrap_or(0);
        self.sessions[turn].lock().await
    }

    pub(crate) fn requests_free(&self) -> usize {
        self.requests.available_permits()
    }

    pub(crate) fn queue_waits_free(&self) -> usize {
        self.queue_waits.available_permits()
    }

    pub(crate) fn streams_free(&self) -> usize {
        self.streams.available_permits()
    }
}
