//! Every row of a store as a line of text, in one form for all implementations.

use std::future::Future;

use crate::storage::{MemoryStorage, SqliteStorage};

pub(crate) trait Dump: Send + Sync {
    fn dump(&self) -> impl Future<Output = Vec<String>> + Send;

    /// How many rows a table has.
    fn count(&self, table: &str) -> impl Future<Output = usize> + Send {
        let prefix = format!("{table} ");
        async move {
            let lines = self.dump().await;
            lines
                .iter()
                .filter(|line| line.starts_with(&prefix))
                .count()
        }
    }
}

impl Dump for MemoryStorage {
    async fn dump(&self) -> Vec<String> {
        MemoryStorage::dump(self)
    }
}

impl Dump for SqliteStorage {
    async fn dump(&self) -> Vec<String> {
        SqliteStorage::dump(self).await
    }
}
