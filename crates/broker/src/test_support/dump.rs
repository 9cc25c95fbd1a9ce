//! Every row of a store as a line of text, in one form for all implementations.

use std::future::Future;

use crate::storage::{AnyStorage, MemoryStorage, PostgresStorage, SqliteStorage};

pub(crate) trait Dump: Send + Sync {
    fn dump(&self) -> impl Future<Output = Vec<String>> + Send;

    /// Writes nonsense wherever telemetry is kept.
    fn spoil_telemetry(&self) -> impl Future<Output = ()> + Send;

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

    async fn spoil_telemetry(&self) {
        MemoryStorage::spoil_telemetry(self);
    }
}

impl Dump for AnyStorage {
    async fn dump(&self) -> Vec<String> {
        match self {
            Self::Sqlite(storage) => Dump::dump(storage).await,
            Self::Postgres(storage) => Dump::dump(storage).await,
        }
    }

    async fn spoil_telemetry(&self) {
        match self {
            Self::Sqlite(storage) => storage.spoil_telemetry().await,
            Self::Postgres(storage) => storage.spoil_telemetry().await,
        }
    }
}

impl Dump for SqliteStorage {
    async fn dump(&self) -> Vec<String> {
        SqliteStorage::dump(self).await
    }

    async fn spoil_telemetry(&self) {
        let sql = "
            UPDATE rate_limit_counter SET accepted = -9223372036854775807;
            INSERT INTO rate_limit_counter SELECT mesh_id, -1, 9223372036854775807 FROM mesh;
            UPDATE client_message_dedupe SET limiter_window = -5, limiter_counted = 77;";
        self.batch(sql.to_owned()).await;
    }
}

impl Dump for PostgresStorage {
    async fn dump(&self) -> Vec<String> {
        PostgresStorage::dump(self).await
    }

    async fn spoil_telemetry(&self) {
        let sql = "
            UPDATE rate_limit_counter SET accepted = -9223372036854775807;
            INSERT INTO rate_limit_counter SELECT mesh_id, -1, 9223372036854775807 FROM mesh;
            UPDATE client_message_dedupe SET limiter_window = -5, limiter_counted = 77;";
        self.batch(sql).await;
    }
}
