//! An op: one change to the data of a mesh, as its origin made it and as every replica takes it.
//!
//! The bytes of an op are the RFC 8785 form of one object: the header (`v`, `op`, `lamport`, `peer`,
//! `op_id`, `incarnation`, `at`, for some `over`) and the fields of its noun. What is parsed has been checked as if it
//! had come through a door of this home; an op that this build does not know is an error of its own,
//! so that it can be set aside for a younger build (C38).
//!
//! IMPORTANT: that the stamp's peer is who sent the op is known only to whoever received it.

mod file;
mod memory;
mod over;
mod published;
mod sealed;
mod state;
mod task;
mod vector;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

pub use file::FileChange;
pub use memory::{MemoryChange, NewMemory};
pub use over::Over;
pub use published::snapshot_id;
pub use sealed::{Sealed, is_sealed_as, seal};
pub use state::{NewState, StateChange};
pub use task::TaskChange;
pub use vector::{NewVector, VectorChange, VectorContent};

use crate::canonical::{CanonicalError, canonicalize, parse_ijson};
use crate::clock::WallMs;
use crate::data::DataError;
use crate::ids::OpId;
use crate::lamport::{PeerId, Stamp};
use crate::limits::{OP_BYTES_MAX, PEER_BYTES_MAX};

/// The version that this build writes.
const VERSION: u64 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataOp {
    pub stamp: Stamp,
    /// Which life of the origin's file the stamp was counted in (C39).
    pub incarnation: u64,
    /// The origin's wall clock: for people, never for an order.
    pub at: WallMs,
    /// For whoever is to be told that its write was lost; it decides nothing of the rows.
    pub over: Over,
    pub body: OpBody,
}

/// What changes. One variant for each noun; its file says which verbs it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpBody {
    Memory(MemoryChange),
    State(StateChange),
    Task(TaskChange),
    File(FileChange),
    Vector(VectorChange),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    #[error("op {0:?} is not known to this build")]
    UnknownOp(String),
    #[error("not an op: {0}")]
    Malformed(String),
}

impl From<DataError> for OpError {
    fn from(error: DataError) -> Self {
        Self::Malformed(error.to_string())
    }
}

impl From<CanonicalError> for OpError {
    fn from(error: CanonicalError) -> Self {
        Self::Malformed(error.to_string())
    }
}

impl OpBody {
    /// `noun.verb`, as the op is called in its bytes.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Memory(change) => change.name(),
            Self::State(change) => change.name(),
            Self::Task(change) => change.name(),
            Self::File(change) => change.name(),
            Self::Vector(change) => change.name(),
        }
    }

    /// Whether its op names the write that it was made over: one row, overwritten as a whole.
    pub fn says_over(&self) -> bool {
        matches!(self, Self::Memory(_) | Self::State(_))
    }

    fn fields(&self) -> Value {
        match self {
            Self::Memory(change) => change.fields(),
            Self::State(change) => change.fields(),
            Self::Task(change) => change.fields(),
            Self::File(change) => change.fields(),
            Self::Vector(change) => change.fields(),
        }
    }

    /// `op` is the op's own id: what it makes is called by it.
    fn parse(name: &str, fields: Value, op: OpId) -> Result<Self, OpError> {
        match name.split_once('.') {
            Some(("memory", verb)) => MemoryChange::parse(verb, fields).map(Self::Memory),
            Some(("state", verb)) => StateChange::parse(verb, fields).map(Self::State),
            Some(("task", verb)) => TaskChange::parse(verb, fields, op).map(Self::Task),
            Some(("file", verb)) => FileChange::parse(verb, fields).map(Self::File),
            Some(("vector", verb)) => VectorChange::parse(verb, fields).map(Self::Vector),
            _ => Err(unknown(name)),
        }
    }
}

impl DataOp {
    pub fn to_bytes(&self) -> Result<Vec<u8>, OpError> {
        let mut object = match self.body.fields() {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        for (key, value) in [
            ("v", json!(VERSION)),
            ("op", json!(self.body.name())),
            ("lamport", json!(self.stamp.lamport)),
            ("peer", json!(self.stamp.peer.as_str())),
            ("op_id", json!(self.stamp.op.to_string())),
            ("incarnation", json!(self.incarnation)),
            ("at", json!(self.at.0)),
        ] {
            object.insert(key.to_owned(), value);
        }
        if let Some(over) = self.over.field() {
            object.insert("over".to_owned(), over);
        }
        Ok(canonicalize(&Value::Object(object))?)
    }

    /// Refuses everything that an honest origin would never have written.
    pub fn parse(bytes: &[u8]) -> Result<Self, OpError> {
        if bytes.len() > OP_BYTES_MAX {
            let size = bytes.len();
            return Err(malformed(format!(
                "{size} bytes are more than {OP_BYTES_MAX}"
            )));
        }
        let Value::Object(mut object) = parse_ijson(bytes)? else {
            return Err(malformed("it is no object"));
        };
        if take::<u64>(&mut object, "v")? != VERSION {
            return Err(malformed("its version is unknown"));
        }
        let name: String = take(&mut object, "op")?;
        let op: String = take(&mut object, "op_id")?;
        let op = op
            .parse::<OpId>()
            .map_err(|error| malformed(error.to_string()))?;
        let stamp = Stamp {
            lamport: take(&mut object, "lamport")?,
            peer: peer(&take::<String>(&mut object, "peer")?)?,
            op,
        };
        let over = Over::parse(take::<Option<String>>(&mut object, "over")?.as_deref())?;
        let op = Self {
            stamp,
            incarnation: take(&mut object, "incarnation")?,
            at: WallMs(take(&mut object, "at")?),
            over,
            body: OpBody::parse(&name, Value::Object(object), op)?,
        };
        if over != Over::Unsaid && !op.body.says_over() {
            return Err(malformed("it is no write that can be made over another"));
        }
        Ok(op)
    }
}

fn peer(text: &str) -> Result<PeerId, OpError> {
    let peer = PeerId::new(text);
    let is_plain = peer.as_str() == text && !text.chars().any(char::is_control);
    if text.is_empty() || text.len() > PEER_BYTES_MAX || !is_plain {
        return Err(malformed("its peer cannot be one"));
    }
    Ok(peer)
}

fn take<T: DeserializeOwned>(
    object: &mut Map<String, Value>,
    key: &'static str,
) -> Result<T, OpError> {
    let value = object.remove(key).unwrap_or(Value::Null);
    serde_json::from_value(value).map_err(|error| malformed(format!("{key}: {error}")))
}

/// The fields of a noun, each of them known (`deny_unknown_fields` is the noun's to say).
fn fields<T: DeserializeOwned>(fields: Value) -> Result<T, OpError> {
    serde_json::from_value(fields).map_err(|error| malformed(error.to_string()))
}

fn malformed(why: impl Into<String>) -> OpError {
    OpError::Malformed(why.into())
}

fn unknown(name: &str) -> OpError {
    OpError::UnknownOp(name.chars().take(60).collect())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::data::{DataKey, DataValue, Tags};

    fn op(body: OpBody) -> DataOp {
        DataOp {
            stamp: Stamp {
                lamport: 7,
                peer: PeerId::new("01M/planner"),
                op: OpId(Uuid::from_u128(9)),
            },
            incarnation: 2,
            at: WallMs(1_000),
            over: Over::Unsaid,
            body,
        }
    }

    fn every_kind() -> Vec<DataOp> {
        let key = DataKey::parse("k").unwrap();
        // 1e16 is canonical as an integer that a strict reader refuses: a value travels as text.
        let value = DataValue::new(&json!({"n": 1e16, "t": "é\u{0}"})).unwrap();
        let tags = Tags::parse(&["b", "a"]).unwrap();
        let new = NewMemory {
            value: value.clone(),
            tags,
        };
        let memory = |write| {
            op(OpBody::Memory(MemoryChange {
                key: key.clone(),
                write,
            }))
        };
        let state = |write| {
            op(OpBody::State(StateChange {
                key: key.clone(),
                write,
            }))
        };
        vec![
            memory(Some(new)),
            memory(None),
            state(Some(NewState { value })),
            state(None),
        ]
    }

    #[test]
    fn every_op_comes_back_from_its_bytes() {
        let over = [Over::Nothing, Over::Write(OpId(Uuid::from_u128(3)))];
        let over = over.map(|over| DataOp {
            over,
            ..every_kind().remove(3)
        });
        for op in every_kind().into_iter().chain(over) {
            let bytes = op.to_bytes().unwrap();
            assert_eq!(DataOp::parse(&bytes).unwrap(), op);
            assert_eq!(DataOp::parse(&bytes).unwrap().to_bytes().unwrap(), bytes);
        }
    }

    #[test]
    fn the_bytes_of_an_op_are_published() {
        let bytes = every_kind()[3].to_bytes().unwrap();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            r#"{"at":1000,"incarnation":2,"key":"k","lamport":7,"op":"state.delete","op_id":"00000000-0000-0000-0000-000000000009","peer":"01M/planner","v":1}"#
        );
    }

    #[test]
    fn hostile_bytes_are_refused_with_their_reason() {
        let good = String::from_utf8(every_kind()[2].to_bytes().unwrap()).unwrap();
        for (from, to) in [
            (r#""v":1"#, r#""v":2"#),
            (r#""v":1"#, r#""v":1,"extra":0"#),
            (r#""lamport":7"#, r#""lamport":9223372036854775807"#),
            (r#""lamport":7"#, r#""lamport":-1"#),
            (r#""lamport":7"#, r#""lamport":7.5"#),
            (r#""lamport":7,"#, ""),
            (r#""incarnation":2"#, r#""incarnation":"2""#),
            (r#""v":1"#, r#""v":1,"over":"x""#),
            (r#""v":1"#, r#""v":1,"over":7"#),
            (r#""peer":"01M/planner""#, r#""peer":"""#),
            (r#""peer":"01M/planner""#, r#""peer":"cafe\u0301""#),
            (r#""peer":"01M/planner""#, r#""peer":"a\u0000""#),
            (r#""key":"k""#, r#""key":"""#),
            (r#""key":"k""#, r#""key":"cafe\u0301""#),
            (r#""value":"{"#, r#""value":" {"#),
            (r#""value":"{"#, r#""value":"{{"#),
            ("{", "[{"),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good);
            let error = DataOp::parse(bad.as_bytes()).unwrap_err();
            assert!(matches!(error, OpError::Malformed(_)), "{bad}: {error:?}");
        }
        for cut in 0..good.len() {
            assert!(DataOp::parse(&good.as_bytes()[..cut]).is_err());
        }
        let huge = " ".repeat(OP_BYTES_MAX + 1);
        assert!(DataOp::parse(huge.as_bytes()).is_err());
    }

    #[test]
    fn c38_an_op_of_a_younger_build_is_told_from_nonsense() {
        let good = String::from_utf8(every_kind()[2].to_bytes().unwrap()).unwrap();
        for name in ["dream.set", "state.dream", "memory.", "state", ""] {
            let other = good.replace("state.set", name);
            let error = DataOp::parse(other.as_bytes()).unwrap_err();
            assert_eq!(error, OpError::UnknownOp(name.to_owned()));
        }
    }
}
