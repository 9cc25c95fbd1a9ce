//! The servers that `scripts/test` starts: where they are, and a place of its own in them for each test.

use crate::storage::{PostgresOptions, PostgresStorage};

#[allow(
    clippy::disallowed_methods,
    reason = "the address comes from scripts/test"
)]
fn address(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run the tests through ./scripts/test"))
}

/// The number of a transaction is used once for ever.
pub(crate) async fn postgres_options() -> PostgresOptions {
    let url = address("HEDDLE_TEST_POSTGRES_URL");
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let row = client.query_one("SELECT txid_current()", &[]).await;
    let number: i64 = row.unwrap().get(0);
    drop(client);
    let _ = connection.await;
    PostgresOptions {
        schema: format!("mesh_{number}"),
        ..PostgresOptions::new(url)
    }
}

/// Tables of its own.
pub(crate) async fn postgres() -> PostgresStorage {
    PostgresStorage::open(&postgres_options().await)
        .await
        .unwrap()
}

pub(crate) fn redis_url() -> String {
    address("HEDDLE_TEST_REDIS_URL")
}

/// What the keys of one test begin with.
pub(crate) async fn redis_place() -> String {
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let number: u64 = redis::cmd("INCR")
        .arg("heddle:test:places")
        .query_async(&mut connection)
        .await
        .unwrap();
    format!("heddle:test:{number}")
}
