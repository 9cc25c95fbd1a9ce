//! The SQLite crate from the outside, on real files: one binary, a module for each danger.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod batches;
mod damage;
mod files;
mod lead;
mod long_log;
mod migrations;
mod reads;
mod settle;
mod short_disk;
mod shutdown;
mod support;
