//! Power cuts at every I/O index, under every kind of damage, once and again during the recovery.

use std::sync::Arc;

use heddle_sqlite::{Database, Durability, WriteError};
use sim::crash_vfs::{CrashDisk, Damage, Device};

use crate::judge::{Ledger, cut_everywhere};
use crate::workload::{open, run, run_beside, write, write_group};

const GROUPS: [usize; 14] = [1, 4, 1, 1, 6, 2, 1, 3, 1, 5, 1, 1, 2, 8];

fn all_cuts(device: Device, durability: Durability) -> Result<usize, String> {
    let disk = CrashDisk::new(device);
    run(&disk, durability, &GROUPS);
    cut_everywhere(disk.replay(), 0, &Ledger::default(), &Damage::ALL)
}

#[test]
fn an_acknowledged_write_survives_a_power_cut_at_every_io_of_a_plain_disk() {
    let cuts = all_cuts(Device::Plain, Durability::Full).unwrap();
    assert!(cuts >= 2000, "only {cuts} cuts");
}

#[test]
fn an_acknowledged_write_survives_a_power_cut_at_every_io_of_a_real_disk() {
    let cuts = all_cuts(Device::PowersafeOverwrite, Durability::Full).unwrap();
    assert!(cuts >= 2000, "only {cuts} cuts");
}

/// A planted bug: without the sync in front of the answer the loop above must find a lost write.
#[test]
fn the_same_cuts_catch_a_database_that_does_not_sync_its_commits() {
    for device in Device::ALL {
        let broken = all_cuts(device, Durability::Normal).unwrap_err();
        assert!(broken.contains("acknowledged and lost"), "{broken}");
    }
}

/// Commits go on while the log is moved, in whatever order the disk saw the two.
#[test]
fn what_is_committed_while_the_log_is_moved_survives_a_power_cut_at_every_io() {
    for device in Device::ALL {
        let disk = Arc::new(CrashDisk::new(device));
        run_beside(&disk, Durability::Full);
        let cuts = cut_everywhere(disk.replay(), 0, &Ledger::default(), &Damage::ALL).unwrap();
        assert!(cuts >= 1000, "only {cuts} cuts");
        let disk = Arc::new(CrashDisk::new(device));
        run_beside(&disk, Durability::Normal);
        let broken = cut_everywhere(disk.replay(), 0, &Ledger::default(), &Damage::ALL);
        let broken = broken.unwrap_err();
        assert!(broken.contains("acknowledged and lost"), "{broken}");
    }
}

#[test]
fn a_second_power_cut_during_the_recovery_takes_nothing_either() {
    let disk = CrashDisk::new(Device::PowersafeOverwrite);
    run(&disk, Durability::Full, &GROUPS);
    let mut replay = disk.replay();
    let mut cuts = 0;
    for index in (40..disk.index()).step_by(12) {
        replay.advance_to(index);
        let before = Ledger::of(replay.markers());
        let image = replay.image(Damage::KeepUnsynced, index as u64);
        // The first start after the crash, a write, and no clean stop.
        let database = open(&image, Durability::Full).unwrap();
        assert_eq!(write(&image, &database, 1_000), Ok(()));
        let kinds = [
            Damage::LoseUnsynced,
            Damage::Sectors512,
            Damage::Reorder,
            Damage::Garble,
        ];
        cuts += cut_everywhere(image.replay(), 0, &before, &kinds).unwrap();
        database.stop();
    }
    assert!(cuts >= 1000, "only {cuts} cuts");
}

#[test]
fn a_disk_that_dies_under_the_running_code_is_never_reported_as_stored() {
    let disk = CrashDisk::new(Device::PowersafeOverwrite);
    let database = open(&disk, Durability::Full).unwrap();
    let started = disk.index();
    let workload = |disk: &CrashDisk, database: &Database| {
        for group in 0..5 {
            let ids: Vec<u32> = (group * 10..).take(1 + group as usize).collect();
            write_group(disk, database, &ids);
        }
    };
    workload(&disk, &database);
    database.stop();
    for dies_at in started..disk.index() {
        let disk = CrashDisk::new(Device::PowersafeOverwrite);
        let database = open(&disk, Durability::Full).unwrap();
        disk.cut_power_at(dies_at);
        workload(&disk, &database);
        if disk.index() >= dies_at {
            let late = write(&disk, &database, 999);
            assert!(matches!(late, Err(WriteError::Poisoned(_))), "{late:?}");
        }
        database.stop();
        let ledger = Ledger::of_log(&disk.log());
        for damage in [Damage::LoseUnsynced, Damage::Garble] {
            let left = disk.image(damage, dies_at as u64);
            ledger.check(&left).unwrap();
        }
    }
}
