//! Failing syncs and writes, and a full disk: who is told what, and what is there afterwards.

use std::sync::mpsc;
use std::task::{Context, Waker};

use heddle_sqlite::{Database, Durability, WriteError};
use rusqlite::Connection;
use sim::crash_vfs::{CrashDisk, Damage, Device, Times, What};

use crate::judge::{Ledger, cut_everywhere, present};
use crate::workload::{Answer, insert, open, write, write_group};

fn is_poisoned(answer: &Answer) -> bool {
    matches!(answer, Err(WriteError::Poisoned(_)))
}

/// Groups of writes with checkpoints between them. Goes on asking after a refusal, as callers do.
fn ask(disk: &CrashDisk, database: &Database) -> Vec<Answer> {
    let mut answers = Vec::new();
    for group in 0..8 {
        answers.push(write(disk, database, 100 + group));
        let ids: Vec<u32> = (group * 10 + 1..group * 10 + 5).collect();
        answers.extend(write_group(disk, database, &ids));
    }
    answers
}

/// The indices of all syncs that `ask` causes, found on a disk that works.
fn syncs_of_ask(device: Device) -> Vec<usize> {
    let disk = CrashDisk::new(device);
    let database = open(&disk, Durability::Full).unwrap();
    let first = disk.index();
    assert!(ask(&disk, &database).iter().all(Result::is_ok));
    let last = disk.index();
    database.stop();
    let log = disk.log();
    (first..last)
        .filter(|&at| matches!(log[at].what, What::Sync { .. }))
        .collect()
}

#[test]
fn ob_14_after_a_failed_sync_no_write_is_accepted_and_none_acknowledged_is_lost() {
    for device in Device::ALL {
        let syncs = syncs_of_ask(device);
        assert!(syncs.len() > 20, "{syncs:?}");
        for (at, times) in syncs
            .into_iter()
            .flat_map(|at| [(at, Times::Once), (at, Times::Forever)])
        {
            let disk = CrashDisk::new(device);
            let database = open(&disk, Durability::Full).unwrap();
            disk.fail_sync_at(at, times);
            let mut answers = ask(&disk, &database);
            // A checkpoint that found a pause in the first run and none in this one makes the disk's log shorter: the sync
            // that is to fail is still ahead then.
            while answers.iter().all(Result::is_ok) {
                let id = 1_000 + u32::try_from(answers.len()).unwrap();
                assert!(id < 1_200, "sync {at} {times:?} never came");
                answers.push(write(&disk, &database, id));
            }
            let good = answers.iter().take_while(|answer| answer.is_ok()).count();
            assert!(
                answers[good..].iter().all(is_poisoned),
                "sync {at} {times:?}: {answers:?}"
            );
            assert!(is_poisoned(&write(&disk, &database, 998)));
            assert!(database.is_poisoned().is_some());
            let then = disk.index();
            assert!(is_poisoned(&write(&disk, &database, 999)));
            database.stop();
            // Two markers, and not one more touch of the disk: no retry, no parting checkpoint.
            assert_eq!(disk.index(), then + 2);

            let ledger = Ledger::of_log(&disk.log());
            for damage in Damage::ALL {
                let left = disk.image(damage, at as u64);
                ledger
                    .check(&left)
                    .unwrap_or_else(|broken| panic!("sync {at} {times:?} {damage:?}: {broken}"));
            }
        }
    }
}

/// Fails one sync of a run, opens the same disk again without a power cut between, writes on, and cuts
/// the power at every index from the failure on.
///
/// On a disk with powersafe overwrite only, as SQLite sees every disk under Linux. On a plain one the
/// first commit after a recovery shares a sector with the last one before it (the padding between them
/// was never synced), so garbage in that sector takes an acknowledged write: SQLite's own limit.
fn reopen_after_failed_sync(at: usize, keep_cache: bool) -> Result<usize, String> {
    let disk = CrashDisk::new(Device::PowersafeOverwrite);
    if keep_cache {
        disk.keep_cache();
    }
    let database = open(&disk, Durability::Full).unwrap();
    disk.fail_sync_at(at, Times::Once);
    ask(&disk, &database);
    database.stop();
    // Where the log was moved at other moments than in the run that was counted, there may have been no sync so late: then
    // it must not be one of what comes now.
    disk.fail_sync_at(usize::MAX, Times::Once);

    let database = open(&disk, Durability::Full).map_err(|error| error.to_string())?;
    for id in 500..503 {
        assert_eq!(write(&disk, &database, id), Ok(()));
    }
    let replay = disk.replay();
    database.stop();
    let kinds = [Damage::LoseUnsynced, Damage::Reorder, Damage::Garble];
    cut_everywhere(replay, at, &Ledger::default(), &kinds)
        .map_err(|broken| format!("sync {at}: {broken}"))
}

/// The trap behind "just retry the sync": the system has given the pages up and counts them as clean,
/// so a log that looks whole in the cache has a hole on the disk. A new handle must not build on it.
#[test]
fn ob_14_a_new_handle_does_not_build_on_pages_that_a_failed_sync_gave_up() {
    let mut cuts = 0;
    for at in syncs_of_ask(Device::PowersafeOverwrite)
        .into_iter()
        .step_by(5)
    {
        cuts += reopen_after_failed_sync(at, false).unwrap();
    }
    assert!(cuts >= 500, "only {cuts} cuts");
}

/// A planted bug: a new handle that reads the log from the cache must be caught.
#[test]
fn ob_14_a_new_handle_that_trusts_the_cache_is_caught() {
    let caught = syncs_of_ask(Device::PowersafeOverwrite)
        .into_iter()
        .any(|at| reopen_after_failed_sync(at, true).is_err());
    assert!(caught);
}

#[test]
fn ob_14_a_failed_write_of_the_log_poisons_like_a_failed_sync() {
    let disk = CrashDisk::new(Device::PowersafeOverwrite);
    let database = open(&disk, Durability::Full).unwrap();
    assert_eq!(write(&disk, &database, 1), Ok(()));
    disk.fail_write_at(disk.index(), Times::Once);
    for answer in write_group(&disk, &database, &[2, 3, 4]) {
        assert!(is_poisoned(&answer), "{answer:?}");
    }
    assert!(is_poisoned(&write(&disk, &database, 5)));
    database.stop();
    let ledger = Ledger::of_log(&disk.log());
    assert!(ledger.check(&disk.image(Damage::KeepUnsynced, 0)).is_ok());
}

/// No space at byte N, for every N of a run: `DiskFull` means that the write did not happen, and with
/// space again the same handle goes on.
#[test]
fn ob_14_a_full_disk_refuses_truthfully_and_works_again_when_there_is_space() {
    let mut refusals = 0;
    for room in (0..120_000).step_by(1_700) {
        let disk = CrashDisk::new(Device::PowersafeOverwrite);
        let database = open(&disk, Durability::Full).unwrap();
        disk.limit_space(Some(disk.used_bytes() + room));
        for answer in ask(&disk, &database) {
            match answer {
                Ok(()) => {}
                Err(WriteError::DiskFull) => refusals += 1,
                Err(other) => panic!("room {room}: {other:?}"),
            }
        }
        assert_eq!(database.is_poisoned(), None, "room {room}");
        disk.limit_space(None);
        for id in 900..905 {
            assert_eq!(write(&disk, &database, id), Ok(()), "room {room}");
        }
        let ledger = Ledger::of_log(&disk.log());
        ledger.check_open(&database).unwrap();
        assert_eq!(present(&database), Ok(ledger.acknowledged.clone()));
        let left = disk.image(Damage::LoseUnsynced, 0);
        database.stop();
        ledger.check(&left).unwrap();
    }
    assert!(refusals >= 500, "only {refusals} refusals");
}

/// More than the writer's cache holds, so that the disk is full in the middle of a job and not at its commit.
fn insert_megabytes(connection: &Connection) -> Result<(), rusqlite::Error> {
    (5_000..5_012).try_for_each(|id| {
        connection
            .execute(
                "INSERT INTO notes (id, body) VALUES (?1, randomblob(1000000))",
                [id],
            )
            .map(drop)
    })
}

#[test]
fn ob_14_a_disk_that_fills_up_inside_a_write_refuses_its_whole_batch_and_no_more() {
    let disk = CrashDisk::new(Device::PowersafeOverwrite);
    let database = open(&disk, Durability::Full).unwrap();
    assert_eq!(write(&disk, &database, 1), Ok(()));
    disk.limit_space(Some(disk.used_bytes() + 1_000_000));
    let (entered, inside) = mpsc::channel();
    let (go_on, wait) = mpsc::channel();
    std::thread::scope(|scope| {
        let neighbour = scope.spawn(|| {
            database.write_blocking(move |connection| {
                let _ = entered.send(());
                let _ = wait.recv();
                insert(2)(connection)
            })
        });
        inside.recv().unwrap();
        let mut large = Box::pin(database.write(insert_megabytes));
        let queued = large.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(queued.is_pending());
        go_on.send(()).unwrap();
        // SQLite ends the transaction by itself, so the neighbour's row is gone as well.
        assert_eq!(neighbour.join().unwrap(), Err(WriteError::DiskFull));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        assert_eq!(runtime.block_on(large), Err(WriteError::DiskFull));
    });
    assert_eq!(database.is_poisoned(), None);
    disk.limit_space(None);
    assert_eq!(write(&disk, &database, 2), Ok(()));
    assert_eq!(present(&database), Ok([1, 2].into()));
    database.stop();
}

#[test]
fn ob_14_a_write_that_hides_a_failed_statement_is_not_believed() {
    let disk = CrashDisk::new(Device::PowersafeOverwrite);
    let database = open(&disk, Durability::Full).unwrap();
    disk.limit_space(Some(disk.used_bytes() + 1_000_000));
    let hidden = database.write_blocking(|connection| {
        insert(1)(connection)?;
        let _ = insert_megabytes(connection);
        Ok::<_, rusqlite::Error>(())
    });
    assert!(is_poisoned(&hidden), "{hidden:?}");
    database.stop();
}
