//! A clock that a disk has put far ahead, and what a Heddle that believed it has left behind (LF-06, C39); and one that it has put back.

use heddle_core::clock::Ids as _;
use heddle_core::data::{DataKey, DataValue};
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{ClientMessageId, OpId};
use heddle_core::lamport::Stamp;
use heddle_core::names::{MemberName, MeshName};
use heddle_core::op::DataOp;
use heddle_core::op::NewState;
use heddle_core::outbox_status::OutboxStatus;
use heddle_store::{
    ChangeKey, Checkup, MeshKind, NewOp, RepairHints, Repaired, StoreError, TaskWish, check_up,
    repair,
};
use rusqlite::Connection;
use serde_json::json;

use crate::fixture::{Fixture, NOW, at, open, unseal};
use crate::sync_home::{Home, op_of};
use crate::tasks::{at as moment, claim, fresh};

const FAR: u64 = 1 << 40;

fn raw(home: &Home) -> Connection {
    Connection::open(home.folder.path().join("data.db")).unwrap()
}

fn put_ahead(home: &Home) {
    let flip = "UPDATE lamport_clock SET value = value | (1 << 40)";
    raw(home).execute(flip, []).unwrap();
}

async fn try_set(home: &Home, key: &str) -> Result<(), StoreError> {
    let change = ChangeKey {
        mesh: home.mesh,
        peer: home.party(),
        id: ClientMessageId::minted(home.ids.ulid()),
        fingerprint: Fingerprint([1; 32]),
        op: OpId(home.ids.uuid_v7()),
        now: NOW,
    };
    let value = DataValue::new(&json!(1)).unwrap();
    let set =
        home.store
            .set_state::<()>(change, DataKey::parse(key).unwrap(), Ok(NewState { value }));
    set.await.map(|_| ())
}

fn check(home: &Home) -> Checkup {
    let data = home.folder.path().join("data.db");
    check_up(&data, &home.folder.path().join("blobs"), |_, _| true, true).unwrap()
}

fn mend(home: &Home) -> Option<Repaired> {
    let hints = RepairHints {
        elsewhere: Vec::new(),
        home: MeshName::parse("team").unwrap(),
        person: MemberName::parse("ann").unwrap(),
        models: Vec::new(),
    };
    let blobs = heddle_store::Blobs::open(&home.folder.path().join("blobs")).unwrap();
    repair(&home.folder.path().join("data.db"), &blobs, &hints, NOW).unwrap()
}

/// The op as it comes back through the log.
fn back(home: &Home, op: &DataOp, seq: u64) -> NewOp {
    NewOp {
        history_id: at(1, seq),
        previous: at(1, seq - 1),
        sender: home.party(),
        client_message_id: ClientMessageId::parse(&op.stamp.op.to_string()).unwrap(),
        op: Ok(op.to_bytes().unwrap()),
    }
}

async fn owner() -> Home {
    let home = Home::new(5, None).await;
    let kind = home.store.set_mesh_kind(home.mesh, MeshKind::SharedOwner);
    kind.await.unwrap();
    home
}

#[tokio::test]
async fn lf_06_a_write_under_a_clock_far_ahead_is_refused_and_writes_nothing() {
    for home in [Home::shared(1).await, Home::new(2, None).await] {
        home.set("a", json!(1)).await;
        put_ahead(&home);
        for _ in 0..2 {
            let refused = try_set(&home, "x").await.unwrap_err().to_string();
            assert!(
                refused.contains("the clock of mesh team stands at 1099511627777, far ahead of 1"),
                "{refused}"
            );
        }
        assert_eq!(home.get("x").await, None);
        let told = home.store.clock_problems().await.unwrap();
        assert_eq!(
            told.len(),
            1,
            "the refusal leaves the clock to be told of: {told:?}"
        );
    }
}

#[tokio::test]
async fn lf_06_what_was_written_under_such_a_clock_is_named_as_this_homes_and_a_repair_mends_it() {
    let mut home = owner().await;
    for key in ["a", "sent", "waits"] {
        home.set(key, json!(key)).await;
    }
    let due = home.due().await;
    let ops: Vec<DataOp> = due.iter().map(op_of).collect();
    let far = |op: &DataOp, lamport| DataOp {
        stamp: Stamp {
            lamport,
            ..op.stamp.clone()
        },
        ..op.clone()
    };
    // As a Heddle left it that believed the clock: rows, clock, the log's own copy, and one that has not gone out.
    let (sent, waits) = (far(&ops[1], FAR + 2), far(&ops[2], FAR + 3));
    let sealed = heddle_core::op::seal(&waits).unwrap();
    let raw = raw(&home);
    raw.execute_batch(
        "DROP TRIGGER outbox_frozen;
         UPDATE state_kv SET lamport = lamport | (1 << 40) WHERE key <> 'a';
         UPDATE lamport_clock SET value = value | (1 << 40);
         DELETE FROM op_outbox WHERE arrival < 3;",
    )
    .unwrap();
    let payload = "UPDATE outbox SET payload = ?1 WHERE arrival = 3";
    raw.execute(payload, [sealed.payload]).unwrap();
    drop(raw);
    home.store.stop();
    unseal(&home.folder.path().join("data.db"));
    home.store = open(&home.folder.path().join("data.db")).unwrap();
    home.receive(vec![back(&home, &ops[0], 1), back(&home, &sent, 2)])
        .await;
    assert_eq!(home.apply().await.quarantined, 1);
    let figures = home.store.sync_figures(home.mesh).await.unwrap();
    assert_eq!((figures.in_quarantined, figures.in_own_refused), (1, 1));
    let rows = home.store.unreadable(home.mesh, u64::MAX).await.unwrap();
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(
        rows[0].to_string().contains("this home wrote it"),
        "{rows:?}"
    );
    assert!(try_set(&home, "x").await.is_err());
    home.store.stop();
    let says = check(&home).senseless.join("; ");
    for words in [
        "the clock of mesh team stands at",
        "state \"sent\"",
        "a change that this home wrote in mesh team while its clock was far ahead",
    ] {
        assert!(says.contains(words), "{words}: {says}");
    }
    let mended = mend(&home).unwrap();
    assert_eq!(mended.unreadable.len(), 2, "{mended:?}");
    assert_eq!(check(&home).senseless, Vec::<String>::new());
    assert_eq!(mend(&home), None);
    home.store = open(&home.folder.path().join("data.db")).unwrap();
    let aside = home.store.set_aside_ops(home.mesh, 9).await.unwrap();
    assert_eq!(aside, []);
    assert!(
        home.due().await.is_empty(),
        "it would be set aside everywhere"
    );
    let (status, ..) = home.status(due[2].client_message_id.as_str()).await;
    assert_eq!(status, OutboxStatus::Aborted);
    assert_eq!(home.get("a").await.as_deref(), Some("\"a\""));
    assert_eq!(home.get("sent").await, None);
    assert_eq!(home.set("sent", json!(2)).await.stamp.lamport, 2);
}

#[tokio::test]
async fn a_step_under_a_clock_that_was_put_back_is_refused_and_rewrites_no_record() {
    let fixture = Fixture::new().with_mesh().await;
    let task = fixture.add("t", &[]).await;
    for number in 0..8 {
        fixture.add(&format!("other {number}"), &[]).await;
    }
    fresh(fixture.step("eve", "c", task, claim()).await);
    let release = TaskWish::Release { fence: None };
    fresh(fixture.step("eve", "r", task, release).await);
    let (events, steps) = (fixture.events(task).await, fixture.dump("task_op"));
    let back = "UPDATE lamport_clock SET value = value - 8";
    fixture.raw().execute(back, []).unwrap();
    for again in 0..2 {
        let key = fixture.task_key(fixture.party("bob"), &format!("b{again}"), 2);
        let claimed = fixture
            .store
            .step_task::<&str>(key, task, claim(), moment(0), Ok(()));
        let refused = claimed.await;
        assert!(
            matches!(refused, Err(StoreError::Corrupt(_))),
            "{refused:?}"
        );
    }
    assert_eq!(fixture.events(task).await, events);
    assert_eq!(fixture.dump("task_op"), steps);
    // And as soon as it is right again the same step is taken.
    let forth = "UPDATE lamport_clock SET value = value + 8";
    fixture.raw().execute(forth, []).unwrap();
    fresh(fixture.step("bob", "b0", task, claim()).await);
}
