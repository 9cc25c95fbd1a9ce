//! The log on a disk that has become short: readers who come and go do not let it eat the rest.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use heddle_sqlite::LogBounds;
use rusqlite::Connection;

use crate::support::{Home, insert, open};

const PAGE_BYTES: u64 = 4096;
const HARD_PAGES: u32 = 8;

/// Some reader is always there, and none of them for long: the log never begins anew by itself.
#[test]
fn l_10_readers_who_come_and_go_do_not_let_the_log_of_a_short_disk_grow() {
    let home = Home::new();
    let mut options = home.options();
    options.log_bounds = Arc::new(LogBounds::default());
    options.log_bounds.set(4, HARD_PAGES);
    let database = open(options);
    assert_eq!(database.write_blocking(insert("first".to_owned())), Ok(()));
    let is_over = AtomicBool::new(false);
    let mut longest = 0;
    thread::scope(|scope| {
        let mut readers: Vec<Connection> = Vec::new();
        for _ in 0..2 {
            readers.push(Connection::open(home.path()).unwrap());
        }
        let is_over = &is_over;
        scope.spawn(move || {
            let mut turn = 0;
            begin(&readers[1]);
            while !is_over.load(Ordering::Relaxed) {
                begin(&readers[turn % 2]);
                thread::sleep(Duration::from_millis(2));
                readers[(turn + 1) % 2].execute_batch("COMMIT").unwrap();
                turn += 1;
            }
        });
        for n in 0..200 {
            let written = database.write_blocking(insert(format!("{n}")));
            assert_eq!(written, Ok(()));
            longest = longest.max(log_bytes(&home));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // Twice its bound, and what was written while the readers were waited for.
    let most = 8 * u64::from(HARD_PAGES) * PAGE_BYTES;
    assert!(longest < most, "{longest} bytes of log");
}

fn begin(reader: &Connection) {
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema")
        .unwrap();
}

fn log_bytes(home: &Home) -> u64 {
    let log = home.path().with_extension("db-wal");
    fs::metadata(log).map_or(0, |log| log.len())
}
