//! `config.toml` of a home: every key optional, unknown keys refused.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use heddle_core::limits::INBOX_RETENTION_DAYS_DEFAULT;
use heddle_core::names::MemberName;
use serde::Deserialize;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub daemon: DaemonConfig,
    pub outbox: OutboxConfig,
    pub inbox: InboxConfig,
    pub broker: BrokerConfig,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DaemonConfig {
    /// The name of this home's person in its personal mesh; the login name by default.
    pub member: Option<MemberName>,
    /// The loopback port; any free one by default.
    pub http_port: u16,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutboxConfig {
    pub max_age_hours_override: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InboxConfig {
    /// How long an item stays after it was shown; one that never was stays twice as long.
    pub retention_days: NonZeroU32,
}

impl Default for InboxConfig {
    fn default() -> Self {
        let days = NonZeroU32::new(INBOX_RETENTION_DAYS_DEFAULT);
        Self {
            retention_days: days.unwrap_or(NonZeroU32::MIN),
        }
    }
}

impl InboxConfig {
    pub fn retention(&self) -> Duration {
        Duration::from_hours(24).saturating_mul(self.retention_days.get())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BrokerConfig {
    /// `ws://…` of a broker that hosts the mesh `home`; the embedded one by default.
    pub url: Option<String>,
    /// Messages per window that the embedded broker takes.
    pub rate_limit: usize,
    pub rate_window_seconds: u64,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            url: None,
            rate_limit: 1_000_000,
            rate_window_seconds: 10,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{path} cannot be read: {why}")]
    Read { path: String, why: String },
    #[error("{path} is not understood: {why}")]
    Parse { path: String, why: String },
}

impl Config {
    /// A missing file is an empty one.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let shown = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => toml::from_str(&text).map_err(|error| ConfigError::Parse {
                path: shown,
                why: error.to_string(),
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(ConfigError::Read {
                path: shown,
                why: error.to_string(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_refused_and_an_empty_file_is_fine() {
        assert_eq!(toml::from_str::<Config>("").unwrap(), Config::default());
        assert!(toml::from_str::<Config>("[outbox]\nmax_age = 3").is_err());
        let config: Config = toml::from_str("[outbox]\nmax_age_hours_override = 100").unwrap();
        assert_eq!(config.outbox.max_age_hours_override, Some(100));
    }

    #[test]
    fn the_inbox_keeps_a_month_by_default_and_no_time_is_no_choice() {
        let days = |text: &str| toml::from_str::<Config>(text).map(|c| c.inbox.retention());
        assert_eq!(days("").unwrap(), Duration::from_hours(30 * 24));
        let week = "[inbox]\nretention_days = 7";
        assert_eq!(days(week).unwrap(), Duration::from_hours(7 * 24));
        assert!(days("[inbox]\nretention_days = 0").is_err());
    }
}
