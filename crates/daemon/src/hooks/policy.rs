//! `hooks.toml` of a home: which hooks may run, for how long, with which scopes, without which fields.
//!
//! Nothing runs without it. A file that others could write, or that says something we do not know, ends
//! the start: a policy that is half understood is none.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use heddle_core::limits::{HOOK_POLICY_BYTES_MAX, HOOK_TIMEOUT, HOOK_TOKEN_LIFE};
use heddle_core::names::TopicName;
use serde::Deserialize;

use super::file::{Kind, may_be_trusted};
use super::scope::Scope;

pub(crate) const ON_MESSAGE: &str = "on-message";
pub(crate) const ON_DM: &str = "on-dm";
pub(crate) const ON_MENTION: &str = "on-mention";
pub(crate) const ON_TOPIC: &str = "on-topic-";
pub(crate) const ON_STARTUP: &str = "on-startup";
pub(crate) const ON_DISCONNECT: &str = "on-disconnect";
pub(crate) const ON_RECONNECT: &str = "on-reconnect";
pub(crate) const PRE_SEND: &str = "pre-send";
pub(crate) const ON_FILE_SHARE: &str = "on-file-share";

const KNOWN: &str = "on-message, on-dm, on-mention, on-topic-NAME, on-file-share, on-startup, on-disconnect, on-reconnect and pre-send";

#[derive(Debug, Default)]
pub(crate) struct Policy {
    rules: BTreeMap<String, Rule>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    enabled: bool,
    #[serde(default)]
    timeout_seconds: Option<u64>,
    #[serde(default)]
    pub(crate) scopes: Vec<Scope>,
    /// Fields of the event that the hook does not see: names, joined by dots.
    #[serde(default)]
    pub(crate) redact: Vec<String>,
}

impl Rule {
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout_seconds
            .map_or(HOOK_TIMEOUT, Duration::from_secs)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("hooks.toml cannot be read: {0}")]
    Read(std::io::Error),
    #[error("hooks.toml is not trusted: {0}")]
    NotTrusted(String),
    #[error("hooks.toml is not understood: {0}")]
    NotUnderstood(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    hook: BTreeMap<String, Rule>,
}

impl Policy {
    /// `None` where there is no policy.
    pub(crate) fn load(path: &Path) -> Result<Option<Self>, PolicyError> {
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(PolicyError::Read(error)),
            Ok(found) if !found.is_file() => {
                let why = "it is not a regular file; put the policy itself there".to_owned();
                return Err(PolicyError::NotTrusted(why));
            }
            Ok(_) => {}
        }
        let nofollow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(nofollow)
            .open(path)
            .map_err(PolicyError::Read)?;
        let metadata = file.metadata().map_err(PolicyError::Read)?;
        may_be_trusted(&metadata, Kind::File).map_err(PolicyError::NotTrusted)?;
        let mut text = String::new();
        file.take(HOOK_POLICY_BYTES_MAX as u64 + 1)
            .read_to_string(&mut text)
            .map_err(PolicyError::Read)?;
        if text.len() > HOOK_POLICY_BYTES_MAX {
            let why = format!("it is larger than {HOOK_POLICY_BYTES_MAX} bytes");
            return Err(PolicyError::NotUnderstood(why));
        }
        Self::parse(&text)
            .map(Some)
            .map_err(PolicyError::NotUnderstood)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let document: Document = toml::from_str(text).map_err(|error| error.to_string())?;
        for (name, rule) in &document.hook {
            check(name, rule)?;
        }
        Ok(Self {
            rules: document.hook,
        })
    }

    /// The rule of a hook that may run.
    pub(crate) fn rule(&self, hook: &str) -> Option<&Rule> {
        self.rules.get(hook).filter(|rule| rule.enabled)
    }

    /// The hooks that may run.
    pub(crate) fn enabled(&self) -> impl Iterator<Item = &str> {
        let enabled = self.rules.iter().filter(|(_, rule)| rule.enabled);
        enabled.map(|(name, _)| name.as_str())
    }

    /// Whether any hook waits for messages.
    pub(crate) fn wants_messages(&self) -> bool {
        self.enabled().any(|hook| {
            !matches!(
                hook,
                ON_STARTUP | ON_DISCONNECT | ON_RECONNECT | ON_FILE_SHARE | PRE_SEND
            )
        })
    }
}

fn check(name: &str, rule: &Rule) -> Result<(), String> {
    let is_known = match name.strip_prefix(ON_TOPIC) {
        Some(topic) => TopicName::parse(topic).is_ok_and(|parsed| parsed.as_str() == topic),
        None => matches!(
            name,
            ON_MESSAGE
                | ON_DM
                | ON_MENTION
                | ON_STARTUP
                | ON_DISCONNECT
                | ON_RECONNECT
                | ON_FILE_SHARE
                | PRE_SEND
        ),
    };
    if !is_known {
        return Err(format!(
            "[hook.{name}] names no hook of this version; there are {KNOWN}"
        ));
    }
    let longest = HOOK_TOKEN_LIFE.as_secs();
    if let Some(seconds) = rule.timeout_seconds
        && !(1..=longest).contains(&seconds)
    {
        return Err(format!(
            "timeout_seconds of [hook.{name}] is {seconds}; a hook has 1 to {longest} seconds"
        ));
    }
    if name == PRE_SEND && !rule.scopes.is_empty() {
        return Err(format!(
            "[hook.{PRE_SEND}] has scopes; it is asked about a send and may make none"
        ));
    }
    if rule
        .redact
        .iter()
        .any(|path| path.split('.').any(str::is_empty))
    {
        return Err(format!(
            "redact of [hook.{name}] has an empty name in a path; write for example \"meta.secret\""
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_refused_in_words() {
        for (text, word) in [
            ("[hook.on-mesage]\nenabled = true", "names no hook"),
            (
                "[hook.pre-send]\nenabled = true\nscopes = [\"reply:event\"]",
                "may make none",
            ),
            ("[hook.\"on-topic-a/b\"]\nenabled = true", "names no hook"),
            (
                "[hook.on-dm]\nenabled = true\nretries = 3",
                "unknown field `retries`",
            ),
            ("[hooks]\nx = 1", "unknown field `hooks`"),
            ("[hook.on-dm]\ntimeout_seconds = 3", "enabled"),
            (
                "[hook.on-dm]\nenabled = true\ntimeout_seconds = 0",
                "1 to 300",
            ),
            (
                "[hook.on-dm]\nenabled = true\ntimeout_seconds = 301",
                "1 to 300",
            ),
            (
                "[hook.on-dm]\nenabled = true\nscopes = [\"all\"]",
                "reply:event",
            ),
            (
                "[hook.on-dm]\nenabled = true\nredact = [\"meta.\"]",
                "empty name",
            ),
        ] {
            let why = Policy::parse(text).unwrap_err();
            assert!(why.contains(word), "{text}: {why}");
        }
    }

    #[test]
    fn only_enabled_hooks_may_run() {
        let text = "[hook.on-dm]\nenabled = false\n[hook.on-startup]\nenabled = true\n";
        let policy = Policy::parse(text).unwrap();
        assert!(policy.rule("on-dm").is_none() && policy.rule("on-message").is_none());
        assert_eq!(policy.rule("on-startup").unwrap().timeout(), HOOK_TIMEOUT);
        assert!(!policy.wants_messages());
        let topic = "[hook.on-topic-ops]\nenabled = true\ntimeout_seconds = 300\nscopes = [\"topic:ops:post\"]";
        assert!(Policy::parse(topic).unwrap().wants_messages());
    }
}
