//! The judge: its own model of what the replicas must hold in the end.

use std::collections::{BTreeMap, BTreeSet};

use heddle_broker::storage::{Log, LogRow, PageLimit};
use heddle_core::ids::{HistoryId, MeshId, OpId};
use heddle_core::op::{DataOp, OpBody};
use heddle_store::{Store, StoreError};
use heddle_wire::broker::Envelope;
use serde_json::{Value, json};

use crate::world::World;

impl World {
    pub(crate) async fn judge(&mut self) {
        let log = self.log().await;
        let ops: Vec<DataOp> = log.iter().map(op_in).collect();
        let logged: BTreeSet<OpId> = ops.iter().map(|op| op.stamp.op).collect();
        assert_eq!(logged.len(), ops.len(), "LF-13: one place for one op");
        assert!(logged.is_subset(&self.attempted), "final ⊆ attempted");
        for replica in &self.replicas {
            let acked: BTreeSet<OpId> = replica.acknowledged.iter().copied().collect();
            let missing = acked.difference(&logged).count();
            assert_eq!(missing, 0, "acknowledged ⊆ final");
        }
        rising(&ops);
        let expected = model(&ops);
        for replica in &self.replicas {
            let figures = replica.store.sync_figures(self.mesh).await.unwrap();
            assert_eq!((figures.in_waiting, figures.in_parked), (0, 0));
            let head = replica.store.sync_head(self.mesh).await.unwrap();
            assert!(!head.needs_resync, "LF-15");
            assert_eq!(Some(head.log), log.last().map(|row| row.history_id));
            let dump = dump(&replica.store, self.mesh).await;
            assert_eq!(dump, expected, "LF-09: {}", replica.path.display());
        }
    }

    async fn log(&self) -> Vec<LogRow> {
        let limit = PageLimit {
            rows_max: usize::MAX,
            bytes_max: usize::MAX,
        };
        let page = self
            .gate
            .storage
            .log_after(self.mesh, HistoryId::ZERO, limit);
        page.await.unwrap().rows
    }
}

fn op_in(row: &LogRow) -> DataOp {
    let envelope = Envelope::parse(row.envelope.as_bytes()).unwrap();
    DataOp::parse(envelope.body.as_bytes()).unwrap()
}

/// LF-02: within one life of a file a peer's stamps rise, and no stamp is used twice.
fn rising(ops: &[DataOp]) {
    let mut stamps = BTreeSet::new();
    for op in ops {
        let stamp = (
            op.stamp.peer.as_str().to_owned(),
            op.incarnation,
            op.stamp.lamport,
        );
        assert!(stamps.insert(stamp), "LF-02: a stamp was used twice");
    }
}

/// The judge's own last writer wins, and its own idea of a dump.
fn model(ops: &[DataOp]) -> Vec<Value> {
    type Order = (u64, Vec<u8>, [u8; 16]);
    let mut rows: BTreeMap<(u8, String, String), (Order, Value)> = BTreeMap::new();
    for op in ops {
        let peer = op.stamp.peer.as_str().to_owned();
        let order: Order = (
            op.stamp.lamport,
            peer.clone().into_bytes(),
            op.stamp.op.to_bytes(),
        );
        let header = json!({
            "lamport": op.stamp.lamport, "op_id": op.stamp.op.to_string(),
            "incarnation": op.incarnation, "updated_at": op.at.0,
        });
        let (key, mut row) = match &op.body {
            OpBody::Memory(change) => {
                let write = change.write.as_ref();
                let tags: Vec<&str> = write
                    .map(|new| new.tags.as_slice().iter().map(String::as_str).collect())
                    .unwrap_or_default();
                let row = json!({
                    "table": "memory", "key": change.key.as_str(), "peer": peer,
                    "value": write.map(|new| new.value.as_str()), "tags": json!(tags).to_string(),
                });
                ((0, change.key.as_str().to_owned(), peer), row)
            }
            OpBody::State(change) => {
                let row = json!({
                    "table": "state_kv", "key": change.key.as_str(), "updated_by": peer,
                    "value": change.write.as_ref().map(|new| new.value.as_str()),
                });
                ((1, change.key.as_str().to_owned(), String::new()), row)
            }
            // Folded, not overwritten: the world makes none of them yet.
            OpBody::Task(_) | OpBody::File(_) | OpBody::Vector(_) => continue,
        };
        for (name, value) in header.as_object().unwrap() {
            row[name] = value.clone();
        }
        let known = rows.get(&key).map(|(order, _)| order.clone());
        if known.is_none_or(|known| order > known) {
            rows.insert(key, (order, row));
        }
    }
    rows.into_values().map(|(_, row)| row).collect()
}

async fn dump(store: &Store, mesh: MeshId) -> Vec<Value> {
    let page: Result<_, StoreError> = store.dump(mesh, 0, usize::MAX).await;
    let lines = page.unwrap().lines;
    lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
