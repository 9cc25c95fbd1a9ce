//! Who carries a write to its commit: the task that queued it, a task that goes on, or the thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use heddle_sqlite::{Database, WriteError};
use rusqlite::Connection;
use tokio::runtime::{Builder, Runtime};

use crate::support::{Gate, Home, bodies, insert, open, queue};

fn runtime(workers: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(workers)
        .build()
        .unwrap()
}

fn here(_: &Connection) -> Result<ThreadId, rusqlite::Error> {
    Ok(thread::current().id())
}

#[test]
fn a_lone_write_of_a_task_is_committed_where_the_task_stands() {
    let home = Home::new();
    let database = home.open();
    runtime(2).block_on(async {
        for n in 0..20 {
            assert_eq!(database.write(here).await, Ok(thread::current().id()));
            assert_eq!(database.write(insert(format!("{n}"))).await, Ok(()));
        }
    });
    assert_eq!(bodies(&database).len(), 20);
}

#[test]
fn a_caller_without_a_runtime_is_served_by_the_writers_own_thread() {
    let home = Home::new();
    let database = home.open();
    let led_by = database.write_blocking(here).unwrap();
    assert_ne!(led_by, thread::current().id());
    assert_eq!(database.write_blocking(here), Ok(led_by));
}

#[test]
fn tasks_that_write_at_once_share_commits_and_lose_nothing() {
    const TASKS: usize = 64;
    const EACH: usize = 50;
    for workers in [1, 3] {
        let home = Home::new();
        let database = home.open();
        runtime(workers).block_on(async {
            let tasks: Vec<_> = (0..TASKS)
                .map(|task| {
                    let database = database.clone();
                    tokio::spawn(async move {
                        for n in 0..EACH {
                            let body = format!("{task}/{n}");
                            assert_eq!(database.write(insert(body)).await, Ok(()));
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        let stats = database.stats();
        assert_eq!(stats.writes, (TASKS * EACH) as u64);
        assert!(stats.transactions * 4 < stats.writes, "{stats:?}");
        assert_eq!(bodies(&database).len(), TASKS * EACH);
    }
}

#[test]
fn writes_queued_by_a_runtime_that_ends_are_committed_all_the_same() {
    for _ in 0..20 {
        let home = Home::new();
        let database = home.open();
        let gate = Gate::close(&database);
        let runtime = runtime(2);
        let entered = runtime.enter();
        let queued: Vec<_> = (0..10)
            .map(|n| queue(database.write(insert(format!("{n}")))))
            .collect();
        drop(queued);
        drop(entered);
        runtime.shutdown_background();
        gate.open();
        database.stop();
        assert_eq!(bodies(&home.open()).len(), 10);
    }
}

#[test]
fn a_task_that_leads_others_is_not_needed_for_them_to_be_answered() {
    let home = Home::new();
    let database = home.open();
    let runtime = runtime(2);
    // The first leads; the rest is queued by its own job, so that it finds more waiting when it is done.
    let others: Arc<std::sync::Mutex<Vec<_>>> = Arc::default();
    let (inner, kept, handle) = (
        database.clone(),
        Arc::clone(&others),
        runtime.handle().clone(),
    );
    let first = runtime.block_on(database.write(move |connection| {
        for n in 0..10 {
            let inner = inner.clone();
            let task = handle.spawn(async move { inner.write(insert(format!("{n}"))).await });
            kept.lock().unwrap().push(task);
        }
        while Arc::strong_count(&kept) > 2 {
            thread::yield_now();
        }
        insert("first")(connection)
    }));
    assert_eq!(first, Ok(()));
    let others = std::mem::take(&mut *others.lock().unwrap());
    for other in others {
        assert_eq!(runtime.block_on(other).unwrap(), Ok(()));
    }
    assert_eq!(bodies(&database).len(), 11);
}

#[test]
fn a_slow_disk_is_waited_for_on_the_writers_own_thread() {
    static NOW_MS: AtomicU64 = AtomicU64::new(0);
    let home = Home::new();
    let mut options = home.options();
    options.monotonic = Some(|| Duration::from_millis(NOW_MS.load(Ordering::SeqCst)));
    let database = open(options);
    let takes = |ms| {
        move |_: &Connection| {
            NOW_MS.fetch_add(ms, Ordering::SeqCst);
            Ok::<_, rusqlite::Error>(thread::current().id())
        }
    };
    runtime(2).block_on(async {
        let own = thread::current().id();
        assert_eq!(database.write(takes(1)).await, Ok(own));
        assert_eq!(database.write(takes(500)).await, Ok(own));
        let led_by = database.write(takes(500)).await.unwrap();
        assert_ne!(led_by, own, "the task waited for a slow disk again");
        assert_eq!(database.write(takes(1)).await, Ok(led_by));
        // It is fast again. The thread gives up the lead just after its answer, so a write that comes
        // at once may still ride with it; in the end one does not.
        while database.write(takes(1)).await != Ok(own) {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn a_job_led_by_a_task_may_not_wait_for_a_write_nor_for_its_own_end() {
    let home = Home::new();
    let database = home.open();
    runtime(2).block_on(async {
        let inner = database.clone();
        let nested = database
            .write(move |_| Ok::<_, rusqlite::Error>(inner.write_blocking(insert("nested"))));
        assert_eq!(nested.await, Ok(Err(WriteError::Busy)));
        let inner = database.clone();
        let last = database.write(move |connection| {
            inner.stop();
            insert("last")(connection)
        });
        assert_eq!(last.await, Ok(()));
    });
    database.stop();
    assert_eq!(bodies(&home.open()), ["last"]);
}

#[test]
fn a_panic_in_a_led_job_answers_everybody_and_the_next_write_works() {
    let home = Home::new();
    let database = home.open();
    runtime(2).block_on(async {
        let panics = database.write(|_| -> Result<(), rusqlite::Error> { panic!("boom") });
        assert!(matches!(panics.await, Err(WriteError::Panicked(_))));
        assert_eq!(database.write(insert("after")).await, Ok(()));
    });
    assert_eq!(bodies(&database), ["after"]);
}

async fn count(database: &Database) -> (i64, ThreadId) {
    let read = database.read_few(|connection| {
        let count = connection.query_row("SELECT count(*) FROM notes", [], |row| row.get(0))?;
        Ok::<_, rusqlite::Error>((count, thread::current().id()))
    });
    read.await.unwrap()
}

#[test]
fn a_read_of_a_few_rows_happens_where_the_caller_stands_and_sees_what_was_answered() {
    let home = Home::new();
    let database = home.open();
    runtime(1).block_on(async {
        for n in 1..=5 {
            assert_eq!(database.write(insert(format!("{n}"))).await, Ok(()));
            assert_eq!(count(&database).await, (n, thread::current().id()));
        }
        // The place is taken by a read that asks for another: the pool serves that one.
        let inner = database.clone();
        let handle = tokio::runtime::Handle::current();
        let outer = database.read_few(move |_| {
            let inside = thread::spawn(move || handle.block_on(count(&inner)));
            Ok::<_, rusqlite::Error>(inside.join().unwrap())
        });
        let (rows, by) = outer.await.unwrap();
        assert_eq!(rows, 5);
        assert_ne!(by, thread::current().id());
    });
    database.stop();
    let after = runtime(1).block_on(database.read_few(|_| Ok::<_, rusqlite::Error>(())));
    assert_eq!(after, Err(heddle_sqlite::ReadError::Stopped));
}
