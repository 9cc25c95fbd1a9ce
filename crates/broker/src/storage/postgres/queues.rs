//! Work queues in SQL: what is available, who has it under which fence, what is done.

use std::collections::BTreeMap;

use deadpool_postgres::{GenericClient, Transaction};
use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, MeshId, Party};
use heddle_core::names::QueueName;
use heddle_core::work::{Settle, Settled, settle};

use super::super::error::StorageError;
use super::super::presence::LeaseMs;
use super::super::queues::{Item, Leased, QueueCount, Queues, Taken, Taker};
use super::super::rows::PageLimit;
use super::PostgresStorage;
use super::columns::{Columns, integer, member_key, mesh_key, rows};
use super::deliveries;
use super::error::JobError;
use super::presence::remember_lease_time;
use super::roster::is_registered;
use super::sql::{change, execute, query, query_opt};

const CREATE: &str = "INSERT INTO queue (mesh_id, queue) VALUES ($1, $2) ON CONFLICT DO NOTHING";

// The open ones of a queue lie in the order in which they are taken; those under a running lease are passed
// over. The agent is the taker's, so that the columns are those of a delivery.
pub(super) const AVAILABLE: &str = "
SELECT epoch, seq, agent, sender_member, sender_agent, sender_name, client_message_id,
    broker_message_id, destination_kind, destination_ref, priority, accepted_at, envelope, delivery_count
FROM (
    SELECT i.epoch, i.seq, $4::text AS agent, m.sender_member, m.sender_agent, m.sender_name,
        m.client_message_id, m.broker_message_id, m.destination_kind, m.destination_ref,
        i.priority, m.accepted_at, m.envelope, i.delivery_count,
        row_number() OVER place AS number, sum(octet_length(m.envelope)) OVER place AS bytes
    FROM (SELECT * FROM queue_item WHERE mesh_id = $1 AND queue = $2 AND acked_at IS NULL
            AND (leased_until IS NULL OR leased_until <= $3)
        ORDER BY priority, epoch, seq LIMIT $5) i
    JOIN message m ON m.mesh_id = i.mesh_id AND m.broker_message_id = i.broker_message_id
    WINDOW place AS (ORDER BY i.priority, i.epoch, i.seq)
) page
WHERE number = 1 OR bytes <= $6 ORDER BY priority, epoch, seq";

const FENCE: &str = "SELECT fence FROM queue WHERE mesh_id = $1 AND queue = $2";

const KEEP_FENCE: &str = "UPDATE queue SET fence = $3 WHERE mesh_id = $1 AND queue = $2";

// Items are found by their key and changed at their place, as in `acks`.
pub(super) const LEASE: &str = "
UPDATE queue_item i SET fence = found.fence, delivery_count = i.delivery_count + 1, holder_member = $3,
    holder_agent = $4, leased_until = $5, taken_at = $9
FROM (SELECT w.place, k.fence FROM unnest($6::bigint[], $7::bigint[], $8::bigint[]) AS k (epoch, seq, fence)
    CROSS JOIN LATERAL (SELECT o.ctid AS place FROM queue_item o
        WHERE o.mesh_id = $1 AND o.queue = $2 AND o.epoch = k.epoch AND o.seq = k.seq OFFSET 0) AS w
    OFFSET 0) AS found
WHERE i.ctid = found.place";

pub(super) const ITEMS: &str = "
SELECT i.epoch, i.seq, i.fence, i.delivery_count, i.holder_member, i.holder_agent, i.leased_until, i.taken_at,
    i.acked_at
FROM unnest($3::bigint[], $4::bigint[]) AS k (epoch, seq)
CROSS JOIN LATERAL (SELECT o.* FROM queue_item o
    WHERE o.mesh_id = $1 AND o.queue = $2 AND o.epoch = k.epoch AND o.seq = k.seq OFFSET 0) AS i";

pub(super) const KEEP: &str = "
UPDATE queue_item i SET leased_until = found.leased_until, acked_at = found.acked_at
FROM (SELECT w.place, k.leased_until, k.acked_at
    FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) AS k (epoch, seq, leased_until, acked_at)
    CROSS JOIN LATERAL (SELECT o.ctid AS place FROM queue_item o
        WHERE o.mesh_id = $1 AND o.queue = $2 AND o.epoch = k.epoch AND o.seq = k.seq OFFSET 0) AS w
    OFFSET 0) AS found
WHERE i.ctid = found.place";

pub(super) const HOLD_BACK: &str = "
UPDATE queue_item i SET holder_member = NULL, holder_agent = NULL, taken_at = NULL,
    delivery_count = i.delivery_count - 1
FROM (SELECT w.place FROM unnest($3::bigint[], $4::bigint[], $5::bigint[]) AS k (epoch, seq, fence)
    CROSS JOIN LATERAL (SELECT o.ctid AS place FROM queue_item o
        WHERE o.mesh_id = $1 AND o.queue = $2 AND o.epoch = k.epoch AND o.seq = k.seq AND o.fence = k.fence
          AND o.acked_at IS NULL AND o.holder_member IS NOT NULL OFFSET 0) AS w
    OFFSET 0) AS found
WHERE i.ctid = found.place";

// As a release, of every running lease: nobody who holds one settles anything with it.
const END_LEASES: &str = "
UPDATE queue_item SET leased_until = NULL
WHERE mesh_id = $1 AND acked_at IS NULL AND leased_until IS NOT NULL";

// The open items of each queue.
const COUNTS: &str = "
SELECT q.queue,
    (SELECT count(*) FROM queue_item i WHERE i.mesh_id = q.mesh_id AND i.queue = q.queue
        AND i.acked_at IS NULL AND (i.leased_until IS NULL OR i.leased_until <= $2)),
    (SELECT count(*) FROM queue_item i WHERE i.mesh_id = q.mesh_id AND i.queue = q.queue
        AND i.acked_at IS NULL AND i.leased_until > $2)
FROM queue q WHERE q.mesh_id = $1 ORDER BY q.queue";

fn read_item(columns: &mut Columns<'_>) -> Result<Item, JobError> {
    Ok(Item {
        fence: columns.number()?,
        delivery_count: columns.number()?,
        holder: columns.maybe_party()?,
        leased_until: columns.maybe_number()?.map(LeaseMs),
        taken_at: columns.maybe_wall()?,
        acked_at: columns.maybe_wall()?,
    })
}

/// What a new epoch does with the leases of the one before.
pub(super) async fn end_leases(
    transaction: &Transaction<'_>,
    mesh: MeshId,
) -> Result<u64, JobError> {
    execute(transaction, END_LEASES, &[&mesh_key(mesh)]).await
}

pub(super) async fn items<C: GenericClient>(
    client: &C,
    mesh: MeshId,
    queue: &str,
    places: &[HistoryId],
) -> Result<BTreeMap<HistoryId, Item>, JobError> {
    let epochs: Vec<i64> = places.iter().map(|at| integer(at.epoch)).collect();
    let seqs: Vec<i64> = places.iter().map(|at| integer(at.seq)).collect();
    let key = mesh_key(mesh);
    let found = query(client, ITEMS, &[&key, &queue, &epochs, &seqs]).await?;
    let mut items = BTreeMap::new();
    for row in &found {
        let mut columns = Columns::of(row);
        items.insert(columns.history_id()?, read_item(&mut columns)?);
    }
    Ok(items)
}

async fn take(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    queue: &QueueName,
    taker: &Taker,
    limit: PageLimit,
) -> Result<Vec<Taken>, JobError> {
    if !is_registered(transaction, mesh, &taker.agent).await? {
        return Err(StorageError::UnknownAgent(taker.agent.clone()).into());
    }
    remember_lease_time(transaction, mesh, taker.now).await?;
    let (key, queue) = (mesh_key(mesh), queue.as_str());
    let Some(row) = query_opt(transaction, FENCE, &[&key, &queue]).await? else {
        return Ok(Vec::new());
    };
    let mut fence = taker.floor.max(Columns::of(&row).number()?);
    let mut taken = available(transaction, &key, queue, taker, limit).await?;
    if taken.is_empty() {
        return Ok(taken);
    }
    let (mut epochs, mut seqs, mut fences) = (Vec::new(), Vec::new(), Vec::new());
    for one in &mut taken {
        fence += 1;
        one.fence = fence;
        epochs.push(integer(one.delivery.history_id.epoch));
        seqs.push(integer(one.delivery.history_id.seq));
        fences.push(integer(fence));
    }
    let (member, until) = (member_key(taker.agent.member), integer(taker.until.0));
    let agent = taker.agent.agent.as_str();
    execute(
        transaction,
        LEASE,
        &[
            &key,
            &queue,
            &member,
            &agent,
            &until,
            &epochs,
            &seqs,
            &fences,
            &taker.at.0,
        ],
    )
    .await?;
    execute(transaction, KEEP_FENCE, &[&key, &queue, &integer(fence)]).await?;
    Ok(taken)
}

/// What may be taken, with the count that it will have; the fence is given by the caller.
async fn available(
    transaction: &Transaction<'_>,
    mesh: &Vec<u8>,
    queue: &str,
    taker: &Taker,
    limit: PageLimit,
) -> Result<Vec<Taken>, JobError> {
    let (now, agent) = (integer(taker.now.0), taker.agent.agent.as_str());
    let (rows_max, bytes_max) = (rows(limit.rows_max), rows(limit.bytes_max));
    let found = query(
        transaction,
        AVAILABLE,
        &[mesh, &queue, &now, &agent, &rows_max, &bytes_max],
    )
    .await?;
    found
        .iter()
        .map(|row| {
            let mut columns = Columns::of(row);
            Ok(Taken {
                delivery: deliveries::read(&mut columns)?,
                fence: 0,
                delivery_count: columns.number()? + 1,
            })
        })
        .collect()
}

/// What a consumer wants with messages that it took.
struct Wish {
    mesh: MeshId,
    queue: QueueName,
    agent: Party,
    what: Settle,
    items: Vec<Leased>,
    at: WallMs,
    /// For a renewal.
    lease: Option<(LeaseMs, LeaseMs)>,
}

/// All rows are read, decided one after the other in sight of each other, and written at once.
async fn carry_out(transaction: &Transaction<'_>, wish: &Wish) -> Result<Vec<Settled>, JobError> {
    if let Some((now, _)) = wish.lease {
        remember_lease_time(transaction, wish.mesh, now).await?;
    }
    let places: Vec<HistoryId> = wish.items.iter().map(|item| item.history_id).collect();
    let queue = wish.queue.as_str();
    let mut items = items(transaction, wish.mesh, queue, &places).await?;
    let mut verdicts = Vec::with_capacity(wish.items.len());
    let mut changed = Vec::new();
    for leased in &wish.items {
        let item = items.get_mut(&leased.history_id);
        let found = item
            .as_ref()
            .map(|item| (item.state(), item.is_held(&wish.agent, leased.fence)));
        let settled = settle(found, wish.what);
        if let (Settled::Apply, Some(item)) = (settled, item) {
            apply(item, wish);
            changed.push(leased.history_id);
        }
        verdicts.push(settled);
    }
    changed.sort_unstable();
    changed.dedup();
    if !changed.is_empty() {
        keep(transaction, wish, &items, &changed).await?;
    }
    Ok(verdicts)
}

async fn hold_back(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    queue: &QueueName,
    items: &[Leased],
) -> Result<(), JobError> {
    let (mut epochs, mut seqs, mut fences) = (Vec::new(), Vec::new(), Vec::new());
    for leased in items {
        epochs.push(integer(leased.history_id.epoch));
        seqs.push(integer(leased.history_id.seq));
        fences.push(integer(leased.fence));
    }
    let (key, queue) = (mesh_key(mesh), queue.as_str());
    execute(
        transaction,
        HOLD_BACK,
        &[&key, &queue, &epochs, &seqs, &fences],
    )
    .await?;
    Ok(())
}

fn apply(item: &mut Item, wish: &Wish) {
    match wish.what {
        Settle::Ack => {
            item.leased_until = None;
            item.acked_at = Some(wish.at);
        }
        Settle::Release => item.leased_until = None,
        Settle::Renew => {
            let until = wish.lease.map(|(_, until)| until);
            item.leased_until = item.leased_until.max(until);
        }
    }
}

async fn keep(
    transaction: &Transaction<'_>,
    wish: &Wish,
    items: &BTreeMap<HistoryId, Item>,
    changed: &[HistoryId],
) -> Result<(), JobError> {
    let (mut epochs, mut seqs) = (Vec::new(), Vec::new());
    let (mut leases, mut acks) = (Vec::new(), Vec::new());
    for (at, item) in changed.iter().filter_map(|at| Some((at, items.get(at)?))) {
        epochs.push(integer(at.epoch));
        seqs.push(integer(at.seq));
        leases.push(item.leased_until.map(|until| integer(until.0)));
        acks.push(item.acked_at.map(|at| at.0));
    }
    let (key, queue) = (mesh_key(wish.mesh), wish.queue.as_str());
    execute(
        transaction,
        KEEP,
        &[&key, &queue, &epochs, &seqs, &leases, &acks],
    )
    .await?;
    Ok(())
}

impl Queues for PostgresStorage {
    async fn queue_counts(
        &self,
        mesh: MeshId,
        now: LeaseMs,
    ) -> Result<Vec<QueueCount>, StorageError> {
        let client = self.reader().await?;
        let found = query(&client, COUNTS, &[&mesh_key(mesh), &integer(now.0)]).await?;
        let counts: Result<_, JobError> = found
            .iter()
            .map(|row| {
                let mut columns = Columns::of(row);
                Ok(QueueCount {
                    queue: columns.queue()?,
                    ready: columns.number()?,
                    leased: columns.number()?,
                })
            })
            .collect();
        Ok(counts?)
    }

    async fn queue_hold_back(
        &self,
        mesh: MeshId,
        queue: &QueueName,
        items: Vec<Leased>,
    ) -> Result<(), StorageError> {
        let input = (mesh, queue.clone(), items);
        self.write(mesh, input, |tx, (mesh, queue, items)| {
            Box::pin(hold_back(tx, *mesh, queue, items))
        })
        .await
    }

    async fn create_queue(&self, mesh: MeshId, queue: &QueueName) -> Result<bool, StorageError> {
        self.write(mesh, (mesh, queue.clone()), |tx, (mesh, queue)| {
            Box::pin(async move {
                let key = mesh_key(*mesh);
                change(tx, CREATE, &[&key, &queue.as_str()]).await
            })
        })
        .await
    }

    async fn queue_take(
        &self,
        mesh: MeshId,
        queue: &QueueName,
        taker: Taker,
        limit: PageLimit,
    ) -> Result<Vec<Taken>, StorageError> {
        let input = (mesh, queue.clone(), taker, limit);
        self.write(mesh, input, |tx, (mesh, queue, taker, limit)| {
            Box::pin(take(tx, *mesh, queue, taker, *limit))
        })
        .await
    }

    async fn queue_renew(
        &self,
        mesh: MeshId,
        queue: &QueueName,
        taker: Taker,
        items: Vec<Leased>,
    ) -> Result<Vec<Settled>, StorageError> {
        let wish = Wish {
            mesh,
            queue: queue.clone(),
            agent: taker.agent,
            what: Settle::Renew,
            items,
            at: WallMs(0),
            lease: Some((taker.now, taker.until)),
        };
        self.write(mesh, wish, |tx, wish| Box::pin(carry_out(tx, wish)))
            .await
    }

    async fn queue_settle(
        &self,
        mesh: MeshId,
        queue: &QueueName,
        agent: &Party,
        (what, items): (Settle, Vec<Leased>),
        at: WallMs,
    ) -> Result<Vec<Settled>, StorageError> {
        let wish = Wish {
            mesh,
            queue: queue.clone(),
            agent: agent.clone(),
            what,
            items,
            at,
            lease: None,
        };
        self.write(mesh, wish, |tx, wish| Box::pin(carry_out(tx, wish)))
            .await
    }
}
