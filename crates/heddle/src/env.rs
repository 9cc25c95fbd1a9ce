//! The environment, read once at start and nowhere else.
#![allow(
    clippy::disallowed_methods,
    reason = "this is the one place that reads the environment"
)]

use std::path::PathBuf;

use heddle_daemon::VectorKey;

#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `HEDDLE_HOME`, or `~/.heddle`.
    pub home: Option<PathBuf>,
    /// `HEDDLE_AGENT`.
    pub agent: Option<String>,
    /// `HEDDLE_MESH`.
    pub mesh: Option<String>,
    /// `HEDDLE_STORE_SYNC`.
    pub store_sync: Option<String>,
    /// `HEDDLE_LOG`: error, warn, info, debug or trace.
    pub log: Option<String>,
    /// `CI`: set by nearly every runner.
    pub is_ci: bool,
    /// `HEDDLE_VECTORS_KEY`: the key of the provider of embeddings.
    pub vectors_key: Option<VectorKey>,
    /// `HEDDLE_BROKER_DATABASE`: where the tables of a broker are. It holds a password, which is nobody's
    /// business in a list of processes.
    pub broker_database: Option<String>,
    /// `HEDDLE_BROKER_LIMITER`: likewise.
    pub broker_limiter: Option<String>,
    /// The login name.
    pub login: Option<String>,
    /// `PATH`: where a command without a slash is looked for.
    pub path: Option<std::ffi::OsString>,
}

impl Environment {
    pub fn read() -> Self {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let home = text("HEDDLE_HOME")
            .map(PathBuf::from)
            .or_else(|| text("HOME").map(|home| PathBuf::from(home).join(".heddle")));
        Self {
            home,
            agent: text("HEDDLE_AGENT"),
            mesh: text("HEDDLE_MESH"),
            store_sync: text("HEDDLE_STORE_SYNC"),
            log: text("HEDDLE_LOG"),
            is_ci: text("CI").is_some_and(|value| value != "false" && value != "0"),
            vectors_key: text("HEDDLE_VECTORS_KEY").map(VectorKey::new),
            broker_database: text("HEDDLE_BROKER_DATABASE"),
            broker_limiter: text("HEDDLE_BROKER_LIMITER"),
            login: text("USER").or_else(|| text("LOGNAME")),
            path: std::env::var_os("PATH"),
        }
    }
}
