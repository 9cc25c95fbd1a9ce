//! One transaction of ours. Its statements are prepared once for each connection, so that each of them is one way to the
//! server and back: many who ask at once wait for each other's ways.

use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

pub(super) struct Tx<'c>(deadpool_postgres::Transaction<'c>);

type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

impl<'c> Tx<'c> {
    pub(super) fn new(transaction: deadpool_postgres::Transaction<'c>) -> Self {
        Self(transaction)
    }

    pub(super) async fn query(
        &self,
        sql: &'static str,
        with: Values<'_>,
    ) -> Result<Vec<Row>, Error> {
        let statement = self.0.prepare_cached(sql).await?;
        self.0.query(&statement, with).await
    }

    pub(super) async fn query_opt(
        &self,
        sql: &'static str,
        with: Values<'_>,
    ) -> Result<Option<Row>, Error> {
        let statement = self.0.prepare_cached(sql).await?;
        self.0.query_opt(&statement, with).await
    }

    pub(super) async fn query_one(
        &self,
        sql: &'static str,
        with: Values<'_>,
    ) -> Result<Row, Error> {
        let statement = self.0.prepare_cached(sql).await?;
        self.0.query_one(&statement, with).await
    }

    pub(super) async fn execute(&self, sql: &'static str, with: Values<'_>) -> Result<u64, Error> {
        let statement = self.0.prepare_cached(sql).await?;
        self.0.execute(&statement, with).await
    }

    pub(super) async fn commit(self) -> Result<(), Error> {
        self.0.commit().await
    }

    pub(super) async fn rollback(self) -> Result<(), Error> {
        self.0.rollback().await
    }

    /// For statements that are said once, at the start: what they are about may not even be there.
    pub(super) fn bare(&mut self) -> &mut tokio_postgres::Transaction<'c> {
        &mut self.0
    }
}
