//! Ages, retries and their order over the real store and the real drain, on clocks that move when told.
//!
//! Nothing here sleeps: a broker that is away hangs up at once, and days pass by advancing the clock.

mod ages;
mod lost;
mod retries;
mod words;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use heddle_core::clock::{BootTime, Clock, Ids, ManualClock, ManualIds, WallMs};
use heddle_core::envelope::{Address, EnvelopeKind, Priority};
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{BrokerMessageId, ClientMessageId, HistoryId, MemberId, MeshId, RowId};
use heddle_core::names::{AgentName, MemberName, MeshName};
use heddle_core::outbox_status::OutboxStatus;
use heddle_store::{
    AcceptKey, Accepted, Durability, NewMesh, NewOutboxRow, OutboxFind, OutboxRow, Store,
    StoreOptions,
};
use heddle_wire::broker::{
    ClientFrame, Envelope, FrozenDestination, FrozenEnvelope, Refused, ReplyResult, Request,
    Verdict,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use ulid::Ulid;
use uuid::Uuid;

use super::drain::{Taken, take, transmit};
use super::pause::BatchEnd;
use super::{age, disk};
use crate::events::Events;
use crate::link::Live;
use crate::mesh::MeshState;
use crate::meshes::Meshes;
use crate::shared::Shared;
const HOUR: Duration = Duration::from_secs(3600);
const DAY_MS: i64 = 86_400_000;
const START: WallMs = WallMs(1_794_000_000_000);
const PRINT: Fingerprint = Fingerprint([7; 32]);

/// What every row here is sent as, and its fingerprint.
fn sealed() -> (Vec<u8>, Fingerprint) {
    let destination = FrozenDestination {
        kind: Address::parse("#ops").unwrap().kind(),
        reference: "ops",
    };
    let envelope = FrozenEnvelope::message(destination, Priority::Next, "words");
    let payload = envelope.bytes().unwrap();
    let print = Envelope::parse(&payload).unwrap().wire_fingerprint();
    (payload, print.unwrap())
}

/// A manual clock on a machine that can tell how long it has been up.
struct TestClock {
    manual: ManualClock,
    boot: Option<BootTime>,
}

impl Clock for TestClock {
    fn wall(&self) -> WallMs {
        self.manual.wall()
    }

    fn mono(&self) -> Duration {
        self.manual.mono()
    }

    fn boot(&self) -> Option<BootTime> {
        self.boot.map(|at_start| BootTime {
            since: at_start.since + self.manual.mono(),
            ..at_start
        })
    }
}

/// Ids of a seed, with jitter as the test says.
struct TestIds {
    manual: ManualIds,
    jitter: Mutex<VecDeque<u64>>,
}

impl Ids for TestIds {
    fn ulid(&self) -> Ulid {
        self.manual.ulid()
    }

    fn uuid_v7(&self) -> Uuid {
        self.manual.uuid_v7()
    }

    fn fill(&self, bytes: &mut [u8]) {
        self.manual.fill(bytes);
    }

    fn below(&self, bound: u64) -> u64 {
        let said = self.jitter.lock().unwrap().pop_front();
        said.unwrap_or_else(|| self.manual.below(bound))
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Mood {
    Commit,
    HangUp,
    Refuse(&'static str),
    /// This id is refused with this code, and others are let in.
    Except(&'static str, &'static str),
    /// So many distinct ids are let in; the rest has to wait so long.
    Budget(usize, Duration),
}

fn no(code: &str) -> Verdict {
    Verdict::Refused(Refused {
        code: code.to_owned(),
        detail: "as told".to_owned(),
        retry_after_ms: None,
    })
}

/// A broker of the test's own, at the other end of a [`Live`].
#[derive(Clone)]
struct FakeBroker {
    mood: Arc<Mutex<Mood>>,
    /// Every id that was sent, in order.
    sent: Arc<Mutex<Vec<String>>>,
    committed: Arc<Mutex<BTreeMap<String, Fingerprint>>>,
    /// Its running epoch, and the last place of each.
    epochs: Arc<Mutex<(u64, Vec<HistoryId>)>>,
}

impl FakeBroker {
    fn new() -> Self {
        Self {
            mood: Arc::new(Mutex::new(Mood::Commit)),
            sent: Arc::default(),
            committed: Arc::default(),
            epochs: Arc::default(),
        }
    }

    fn connect(&self) -> Arc<Live> {
        let (outgoing, mut frames) = mpsc::channel::<String>(16);
        let live = Arc::new(Live::new(outgoing));
        let (broker, answers) = (self.clone(), Arc::downgrade(&live));
        tokio::spawn(async move {
            while let Some(text) = frames.recv().await {
                let Some(live) = answers.upgrade() else {
                    return;
                };
                broker.answer(&live, ClientFrame::parse(&text).unwrap());
            }
        });
        live
    }

    fn answer(&self, live: &Live, frame: ClientFrame) {
        match frame {
            ClientFrame::Send { batch, items } => {
                let ids: Vec<String> = items
                    .iter()
                    .map(|item| item.client_message_id.to_string())
                    .collect();
                self.sent.lock().unwrap().extend(ids.clone());
                match self.mood.lock().unwrap().clone() {
                    Mood::HangUp => live.hang_up(),
                    Mood::Commit => {
                        let verdicts = ids.iter().map(|id| self.commit(id)).collect();
                        live.settle_verdicts(batch, verdicts, None);
                    }
                    Mood::Budget(left, wait) => {
                        let verdicts = ids.iter().enumerate();
                        let verdicts = verdicts.map(|(number, id)| {
                            if number < left {
                                return self.commit(id);
                            }
                            Verdict::Refused(Refused {
                                code: "rate_limited".to_owned(),
                                detail: "as told".to_owned(),
                                retry_after_ms: Some(u64::try_from(wait.as_millis()).unwrap()),
                            })
                        });
                        live.settle_verdicts(batch, verdicts.collect(), None);
                    }
                    Mood::Refuse(code) => {
                        live.settle_verdicts(batch, vec![no(code); ids.len()], None);
                    }
                    Mood::Except(bad, code) => {
                        let verdicts = ids.iter();
                        let verdicts =
                            verdicts.map(|id| if id == bad { no(code) } else { self.commit(id) });
                        live.settle_verdicts(batch, verdicts.collect(), None);
                    }
                }
            }
            ClientFrame::Request {
                request,
                body:
                    Request::MessageStatus {
                        client_message_id, ..
                    },
            } => {
                let committed = self.committed.lock().unwrap();
                let reply = match committed.get(client_message_id.as_str()) {
                    None => ReplyResult::Absent,
                    Some(print) => ReplyResult::Committed {
                        broker_message_id: BrokerMessageId(Ulid::nil()),
                        history_id: HistoryId { epoch: 1, seq: 9 },
                        wire_fingerprint: print.to_hex(),
                    },
                };
                live.settle_reply(request, reply);
            }
            ClientFrame::Request {
                request,
                body: Request::Epochs,
            } => {
                let (epoch, ends) = self.epochs.lock().unwrap().clone();
                let holes = Vec::new();
                live.settle_reply(request, ReplyResult::Epochs { epoch, ends, holes });
            }
            other => panic!("{other:?}"),
        }
    }

    fn commit(&self, id: &str) -> Verdict {
        let mut committed = self.committed.lock().unwrap();
        committed.insert(id.to_owned(), sealed().1);
        Verdict::Created {
            broker_message_id: BrokerMessageId(Ulid::nil()),
            client_message_id: None,
            duplicate: false,
            history_id: HistoryId {
                epoch: 1,
                seq: committed.len() as u64,
            },
        }
    }

    fn mood(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn sent(&self) -> Vec<String> {
        std::mem::take(&mut *self.sent.lock().unwrap())
    }
}

/// One process of a daemon, as far as its outbox goes.
struct World {
    shared: Arc<Shared>,
    clock: Arc<TestClock>,
    ids: Arc<TestIds>,
}

fn only(mesh: Arc<MeshState>) -> Meshes {
    let meshes = Meshes::default();
    assert!(meshes.push(mesh));
    meshes
}

fn embedder() -> crate::vectors::Embedder {
    crate::vectors::Embedder::new(
        crate::config::VectorConfig::default(),
        std::path::PathBuf::new(),
        None,
        CancellationToken::new(),
    )
}

async fn start(folder: &Path, wall: WallMs, boot: Option<BootTime>, seed: u64) -> World {
    let store = Store::open(StoreOptions {
        path: folder.join("data.db"),
        durability: Durability::Normal,
        vfs: None,
    })
    .unwrap();
    store.recover(wall).await.unwrap();
    let new = NewMesh {
        mesh: MeshId(Ulid::from_bytes([1; 16])),
        name: MeshName::parse("home").unwrap(),
        member: MemberId(Ulid::from_bytes([2; 16])),
        member_name: MemberName::parse("ann").unwrap(),
        broker_url: None,
        now: wall,
    };
    let mesh = store.ensure_mesh(new).await.unwrap();
    let mesh = MeshState::load(mesh, "fake".to_owned(), &store);
    let mesh = Arc::new(mesh.await.unwrap());
    let clock = Arc::new(TestClock {
        manual: ManualClock::at(wall),
        boot,
    });
    let ids = Arc::new(TestIds {
        manual: ManualIds::seeded(seed),
        jitter: Mutex::default(),
    });
    let shared = Arc::new(Shared {
        home: folder.to_owned(),
        host: None,
        embedder: embedder(),
        store,
        blobs: heddle_store::Blobs::open(&folder.join("blobs")).unwrap(),
        file_deleted: tokio::sync::Notify::new(),
        clock: clock.clone(),
        ids: ids.clone(),
        meshes: only(mesh),
        person: AgentName::parse("ann").unwrap(),
        links: Mutex::default(),
        joining: tokio::sync::Mutex::default(),
        left: Vec::new(),
        max_age_hours_override: None,
        age: Mutex::default(),
        snapshot_rows: 10_000,
        cold_start_ms: std::sync::OnceLock::new(),
        arrivals: watch::Sender::new(0),
        events: Events::default(),
        hook_tokens: crate::hooks::Tokens::default(),
        parked: Vec::new(),
        old_files: Vec::new(),
        looked: Mutex::new(None),
        unreadable: crate::upkeep::unreadable::Suspect::default(),
        gone: crate::files::gone::Gone::default(),
        damage: crate::inbox::damage::Damage::default(),
        inbox_retention: std::time::Duration::from_hours(24),
        tasks: crate::tasks::Activity::new(1),
        disk: disk::Disk::new(folder.to_owned(), None),
        shutdown: CancellationToken::new(),
        fatal: Mutex::new(None),
    });
    age::resume(&shared).await.unwrap();
    World { shared, clock, ids }
}

impl World {
    fn mesh(&self) -> &MeshState {
        self.shared.meshes.first().unwrap()
    }

    async fn accept(&self, id: &str, priority: Priority) -> RowId {
        let key = AcceptKey {
            mesh: self.mesh().mesh.mesh,
            sender: self.mesh().party(AgentName::parse("ann").unwrap()),
            client_message_id: ClientMessageId::parse(id).unwrap(),
            request_fingerprint: PRINT,
        };
        let (payload, wire_fingerprint) = sealed();
        let new = NewOutboxRow {
            row: RowId(self.ids.ulid()),
            kind: EnvelopeKind::Message,
            to: "#ops".to_owned(),
            mentions: Vec::new(),
            priority,
            payload,
            wire_fingerprint,
            enqueued_at: self.clock.wall(),
        };
        match self.shared.store.accept::<()>(key, Ok(new)).await {
            Ok(Accepted::Inserted { row }) => row,
            other => panic!("{other:?}"),
        }
    }

    /// Time passes, and the age clock ticks every hour.
    async fn pass(&self, hours: u32) {
        for _ in 0..hours {
            self.clock.manual.advance(HOUR);
            age::tick(&self.shared).await;
        }
    }

    fn jump(&self, days: i64) {
        let wall = self.clock.wall().0 + days * DAY_MS;
        self.clock.manual.set_wall(WallMs(wall));
    }

    /// Sends what is due until nothing is, or the broker falls silent.
    async fn drain(&self, live: &Live) -> usize {
        let mut batches = 0;
        while let Taken::Rows(batch) = take(&self.shared, self.mesh()).await.unwrap() {
            batches += 1;
            if transmit(
                &self.shared,
                self.shared.meshes.first().unwrap(),
                live,
                batch,
            )
            .await
                == BatchEnd::Silent
            {
                break;
            }
        }
        batches
    }

    async fn row(&self, row: RowId) -> OutboxRow {
        let found = self.shared.store.outbox_find(OutboxFind::Row(row)).await;
        found.unwrap().pop().unwrap()
    }

    async fn statuses(&self, rows: &[RowId]) -> Vec<OutboxStatus> {
        let mut statuses = Vec::new();
        for row in rows {
            statuses.push(self.row(*row).await.status);
        }
        statuses
    }

    /// The end of the process; the wall clock goes on.
    async fn stop(self) -> WallMs {
        age::tick(&self.shared).await;
        self.kill()
    }

    /// Nothing is written any more.
    fn kill(self) -> WallMs {
        self.shared.store.stop();
        self.clock.wall()
    }
}

fn boot(number: u128, hours: u32) -> Option<BootTime> {
    Some(BootTime {
        boot: number,
        since: HOUR * hours,
    })
}
