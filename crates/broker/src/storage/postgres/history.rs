//! The history of a mesh and its log, read by cursor; epochs.

use deadpool_postgres::{GenericClient, Transaction};
use heddle_core::ids::{HistoryId, MeshId};
use heddle_core::witness::Witness;
use tokio_postgres::types::ToSql;

use super::super::error::StorageError;
use super::super::log::{Epochs, Log, LogPage, LogRow, MendedLog, may_miss, mend_all};
use super::super::parting::Parted;
use super::super::rows::{HistoryRow, PageLimit};
use super::PostgresStorage;
use super::columns::{Columns, integer, mesh_key, rows};
use super::error::JobError;
use super::roster::require_mesh;
use super::sql::{query, query_opt};
use super::{mend, parting, queues};

const EPOCH: &str = "SELECT epoch FROM mesh WHERE mesh_id = $1";

const NEXT: &str = "SELECT epoch, next_seq FROM mesh WHERE mesh_id = $1";

// By LATERAL, as in `accept/facts`.
pub(super) const AFTER: &str = "
SELECT h.epoch, h.seq, h.broker_message_id, h.is_expired, m.sender_member, m.sender_agent,
    m.client_message_id, m.envelope
FROM message_history h
LEFT JOIN LATERAL (SELECT b.* FROM message b
    WHERE b.mesh_id = $1 AND b.broker_message_id = h.broker_message_id OFFSET 0) AS m ON TRUE
WHERE h.mesh_id = $1 AND (h.epoch, h.seq) > ($2, $3)
ORDER BY h.epoch, h.seq LIMIT $4";

// The bytes are summed up where the rows are, so that no more than a page is ever sent.
pub(super) const LOG_AFTER: &str = "
SELECT epoch, seq, previous_epoch, previous_seq, sender_member, sender_agent, client_message_id,
    accepted_at, envelope
FROM (
    SELECT l.epoch, l.seq, l.previous_epoch, l.previous_seq, m.sender_member, m.sender_agent,
        m.client_message_id, m.accepted_at, m.envelope,
        row_number() OVER place AS number, sum(octet_length(m.envelope)) OVER place AS bytes
    FROM (SELECT * FROM log_row WHERE mesh_id = $1 AND (epoch, seq) > ($2, $3)
        ORDER BY epoch, seq LIMIT $4) l
    JOIN message m ON m.mesh_id = l.mesh_id AND m.broker_message_id = l.broker_message_id
    WINDOW place AS (ORDER BY l.epoch, l.seq)
) page
WHERE number = 1 OR bytes <= $5 ORDER BY epoch, seq";

// Where the rows end that such a page looks at.
const LOG_LAST: &str = "
SELECT epoch, seq FROM (SELECT epoch, seq FROM log_row WHERE mesh_id = $1 AND (epoch, seq) > ($2, $3)
    ORDER BY epoch, seq LIMIT $4) page
ORDER BY epoch DESC, seq DESC LIMIT 1";

// One step of a walk from epoch to epoch: two look-ups each, however long the history is.
const END_BEFORE: &str = "
SELECT epoch, seq FROM message_history WHERE mesh_id = $1 AND epoch < $2
ORDER BY epoch DESC, seq DESC LIMIT 1";

const BUMP: &str =
    "UPDATE mesh SET epoch = epoch + 1, next_seq = 1 WHERE mesh_id = $1 RETURNING epoch";

pub(super) async fn epoch<C: GenericClient>(client: &C, mesh: MeshId) -> Result<u64, JobError> {
    match query_opt(client, EPOCH, &[&mesh_key(mesh)]).await? {
        None => Err(StorageError::UnknownMesh(mesh).into()),
        Some(row) => Columns::of(&row).number(),
    }
}

/// Where the next message goes.
pub(super) async fn next<C: GenericClient>(
    client: &C,
    mesh: MeshId,
) -> Result<HistoryId, JobError> {
    let row = query_opt(client, NEXT, &[&mesh_key(mesh)]).await?;
    let row = row.ok_or(StorageError::UnknownMesh(mesh))?;
    Columns::of(&row).history_id()
}

pub(super) async fn after<C: GenericClient>(
    client: &C,
    mesh: MeshId,
    after: HistoryId,
    rows_max: usize,
) -> Result<Vec<HistoryRow>, JobError> {
    let (epoch, seq) = (integer(after.epoch), integer(after.seq));
    let limit = rows(rows_max);
    let found = query(client, AFTER, &[&mesh_key(mesh), &epoch, &seq, &limit]).await?;
    if found.is_empty() {
        require_mesh(client, mesh).await?;
    }
    found
        .iter()
        .map(|row| {
            let mut columns = Columns::of(row);
            Ok(HistoryRow {
                history_id: columns.history_id()?,
                broker_message_id: columns.broker_message_id()?,
                is_expired: columns.flag()?,
                id: columns.maybe_send_id()?,
                envelope: columns.maybe_envelope()?,
            })
        })
        .collect()
}

async fn log_after(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    after: HistoryId,
    limit: PageLimit,
) -> Result<LogPage, JobError> {
    let running = epoch(transaction, mesh).await?;
    let (mut epoch, mut seq) = (integer(after.epoch), integer(after.seq));
    let (rows_max, bytes_max) = (rows(limit.rows_max), rows(limit.bytes_max));
    let key = mesh_key(mesh);
    let found = loop {
        let with: [&(dyn ToSql + Sync); 5] = [&key, &epoch, &seq, &rows_max, &bytes_max];
        let found = query(transaction, LOG_AFTER, &with).await?;
        if !found.is_empty() {
            break found;
        }
        // An empty page is the end to whoever reads; one of lost ops only is not.
        let Some(last) = query_opt(transaction, LOG_LAST, &with[..4]).await? else {
            break found;
        };
        let last = Columns::of(&last).history_id()?;
        (epoch, seq) = (integer(last.epoch), integer(last.seq));
    };
    let mut page = LogPage {
        epoch: running,
        rows: Vec::with_capacity(found.len()),
        misses: false,
    };
    for row in &found {
        let mut columns = Columns::of(row);
        page.rows.push(LogRow {
            history_id: columns.history_id()?,
            previous: columns.history_id()?,
            sender: columns.party()?,
            client_message_id: columns.client_message_id()?,
            accepted_at: columns.wall()?,
            envelope: columns.envelope()?,
        });
    }
    page.misses = may_miss(after, &page.rows) && mend::misses(transaction, mesh, after).await?;
    Ok(page)
}

pub(super) async fn ends(
    transaction: &Transaction<'_>,
    mesh: MeshId,
) -> Result<Vec<HistoryId>, JobError> {
    let key = mesh_key(mesh);
    let (mut ends, mut before) = (Vec::new(), i64::MAX);
    while let Some(row) = query_opt(transaction, END_BEFORE, &[&key, &before]).await? {
        let end = Columns::of(&row).history_id()?;
        before = integer(end.epoch);
        ends.push(end);
    }
    ends.reverse();
    Ok(ends)
}

pub(super) async fn bump(transaction: &Transaction<'_>, mesh: MeshId) -> Result<u64, JobError> {
    let row = query_opt(transaction, BUMP, &[&mesh_key(mesh)]).await?;
    let row = row.ok_or(StorageError::UnknownMesh(mesh))?;
    queues::end_leases(transaction, mesh).await?;
    Columns::of(&row).number()
}

impl Log for PostgresStorage {
    async fn log_after(
        &self,
        mesh: MeshId,
        after: HistoryId,
        limit: PageLimit,
    ) -> Result<LogPage, StorageError> {
        self.snapshot((mesh, after, limit), |tx, (mesh, after, limit)| {
            Box::pin(log_after(tx, *mesh, *after, *limit))
        })
        .await
    }

    async fn epochs(&self, mesh: MeshId) -> Result<Epochs, StorageError> {
        self.snapshot(mesh, |tx, mesh| {
            Box::pin(async move {
                Ok(Epochs {
                    epoch: epoch(tx, *mesh).await?,
                    ends: ends(tx, *mesh).await?,
                    holes: mend::holes(tx, *mesh).await?,
                })
            })
        })
        .await
    }

    async fn bump_epoch(&self, mesh: MeshId) -> Result<u64, StorageError> {
        self.write(mesh, mesh, |tx, mesh| Box::pin(bump(tx, *mesh)))
            .await
    }

    async fn part(&self, mesh: MeshId, seen: Vec<Witness>) -> Result<Option<Parted>, StorageError> {
        let client = self.reader().await?;
        let found = parting::find(&client, mesh, &seen).await?;
        drop(client);
        if found.is_none() {
            return Ok(None);
        }
        self.write(mesh, (mesh, seen), |tx, (mesh, seen)| {
            Box::pin(parting::part(tx, *mesh, seen))
        })
        .await
    }

    async fn mend_log(
        &self,
        mesh: MeshId,
        at: HistoryId,
    ) -> Result<Option<MendedLog>, StorageError> {
        let this = self.clone();
        mend_all(at, move |mending| {
            let this = this.clone();
            async move {
                let piece = this.write(mesh, (mesh, mending), |tx, (mesh, mending)| {
                    Box::pin(mend::piece(tx, *mesh, mending.clone()))
                });
                piece.await
            }
        })
        .await
    }
}
