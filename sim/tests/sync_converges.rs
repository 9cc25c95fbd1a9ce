//! Replicas that sync through a real broker's gate and log, badly: LF-02, LF-08, LF-09, LF-13 to LF-16.
//!
//! Real stores on SQLite files, the real B0–B3 over the memory storage; the harness plays network, power
//! and operators from a seed. Partitions, lost acks, ops sent twice, pages that come again, late or in
//! disorder, restarts, new epochs, and a replica that is put back from an old copy of its file. The judge
//! keeps its own model: the acknowledged changes, and a last-writer-wins map that shares no code with the
//! store.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use heddle_broker::Principal;
use heddle_broker::accept::Accept;
use heddle_broker::limiter::{Budget, LocalLimiter};
use heddle_broker::storage::{Log, LogRow, MemoryStorage, PageLimit, Storage};
use heddle_core::clock::{Ids, ManualClock, ManualIds, WallMs};
use heddle_core::data::{DataKey, DataValue, Tags};
use heddle_core::drain::BrokerAnswer;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{ClientMessageId, HistoryId, MemberId, MeshId, OpId, Party};
use heddle_core::names::{AgentName, MemberName, MeshName};
use heddle_core::op::{DataOp, NewMemory, NewState, OpBody};
use heddle_core::retention::DedupeMode;
use heddle_core::sync::op_move;
use heddle_store::{
    Applied, ChangeKey, DueOp, Durability, NewMesh, NewOp, OpSettle, Receipt, Store, StoreError,
    StoreOptions,
};
use heddle_wire::broker::{Envelope, SendItem, Verdict};
use serde_json::value::RawValue;
use serde_json::{Value, json};

const NOW: WallMs = WallMs(1_000_000);
const KEYS: u64 = 60;

/// splitmix64: small, seeded, the same everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below.max(1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.roll(n) == 0
    }
}

type Gate = Accept<MemoryStorage, LocalLimiter>;

struct Replica {
    path: PathBuf,
    store: Store,
    party: Party,
    online: bool,
    /// An old copy of the file, and which changes it holds.
    copy: Option<(PathBuf, usize)>,
    /// Acknowledged changes, in order; those that a restore took away are taken out.
    acknowledged: Vec<OpId>,
    /// A page that is on its way, and comes late.
    late: Vec<NewOp>,
}

/// How often each fault fired: a run in which one did not proves nothing (XC-04).
#[derive(Debug, Default)]
struct Faults {
    partitions: u64,
    lost_acks: u64,
    sent_twice: u64,
    repeated_pages: u64,
    late_pages: u64,
    disordered_pages: u64,
    restarts: u64,
    crashes: u64,
    epochs: u64,
    mismatches: u64,
    restores: u64,
}

struct World {
    dice: Dice,
    ids: ManualIds,
    mesh: MeshId,
    gate: Gate,
    replicas: Vec<Replica>,
    faults: Faults,
    attempted: BTreeSet<OpId>,
}

fn open(path: &Path) -> Store {
    let store = Store::open(StoreOptions {
        path: path.to_owned(),
        durability: Durability::Normal,
        vfs: None,
    });
    store.unwrap()
}

impl World {
    async fn new(seed: u64, replicas: usize, folder: &Path) -> Self {
        let ids = ManualIds::seeded(seed);
        let name = MeshName::parse("team").unwrap();
        let mesh = MeshId::named(&name);
        let clock = Arc::new(ManualClock::at(NOW));
        let budget = Budget {
            ids_per_window_max: usize::MAX,
            window: Duration::from_secs(1),
        };
        let gate = Accept {
            storage: Arc::new(MemoryStorage::default()),
            limiter: Arc::new(LocalLimiter::new(clock.clone(), budget)),
            clock,
            ids: Arc::new(ManualIds::seeded(seed ^ 1)),
            dedupe: DedupeMode::Permanent,
        };
        gate.storage.ensure_mesh(mesh, &name).await.unwrap();
        let mut world = Self {
            dice: Dice(seed),
            ids,
            mesh,
            gate,
            replicas: Vec::new(),
            faults: Faults::default(),
            attempted: BTreeSet::new(),
        };
        for number in 0..replicas {
            world.join(number, &name, folder).await;
        }
        world
    }

    async fn join(&mut self, number: usize, name: &MeshName, folder: &Path) {
        let path = folder.join(format!("{number}.db"));
        let store = open(&path);
        let party = Party {
            member: MemberId(self.ids.ulid()),
            agent: AgentName::parse("agent").unwrap(),
        };
        let member_name = MemberName::parse(&format!("m{number}")).unwrap();
        let new = NewMesh {
            mesh: self.mesh,
            name: name.clone(),
            member: party.member,
            member_name: member_name.clone(),
            broker_url: Some("ws://127.0.0.1:1/".to_owned()),
            now: NOW,
        };
        store.ensure_mesh(new).await.unwrap();
        let storage = &self.gate.storage;
        let made = storage.ensure_member(self.mesh, party.member, &member_name);
        made.await.unwrap();
        storage.register_agent(self.mesh, &party).await.unwrap();
        self.replicas.push(Replica {
            path,
            store,
            party,
            online: true,
            copy: None,
            acknowledged: Vec::new(),
            late: Vec::new(),
        });
    }

    // --- what people do ------------------------------------------------------

    async fn change(&mut self, at: usize) {
        let op = OpId(self.ids.uuid_v7());
        let id = ChangeKey {
            mesh: self.mesh,
            peer: self.replicas[at].party.clone(),
            id: ClientMessageId::minted(self.ids.ulid()),
            fingerprint: Fingerprint([1; 32]),
            op,
            now: WallMs(NOW.0 + i64::try_from(self.dice.roll(1000)).unwrap()),
        };
        let key = DataKey::parse(&format!("k{}", self.dice.roll(KEYS))).unwrap();
        let value = DataValue::new(&json!(self.dice.roll(1 << 30))).unwrap();
        let store = &self.replicas[at].store;
        let applied: Applied<()> = match self.dice.roll(8) {
            0 => store.delete_state(id, key).await.unwrap(),
            1 => store.forget(id, key).await.unwrap(),
            2 | 3 => {
                let tags = Tags::parse(&["t"]).unwrap();
                let new = NewMemory { value, tags };
                store.remember(id, key, Ok(new)).await.unwrap()
            }
            _ => store
                .set_state(id, key, Ok(NewState { value }))
                .await
                .unwrap(),
        };
        if let Applied::Fresh(Receipt { stamp, .. }) = applied {
            assert_eq!(stamp.op, op);
            self.replicas[at].acknowledged.push(op);
            self.attempted.insert(op);
        }
    }

    // --- what the network does -----------------------------------------------

    async fn push(&mut self, at: usize, items_max: usize) -> usize {
        let replica = &self.replicas[at];
        let due = replica
            .store
            .due_ops(self.mesh, Duration::ZERO, items_max, 1 << 20);
        let due = due.await.unwrap();
        if due.is_empty() {
            return 0;
        }
        let head = replica.store.sync_head(self.mesh).await.unwrap();
        let principal = Principal {
            mesh: self.mesh,
            member: replica.party.member,
            member_name: MemberName::parse("m").unwrap(),
        };
        let items = || -> Vec<SendItem> {
            let tag = Some(head.broker_epoch).filter(|epoch| *epoch > 0);
            due.iter().map(|op| item(op, tag)).collect()
        };
        let verdicts = self.gate.accept(&principal, items()).await.verdicts;
        let verdicts = if self.dice.one_in(20) {
            self.faults.sent_twice += 1;
            self.gate.accept(&principal, items()).await.verdicts
        } else {
            verdicts
        };
        if self.dice.one_in(15) {
            self.faults.lost_acks += 1;
            return 0;
        }
        let mut moves = Vec::new();
        for (op, verdict) in due.iter().zip(verdicts) {
            if let Verdict::Refused(refused) = &verdict {
                assert_eq!(refused.code, "epoch_mismatch");
                self.faults.mismatches += 1;
            }
            moves.push(OpSettle {
                arrival: op.arrival,
                row: op.row,
                attempts: op.attempts,
                next: op_move(answer(verdict)),
                at: NOW,
                due: Duration::ZERO,
            });
        }
        let count = moves.len();
        let epoch = self.gate.storage.epoch(self.mesh).await.unwrap();
        let store = &self.replicas[at].store;
        store.hear_epoch(self.mesh, epoch).await.unwrap();
        assert!(!store.settle_ops(self.mesh, moves).await.unwrap());
        count
    }

    /// True if there was something to read.
    async fn pull(&mut self, at: usize, calm: bool) -> bool {
        let store = self.replicas[at].store.clone();
        let head = store.sync_head(self.mesh).await.unwrap();
        let mut after = head.log;
        if !calm && self.dice.one_in(10) && after.seq > 50 {
            self.faults.repeated_pages += 1;
            after.seq -= self.dice.roll(50);
        }
        let limit = PageLimit {
            rows_max: if calm {
                500
            } else {
                1 + usize::try_from(self.dice.roll(200)).unwrap()
            },
            bytes_max: 1 << 20,
        };
        let page = self
            .gate
            .storage
            .log_after(self.mesh, after, limit)
            .await
            .unwrap();
        let mut ops: Vec<NewOp> = page.rows.into_iter().map(new_op).collect();
        if ops.is_empty() {
            return false;
        }
        if !calm && self.dice.one_in(10) {
            self.faults.disordered_pages += 1;
            for index in (1..ops.len()).rev() {
                let other = usize::try_from(self.dice.roll(index as u64 + 1)).unwrap();
                ops.swap(index, other);
            }
        }
        if !calm && self.dice.one_in(12) {
            // A copy of it comes once more, when others have come in between.
            self.faults.late_pages += 1;
            self.replicas[at].late.clone_from(&ops);
        }
        self.receive(at, page.epoch, ops).await;
        if self.dice.one_in(6) {
            let late = std::mem::take(&mut self.replicas[at].late);
            self.receive(at, page.epoch, late).await;
        }
        true
    }

    async fn receive(&self, at: usize, epoch: u64, ops: Vec<NewOp>) {
        let replica = &self.replicas[at];
        let member = replica.party.member;
        let received = replica
            .store
            .receive_ops(self.mesh, member, epoch, ops, NOW);
        let received = received.await.unwrap();
        assert!(!received.gap, "the log has no gap");
    }

    async fn apply(&self, at: usize, limit: usize) -> bool {
        let applied = self.replicas[at]
            .store
            .apply_ops(self.mesh, limit, NOW)
            .await;
        let applied = applied.unwrap();
        assert_eq!(applied.quarantined, 0);
        applied.more || applied.applied + applied.passed > 0
    }

    // --- what power and operators do -----------------------------------------

    async fn restart(&mut self, at: usize, clean: bool) {
        let replica = &mut self.replicas[at];
        if clean {
            replica.store.stop();
            self.faults.restarts += 1;
        } else {
            self.faults.crashes += 1;
        }
        // Without a stop the next open finds an unclean file and checks it.
        let path = replica.path.clone();
        let old = std::mem::replace(&mut replica.store, placeholder(&path));
        drop(old);
        replica.store = open(&path);
        replica.store.recover(NOW).await.unwrap();
    }

    fn copy(&mut self, at: usize) {
        let replica = &mut self.replicas[at];
        replica.store.stop();
        let copy = replica.path.with_extension("copy");
        std::fs::copy(&replica.path, &copy).unwrap();
        replica.copy = Some((copy, replica.acknowledged.len()));
        replica.store = open(&replica.path);
    }

    /// The file is put back as it was; its clock begins a new life (C39).
    async fn restore(&mut self, at: usize) {
        let Some((copy, held)) = self.replicas[at].copy.take() else {
            return;
        };
        let replica = &mut self.replicas[at];
        replica.store.stop();
        std::fs::copy(&copy, &replica.path).unwrap();
        let raw = rusqlite::Connection::open(&replica.path).unwrap();
        raw.execute("UPDATE lamport_clock SET incarnation = incarnation + 1", [])
            .unwrap();
        raw.close().unwrap();
        replica.store = open(&replica.path);
        replica.store.recover(NOW).await.unwrap();
        // What was made since is in the log if it was sent, and lost with the file otherwise.
        replica.acknowledged.truncate(held);
        replica.late.clear();
        self.faults.restores += 1;
    }

    async fn step(&mut self) {
        let count = self.replicas.len() as u64;
        let at = usize::try_from(self.dice.roll(count)).unwrap();
        for _ in 0..=self.dice.roll(20) {
            self.change(at).await;
        }
        if self.dice.one_in(12) {
            self.replicas[at].online ^= true;
            self.faults.partitions += 1;
        }
        let at = usize::try_from(self.dice.roll(count)).unwrap();
        if self.replicas[at].online {
            let max = 1 + usize::try_from(self.dice.roll(60)).unwrap();
            self.push(at, max).await;
            self.pull(at, false).await;
        }
        // In every state, and not always all of it.
        let at = usize::try_from(self.dice.roll(count)).unwrap();
        let limit = 1 + usize::try_from(self.dice.roll(150)).unwrap();
        self.apply(at, limit).await;
        match self.dice.roll(600) {
            0 | 1 => self.restart(at, true).await,
            2 => self.restart(at, false).await,
            3 | 4 => {
                self.gate.storage.bump_epoch(self.mesh).await.unwrap();
                self.faults.epochs += 1;
            }
            5 => self.copy(at),
            6 | 7 => self.restore(at).await,
            _ => {}
        }
    }

    /// Heal, quiet, final read.
    async fn heal(&mut self) {
        loop {
            let mut busy = false;
            for at in 0..self.replicas.len() {
                self.replicas[at].online = true;
                busy |= self.push(at, 200).await > 0;
                while self.pull(at, true).await {
                    busy = true;
                }
                while self.apply(at, 200).await {}
                let figures = self.replicas[at].store.sync_figures(self.mesh).await;
                busy |= figures.unwrap().out_waiting > 0;
            }
            if !busy {
                return;
            }
        }
    }

    // --- the judge -------------------------------------------------------------

    async fn judge(&mut self) {
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
        let orphans = heddle_broker::storage::Upkeep::orphan_check(&*self.gate.storage, self.mesh);
        assert_eq!(orphans.await, Ok(Vec::new()));
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

/// A store that stands in while the real one is closed.
fn placeholder(path: &Path) -> Store {
    open(&path.with_extension("placeholder"))
}

fn item(op: &DueOp, epoch: Option<u64>) -> SendItem {
    SendItem {
        agent: op.agent.clone(),
        client_message_id: op.client_message_id.clone(),
        epoch,
        envelope: RawValue::from_string(String::from_utf8(op.payload.clone()).unwrap()).unwrap(),
    }
}

fn answer(verdict: Verdict) -> BrokerAnswer {
    match verdict {
        Verdict::Created {
            broker_message_id,
            history_id,
        } => BrokerAnswer::Committed {
            broker_message_id,
            history_id,
            duplicate: false,
            history_available: true,
        },
        Verdict::Duplicate {
            broker_message_id,
            history_id,
            history_available,
            ..
        } => BrokerAnswer::Committed {
            broker_message_id,
            history_id,
            duplicate: true,
            history_available,
        },
        Verdict::Conflict { .. } => panic!("an op id met another op"),
        Verdict::Refused(refused) => BrokerAnswer::Refused {
            code: refused.code,
            detail: refused.detail,
        },
    }
}

fn op_in(row: &LogRow) -> DataOp {
    let envelope = Envelope::parse(row.envelope.as_bytes()).unwrap();
    DataOp::parse(envelope.body.as_bytes()).unwrap()
}

fn new_op(row: LogRow) -> NewOp {
    let envelope = Envelope::parse(row.envelope.as_bytes()).unwrap();
    NewOp {
        history_id: row.history_id,
        previous: row.previous,
        sender: row.sender,
        client_message_id: row.client_message_id,
        op: Ok(envelope.body.into_bytes()),
    }
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

/// On a file system in memory where there is one: no power is cut here.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let built = tempfile::Builder::new()
        .prefix("heddle-sync")
        .tempdir_in(memory);
    built.or_else(|_| tempfile::tempdir()).unwrap()
}

fn storm(seed: u64, replicas: usize, ops: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let folder = folder();
        let mut world = World::new(seed, replicas, folder.path()).await;
        while world.attempted.len() < ops {
            world.step().await;
        }
        world.heal().await;
        world.judge().await;
        let faults = &world.faults;
        for (name, count) in [
            ("partitions", faults.partitions),
            ("lost acks", faults.lost_acks),
            ("sent twice", faults.sent_twice),
            ("repeated pages", faults.repeated_pages),
            ("late pages", faults.late_pages),
            ("disordered pages", faults.disordered_pages),
            ("restarts", faults.restarts),
            ("crashes", faults.crashes),
            ("epochs", faults.epochs),
            ("mismatches", faults.mismatches),
            ("restores", faults.restores),
        ] {
            assert!(count > 0, "XC-04: no {name} in this run: {faults:?}");
        }
        for replica in &world.replicas {
            replica.store.stop();
        }
    });
}

#[test]
fn lf_08_lf_09_three_replicas_converge_through_every_fault() {
    storm(11, 3, 34_000);
}

#[test]
fn lf_08_lf_09_four_replicas_converge_through_every_fault() {
    storm(22, 4, 33_000);
}

#[test]
fn lf_08_lf_09_five_replicas_converge_through_every_fault() {
    storm(33, 5, 33_000);
}
