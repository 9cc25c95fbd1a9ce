//! From `[broker]` of a config file to what a broker is told.

use std::num::NonZeroU32;
use std::time::Duration;

use heddle_broker::BrokerConfig;
use heddle_broker::limiter::Budget;
use heddle_daemon::config::BrokerConfig as Written;

pub fn broker_config(written: &Written) -> BrokerConfig {
    BrokerConfig {
        dedupe: written.dedupe_retention_days.0,
        policy: written.concurrent_connection_policy,
        message_retention_days: written.message_retention_days.map(NonZeroU32::get),
        ..BrokerConfig::default()
    }
}

pub fn budget(written: &Written) -> Budget {
    Budget {
        ids_per_window_max: written.rate_limit,
        window: Duration::from_secs(written.rate_window_seconds.max(1)),
    }
}
