//! Publishing: rows of every noun become ops once, whatever is killed in between, and make the same rows elsewhere.

use std::collections::BTreeSet;
use std::time::Duration;

use heddle_core::clock::{Ids as _, WallMs};
use heddle_core::data::{DataKey, DataValue, Tags};
use heddle_core::file::{ContentHash, FileContent, FilePath};
use heddle_core::ids::{HistoryId, OpId};
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::op::{
    DataOp, FileChange, MemoryChange, NewMemory, NewState, NewVector, OpBody, Over, StateChange,
    TaskChange, VectorChange, VectorContent,
};
use heddle_core::task::{Blockers, LeaseMs, TaskStep, TaskText, TaskTitle};
use heddle_core::vector::{Embedding, ModelIdentity};
use heddle_store::{BegunPublish, DueOp, Merged, MeshKind, NewOp, Publish, Store, Taken};
use serde_json::json;

use crate::fixture::{NOW, at, open};
use crate::sync_home::{Home, op_of};

const STATES: usize = 450;

fn key(text: &str) -> DataKey {
    DataKey::parse(text).unwrap()
}

fn value(number: usize) -> DataValue {
    DataValue::new(&json!({"n": number})).unwrap()
}

fn model(name: &str) -> ModelIdentity {
    ModelIdentity::new("test", name, "1", 3, "float32").unwrap()
}

fn vector(of: &str, model: ModelIdentity) -> Box<NewVector> {
    let embedding = Embedding::new(vec![1.0, 2.0, 0.5]).unwrap();
    let content = VectorContent::new(of.to_owned()).unwrap();
    let new = NewVector::new(model, embedding, content, value(3));
    Box::new(new.unwrap())
}

fn memory(at: &str, write: bool) -> OpBody {
    OpBody::Memory(MemoryChange {
        key: key(at),
        write: write.then(|| NewMemory {
            value: value(1),
            tags: Tags::parse(&["a", "b"]).unwrap(),
        }),
    })
}

fn state(at: &str, number: Option<usize>) -> OpBody {
    OpBody::State(StateChange {
        key: key(at),
        write: number.map(|number| NewState {
            value: value(number),
        }),
    })
}

fn file(at: &str, write: Option<FileContent>) -> OpBody {
    OpBody::File(FileChange {
        path: FilePath::parse(at).unwrap(),
        write,
    })
}

fn store_vector(at: &str, of: &str, replaces: Option<&str>) -> OpBody {
    OpBody::Vector(VectorChange::Store {
        key: key(at),
        new: vector(at, model(of)),
        replaces: replaces.map(|of| model(of).fingerprint()),
    })
}

impl Home {
    /// One change by this home, whatever noun.
    async fn make(&self, body: OpBody) -> DataOp {
        self.make_as(OpId(self.ids.uuid_v7()), body).await
    }

    async fn make_as(&self, op: OpId, body: OpBody) -> DataOp {
        let clock = self.store.data_clock(self.mesh).await.unwrap();
        let op = DataOp {
            stamp: Stamp {
                lamport: clock.value + 1,
                peer: PeerId::new(&self.party().to_string()),
                op,
            },
            incarnation: 1,
            at: WallMs(NOW.0 + 1),
            over: Over::Unsaid,
            body,
        };
        let merged = self.store.take_in(self.mesh, op.clone()).await.unwrap();
        assert_eq!(merged, Merged::Taken(Taken::Applied));
        op
    }

    /// Rows of every noun: live ones, changed ones, tombstones, and two that one op has left.
    async fn fill(&self) {
        for number in 0..STATES {
            self.make(state(&format!("k{number}"), Some(number))).await;
        }
        self.make(state("k3", None)).await;
        self.make(memory("note", true)).await;
        self.make(memory("gone", true)).await;
        self.make(memory("gone", false)).await;
        let small = FileContent::inline(b"small".to_vec(), None).unwrap();
        self.make(file("a/small.txt", Some(small.clone()))).await;
        self.make(file("a/gone.txt", Some(small))).await;
        self.make(file("a/gone.txt", None)).await;
        let large = FileContent::blob(ContentHash::of(b"x"), 1 << 20, None).unwrap();
        self.make(file("large.bin", Some(large))).await;
        self.make(store_vector("moved", "one", None)).await;
        self.make(store_vector("moved", "two", Some("one"))).await;
        self.make(store_vector("stays", "two", None)).await;
        let task = OpId(self.ids.uuid_v7());
        let step = |step| OpBody::Task(TaskChange { task, step });
        let create = TaskStep::Create {
            title: TaskTitle::parse("build").unwrap(),
            description: TaskText::parse("").unwrap(),
            blocked_by: Blockers::new(Vec::new()).unwrap(),
        };
        self.make_as(task, step(create)).await;
        let lease = LeaseMs::new(60_000).unwrap();
        let claim = self.make(step(TaskStep::Claim { lease })).await;
        let fence = claim.stamp.lamport;
        self.make(step(TaskStep::Release { fence })).await;
    }

    async fn dumped(&self) -> Vec<String> {
        let page = self.store.dump(self.mesh, 0, 64 << 20).await.unwrap();
        assert!(!page.more);
        page.lines
    }

    async fn queued(&self) -> Vec<DueOp> {
        let due = self
            .store
            .due_ops(self.mesh, Duration::MAX, 10_000, 64 << 20);
        due.await.unwrap()
    }

    async fn step(&self) -> Publish {
        let step = self.store.step_publish(self.mesh, NOW).await.unwrap();
        step.unwrap()
    }

    async fn begin(&self) -> BegunPublish {
        self.store.begin_publish(self.mesh, NOW).await.unwrap()
    }

    /// As the next process finds it.
    fn reopened(self) -> Self {
        self.store.stop();
        let store: Store = open(&self.folder.path().join("data.db")).unwrap();
        Self { store, ..self }
    }

    /// Takes what another home has queued, in this order.
    async fn take(&self, from: &Home, ops: &[DueOp]) {
        let mut previous = HistoryId::ZERO;
        let mut log = Vec::new();
        for (seq, due) in (1..).zip(ops) {
            log.push(NewOp {
                history_id: at(1, seq),
                previous,
                sender: from.party(),
                client_message_id: due.client_message_id.clone(),
                op: Ok(op_of(due).to_bytes().unwrap()),
            });
            previous = at(1, seq);
        }
        self.receive(log).await;
        while self.apply().await.more {}
        let aside = self.store.set_aside_ops(self.mesh, 10).await.unwrap();
        assert_eq!(aside, []);
    }
}

fn sent(ops: &[DueOp]) -> BTreeSet<(String, Vec<u8>)> {
    let one = |op: &DueOp| (op.client_message_id.to_string(), op.payload.clone());
    ops.iter().map(one).collect()
}

/// Through to its end; how many transactions that took.
async fn publish(home: &Home) -> usize {
    assert!(matches!(home.begin().await, BegunPublish::Fresh(_)));
    let mut steps = 1;
    while home.step().await.finished_at.is_none() {
        steps += 1;
    }
    steps
}

#[tokio::test]
async fn lf_33_lf_09_a_fresh_replica_of_a_published_mesh_has_the_same_rows_to_the_byte() {
    let home = Home::new(1, None).await;
    home.fill().await;
    assert_eq!(home.queued().await, [], "a personal mesh has no ops");
    let before = home.dumped().await;
    publish(&home).await;
    assert_eq!(home.head().await.kind, MeshKind::SharedOwner);
    assert_eq!(home.dumped().await, before, "publishing changes no row");
    let mut ops = home.queued().await;
    // States, two memories, three files, three vectors' rows, three ops of one task.
    assert_eq!(ops.len(), STATES + 2 + 3 + 3 + 3);
    for seed in 10..13 {
        let fresh = Home::shared(seed).await;
        fresh.take(&home, &ops).await;
        assert_eq!(fresh.dumped().await, before);
        // In another order, and once more: the same.
        ops.reverse();
        ops.rotate_left(100);
        fresh.take(&home, &ops).await;
        assert_eq!(fresh.dumped().await, before);
    }
    let published = home.store.publish(home.mesh).await.unwrap().unwrap();
    assert_eq!(published.rows_done, published.rows_total);
}

#[tokio::test]
async fn lf_33_c21_publish_stopped_after_every_step_queues_each_row_once_under_the_same_id() {
    let whole = Home::new(2, None).await;
    whole.fill().await;
    let steps = publish(&whole).await;
    assert!(steps > 6, "{steps}");
    let expected = sent(&whole.queued().await);
    let mut home = Home::new(2, None).await;
    home.fill().await;
    assert!(matches!(home.begin().await, BegunPublish::Fresh(_)));
    home = home.reopened();
    assert!(
        matches!(home.begin().await, BegunPublish::Known(_)),
        "registered once"
    );
    let mut seen = 0;
    while home.step().await.finished_at.is_none() {
        home = home.reopened();
        let queued = home.queued().await;
        assert!(queued.len() >= seen);
        seen = queued.len();
        assert_eq!(sent(&queued).len(), seen, "no row twice");
    }
    home = home.reopened();
    let queued = home.queued().await;
    assert_eq!(queued.len(), expected.len());
    assert_eq!(sent(&queued), expected, "the same ids and the same bytes");
    // Nothing is left to do, however often it is asked.
    home.step().await;
    assert!(matches!(home.begin().await, BegunPublish::Known(_)));
    assert_eq!(home.queued().await.len(), expected.len());
}

#[tokio::test]
async fn c21_a_file_from_before_the_publish_sends_the_same_again_and_a_broker_knows_it() {
    let home = Home::new(3, None).await;
    home.fill().await;
    let copy = tempfile::tempdir().unwrap();
    for name in ["data.db", "data.db-wal"] {
        std::fs::copy(home.folder.path().join(name), copy.path().join(name)).unwrap();
    }
    publish(&home).await;
    let first = sent(&home.queued().await);
    let older = Home {
        store: open(&copy.path().join("data.db")).unwrap(),
        folder: copy,
        ids: heddle_core::clock::ManualIds::seeded(4),
        mesh: home.mesh,
        member: home.member,
    };
    older.make(state("k0", Some(99))).await;
    publish(&older).await;
    let second = sent(&older.queued().await);
    assert_eq!(first.difference(&second).count(), 1, "the row that changed");
    assert_eq!(second.difference(&first).count(), 1);
}

#[tokio::test]
async fn lf_12_what_changes_while_it_is_published_goes_out_once_as_an_op_of_its_own() {
    let home = Home::new(5, None).await;
    home.fill().await;
    assert!(matches!(home.begin().await, BegunPublish::Fresh(_)));
    home.step().await;
    home.set("k449", json!("new")).await;
    home.set("fresh", json!(1)).await;
    while home.step().await.finished_at.is_none() {}
    let ops = home.queued().await;
    let about = |wanted: &str| {
        let is_about = |op: &&DueOp| match op_of(op).body {
            OpBody::State(change) => change.key.as_str() == wanted,
            _ => false,
        };
        ops.iter().filter(is_about).count()
    };
    assert_eq!((about("k449"), about("fresh"), about("k448")), (1, 1, 1));
    let replica = Home::shared(6).await;
    replica.take(&home, &ops).await;
    assert_eq!(replica.dumped().await, home.dumped().await);
}

#[tokio::test]
async fn a_mesh_that_was_never_personal_has_nothing_to_publish() {
    let home = Home::shared(7).await;
    home.set("k", json!(1)).await;
    assert_eq!(home.begin().await, BegunPublish::NothingToDo);
    assert_eq!(home.store.step_publish(home.mesh, NOW).await.unwrap(), None);
    assert_eq!(home.queued().await.len(), 1);
    assert_eq!(home.head().await.kind, MeshKind::SharedGuest);
}

#[tokio::test]
async fn an_op_under_an_id_that_is_neither_its_own_nor_derived_from_it_is_set_aside() {
    let home = Home::new(8, None).await;
    home.make(state("k", Some(1))).await;
    publish(&home).await;
    let ops = home.queued().await;
    let replica = Home::shared(9).await;
    let forged = NewOp {
        history_id: at(1, 1),
        previous: HistoryId::ZERO,
        sender: home.party(),
        client_message_id: crate::fixture::client_id("something-else"),
        op: Ok(op_of(&ops[0]).to_bytes().unwrap()),
    };
    replica.receive(vec![forged]).await;
    assert_eq!(replica.apply().await.quarantined, 1);
    assert_eq!(replica.get("k").await, None);
}
