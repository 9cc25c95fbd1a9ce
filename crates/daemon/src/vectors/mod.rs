//! Embeddings of texts: which model is meant, who makes them, and what a provider may get wrong.
//!
//! An embedding is made before anything is written, outside of any transaction. A provider is somebody
//! else's program: bounded in time, in size and in number, and believed only as far as it is checked.

mod command;
pub(crate) mod left;
mod model;
mod openai;

use std::path::PathBuf;
use std::sync::Arc;

use heddle_core::error_code::ErrorCode;
use heddle_core::limits::VECTOR_PROVIDERS_AT_ONCE_MAX;
use heddle_core::vector::{
    Embedding, HASHED, ModelIdentity, QUANTIZATION, hashed, hashed_identity,
};
use heddle_wire::from_wire;
use heddle_wire::problem::Problem;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::vector_config::{Provider, VectorConfig};
pub(crate) use model::{ModelRef, check_length};

/// A key of a provider. It is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct VectorKey(String);

impl VectorKey {
    pub fn new(key: String) -> Self {
        Self(key)
    }
}

impl std::fmt::Debug for VectorKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

/// What went wrong at a provider, in a sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct ProviderError(String);

/// The maker of embeddings of a home. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Embedder(Arc<Inner>);

struct Inner {
    config: VectorConfig,
    home: PathBuf,
    key: Option<VectorKey>,
    places: Semaphore,
    shutdown: CancellationToken,
}

/// A model whose embeddings can be made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maker {
    Hashed,
    Configured,
}

impl Embedder {
    pub(crate) fn new(
        config: VectorConfig,
        home: PathBuf,
        key: Option<VectorKey>,
        shutdown: CancellationToken,
    ) -> Self {
        Self(Arc::new(Inner {
            config,
            home,
            key,
            places: Semaphore::new(VECTOR_PROVIDERS_AT_ONCE_MAX),
            shutdown,
        }))
    }

    /// Who makes embeddings of the model that was named, or of this home's own.
    pub(crate) fn maker(&self, asked: Option<&str>) -> Result<Maker, Problem> {
        let config = &self.0.config;
        let asked = asked.map(ModelRef::parse).transpose()?;
        let is_meant = |provider: &str, model: &str, version: &str| {
            let asked = asked.as_ref();
            asked.is_none_or(|asked| asked.names(provider, model, version))
        };
        match config.provider {
            Provider::OpenAi | Provider::Command
                if is_meant(config.provider.as_str(), config.model_name(), config.version_name()) =>
            {
                Ok(Maker::Configured)
            }
            Provider::Caller if asked.is_none() => Err(from_wire::invalid(
                "this home makes no embeddings: its provider is caller",
            )
            .next("Send the numbers as embedding, name the model heddle-hash-v1, or set another provider under [vectors] in config.toml.")),
            _ if is_meant(HASHED, HASHED, "1") => Ok(Maker::Hashed),
            provider => {
                let mut here = vec![HASHED];
                if !matches!(provider, Provider::Hashed | Provider::Caller) {
                    here.insert(0, config.model_name());
                }
                Err(from_wire::invalid("no provider of this home makes embeddings of that model")
                    .with("candidates", here)
                    .next("Name one of the candidates, send the numbers as embedding, or change [vectors] in config.toml."))
            }
        }
    }

    /// The model of an embedding that the caller brings along.
    pub(crate) fn given(&self, asked: Option<&str>, dim: usize) -> Result<ModelIdentity, Problem> {
        match asked {
            Some(asked) => ModelRef::parse(asked)?.identity(dim),
            None => {
                let name = match self.0.config.provider {
                    Provider::Caller => self.0.config.model_name(),
                    _ => "default",
                };
                let version = self.0.config.version_name();
                let caller = Provider::Caller.as_str();
                ModelIdentity::new(caller, name, version, dim, QUANTIZATION)
                    .map_err(|error| from_wire::invalid(error.to_string()))
            }
        }
    }

    /// Makes one. It goes on to its end when the caller goes away: a process must not be left behind.
    pub(crate) async fn embed(
        &self,
        maker: Maker,
        text: &str,
    ) -> Result<(ModelIdentity, Embedding), Problem> {
        if maker == Maker::Hashed {
            let embedding = hashed(text).map_err(|error| {
                from_wire::invalid(error.to_string()).next("Give it a text, or an embedding.")
            })?;
            return Ok((identity(hashed_identity())?, embedding));
        }
        let (inner, text) = (Arc::clone(&self.0), text.to_owned());
        let made = tokio::spawn(async move { inner.ask(text).await }).await;
        let made = made.unwrap_or_else(|error| Err(ProviderError(error.to_string())));
        let outcome = if made.is_ok() { "made" } else { "failed" };
        metrics::counter!("heddle_vector_embeddings_total", "outcome" => outcome).increment(1);
        let embedding = made.map_err(|error| Problem::new(ErrorCode::EmbeddingFailed, error.0))?;
        let config = &self.0.config;
        let model = ModelIdentity::new(
            config.provider.as_str(),
            config.model_name(),
            config.version_name(),
            embedding.dim(),
            QUANTIZATION,
        );
        Ok((identity(model)?, embedding))
    }

    /// The identity of what it makes; asks for one embedding where only that can tell.
    pub(crate) async fn identity(&self, maker: Maker) -> Result<ModelIdentity, Problem> {
        Ok(self.embed(maker, "heddle").await?.0)
    }
}

fn identity<E: std::fmt::Display>(
    model: Result<ModelIdentity, E>,
) -> Result<ModelIdentity, Problem> {
    model.map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))
}

impl Inner {
    async fn ask(&self, text: String) -> Result<Embedding, ProviderError> {
        let Ok(_place) = self.places.acquire().await else {
            return Err(ProviderError("the daemon is stopping".to_owned()));
        };
        let numbers = match self.config.provider {
            Provider::OpenAi => openai::ask(&self.config, self.key()?.as_ref(), &text).await?,
            Provider::Command => {
                command::ask(&self.config, &self.home, text, &self.shutdown).await?
            }
            Provider::Hashed | Provider::Caller => {
                return Err(ProviderError("there is no provider to ask".to_owned()));
            }
        };
        let embedding = Embedding::from_doubles(&numbers);
        let embedding = embedding.map_err(|error| {
            ProviderError(format!("the provider's answer is not usable: {error}"))
        })?;
        match self.config.dim {
            Some(dim) if usize::from(dim.get()) != embedding.dim() => Err(ProviderError(format!(
                "the provider gave {} numbers where [vectors] dim says {dim}",
                embedding.dim()
            ))),
            _ => Ok(embedding),
        }
    }

    /// Read for every call, so that a new key needs no restart.
    fn key(&self) -> Result<Option<VectorKey>, ProviderError> {
        if self.key.is_some() {
            return Ok(self.key.clone());
        }
        let Some(file) = &self.config.key_file else {
            return Ok(None);
        };
        // Without what it holds: an error must not print a key that stands in the wrong place.
        let text = crate::home::read_plain(&self.home.join(file)).map_err(|error| {
            ProviderError(format!(
                "[vectors] key_file cannot be read: {}",
                error.kind()
            ))
        })?;
        Ok(Some(VectorKey(text.trim().to_owned())))
    }
}
