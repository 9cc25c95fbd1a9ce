//! `[broker]` of `config.toml`: where the broker is, or how the one of this folder behaves.

use std::num::{NonZeroU16, NonZeroU32};
use std::path::PathBuf;

use heddle_core::limits::{DEDUPE_RETENTION_DAYS_DEFAULT, DEDUPE_RETENTION_DAYS_MAX};
use heddle_core::negotiate::ConnectionPolicy;
use heddle_core::retention::DedupeMode;
use serde::Deserialize;

const UPKEEP_SECONDS_DEFAULT: u64 = 60 * 60;
/// A broker that never forgets what is over would grow for ever.
const UPKEEP_SECONDS_MAX: u64 = 24 * 60 * 60;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BrokerConfig {
    /// `ws://…` of a broker that hosts the mesh `home`; the embedded one by default.
    pub url: Option<String>,
    /// The file with that broker's token; relative to the home folder.
    pub token_file: Option<PathBuf>,
    /// The file with the authorities that vouch for that broker, instead of the machine's; relative to the home folder.
    pub ca_file: Option<PathBuf>,
    /// The loopback port at which invited homes reach the embedded broker; the one of the last start by
    /// default, and any free one at first.
    pub port: Option<NonZeroU16>,
    /// Messages per window that the broker of this folder takes.
    pub rate_limit: usize,
    pub rate_window_seconds: u64,
    /// How long it remembers ids: days, or `permanent`.
    pub dedupe_retention_days: DedupeRetention,
    /// Bodies older than this go; kept by default.
    pub message_retention_days: Option<NonZeroU32>,
    /// What happens when one identity connects twice.
    pub concurrent_connection_policy: ConnectionPolicy,
    /// How often it sweeps; every 24th time it looks for orphans, too.
    pub upkeep_interval_seconds: u64,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            url: None,
            token_file: None,
            ca_file: None,
            port: None,
            rate_limit: 1_000_000,
            rate_window_seconds: 10,
            dedupe_retention_days: DedupeRetention::default(),
            message_retention_days: None,
            concurrent_connection_policy: ConnectionPolicy::PreferNewest,
            upkeep_interval_seconds: UPKEEP_SECONDS_DEFAULT,
        }
    }
}

impl BrokerConfig {
    /// What the shape alone does not say.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.rate_limit == 0 || self.rate_window_seconds == 0 {
            return Err(
                "[broker] rate_limit and rate_window_seconds must be at least 1".to_owned(),
            );
        }
        if !(1..=UPKEEP_SECONDS_MAX).contains(&self.upkeep_interval_seconds) {
            return Err(format!(
                "[broker] upkeep_interval_seconds is {}; from 1 to {UPKEEP_SECONDS_MAX} (a day)",
                self.upkeep_interval_seconds
            ));
        }
        match self.dedupe_retention_days.0 {
            DedupeMode::RetentionScoped { days } if days > DEDUPE_RETENTION_DAYS_MAX => {
                Err(format!(
                    "[broker] dedupe_retention_days is {days}; at most {DEDUPE_RETENTION_DAYS_MAX}, or `permanent`"
                ))
            }
            _ => Ok(()),
        }
    }
}

/// How long ids are remembered, as it is written in the file. Below the floor it is taken here and
/// refused by every daemon that connects (4012).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct DedupeRetention(pub DedupeMode);

impl Default for DedupeRetention {
    fn default() -> Self {
        Self(DedupeMode::RetentionScoped {
            days: DEDUPE_RETENTION_DAYS_DEFAULT,
        })
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Days(u32),
    Word(String),
}

impl TryFrom<Written> for DedupeRetention {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Days(days) => Ok(Self(DedupeMode::RetentionScoped { days })),
            Written::Word(word) => word.parse(),
        }
    }
}

impl std::str::FromStr for DedupeRetention {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("permanent", _) => Ok(Self(DedupeMode::Permanent)),
            (_, Ok(days)) => Ok(Self(DedupeMode::RetentionScoped { days })),
            _ => Err(format!(
                "{text:?} is neither a number of days nor `permanent`"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<BrokerConfig, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn retention_is_days_or_permanent_and_nothing_else() {
        let days = |text: &str| read(text).map(|config| config.dedupe_retention_days.0);
        assert_eq!(days("").unwrap(), DedupeMode::RetentionScoped { days: 365 });
        let scoped = days("dedupe_retention_days = 7").unwrap();
        assert_eq!(scoped, DedupeMode::RetentionScoped { days: 7 });
        let permanent = days("dedupe_retention_days = \"permanent\"").unwrap();
        assert_eq!(permanent, DedupeMode::Permanent);
        for bad in ["-1", "\"for ever\"", "true", "1.5"] {
            assert!(
                days(&format!("dedupe_retention_days = {bad}")).is_err(),
                "{bad}"
            );
        }
        assert!(read("message_retention_days = 0").is_err());
    }

    #[test]
    fn upkeep_is_done_at_least_once_a_day_and_not_all_the_time() {
        let checked = |text: &str| read(text).unwrap().check();
        assert_eq!(read("").unwrap().upkeep_interval_seconds, 3600);
        for good in ["1", "3600", "86400"] {
            checked(&format!("upkeep_interval_seconds = {good}")).unwrap();
        }
        for bad in ["0", "86401"] {
            let why = checked(&format!("upkeep_interval_seconds = {bad}")).unwrap_err();
            assert!(why.contains("from 1 to 86400"), "{why}");
        }
    }

    #[test]
    fn a_policy_is_one_of_three() {
        for (text, policy) in [
            ("prefer_newest", ConnectionPolicy::PreferNewest),
            ("prefer_oldest", ConnectionPolicy::PreferOldest),
            ("allow_concurrent", ConnectionPolicy::AllowConcurrent),
        ] {
            let config = read(&format!("concurrent_connection_policy = {text:?}")).unwrap();
            assert_eq!(config.concurrent_connection_policy, policy);
        }
        assert!(read("concurrent_connection_policy = \"prefer_me\"").is_err());
    }
}
