//! `config.toml` of a home: every key optional, unknown keys refused.

use std::num::{NonZeroU8, NonZeroU16};
use std::path::Path;

use heddle_core::names::MemberName;
use serde::Deserialize;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub daemon: DaemonConfig,
    pub outbox: OutboxConfig,
    pub broker: BrokerConfig,
    pub log: LogConfig,
}

/// The log in `logs/`: at most `files` files of `max_mb` megabytes each.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    pub max_mb: NonZeroU16,
    pub files: NonZeroU8,
    pub level: LogLevel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            max_mb: NonZeroU16::MIN.saturating_add(9),
            files: NonZeroU8::MIN.saturating_add(4),
            level: LogLevel::Info,
        }
    }
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
    fn the_log_is_bounded_by_ten_megabytes_times_five_unless_told_otherwise() {
        let log = Config::default().log;
        assert_eq!((log.max_mb.get(), log.files.get()), (10, 5));
        let config: Config =
            toml::from_str("[log]\nmax_mb = 1\nfiles = 2\nlevel = \"debug\"").unwrap();
        assert_eq!(config.log.level, LogLevel::Debug);
        for bad in [
            "max_mb = 0",
            "files = 0",
            "files = 1000",
            "level = \"loud\"",
        ] {
            assert!(
                toml::from_str::<Config>(&format!("[log]\n{bad}")).is_err(),
                "{bad}"
            );
        }
    }
}
