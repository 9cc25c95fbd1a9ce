//! A log that grows under load is moved beside the commits, and stays short.

use std::fs;

use tokio::runtime::Builder;

use crate::support::{Home, bodies, insert, open};

/// A page and its head.
const FRAME_BYTES: u64 = 4096 + 24;
const HARD_PAGES: u32 = 64;
const TASKS: usize = 16;
const EACH: usize = 200;

#[test]
fn a_log_that_never_rests_is_moved_beside_its_commits_stays_short_and_loses_nothing() {
    let home = Home::new();
    let mut options = home.options();
    options.checkpoint_idle_pages = 16;
    options.checkpoint_hard_pages = HARD_PAGES;
    let database = open(options);
    let log = home.folder.path().join("data.db-wal");
    let runtime = Builder::new_multi_thread().worker_threads(2).build();
    let longest = runtime.unwrap().block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (database, log) = (database.clone(), log.clone());
                tokio::spawn(async move {
                    let mut longest = 0;
                    for n in 0..EACH {
                        let body = format!("{task}/{n}/{}", "x".repeat(500));
                        assert_eq!(database.write(insert(body)).await, Ok(()));
                        longest = longest.max(fs::metadata(&log).unwrap().len());
                    }
                    longest
                })
            })
            .collect();
        let mut longest = 0;
        for task in tasks {
            longest = longest.max(task.await.unwrap());
        }
        longest
    });
    let stats = database.stats();
    assert!(stats.moves_beside > 0, "{stats:?}");
    assert!(stats.checkpoints >= stats.moves_beside, "{stats:?}");
    assert_eq!(bodies(&database).len(), TASKS * EACH);
    // Twice the bound, and the one transaction that goes beyond it: sixteen rows of a few pages.
    let bound = FRAME_BYTES * u64::from(2 * HARD_PAGES + 128);
    assert!(longest <= bound, "the log had {longest} bytes");
}

/// What a poisoned or stopped handle leaves is one file and no second opinion of it.
#[test]
fn a_handle_that_is_stopped_while_its_log_is_long_leaves_an_empty_log_and_all_rows() {
    for round in 0..10 {
        let home = Home::new();
        let mut options = home.options();
        options.checkpoint_idle_pages = 8;
        options.checkpoint_hard_pages = 8;
        let database = open(options.clone());
        let runtime = Builder::new_multi_thread().worker_threads(2).build();
        runtime.unwrap().block_on(async {
            for n in 0..(20 + round) {
                let body = format!("{n:03}/{}", "x".repeat(900));
                assert_eq!(database.write(insert(body)).await, Ok(()));
            }
        });
        database.stop();
        let log = fs::metadata(home.folder.path().join("data.db-wal"));
        assert_eq!(log.map_or(0, |log| log.len()), 0);
        let again = open(options);
        assert_eq!(bodies(&again).len(), 20 + round);
        again.stop();
    }
}
