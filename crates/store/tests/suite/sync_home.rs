//! A home in a mesh that has others, and ops as the log brings them.

use std::time::Duration;

use heddle_core::clock::{Ids, ManualIds, WallMs};
use heddle_core::data::{DataKey, DataValue};
use heddle_core::envelope::EnvelopeKind;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{ClientMessageId, HistoryId, MemberId, MeshId, OpId, Party};
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::names::{AgentName, MemberName, MeshName};
use heddle_core::op::{DataOp, NewState, OpBody, Over, StateChange};
use heddle_core::outbox_status::OutboxStatus;
use heddle_core::sync::OpMove;
use heddle_store::{
    Applied, AppliedOps, ChangeKey, DueOp, NewMesh, NewOp, OpSettle, OutboxFind, Receipt,
    ReceivedOps, Store, SyncHead,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fixture::{NOW, open};

/// A home with one mesh.
pub(crate) struct Home {
    pub(crate) folder: TempDir,
    pub(crate) store: Store,
    pub(crate) ids: ManualIds,
    pub(crate) mesh: MeshId,
    pub(crate) member: MemberId,
}

impl Home {
    /// In a mesh that has others.
    pub(crate) async fn shared(seed: u64) -> Self {
        Self::new(seed, Some("ws://127.0.0.1:1/".to_owned())).await
    }

    pub(crate) async fn new(seed: u64, broker_url: Option<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder.path().join("data.db")).unwrap();
        let ids = ManualIds::seeded(seed);
        let name = MeshName::parse("team").unwrap();
        let mesh = store
            .ensure_mesh(NewMesh {
                mesh: MeshId::named(&name),
                name,
                member: MemberId(ids.ulid()),
                member_name: MemberName::parse("ann").unwrap(),
                broker_url,
                now: NOW,
            })
            .await
            .unwrap();
        Self {
            folder,
            store,
            ids,
            mesh: mesh.mesh,
            member: mesh.member,
        }
    }

    /// What a disk does to the file: no guard of the tables is asked.
    pub(crate) fn unguarded<R>(&self, work: impl FnOnce(&rusqlite::Connection) -> R) -> R {
        let raw = rusqlite::Connection::open(self.folder.path().join("data.db")).unwrap();
        let guards = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'";
        let mut statement = raw.prepare(guards).unwrap();
        let guards: Vec<(String, String)> = statement
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        for (name, _) in &guards {
            raw.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
        }
        let done = work(&raw);
        for (_, sql) in &guards {
            raw.execute_batch(sql).unwrap();
        }
        done
    }

    pub(crate) fn party(&self) -> Party {
        Party {
            member: self.member,
            agent: AgentName::parse("planner").unwrap(),
        }
    }

    /// A key that nobody has used.
    pub(crate) fn change(&self) -> ChangeKey {
        ChangeKey {
            mesh: self.mesh,
            peer: self.party(),
            id: ClientMessageId::minted(self.ids.ulid()),
            fingerprint: Fingerprint([1; 32]),
            op: OpId(self.ids.uuid_v7()),
            now: NOW,
        }
    }

    pub(crate) async fn set(&self, key: &str, value: Value) -> Receipt {
        let id = self.change();
        let value = DataValue::new(&value).unwrap();
        let new: Result<_, ()> = Ok(NewState { value });
        let key = DataKey::parse(key).unwrap();
        match self.store.set_state(id, key, new).await.unwrap() {
            Applied::Fresh(receipt) => receipt,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn due(&self) -> Vec<DueOp> {
        let due = self.store.due_ops(self.mesh, Duration::MAX, 1000, 1 << 20);
        due.await.unwrap()
    }

    pub(crate) async fn head(&self) -> SyncHead {
        self.store.sync_head(self.mesh).await.unwrap()
    }

    pub(crate) async fn settle(&self, op: &DueOp, next: OpMove) -> bool {
        let settle = OpSettle {
            arrival: op.arrival,
            row: op.row,
            attempts: op.attempts,
            next,
            begun: NOW,
            at: NOW,
            due: Duration::ZERO,
        };
        self.store
            .settle_ops(self.mesh, vec![settle])
            .await
            .unwrap()
    }

    pub(crate) async fn receive(&self, ops: Vec<NewOp>) -> ReceivedOps {
        let received = self.store.receive_ops(self.mesh, self.member, 1, ops, NOW);
        received.await.unwrap()
    }

    pub(crate) async fn apply(&self) -> AppliedOps {
        self.store.apply_ops(self.mesh, 100, NOW).await.unwrap()
    }

    pub(crate) async fn get(&self, key: &str) -> Option<String> {
        let key = DataKey::parse(key).unwrap();
        let row = self.store.get_state(self.mesh, key).await.unwrap();
        row.map(|row| row.value)
    }

    pub(crate) async fn status(&self, id: &str) -> (OutboxStatus, u32, Option<HistoryId>) {
        let id = ClientMessageId::parse(id).unwrap();
        let find = OutboxFind::ClientMessageId {
            id,
            mesh: Some(self.mesh),
            agent: None,
        };
        let found = self.store.outbox_find(find).await.unwrap();
        let row = &found[0];
        assert_eq!(row.kind, EnvelopeKind::Op);
        (row.status, row.attempts, row.history_id)
    }
}

/// Somebody else's op, as the log brings it.
pub(crate) fn foreign(
    place: HistoryId,
    previous: HistoryId,
    lamport: u64,
    key: &str,
    number: u8,
) -> NewOp {
    let sender = Party {
        member: MemberId(ulid::Ulid::from_bytes([7; 16])),
        agent: AgentName::parse("coder").unwrap(),
    };
    let op = DataOp {
        stamp: Stamp {
            lamport,
            peer: PeerId::new(&sender.to_string()),
            op: OpId::from_bytes([number; 16]),
        },
        incarnation: 1,
        at: WallMs(5),
        over: Over::Unsaid,
        body: OpBody::State(StateChange {
            key: DataKey::parse(key).unwrap(),
            write: Some(NewState {
                value: DataValue::new(&json!(number)).unwrap(),
            }),
        }),
    };
    NewOp {
        history_id: place,
        previous,
        sender,
        client_message_id: ClientMessageId::parse(&op.stamp.op.to_string()).unwrap(),
        op: Ok(op.to_bytes().unwrap()),
    }
}

pub(crate) fn op_of(due: &DueOp) -> DataOp {
    let envelope: Value = serde_json::from_slice(&due.payload).unwrap();
    assert_eq!(envelope["kind"], "op");
    assert_eq!(
        envelope["destination"],
        json!({"kind": "log", "ref": "ops"})
    );
    DataOp::parse(envelope["body"].as_str().unwrap().as_bytes()).unwrap()
}
