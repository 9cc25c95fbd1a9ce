//! What a broker does by itself, or by hand, to stay healthy: expiry, retention, counts, orphan check.
//!
//! Every job is idempotent and takes small steps. A claim in the store keeps all but one of N brokers
//! from doing the same work; a claim that is held elsewhere is passed over and told.

mod ages;
mod check;
mod contents;
mod schedule;
mod sweep;
#[cfg(test)]
mod tests;

pub use ages::Ages;
pub use check::{check_these, orphan_check};
pub(crate) use schedule::run;
pub use sweep::{MeshSwept, Sweep, sweep, sweep_these};

use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a claim on a job lasts without being given back.
const CLAIM_MS: i64 = 10 * 60 * 1000;
