//! Which model made a vector. Vectors of two models are never compared (LF-31).

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::fingerprint::hex;
use crate::limits::{NAME_BYTES_MAX, VECTOR_DIM_MAX};
use crate::names::nfc;

/// The one form in which numbers are kept.
pub const QUANTIZATION: &str = "float32";
/// Of a model whose maker tells no version.
pub const VERSION_UNKNOWN: &str = "unknown";

const PRINT_BYTES: usize = 8;
const TABLE_PREFIX: &str = "vectors_";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    #[error("the {part} of a model is empty")]
    Empty { part: &'static str },
    #[error("the {part} of a model is longer than {NAME_BYTES_MAX} bytes")]
    TooLong { part: &'static str },
    #[error("the {part} of a model holds {character:?}, which may not be in it")]
    Character { part: &'static str, character: char },
    #[error("a model has 1 to {VECTOR_DIM_MAX} dimensions, not {0}")]
    Dimensions(usize),
    #[error("vectors are kept as {QUANTIZATION}, not as {0:?}")]
    Quantization(String),
    #[error("a model's fingerprint is 16 digits of 0-9 and a-f")]
    Fingerprint,
}

/// Everything that makes vectors comparable. No part holds a ':', so the joined form is unambiguous.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelIdentity {
    provider: String,
    model: String,
    version: String,
    dim: usize,
}

impl ModelIdentity {
    pub fn new(
        provider: &str,
        model: &str,
        version: &str,
        dim: usize,
        quantization: &str,
    ) -> Result<Self, ModelError> {
        if dim == 0 || dim > VECTOR_DIM_MAX {
            return Err(ModelError::Dimensions(dim));
        }
        if quantization != QUANTIZATION {
            return Err(ModelError::Quantization(
                quantization.chars().take(40).collect(),
            ));
        }
        Ok(Self {
            provider: part("provider", provider)?,
            model: part("name", model)?,
            version: part("version", version)?,
            dim,
        })
    }

    pub fn provider(&self) -> &str {
        &self.provider
    }

    pub fn model(&self) -> &str {
        &self.model
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    pub fn dim(&self) -> usize {
        self.dim
    }

    /// 16 hex digits of the SHA-256 of `provider:model:version:dim:quantization`.
    pub fn fingerprint(&self) -> ModelFingerprint {
        let digest: [u8; 32] = Sha256::digest(self.to_string()).into();
        let mut print = [0; PRINT_BYTES];
        print.copy_from_slice(&digest[..PRINT_BYTES]);
        ModelFingerprint(print)
    }
}

impl fmt::Display for ModelIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            provider,
            model,
            version,
            dim,
        } = self;
        write!(f, "{provider}:{model}:{version}:{dim}:{QUANTIZATION}")
    }
}

fn part(part: &'static str, text: &str) -> Result<String, ModelError> {
    let text = nfc(text);
    if text.is_empty() {
        return Err(ModelError::Empty { part });
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(ModelError::TooLong { part });
    }
    match text.chars().find(|c| *c == ':' || c.is_control()) {
        Some(character) => Err(ModelError::Character { part, character }),
        None => Ok(text),
    }
}

/// What a model is known by in the store and in ops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelFingerprint([u8; PRINT_BYTES]);

impl ModelFingerprint {
    /// The table of the model's vectors: letters, digits and one underscore, whatever the model is called.
    pub fn table(self) -> String {
        format!("{TABLE_PREFIX}{self}")
    }
}

impl fmt::Display for ModelFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl FromStr for ModelFingerprint {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        let is_ours = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 2 * PRINT_BYTES || !text.as_bytes().iter().all(is_ours) {
            return Err(ModelError::Fingerprint);
        }
        let mut print = [0; PRINT_BYTES];
        for (byte, pair) in print.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| ModelError::Fingerprint)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| ModelError::Fingerprint)?;
        }
        Ok(Self(print))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(
        provider: &str,
        model: &str,
        version: &str,
        dim: usize,
    ) -> Result<ModelIdentity, ModelError> {
        ModelIdentity::new(provider, model, version, dim, QUANTIZATION)
    }

    #[test]
    fn lf_31_the_fingerprint_is_the_seeds_formula() {
        let model = identity("voyage-ai", "voyage-3-large", "1.0", 1024).unwrap();
        // sha256("voyage-ai:voyage-3-large:1.0:1024:float32"), by another program.
        assert_eq!(model.fingerprint().to_string(), "98306826e5eb51fa");
        assert_eq!(model.fingerprint().table(), "vectors_98306826e5eb51fa");
        let again: ModelFingerprint = model.fingerprint().to_string().parse().unwrap();
        assert_eq!(again, model.fingerprint());
    }

    #[test]
    fn lf_31_every_part_makes_another_model_and_none_can_borrow_from_its_neighbour() {
        let base = identity("p", "m", "v", 4).unwrap().fingerprint();
        for (p, m, v, d) in [
            ("q", "m", "v", 4),
            ("p", "n", "v", 4),
            ("p", "m", "w", 4),
            ("p", "m", "v", 5),
        ] {
            assert_ne!(identity(p, m, v, d).unwrap().fingerprint(), base);
        }
        for bad in [
            "a:b",
            "",
            "a\0b",
            "a\nb",
            "\u{7f}",
            &"x".repeat(NAME_BYTES_MAX + 1),
        ] {
            assert!(identity(bad, "m", "v", 4).is_err(), "{bad:?}");
            assert!(identity("p", bad, "v", 4).is_err(), "{bad:?}");
            assert!(identity("p", "m", bad, 4).is_err(), "{bad:?}");
        }
        assert_eq!(identity("p", "m", "v", 0), Err(ModelError::Dimensions(0)));
        assert!(identity("p", "m", "v", VECTOR_DIM_MAX + 1).is_err());
        assert!(ModelIdentity::new("p", "m", "v", 4, "int8").is_err());
    }

    #[test]
    fn lf_07_a_composed_and_a_decomposed_name_are_one_model() {
        assert_eq!(
            identity("p", "cafe\u{301}", "v", 4),
            identity("p", "caf\u{e9}", "v", 4)
        );
    }

    #[test]
    fn lf_31_only_the_exact_form_is_a_fingerprint() {
        for bad in [
            "",
            "0123456789abcde",
            "0123456789abcdefa",
            "0123456789ABCDEF",
            "x'; DROP TABLE m",
            "0123456789abcd é",
        ] {
            assert!(bad.parse::<ModelFingerprint>().is_err(), "{bad:?}");
        }
    }
}
