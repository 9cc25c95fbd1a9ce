//! An older database is put in the place of the one that is in use, under brokers that keep running.

use heddle_core::ids::HistoryId;
use heddle_core::witness::Witness;

use super::super::PostgresStorage;
use super::{message, two};
use crate::storage::{
    Ack, DeliveryCursor, Log as _, PageLimit, Storage as _, StorageError, Upkeep as _, Wakes as _,
};
use crate::test_support::{member, mesh, party, postgres_options};

fn place(epoch: u64, seq: u64) -> HistoryId {
    HistoryId { epoch, seq }
}

async fn accept(storage: &PostgresStorage, id: &str, minted: u128) -> Result<(), StorageError> {
    let accepted = storage.accept(mesh(1), vec![message(id, 1, minted)]).await;
    accepted.map(|_| ())
}

async fn places(storage: &PostgresStorage) -> Vec<HistoryId> {
    let rows = storage.history_after(mesh(1), HistoryId::ZERO, 100).await;
    rows.unwrap().iter().map(|row| row.history_id).collect()
}

fn is_later<T: std::fmt::Debug>(answer: &Result<T, StorageError>) -> bool {
    matches!(answer, Err(StorageError::Unavailable(_)))
}

/// The same mark stands in the older row of the mesh, so a set in one statement would go through.
#[tokio::test]
async fn lf_16_under_a_broker_that_runs_an_older_database_gives_no_place_out_twice() {
    let [one, other] = two(&postgres_options().await).await;
    for (id, minted) in [("1", 1), ("2", 2)] {
        accept(&one, id, minted).await.unwrap();
    }
    one.keep_copy().await;
    for (id, minted) in [("3", 3), ("4", 4), ("5", 5)] {
        accept(&one, id, minted).await.unwrap();
    }
    // The other one has committed nothing of it. What it pushes it has seen.
    let limit = PageLimit {
        rows_max: 100,
        bytes_max: 1 << 20,
    };
    let start = DeliveryCursor::START;
    let pushed = other.deliveries_after(mesh(1), member("a"), start, limit);
    assert_eq!(pushed.await.unwrap().len(), 5);
    one.put_back().await;
    for storage in [&one, &other] {
        for id in ["x", "y"] {
            assert!(is_later(&accept(storage, id, 6).await), "{id}");
        }
        let seen = storage.seen().unwrap();
        assert_eq!(seen.newest(mesh(1)), place(1, 5));
        assert_eq!(seen.take_fallen(), [mesh(1)].into());
    }
    assert_eq!(places(&one).await, [place(1, 1), place(1, 2)]);
    // What does not take a place goes on, beside those that wait.
    let ack = Ack {
        history_id: place(1, 1),
        agent: party("a/one").agent,
    };
    let (acked, refused) = tokio::join!(
        one.ack(
            mesh(1),
            member("a"),
            vec![ack],
            heddle_core::clock::WallMs(9)
        ),
        accept(&one, "x", 6)
    );
    assert!(acked.is_ok(), "{acked:?}");
    assert!(is_later(&refused));
    // So does the work that ends it, however many accepts stand in line around it.
    let storm = (0..20).map(|n| {
        let (storage, id) = (one.clone(), format!("s{n}"));
        async move { accept(&storage, &id, 100 + n).await }
    });
    let storm = futures_util::future::join_all(storm);
    let (_, raised) = tokio::join!(storm, one.raise_epoch_beyond(mesh(1), place(1, 5)));
    assert_eq!(raised, Ok(true));
    for (storage, id, minted) in [(&one, "x", 6), (&other, "y", 7), (&one, "3", 8)] {
        accept(storage, id, minted).await.unwrap();
    }
    let places = places(&one).await;
    assert_eq!(places[..3], [place(1, 1), place(1, 2), place(2, 1)]);
    assert!(
        places.iter().all(|at| at.epoch == 2 || at.seq <= 2),
        "{places:?}"
    );
    assert_eq!(one.orphan_check(mesh(1)).await, Ok(Vec::new()));
}

/// A broker that has seen nothing of it cannot know. The others do, and its places go.
#[tokio::test]
async fn lf_16_what_a_broker_that_knew_nothing_gave_out_again_is_known_by_the_others() {
    let [one, other] = two(&postgres_options().await).await;
    accept(&one, "1", 1).await.unwrap();
    one.keep_copy().await;
    for (id, minted) in [("2", 2), ("3", 3), ("4", 4)] {
        accept(&one, id, minted).await.unwrap();
    }
    one.put_back().await;
    for (id, minted) in [("x", 5), ("y", 6)] {
        accept(&other, id, minted).await.unwrap();
    }
    assert!(is_later(&accept(&one, "5", 7).await));
    let seen: Vec<Witness> = one.seen().unwrap().of(mesh(1));
    let parted = one.part(mesh(1), seen).await.unwrap().unwrap();
    assert_eq!((parted.after, parted.moved), (place(1, 1), 2));
    let expected = [place(1, 1), place(2, 1), place(2, 2), place(2, 3)];
    accept(&one, "5", 7).await.unwrap();
    assert_eq!(places(&one).await, expected);
}

impl PostgresStorage {
    /// As a dump of all tables does it.
    pub(crate) async fn keep_copy(&self) {
        self.batch(
            "DO $$ DECLARE one text; BEGIN
                EXECUTE format('CREATE SCHEMA %I', current_schema() || '_older');
                FOR one IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() LOOP
                    EXECUTE format('CREATE TABLE %I.%I AS SELECT * FROM %I', current_schema() || '_older', one, one);
                END LOOP; END $$",
        )
        .await;
    }

    /// As TRUNCATE and COPY of such a dump do it, with no trigger fired.
    pub(crate) async fn put_back(&self) {
        self.batch(
            "DO $$ DECLARE one text; BEGIN
                SET LOCAL session_replication_role = replica;
                FOR one IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() LOOP
                    EXECUTE format('DELETE FROM %I', one);
                    EXECUTE format('INSERT INTO %I SELECT * FROM %I.%I', one, current_schema() || '_older', one);
                END LOOP; END $$",
        )
        .await;
    }
}
