//! Sync on a disk that loses power at every I/O: LF-05, LF-12, LF-14.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use heddle_core::clock::{Ids, ManualIds, WallMs};
use heddle_core::data::{DataKey, DataValue};
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{
    BrokerMessageId, ClientMessageId, HistoryId, MemberId, MeshId, OpId, Party,
};
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::names::{AgentName, MemberName, MeshName};
use heddle_core::op::{DataOp, NewState, OpBody, Over, StateChange};
use heddle_core::sync::OpMove;
use heddle_sqlite::Durability;
use heddle_store::{ChangeKey, NewMesh, NewOp, OpSettle, OutboxFind, Store, StoreOptions};
use serde_json::{Value, json};
use sim::crash_vfs::{CrashDisk, Damage, Device};

const NOW: WallMs = WallMs(1_000);
const CHANGES: u64 = 6;

struct World {
    ids: ManualIds,
    mesh: MeshId,
    own: Party,
    other: Party,
}

impl World {
    fn new() -> Self {
        let ids = ManualIds::seeded(7);
        let agent = AgentName::parse("planner").unwrap();
        let party = |ids: &ManualIds| Party {
            member: MemberId(ids.ulid()),
            agent: agent.clone(),
        };
        Self {
            mesh: MeshId(ids.ulid()),
            own: party(&ids),
            other: party(&ids),
            ids,
        }
    }

    fn change(&self, number: u64) -> (ChangeKey, DataKey, NewState) {
        let id = ChangeKey {
            mesh: self.mesh,
            peer: self.own.clone(),
            id: ClientMessageId::minted(self.ids.ulid()),
            fingerprint: Fingerprint([1; 32]),
            op: OpId(self.ids.uuid_v7()),
            now: NOW,
        };
        let value = DataValue::new(&json!(number)).unwrap();
        let key = DataKey::parse(&format!("own{number}")).unwrap();
        (id, key, NewState { value })
    }

    fn foreign(&self, number: u64) -> NewOp {
        let op = DataOp {
            stamp: Stamp {
                lamport: number,
                peer: PeerId::new(&self.other.to_string()),
                op: OpId::from_bytes([u8::try_from(number).unwrap(); 16]),
            },
            incarnation: 1,
            at: NOW,
            over: Over::Unsaid,
            body: OpBody::State(StateChange {
                key: DataKey::parse(&format!("other{number}")).unwrap(),
                write: Some(NewState {
                    value: DataValue::new(&json!(number)).unwrap(),
                }),
            }),
        };
        NewOp {
            history_id: at(number),
            previous: HistoryId {
                epoch: u64::from(number > 1),
                seq: number - 1,
            },
            sender: self.other.clone(),
            client_message_id: ClientMessageId::parse(&op.stamp.op.to_string()).unwrap(),
            op: Ok(op.to_bytes().unwrap()),
        }
    }
}

fn at(seq: u64) -> HistoryId {
    HistoryId { epoch: 1, seq }
}

fn open(disk: &CrashDisk) -> Store {
    let store = Store::open(StoreOptions {
        path: "data.db".into(),
        durability: Durability::Full,
        vfs: Some(disk.vfs()),
    });
    store.unwrap()
}

/// Changes, sends and applies; every op that was given to the network is marked in the disk's log.
async fn run(disk: &CrashDisk, store: &Store, world: &World) {
    let new = NewMesh {
        mesh: world.mesh,
        name: MeshName::parse("team").unwrap(),
        member: world.own.member,
        member_name: MemberName::parse("ann").unwrap(),
        broker_url: Some("ws://127.0.0.1:1/".to_owned()),
        now: NOW,
    };
    store.ensure_mesh(new).await.unwrap();
    for number in 1..=CHANGES {
        let (id, key, new) = world.change(number);
        store.set_state::<()>(id, key, Ok(new)).await.unwrap();
        let due = store.due_ops(world.mesh, Duration::ZERO, 10, 1 << 20);
        let due = due.await.unwrap();
        for op in &due {
            disk.mark(format!("sent {}", op.client_message_id));
        }
        take(store, world, vec![world.foreign(number)], number % 3 == 0).await;
        if number % 2 == 0 {
            let moves = due.iter().map(|op| OpSettle {
                arrival: op.arrival,
                row: op.row,
                attempts: op.attempts,
                next: OpMove::Done {
                    broker_message_id: BrokerMessageId(world.ids.ulid()),
                    history_id: at(100 + number),
                },
                begun: NOW,
                at: NOW,
                due: Duration::ZERO,
            });
            store.settle_ops(world.mesh, moves.collect()).await.unwrap();
        }
    }
}

/// Ops from the log: in one transaction where it is their turn, or kept first and then applied. How many changed a row.
async fn take(store: &Store, world: &World, ops: Vec<NewOp>, in_two_steps: bool) -> u64 {
    let (mesh, member) = (world.mesh, world.own.member);
    let report = if in_two_steps {
        let received = store.receive_ops(mesh, member, 1, ops, NOW);
        received.await.unwrap();
        None
    } else {
        let taken = store.take_page(mesh, member, 1, ops, NOW);
        taken.await.unwrap().1
    };
    let report = match report {
        Some(report) => report,
        None => store.apply_ops(mesh, 100, NOW).await.unwrap(),
    };
    report.applied
}

async fn dump(store: &Store, mesh: MeshId) -> Vec<Value> {
    let lines = store.dump(mesh, 0, usize::MAX).await.unwrap().lines;
    lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

async fn has_row(store: &Store, id: &str) -> bool {
    let find = OutboxFind::ClientMessageId {
        id: ClientMessageId::parse(id).unwrap(),
        mesh: None,
        agent: None,
    };
    store.outbox_find(find).await.unwrap().len() == 1
}

async fn judge(store: &Store, world: &World, sent: &BTreeSet<String>) {
    store.recover(NOW).await.unwrap();
    for id in sent {
        assert!(has_row(store, id).await, "lf_05: {id} was sent and is gone");
    }
    for row in dump(store, world.mesh).await {
        if row["updated_by"] == world.own.to_string() {
            let id = row["op_id"].as_str().unwrap();
            assert!(has_row(store, id).await, "lf_12: {row} has no op");
        }
    }
    if store.meshes().await.unwrap().is_empty() {
        return;
    }
    // Whatever was lost of the log is read again; what was kept is not applied twice.
    let held = dump(store, world.mesh).await;
    let ops = (1..=CHANGES).map(|number| world.foreign(number)).collect();
    let applied = take(store, world, ops, true).await;
    let all = dump(store, world.mesh).await;
    assert_eq!(
        held.len() + usize::try_from(applied).unwrap(),
        all.len(),
        "lf_14: a mark without its effect"
    );
    let theirs = all
        .iter()
        .filter(|row| row["updated_by"] == world.other.to_string());
    assert_eq!(theirs.count() as u64, CHANGES, "lf_14");
}

#[test]
fn lf_05_lf_12_lf_14_what_was_sent_and_applied_survives_a_power_cut_at_every_io() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let world = World::new();
    let disk = CrashDisk::new(Device::PowersafeOverwrite);
    let store = open(&disk);
    runtime.block_on(run(&disk, &store, &world));
    store.stop();
    let mut replay = disk.replay();
    let mut cuts = 0_u64;
    for index in 0..=replay.len() {
        replay.advance_to(index);
        let sent: BTreeSet<String> = replay
            .markers()
            .map(|mark| mark.trim_start_matches("sent ").to_owned())
            .collect();
        for damage in Damage::ALL {
            let image = replay.image(damage, cuts);
            let store = open(&image);
            runtime.block_on(judge(&store, &world, &sent));
            store.stop();
            cuts += 1;
        }
    }
    assert!(cuts >= 500, "only {cuts} cuts");
}
