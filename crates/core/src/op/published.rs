//! The id under which a row of before is sent when its mesh is published (C21).
//!
//! A row is the outcome of an op that was made when the mesh had nobody else, and carries its stamp still. One
//! op may have left several rows, and each is sent by itself: so an id of its own, derived from what the row is
//! and nothing else. Whoever sends the row again, after a crash or from an older copy of the file, sends it
//! under the same id, and a broker knows it. Whoever receives it derives the id as well.

use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};
use uuid::{Builder, Uuid};

use super::{DataOp, OpBody, VectorChange};
use crate::ids::{MeshId, OpId};

/// The name space of these ids; chosen once, at random.
const NAMES: Uuid = Uuid::from_u128(0x6f0a_5a0c_8a3e_4b52_9d0e_6d1b_7a54_c3f1);

impl DataOp {
    /// UUIDv5 of mesh, table, row key and stamp. The op's own id is part of it: a file that was put back from
    /// an older copy may count a number a second time, for another row.
    pub fn published_id(&self, mesh: MeshId) -> OpId {
        let name = json!([
            "heddle.publish.v1",
            mesh.to_string(),
            self.row_key(),
            self.stamp.lamport,
            self.stamp.op.to_string(),
        ]);
        derived(&name)
    }

    /// The table, and what is unique in it.
    fn row_key(&self) -> Value {
        let peer = self.stamp.peer.as_str();
        match &self.body {
            OpBody::Memory(change) => json!(["memory", change.key.as_str(), peer]),
            OpBody::State(change) => json!(["state_kv", change.key.as_str()]),
            OpBody::Task(change) => json!(["task_op", change.task.to_string()]),
            OpBody::File(change) => json!(["files", peer, change.path.as_str()]),
            OpBody::Vector(VectorChange::Store { key, new, .. }) => {
                let models = [new.model().fingerprint().to_string()];
                json!(["vector_metadata", key.as_str(), peer, models])
            }
            OpBody::Vector(VectorChange::Delete { key, models }) => {
                let models: Vec<String> = models.iter().map(ToString::to_string).collect();
                json!(["vector_metadata", key.as_str(), peer, models])
            }
        }
    }
}

/// The snapshot of a publish: the same one whenever it is begun again.
pub fn snapshot_id(mesh: MeshId, through_lamport: u64) -> OpId {
    derived(&json!([
        "heddle.snapshot.v1",
        mesh.to_string(),
        through_lamport
    ]))
}

/// UUIDv5 of a name.
fn derived(name: &Value) -> OpId {
    let mut digest = Sha1::new();
    digest.update(NAMES.as_bytes());
    digest.update(name.to_string().as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.finalize()[..16]);
    OpId(Builder::from_sha1_bytes(bytes).into_uuid())
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;
    use crate::clock::WallMs;
    use crate::data::DataKey;
    use crate::lamport::{PeerId, Stamp};
    use crate::op::{MemoryChange, Over, StateChange};

    fn op(lamport: u64, id: u128, peer: &str, body: OpBody) -> DataOp {
        DataOp {
            stamp: Stamp {
                lamport,
                peer: PeerId::new(peer),
                op: OpId(Uuid::from_u128(id)),
            },
            incarnation: 1,
            at: WallMs(5),
            over: Over::Unsaid,
            body,
        }
    }

    fn state(key: &str) -> OpBody {
        let key = DataKey::parse(key).unwrap();
        OpBody::State(StateChange { key, write: None })
    }

    fn memory(key: &str) -> OpBody {
        let key = DataKey::parse(key).unwrap();
        OpBody::Memory(MemoryChange { key, write: None })
    }

    #[test]
    fn c21_a_row_has_one_id_and_every_other_row_another() {
        let mesh = MeshId(Ulid(7));
        let base = op(3, 9, "01M/a", state("k"));
        let id = base.published_id(mesh);
        assert_eq!(id, base.clone().published_id(mesh));
        assert_eq!(id.0.get_version_num(), 5);
        assert_eq!(
            id.to_string(),
            "a7bac672-8b64-5106-a0a3-7444f411a5b9",
            "an id that changes is a row that comes twice"
        );
        let mut seen = vec![id, base.published_id(MeshId(Ulid(8)))];
        for other in [
            op(4, 9, "01M/a", state("k")),
            op(3, 8, "01M/a", state("k")),
            op(3, 9, "01M/a", state("l")),
            op(3, 9, "01M/a", memory("k")),
            op(3, 9, "01M/b", memory("k")),
        ] {
            seen.push(other.published_id(mesh));
        }
        let count = seen.len();
        seen.sort_by_key(|id| id.to_bytes());
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
