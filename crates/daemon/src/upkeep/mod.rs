//! Looking after a home's files: copies, putting them back, repairing, and the doctor's verdict.
//!
//! The functions that take a [`Home`] are for a home in which no daemon runs: its lock is the proof.

mod look;

use std::path::Path;

use heddle_core::clock::WallMs;
use heddle_store::{BackedUp, BackupError, Blobs, Repaired, Restored, Steps};
use heddle_wire::ipc::{BackupView, KeptTable, RepairView, RestoreView};

pub use look::{findings, look, trouble};

use crate::home::Home;

/// A copy of the store of a home in which nothing runs.
pub fn back_up(home: &Home, to: &Path) -> Result<BackupView, BackupError> {
    let blobs = Blobs::open(&home.blobs())?;
    heddle_store::back_up(&home.data(), &blobs, to).map(backup_view)
}

/// Puts a copy back; the present file is kept beside it.
pub fn restore(home: &Home, from: &Path, now: WallMs) -> Result<RestoreView, BackupError> {
    let blobs = Blobs::open(&home.blobs())?;
    let Restored {
        before,
        incarnation,
        blobs,
        missing,
    } = heddle_store::restore(from, &home.data(), &blobs, now)?;
    Ok(RestoreView {
        file: from.display().to_string(),
        before: before.map(|path| path.display().to_string()),
        incarnation,
        blobs,
        blobs_missing: missing,
    })
}

/// Saves what can be read of a damaged store. Nothing is changed where nothing is wrong.
pub fn repair(home: &Home, now: WallMs) -> Result<RepairView, BackupError> {
    let blobs = Blobs::open(&home.blobs())?;
    let repaired = heddle_store::repair(&home.data(), &blobs, now)?;
    Ok(repaired.map_or_else(RepairView::default, repair_view))
}

/// Which steps of the schema a store has taken.
pub fn steps(data: &Path) -> Result<Steps, BackupError> {
    heddle_store::steps_of(data)
}

pub(crate) fn backup_view(made: BackedUp) -> BackupView {
    BackupView {
        file: made.file.display().to_string(),
        bytes: made.bytes,
        blobs: made.blobs,
        blob_bytes: made.blob_bytes,
        blobs_missing: made.missing,
    }
}

fn repair_view(repaired: Repaired) -> RepairView {
    let lost = repaired.tables.iter().any(|kept| !kept.is_whole());
    RepairView {
        repaired: true,
        lost,
        problem: Some(repaired.problem),
        damaged: Some(repaired.damaged.display().to_string()),
        incarnation: Some(repaired.incarnation),
        tables: repaired
            .tables
            .into_iter()
            .map(|kept| KeptTable {
                table: kept.table,
                rows: kept.rows,
                refused: kept.refused,
                gaps: kept.gaps,
            })
            .collect(),
    }
}
