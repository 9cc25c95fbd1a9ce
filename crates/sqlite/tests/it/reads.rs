//! The read pool: sees what was answered, holds one snapshot, cannot write.

use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use heddle_sqlite::{ReadError, WriteError};

use crate::support::{Home, block_on, bodies, insert, open};

#[test]
fn a_read_after_an_answered_write_sees_it() {
    let home = Home::new();
    let database = home.open();
    for n in 0..50 {
        assert_eq!(database.write_blocking(insert(format!("{n:02}"))), Ok(()));
        assert_eq!(bodies(&database).len(), n + 1);
    }
}

#[test]
fn a_read_sees_one_moment_even_while_others_write() {
    let home = Home::new();
    let database = home.open();
    assert_eq!(database.write_blocking(insert("before")), Ok(()));
    let (counted, first) = mpsc::channel();
    let (go_on, wait) = mpsc::channel();
    let read = {
        let database = database.clone();
        std::thread::spawn(move || {
            database.read_blocking(move |connection| {
                let count = || {
                    connection
                        .query_row("SELECT count(*) FROM notes", [], |row| row.get::<_, i64>(0))
                };
                let before = count()?;
                counted.send(()).unwrap();
                wait.recv().unwrap();
                Ok::<_, rusqlite::Error>((before, count()?))
            })
        })
    };
    first.recv().unwrap();
    assert_eq!(database.write_blocking(insert("meanwhile")), Ok(()));
    go_on.send(()).unwrap();
    assert_eq!(read.join().unwrap(), Ok((1, 1)));
    assert_eq!(bodies(&database).len(), 2);
}

#[test]
fn a_read_that_tries_to_write_is_refused() {
    let home = Home::new();
    let database = home.open();
    let sneaked = block_on(database.read(insert("sneaked")));
    assert!(matches!(sneaked, Err(ReadError::Job(_))));
    assert!(bodies(&database).is_empty());
    assert_eq!(database.is_poisoned(), None);
}

#[test]
fn a_panicking_read_leaves_its_thread_and_connection_usable() {
    let home = Home::new();
    let mut options = home.options();
    options.reader_count = 1;
    let database = open(options);
    let read = database.read_blocking(|_| -> Result<(), WriteError<()>> { panic!("boom") });
    assert_eq!(read, Err(ReadError::Panicked("boom".to_owned())));
    assert!(bodies(&database).is_empty());
}

#[test]
fn a_full_read_queue_is_busy_at_once() {
    let home = Home::new();
    let mut options = home.options();
    options.reader_count = 1;
    options.read_queue_capacity = 1;
    let database = open(options);
    let (entered, inside) = mpsc::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            database.read_blocking(move |_| {
                entered.send(()).unwrap();
                wait.recv().unwrap();
                Ok::<_, rusqlite::Error>(())
            })
        });
        inside.recv().unwrap();
        let waiting = crate::support::queue(database.read(|_| Ok::<_, rusqlite::Error>(())));
        let refused = database.read_blocking(|_| Ok::<_, rusqlite::Error>(()));
        assert_eq!(refused, Err(ReadError::Busy));
        go_on.send(()).unwrap();
        assert_eq!(block_on(waiting), Ok(()));
    });
}

/// tokio tells a task that has used up its turn to come back, however often it asks without leaving.
#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_call_inside_a_task_that_has_used_up_its_turn_is_answered() {
    let home = Home::new();
    let database = home.open();
    let asked = tokio::spawn(async move {
        let is_used_up = std::future::poll_fn(|context| {
            for _ in 0..10_000 {
                let turn = std::pin::pin!(tokio::task::coop::consume_budget());
                if turn.poll(context).is_pending() {
                    return Poll::Ready(true);
                }
            }
            Poll::Ready(false)
        });
        let is_used_up = is_used_up.await;
        (is_used_up, database.write_blocking(insert("one")))
    });
    let asked = tokio::time::timeout(Duration::from_secs(60), asked).await;
    assert_eq!(asked.unwrap().unwrap(), (true, Ok(())));
}

/// A partial index is a reason for SQLite to look at what is bound. A plan that held for one value only would be made anew
/// for the next one, at many times the price of the read.
#[test]
fn a_statement_is_prepared_once_whatever_is_bound() {
    let home = Home::new();
    let database = home.open();
    let prepared_again = database.write_blocking(|connection| {
        connection.execute_batch(
            "CREATE TABLE work (place INTEGER PRIMARY KEY, state TEXT NOT NULL);
             CREATE INDEX work_open ON work (state, place) WHERE state <> 'done';",
        )?;
        let sql = "SELECT place FROM work WHERE state = ?1 AND state <> 'done' LIMIT ?2";
        let mut statement = connection.prepare_cached(sql)?;
        for (state, limit) in [("waiting", 1), ("parked", 2), ("waiting", 3)] {
            let _ = statement.exists(rusqlite::params![state, limit])?;
        }
        Ok::<_, rusqlite::Error>(statement.get_status(rusqlite::StatementStatus::RePrepare))
    });
    assert_eq!(prepared_again, Ok(0));
}
