//! A disk that is full now, whatever the last look has left: what fills it may be nobody here.

use std::path::Path;

use heddle_core::error_code::ErrorCode;
use heddle_core::pressure::FileSystem;
use heddle_wire::problem::Problem;

/// What is said of it until the next look has measured it.
pub(super) const FULL_NOW: &str = "the disk is full; what is left is kept for deletes, and new sends and changes are refused. Free some space (`heddle doctor` says what holds the disk)";

/// Whether so little is left that it is kept for deletes. One call to the system.
pub(super) fn is_full(folder: &Path) -> bool {
    let Ok(stat) = rustix::fs::statvfs(folder) else {
        return false;
    };
    let now = FileSystem {
        size: stat.f_blocks.saturating_mul(stat.f_frsize),
        free: stat.f_bavail.saturating_mul(stat.f_frsize),
    };
    now.size > 0 && now.is_for_deletes()
}

pub(super) fn refusal() -> Problem {
    Problem::new(
        ErrorCode::InsufficientStorage,
        "the disk is full; what is left is kept for deletes, and nothing was written",
    )
    .next("Delete what nobody needs (`heddle doctor` says what holds the disk; `heddle file delete`, then `heddle advanced sweep`, gives the bytes of files back), or free some space on this disk; then try again with the same id. Known ids are still answered.")
}
