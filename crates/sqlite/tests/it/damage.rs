//! Damaged files and broken rules: refused with a reason, never written to, never answered `Ok` (LF-39).

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};

use heddle_sqlite::{Database, IntegrityError, OpenError, WriteError};

use crate::support::{Gate, Home, SCHEMA, block_on, bodies, insert, open, queue};

/// A file of many pages, with garbage in all of them but the first.
fn damaged() -> Home {
    let home = Home::new();
    let database = home.open();
    for n in 0..40 {
        let body = format!("{n}/{}", "x".repeat(1000));
        assert_eq!(database.write_blocking(insert(body)), Ok(()));
    }
    assert_eq!(database.integrity_check(), Ok(()));
    database.stop();
    let mut file = OpenOptions::new().write(true).open(home.path()).unwrap();
    let bytes = usize::try_from(file.metadata().unwrap().len()).unwrap();
    file.seek(SeekFrom::Start(4096)).unwrap();
    file.write_all(&vec![0x5a; bytes - 4096]).unwrap();
    home
}

#[test]
fn lf_39_a_write_that_meets_damage_poisons_and_reaches_no_byte_of_the_file() {
    let home = damaged();
    let before = fs::read(home.path()).unwrap();
    let database = home.open();
    let met = database.write_blocking(insert("new"));
    assert!(matches!(met, Err(WriteError::Poisoned(_))), "{met:?}");
    assert!(database.is_poisoned().is_some());
    let later = database.write_blocking(|_| Ok::<_, rusqlite::Error>(()));
    assert!(matches!(later, Err(WriteError::Poisoned(_))), "{later:?}");
    database.stop();
    assert_eq!(fs::read(home.path()).unwrap(), before);
}

#[test]
fn lf_39_damage_found_by_a_read_ends_all_writing() {
    let home = damaged();
    let database = home.open();
    let read = database.read_blocking(|connection| {
        connection.query_row("SELECT count(*) FROM notes NOT INDEXED", [], |row| {
            row.get::<_, i64>(0)
        })
    });
    assert!(read.is_err());
    let write = database.write_blocking(|_| Ok::<_, rusqlite::Error>(()));
    assert!(matches!(write, Err(WriteError::Poisoned(_))), "{write:?}");
}

#[test]
fn lf_39_the_integrity_check_names_the_damage_and_ends_all_writing() {
    let home = damaged();
    let database = home.open();
    let found = database.integrity_check();
    assert!(
        matches!(found, Err(IntegrityError::Damaged(_))),
        "{found:?}"
    );
    assert!(database.is_poisoned().is_some());
}

#[test]
fn lf_39_a_file_that_is_no_database_is_left_as_it_is() {
    let home = Home::new();
    fs::write(home.path(), "a letter to my aunt\n".repeat(500)).unwrap();
    let before = fs::read(home.path()).unwrap();
    let opened = Database::open(home.options(), SCHEMA);
    assert!(matches!(opened, Err(OpenError::Damaged(_))));
    assert_eq!(fs::read(home.path()).unwrap(), before);
}

#[test]
fn a_job_that_ends_the_transaction_makes_no_neighbour_believe_it_is_stored() {
    let home = Home::new();
    let database = home.open();
    let gate = Gate::close(&database);
    let before = queue(database.write(insert("before")));
    let rogue = queue(database.write(|connection| connection.execute_batch("ROLLBACK")));
    let after = queue(database.write(insert("after")));
    // The gate itself is part of that batch, so it cannot be told that all went well.
    assert!(matches!(gate.open_and_ask(), Err(WriteError::Poisoned(_))));
    for answer in [block_on(before), block_on(rogue), block_on(after)] {
        assert!(matches!(answer, Err(WriteError::Poisoned(_))), "{answer:?}");
    }
    database.stop();
    assert!(bodies(&home.open()).is_empty());
}

#[test]
fn lf_39_a_write_that_was_queued_before_the_damage_was_found_is_refused_too() {
    let home = damaged();
    let mut options = home.options();
    options.batch_jobs_max = 1;
    let database = open(options);
    let gate = Gate::close(&database);
    let queued = queue(database.write(|_| Ok::<_, rusqlite::Error>(())));
    assert!(database.integrity_check().is_err());
    gate.open();
    let answer = block_on(queued);
    assert!(matches!(answer, Err(WriteError::Poisoned(_))), "{answer:?}");
}
