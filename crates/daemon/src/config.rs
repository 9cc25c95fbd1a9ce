//! `config.toml` of a home: every key optional, unknown keys refused.

use std::collections::BTreeSet;
use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use std::path::{Path, PathBuf};
use std::time::Duration;

use heddle_core::ids::{BrokerId, MemberId, MeshId};
use heddle_core::limits::{INBOX_RETENTION_DAYS_DEFAULT, SNAPSHOT_ROWS_MIN};
use heddle_core::names::{MemberName, MeshName};
use serde::Deserialize;

pub use crate::broker_config::{BrokerConfig, DedupeRetention};
pub use crate::vector_config::{Provider, VectorConfig};

/// The personal mesh that every home has.
pub const HOME_MESH: &str = "home";

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub daemon: DaemonConfig,
    pub outbox: OutboxConfig,
    pub inbox: InboxConfig,
    pub broker: BrokerConfig,
    pub log: LogConfig,
    pub vectors: VectorConfig,
    /// Meshes that were left on purpose: what the store has of them stays there, and nobody is told of it.
    pub left: Vec<MeshName>,
    /// Meshes that are hosted elsewhere, beside `home`.
    pub mesh: Vec<MeshConfig>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeshConfig {
    pub name: MeshName,
    /// `ws://…` of the broker that hosts it.
    pub url: String,
    /// A file with the bearer token that the broker asks for; relative to the home folder.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// Certificates of the authorities that vouch for the broker, instead of those that this machine trusts; relative to
    /// the home folder.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Who we are in it; as in `home` by default.
    #[serde(default)]
    pub member: Option<MemberName>,
    /// What an invitation left here: the mesh, the broker that hosts it and nobody else, who we are
    /// there, and the file with our key, relative to the home folder. All of them, or none.
    #[serde(default)]
    pub id: Option<MeshId>,
    #[serde(default)]
    pub broker_id: Option<BrokerId>,
    #[serde(default)]
    pub member_id: Option<MemberId>,
    #[serde(default)]
    pub key_file: Option<PathBuf>,
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
    /// A mesh with more rows is published as one snapshot; 10,000 by default.
    pub snapshot_rows: Option<u64>,
}

impl DaemonConfig {
    pub fn snapshot_rows(&self) -> u64 {
        self.snapshot_rows.unwrap_or(SNAPSHOT_ROWS_MIN)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutboxConfig {
    pub max_age_hours_override: Option<u32>,
    /// How much the outbox's payloads may hold; by default the free space of the file system decides.
    pub disk_budget_mb: Option<u64>,
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
        match crate::home::read_plain(path) {
            Ok(text) => {
                let config = toml::from_str::<Self>(&text).map_err(|error| in_words(&error));
                let checked = config.and_then(|config| config.check().map(|()| config));
                checked.map_err(|why| ConfigError::Parse { path: shown, why })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(ConfigError::Read {
                path: shown,
                why: error.to_string(),
            }),
        }
    }

    /// What the shape alone does not say.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.broker.check()?;
        self.vectors.check()?;
        let mut names = BTreeSet::new();
        for mesh in &self.mesh {
            // The mesh that every home has is there only once it was published to a broker elsewhere.
            let is_home = mesh.name.as_str() == HOME_MESH && mesh.id.is_none();
            if !names.insert(mesh.name.as_str()) || is_home {
                return Err(format!(
                    "[[mesh]] {:?} is there twice, or is the mesh that every home has; choose another name",
                    mesh.name.as_str()
                ));
            }
            let parts = [
                mesh.id.is_some(),
                mesh.broker_id.is_some(),
                mesh.member_id.is_some(),
                mesh.key_file.is_some(),
                // A name alone makes no member of a mesh that was joined, and the other way round.
                mesh.id.is_some() && mesh.member.is_some(),
            ];
            if parts.iter().any(|part| *part != parts[0]) {
                return Err(format!(
                    "[[mesh]] {:?}: id, broker_id, member_id, member and key_file belong together; take the mesh out and run `heddle mesh join` again",
                    mesh.name.as_str()
                ));
            }
            if !is_broker_url(&mesh.url) {
                return Err(format!(
                    "[[mesh]] {:?}: the url must begin with ws:// or wss://",
                    mesh.name.as_str()
                ));
            }
            if mesh.ca_file.is_some() && !is_tls_url(&mesh.url) {
                return Err(format!(
                    "[[mesh]] {:?}: ca_file is for a url that begins with wss://",
                    mesh.name.as_str()
                ));
            }
        }
        if let Some(url) = &self.broker.url
            && !is_broker_url(url)
        {
            return Err("[broker]: the url must begin with ws:// or wss://".to_owned());
        }
        if self.broker.ca_file.is_some() && !self.broker.url.as_deref().is_some_and(is_tls_url) {
            return Err("[broker]: ca_file is for a url that begins with wss://".to_owned());
        }
        if self.outbox.max_age_hours_override == Some(0) {
            return Err(
                "[outbox] max_age_hours_override must be at least 1; leave it out for what the broker says"
                    .to_owned(),
            );
        }
        if self.outbox.disk_budget_mb == Some(0) {
            return Err(
                "[outbox] disk_budget_mb must be at least 1; leave it out for no budget".to_owned(),
            );
        }
        Ok(())
    }
}

/// The place and the line as they are; what belongs there without the names of our types.
fn in_words(error: &toml::de::Error) -> String {
    let (whole, why) = (error.to_string(), error.message());
    let Some((found, wanted)) = why.split_once("expected ") else {
        return whole;
    };
    let (least, bits) = match wanted.strip_prefix("a nonzero ") {
        Some(bits) => (1, bits),
        None => (0, wanted),
    };
    let most = match bits {
        "u8" => u64::from(u8::MAX),
        "u16" => u64::from(u16::MAX),
        "u32" => u64::from(u32::MAX),
        // No number of the file is larger than that.
        "u64" | "usize" => i64::MAX.unsigned_abs(),
        _ => return whole,
    };
    let place = whole.trim_end().strip_suffix(why).unwrap_or_default();
    format!("{place}{found}expected a whole number from {least} to {most}")
}

fn is_broker_url(url: &str) -> bool {
    ["ws://", "wss://"]
        .iter()
        .any(|scheme| url.starts_with(scheme))
}

fn is_tls_url(url: &str) -> bool {
    url.starts_with("wss://")
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

    /// serde names the keys that it knows when it meets one that it does not.
    #[test]
    fn every_setting_is_documented() {
        let pages = include_str!("../../../docs/OPERATIONS.md");
        let settings = pages.split("## Settings").nth(1).unwrap();
        let settings = settings.split("\n## ").next().unwrap();
        for section in ["daemon", "outbox", "inbox", "broker", "log"] {
            assert!(settings.contains(&format!("`[{section}]`")), "{section}");
            let text = format!("[{section}]\nnobody_knows_this = 1");
            let error = toml::from_str::<Config>(&text).unwrap_err().to_string();
            let known = error.split("expected").nth(1).unwrap();
            let keys: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
            assert!(!keys.is_empty(), "{error}");
            for key in keys {
                assert!(settings.contains(&format!("`{key}`")), "[{section}] {key}");
            }
        }
    }

    #[test]
    fn meshes_have_names_of_their_own_and_a_url() {
        let check = |text: &str| toml::from_str::<Config>(text).unwrap().check();
        for wrong in [
            "[broker]\nurl = \"http://127.0.0.1:7\"\n",
            "[outbox]\nmax_age_hours_override = 0\n",
            "[broker]\nca_file = \"ca.pem\"\n",
            "[broker]\nurl = \"ws://127.0.0.1:7\"\nca_file = \"ca.pem\"\n",
        ] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
        let work = "[[mesh]]\nname = \"work\"\nurl = \"ws://127.0.0.1:7\"\n";
        assert_eq!(check(work), Ok(()));
        let trusting = format!("{work}ca_file = \"ca.pem\"\n");
        assert!(check(&trusting).unwrap_err().contains("wss://"));
        assert_eq!(check(&trusting.replace("ws:", "wss:")), Ok(()));
        assert!(check(&work.repeat(2)).unwrap_err().contains("twice"));
        assert!(check(&work.replace("work", "home")).is_err());
        assert!(check(&work.replace("ws:", "http:")).is_err());
        assert!(check("[outbox]\ndisk_budget_mb = 0").is_err());
        assert!(toml::from_str::<Config>(&format!("{work}colour = 1")).is_err());
    }

    #[test]
    fn the_inbox_keeps_a_month_by_default_and_no_time_is_no_choice() {
        let days = |text: &str| toml::from_str::<Config>(text).map(|c| c.inbox.retention());
        assert_eq!(days("").unwrap(), Duration::from_hours(30 * 24));
        let week = "[inbox]\nretention_days = 7";
        assert_eq!(days(week).unwrap(), Duration::from_hours(7 * 24));
        assert!(days("[inbox]\nretention_days = 0").is_err());
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
