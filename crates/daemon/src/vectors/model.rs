//! Models as people name them: `NAME`, `PROVIDER:NAME`, `PROVIDER:NAME:VERSION`, the whole identity, or
//! the fingerprint.

use heddle_core::vector::{ModelFingerprint, ModelIdentity, QUANTIZATION, VERSION_UNKNOWN};
use heddle_store::ModelRow;
use heddle_wire::from_wire;
use heddle_wire::problem::Problem;

use crate::vector_config::Provider;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelRef {
    text: String,
    provider: Option<String>,
    name: String,
    version: Option<String>,
    dim: Option<usize>,
}

impl ModelRef {
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        let refused = || {
            from_wire::invalid("the model is not named as one").next(
                "Name it as NAME, PROVIDER:NAME, PROVIDER:NAME:VERSION, or as `heddle vector list --json` shows it.",
            )
        };
        let owned = |part: &str| part.to_owned();
        let parts: Vec<&str> = text.split(':').collect();
        let (provider, name, version, dim) = match parts[..] {
            [name] => (None, name, None, None),
            [provider, name] => (Some(provider), name, None, None),
            [provider, name, version] => (Some(provider), name, Some(version), None),
            [provider, name, version, dim, QUANTIZATION] => {
                let dim = dim.parse().map_err(|_| refused())?;
                (Some(provider), name, Some(version), Some(dim))
            }
            _ => return Err(refused()),
        };
        let found = Self {
            text: owned(text),
            provider: provider.map(owned),
            name: owned(name),
            version: version.map(owned),
            dim,
        };
        // Whatever is left open: what was said must be possible.
        found.identity(found.dim.unwrap_or(1))?;
        Ok(found)
    }

    /// Whether this is what was meant, as far as it was said.
    pub(crate) fn names(&self, provider: &str, model: &str, version: &str) -> bool {
        self.name == model
            && self.provider.as_deref().is_none_or(|said| said == provider)
            && self.version.as_deref().is_none_or(|said| said == version)
    }

    /// The model of numbers that somebody brings along.
    pub(crate) fn identity(&self, dim: usize) -> Result<ModelIdentity, Problem> {
        if let Some(said) = self.dim.filter(|said| *said != dim) {
            return Err(other_length(&self.text, &[said], dim));
        }
        let provider = self
            .provider
            .as_deref()
            .unwrap_or(Provider::Caller.as_str());
        let version = self.version.as_deref().unwrap_or(VERSION_UNKNOWN);
        ModelIdentity::new(provider, &self.name, version, dim, QUANTIZATION)
            .map_err(|error| from_wire::invalid(error.to_string()))
    }

    /// The one that is meant among those that have vectors here; `None` if there is none.
    pub(crate) fn among(&self, models: &[ModelRow]) -> Result<Option<ModelFingerprint>, Problem> {
        let print: Option<ModelFingerprint> = self.text.parse().ok();
        let is_meant = |model: &&ModelRow| {
            let identity = &model.identity;
            Some(identity.fingerprint()) == print
                || self.names(identity.provider(), identity.model(), identity.version())
                    && self.dim.is_none_or(|dim| dim == identity.dim())
        };
        let found: Vec<&ModelRow> = models.iter().filter(is_meant).collect();
        match found[..] {
            [] => Ok(None),
            [one] => Ok(Some(one.identity.fingerprint())),
            _ => {
                let candidates = found.iter().map(|model| model.identity.to_string());
                Err(from_wire::invalid("several models are called so")
                    .with("candidates", candidates.collect::<Vec<_>>())
                    .next("Name one of the candidates in full."))
            }
        }
    }
}

/// An embedding of a length of which its model has no vectors, where it has some of another: it is near to nothing because
/// it is of another model, or was cut. A model without any vectors is no mistake.
pub(crate) fn check_length(models: &[ModelRow], asked: &ModelIdentity) -> Result<(), Problem> {
    let is_named_so = |model: &&ModelIdentity| {
        (model.provider(), model.model(), model.version())
            == (asked.provider(), asked.model(), asked.version())
    };
    let named = models.iter().map(|row| &row.identity).filter(is_named_so);
    let lengths: Vec<usize> = named.map(ModelIdentity::dim).collect();
    if lengths.is_empty() || lengths.contains(&asked.dim()) {
        return Ok(());
    }
    let name = format!("{}:{}:{}", asked.provider(), asked.model(), asked.version());
    Err(other_length(&name, &lengths, asked.dim()))
}

fn other_length(model: &str, lengths: &[usize], given: usize) -> Problem {
    let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
    from_wire::invalid(format!(
        "the embedding has {given} numbers, the vectors of model {model} have {}",
        lengths.join(" or ")
    ))
    .next("Make the embedding with that model, or name the model that made it.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(identity: &str) -> ModelRow {
        let said = ModelRef::parse(identity).unwrap();
        ModelRow {
            identity: said.identity(said.dim.unwrap()).unwrap(),
            left_at: None,
            read_at: None,
        }
    }

    #[test]
    fn a_model_is_found_by_as_much_of_its_name_as_is_needed() {
        let models = [
            row("openai:m:1:3:float32"),
            row("caller:m:unknown:3:float32"),
            row("caller:n:unknown:3:float32"),
        ];
        let print = |at: usize| models[at].identity.fingerprint();
        let found = |text: &str| ModelRef::parse(text).unwrap().among(&models);
        assert_eq!(found("n").unwrap(), Some(print(2)));
        assert_eq!(found("openai:m").unwrap(), Some(print(0)));
        assert_eq!(found("caller:m:unknown").unwrap(), Some(print(1)));
        assert_eq!(found("openai:m:1:3:float32").unwrap(), Some(print(0)));
        assert_eq!(found("openai:m:1:4:float32").unwrap(), None);
        assert_eq!(found(&print(1).to_string()).unwrap(), Some(print(1)));
        assert_eq!(found("nobody").unwrap(), None);
        assert_eq!(found("m").unwrap_err().status, 400);
    }

    #[test]
    fn what_cannot_be_a_model_is_refused() {
        for bad in [
            "",
            "a:",
            ":b",
            "a:b:c:d",
            "a:b:c:x:float32",
            "a:b:c:3:int8",
            "a\nb",
            "a:b:c:0:float32",
        ] {
            assert!(ModelRef::parse(bad).is_err(), "{bad:?}");
        }
        let said = ModelRef::parse("p:m:1:3:float32").unwrap();
        assert!(said.identity(4).is_err());
        assert_eq!(said.identity(3).unwrap().to_string(), "p:m:1:3:float32");
    }
}
