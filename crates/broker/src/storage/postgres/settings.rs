//! What the server must be before it is trusted with an accept (C37, BR-18). Asked of every connection, when it is made.

use deadpool_postgres::HookError;
use tokio_postgres::Client;

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

/// Why a connection is not used.
pub(super) enum Misfit {
    /// What the server is not, and what to do about it.
    Unfit(&'static str),
    Sql(tokio_postgres::Error),
}

impl From<Misfit> for HookError {
    fn from(misfit: Misfit) -> Self {
        match misfit {
            Misfit::Unfit(problem) => Self::message(problem),
            Misfit::Sql(error) => Self::Backend(error),
        }
    }
}

/// Refuses a server that could forget a commit, or that decides races otherwise than we rely on.
pub(super) async fn check(client: &Client) -> Result<(), Misfit> {
    let questions: Vec<&str> = DEMANDS.iter().map(|(question, _)| *question).collect();
    let sql = format!("SELECT ARRAY[{}]", questions.join(", "));
    let row = client.query_one(&sql, &[]).await.map_err(Misfit::Sql)?;
    let answers: Vec<bool> = row.try_get(0).map_err(Misfit::Sql)?;
    for ((_, problem), is_so) in DEMANDS.iter().zip(answers) {
        if !is_so {
            return Err(Misfit::Unfit(problem));
        }
    }
    Ok(())
}
