//! Ops on the shared state: `state.set`, `state.delete`. The stamp's peer is the writer.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{OpError, fields, unknown};
use crate::data::{DataKey, DataValue};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewState {
    pub value: DataValue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateChange {
    pub key: DataKey,
    /// `None` deletes.
    pub write: Option<NewState>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Set {
    key: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delete {
    key: String,
}

impl StateChange {
    pub(super) fn name(&self) -> &'static str {
        match self.write {
            Some(_) => "state.set",
            None => "state.delete",
        }
    }

    pub(super) fn fields(&self) -> Value {
        match &self.write {
            Some(new) => json!({"key": self.key.as_str(), "value": new.value.as_str()}),
            None => json!({"key": self.key.as_str()}),
        }
    }

    pub(super) fn parse(verb: &str, given: Value) -> Result<Self, OpError> {
        match verb {
            "set" => {
                let given: Set = fields(given)?;
                let value = DataValue::kept(given.value)?;
                Ok(Self {
                    key: DataKey::kept(&given.key)?,
                    write: Some(NewState { value }),
                })
            }
            "delete" => {
                let given: Delete = fields(given)?;
                let key = DataKey::kept(&given.key)?;
                Ok(Self { key, write: None })
            }
            _ => Err(unknown(&format!("state.{verb}"))),
        }
    }
}
