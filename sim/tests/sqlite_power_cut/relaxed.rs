//! Writes without a sync of their own: cheap alone, never lost once a durable write stands behind them.

use heddle_sqlite::{Database, Durability, Options};
use sim::crash_vfs::{CrashDisk, Damage, Device, What};

use crate::judge::{Ledger, cut_everywhere};
use crate::workload::{Answer, SCHEMA, insert, open, write};

fn write_relaxed(disk: &CrashDisk, database: &Database, id: u32) -> Answer {
    disk.mark(format!("try {id}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(database.write_relaxed(insert(id)))
}

fn syncs_since(disk: &CrashDisk, index: usize) -> usize {
    let log = disk.log();
    let syncs = log[index..]
        .iter()
        .filter(|op| matches!(op.what, What::Sync { .. }));
    syncs.count()
}

#[test]
fn a_relaxed_write_costs_no_sync_and_the_next_durable_one_is_synced_again() {
    let disk = CrashDisk::new(Device::PowersafeOverwrite);
    // The log stays short of a checkpoint, whose syncs would be counted as well.
    let mut options = Options::new("data.db");
    options.vfs = Some(disk.vfs());
    let database = Database::open(options, SCHEMA).unwrap();
    assert_eq!(write(&disk, &database, 1), Ok(()));
    let before = disk.index();
    for id in 2..6 {
        assert_eq!(write_relaxed(&disk, &database, id), Ok(()));
    }
    assert_eq!(syncs_since(&disk, before), 0);
    let before = disk.index();
    assert_eq!(write(&disk, &database, 6), Ok(()));
    assert_eq!(syncs_since(&disk, before), 1);
    database.stop();
}

#[test]
fn a_durable_write_carries_every_relaxed_one_before_it_through_any_power_cut() {
    for device in Device::ALL {
        let disk = CrashDisk::new(device);
        let database = match device {
            // The log is padded to a whole sector by a commit that is synced. Where a relaxed one is moved into the file before
            // that, the next commit shares its last sector, and garbage there ends the log before what the file has:
            // SQLite's own limit. No disk under Linux is taken for one of these.
            Device::Plain => {
                let mut options = Options::new("data.db");
                options.vfs = Some(disk.vfs());
                Database::open(options, SCHEMA).unwrap()
            }
            Device::PowersafeOverwrite => open(&disk, Durability::Full).unwrap(),
        };
        let mut id = 0;
        for relaxed in [1, 3, 0, 2, 5, 1, 4, 2, 1, 3] {
            let mut waiting = Vec::new();
            for _ in 0..relaxed {
                id += 1;
                assert_eq!(write_relaxed(&disk, &database, id), Ok(()));
                waiting.push(id);
            }
            id += 1;
            assert_eq!(write(&disk, &database, id), Ok(()));
            // From here on they may not be lost any more.
            for id in waiting {
                disk.mark(format!("ok {id}"));
            }
        }
        database.stop();
        let cuts = cut_everywhere(disk.replay(), 0, &Ledger::default(), &Damage::ALL).unwrap();
        assert!(cuts >= 1000, "only {cuts} cuts");
    }
}
