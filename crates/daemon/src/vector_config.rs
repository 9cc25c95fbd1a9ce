//! `[vectors]` of `config.toml`: who makes the embeddings of texts in this home.

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::time::Duration;

use heddle_core::limits::{VECTOR_PROVIDER_TIMEOUT, VECTOR_PROVIDER_TIMEOUT_MAX};
use heddle_core::vector::{HASHED, ModelIdentity, QUANTIZATION, VERSION_UNKNOWN};
use serde::Deserialize;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum Provider {
    /// Feature hashing: offline, always there.
    #[default]
    #[serde(rename = "heddle-hash-v1")]
    Hashed,
    /// A server with the interface of OpenAI.
    #[serde(rename = "openai")]
    OpenAi,
    /// A program: the text on standard input, a JSON array of numbers on standard output.
    #[serde(rename = "command")]
    Command,
    /// Nobody: whoever stores a vector brings it along.
    #[serde(rename = "caller")]
    Caller,
}

impl Provider {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hashed => HASHED,
            Self::OpenAi => "openai",
            Self::Command => "command",
            Self::Caller => "caller",
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VectorConfig {
    pub provider: Provider,
    /// The model's name, as its provider knows it.
    pub model: Option<String>,
    /// Which edition of it; another one is another model.
    pub version: Option<String>,
    /// How many numbers its embeddings have; one of another length is refused.
    pub dim: Option<NonZeroU16>,
    /// For `openai`: the address before `/embeddings`.
    pub url: Option<String>,
    /// For `openai`: a file with the key, relative to the home folder. `HEDDLE_VECTORS_KEY` comes first.
    pub key_file: Option<PathBuf>,
    /// For `command`: the program by its full path, and its arguments.
    pub command: Vec<String>,
    pub timeout_seconds: Option<NonZeroU16>,
}

impl VectorConfig {
    pub fn timeout(&self) -> Duration {
        let seconds = self
            .timeout_seconds
            .map(|s| Duration::from_secs(s.get().into()));
        seconds.unwrap_or(VECTOR_PROVIDER_TIMEOUT)
    }

    pub fn model_name(&self) -> &str {
        match self.provider {
            Provider::Hashed => HASHED,
            _ => self.model.as_deref().unwrap_or("default"),
        }
    }

    pub fn version_name(&self) -> &str {
        self.version.as_deref().unwrap_or(VERSION_UNKNOWN)
    }

    /// What the shape alone does not say.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.timeout() > VECTOR_PROVIDER_TIMEOUT_MAX {
            let most = VECTOR_PROVIDER_TIMEOUT_MAX.as_secs();
            return Err(format!("[vectors] timeout_seconds is at most {most}"));
        }
        // With any length: the names must be such as a model may have.
        let dim = self.dim.map_or(1, |dim| dim.get().into());
        let (model, version) = (self.model_name(), self.version_name());
        ModelIdentity::new(self.provider.as_str(), model, version, dim, QUANTIZATION)
            .map_err(|error| format!("[vectors] {error}"))?;
        match self.provider {
            Provider::Hashed if self.model.as_deref().is_some_and(|model| model != HASHED) => {
                Err(format!("[vectors] provider {HASHED} has no other model than itself; leave model out, or name another provider"))
            }
            Provider::OpenAi | Provider::Command if self.model.is_none() => Err(
                "[vectors] model is missing: name the model, so that its vectors are not mixed with those of another".to_owned(),
            ),
            Provider::OpenAi => self.check_url(),
            Provider::Command => match self.command.first() {
                Some(program) if Path::new(program).is_absolute() => Ok(()),
                _ => Err("[vectors] command must begin with the full path of a program".to_owned()),
            },
            Provider::Hashed | Provider::Caller => Ok(()),
        }
    }

    fn check_url(&self) -> Result<(), String> {
        let url: Option<http::Uri> = self.url.as_deref().and_then(|url| url.parse().ok());
        match url {
            Some(url) if url.scheme_str() == Some("http") && url.host().is_some() => Ok(()),
            _ => Err("[vectors] url must be an address like http://127.0.0.1:11434/v1; of a server that speaks https only, name a proxy on this machine".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<(), String> {
        let config: VectorConfig = toml::from_str(text).map_err(|error| error.to_string())?;
        config.check()
    }

    #[test]
    fn every_provider_says_what_it_lacks() {
        let openai = "provider = 'openai'\nmodel = 'm'\nurl = 'http://127.0.0.1:1/v1'";
        let command = "provider = 'command'\nmodel = 'm'\ncommand = ['/bin/embed', '-q']";
        for good in [
            "",
            "provider = 'caller'",
            "provider = 'heddle-hash-v1'",
            openai,
            command,
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, word) in [
            ("provider = 'openai'", "model"),
            ("provider = 'openai'\nmodel = 'm'", "url"),
            (
                "provider = 'openai'\nmodel = 'm'\nurl = 'https://127.0.0.1'",
                "proxy",
            ),
            (
                "provider = 'openai'\nmodel = 'm'\nurl = 'file:///etc/passwd'",
                "url",
            ),
            ("provider = 'command'\nmodel = 'm'", "path"),
            (
                "provider = 'command'\nmodel = 'm'\ncommand = ['embed']",
                "path",
            ),
            (
                "provider = 'command'\nmodel = 'a:b'\ncommand = ['/x']",
                "':'",
            ),
            ("model = 'other'", "provider"),
            ("dim = 9000", "dimensions"),
            ("dim = 0", "nonzero"),
            ("timeout_seconds = 121", "timeout_seconds"),
            ("colour = 1", "colour"),
            ("provider = 'magic'", "magic"),
        ] {
            let why = check(bad).unwrap_err();
            assert!(why.contains(word), "{bad}: {why}");
        }
    }
}
