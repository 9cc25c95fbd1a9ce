//! The contract suite: the same cases, as data, over every implementation.

mod cases;
mod fan_out;
mod grants;
mod log;
mod mend;
mod parting;
mod priorities;
mod queues;
mod random;
mod reading;
mod script;
mod script_more;
mod snapshots;
mod stories;
mod upkeep;
mod uploads;

use super::AnyStorage;
use crate::test_support::{memory, postgres, sqlite};

/// Runs a script on every store; every line must answer what it says.
async fn check(text: &str) {
    script::run(memory().as_ref(), text).await;
    let disk = sqlite();
    script::run(&AnyStorage::Sqlite(disk.storage.clone()), text).await;
    script::run(&AnyStorage::Postgres(postgres().await), text).await;
}
