//! Receipts and explanations in SQL.

use deadpool_postgres::Transaction;
use heddle_core::envelope::{DestinationKind, Priority};
use heddle_core::ids::{HistoryId, MemberId, MeshId, Party};

use super::super::error::StorageError;
use super::super::rows::{DeliveryPlace, PageLimit, SendId};
use super::super::story::{
    Explanation, HeldPage, Levels, LimiterNote, Receipt, Recipient, Story, WorkStory,
};
use super::PostgresStorage;
use super::columns::{Columns, integer, member_key, mesh_key, rows};
use super::error::JobError;
use super::look::consumed_of;
use super::roster::require_mesh;
use super::sql::{query, query_opt};
use super::{deliveries, held, queues};

const DEDUPE: &str = "
SELECT wire_fingerprint, broker_message_id, epoch, seq, history_available, first_seen_at,
    expires_at, destination_kind, destination_ref, limiter_window, limiter_counted
FROM client_message_dedupe
WHERE mesh_id = $1 AND id_key = $2
  AND sender_member = $3 AND sender_agent = $4 AND client_message_id = $5";

// Deliveries lie by member. An explanation asks for each member in turn; an index by place would cost every
// accept what this saves a question that is rarely asked.
pub(super) const RECIPIENTS: &str = "
SELECT d.member_id, d.agent, m.name, d.delivered_at, d.shown_at, d.acked_at
FROM member m
CROSS JOIN LATERAL (SELECT q.* FROM delivery_queue q
    WHERE q.mesh_id = $1 AND q.member_id = m.member_id AND q.epoch = $2 AND q.seq = $3 OFFSET 0) AS d
WHERE m.mesh_id = $1 ORDER BY d.member_id, d.agent";

const NAME: &str = "SELECT name FROM member WHERE mesh_id = $1 AND member_id = $2";

const MENTIONS: &str = "
SELECT epoch, seq FROM mention_index
WHERE mesh_id = $1 AND member_id = $2 AND agent = $3 AND (epoch, seq) > ($4, $5)
ORDER BY epoch, seq LIMIT $6";

async fn explain(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    id: &SendId,
) -> Result<Option<Explanation>, JobError> {
    require_mesh(transaction, mesh).await?;
    let found = query_opt(
        transaction,
        DEDUPE,
        &[
            &mesh_key(mesh),
            &id.key.0.as_slice(),
            &member_key(id.sender.member),
            &id.sender.agent.as_str(),
            &id.client_message_id.as_str(),
        ],
    )
    .await?;
    let Some(row) = found else {
        return Ok(None);
    };
    let mut columns = Columns::of(&row);
    let Some(consumed) = consumed_of(&mut columns)? else {
        return Ok(None);
    };
    let mut explanation = Explanation {
        consumed,
        expires_at: columns.maybe_wall()?,
        destination_kind: columns.destination_kind()?,
        destination_ref: columns.text()?,
        limiter: note(&mut columns),
        recipients: recipients(transaction, mesh, consumed.history_id).await?,
        work: None,
    };
    if explanation.destination_kind == DestinationKind::Queue {
        let queue = &explanation.destination_ref;
        explanation.work = work(transaction, mesh, queue, consumed.history_id).await?;
    }
    Ok(Some(explanation))
}

/// Telemetry that makes no sense is no telemetry: it never spoils an answer.
fn note(columns: &mut Columns<'_>) -> Option<LimiterNote> {
    let window = columns.maybe_number().unwrap_or_default();
    let counted = columns.maybe_number().unwrap_or_default();
    window.zip(counted).map(|(window, counted)| LimiterNote {
        window,
        counted: counted != 0,
    })
}

async fn recipients(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    at: HistoryId,
) -> Result<Vec<Recipient>, JobError> {
    let (epoch, seq) = (integer(at.epoch), integer(at.seq));
    let found = query(transaction, RECIPIENTS, &[&mesh_key(mesh), &epoch, &seq]).await?;
    found
        .iter()
        .map(|row| {
            let mut columns = Columns::of(row);
            Ok(Recipient {
                party: columns.party()?,
                member_name: columns.member_name()?,
                levels: Levels {
                    delivered_at: columns.maybe_wall()?,
                    shown_at: columns.maybe_wall()?,
                    acked_at: columns.maybe_wall()?,
                },
            })
        })
        .collect()
}

async fn work(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    queue: &str,
    at: HistoryId,
) -> Result<Option<WorkStory>, JobError> {
    let mut items = queues::items(transaction, mesh, queue, &[at]).await?;
    let Some(item) = items.remove(&at) else {
        return Ok(None);
    };
    let mut holder = None;
    if let Some(party) = &item.holder {
        let key = (mesh_key(mesh), member_key(party.member));
        if let Some(row) = query_opt(transaction, NAME, &[&key.0, &key.1]).await? {
            holder = Some((party.clone(), Columns::of(&row).member_name()?));
        }
    }
    Ok(Some(WorkStory {
        state: item.state(),
        fence: item.fence,
        delivery_count: item.delivery_count,
        holder,
        leased_until: item.leased_until,
        taken_at: item.taken_at,
        acked_at: item.acked_at,
    }))
}

impl Story for PostgresStorage {
    async fn receipts(
        &self,
        mesh: MeshId,
        member: MemberId,
        items: Vec<Receipt>,
    ) -> Result<usize, StorageError> {
        self.write(mesh, (mesh, member, items), |tx, (mesh, member, items)| {
            Box::pin(deliveries::receipts(tx, *mesh, *member, items))
        })
        .await
    }

    async fn explain(&self, mesh: MeshId, id: SendId) -> Result<Option<Explanation>, StorageError> {
        self.snapshot((mesh, id), |tx, (mesh, id)| {
            Box::pin(explain(tx, *mesh, id))
        })
        .await
    }

    async fn mentions_after(
        &self,
        mesh: MeshId,
        agent: &Party,
        after: HistoryId,
        rows_max: usize,
    ) -> Result<Vec<HistoryId>, StorageError> {
        let client = self.reader().await?;
        let (key, member) = (mesh_key(mesh), member_key(agent.member));
        let (epoch, seq) = (integer(after.epoch), integer(after.seq));
        let (agent, limit) = (agent.agent.as_str(), rows(rows_max));
        let found = query(
            &client,
            MENTIONS,
            &[&key, &member, &agent, &epoch, &seq, &limit],
        )
        .await?;
        if found.is_empty() {
            require_mesh(&client, mesh).await?;
        }
        let places: Result<_, JobError> = found
            .iter()
            .map(|row| Columns::of(row).history_id())
            .collect();
        Ok(places?)
    }

    async fn deliveries_held(
        &self,
        mesh: MeshId,
        member: MemberId,
        after: (Priority, DeliveryPlace),
        limit: PageLimit,
    ) -> Result<HeldPage, StorageError> {
        let input = (mesh, member, after, limit);
        self.snapshot(input, |tx, (mesh, member, after, limit)| {
            Box::pin(held::page(tx, (*mesh, *member), after.clone(), *limit))
        })
        .await
    }
}
