//! SQLite as Heddle uses it, on a disk that loses power, syncs and space at every place where it can.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod cuts;
mod failing_disk;
mod judge;
mod relaxed;
mod trace;
mod workload;
