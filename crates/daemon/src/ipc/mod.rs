//! The daemon's door: HTTP/1.1 on the Unix socket and on loopback TCP.
//!
//! Order at the door: who are you (guard), is there room (load), what do you want (routes). Every
//! wait on a client is bounded, every body and every list too.

mod body;
mod bucket;
mod door;
mod guard;
mod listen;
mod reply;
mod routes;
mod stream;

use std::path::PathBuf;
use std::sync::Arc;

use heddle_core::limits::{EVENT_STREAMS_MAX, REQUESTS_IN_FLIGHT_MAX};
use heddle_core::names::AgentName;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::Semaphore;

use crate::shared::Shared;
use crate::token::LocalToken;
use bucket::Bucket;

pub(crate) use door::serve;
pub(crate) use listen::{Listeners, listen};

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
    pub(crate) metrics: PrometheusHandle,
    requests: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    bucket: Bucket,
}

/// Everything that [`Ipc`] is made of, by name.
pub(crate) struct IpcParts {
    pub(crate) shared: Arc<Shared>,
    pub(crate) token: LocalToken,
    pub(crate) tcp_port: u16,
    pub(crate) home: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) version: &'static str,
    pub(crate) durability: &'static str,
    pub(crate) default_agent: AgentName,
    pub(crate) metrics: PrometheusHandle,
}

impl Ipc {
    pub(crate) fn new(parts: IpcParts) -> Self {
        Self {
            shared: parts.shared,
            token: parts.token,
            tcp_port: parts.tcp_port,
            home: parts.home,
            socket: parts.socket,
            version: parts.version,
            durability: parts.durability,
            default_agent: parts.default_agent,
            metrics: parts.metrics,
            requests: Arc::new(Semaphore::new(REQUESTS_IN_FLIGHT_MAX)),
            streams: Arc::new(Semaphore::new(EVENT_STREAMS_MAX)),
            bucket: Bucket::default(),
        }
    }
}
