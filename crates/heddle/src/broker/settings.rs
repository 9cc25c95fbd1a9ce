//! From `[broker]` of a config file, and from its folder, to what a broker is told.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use heddle_broker::BrokerConfig;
use heddle_broker::limiter::Budget;
use heddle_broker::storage::sqlite::Options;
use heddle_core::pressure::log_pages;
use heddle_daemon::config::BrokerConfig as Written;
use heddle_daemon::home::write_private;
use heddle_daemon::{Durability, Home};
use rustix::fs::statvfs;

use crate::cli::{CliError, exit};

pub fn broker_config(written: &Written) -> BrokerConfig {
    BrokerConfig {
        dedupe: written.dedupe_retention_days.0,
        policy: written.concurrent_connection_policy,
        message_retention_days: written.message_retention_days.map(NonZeroU32::get),
        upkeep_interval: Duration::from_secs(written.upkeep_interval_seconds),
        ..BrokerConfig::default()
    }
}

pub fn budget(written: &Written) -> Budget {
    Budget {
        ids_per_window_max: written.rate_limit,
        window: Duration::from_secs(written.rate_window_seconds.max(1)),
    }
}

/// How the file of a broker is opened: durable as asked, with a log that fits its disk.
pub fn options(path: &Path, durability: Durability) -> Options {
    let mut options = Options {
        durability,
        keeps_copy_before_steps: true,
        ..Options::new(path)
    };
    if let Some(stat) = path.parent().and_then(|folder| statvfs(folder).ok()) {
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        (options.checkpoint_idle_pages, options.checkpoint_hard_pages) = log_pages(free);
    }
    options
}

/// The trace of a database in the folder of a broker: an empty file.
const ELSEWHERE: &str = "broker.database";

/// The tables of this folder are in a database, from now on. Without the trace a later start only says less.
pub fn mark_elsewhere(home: &Home) {
    let file = home.path().join(ELSEWHERE);
    if let Err(error) = write_private(&file, "") {
        tracing::warn!(%error, file = %file.display(), "that the tables are in a database could not be written down");
    }
}

/// A folder that was served keeps traces of that beside its tables. With the traces and no tables, those were in a database, or are
/// gone: new ones here would be an empty broker under the same tokens.
pub fn refuse_without_tables(home: &Home) -> Result<(), CliError> {
    let has = |name: &str| home.path().join(name).exists();
    let has_tables = home.broker_data().exists() || has("effects.db");
    let was_served = has(ELSEWHERE) || (has("effects") && has("broker_token"));
    if has_tables || !was_served || has("effects-begin-anew") {
        return Ok(());
    }
    let folder = home.path().display();
    let what = format!(
        "{folder} was served with a database, and none is named: it has no tables of its own"
    );
    Err(CliError::new(exit::NOT_FOUND, what).next(
        "Name it: --database postgres://…, or HEDDLE_BROKER_DATABASE in the environment; or choose another --data. Where the \
         tables were files here (broker.db, effects.db), put them back first; where the folder begins anew, remove broker.database. Nothing was changed.",
    ))
}
