//! Work queues in SQL: what is available, who has it under which fence, what is done.

use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, MeshId, Party};
use heddle_core::names::QueueName;
use heddle_core::work::{Settle, Settled, settle};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::error::StorageError;
use super::super::presence::LeaseMs;
use super::super::queues::{Item, Leased, QueueCount, Queues, Taken, Taker};
use super::super::rows::PageLimit;
use super::SqliteStorage;
use super::columns::{Columns, integer, member_key, mesh_key};
use super::deliveries;
use super::error::JobError;
use super::look::is_registered;
use super::presence::remember_lease_time;

const CREATE: &str = "INSERT INTO queue (mesh_id, queue) VALUES (?1, ?2) ON CONFLICT DO NOTHING";

// The open ones of a queue lie in the order in which they are taken; those under a running lease are
// passed over. The agent is the taker's, so that the columns are those of a delivery.
const AVAILABLE: &str = "
SELECT i.epoch, i.seq, ?4, m.sender_member, m.sender_agent, m.sender_name,
    m.client_message_id, m.broker_message_id, m.destination_kind, m.destination_ref,
    i.priority, m.accepted_at, m.envelope, i.delivery_count
FROM queue_item i
JOIN message m ON m.mesh_id = i.mesh_id AND m.broker_message_id = i.broker_message_id
WHERE i.mesh_id = ?1 AND i.queue = ?2 AND i.acked_at IS NULL
  AND (i.leased_until IS NULL OR i.leased_until <= ?3)
ORDER BY i.priority, i.epoch, i.seq LIMIT ?5";

const FENCE: &str = "SELECT fence FROM queue WHERE mesh_id = ?1 AND queue = ?2";

const KEEP_FENCE: &str = "UPDATE queue SET fence = ?3 WHERE mesh_id = ?1 AND queue = ?2";

const LEASE: &str = "
UPDATE queue_item SET fence = ?5, delivery_count = ?9, holder_member = ?6, holder_agent = ?7,
    leased_until = ?8, taken_at = ?10
WHERE mesh_id = ?1 AND queue = ?2 AND epoch = ?3 AND seq = ?4";

const ITEM: &str = "
SELECT fence, delivery_count, holder_member, holder_agent, leased_until, taken_at, acked_at FROM queue_item
WHERE mesh_id = ?1 AND queue = ?2 AND epoch = ?3 AND seq = ?4";

const SETTLE: &str = "
UPDATE queue_item SET leased_until = NULL, acked_at = ?5
WHERE mesh_id = ?1 AND queue = ?2 AND epoch = ?3 AND seq = ?4";

const RENEW: &str = "
UPDATE queue_item SET leased_until = max(leased_until, ?5)
WHERE mesh_id = ?1 AND queue = ?2 AND epoch = ?3 AND seq = ?4";

const HOLD_BACK: &str = "
UPDATE queue_item SET holder_member = NULL, holder_agent = NULL, taken_at = NULL,
    delivery_count = delivery_count - 1
WHERE mesh_id = ?1 AND queue = ?2 AND epoch = ?3 AND seq = ?4 AND fence = ?5 AND acked_at IS NULL
  AND holder_member IS NOT NULL";

// As a release, of every running lease: nobody who holds one settles anything with it.
const END_LEASES: &str = "
UPDATE queue_item SET leased_until = NULL
WHERE mesh_id = ?1 AND acked_at IS NULL AND leased_until IS NOT NULL";

// The open items of each queue, counted in their own index.
const COUNTS: &str = "
SELECT q.queue,
    (SELECT count(*) FROM queue_item i WHERE i.mesh_id = q.mesh_id AND i.queue = q.queue
        AND i.acked_at IS NULL AND (i.leased_until IS NULL OR i.leased_until <= ?2)),
    (SELECT count(*) FROM queue_item i WHERE i.mesh_id = q.mesh_id AND i.queue = q.queue
        AND i.acked_at IS NULL AND i.leased_until > ?2)
FROM queue q WHERE q.mesh_id = ?1 ORDER BY q.queue";

/// The statements above, for the test that looks at their plans.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[
    CREATE, AVAILABLE, FENCE, KEEP_FENCE, LEASE, ITEM, SETTLE, RENEW, HOLD_BACK, END_LEASES, COUNTS,
];

fn read_item(row: &Row<'_>) -> rusqlite::Result<Item> {
    let mut columns = Columns::of(row);
    Ok(Item {
        fence: columns.number()?,
        delivery_count: columns.number()?,
        holder: columns.maybe_party()?,
        leased_until: columns.maybe_number()?.map(LeaseMs),
        taken_at: columns.maybe_wall()?,
        acked_at: columns.maybe_wall()?,
    })
}

/// True if it is new.
pub(super) fn create(
    connection: &Connection,
    mesh: MeshId,
    queue: &QueueName,
) -> rusqlite::Result<bool> {
    let key = params![mesh_key(mesh), queue.as_str()];
    Ok(connection.prepare_cached(CREATE)?.execute(key)? > 0)
}

/// What a new epoch does with the leases of the one before.
pub(super) fn end_leases(connection: &Connection, mesh: MeshId) -> rusqlite::Result<usize> {
    connection
        .prepare_cached(END_LEASES)?
        .execute([mesh_key(mesh)])
}

pub(super) fn item(
    connection: &Connection,
    mesh: MeshId,
    queue: &str,
    at: HistoryId,
) -> rusqlite::Result<Option<Item>> {
    let key = params![mesh_key(mesh), queue, integer(at.epoch), integer(at.seq)];
    connection
        .prepare_cached(ITEM)?
        .query_row(key, read_item)
        .optional()
}

fn take(
    connection: &Connection,
    mesh: MeshId,
    queue: &QueueName,
    taker: &Taker,
    limit: PageLimit,
) -> Result<Vec<Taken>, JobError> {
    if !is_registered(connection, mesh, &taker.agent)? {
        return Err(StorageError::UnknownAgent(taker.agent.clone()).into());
    }
    remember_lease_time(connection, mesh, taker.now)?;
    let key = params![mesh_key(mesh), queue.as_str()];
    let fence = connection
        .prepare_cached(FENCE)?
        .query_row(key, |row| Columns::of(row).number())
        .optional()?;
    let Some(fence) = fence else {
        return Ok(Vec::new());
    };
    let mut fence: u64 = taker.floor.max(fence);
    let mut taken = available(connection, mesh, queue, taker, limit)?;
    let mut lease = connection.prepare_cached(LEASE)?;
    for one in &mut taken {
        fence += 1;
        one.fence = fence;
        lease.execute(params![
            mesh_key(mesh),
            queue.as_str(),
            integer(one.delivery.history_id.epoch),
            integer(one.delivery.history_id.seq),
            integer(fence),
            member_key(taker.agent.member),
            taker.agent.agent.as_str(),
            integer(taker.until.0),
            integer(one.delivery_count),
            taker.at.0,
        ])?;
    }
    if !taken.is_empty() {
        let kept = params![mesh_key(mesh), queue.as_str(), integer(fence)];
        connection.prepare_cached(KEEP_FENCE)?.execute(kept)?;
    }
    Ok(taken)
}

/// What may be taken, with the count that it will have; the fence is given by the caller.
fn available(
    connection: &Connection,
    mesh: MeshId,
    queue: &QueueName,
    taker: &Taker,
    limit: PageLimit,
) -> rusqlite::Result<Vec<Taken>> {
    let mut statement = connection.prepare_cached(AVAILABLE)?;
    let mut rows = statement.query(params![
        mesh_key(mesh),
        queue.as_str(),
        integer(taker.now.0),
        taker.agent.agent.as_str(),
        i64::try_from(limit.rows_max).unwrap_or(i64::MAX),
    ])?;
    let mut page = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let Some(delivery) = deliveries::read_whole(row) else {
            continue;
        };
        bytes += delivery.envelope.len();
        if bytes > limit.bytes_max && !page.is_empty() {
            break;
        }
        let earlier: u32 = row.get(deliveries::COLUMNS)?;
        page.push(Taken {
            delivery,
            fence: 0,
            delivery_count: u64::from(earlier) + 1,
        });
    }
    Ok(page)
}

fn renew_one(
    connection: &Connection,
    mesh: MeshId,
    queue: &QueueName,
    (taker, leased): (&Taker, Leased),
) -> rusqlite::Result<Settled> {
    let found = item(connection, mesh, queue.as_str(), leased.history_id)?
        .map(|item| (item.state(), item.is_held(&taker.agent, leased.fence)));
    let settled = settle(found, Settle::Renew);
    if settled == Settled::Apply {
        connection.prepare_cached(RENEW)?.execute(params![
            mesh_key(mesh),
            queue.as_str(),
            integer(leased.history_id.epoch),
            integer(leased.history_id.seq),
            integer(taker.until.0),
        ])?;
    }
    Ok(settled)
}

fn settle_one(
    connection: &Connection,
    mesh: MeshId,
    queue: &QueueName,
    (agent, leased): (&Party, Leased),
    (what, at): (Settle, WallMs),
) -> rusqlite::Result<Settled> {
    let found = item(connection, mesh, queue.as_str(), leased.history_id)?
        .map(|item| (item.state(), item.is_held(agent, leased.fence)));
    let settled = settle(found, what);
    if settled == Settled::Apply {
        connection.prepare_cached(SETTLE)?.execute(params![
            mesh_key(mesh),
            queue.as_str(),
            integer(leased.history_id.epoch),
            integer(leased.history_id.seq),
            (what == Settle::Ack).then_some(at.0),
        ])?;
    }
    Ok(settled)
}

fn counts(
    connection: &Connection,
    mesh: MeshId,
    now: LeaseMs,
) -> rusqlite::Result<Vec<QueueCount>> {
    let mut statement = connection.prepare_cached(COUNTS)?;
    let rows = statement.query_map(params![mesh_key(mesh), integer(now.0)], |row| {
        let mut columns = Columns::of(row);
        Ok(QueueCount {
            queue: columns.queue()?,
            ready: columns.number()?,
            leased: columns.number()?,
        })
    })?;
    rows.collect()
}

impl Queues for SqliteStorage {
    async fn create_queue(&self, mesh: MeshId, queue: &QueueName) -> Result<bool, StorageError> {
        let queue = queue.clone();
        self.write(mesh, move |c| Ok(create(c, mesh, &queue)?))
            .await
    }

    async fn queue_take(
        &self,
        mesh: MeshId,
        queue: &QueueName,
        taker: Taker,
        limit: PageLimit,
    ) -> Result<Vec<Taken>, StorageError> {
        let queue = queue.clone();
        self.write(mesh, move |c| take(c, mesh, &queue, &taker, limit))
            .await
    }

    async fn queue_renew(
        &self,
        mesh: MeshId,
        queue: &QueueName,
        taker: Taker,
        items: Vec<Leased>,
    ) -> Result<Vec<Settled>, StorageError> {
        let queue = queue.clone();
        self.write(mesh, move |c| {
            remember_lease_time(c, mesh, taker.now)?;
            let mut verdicts = Vec::with_capacity(items.len());
            for leased in items {
                verdicts.push(renew_one(c, mesh, &queue, (&taker, leased))?);
            }
            Ok(verdicts)
        })
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
        let (queue, agent) = (queue.clone(), agent.clone());
        self.write(mesh, move |c| {
            let mut verdicts = Vec::with_capacity(items.len());
            for leased in items {
                let verdict = settle_one(c, mesh, &queue, (&agent, leased), (what, at))?;
                verdicts.push(verdict);
            }
            Ok(verdicts)
        })
        .await
    }

    async fn queue_hold_back(
        &self,
        mesh: MeshId,
        queue: &QueueName,
        items: Vec<Leased>,
    ) -> Result<(), StorageError> {
        let queue = queue.clone();
        self.write(mesh, move |c| {
            let mut hold_back = c.prepare_cached(HOLD_BACK)?;
            for leased in &items {
                hold_back.execute(params![
                    mesh_key(mesh),
                    queue.as_str(),
                    integer(leased.history_id.epoch),
                    integer(leased.history_id.seq),
                    integer(leased.fence),
                ])?;
            }
            Ok(())
        })
        .await
    }

    async fn queue_counts(
        &self,
        mesh: MeshId,
        now: LeaseMs,
    ) -> Result<Vec<QueueCount>, StorageError> {
        self.read(mesh, move |c| Ok(counts(c, mesh, now)?)).await
    }
}
