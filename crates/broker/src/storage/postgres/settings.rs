//! What the server must be before it is trusted with an accept (C37, BR-18).

use tokio_postgres::Client;

use super::OpenError;
use super::error::words;

/// Each is a question, and what it means where the answer is no.
#[rustfmt::skip]
const DEMANDS: [(&str, &str); 7] = [
    ("NOT pg_is_in_recovery()", "it is a replica; name the primary"),
    ("current_setting('fsync') = 'on'", "fsync is off; set fsync = on in postgresql.conf"),
    ("current_setting('full_page_writes') = 'on'", "full_page_writes is off; set full_page_writes = on in postgresql.conf"),
    ("current_setting('synchronous_commit') <> 'off'", "synchronous_commit is off for this user or database; set it to on"),
    ("current_setting('transaction_isolation') = 'read committed'", "transactions do not begin at read committed; a pooler or a role setting changes it"),
    ("current_setting('transaction_read_only') = 'off'", "it is read-only; name a primary that can be written"),
    ("current_setting('server_encoding') = 'UTF8'", "its encoding is not UTF8; create the database with ENCODING 'UTF8'"),
];

/// Refuses a server that could forget a commit, or that decides races otherwise than we rely on.
pub(super) async fn check(client: &Client) -> Result<(), OpenError> {
    let failed = |error: tokio_postgres::Error| OpenError::Unreachable(words(&error));
    let questions: Vec<&str> = DEMANDS.iter().map(|(question, _)| *question).collect();
    let sql = format!("SELECT ARRAY[{}]", questions.join(", "));
    let row = client.query_one(&sql, &[]).await.map_err(failed)?;
    let answers: Vec<bool> = row.try_get(0).map_err(failed)?;
    for ((_, problem), is_so) in DEMANDS.iter().zip(answers) {
        if !is_so {
            return Err(OpenError::Unfit((*problem).to_owned()));
        }
    }
    Ok(())
}
