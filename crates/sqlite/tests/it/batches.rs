//! Group commit: how many syncs, who shares one, and what a failing neighbour does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use heddle_sqlite::WriteError;

use crate::support::{Gate, Home, block_on, bodies, insert, open, queue};

#[test]
fn writes_that_wait_together_share_one_commit() {
    let home = Home::new();
    let database = home.open();
    let gate = Gate::close(&database);
    let waiting: Vec<_> = (0..100)
        .map(|n| queue(database.write(insert(format!("{n:03}")))))
        .collect();
    gate.open();
    for write in waiting {
        assert_eq!(block_on(write), Ok(()));
    }
    // The gate's own job is the first of the batch that the others joined.
    let stats = database.stats();
    assert_eq!(
        (stats.transactions, stats.writes, stats.largest_batch),
        (1, 101, 101)
    );
    let expected: Vec<_> = (0..100).map(|n| format!("{n:03}")).collect();
    assert_eq!(bodies(&database), expected, "queue order is commit order");
}

#[test]
fn lf_20_sixty_four_writers_see_no_lock_error_and_few_syncs() {
    const WRITERS: usize = 64;
    const EACH: usize = 50;
    let home = Home::new();
    let database = home.open();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let database = &database;
            scope.spawn(move || {
                for n in 0..EACH {
                    let written = database.write_blocking(insert(format!("{writer}/{n}")));
                    assert_eq!(written, Ok(()), "writer {writer}, write {n}");
                }
            });
        }
    });
    let stats = database.stats();
    assert_eq!(stats.writes, (WRITERS * EACH) as u64);
    assert!(
        stats.transactions * 4 < stats.writes,
        "no group commit: {stats:?}"
    );
    assert_eq!(bodies(&database).len(), WRITERS * EACH);
}

#[test]
fn a_failing_write_takes_only_itself_along() {
    let home = Home::new();
    let database = home.open();
    let gate = Gate::close(&database);
    let good = queue(database.write(insert("one")));
    let half = queue(database.write(|connection| {
        insert("half")(connection)?;
        insert("one")(connection)
    }));
    let after = queue(database.write(insert("two")));
    gate.open();
    assert_eq!(block_on(good), Ok(()));
    assert!(matches!(block_on(half), Err(WriteError::Job(_))));
    assert_eq!(block_on(after), Ok(()));
    assert_eq!(bodies(&database), ["one", "two"]);
    assert_eq!(database.stats().transactions, 1);
}

#[test]
fn a_single_statement_that_fails_takes_only_itself_along() {
    let home = Home::new();
    let database = home.open();
    let gate = Gate::close(&database);
    let good = queue(database.write_single(insert("one")));
    let same = queue(database.write_single(insert("one")));
    let panics =
        queue(database.write_single(|_| -> Result<(), rusqlite::Error> { panic!("boom") }));
    let after = queue(database.write_single(insert("two")));
    gate.open();
    assert_eq!(block_on(good), Ok(()));
    assert!(matches!(block_on(same), Err(WriteError::Job(_))));
    assert!(matches!(block_on(panics), Err(WriteError::Panicked(_))));
    assert_eq!(block_on(after), Ok(()));
    assert_eq!(bodies(&database), ["one", "two"]);
    assert_eq!(database.stats().transactions, 1);
}

#[test]
fn a_write_that_breaks_its_promise_of_one_statement_is_never_half_committed() {
    let home = Home::new();
    let database = home.open();
    assert_eq!(database.write_blocking(insert("one")), Ok(()));
    // Not queued behind a gate: the batch that it spoils must be its own.
    let liar = block_on(database.write_single(|connection| {
        insert("half")(connection)?;
        insert("one")(connection)
    }));
    assert!(matches!(liar, Err(WriteError::Poisoned(_))), "{liar:?}");
    drop(database);
    assert_eq!(bodies(&home.open()), ["one"]);
}

#[test]
fn a_panicking_write_takes_only_itself_along() {
    let home = Home::new();
    let database = home.open();
    let gate = Gate::close(&database);
    let good = queue(database.write(insert("one")));
    let bad = queue(database.write(|connection| -> Result<(), rusqlite::Error> {
        insert("half")(connection)?;
        panic!("boom {}", 7)
    }));
    let after = queue(database.write(insert("two")));
    gate.open();
    assert_eq!(block_on(good), Ok(()));
    assert_eq!(
        block_on(bad),
        Err(WriteError::Panicked("boom 7".to_owned()))
    );
    assert_eq!(block_on(after), Ok(()));
    assert_eq!(database.write_blocking(insert("three")), Ok(()));
    assert_eq!(bodies(&database), ["one", "two", "three"]);
}

#[test]
fn a_refusal_seen_in_a_batch_is_answered_after_the_commit_it_depends_on() {
    let home = Home::new();
    let database = home.open();
    let gate = Gate::close(&database);
    let first = queue(database.write(insert("same")));
    let second = queue(database.write(insert("same")));
    gate.open();
    // The second is refused because of the first, so the first must be in by the time anyone hears it.
    assert!(matches!(block_on(second), Err(WriteError::Job(_))));
    assert_eq!(bodies(&database), ["same"]);
    assert_eq!(block_on(first), Ok(()));
}

#[test]
fn lf_20_one_transaction_never_grows_past_its_bounds() {
    let home = Home::new();
    let mut options = home.options();
    options.batch_jobs_max = 10;
    let database = open(options);
    let gate = Gate::close(&database);
    let waiting: Vec<_> = (0..35)
        .map(|n| queue(database.write(insert(format!("{n}")))))
        .collect();
    gate.open();
    for write in waiting {
        assert_eq!(block_on(write), Ok(()));
    }
    let stats = database.stats();
    assert_eq!((stats.largest_batch, stats.transactions), (10, 4));
}

#[test]
fn lf_20_a_write_of_many_rows_ends_its_transaction_before_it_gets_long() {
    let home = Home::new();
    let mut options = home.options();
    options.batch_changes_max = 1000;
    let database = open(options);
    let gate = Gate::close(&database);
    let waiting: Vec<_> = (0..6)
        .map(|job| {
            queue(database.write(move |connection| {
                (0..400).try_for_each(|n| insert(format!("{job}/{n}"))(connection))
            }))
        })
        .collect();
    gate.open();
    for write in waiting {
        assert_eq!(block_on(write), Ok(()));
    }
    let stats = database.stats();
    // The gate and three jobs of 400 rows, then the other three.
    assert_eq!((stats.transactions, stats.largest_batch), (2, 4));
}

#[test]
fn lf_20_a_slow_batch_takes_no_further_job_once_its_time_is_used_up() {
    static NOW_MS: AtomicU64 = AtomicU64::new(0);
    let home = Home::new();
    let mut options = home.options();
    options.monotonic = Some(|| Duration::from_millis(NOW_MS.load(Ordering::SeqCst)));
    options.batch_time_max = Duration::from_millis(50);
    let database = open(options);
    let gate = Gate::close(&database);
    let waiting: Vec<_> = (0..6)
        .map(|n| {
            queue(database.write(move |connection| {
                NOW_MS.fetch_add(20, Ordering::SeqCst);
                insert(format!("{n}"))(connection)
            }))
        })
        .collect();
    gate.open();
    for write in waiting {
        assert_eq!(block_on(write), Ok(()));
    }
    let stats = database.stats();
    assert_eq!(stats.transactions, 2);
    assert_eq!(stats.slowest_transaction, Duration::from_millis(60));
}

#[test]
fn the_log_is_moved_into_the_file_when_nobody_writes_and_under_load_too() {
    let home = Home::new();
    let mut options = home.options();
    options.checkpoint_idle_pages = 4;
    options.checkpoint_hard_pages = 20;
    let database = open(options);
    for n in 0..3 {
        assert_eq!(database.write_blocking(insert(format!("{n}"))), Ok(()));
    }
    while database.stats().checkpoints == 0 {
        thread::sleep(Duration::from_millis(5));
    }
    let idle = database.stats().checkpoints;
    for n in 10..200 {
        assert_eq!(database.write_blocking(insert(format!("{n}"))), Ok(()));
    }
    assert!(
        database.stats().checkpoints > idle,
        "a writer that is never idle lets the log grow"
    );
}
