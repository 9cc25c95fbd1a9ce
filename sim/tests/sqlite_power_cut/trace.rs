//! The order of events on the disk: the sync of a commit comes before the answer of its caller.

use heddle_sqlite::{Database, Durability, Options};
use sim::crash_vfs::{CrashDisk, Device, Op, What};

use crate::workload::{SCHEMA, open, write, write_group};

/// For each answered write: between the call and the answer a commit frame was written to the log, its
/// page after it, and then the log was synced.
fn answered_after_sync(log: &[Op]) -> Result<usize, String> {
    let mut answers = 0;
    for (answered, op) in log.iter().enumerate() {
        let Some(id) = op.as_marker().and_then(|text| text.strip_prefix("ok ")) else {
            continue;
        };
        let ask = format!("try {id}");
        let asked = log[..answered]
            .iter()
            .position(|op| op.as_marker() == Some(&ask))
            .ok_or("answered and never asked")?;
        let mut steps = log[asked..answered].iter().filter(|op| op.is_on_log());
        let covered = steps.any(is_commit_frame)
            && steps.any(|op| matches!(op.what, What::Write { .. }))
            && steps.any(|op| matches!(op.what, What::Sync { .. }));
        if !covered {
            return Err(format!("write {id} was answered before its sync"));
        }
        answers += 1;
    }
    Ok(answers)
}

/// The header of a frame is 24 bytes; in that of a commit, bytes 4 to 7 are the size of the database.
fn is_commit_frame(op: &Op) -> bool {
    matches!(&op.what, What::Write { data, .. } if data.len() == 24 && data[4..8] != [0; 4])
}

fn trace(durability: Durability, device: Device) -> Vec<Op> {
    let disk = CrashDisk::new(device);
    let database = open(&disk, durability).unwrap();
    for id in 1..=20 {
        assert_eq!(write(&disk, &database, id), Ok(()));
    }
    for group in 3..10 {
        let ids: Vec<u32> = (group * 10..group * 10 + 7).collect();
        for answer in write_group(&disk, &database, &ids) {
            assert_eq!(answer, Ok(()));
        }
    }
    database.stop();
    disk.log()
}

#[test]
fn ob_02_the_sync_of_a_commit_precedes_the_answer_of_each_of_its_callers() {
    for device in Device::ALL {
        let log = trace(Durability::Full, device);
        assert_eq!(answered_after_sync(&log), Ok(20 + 7 * 7), "{device:?}");
    }
}

/// A planted bug: the check above must notice answers that no sync precedes.
#[test]
fn ob_02_an_answer_before_the_sync_is_noticed() {
    let log = trace(Durability::Normal, Device::PowersafeOverwrite);
    assert!(answered_after_sync(&log).is_err());
}

#[test]
fn a_group_of_writes_costs_one_sync_of_the_log() {
    let disk = CrashDisk::new(Device::PowersafeOverwrite);
    // The log stays short of a checkpoint, whose syncs would be counted as well.
    let mut options = Options::new("data.db");
    options.vfs = Some(disk.vfs());
    let database = Database::open(options, SCHEMA).unwrap();
    assert_eq!(write(&disk, &database, 1), Ok(()));
    let before = disk.index();
    write_group(&disk, &database, &[2, 3, 4, 5, 6, 7, 8, 9]);
    let syncs = disk.log()[before..]
        .iter()
        .filter(|op| matches!(op.what, What::Sync { .. }))
        .count();
    assert_eq!(syncs, 1);
    database.stop();
}
