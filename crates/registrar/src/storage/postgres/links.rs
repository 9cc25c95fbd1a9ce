//! The chain in this schema: its end, its links, its seal. Whoever writes stands in line for its end.

use super::tx::Tx;
use heddle_core::ids::MeshId;
use tokio_postgres::Row as SqlRow;
use tokio_postgres::types::ToSql;

use crate::chain::{Link, Seal};
use crate::rows::Row;
use crate::storage::error::StorageError;
use crate::storage::stored;
use crate::tally::Tally;

type Answer<T> = Result<T, StorageError>;

/// IMPORTANT: the last lock of every transaction, so that nobody who has it waits for anybody.
const LINE_UP: &str =
    "SELECT pg_advisory_xact_lock(hashtextextended('chain of ' || current_schema(), 7264517))";
const HEAD: &str = "SELECT seq, digest FROM effect_chain ORDER BY seq DESC LIMIT 1";
const AT: &str = "SELECT seq, digest FROM effect_chain WHERE seq = $1";
const APPEND: &str = "INSERT INTO effect_chain (seq, digest, seal) VALUES ($1, $2, $3)";
const TALLY: &str = "
    INSERT INTO effect_tally (mesh_id, logical_request_key, seq, row_count) VALUES ($1, $2, $3, $4)";

fn link(row: &SqlRow) -> Answer<Link> {
    stored::link((row.try_get(0)?, row.try_get(1)?))
}

async fn head(transaction: &Tx<'_>) -> Answer<Option<Link>> {
    let found = transaction.query_opt(HEAD, &[]).await?;
    found.as_ref().map(link).transpose()
}

async fn has(transaction: &Tx<'_>, seen: Option<Link>) -> Answer<bool> {
    let Some(seen) = seen else {
        return Ok(true);
    };
    let seq = i64::try_from(seen.seq).unwrap_or(i64::MAX);
    let found = transaction.query_opt(AT, &[&seq]).await?;
    Ok(found.as_ref().map(link).transpose()? == Some(seen))
}

/// What a link stands for.
pub(super) struct Linked<'a> {
    pub(super) mesh: Option<MeshId>,
    pub(super) rows: &'a [Row],
    pub(super) more: &'a [u8],
    pub(super) seal: Option<Seal>,
    pub(super) tally: Tally,
}

/// IMPORTANT: in the transaction of what it stands for, and as its last statements.
pub(super) async fn append(
    transaction: &Tx<'_>,
    expected: Option<Link>,
    linked: &Linked<'_>,
) -> Answer<Link> {
    transaction.execute(LINE_UP, &[]).await?;
    if !has(transaction, expected).await? {
        return Err(StorageError::WentBack);
    }
    let last = head(transaction).await?;
    let next = Link::after(last.as_ref(), linked.mesh, linked.rows, linked.more);
    let seq = i64::try_from(next.seq).unwrap_or(i64::MAX);
    let seal = linked.seal.map(|seal| seal.0.to_vec());
    let digest = next.digest.to_vec();
    transaction.execute(APPEND, &[&seq, &digest, &seal]).await?;
    let mesh = linked.mesh.map(|mesh| mesh.0.to_bytes().to_vec());
    for (key, count) in linked.tally.counts() {
        let row: [&(dyn ToSql + Sync); 4] = [&mesh, &key, &seq, &count];
        transaction.execute(TALLY, &row).await?;
    }
    Ok(next)
}
