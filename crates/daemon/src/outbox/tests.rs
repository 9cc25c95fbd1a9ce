//! Ages, retries and their order over the real store and the real drain, on clocks that move when told.
//!
//! Nothing here sleeps: a broker that is away hangs up at once, and days pass by advancing the clock.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use heddle_core::age::AgeClock;
use heddle_core::clock::{BootTime, Clock, Ids, ManualClock, ManualIds, WallMs};
use heddle_core::envelope::{EnvelopeKind, Priority};
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{BrokerMessageId, ClientMessageId, HistoryId, MemberId, MeshId, RowId};
use heddle_core::names::{AgentName, MemberName, MeshName};
use heddle_core::outbox_status::OutboxStatus::{self, Dead, Done, Pending};
use heddle_store::{
    AcceptKey, Accepted, Durability, NewMesh, NewOutboxRow, OutboxFind, OutboxRow, Store,
    StoreOptions,
};
use heddle_wire::broker::{ClientFrame, Refused, ReplyResult, Request, Verdict};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use ulid::Ulid;
use uuid::Uuid;

use super::drain::{BatchEnd, Taken, take, transmit};
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
}

/// A broker of the test's own, at the other end of a [`Live`].
#[derive(Clone)]
struct FakeBroker {
    mood: Arc<Mutex<Mood>>,
    /// Every id that was sent, in order.
    sent: Arc<Mutex<Vec<String>>>,
    committed: Arc<Mutex<BTreeMap<String, Fingerprint>>>,
}

impl FakeBroker {
    fn new() -> Self {
        Self {
            mood: Arc::new(Mutex::new(Mood::Commit)),
            sent: Arc::default(),
            committed: Arc::default(),
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
                    Mood::Refuse(code) => {
                        let refused = Verdict::Refused(Refused {
                            code: code.to_owned(),
                            detail: "as told".to_owned(),
                        });
                        live.settle_verdicts(batch, vec![refused; ids.len()], None);
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
            other => panic!("{other:?}"),
        }
    }

    fn commit(&self, id: &str) -> Verdict {
        let mut committed = self.committed.lock().unwrap();
        committed.insert(id.to_owned(), PRINT);
        Verdict::Created {
            broker_message_id: BrokerMessageId(Ulid::nil()),
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
    age: AgeClock,
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
    let mesh = MeshState::load(mesh, "fake".to_owned(), &store)
        .await
        .unwrap();
    let clock = Arc::new(TestClock {
        manual: ManualClock::at(wall),
        boot,
    });
    let ids = Arc::new(TestIds {
        manual: ManualIds::seeded(seed),
        jitter: Mutex::default(),
    });
    let shared = Arc::new(Shared {
        embedder: crate::vectors::Embedder::new(
            crate::config::VectorConfig::default(),
            std::path::PathBuf::new(),
            None,
            CancellationToken::new(),
        ),
        store,
        blobs: heddle_store::Blobs::open(&folder.join("blobs")).unwrap(),
        file_deleted: tokio::sync::Notify::new(),
        clock: clock.clone(),
        ids: ids.clone(),
        meshes: {
            let meshes = Meshes::default();
            assert!(meshes.push(Arc::new(mesh)));
            meshes
        },
        links: Mutex::default(),
        joining: tokio::sync::Mutex::default(),
        max_age_hours_override: None,
        snapshot_rows: 10_000,
        arrivals: watch::Sender::new(0),
        events: Events::default(),
        hook_tokens: crate::hooks::Tokens::default(),
        parked: Vec::new(),
        inbox_retention: std::time::Duration::from_hours(24),
        tasks: crate::tasks::Activity::new(1),
        disk: disk::Disk::new(folder.to_owned(), None),
        shutdown: CancellationToken::new(),
        fatal: Mutex::new(None),
    });
    let age = age::resume(&shared).await.unwrap();
    World {
        shared,
        clock,
        ids,
        age,
    }
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
        let new = NewOutboxRow {
            row: RowId(self.ids.ulid()),
            kind: EnvelopeKind::Message,
            to: "#ops".to_owned(),
            mentions: Vec::new(),
            priority,
            payload: b"{}".to_vec(),
            wire_fingerprint: PRINT,
            enqueued_at: self.clock.wall(),
        };
        match self.shared.store.accept::<()>(key, Ok(new)).await {
            Ok(Accepted::Inserted { row }) => row,
            other => panic!("{other:?}"),
        }
    }

    /// Time passes, and the age clock ticks every hour.
    async fn pass(&mut self, hours: u32) {
        for _ in 0..hours {
            self.clock.manual.advance(HOUR);
            age::tick(&self.shared, &mut self.age).await;
        }
    }

    fn jump(&self, days: i64) {
        let wall = self.clock.wall().0 + days * DAY_MS;
        self.clock.manual.set_wall(WallMs(wall));
    }

    /// Sends what is due until nothing is, or the broker falls silent.
    async fn drain(&self, live: &Live) -> usize {
        let mut batches = 0;
        while let Taken::Rows(rows) = take(&self.shared, self.mesh()).await.unwrap() {
            batches += 1;
            if transmit(
                &self.shared,
                self.shared.meshes.first().unwrap(),
                live,
                rows,
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
    async fn stop(mut self) -> WallMs {
        age::tick(&self.shared, &mut self.age).await;
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

/// 10 days of memory leave 216 hours: eight days are within them, and a jump of eight more is not.
#[tokio::test]
async fn dr_10_c18_eight_days_without_a_broker_and_a_clock_that_jumps_kill_nothing_and_all_drains_by_due_time()
 {
    let folder = TempDir::new().unwrap();
    let broker = FakeBroker::new();
    let mut world = start(folder.path(), START, None, 1).await;
    world.mesh().set_max_age_hours(&world.shared, 216).await;
    broker.mood(Mood::HangUp);
    let mut rows = Vec::new();
    for day in 0..8 {
        for n in 0..5 {
            let id = format!("d{day}-{n}");
            rows.push(world.accept(&id, Priority::Next).await);
        }
        match day {
            2 => world.jump(1),
            3 => world.jump(-1),
            4 => world.jump(8),
            6 => {
                // A restart into a wall clock that was set meanwhile.
                let wall = world.stop().await;
                world = start(folder.path(), WallMs(wall.0 + 8 * DAY_MS), None, 2).await;
            }
            7 => world.jump(-8),
            _ => {}
        }
        for _ in 0..8 {
            world.pass(3).await;
            // The connection comes up, and breaks under the first batch.
            let live = broker.connect();
            assert!(
                world.drain(&live).await <= 1,
                "a silent broker was asked on"
            );
        }
    }
    assert_eq!(world.statuses(&rows).await, vec![Pending; rows.len()]);
    broker.sent();

    // One more break, with jitter that is known: each row is due at a time of its own.
    world.pass(1).await;
    let jitter: Vec<u64> = (0..rows.len() as u64).map(|n| n * 23 % 59 * 1000).collect();
    world.ids.jitter.lock().unwrap().extend(jitter.clone());
    world.drain(&broker.connect()).await;
    let batch = broker.sent();
    assert_eq!(batch.len(), rows.len());
    let mut expected: Vec<(u64, String)> = jitter.into_iter().zip(batch).collect();
    expected.sort_by_key(|(due, _)| *due);
    let expected: Vec<String> = expected.into_iter().map(|(_, id)| id).collect();

    broker.mood(Mood::Commit);
    let live = broker.connect();
    for _ in 0..61 {
        world.clock.manual.advance(Duration::from_secs(1));
        world.drain(&live).await;
    }
    assert_eq!(broker.sent(), expected);
    assert_eq!(world.statuses(&rows).await, vec![Done; rows.len()]);
}

/// C32: the three ends of a row that is truly too old.
#[tokio::test]
async fn c32_dr_05_a_row_that_is_too_old_ends_by_what_the_broker_says() {
    let folder = TempDir::new().unwrap();
    let broker = FakeBroker::new();
    let mut world = start(folder.path(), START, None, 1).await;
    world.mesh().set_max_age_hours(&world.shared, 144).await;
    let committed = world.accept("committed", Priority::Next).await;
    let absent = world.accept("absent", Priority::Next).await;
    let foreign = world.accept("foreign", Priority::Next).await;
    // The ack of the first was lost; under the third id somebody else's request stands.
    broker.commit("committed");
    let other = Fingerprint([9; 32]);
    broker
        .committed
        .lock()
        .unwrap()
        .insert("foreign".to_owned(), other);
    world.pass(2).await;
    let young = world.accept("young", Priority::Next).await;
    world.pass(1).await;
    world.mesh().set_live(Some(broker.connect()));
    world.pass(141).await;
    assert_eq!(
        world.statuses(&[committed, absent, foreign, young]).await,
        [Pending; 4]
    );
    world.pass(1).await;
    assert_eq!(
        world.statuses(&[committed, absent, foreign, young]).await,
        [Done, Dead, Dead, Pending]
    );
    let reason = world.row(absent).await.last_error.unwrap();
    assert!(reason.starts_with("max_age: "), "{reason}");
    assert_eq!(
        world.row(committed).await.history_id,
        Some(HistoryId { epoch: 1, seq: 9 })
    );
    assert!(broker.sent().is_empty(), "the last look sent something");

    world.mesh().set_live(None);
    world.pass(3).await;
    let reason = world.row(young).await.last_error.unwrap();
    assert!(reason.starts_with("max_age_outcome_unknown: "), "{reason}");
    let attempts = world.shared.store.outbox_attempts(young).await.unwrap();
    assert_eq!(attempts[0].outcome, "max_age_outcome_unknown");
}

#[tokio::test]
async fn dr_10_a_broker_that_is_there_but_does_not_say_kills_nothing() {
    let folder = TempDir::new().unwrap();
    let mut world = start(folder.path(), START, None, 1).await;
    world.mesh().set_max_age_hours(&world.shared, 144).await;
    let row = world.accept("a", Priority::Next).await;
    world.pass(1).await;
    world.clock.manual.advance(HOUR * 200);
    // A connection that hangs up on the question while another one stands.
    let (outgoing, mut frames) = mpsc::channel::<String>(16);
    let live = Arc::new(Live::new(outgoing));
    world.mesh().set_live(Some(Arc::clone(&live)));
    let hang_up = tokio::spawn(async move {
        frames.recv().await;
        live.hang_up();
        frames
    });
    age::tick(&world.shared, &mut world.age).await;
    let _frames = hang_up.await.unwrap();
    assert_eq!(world.row(row).await.status, Pending);
}

#[tokio::test]
async fn dr_10_what_was_never_agreed_with_a_broker_has_no_end() {
    let folder = TempDir::new().unwrap();
    let mut world = start(folder.path(), START, None, 1).await;
    let row = world.accept("a", Priority::Next).await;
    world.pass(24 * 400).await;
    assert_eq!(world.row(row).await.status, Pending);
}

/// Restarts: time of one boot counts, time across boots only as far as it is plausible.
#[tokio::test]
async fn dr_10_time_between_two_processes_counts_where_it_is_certain() {
    for (name, after, wall_days, dies) in [
        ("the same boot, 150 hours later", boot(1, 260), 6, true),
        ("the same boot, wall set back", boot(1, 260), -30, true),
        ("the same boot, wall set forward", boot(1, 101), 30, false),
        ("another boot, up for an hour", boot(2, 1), 30, false),
        ("another boot, up for 150 hours", boot(2, 150), 7, true),
        ("another boot, wall set back", boot(2, 150), -1, false),
        ("no clock since boot", None, 30, false),
    ] {
        let folder = TempDir::new().unwrap();
        let mut world = start(folder.path(), START, boot(1, 100), 1).await;
        world.mesh().set_max_age_hours(&world.shared, 144).await;
        let row = world.accept("a", Priority::Next).await;
        world.pass(1).await;
        let wall = world.stop().await;
        let wall = WallMs(wall.0 + wall_days * DAY_MS);
        let mut world = start(folder.path(), wall, after, 2).await;
        world.pass(1).await;
        let expected = if dies { Dead } else { Pending };
        assert_eq!(world.row(row).await.status, expected, "{name}");
    }
}

#[tokio::test]
async fn dr_07_c18_a_jump_of_the_wall_retries_nothing_early_and_nothing_late() {
    let folder = TempDir::new().unwrap();
    let broker = FakeBroker::new();
    let world = start(folder.path(), START, None, 1).await;
    broker.mood(Mood::Refuse("rate_limited"));
    let live = broker.connect();
    world.accept("a", Priority::Next).await;
    let mut due = Duration::ZERO;
    for (attempt, days) in [0, 1, -1, 8, -8, 3650, -3650].into_iter().enumerate() {
        assert_eq!(world.drain(&live).await, 1, "attempt {attempt}");
        world.jump(days);
        assert_eq!(world.drain(&live).await, 0, "a jump of {days} days");
        let next = world.shared.store.next_due(world.mesh().mesh.mesh).await;
        let next = next.unwrap().unwrap();
        assert!(next >= due + Duration::from_secs(1), "the wait shrank");
        due = next;
        // One millisecond before it is due nothing goes; then it does.
        let wait = due.saturating_sub(world.clock.mono());
        let moment = Duration::from_millis(1);
        world.clock.manual.advance(wait.saturating_sub(moment));
        assert_eq!(world.drain(&live).await, 0);
        world.clock.manual.advance(moment);
    }
    assert_eq!(broker.sent().len(), 7);
}

#[tokio::test]
async fn dr_03_c6_every_refusal_moves_the_row_as_the_table_says() {
    let folder = TempDir::new().unwrap();
    let broker = FakeBroker::new();
    let world = start(folder.path(), START, None, 1).await;
    let live = broker.connect();
    for (code, expected) in [
        ("idempotency_key_reused", Dead),
        ("invalid_request", Dead),
        ("payload_too_large", Dead),
        ("unknown_recipient", Dead),
        ("ambiguous_recipient", Dead),
        ("not_a_member", Dead),
        ("rate_limited", Pending),
        ("limiter_unavailable", Pending),
        ("storage_unavailable", Pending),
        ("request_timeout", Pending),
        ("shutting_down", Pending),
        ("internal", Pending),
        ("a_code_of_next_year", Pending),
    ] {
        broker.mood(Mood::Refuse(code));
        let row = world.accept(code, Priority::Next).await;
        world.drain(&live).await;
        let row = world.row(row).await;
        assert_eq!((row.status, row.attempts), (expected, 1), "{code}");
        assert_eq!(row.last_error, Some(format!("{code}: as told")));
    }
}

#[tokio::test]
async fn dr_04_a_row_is_done_only_with_what_the_broker_committed() {
    let folder = TempDir::new().unwrap();
    let broker = FakeBroker::new();
    let world = start(folder.path(), START, None, 1).await;
    let row = world.accept("a", Priority::Next).await;
    broker.mood(Mood::HangUp);
    world.drain(&broker.connect()).await;
    assert_eq!(world.row(row).await.status, Pending);
    assert!(broker.committed.lock().unwrap().is_empty());
    broker.mood(Mood::Commit);
    world.clock.manual.advance(HOUR);
    world.drain(&broker.connect()).await;
    let row = world.row(row).await;
    assert_eq!((row.status, row.attempts), (Done, 2));
    assert!(broker.committed.lock().unwrap().contains_key("a"));
    let attempts = world.shared.store.outbox_attempts(row.row).await.unwrap();
    let told: Vec<&str> = attempts.iter().map(|a| a.outcome.as_str()).collect();
    assert_eq!(told, ["no_answer", "committed"]);
}

#[tokio::test]
async fn a_payload_that_cannot_be_read_is_parked_and_not_dead() {
    let folder = TempDir::new().unwrap();
    let broker = FakeBroker::new();
    let world = start(folder.path(), START, None, 1).await;
    let good = world.accept("good", Priority::Next).await;
    let bad = world.accept("bad", Priority::Next).await;
    let Taken::Rows(mut rows) = take(&world.shared, world.mesh()).await.unwrap() else {
        panic!()
    };
    rows[1].payload = b"{ torn".to_vec();
    transmit(
        &world.shared,
        world.shared.meshes.first().unwrap(),
        &broker.connect(),
        rows,
    )
    .await;
    assert_eq!(broker.sent(), ["good"]);
    assert_eq!(world.statuses(&[good, bad]).await, [Done, Pending]);
    assert_eq!(world.shared.store.outbox_parked().await.unwrap(), 1);
    let row = world.row(bad).await;
    assert_eq!(row.attempts, 0, "nothing was sent");
    assert!(row.last_error.unwrap().starts_with("damaged"));
}
