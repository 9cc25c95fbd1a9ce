//! Why a daemon does not start. The words for people, and what to do next, are the binary's.

use std::io;

use heddle_core::names::MemberName;
use heddle_store::{BlobError, StoreError};

use crate::effects::EffectsError;
use crate::hooks::PolicyError;
use crate::ipc::PortRefused;
use crate::upkeep::Misplaced;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("data.db: {0}")]
    Store(#[from] StoreError),
    #[error(
        "data.db is missing or empty, but broker.db or effects.db is there: put data.db back from a backup, or move both (and effects/) away to begin anew"
    )]
    HalfAHome,
    /// A folder, a link or the like lies where something else belongs.
    #[error("{}: {}; nothing was changed", .0.file, .0.why)]
    Misplaced(Misplaced),
    #[error("another program has port {port} of 127.0.0.1, which config.toml names as http_port")]
    PortTaken { port: u16 },
    #[error("http_port = {port} of config.toml cannot be used: {why}")]
    PortRefused { port: u16, why: String },
    #[error("{what}: {why}")]
    Io { what: &'static str, why: String },
    #[error("{0}")]
    Name(#[from] heddle_core::names::NameError),
    #[error("metrics cannot be recorded: {0}")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
    #[error("the folder blobs cannot be used: {0}")]
    Blobs(#[from] BlobError),
    #[error(transparent)]
    Hooks(#[from] PolicyError),
    #[error(transparent)]
    Effects(#[from] EffectsError),
    #[error(
        "config.toml says member = \"{wanted}\", but this home has been \"{known}\" since its first start, and its mailboxes carry that name"
    )]
    AnotherName {
        wanted: MemberName,
        known: MemberName,
    },
    #[error("mesh {mesh} cannot be used: {why}")]
    Mesh { mesh: String, why: String },
    #[error("config.toml names no mesh that is hosted elsewhere")]
    NoMesh,
    #[error("{0}")]
    Refused(Fatal),
}

impl StartError {
    /// A port that the settings name is theirs to change.
    pub(crate) fn listening(error: io::Error) -> Self {
        let refused = error
            .get_ref()
            .and_then(|e| e.downcast_ref::<PortRefused>());
        match refused.filter(|refused| refused.port != 0) {
            Some(refused) if error.kind() == io::ErrorKind::AddrInUse => {
                let port = refused.port;
                Self::PortTaken { port }
            }
            Some(refused) => Self::PortRefused {
                port: refused.port,
                why: refused.to_string(),
            },
            None => Self::Io {
                what: "listening failed",
                why: error.to_string(),
            },
        }
    }
}

/// Why a daemon cannot go on, told apart by who can change that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fatal {
    /// `max_age_hours_override` would let rows outlive the memory of the only broker there is.
    #[error("{0}")]
    Override(String),
    /// The only broker there is cannot be worked with.
    #[error("{0}")]
    Broker(String),
    /// Something of our own is broken.
    #[error("{0}")]
    Broken(String),
}
