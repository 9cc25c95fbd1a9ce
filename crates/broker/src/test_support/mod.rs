//! What the tests of this crate share: a small world, stores that fail, limiters that count.

mod dump;
mod flaky;
mod flaky_rest;
mod limiters;
mod recorder;
mod services;
mod world;

pub(crate) use dump::Dump;
pub(crate) use flaky::{Fault, Flaky};
pub(crate) use limiters::{CountingLimiter, StuckLimiter};
pub(crate) use recorder::Counters;
pub(crate) use services::{postgres, postgres_options, redis_place, redis_url};
pub(crate) use world::{
    Gate, envelope, member, mesh, mesh_name, name_of, party, principal, refused_code, send_item,
    topic,
};

use std::path::PathBuf;
use std::sync::Arc;

use crate::storage::sqlite::{Durability, Options};
use crate::storage::{MemoryStorage, SqliteStorage, Storage};

/// A store with its folder, which goes away with it.
pub(crate) struct TempSqlite {
    pub(crate) storage: SqliteStorage,
    folder: tempfile::TempDir,
}

impl TempSqlite {
    fn open(durability: Durability) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut options = Options::new(folder.path().join("broker.db"));
        options.durability = durability;
        Self {
            storage: SqliteStorage::open(options).unwrap(),
            folder,
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("broker.db")
    }
}

/// Without a sync per write: most tests cut no power, and would only be slow.
pub(crate) fn sqlite() -> TempSqlite {
    TempSqlite::open(Durability::Normal)
}

/// As it runs in earnest.
pub(crate) fn on_disk() -> TempSqlite {
    TempSqlite::open(Durability::Full)
}

/// A store that a test can look into.
pub(crate) trait TestStorage: Storage + Dump {}
impl<S: Storage + Dump> TestStorage for S {}

pub(crate) fn memory() -> Arc<MemoryStorage> {
    Arc::new(MemoryStorage::default())
}

/// Runs each of the named generic tests, `async fn name<S: TestStorage>(storage: Arc<S>)`, on every
/// implementation; the two that a process serves as it has them, behind `AnyStorage`.
macro_rules! on_every_storage {
    ($($test:ident),* $(,)?) => {
        mod on_memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test($crate::test_support::memory()).await;
            })*
        }
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let sqlite = $crate::test_support::sqlite();
                let storage = $crate::storage::AnyStorage::Sqlite(sqlite.storage.clone());
                super::$test(std::sync::Arc::new(storage)).await;
            })*
        }
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let postgres = $crate::test_support::postgres().await;
                let storage = $crate::storage::AnyStorage::Postgres(postgres);
                super::$test(std::sync::Arc::new(storage)).await;
            })*
        }
    };
}
pub(crate) use on_every_storage;
