//! A store that fails: what is unknown is never refused for good, and the retry tells.

use std::sync::Arc;

use heddle_core::drain::PERMANENT;
use heddle_core::ids::MeshId;
use heddle_wire::broker::Verdict;

use crate::accept::Refusal;
use crate::storage::StorageError;
use crate::test_support::{
    Dump, Fault, Flaky, Gate, TestStorage, member, mesh, on_every_storage, party, refused_code,
    send_item,
};

on_every_storage!(
    br_09_a_commit_of_unknown_outcome_is_retried_and_found,
    br_09_a_commit_that_did_not_happen_is_retried_and_made,
    br_09_a_look_up_that_fails_refuses_for_now_and_decides_nothing,
);

fn unavailable() -> StorageError {
    StorageError::Unavailable("the cable".to_owned())
}

fn is_permanent(verdict: &Verdict) -> bool {
    let code = refused_code(verdict);
    code == "conflict" || PERMANENT.iter().any(|one| one.as_str() == code)
}

async fn br_09_a_commit_of_unknown_outcome_is_retried_and_found<S: TestStorage>(storage: Arc<S>) {
    let storage = Flaky::around(storage);
    let gate = Gate::open(storage.clone()).await;
    gate.subscribe_all(&["a/one"]).await;
    storage.set(Fault::AfterCommit(unavailable()));
    let unknown = gate.send("a/one", "A", "#ops", "x").await;
    assert_eq!(refused_code(&unknown), "storage_unavailable");
    assert!(!is_permanent(&unknown));
    assert_eq!(storage.count("message").await, 1);
    storage.set(Fault::None);
    let found = gate.send("a/one", "A", "#ops", "x").await;
    assert_eq!(refused_code(&found), "duplicate");
    assert_eq!(storage.count("message").await, 1);
}

async fn br_09_a_commit_that_did_not_happen_is_retried_and_made<S: TestStorage>(storage: Arc<S>) {
    let storage = Flaky::around(storage);
    let gate = Gate::open(storage.clone()).await;
    gate.subscribe_all(&["a/one"]).await;
    for (error, code) in [
        (unavailable(), "storage_unavailable"),
        (StorageError::Full, "insufficient_storage"),
    ] {
        storage.set(Fault::BeforeCommit(error));
        let items = ["A", "B"].map(|id| send_item("one", id, "#ops", "x"));
        let decided = gate.batch("a", items.into()).await;
        for verdict in &decided.verdicts {
            assert_eq!(refused_code(verdict), code);
            assert!(!is_permanent(verdict));
        }
        assert!(
            decided.effects.wake.is_empty(),
            "an effect without a commit"
        );
    }
    storage.set(Fault::None);
    for id in ["A", "B"] {
        let made = gate.send("a/one", id, "#ops", "x").await;
        assert_eq!(refused_code(&made), "created");
    }
}

async fn br_09_a_look_up_that_fails_refuses_for_now_and_decides_nothing<S: TestStorage>(
    storage: Arc<S>,
) {
    let storage = Flaky::around(storage);
    let gate = Gate::open(storage.clone()).await;
    gate.subscribe_all(&["a/one"]).await;
    storage.set(Fault::Look(unavailable()));
    // Refused for now though the message could never be taken: whether the id is known is not known.
    for to in ["#ops", "queue:q"] {
        let refused = gate.send("a/one", "A", to, "x").await;
        assert_eq!(refused_code(&refused), "storage_unavailable");
    }
    assert_eq!(storage.accept_count(), 0);
}

#[test]
fn br_10_no_error_of_a_store_is_a_permanent_refusal() {
    for error in [
        StorageError::UnknownMesh(MeshId(mesh(1).0)),
        StorageError::UnknownMember(member("a")),
        StorageError::UnknownAgent(party("a/one")),
        StorageError::Full,
        unavailable(),
    ] {
        let code = Refusal::from(error).code;
        assert!(!PERMANENT.contains(&code), "{}", code.as_str());
    }
}
