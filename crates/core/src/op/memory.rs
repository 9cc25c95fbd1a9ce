//! Ops on memory: `memory.remember`, `memory.forget`. The stamp's peer is the owner.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{OpError, fields, unknown};
use crate::data::{DataKey, DataValue, Tags};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMemory {
    pub value: DataValue,
    pub tags: Tags,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryChange {
    pub key: DataKey,
    /// `None` forgets.
    pub write: Option<NewMemory>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Remember {
    key: String,
    value: String,
    tags: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Forget {
    key: String,
}

impl MemoryChange {
    pub(super) fn name(&self) -> &'static str {
        match self.write {
            Some(_) => "memory.remember",
            None => "memory.forget",
        }
    }

    pub(super) fn fields(&self) -> Value {
        match &self.write {
            Some(new) => json!({
                "key": self.key.as_str(),
                "value": new.value.as_str(),
                "tags": new.tags.as_slice(),
            }),
            None => json!({"key": self.key.as_str()}),
        }
    }

    pub(super) fn parse(verb: &str, given: Value) -> Result<Self, OpError> {
        match verb {
            "remember" => {
                let given: Remember = fields(given)?;
                Ok(Self {
                    key: DataKey::kept(&given.key)?,
                    write: Some(NewMemory {
                        value: DataValue::kept(given.value)?,
                        tags: Tags::parse(&given.tags)?,
                    }),
                })
            }
            "forget" => {
                let given: Forget = fields(given)?;
                let key = DataKey::kept(&given.key)?;
                Ok(Self { key, write: None })
            }
            _ => Err(unknown(&format!("memory.{verb}"))),
        }
    }
}
