//! The client store on a disk that loses power at every I/O: OB-01, OB-13, DR-11, DR-18, IN-02.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use heddle_core::clock::{Ids, ManualIds, WallMs};
use heddle_core::drain::{RowMove, Waits};
use heddle_core::envelope::{EnvelopeKind, Priority};
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{
    BrokerMessageId, ClientMessageId, HistoryId, MemberId, MeshId, Party, RowId,
};
use heddle_core::names::{AgentName, MemberName, MeshName};
use heddle_core::outbox_status::OutboxStatus;
use heddle_sqlite::Durability;
use heddle_store::{
    AcceptKey, AckedItems, InboxFilter, NewInboxRow, NewMesh, NewOutboxRow, OutboxFind, OutboxRow,
    Requeue, Settle, Store, StoreOptions,
};
use sim::crash_vfs::{CrashDisk, Damage, Device};

const NOW: WallMs = WallMs(1_000);

struct World {
    ids: ManualIds,
    mesh: MeshId,
    sender: Party,
}

impl World {
    fn new() -> Self {
        let ids = ManualIds::seeded(11);
        Self {
            mesh: MeshId(ids.ulid()),
            sender: Party {
                member: MemberId(ids.ulid()),
                agent: AgentName::parse("planner").unwrap(),
            },
            ids,
        }
    }

    fn row(&self, n: u32) -> NewOutboxRow {
        NewOutboxRow {
            row: RowId(self.ids.ulid()),
            kind: EnvelopeKind::Message,
            to: "#ops".to_owned(),
            mentions: vec![],
            priority: Priority::Next,
            payload: format!("payload {n}").repeat(20).into_bytes(),
            wire_fingerprint: print(n),
            enqueued_at: NOW,
        }
    }

    fn inbox(&self, n: u32) -> NewInboxRow {
        NewInboxRow {
            history_id: HistoryId {
                epoch: 1,
                seq: u64::from(n),
            },
            agent: self.sender.agent.clone(),
            sender: self.sender.clone(),
            sender_name: MemberName::parse("alice").unwrap(),
            client_message_id: id("in", n),
            broker_message_id: BrokerMessageId(self.ids.ulid()),
            topic: None,
            envelope: b"{}".to_vec(),
            fingerprint: None,
            priority: Priority::Next,
            received_at: NOW,
        }
    }
}

fn print(n: u32) -> Fingerprint {
    Fingerprint([u8::try_from(n % 251).unwrap(); 32])
}

fn id(kind: &str, n: u32) -> ClientMessageId {
    ClientMessageId::parse(&format!("{kind}-{n}")).unwrap()
}

fn open(disk: &CrashDisk) -> Store {
    Store::open(StoreOptions {
        path: "data.db".into(),
        durability: Durability::Full,
        vfs: Some(disk.vfs()),
    })
    .unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

/// Accepts, drains, dies, requeues and receives; every answer is marked in the disk's log.
async fn run(disk: &CrashDisk, store: &Store, world: &World) {
    let new = NewMesh {
        mesh: world.mesh,
        name: MeshName::parse("home").unwrap(),
        member: world.sender.member,
        member_name: MemberName::parse("alice").unwrap(),
        broker_url: None,
        now: NOW,
    };
    store.ensure_mesh(new).await.unwrap();
    for n in 1..=12_u32 {
        let key = AcceptKey {
            mesh: world.mesh,
            sender: world.sender.clone(),
            client_message_id: id("out", n),
            request_fingerprint: print(n),
        };
        let fresh: Result<_, ()> = Ok(world.row(n));
        store.accept(key, fresh).await.unwrap();
        disk.mark(format!("accepted {n}"));
        if n.is_multiple_of(3) {
            drain(disk, store, world, n).await;
        }
        if n.is_multiple_of(4) {
            let rows = vec![world.inbox(n), world.inbox(n + 100)];
            store.receive(world.mesh, rows).await.unwrap();
            disk.mark(format!("received {n}"));
        }
    }
}

async fn drain(disk: &CrashDisk, store: &Store, world: &World, n: u32) {
    let due = store
        .take_due(world.mesh, Duration::from_secs(100), 10, 1 << 20)
        .await
        .unwrap();
    let dies = due[0].row;
    let moves = due.iter().enumerate().map(|(index, row)| Settle {
        row: row.row,
        attempts: row.attempts,
        next: match index {
            0 => RowMove::Dead {
                reason: "refused".to_owned(),
            },
            1 => RowMove::Done {
                broker_message_id: BrokerMessageId(world.ids.ulid()),
                history_id: HistoryId { epoch: 1, seq: 1 },
            },
            _ => RowMove::Retry {
                error: "later".to_owned(),
                waits: Waits::Row,
            },
        },
        begun: NOW,
        at: NOW,
        due: Duration::from_secs(200),
    });
    store.settle(moves.collect()).await.unwrap();
    disk.mark(format!("dead {}", due[0].client_message_id));
    let requeue = Requeue {
        old: dies,
        new: world.row(n + 1_000),
        new_client_message_id: id("successor", n),
        request_fingerprint: print(n + 1_000),
        aborted_by: "operator".to_owned(),
        now: NOW,
    };
    if n.is_multiple_of(2) {
        store.requeue(requeue).await.unwrap();
        disk.mark(format!("aborted {} {n}", due[0].client_message_id));
    }
}

/// What callers were told, read from the marks before the cut.
#[derive(Default)]
struct Told {
    accepted: Vec<u32>,
    received: Vec<u32>,
    dead: Vec<String>,
    aborted: BTreeMap<String, u32>,
}

fn told<'m>(markers: impl Iterator<Item = &'m str>) -> Told {
    let mut told = Told::default();
    for marker in markers {
        let words: Vec<&str> = marker.split(' ').collect();
        match words[..] {
            ["accepted", n] => told.accepted.push(n.parse().unwrap()),
            ["received", n] => told.received.push(n.parse().unwrap()),
            ["dead", id] => told.dead.push(id.to_owned()),
            ["aborted", id, n] => {
                told.aborted.insert(id.to_owned(), n.parse().unwrap());
            }
            _ => panic!("unknown mark {marker}"),
        }
    }
    told
}

async fn find(store: &Store, id: &str) -> Vec<OutboxRow> {
    let find = OutboxFind::ClientMessageId {
        id: ClientMessageId::parse(id).unwrap(),
        mesh: None,
        agent: None,
    };
    store.outbox_find(find).await.unwrap()
}

async fn judge(store: &Store, told: &Told) {
    store.recover(NOW).await.unwrap();
    for n in &told.accepted {
        let rows = find(store, &format!("out-{n}")).await;
        assert_eq!(rows.len(), 1, "ob_01: out-{n} was accepted");
        assert_eq!(rows[0].request_fingerprint, print(*n), "ob_01: out-{n}");
        assert!(
            rows[0]
                .payload
                .starts_with(format!("payload {n}").as_bytes())
        );
        assert_ne!(rows[0].status, OutboxStatus::Inflight, "dr_02");
        let expected = match &rows[0].status {
            OutboxStatus::Aborted => rows[0].superseded_by.is_some(),
            _ => rows[0].superseded_by.is_none(),
        };
        assert!(expected, "dr_11: out-{n} is retired by half");
    }
    for id in &told.dead {
        let status = find(store, id).await[0].status;
        assert!(
            matches!(status, OutboxStatus::Dead | OutboxStatus::Aborted),
            "ob_13: {id} was dead and is {}",
            status.as_str()
        );
    }
    for (id, n) in &told.aborted {
        assert_eq!(
            find(store, id).await[0].status,
            OutboxStatus::Aborted,
            "dr_12"
        );
        assert_eq!(
            find(store, &format!("successor-{n}")).await.len(),
            1,
            "dr_13"
        );
    }
    let filter = InboxFilter {
        mesh: None,
        agent: None,
        after: None,
        since: None,
        topic: None,
        from_member: None,
        from_agent: None,
        acked: AckedItems::All,
        limit: 500,
        bytes_max: 1 << 20,
    };
    let inbox = store.inbox_page(filter).await.unwrap();
    for n in &told.received {
        for seq in [*n, *n + 100] {
            let times = inbox
                .iter()
                .filter(|row| row.client_message_id == id("in", seq));
            assert_eq!(times.count(), 1, "in_02: in-{seq} was kept");
        }
    }
}

#[test]
fn ob_01_ob_13_dr_11_dr_18_in_02_what_was_answered_survives_a_power_cut_at_every_io() {
    let runtime = runtime();
    let world = World::new();
    let disk = CrashDisk::new(Device::PowersafeOverwrite);
    let store = open(&disk);
    runtime.block_on(run(&disk, &store, &world));
    store.stop();
    let mut replay = disk.replay();
    let mut cuts = 0_u64;
    for index in 0..=replay.len() {
        replay.advance_to(index);
        let told = told(replay.markers());
        for damage in Damage::ALL {
            let image = replay.image(damage, cuts);
            let store = open(&image);
            runtime.block_on(judge(&store, &told));
            store.stop();
            cuts += 1;
        }
    }
    assert!(cuts >= 1_500, "only {cuts} cuts");
}
