//! Open → stopping → stopped: stop finishes what is queued, abort rejects it, nothing starts afterwards.

use std::thread;

use heddle_sqlite::{ReadError, WriteError};

use crate::support::{Gate, Home, block_on, bodies, insert, queue};

#[test]
fn stop_finishes_what_is_queued_and_takes_nothing_more() {
    let home = Home::new();
    let database = home.open();
    let gate = Gate::close(&database);
    let waiting: Vec<_> = (0..20)
        .map(|n| queue(database.write(insert(format!("{n:02}")))))
        .collect();
    let stopping = {
        let database = database.clone();
        thread::spawn(move || database.stop())
    };
    gate.open();
    for write in waiting {
        assert_eq!(block_on(write), Ok(()));
    }
    stopping.join().unwrap();
    database.stop();
    assert_eq!(
        database.write_blocking(insert("late")),
        Err(WriteError::Stopped)
    );
    let read = database.read_blocking(|_| Ok::<_, rusqlite::Error>(()));
    assert_eq!(read, Err(ReadError::Stopped));
    assert_eq!(bodies(&home.open()).len(), 20);
}

#[test]
fn a_clean_stop_leaves_no_log_behind() {
    let home = Home::new();
    let database = home.open();
    assert_eq!(database.write_blocking(insert("one")), Ok(()));
    assert_eq!(bodies(&database), ["one"]);
    database.stop();
    let left: Vec<_> = std::fs::read_dir(home.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(left, ["data.db"]);
}

#[test]
fn abort_rejects_what_is_queued_and_keeps_what_is_running() {
    let home = Home::new();
    let database = home.open();
    let gate = Gate::close(&database);
    let waiting: Vec<_> = (0..20)
        .map(|n| queue(database.write(insert(format!("{n}")))))
        .collect();
    let aborting = {
        let database = database.clone();
        thread::spawn(move || database.abort())
    };
    for write in waiting {
        assert_eq!(block_on(write), Err(WriteError::Stopped));
    }
    gate.open();
    aborting.join().unwrap();
    assert_eq!(
        database.write_blocking(insert("late")),
        Err(WriteError::Stopped)
    );
    assert!(bodies(&home.open()).is_empty());
}

#[test]
fn the_last_handle_does_not_take_queued_writes_with_it() {
    let home = Home::new();
    let database = home.open();
    let gate = Gate::close(&database);
    // The dropped future has let go of its caller, not of its write.
    drop(queue(database.write(insert("queued"))));
    let dropping = thread::spawn(move || drop(database));
    gate.open();
    dropping.join().unwrap();
    assert_eq!(bodies(&home.open()), ["queued"]);
}

#[test]
fn a_job_that_stops_its_own_database_does_not_wait_for_itself() {
    let home = Home::new();
    let database = home.open();
    let inner = database.clone();
    let written = database.write_blocking(move |connection| {
        inner.stop();
        insert("last")(connection)
    });
    assert_eq!(written, Ok(()));
    assert_eq!(
        database.write_blocking(insert("late")),
        Err(WriteError::Stopped)
    );
    database.stop();
    assert_eq!(bodies(&home.open()), ["last"]);
}
