//! From `[broker]` of a config file to what a broker is told.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use heddle_broker::BrokerConfig;
use heddle_broker::limiter::Budget;
use heddle_broker::storage::sqlite::Options;
use heddle_core::pressure::log_pages;
use heddle_daemon::Durability;
use heddle_daemon::config::BrokerConfig as Written;
use rustix::fs::statvfs;

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
