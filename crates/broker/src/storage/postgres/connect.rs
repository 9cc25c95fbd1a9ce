//! How the database is reached: addresses, what every connection is told, pools with their bounds.

use std::path::PathBuf;
use std::time::Duration;

use deadpool_postgres::{Hook, ManagerConfig, Pool, QueueMode, RecyclingMethod, Runtime, Timeouts};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};

use super::OpenError;
use super::settings;
use super::tls::Tls;

/// How long anybody waits for a connection before being told to come back.
const POOL_WAIT: Duration = Duration::from_secs(5);
/// How long a server may take to take a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// A peer that has not acknowledged a byte for so long is gone.
const SILENT_MAX: Duration = Duration::from_secs(15);
/// Lines of different meshes that commit at once, and readers beside them: a look-up never waits for a
/// writer's connection.
const WRITERS_MAX: usize = 8;
const READERS_MAX: usize = 8;
/// For whoever decides about effects, which are rare: opened at the first use.
const EFFECTS_MAX: usize = 4;

/// Where the tables are, and under which name.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// `postgres://user:password@host:port/database`
    pub url: String,
    /// The schema that holds the tables.
    pub schema: String,
    /// Certificates to trust instead of the machine's, as PEM.
    pub ca_file: Option<PathBuf>,
}

impl PostgresOptions {
    pub const SCHEMA: &'static str = "mesh";

    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            schema: Self::SCHEMA.to_owned(),
            ca_file: None,
        }
    }
}

/// The address and what a connection is told at its start. IMPORTANT: an accept relies on the isolation, on
/// the sync and on the time-outs; they are set here and looked at in `settings`.
///
/// The planner is told to use the indexes, for each row anew. Statistics are always behind on tables that grow this fast,
/// and a plan made over an empty table would read all of a full one, or keep all rows of a mesh at hand to search them.
/// Since such a plan suits every value, it is made once: planning a small look-up anew takes ten times as long as running it.
pub(super) fn config(options: &PostgresOptions) -> Result<Config, OpenError> {
    let mut config = parsed(&options.url)?;
    let told = format!(
        "-c search_path={schema} -c default_transaction_isolation=read\\ committed \
         -c synchronous_commit=on -c statement_timeout=20s -c lock_timeout=10s \
         -c idle_in_transaction_session_timeout=30s -c enable_seqscan=off -c enable_hashjoin=off \
         -c enable_mergejoin=off -c enable_material=off -c plan_cache_mode=force_generic_plan -c jit=off \
         -c client_encoding=UTF8 {own}",
        schema = options.schema,
        own = config.get_options().unwrap_or_default(),
    );
    config.options(told);
    if config.get_application_name().is_none() {
        config.application_name("heddle-broker");
    }
    config.connect_timeout(CONNECT_WAIT);
    config.keepalives(true).keepalives_idle(SILENT_MAX);
    if !config.get_hosts().iter().any(is_local_socket) {
        config.tcp_user_timeout(SILENT_MAX);
    }
    // Of several the one that can be written is asked for; a single one that cannot is told by its name (`settings`).
    if config.get_hosts().len().max(config.get_hostaddrs().len()) > 1 {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    Ok(config)
}

/// The library takes what has no scheme that it knows for a list of `name=value`, and says so in words that help nobody.
fn parsed(url: &str) -> Result<Config, OpenError> {
    let shape = "it looks like postgres://USER:PASSWORD@HOST:PORT/DATABASE";
    if let Some((scheme, _)) = url.split_once("://") {
        // What has another sign in it is a password with ://, say, of such a list: nothing of it is said.
        let is_scheme = scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'+');
        if is_scheme && !["postgres", "postgresql"].contains(&scheme) {
            return Err(OpenError::Address(format!(
                "{scheme}:// is no PostgreSQL; {shape}"
            )));
        }
    }
    let config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        OpenError::Address(format!("{}; {shape}", super::error::words(&error)))
    })?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(OpenError::Address(format!("it names no host; {shape}")));
    }
    Ok(config)
}

fn is_local_socket(host: &Host) -> bool {
    matches!(host, Host::Unix(_))
}

pub(super) struct Pools {
    pub(super) writers: Pool,
    pub(super) readers: Pool,
    pub(super) effects: Pool,
}

pub(super) fn pools(config: &Config, tls: &Tls) -> Result<Pools, OpenError> {
    Ok(Pools {
        writers: pool(config.clone(), tls, WRITERS_MAX)?,
        readers: pool(config.clone(), tls, READERS_MAX)?,
        effects: pool(config.clone(), tls, EFFECTS_MAX)?,
    })
}

fn pool(config: Config, tls: &Tls, connections_max: usize) -> Result<Pool, OpenError> {
    let recycling = ManagerConfig {
        recycling_method: RecyclingMethod::Fast,
    };
    let manager = tls.manager(config, recycling);
    let timeouts = Timeouts {
        wait: Some(POOL_WAIT),
        create: Some(CONNECT_WAIT),
        recycle: Some(CONNECT_WAIT),
    };
    Pool::builder(manager)
        .max_size(connections_max)
        .timeouts(timeouts)
        // The one that was used last has its plans and the tables' pages at hand.
        .queue_mode(QueueMode::Lifo)
        .runtime(Runtime::Tokio1)
        // Not only the first one: the server may become a replica, or its settings change, while brokers run.
        .post_create(Hook::async_fn(|client, _| {
            Box::pin(async move { Ok(settings::check(client).await?) })
        }))
        .build()
        .map_err(|error| OpenError::Address(error.to_string()))
}
