//! Old tombstones of memory, state and vectors are collected in meshes of this home alone, and what is older
//! than they were never comes back (LF-11).

use heddle_core::clock::{Ids as _, WallMs};
use heddle_core::data::{DataKey, DataValue, Tags};
use heddle_core::ids::{MeshId, OpId};
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::limits::{SWEEP_GRACE, TOMBSTONE_LIFE};
use heddle_core::op::{
    DataOp, MemoryChange, NewMemory, NewState, NewVector, OpBody, Over, StateChange, VectorChange,
    VectorContent,
};
use heddle_core::vector::{Embedding, ModelIdentity};
use heddle_store::{Merged, Taken};
use serde_json::json;

use crate::fixture::{Fixture, NOW};
use crate::meshes::new_mesh;

const NOUNS: [&str; 3] = ["memory", "state", "vector"];

fn model() -> ModelIdentity {
    ModelIdentity::new("test", "m", "1", 2, "float32").unwrap()
}

/// A write or a delete of `at`, by this peer, so many milliseconds behind the beginning.
fn op(fixture: &Fixture, noun: &str, at: &str, lamport: u64, peer: &str, is_live: bool) -> DataOp {
    let key = DataKey::parse(at).unwrap();
    let value = || DataValue::new(&json!({"n": lamport})).unwrap();
    let body = match noun {
        "memory" => OpBody::Memory(MemoryChange {
            key,
            write: is_live.then(|| NewMemory {
                value: value(),
                tags: Tags::parse::<&str>(&[]).unwrap(),
            }),
        }),
        "state" => OpBody::State(StateChange {
            key,
            write: is_live.then(|| NewState { value: value() }),
        }),
        _ if is_live => OpBody::Vector(VectorChange::Store {
            key,
            new: Box::new(
                NewVector::new(
                    model(),
                    Embedding::new(vec![1.0, 2.0]).unwrap(),
                    VectorContent::new("text".to_owned()).unwrap(),
                    value(),
                )
                .unwrap(),
            ),
            replaces: None,
        }),
        _ => OpBody::Vector(VectorChange::Delete {
            key,
            models: vec![model().fingerprint()],
        }),
    };
    DataOp {
        stamp: Stamp {
            lamport,
            peer: PeerId::new(peer),
            op: OpId(fixture.ids.uuid_v7()),
        },
        incarnation: 1,
        at: WallMs(NOW.0 + i64::try_from(lamport).unwrap()),
        over: Over::Unsaid,
        body,
    }
}

async fn take(fixture: &Fixture, mesh: MeshId, op: DataOp) -> Taken {
    match fixture.store.take_in(mesh, op).await.unwrap() {
        Merged::Taken(taken) => taken,
        refused @ Merged::Refused(_) => panic!("{refused:?}"),
    }
}

fn marks(fixture: &Fixture, mesh: MeshId) -> i64 {
    let count = "SELECT
        (SELECT count(*) FROM memory WHERE tombstone = 1 AND mesh_id = ?1)
        + (SELECT count(*) FROM state_kv WHERE tombstone = 1 AND mesh_id = ?1)
        + (SELECT count(*) FROM vector_metadata WHERE tombstone = 1 AND mesh_id = ?1)";
    let raw = fixture.raw();
    raw.query_row(count, [mesh.0.to_bytes()], |row| row.get(0))
        .unwrap()
}

/// What was written and deleted in a mesh, and nothing else.
async fn lives(fixture: &Fixture, mesh: MeshId) {
    for noun in NOUNS {
        for (at, lamport, is_live) in [
            ("kept", 3, true),
            ("gone", 4, true),
            ("gone", 5, false),
            ("late", 6, true),
            ("late", 7, false),
        ] {
            let op = op(fixture, noun, at, lamport, "m/a", is_live);
            assert_eq!(take(fixture, mesh, op).await, Taken::Applied);
        }
    }
}

async fn sweep(fixture: &Fixture, after: i64) -> u64 {
    let life = i64::try_from(TOMBSTONE_LIFE.as_millis()).unwrap();
    let now = WallMs(NOW.0 + life + after);
    let blobs = fixture.blobs();
    let swept = fixture
        .store
        .sweep_files(&blobs, now, SWEEP_GRACE, &|| false);
    swept.await.unwrap().tombstones
}

#[tokio::test]
async fn lf_11_collected_marks_of_memory_state_and_vectors_keep_older_ops_out() {
    let fixture = Fixture::new();
    let mut personal = new_mesh(&fixture, "home");
    personal.broker_url = None;
    let personal = fixture.store.ensure_mesh(personal).await.unwrap().mesh;
    let mut shared = new_mesh(&fixture, "team");
    shared.broker_url = Some("ws://127.0.0.1:1".to_owned());
    let shared = fixture.store.ensure_mesh(shared).await.unwrap().mesh;
    for mesh in [personal, shared] {
        lives(&fixture, mesh).await;
    }
    // Deleted at NOW + 5 and NOW + 7: at this moment only the older marks are old enough.
    assert_eq!(sweep(&fixture, 6).await, 3);
    assert_eq!(sweep(&fixture, 6).await, 0);
    assert_eq!(marks(&fixture, personal), 3);
    assert_eq!(
        marks(&fixture, shared),
        6,
        "others may still send older ops"
    );
    for mesh in [personal, shared] {
        for noun in NOUNS {
            let older = op(&fixture, noun, "gone", 4, "m/a", true);
            assert_eq!(take(&fixture, mesh, older).await, Taken::Kept, "{noun}");
            let again = op(&fixture, noun, "gone", 5, "m/a", true);
            // The same lamport: the op's own id decides, and this one is younger.
            assert_eq!(take(&fixture, mesh, again).await, Taken::Applied, "{noun}");
            let dead = op(&fixture, noun, "kept", 2, "m/a", false);
            assert_eq!(take(&fixture, mesh, dead).await, Taken::Kept, "{noun}");
            let younger = op(&fixture, noun, "gone", 9, "m/a", true);
            assert_eq!(
                take(&fixture, mesh, younger).await,
                Taken::Applied,
                "{noun}"
            );
            // Somebody who came later has a clock of his own: a floor is not for him.
            let guest = op(&fixture, noun, "of a guest", 1, "g/a", true);
            assert_eq!(take(&fixture, mesh, guest).await, Taken::Applied, "{noun}");
        }
    }
}

#[tokio::test]
async fn lf_11_a_mesh_that_was_published_keeps_its_marks_from_then_on() {
    let fixture = Fixture::new();
    let mut mesh = new_mesh(&fixture, "home");
    mesh.broker_url = None;
    let mesh = fixture.store.ensure_mesh(mesh).await.unwrap().mesh;
    lives(&fixture, mesh).await;
    // Published, it has still no address: this home is its broker.
    let raw = fixture.raw();
    raw.execute(
        "UPDATE mesh SET kind = 'shared_owner' WHERE mesh_id = ?1",
        [mesh.0.to_bytes()],
    )
    .unwrap();
    assert_eq!(sweep(&fixture, 60_000).await, 0);
    assert_eq!(marks(&fixture, mesh), 6);
}
