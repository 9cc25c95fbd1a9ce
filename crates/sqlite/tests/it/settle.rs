//! Every queued write is answered exactly once, and done exactly once, whoever still listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use heddle_sqlite::WriteError;

use crate::support::{Gate, Home, block_on, bodies, insert, open, queue};

#[test]
fn a_full_queue_is_busy_at_once_instead_of_an_endless_wait() {
    let home = Home::new();
    let mut options = home.options();
    options.queue_capacity = 3;
    let database = open(options);
    let gate = Gate::close(&database);
    let waiting: Vec<_> = (0..3)
        .map(|n| queue(database.write(insert(format!("{n}")))))
        .collect();
    assert_eq!(
        database.write_blocking(insert("too many")),
        Err(WriteError::Busy)
    );
    assert_eq!(
        block_on(database.write(insert("too many"))),
        Err(WriteError::Busy)
    );
    gate.open();
    for write in waiting {
        assert_eq!(block_on(write), Ok(()));
    }
    assert_eq!(database.write_blocking(insert("3")), Ok(()));
    assert_eq!(bodies(&database), ["0", "1", "2", "3"]);
}

#[test]
fn a_caller_that_leaves_does_not_undo_or_double_its_write() {
    let home = Home::new();
    let database = home.open();
    let runs = Arc::new(AtomicUsize::new(0));
    let gate = Gate::close(&database);
    let counted = Arc::clone(&runs);
    drop(queue(database.write(move |connection| {
        counted.fetch_add(1, Ordering::SeqCst);
        insert("left")(connection)
    })));
    gate.open();
    assert_eq!(database.write_blocking(insert("stayed")), Ok(()));
    assert_eq!(bodies(&database), ["left", "stayed"]);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[test]
fn a_write_that_waits_for_a_write_is_refused_instead_of_hanging() {
    let home = Home::new();
    let database = home.open();
    let inner = database.clone();
    let nested = database
        .write_blocking(move |_| Ok::<_, rusqlite::Error>(inner.write_blocking(insert("nested"))));
    assert_eq!(nested, Ok(Err(WriteError::Busy)));
}

#[test]
fn an_answer_whose_destructor_panics_does_not_kill_the_writer() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let home = Home::new();
    let database = home.open();
    let gate = Gate::close(&database);
    drop(queue(database.write(|connection| {
        insert("bomb")(connection).map(|()| Bomb)
    })));
    gate.open();
    assert_eq!(database.write_blocking(insert("after")), Ok(()));
    assert_eq!(bodies(&database), ["bomb", "after"]);
}

#[test]
fn lf_21_every_write_settles_once_and_truthfully_while_the_database_stops() {
    for abort in [false, true] {
        let home = Home::new();
        let database = home.open();
        let said_ok = thread::scope(|scope| {
            let writers: Vec<_> = (0..16)
                .map(|writer| {
                    let database = &database;
                    scope.spawn(move || {
                        let mut ok = Vec::new();
                        for n in 0.. {
                            let body = format!("{writer:02}/{n:04}");
                            match database.write_blocking(insert(body.clone())) {
                                Ok(()) => ok.push(body),
                                Err(WriteError::Stopped) => return ok,
                                Err(other) => panic!("{other:?}"),
                            }
                        }
                        ok
                    })
                })
                .collect();
            while database.stats().writes < 200 {
                thread::yield_now();
            }
            if abort {
                database.abort();
            } else {
                database.stop();
            }
            let mut ok: Vec<_> = writers
                .into_iter()
                .flat_map(|writer| writer.join().unwrap())
                .collect();
            ok.sort();
            ok
        });
        let mut stored = bodies(&home.open());
        stored.sort();
        assert_eq!(stored, said_ok, "abort: {abort}");
    }
}

#[test]
fn a_lock_of_another_connection_is_told_apart_and_ends_with_it() {
    let home = Home::new();
    let mut options = home.options();
    options.busy_timeout = std::time::Duration::from_millis(20);
    let path = options.path.clone();
    let database = open(options);
    assert!(!block_on(database.is_held()));
    let other = rusqlite::Connection::open(path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(block_on(database.is_held()));
    assert_eq!(database.write_blocking(insert("a")), Err(WriteError::Held));
    assert_eq!(bodies(&database), [""; 0]);
    other.execute_batch("ROLLBACK").unwrap();
    assert!(!block_on(database.is_held()));
    assert_eq!(database.write_blocking(insert("a")), Ok(()));
    assert_eq!(bodies(&database), ["a"]);
    assert_eq!(database.is_poisoned(), None);
}
