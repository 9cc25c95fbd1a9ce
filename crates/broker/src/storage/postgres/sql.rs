//! Running one statement: prepared once for each connection, on a connection or in a transaction.

use deadpool_postgres::GenericClient;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::error::JobError;

pub(super) type Params<'p> = &'p [&'p (dyn ToSql + Sync)];

pub(super) async fn query<C: GenericClient>(
    client: &C,
    sql: &str,
    params: Params<'_>,
) -> Result<Vec<Row>, JobError> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query(&statement, params).await?)
}

pub(super) async fn query_opt<C: GenericClient>(
    client: &C,
    sql: &str,
    params: Params<'_>,
) -> Result<Option<Row>, JobError> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query_opt(&statement, params).await?)
}

/// How many rows it changed.
pub(super) async fn execute<C: GenericClient>(
    client: &C,
    sql: &str,
    params: Params<'_>,
) -> Result<u64, JobError> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.execute(&statement, params).await?)
}

/// Whether it changed a row.
pub(super) async fn change<C: GenericClient>(
    client: &C,
    sql: &str,
    params: Params<'_>,
) -> Result<bool, JobError> {
    Ok(execute(client, sql, params).await? > 0)
}

/// Whether it finds a row.
pub(super) async fn exists<C: GenericClient>(
    client: &C,
    sql: &str,
    params: Params<'_>,
) -> Result<bool, JobError> {
    Ok(query_opt(client, sql, params).await?.is_some())
}

pub(super) fn count(rows: u64) -> usize {
    usize::try_from(rows).unwrap_or(usize::MAX)
}
