//! What only SQLite can show: damage that the orphan check must find, and what survives a restart.

use std::time::Duration;

use heddle_core::age::AgeMark;
use heddle_core::ids::HistoryId;
use heddle_core::names::QueueName;
use rusqlite::Connection;

use super::*;
use crate::storage::{
    DeliveryCursor, Job, JobClaim, LeaseMs, Log, PageLimit, Presence, Queues, Taker, Upkeep,
};
use crate::test_support::{Gate, member, mesh, on_disk, party, refused_code, send_item};

async fn with_messages(
    storage: &SqliteStorage,
) -> Gate<SqliteStorage, crate::limiter::LocalLimiter> {
    let gate = Gate::open(std::sync::Arc::new(storage.clone())).await;
    gate.subscribe_all(&["a/one", "b/one"]).await;
    for number in 0..3 {
        let id = format!("id-{number}");
        gate.send("a/one", &id, "#ops", "hello").await;
        gate.send("a/one", &format!("dm-{number}"), "@b/one", "hello")
            .await;
    }
    gate.send("a/one", "work", "queue:q", "hello").await;
    gate.send("a/one", "op", "log:ops", "{}").await;
    gate
}

async fn damage(storage: &SqliteStorage, sql: &'static str) -> Vec<&'static str> {
    storage
        .write(mesh(1), move |connection: &Connection| {
            connection.execute_batch(sql)?;
            Ok(())
        })
        .await
        .unwrap();
    let orphans = storage.orphan_check(mesh(1)).await.unwrap();
    let mut problems: Vec<&str> = orphans.iter().map(|orphan| orphan.problem).collect();
    problems.dedup();
    problems
}

#[tokio::test]
async fn br_14_the_orphan_check_finds_every_kind_of_missing_row() {
    #[rustfmt::skip]
    let table = [
        ("DELETE FROM client_message_dedupe WHERE seq = 2",
            vec!["history_without_dedupe", "message_without_dedupe"]),
        ("DELETE FROM message WHERE client_message_id = 'id-1'",
            vec!["dedupe_disagrees_with_message"]),
        ("UPDATE client_message_dedupe SET history_available = 0 WHERE seq = 1",
            vec!["dedupe_disagrees_with_message"]),
        ("DELETE FROM message_history WHERE seq = 2",
            vec!["dedupe_without_history", "delivery_without_history", "gap_in_history", "message_without_history"]),
        ("DELETE FROM delivery_queue WHERE seq = 2", vec!["dm_without_delivery"]),
        ("UPDATE message_history SET is_expired = 1 WHERE seq = 2", vec!["dedupe_of_expired_history"]),
        ("DELETE FROM queue_item WHERE seq = 7", vec!["queue_message_without_item"]),
        ("INSERT INTO queue_item (mesh_id, queue, epoch, seq, priority, broker_message_id) VALUES (x'00000000000000000000000000000001', 'q', 1, 99, 1, x'00')",
            vec!["queue_item_without_history"]),
        ("DELETE FROM log_row WHERE seq = 8", vec!["op_without_log_row"]),
        ("UPDATE log_row SET seq = 99 WHERE seq = 8", vec!["log_row_without_history"]),
        ("INSERT INTO mention_index VALUES (x'00000000000000000000000000000001', x'00000000000000000000000000000061', 'one', 1, 99)",
            vec!["mention_without_history"]),
        ("UPDATE mesh SET next_seq = next_seq + 1", vec!["gap_in_history"]),
        ("UPDATE delivery_queue SET agent = 'two' WHERE seq = 2", vec!["dm_without_delivery"]),
        ("UPDATE client_message_dedupe SET destination_ref = 'x' WHERE seq = 1", vec!["message_differs_from_dedupe"]),
        ("UPDATE client_message_dedupe SET first_seen_at = 0 WHERE seq = 1", vec!["message_differs_from_dedupe"]),
        ("UPDATE message SET sender_agent = 'two' WHERE client_message_id = 'id-1'", vec!["message_differs_from_dedupe"]),
    ];
    for (sql, expected) in table {
        let disk = on_disk();
        with_messages(&disk.storage).await;
        assert_eq!(disk.storage.orphan_check(mesh(1)).await, Ok(Vec::new()));
        assert_eq!(damage(&disk.storage, sql).await, expected, "{sql}");
    }
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let disk = on_disk();
    with_messages(&disk.storage).await;
    let before = disk.storage.dump().await;
    disk.storage.stop();
    let again = SqliteStorage::open(Options::new(disk.path())).unwrap();
    assert_eq!(again.dump().await, before);
    assert_eq!(again.orphan_check(mesh(1)).await, Ok(Vec::new()));
    let begun = again.begin_session(mesh(1), member("a"), WallMs(1), LeaseMs(1));
    assert_eq!(begun.await, Ok(1));
}

#[tokio::test]
async fn br_09_a_stopped_store_is_unavailable_and_never_a_refusal_for_good() {
    let disk = on_disk();
    with_messages(&disk.storage).await;
    disk.storage.stop();
    let accepted = disk.storage.accept(mesh(1), Vec::new()).await;
    assert!(matches!(accepted, Err(StorageError::Unavailable(_))));
    let known = disk.storage.known(mesh(1), Vec::new()).await;
    assert!(matches!(known, Err(StorageError::Unavailable(_))));
}

/// BR-09: no space in the middle of a batch undoes all of it, is told as such, and passes.
#[tokio::test]
async fn br_09_a_full_disk_leaves_nothing_behind_and_is_told_as_full() {
    let disk = on_disk();
    let gate = Gate::open(std::sync::Arc::new(disk.storage.clone())).await;
    gate.subscribe_all(&["a/one"]).await;
    let limit_pages = |pages: u32| {
        disk.storage.write(mesh(1), move |connection| {
            connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
            Ok(())
        })
    };
    limit_pages(60).await.unwrap();
    let before = disk.storage.dump().await;
    let items = |size: usize| {
        let ids = ["A", "B", "C"].into_iter();
        let body = "x".repeat(size);
        ids.map(|id| send_item("one", id, "#ops", &body)).collect()
    };
    let decided = gate.batch("a", items(100_000)).await;
    for verdict in &decided.verdicts {
        assert_eq!(refused_code(verdict), "insufficient_storage");
    }
    assert_eq!(disk.storage.dump().await, before);
    assert_eq!(disk.storage.is_poisoned(), None);
    limit_pages(10_000).await.unwrap();
    let decided = gate.batch("a", items(100_000)).await;
    for verdict in &decided.verdicts {
        assert_eq!(refused_code(verdict), "created");
    }
    assert_eq!(disk.storage.orphan_check(mesh(1)).await, Ok(Vec::new()));
}

/// One byte that a disk has changed, in the first of several: those behind it go on, and what can be compared comes.
#[tokio::test]
async fn c30_a_byte_that_is_no_text_any_more_holds_up_nobody() {
    let page = PageLimit {
        rows_max: 9,
        bytes_max: 99_999,
    };
    let body = "envelope = CAST(replace(envelope, 'hello', CAST(x'e8656c6c6f' AS TEXT)) AS TEXT)";
    // What is changed, and whether the message still goes to those who compare it.
    for (change, comes) in [
        (body, true),
        ("sender_agent = CAST(x'6fee65' AS TEXT)", false),
        ("sender_name = CAST(x'e1' AS TEXT)", false),
        ("client_message_id = 'no id' || char(10)", false),
        ("destination_ref = CAST(x'e1' AS TEXT)", false),
    ] {
        let disk = on_disk();
        let storage = &disk.storage;
        let gate = with_messages(storage).await;
        gate.send("a/one", "more", "queue:q", "hello").await;
        let hurt = format!(
            "UPDATE message SET {change} WHERE client_message_id IN ('id-0', 'work', 'op')"
        );
        storage.batch(hurt).await;
        let left = usize::from(comes);

        let start = DeliveryCursor::START;
        let found = storage.deliveries_after(mesh(1), member("b"), start, page);
        let found = found.await.unwrap();
        assert_eq!(found.len(), 5 + left, "{change}");
        assert!(found.iter().all(|one| !one.envelope.is_empty()), "{change}");
        assert_eq!(
            found.iter().any(|one| one.envelope.contains('\u{fffd}')),
            comes
        );
        let queue = QueueName::parse("q").unwrap();
        let taker = Taker {
            agent: party("a/one"),
            now: LeaseMs(0),
            until: LeaseMs(9),
            at: WallMs(0),
            floor: 0,
        };
        let taken = storage.queue_take(mesh(1), &queue, taker, page);
        assert_eq!(taken.await.unwrap().len(), 1 + left, "{change}");
        let history = storage.history_after(mesh(1), HistoryId::ZERO, 99).await;
        assert_eq!(history.unwrap().len(), 9, "{change}");
        let log = storage.log_after(mesh(1), HistoryId::ZERO, page).await;
        let log = log.unwrap().rows;
        assert!(
            log.iter().all(|op| !op.envelope.contains('\u{fffd}')),
            "{change}"
        );
        let age = AgeMark {
            age: Duration::from_secs(1),
            wall: WallMs(0),
            boot: None,
        };
        let kept = storage.keep_age(mesh(1), age, Duration::ZERO).await;
        kept.unwrap();
        let born = Duration::from_secs(9);
        assert_eq!(storage.prune_messages(mesh(1), born).await, Ok(0));
        let checked = crate::jobs::orphan_check(storage).await.unwrap().orphans;
        assert!(
            change.starts_with("sender_name") || checked.len() >= 2,
            "{change}: {checked:?}"
        );
    }
}

/// What runs for every message.
fn hot_in_accept() -> impl Iterator<Item = &'static str> {
    let lists = [
        accept::STATEMENTS,
        effects::STATEMENTS,
        grants::IN_ACCEPT,
        history::STATEMENTS,
        look::STATEMENTS,
    ];
    lists.into_iter().flatten().copied()
}

fn explained(
    connection: &Connection,
    explain: &str,
    column: usize,
    sql: &str,
) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(&format!("{explain} {sql}"))?;
    let nulls = vec![rusqlite::types::Null; statement.parameter_count()];
    statement
        .query_map(rusqlite::params_from_iter(nulls), |row| row.get(column))?
        .collect()
}

/// Statements that run again and again.
fn hot() -> impl Iterator<Item = &'static str> {
    let others = [
        deliveries::STATEMENTS,
        grants::STATEMENTS,
        held::STATEMENTS,
        queues::STATEMENTS,
        story::STATEMENTS,
        retention::STATEMENTS,
        log::STATEMENTS,
        mend::STATEMENTS,
        snapshots::STATEMENTS,
        uploads::STATEMENTS,
    ];
    others.into_iter().flatten().copied().chain(hot_in_accept())
}

/// A scan would read the whole past of a mesh, and a temporary tree would be built for every run: a
/// list of three words in a CHECK is enough for that.
#[tokio::test]
async fn hot_statements_use_their_index_and_build_no_tree() {
    let disk = on_disk();
    // On the writer: a read-only connection does not know of any CHECK.
    let found = disk.storage.database.write(|connection| {
        let mut found = Vec::new();
        for sql in hot() {
            let mut lines = explained(connection, "EXPLAIN QUERY PLAN", 3, sql)?;
            lines.extend(explained(connection, "EXPLAIN", 1, sql)?);
            for bad in ["SCAN", "TEMP B-TREE", "OpenEphemeral"] {
                if lines.iter().any(|line| line.contains(bad)) {
                    found.push((bad, sql));
                }
            }
        }
        Ok::<_, rusqlite::Error>(found)
    });
    assert_eq!(found.await.unwrap(), []);
}

/// Preparing costs more than running. Left to itself SQLite prepares some statements anew for every use, because it
/// looks at their parameters when it plans them.
#[tokio::test]
async fn hot_statements_are_prepared_once() {
    let disk = on_disk();
    let name = crate::test_support::mesh_name("home");
    disk.storage.ensure_mesh(mesh(1), &name).await.unwrap();
    let prepared_again = disk.storage.write(mesh(1), |connection| {
        let mut prepared_again = Vec::new();
        for sql in hot() {
            for _ in 0..4 {
                let mut statement = connection.prepare_cached(sql)?;
                for index in 1..=statement.parameter_count() {
                    statement.raw_bind_parameter(index, "x")?;
                }
                // Refused by a constraint or not: by now it is prepared.
                let _ = statement.raw_query().next();
                if statement.get_status(rusqlite::StatementStatus::RePrepare) > 0 {
                    prepared_again.push(sql);
                }
            }
        }
        Ok(prepared_again)
    });
    assert_eq!(prepared_again.await.unwrap(), Vec::<&str>::new());
}

/// A file of the first release: everything in it is there after the migration, and what waited still
/// waits, by its priority.
#[tokio::test]
async fn lf_35_a_file_of_the_first_schema_is_brought_up_to_date_with_every_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broker.db");
    let old = Database::open(Options::new(&path), &schema::MIGRATIONS[..1]).unwrap();
    let filled = old.write(|connection| connection.execute_batch(FIRST_SCHEMA_ROWS));
    filled.await.unwrap();
    old.stop();
    let storage = SqliteStorage::open(Options::new(&path)).unwrap();
    let limit = crate::storage::PageLimit {
        rows_max: 9,
        bytes_max: 9_999,
    };
    let start = crate::storage::DeliveryCursor::START;
    let page = storage.deliveries_after(mesh(1), member("a"), start, limit);
    let page = page.await.unwrap();
    let places: Vec<String> = page.iter().map(|d| d.history_id.to_string()).collect();
    assert_eq!(places, ["1.3", "1.2"]);
    assert_eq!(storage.orphan_check(mesh(1)).await, Ok(Vec::new()));
    let dump = storage.dump().await;
    let delivered = dump
        .iter()
        .find(|line| line.contains("one 1.1 2 "))
        .unwrap();
    assert!(delivered.ends_with(" 77 -1 -1"), "{delivered}");
    assert_eq!(storage.lease_time(mesh(1)).await, Ok(LeaseMs(0)));
}

/// Three direct messages to `a/one`: a delivered low one, then an ordinary and an urgent one that wait.
const FIRST_SCHEMA_ROWS: &str = "
INSERT INTO mesh VALUES (x'00000000000000000000000000000001', 'home', 1, 4);
INSERT INTO member VALUES (x'00000000000000000000000000000001', x'00000000000000000000000000000061', 'a', 3);
INSERT INTO agent VALUES (x'00000000000000000000000000000001', x'00000000000000000000000000000061', 'one');
WITH n (id_key, id, seq) AS (VALUES
    (x'000000000000000000000000000000000000000000000001', x'00000000000000000000000000000001', 1),
    (x'000000000000000000000000000000000000000000000002', x'00000000000000000000000000000002', 2),
    (x'000000000000000000000000000000000000000000000003', x'00000000000000000000000000000003', 3))
INSERT INTO client_message_dedupe (mesh_id, id_key, sender_member, sender_agent, client_message_id, wire_fingerprint,
    broker_message_id, epoch, seq, destination_kind, destination_ref, first_seen_at)
SELECT x'00000000000000000000000000000001', id_key, x'00000000000000000000000000000061', 'one', 'id-' || seq,
    zeroblob(32), id, 1, seq, 'dm', 'a/one', 5 FROM n;
INSERT INTO message SELECT mesh_id, broker_message_id, sender_member, sender_agent, 'a', client_message_id, 'dm', 'a/one', 5,
    json_object('priority', CASE seq WHEN 1 THEN 'low' WHEN 2 THEN 'next' ELSE 'now' END) FROM client_message_dedupe;
INSERT INTO message_history SELECT mesh_id, epoch, seq, broker_message_id FROM client_message_dedupe;
INSERT INTO delivery_queue SELECT mesh_id, sender_member, seq = 1, epoch, seq, 'one', broker_message_id,
    CASE seq WHEN 1 THEN 77 END FROM client_message_dedupe;
";

#[tokio::test]
async fn br_12_a_job_whose_holder_dies_is_free_at_once_and_one_that_takes_long_keeps_it() {
    let first = on_disk();
    let gate = with_messages(&first.storage).await;
    let second = SqliteStorage::open(Options::new(first.path())).unwrap();
    let claim = async |storage: &SqliteStorage, who: &'static str, now: i64| {
        let claimed = storage.claim_job(JobClaim {
            mesh: mesh(1),
            job: Job::Sweep,
            holder: who.to_owned(),
            now: WallMs(now),
            until: WallMs(now + 600_000),
        });
        claimed.await.unwrap().map(|(holder, _)| holder)
    };
    assert_eq!(claim(&first.storage, "first", 0).await, None);
    // Long past the time it meant to take: it is at it all the same.
    assert_eq!(
        claim(&second, "second", 3_600_000).await,
        Some("first".to_owned())
    );
    let release = first.storage.release_job(mesh(1), Job::Sweep, "first");
    release.await.unwrap();
    assert_eq!(claim(&second, "second", 10).await, None);
    // It dies without a word: its row stays, its lock does not.
    second.stop();
    drop(second);
    assert_eq!(claim(&first.storage, "first", 20).await, None);
    drop(gate);
}
