//! Work queues at the door: frames become operations of the store, and its answers frames.

use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{MeshId, Party};
use heddle_core::limits::{BATCH_BYTES_MAX, BATCH_ITEMS_MAX, QUEUE_LEASE_MS_MAX};
use heddle_core::names::QueueName;
use heddle_core::work::{Settle, Settled};
use heddle_wire::broker::{LeasedItem, QueueCount, QueueVerdict, ReplyResult, TakenItem};

use super::Shared;
use super::pump::{fingerprints, is_as_accepted, pushed};
use crate::limiter::Limiter;
use crate::storage::{Leased, PageLimit, Storage, StorageError, Taken, Taker, fence_floor};

pub(super) async fn take<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    mesh: MeshId,
    queue: &QueueName,
    agent: Party,
    (max, lease_ms): (u32, u64),
) -> Result<ReplyResult, StorageError> {
    let lease_ms = lease_ms.clamp(1, QUEUE_LEASE_MS_MAX);
    let now = shared.lease.now();
    let taker = Taker {
        agent,
        now,
        until: now.after(lease_ms),
        at: shared.accept.clock.wall(),
        floor: fence_floor(shared.accept.clock.wall()),
    };
    let limit = PageLimit {
        rows_max: usize::try_from(max).map_or(BATCH_ITEMS_MAX, |max| max.min(BATCH_ITEMS_MAX)),
        bytes_max: BATCH_BYTES_MAX,
    };
    let taken = shared
        .storage()
        .queue_take(mesh, queue, taker, limit)
        .await?;
    let mut items = Vec::with_capacity(taken.len());
    let deliveries = taken.iter().map(|one| &one.delivery);
    let prints = fingerprints(shared.storage(), mesh, deliveries).await;
    let held_back = hold_back_damaged(shared.storage(), mesh, queue, (&taken, &prints)).await?;
    for (one, print) in taken.into_iter().zip(prints) {
        let place = one.delivery.history_id;
        match pushed(one.delivery, print) {
            Ok(delivery) => items.push(TakenItem {
                delivery,
                fence: one.fence,
                lease_ms,
                delivery_count: one.delivery_count,
            }),
            // It comes up again when the lease is over, and must not hold up the others.
            Err(error) => tracing::error!(%error, %place, "a stored envelope is not JSON"),
        }
    }
    let count = items.len().saturating_sub(held_back);
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    metrics::counter!("heddle_broker_queue_taken_total").increment(count);
    Ok(ReplyResult::Taken { items })
}

/// What is not what was accepted is nobody's work, whatever its taker does with it: nobody may call it done. The taker
/// gets it all the same, sees what it is and says so where it is asked (ADR 12).
async fn hold_back_damaged<S: Storage>(
    storage: &S,
    mesh: MeshId,
    queue: &QueueName,
    (taken, prints): (&[Taken], &[Option<Fingerprint>]),
) -> Result<usize, StorageError> {
    let with_print = taken.iter().zip(prints);
    let damaged =
        with_print.filter(|(one, print)| !is_as_accepted(&one.delivery.envelope, **print));
    let damaged: Vec<Leased> = damaged
        .map(|(one, _)| Leased {
            history_id: one.delivery.history_id,
            fence: one.fence,
        })
        .collect();
    if damaged.is_empty() {
        return Ok(0);
    }
    let count = damaged.len();
    metrics::counter!("heddle_broker_queue_held_back_total").increment(count as u64);
    tracing::error!(%queue, places = ?damaged, "work is not what was pushed and is held back");
    storage.queue_hold_back(mesh, queue, damaged).await?;
    Ok(count)
}

pub(super) async fn counts<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    mesh: MeshId,
) -> Result<ReplyResult, StorageError> {
    let now = shared.lease.now();
    let counts = shared.storage().queue_counts(mesh, now).await?;
    let queues = counts.into_iter().map(|count| QueueCount {
        queue: count.queue,
        ready: count.ready,
        leased: count.leased,
    });
    Ok(ReplyResult::QueueCounts {
        queues: queues.collect(),
    })
}

pub(super) async fn ack<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    mesh: MeshId,
    queue: &QueueName,
    agent: &Party,
    items: Vec<LeasedItem>,
) -> Result<ReplyResult, StorageError> {
    settle(shared, mesh, queue, agent, (Settle::Ack, items)).await
}

pub(super) async fn release<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    mesh: MeshId,
    queue: &QueueName,
    agent: &Party,
    items: Vec<LeasedItem>,
) -> Result<ReplyResult, StorageError> {
    settle(shared, mesh, queue, agent, (Settle::Release, items)).await
}

pub(super) async fn renew<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    mesh: MeshId,
    queue: &QueueName,
    agent: Party,
    (items, lease_ms): (Vec<LeasedItem>, u64),
) -> Result<ReplyResult, StorageError> {
    let now = shared.lease.now();
    let taker = Taker {
        agent,
        now,
        until: now.after(lease_ms.clamp(1, QUEUE_LEASE_MS_MAX)),
        at: shared.accept.clock.wall(),
        floor: 0,
    };
    let items = leased(items);
    let renewed = shared.storage().queue_renew(mesh, queue, taker, items);
    Ok(verdicts(Settle::Renew, renewed.await?))
}

async fn settle<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    mesh: MeshId,
    queue: &QueueName,
    agent: &Party,
    (what, items): (Settle, Vec<LeasedItem>),
) -> Result<ReplyResult, StorageError> {
    let at = shared.accept.clock.wall();
    let settled = shared
        .storage()
        .queue_settle(mesh, queue, agent, (what, leased(items)), at)
        .await?;
    Ok(verdicts(what, settled))
}

fn leased(items: Vec<LeasedItem>) -> Vec<Leased> {
    let items = items.into_iter().map(|item| Leased {
        history_id: item.history_id,
        fence: item.fence,
    });
    items.collect()
}

fn verdicts(what: Settle, settled: Vec<Settled>) -> ReplyResult {
    let verdict = |settled| match (settled, what) {
        (Settled::Apply | Settled::Already, Settle::Ack) => QueueVerdict::Acked,
        (Settled::Apply | Settled::Already, Settle::Release) => QueueVerdict::Released,
        (Settled::Apply | Settled::Already, Settle::Renew) => QueueVerdict::Renewed,
        (Settled::StaleFence, _) => QueueVerdict::StaleFence,
        (Settled::Unknown, _) => QueueVerdict::Unknown,
    };
    ReplyResult::QueueVerdicts {
        items: settled.into_iter().map(verdict).collect(),
    }
}
