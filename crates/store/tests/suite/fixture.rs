//! A store in a folder of its own, short ways to fill it, and a raw look at its rows.

use std::path::{Path, PathBuf};
use std::time::Duration;

use heddle_core::clock::{Ids, ManualIds, WallMs};
use heddle_core::drain::{RowMove, Waits};
use heddle_core::envelope::{EnvelopeKind, Priority};
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{
    BrokerMessageId, ClientMessageId, HistoryId, MemberId, MeshId, Party, RowId,
};
use heddle_core::names::{AgentName, MemberName};
use heddle_core::outbox_status::OutboxStatus;
use heddle_store::{
    AcceptKey, Accepted, Durability, NewInboxRow, NewOutboxRow, OutboxFind, OutboxRow, Requeue,
    Requeued, Settle, Store, StoreError, StoreOptions,
};
use rusqlite::Connection;
use tempfile::TempDir;

pub(crate) const NOW: WallMs = WallMs(1_794_000_000_000);

pub(crate) struct Fixture {
    pub(crate) folder: TempDir,
    pub(crate) store: Store,
    pub(crate) ids: ManualIds,
    pub(crate) mesh: MeshId,
    pub(crate) member: MemberId,
}

pub(crate) fn open(path: &Path) -> Result<Store, StoreError> {
    Store::open(StoreOptions {
        path: path.to_owned(),
        durability: Durability::Normal,
        vfs: None,
    })
}

pub(crate) fn agent(name: &str) -> AgentName {
    AgentName::parse(name).unwrap()
}

pub(crate) fn client_id(text: &str) -> ClientMessageId {
    ClientMessageId::parse(text).unwrap()
}

pub(crate) fn print(byte: u8) -> Fingerprint {
    Fingerprint([byte; 32])
}

pub(crate) fn at(epoch: u64, seq: u64) -> HistoryId {
    HistoryId { epoch, seq }
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder.path().join("data.db")).unwrap();
        let ids = ManualIds::seeded(1);
        let mesh = MeshId(ids.ulid());
        let member = MemberId(ids.ulid());
        Self {
            folder,
            store,
            ids,
            mesh,
            member,
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("data.db")
    }

    /// A second connection, which obeys nobody.
    pub(crate) fn raw(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    /// The files as a power cut would leave them: copied while the store is open.
    pub(crate) fn crashed_copy(&self) -> (TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["data.db", "data.db-wal"] {
            std::fs::copy(self.folder.path().join(name), folder.path().join(name)).unwrap();
        }
        let store = open(&folder.path().join("data.db")).unwrap();
        (folder, store)
    }

    pub(crate) fn party(&self, name: &str) -> Party {
        Party {
            member: self.member,
            agent: agent(name),
        }
    }

    pub(crate) fn key(&self, id: &str, fingerprint: u8) -> AcceptKey {
        AcceptKey {
            mesh: self.mesh,
            sender: self.party("planner"),
            client_message_id: client_id(id),
            request_fingerprint: print(fingerprint),
        }
    }

    pub(crate) fn new_row(&self) -> NewOutboxRow {
        NewOutboxRow {
            row: RowId(self.ids.ulid()),
            kind: EnvelopeKind::Message,
            to: "#ops".to_owned(),
            mentions: vec!["@ann".to_owned(), "@bo\"b".to_owned()],
            priority: Priority::Now,
            payload: b"hello".to_vec(),
            wire_fingerprint: print(200),
            enqueued_at: NOW,
        }
    }

    pub(crate) async fn accept(&self, id: &str) -> RowId {
        let key = self.key(id, 1);
        let accepted = self.store.accept::<()>(key, Ok(self.new_row())).await;
        match accepted.unwrap() {
            Accepted::Inserted { row } => row,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn settle(&self, row: RowId, next: RowMove) {
        let settle = Settle {
            row,
            attempts: self.find(row).await.attempts,
            next,
            begun: NOW,
            at: NOW,
            due: Duration::ZERO,
        };
        self.store.settle(vec![settle]).await.unwrap();
    }

    pub(crate) fn done(&self) -> RowMove {
        RowMove::Done {
            broker_message_id: BrokerMessageId(self.ids.ulid()),
            history_id: at(1, 7),
        }
    }

    pub(crate) fn requeue_of(&self, old: RowId, new_id: &str) -> Requeue {
        Requeue {
            old,
            new: self.new_row(),
            new_client_message_id: client_id(new_id),
            request_fingerprint: print(1),
            aborted_by: "operator".to_owned(),
            now: NOW,
        }
    }

    /// A row that got into the state by the ways that exist.
    pub(crate) async fn row_in(&self, status: OutboxStatus, id: &str) -> RowId {
        let row = self.accept(id).await;
        match status {
            OutboxStatus::Pending => return row,
            OutboxStatus::Aborted => {
                let requeue = self.requeue_of(row, &format!("{id}-successor"));
                let requeued = self.store.requeue(requeue).await.unwrap();
                assert!(matches!(requeued, Requeued::Done { .. }), "{requeued:?}");
                return row;
            }
            _ => {}
        }
        assert!(self.store.take_one(row).await.unwrap().is_some());
        match status {
            OutboxStatus::Done => self.settle(row, self.done()).await,
            OutboxStatus::Dead => self.settle(row, dead("refused")).await,
            _ => {}
        }
        row
    }

    pub(crate) async fn find(&self, row: RowId) -> OutboxRow {
        let find = OutboxFind::Row(row);
        self.store.outbox_find(find).await.unwrap().pop().unwrap()
    }

    pub(crate) fn item(&self, to: &str, id: &str, history_id: HistoryId) -> NewInboxRow {
        NewInboxRow {
            history_id,
            agent: agent(to),
            sender: self.party("planner"),
            sender_name: MemberName::parse("alice").unwrap(),
            client_message_id: client_id(id),
            broker_message_id: BrokerMessageId(self.ids.ulid()),
            topic: None,
            envelope: b"hello".to_vec(),
            fingerprint: None,
            priority: Priority::Next,
            received_at: NOW,
        }
    }

    /// Every byte of the table, in SQL notation.
    pub(crate) fn dump(&self, table: &str) -> Vec<String> {
        let raw = self.raw();
        let columns: Vec<String> = raw
            .prepare(&format!("SELECT name FROM pragma_table_info('{table}')"))
            .unwrap()
            .query_map([], |row| row.get::<_, String>(0))
            .unwrap()
            .map(|name| format!("quote({})", name.unwrap()))
            .collect();
        let columns = columns.join(" || ',' || ");
        raw.prepare(&format!("SELECT {columns} FROM {table} ORDER BY 1"))
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect()
    }
}

/// Tables whose rows carry digests.
pub(crate) const SEALED: [&str; 6] = [
    "memory",
    "state_kv",
    "files",
    "vector_metadata",
    "task_op",
    "tasks",
];

/// The file as a Heddle of before there were digests has left it; the next start gives every row one, as it stands.
pub(crate) fn unseal(path: &Path) {
    let raw = Connection::open(path).unwrap();
    for table in SEALED {
        raw.execute_batch(&format!("UPDATE {table} SET digest = NULL"))
            .unwrap();
    }
    raw.execute_batch("UPDATE store_state SET rows_sealed = 0")
        .unwrap();
}

pub(crate) fn dead(reason: &str) -> RowMove {
    RowMove::Dead {
        reason: reason.to_owned(),
    }
}

pub(crate) fn retry(error: &str) -> RowMove {
    RowMove::Retry {
        error: error.to_owned(),
        waits: Waits::Row,
    }
}
