//! `config.toml` of a home: every key optional, unknown keys refused.

use std::path::Path;

use heddle_core::names::MemberName;
use serde::Deserialize;

pub use crate::broker_config::{BrokerConfig, DedupeRetention};

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub daemon: DaemonConfig,
    pub outbox: OutboxConfig,
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
}
