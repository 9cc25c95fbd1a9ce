//! Replicas and a broker, what people do with them, and what power and operators do.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use heddle_broker::accept::Accept;
use heddle_broker::limiter::{Budget, LocalLimiter};
use heddle_broker::storage::{Log, MemoryStorage, Storage};
use heddle_core::clock::{Ids, ManualClock, ManualIds, WallMs};
use heddle_core::data::{DataKey, DataValue, Tags};
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{ClientMessageId, MemberId, MeshId, OpId, Party};
use heddle_core::names::{AgentName, MemberName, MeshName};
use heddle_core::op::{NewMemory, NewState};
use heddle_core::retention::DedupeMode;
use heddle_store::{Applied, ChangeKey, Durability, NewMesh, NewOp, Receipt, Store, StoreOptions};
use serde_json::json;

use crate::dice::Dice;
use crate::nouns;

pub(crate) const NOW: WallMs = WallMs(1_000_000);
const KEYS: u64 = 60;

type Gate = Accept<MemoryStorage, LocalLimiter>;

pub(crate) struct Replica {
    pub(crate) path: PathBuf,
    pub(crate) store: Store,
    pub(crate) party: Party,
    pub(crate) online: bool,
    /// An old copy of the file, and which changes it holds.
    pub(crate) copy: Option<(PathBuf, usize)>,
    /// Acknowledged changes, in order; those that a restore took away are taken out.
    pub(crate) acknowledged: Vec<OpId>,
    /// A page that is on its way, and comes late.
    pub(crate) late: Vec<NewOp>,
}

/// How often each fault fired: a run in which one did not proves nothing (XC-04).
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) partitions: u64,
    pub(crate) lost_acks: u64,
    pub(crate) sent_twice: u64,
    pub(crate) repeated_pages: u64,
    pub(crate) late_pages: u64,
    pub(crate) disordered_pages: u64,
    /// No fault: kept and applied in one transaction.
    pub(crate) pages_at_once: u64,
    pub(crate) restarts: u64,
    pub(crate) crashes: u64,
    pub(crate) epochs: u64,
    pub(crate) mismatches: u64,
    pub(crate) restores: u64,
}

pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) ids: ManualIds,
    pub(crate) mesh: MeshId,
    pub(crate) gate: Gate,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) faults: Faults,
    pub(crate) attempted: BTreeSet<OpId>,
    /// In the order in which they were made, by whomever.
    pub(crate) tasks: Vec<OpId>,
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
    pub(crate) async fn new(seed: u64, replicas: usize, folder: &Path) -> Self {
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
            tasks: Vec::new(),
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
        if self.dice.one_in(5) {
            let (dice, tasks) = (&mut self.dice, &mut self.tasks);
            let receipt = nouns::change(store, id, dice, tasks).await;
            return self.note(at, op, receipt);
        }
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
        if let Applied::Fresh(receipt) = applied {
            self.note(at, op, Some(receipt));
        }
    }

    fn note(&mut self, at: usize, op: OpId, receipt: Option<Receipt>) {
        if let Some(Receipt { stamp, .. }) = receipt {
            assert_eq!(stamp.op, op);
            self.replicas[at].acknowledged.push(op);
            self.attempted.insert(op);
        }
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

    pub(crate) async fn step(&mut self) {
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
        match self.dice.roll(120) {
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
    pub(crate) async fn heal(&mut self) {
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
}

/// A store that stands in while the real one is closed.
fn placeholder(path: &Path) -> Store {
    open(&path.with_extension("placeholder"))
}
