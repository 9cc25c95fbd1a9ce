//! BR-15 with two transactions: one claims an id and fails while another waits for it.

use std::time::Duration;

use heddle_core::ids::{BrokerMessageId, HistoryId};
use tokio_postgres::Client;
use ulid::Ulid;

use super::{message, two};
use crate::storage::{Accepted, PostgresOptions, Storage as _, StorageError, Upkeep as _};
use crate::test_support::{mesh, postgres_options};

/// The broker's id of the message that fails, and of the one that waits for it.
const CLAIMANT: u128 = 7;
const WAITER: u128 = 8;

/// How the claimant's transaction comes to its end.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fails {
    /// Its message row is refused.
    Refused,
    /// Its connection is cut by the server.
    Cut,
}

/// A connection of the test's own that holds the claimant back.
struct Warden {
    client: Client,
    pid: i32,
    key: i64,
}

impl Warden {
    /// From now on the claimant's message row waits for the warden, and is refused then.
    async fn hold(options: &PostgresOptions) -> Self {
        let (client, connection) = tokio_postgres::connect(&options.url, tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        let schema = &options.schema;
        let key: i64 = schema.rsplit('_').next().unwrap().parse().unwrap();
        let claimant: String = Ulid::from(CLAIMANT)
            .to_bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let sql = format!(
            "CREATE FUNCTION {schema}.held() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 IF encode(NEW.broker_message_id, 'hex') = '{claimant}' THEN
                     PERFORM pg_advisory_xact_lock({key});
                     RAISE EXCEPTION 'refused by the test';
                 END IF;
                 RETURN NEW;
             END $$;
             CREATE TRIGGER held BEFORE INSERT ON {schema}.message
                 FOR EACH ROW EXECUTE FUNCTION {schema}.held();
             SELECT pg_advisory_lock({key})"
        );
        client.batch_execute(&sql).await.unwrap();
        let row = client.query_one("SELECT pg_backend_pid()", &[]).await;
        let pid = row.unwrap().get(0);
        Self { client, pid, key }
    }

    /// Waits until somebody waits for this backend; who.
    async fn waits_for(&self, pid: i32) -> i32 {
        let sql = "SELECT pid FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))";
        for _ in 0..2_000 {
            let rows = self.client.query(sql, &[&pid]).await.unwrap();
            if let Some(row) = rows.first() {
                return row.get(0);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("nobody waits for {pid}");
    }

    async fn end(&self, claimant: i32, fails: Fails) {
        let sql = match fails {
            Fails::Refused => format!("SELECT pg_advisory_unlock({})", self.key),
            Fails::Cut => format!(
                "SELECT pg_terminate_backend({claimant}); SELECT pg_advisory_unlock({})",
                self.key
            ),
        };
        self.client.batch_execute(&sql).await.unwrap();
    }
}

async fn claimant_fails(fails: Fails) {
    let options = postgres_options().await;
    let brokers = two(&options).await;
    let warden = Warden::hold(&options).await;
    let send = |broker: usize, minted| {
        let storage = brokers[broker].clone();
        let hot = message("hot", 1, minted);
        tokio::spawn(async move { storage.accept(mesh(1), vec![hot]).await })
    };
    let first = send(0, CLAIMANT);
    // Its dedupe row is written and not committed.
    let claimant = warden.waits_for(warden.pid).await;
    let second = send(1, WAITER);
    let waiter = warden.waits_for(claimant).await;
    assert_ne!(waiter, claimant);
    assert!(!second.is_finished(), "it was answered before the claimant");

    warden.end(claimant, fails).await;
    let told: Result<Vec<Accepted>, StorageError> = second.await.unwrap();
    assert!(
        matches!(told.as_deref(), Ok([Accepted::Created { .. }])),
        "{fails:?}: the waiter was told {told:?}"
    );
    let waiter = BrokerMessageId(Ulid::from(WAITER));
    match first.await.unwrap().as_deref() {
        Ok([Accepted::Failed(_)]) | Err(_) => {}
        // It tried again by itself, and by then the waiter's was committed.
        Ok([Accepted::Duplicate(consumed)]) => assert_eq!(consumed.broker_message_id, waiter),
        other => panic!("{fails:?}: the claimant was told {other:?}"),
    }
    let id = message("hot", 1, WAITER).id;
    let status = brokers[0].status(mesh(1), id).await.unwrap();
    assert_eq!(
        status.map(|consumed| consumed.broker_message_id),
        Some(waiter)
    );
    let history = brokers[1].history_after(mesh(1), HistoryId::ZERO, 9);
    assert_eq!(history.await.unwrap().len(), 1);
    assert_eq!(brokers[0].orphan_check(mesh(1)).await, Ok(Vec::new()));
    // The claimant's own retry hears of the one that was committed.
    let again = send(0, 9).await.unwrap().unwrap();
    let [Accepted::Duplicate(consumed)] = again.as_slice() else {
        panic!("{fails:?}: {again:?}");
    };
    assert_eq!(consumed.broker_message_id, waiter);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn br_15_whoever_waits_for_a_claimant_that_is_refused_commits_and_is_no_duplicate() {
    claimant_fails(Fails::Refused).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn br_15_whoever_waits_for_a_claimant_that_is_cut_off_commits_and_is_no_duplicate() {
    claimant_fails(Fails::Cut).await;
}
