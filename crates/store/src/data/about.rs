//! Under which name an op's effect stands, and whether anything is there. An answer keeps it beside the stamp: a row of the data
//! that is gone as a whole says nothing, so only what was written elsewhere tells that it was there.

use heddle_core::ids::MeshId;
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::op::{OpBody, VectorChange};
use heddle_core::task::TaskId;
use rusqlite::{Connection, params};
use serde_json::{Value, json};

use crate::data::files;
use crate::data::floor::{Noun, floor};
use crate::error::StoreError;

/// A name in a table of the data. Its owner is whoever made the op; an entry of the state is everybody's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum About {
    Memory(String),
    State(String),
    File(String),
    Task(TaskId),
    /// Under each of these models.
    Vector(String, Vec<String>),
}

pub(crate) const MEMORY: &str =
    "SELECT 1 FROM memory WHERE mesh_id = ?1 AND key = ?2 AND peer = ?3";
pub(crate) const STATE: &str = "SELECT 1 FROM state_kv WHERE mesh_id = ?1 AND key = ?2";
pub(crate) const FILE: &str = "SELECT 1 FROM files WHERE mesh_id = ?1 AND peer = ?3 AND path = ?2";
pub(crate) const VECTOR: &str =
    "SELECT 1 FROM vector_metadata WHERE mesh_id = ?1 AND key = ?2 AND peer = ?3 AND model_id = ?4";
pub(crate) const STEPS: &str = "SELECT 1 FROM task_op WHERE mesh_id = ?1 AND task_id = ?2";
pub(crate) const TASK: &str = "SELECT 1 FROM tasks WHERE mesh_id = ?1 AND task_id = ?2";

impl About {
    pub(crate) fn of(body: &OpBody) -> Self {
        match body {
            OpBody::Memory(change) => Self::Memory(change.key.as_str().to_owned()),
            OpBody::State(change) => Self::State(change.key.as_str().to_owned()),
            OpBody::File(change) => Self::File(change.path.as_str().to_owned()),
            OpBody::Task(change) => Self::Task(change.task),
            OpBody::Vector(VectorChange::Store { key, new, .. }) => {
                let model = new.model().fingerprint().to_string();
                Self::Vector(key.as_str().to_owned(), vec![model])
            }
            OpBody::Vector(VectorChange::Delete { key, models }) => {
                let models = models.iter().map(ToString::to_string).collect();
                Self::Vector(key.as_str().to_owned(), models)
            }
        }
    }

    /// As an answer keeps it: what it is, its name, and the models of a vector.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Task(task) => json!([self.noun(), task.to_string()]),
            Self::Memory(key) | Self::State(key) | Self::File(key) => json!([self.noun(), key]),
            Self::Vector(key, models) => json!([self.noun(), key, models]),
        }
    }

    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let name = value[1].as_str()?.to_owned();
        Some(match value[0].as_str()? {
            "memory" => Self::Memory(name),
            "state" => Self::State(name),
            "file" => Self::File(name),
            "task" => Self::Task(name.parse().ok()?),
            "vector" => Self::Vector(name, serde_json::from_value(value[2].clone()).ok()?),
            _ => return None,
        })
    }

    pub(crate) fn noun(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::State(_) => "state",
            Self::File(_) => "file",
            Self::Task(_) => "task",
            Self::Vector(..) => "vector",
        }
    }

    /// What its owner knows it by.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Memory(key) | Self::State(key) | Self::File(key) | Self::Vector(key, _) => {
                key.clone()
            }
            Self::Task(task) => task.to_string(),
        }
    }

    /// For people.
    pub(crate) fn called(&self) -> String {
        match self {
            Self::Task(task) => format!("task {task}"),
            _ => format!("{} {:?}", self.noun(), self.name()),
        }
    }

    /// Whether it has no owner.
    pub(crate) fn is_everybodys(&self) -> bool {
        matches!(self, Self::State(_))
    }

    /// Whether a row of that name is there: whatever it says, and a mark of a deleted one too.
    pub(crate) fn is_there(
        &self,
        connection: &Connection,
        mesh: MeshId,
        peer: &PeerId,
    ) -> Result<bool, StoreError> {
        let mesh = mesh.0.to_bytes();
        let one = |sql: &str, name: &str| {
            let mut statement = connection.prepare_cached(sql)?;
            statement.exists(params![mesh, name, peer.as_str()])
        };
        Ok(match self {
            Self::Memory(key) => one(MEMORY, key)?,
            Self::File(path) => one(FILE, path)?,
            Self::State(key) => connection
                .prepare_cached(STATE)?
                .exists(params![mesh, key])?,
            Self::Task(task) => {
                let cells = params![mesh, task.to_bytes()];
                connection.prepare_cached(STEPS)?.exists(cells)?
                    || connection.prepare_cached(TASK)?.exists(cells)?
            }
            Self::Vector(key, models) => {
                let mut statement = connection.prepare_cached(VECTOR)?;
                for model in models {
                    if !statement.exists(params![mesh, key, peer.as_str(), model])? {
                        return Ok(false);
                    }
                }
                true
            }
        })
    }

    /// Whether a mark that was collected may be what took its place (LF-11).
    pub(crate) fn is_collected(
        &self,
        connection: &Connection,
        mesh: MeshId,
        stamp: &Stamp,
    ) -> Result<bool, StoreError> {
        let peer = &stamp.peer;
        let floor = match self {
            Self::Memory(_) => floor(connection, mesh, Noun::Memory, peer)?,
            Self::State(_) => floor(connection, mesh, Noun::State, peer)?,
            Self::Vector(..) => floor(connection, mesh, Noun::Vector, peer)?,
            Self::File(_) => files::floor(connection, mesh, peer)?,
            Self::Task(_) => None,
        };
        Ok(floor.is_some_and(|floor| floor >= *stamp))
    }
}
