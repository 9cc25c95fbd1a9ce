//! The chain: what a store has written once can be told from every other store, also while it is in use.

use heddle_registrar::chain::{Link, Seal};
use heddle_registrar::storage::{Reached, Seen, Storage, StorageError};

use crate::world::{World, agent, effect, key, memory, sqlite};

async fn seen<S: Storage>(w: &World<S>, link: Option<Link>) -> Reached {
    let seen = Seen {
        link,
        ..Seen::default()
    };
    w.registrar.storage().reached(seen).await.unwrap()
}

async fn every_change_adds_a_link_and_a_refusal_none<S: Storage>(w: World<S>) {
    assert_eq!(seen(&w, None).await.link, None);
    let mut links: Vec<Link> = Vec::new();
    let mut grew = async |by: u64| {
        let link = seen(&w, None).await.link.unwrap();
        assert_eq!(link.seq, links.last().map_or(0, |last| last.seq) + by);
        links.push(link);
    };
    // A request alone is a change as well: it can be lost like any other.
    let envelope = w.request(&effect("k")).await;
    grew(1).await;
    let nonce = w.approve(&envelope).await;
    grew(1).await;
    w.register(&effect("k"), Some(&nonce)).await;
    grew(1).await;
    w.register(&effect("k"), Some(&nonce)).await;
    grew(0).await;
    let storage = w.registrar.storage();
    storage.reseal(Seal([7; 32])).await.unwrap();
    grew(1).await;
    assert_eq!(seen(&w, None).await.seal, Some(Seal([7; 32])));
    for link in links {
        assert!(seen(&w, Some(link)).await.has_seen);
        let other = Link {
            digest: [0; 32],
            ..link
        };
        assert!(!seen(&w, Some(other)).await.has_seen);
    }
}

/// The store that is asked is not the one that was seen: also between two calls of one process.
async fn rg_01_nothing_is_written_by_a_store_that_is_not_the_one_that_was_seen<S: Storage>(
    w: World<S>,
) {
    w.registered("before").await;
    let link = seen(&w, None).await.link.unwrap();
    let storage = w.registrar.storage();
    let later = Link {
        seq: link.seq + 1,
        digest: [1; 32],
    };
    let other = Link {
        digest: [1; 32],
        ..link
    };
    for gone in [later, other] {
        storage.expect(Some(gone));
        let asked = w.registrar.request(effect("k"), &agent()).await;
        assert!(matches!(asked, Err(StorageError::WentBack)), "{asked:?}");
        let begun = w
            .registrar
            .start(key("before"), "a".into(), None, &agent())
            .await;
        assert!(matches!(begun, Err(StorageError::WentBack)), "{begun:?}");
        let sealed = storage.reseal(Seal([1; 32])).await;
        assert!(matches!(sealed, Err(StorageError::WentBack)), "{sealed:?}");
    }
    assert_eq!(seen(&w, None).await.link, Some(link), "nothing was written");
    storage.expect(Some(link));
    w.registered("k").await;
}

on_every_store!(
    every_change_adds_a_link_and_a_refusal_none,
    rg_01_nothing_is_written_by_a_store_that_is_not_the_one_that_was_seen,
);

/// The same keys, the same number of rows, and not the same store.
#[tokio::test]
async fn rg_01_a_diverged_copy_with_as_many_rows_is_another_store() {
    let (one, other) = (sqlite().await, memory().await);
    let mut last = (None, None);
    for name in ["a", "b", "c"] {
        one.registered(name).await;
        other.registered(name).await;
        last = (seen(&one, None).await.link, seen(&other, None).await.link);
    }
    let rows = (seen(&one, None).await.rows, seen(&other, None).await.rows);
    assert_eq!(rows.0, rows.1);
    assert_eq!(last.0.unwrap().seq, last.1.unwrap().seq);
    assert!(!seen(&one, last.1).await.has_seen && !seen(&other, last.0).await.has_seen);
}

/// A raw deletion past the triggers is noticed too: the chain has a hole where it was.
#[tokio::test]
async fn what_is_taken_from_the_end_of_the_chain_is_missed() {
    let w = sqlite().await;
    w.registered("k").await;
    let link = seen(&w, None).await.link.unwrap();
    w.raw.run("DROP TRIGGER effect_chain_keep").await.unwrap();
    let cut = format!("DELETE FROM effect_chain WHERE seq = {}", link.seq);
    w.raw.run(&cut).await.unwrap();
    let asked = w.registrar.request(effect("k2"), &agent()).await;
    assert!(matches!(asked, Err(StorageError::WentBack)), "{asked:?}");
}
