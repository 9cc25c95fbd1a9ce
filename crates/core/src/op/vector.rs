//! Ops on vectors: `vector.store`, `vector.delete`. The stamp's peer is the owner.
//!
//! The numbers travel with the op, so that every replica keeps the same bytes and none has to make
//! them again.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{OpError, fields, malformed, unknown};
use crate::data::{DataError, DataKey, DataValue};
use crate::limits::{VECTOR_CONTENT_BYTES_MAX, VECTOR_METADATA_BYTES_MAX, VECTOR_MODELS_MAX};
use crate::vector::{
    Embedding, EmbeddingError, ModelError, ModelFingerprint, ModelIdentity, QUANTIZATION,
};

/// The text that a vector stands for, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VectorContent(String);

impl VectorContent {
    pub fn new(text: String) -> Result<Self, DataError> {
        if text.len() > VECTOR_CONTENT_BYTES_MAX {
            return Err(DataError::ContentTooLarge(text.len()));
        }
        Ok(Self(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVector {
    model: ModelIdentity,
    embedding: Embedding,
    content: VectorContent,
    metadata: DataValue,
}

impl NewVector {
    /// `Err` if the embedding is not of the model's length, or the metadata is too large.
    pub fn new(
        model: ModelIdentity,
        embedding: Embedding,
        content: VectorContent,
        metadata: DataValue,
    ) -> Result<Self, OpError> {
        if embedding.dim() != model.dim() {
            let (has, wants) = (embedding.dim(), model.dim());
            return Err(malformed(format!(
                "the embedding has {has} numbers, those of its model have {wants}"
            )));
        }
        let bytes = metadata.as_str().len();
        if bytes > VECTOR_METADATA_BYTES_MAX {
            return Err(malformed(format!(
                "the metadata has {bytes} bytes as canonical JSON; at most {VECTOR_METADATA_BYTES_MAX} are kept"
            )));
        }
        Ok(Self {
            model,
            embedding,
            content,
            metadata,
        })
    }

    pub fn model(&self) -> &ModelIdentity {
        &self.model
    }

    pub fn embedding(&self) -> &Embedding {
        &self.embedding
    }

    pub fn content(&self) -> &str {
        self.content.as_str()
    }

    pub fn metadata(&self) -> &DataValue {
        &self.metadata
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VectorChange {
    Store {
        key: DataKey,
        new: Box<NewVector>,
        /// The model whose vector under this key goes in the same moment.
        replaces: Option<ModelFingerprint>,
    },
    /// From the tables of these models: at least one, each once, in order.
    Delete {
        key: DataKey,
        models: Vec<ModelFingerprint>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Store {
    key: String,
    model: Identity,
    embedding: String,
    content: String,
    metadata: String,
    #[serde(default)]
    replaces: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {
    provider: String,
    model: String,
    version: String,
    dim: usize,
    quantization: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delete {
    key: String,
    models: Vec<String>,
}

impl From<ModelError> for OpError {
    fn from(error: ModelError) -> Self {
        malformed(error.to_string())
    }
}

impl From<EmbeddingError> for OpError {
    fn from(error: EmbeddingError) -> Self {
        malformed(error.to_string())
    }
}

impl VectorChange {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Store { .. } => "vector.store",
            Self::Delete { .. } => "vector.delete",
        }
    }

    pub(super) fn fields(&self) -> Value {
        match self {
            Self::Store { key, new, replaces } => {
                let mut fields = json!({
                    "key": key.as_str(),
                    "model": {
                        "provider": new.model.provider(),
                        "model": new.model.model(),
                        "version": new.model.version(),
                        "dim": new.model.dim(),
                        "quantization": QUANTIZATION,
                    },
                    "embedding": new.embedding.to_base64(),
                    "content": new.content(),
                    "metadata": new.metadata.as_str(),
                });
                if let Some(model) = replaces {
                    fields["replaces"] = json!(model.to_string());
                }
                fields
            }
            Self::Delete { key, models } => {
                let models: Vec<String> = models.iter().map(ToString::to_string).collect();
                json!({"key": key.as_str(), "models": models})
            }
        }
    }

    pub(super) fn parse(verb: &str, given: Value) -> Result<Self, OpError> {
        match verb {
            "store" => store(fields(given)?),
            "delete" => {
                let given: Delete = fields(given)?;
                let models = given.models.iter().map(|text| text.parse());
                let models = models.collect::<Result<Vec<ModelFingerprint>, _>>()?;
                let is_set = models.windows(2).all(|pair| pair[0] < pair[1]);
                if models.is_empty() || models.len() > VECTOR_MODELS_MAX || !is_set {
                    return Err(malformed("its models are not a set of a few"));
                }
                let key = DataKey::kept(&given.key)?;
                Ok(Self::Delete { key, models })
            }
            _ => Err(unknown(&format!("vector.{verb}"))),
        }
    }
}

fn store(given: Store) -> Result<VectorChange, OpError> {
    let Identity {
        provider,
        model,
        version,
        dim,
        quantization,
    } = given.model;
    let identity = ModelIdentity::new(&provider, &model, &version, dim, &quantization)?;
    if (identity.provider(), identity.model(), identity.version())
        != (&*provider, &*model, &*version)
    {
        return Err(malformed("its model is not in its normal form"));
    }
    let replaces = given.replaces.map(|text| text.parse()).transpose()?;
    if replaces == Some(identity.fingerprint()) {
        return Err(malformed("a model does not replace itself"));
    }
    let embedding = Embedding::from_base64(&given.embedding)?;
    let content = VectorContent::new(given.content)?;
    let metadata = DataValue::kept(given.metadata)?;
    Ok(VectorChange::Store {
        key: DataKey::kept(&given.key)?,
        new: Box::new(NewVector::new(identity, embedding, content, metadata)?),
        replaces,
    })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::clock::WallMs;
    use crate::ids::OpId;
    use crate::lamport::{PeerId, Stamp};
    use crate::op::{DataOp, OpBody, Over};

    fn op(change: VectorChange) -> DataOp {
        DataOp {
            stamp: Stamp {
                lamport: 7,
                peer: PeerId::new("01M/planner"),
                op: OpId(Uuid::from_u128(9)),
            },
            incarnation: 2,
            at: WallMs(1_000),
            over: Over::Unsaid,
            body: OpBody::Vector(change),
        }
    }

    fn model(name: &str) -> ModelIdentity {
        ModelIdentity::new("p", name, "1", 2, QUANTIZATION).unwrap()
    }

    fn stored(replaces: Option<ModelFingerprint>) -> DataOp {
        let new = NewVector::new(
            model("m"),
            Embedding::new(vec![1.0, -0.5]).unwrap(),
            VectorContent::new("text é\u{0}".to_owned()).unwrap(),
            DataValue::new(&json!({"n": 1e16})).unwrap(),
        );
        op(VectorChange::Store {
            key: DataKey::parse("k").unwrap(),
            new: Box::new(new.unwrap()),
            replaces,
        })
    }

    fn deleted(models: Vec<ModelFingerprint>) -> DataOp {
        let key = DataKey::parse("k").unwrap();
        op(VectorChange::Delete { key, models })
    }

    #[test]
    fn every_op_comes_back_from_its_bytes_with_every_bit_of_its_numbers() {
        let (a, b) = (model("a").fingerprint(), model("b").fingerprint());
        for op in [
            stored(None),
            stored(Some(a)),
            deleted(vec![a.min(b), a.max(b)]),
        ] {
            let bytes = op.to_bytes().unwrap();
            assert_eq!(DataOp::parse(&bytes).unwrap(), op);
            assert_eq!(DataOp::parse(&bytes).unwrap().to_bytes().unwrap(), bytes);
        }
    }

    #[test]
    fn hostile_ops_are_refused_and_an_unknown_one_is_told_apart() {
        let own = model("m").fingerprint().to_string();
        let good = String::from_utf8(stored(None).to_bytes().unwrap()).unwrap();
        for (from, to) in [
            (r#""dim":2"#, r#""dim":3"#),
            (r#""dim":2"#, r#""dim":0"#),
            (r#""dim":2"#, r#""dim":2,"x":1"#),
            (r#""embedding":"AACAPwAAAL8=""#, r#""embedding":"""#),
            // Not a number, infinite, all zero, one number and a half.
            (
                r#""embedding":"AACAPwAAAL8=""#,
                r#""embedding":"AACAPwAAwH8=""#,
            ),
            (
                r#""embedding":"AACAPwAAAL8=""#,
                r#""embedding":"AACAPwAAgH8=""#,
            ),
            (
                r#""embedding":"AACAPwAAAL8=""#,
                r#""embedding":"AAAAAAAAAAA=""#,
            ),
            (r#""embedding":"AACAPwAAAL8=""#, r#""embedding":"AACAPwAA""#),
            (r#""provider":"p""#, r#""provider":"p:q""#),
            (r#""model":"m""#, r#""model":"cafe\u0301""#),
            ("float32", "int8"),
            (r#""metadata":"{"#, r#""metadata":" {"#),
            (r#""content":"text"#, r#""content":7,"text":""#),
            (r#""key":"k""#, &format!(r#""key":"k","replaces":"{own}""#)),
            (r#""key":"k""#, r#""key":"k","replaces":"x'; DROP TABLE m""#),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good);
            let error = DataOp::parse(bad.as_bytes()).unwrap_err();
            assert!(matches!(error, OpError::Malformed(_)), "{bad}: {error:?}");
        }
        let (a, b) = (model("a").fingerprint(), model("b").fingerprint());
        for bad in [vec![], vec![a, a], vec![a.max(b), a.min(b)]] {
            let bytes = deleted(bad).to_bytes().unwrap();
            assert!(DataOp::parse(&bytes).is_err());
        }
        let other = good.replace("vector.store", "vector.dream");
        let error = DataOp::parse(other.as_bytes()).unwrap_err();
        assert_eq!(error, OpError::UnknownOp("vector.dream".to_owned()));
    }
}
