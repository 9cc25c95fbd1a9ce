//! Work queues. The broker leases; this asks it, and waits for work where the caller wants to wait.
//!
//! A take has no idempotency key: a lease whose answer was lost ends by itself, and the work comes
//! again under a higher fence. Acks, releases and renewals are named by fence and count once.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::{ClientMessageId, HistoryId, Party};
use heddle_core::limits::{
    QUEUE_ITEMS_MAX, QUEUE_LEASE_DEFAULT, QUEUE_LEASE_MS_MAX, QUEUE_WAIT_MAX, QUEUE_WAITS_MAX,
};
use heddle_core::names::{AgentName, QueueName};
use heddle_store::Store;
use heddle_wire::broker::{Envelope, LeasedItem, ReplyResult, Request as Ask, Sender, TakenItem};
use heddle_wire::from_wire;
use heddle_wire::ipc::{
    LeasedBody, QueueItem, QueueList, QueuePushBody, QueueRenewBody, QueueSettleBody,
    QueueTakeBody, QueueTaken, QueueView, SettledItem, SettledItems,
};
use heddle_wire::problem::Problem;
use serde::Deserialize;
use serde_json::Value;

use super::send::{agent, idempotency_key, send_body};
use crate::inbox::damage;
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::shared::Shared;

/// How often a take that waits looks by itself: for leases that ran out, and for a broker whose hint was
/// lost, or who gives none. The pause doubles.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Takes in a row of which nothing could be given out.
const PASSED_OVER_MAX: usize = 8;

const TAKE_AGAIN: &str = "Try again when `heddle status` says connected; what waits stays in the queue, and what this call may have taken comes back when its lease is over.";
const SETTLE_AGAIN: &str =
    "Send the same again when `heddle status` says connected; it counts once.";

pub(super) async fn push(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: QueuePushBody = body::read(&parts, incoming).await?;
    let key = idempotency_key(&parts.headers)?;
    Ok(send_body(&ipc, key.as_deref(), from_wire::push_as_send(body)?).await?)
}

/// What a take asks for, checked.
struct Order {
    queue: QueueName,
    agent: AgentName,
    max: u32,
    lease_ms: u64,
    wait: Duration,
}

impl Order {
    fn of(ipc: &Ipc, body: &QueueTakeBody) -> Result<Self, Problem> {
        let lease_default = QUEUE_LEASE_DEFAULT.as_secs();
        let max = within("max", body.max.unwrap_or(1), 1..=QUEUE_ITEMS_MAX as u64)?;
        let lease_seconds = body.lease_seconds.unwrap_or(lease_default);
        let lease_range = 1..=QUEUE_LEASE_MS_MAX / 1000;
        let wait_seconds = body.wait_seconds.unwrap_or(0);
        let wait_range = 0..=QUEUE_WAIT_MAX.as_secs();
        Ok(Self {
            queue: from_wire::queue_name(&body.queue)?,
            agent: agent(ipc, body.agent.as_deref())?,
            max: u32::try_from(max).unwrap_or(1),
            lease_ms: within("lease_seconds", lease_seconds, lease_range)? * 1000,
            wait: Duration::from_secs(within("wait_seconds", wait_seconds, wait_range)?),
        })
    }
}

fn within(name: &str, value: u64, range: RangeInclusive<u64>) -> Result<u64, Problem> {
    if range.contains(&value) {
        return Ok(value);
    }
    let (from, to) = (range.start(), range.end());
    let detail = format!("{name} is {value}; it can be {from} to {to}");
    Err(from_wire::invalid(detail))
}

pub(super) async fn take(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: QueueTakeBody = body::read(&parts, incoming).await?;
    let order = Order::of(&ipc, &body)?;
    let mesh = ipc.shared.mesh(body.mesh.as_deref())?;
    mesh.register(&ipc.shared, &order.agent).await?;
    let items = take_or_wait(&ipc, mesh, &order).await?;
    let is_listed = || {
        mesh.with_known(|known| {
            let mut queues = known.roster.queues.iter();
            queues.any(|listed| listed.queue == order.queue)
        })
    };
    ok(&QueueTaken {
        duplicate: false,
        exists: !items.is_empty() || is_listed(),
        items,
    })
}

/// Asks once, and then again when the broker says so, or after growing pauses. An ask is never cut short:
/// it may have taken work.
async fn take_or_wait(
    ipc: &Ipc,
    mesh: &MeshState,
    order: &Order,
) -> Result<Vec<QueueItem>, Problem> {
    // Before each look: what comes between the look and the wait must be heard.
    let mut came = std::pin::pin!(mesh.work.notified());
    came.as_mut().enable();
    let items = take_now(&ipc.shared, mesh, order).await?;
    if !items.is_empty() || order.wait.is_zero() {
        return Ok(items);
    }
    // Nothing was taken, so a busy daemon may say so.
    let Ok(_place) = ipc.load.queue_waits.try_acquire() else {
        metrics::counter!("heddle_ipc_busy_total").increment(1);
        let detail = format!("{QUEUE_WAITS_MAX} takes wait for work already");
        return Err(Problem::new(ErrorCode::DaemonBusy, detail)
            .next("Take without waiting, or try again in a moment; nothing was taken."));
    };
    let clock = &ipc.shared.clock;
    let until = clock.mono().saturating_add(order.wait);
    let mut pause = PAUSE_MIN;
    loop {
        let left = until.saturating_sub(clock.mono());
        if left.is_zero() {
            return Ok(Vec::new());
        }
        tokio::select! {
            () = &mut came => {}
            () = tokio::time::sleep(pause.min(left)) => {}
            () = ipc.shared.shutdown.cancelled() => return Err(stopping()),
        }
        came.set(mesh.work.notified());
        came.as_mut().enable();
        match take_now(&ipc.shared, mesh, order).await {
            // The link ends with the daemon, and may do so first.
            Err(_) if ipc.shared.shutdown.is_cancelled() => return Err(stopping()),
            Ok(items) if items.is_empty() => {}
            taken => return taken,
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn stopping() -> Problem {
    Problem::new(ErrorCode::ShuttingDown, "the daemon is stopping").next(TAKE_AGAIN)
}

/// What can be given out. Where nothing of what was taken can, what stands behind it is taken: work that rots must not
/// make a queue look empty.
async fn take_now(
    shared: &Shared,
    mesh: &MeshState,
    order: &Order,
) -> Result<Vec<QueueItem>, Problem> {
    for _ in 0..PASSED_OVER_MAX {
        let taken = take_once(shared, mesh, order).await?;
        let was_empty = taken.is_empty();
        let items: Vec<QueueItem> = taken.into_iter().flatten().collect();
        if was_empty || !items.is_empty() {
            return Ok(items);
        }
    }
    Ok(Vec::new())
}

/// In the order in which they were taken; `None` for what cannot be given out.
async fn take_once(
    shared: &Shared,
    mesh: &MeshState,
    order: &Order,
) -> Result<Vec<Option<QueueItem>>, Problem> {
    let ask = Ask::QueueTake {
        queue: order.queue.clone(),
        agent: order.agent.clone(),
        max: order.max,
        lease_ms: order.lease_ms,
        wake: !order.wait.is_zero(),
    };
    let answer = match mesh.ask(ask.clone()).await {
        // A mailbox that another caller is registering right now: this take overtook it.
        Err(problem) if problem.known_code() == Some(ErrorCode::UnknownAgent) => {
            let agent = order.agent.clone();
            mesh.ask(Ask::RegisterAgent { agent }).await?;
            mesh.ask(ask).await
        }
        answer => answer,
    };
    match answer {
        Ok(ReplyResult::Taken { items }) => {
            let ids: Vec<TakenId> = items.iter().map(taken_id).collect();
            let items = items.into_iter();
            let items: Vec<_> = items.map(|one| item(shared, mesh, order, one)).collect();
            // What is not given out was not taken.
            let given = ids.into_iter().zip(&items);
            let given = given.filter_map(|(id, item)| item.is_some().then_some(id));
            note_taken(&shared.store, mesh, order, given.collect()).await;
            Ok(items)
        }
        Ok(_) => Err(another_question()),
        Err(problem) => Err(or_next(problem, TAKE_AGAIN)),
    }
}

/// Of whom it is, under which id, and where it stands.
type TakenId = (Party, ClientMessageId, HistoryId);

fn taken_id(one: &TakenItem) -> TakenId {
    let delivery = &one.delivery;
    let id = delivery.client_message_id.clone();
    (delivery.from.party.clone(), id, delivery.history_id)
}

/// Whoever took work may answer it: its ids are known here from now on. Failing that, an answer is taken for
/// one to nothing, and sent all the same.
async fn note_taken(store: &Store, mesh: &MeshState, order: &Order, ids: Vec<TakenId>) {
    if ids.is_empty() {
        return;
    }
    let noted = store.inbox_note_taken(mesh.mesh.mesh, order.agent.clone(), ids);
    if let Err(error) = noted.await {
        tracing::warn!(%error, "the ids of work that was taken are not kept");
    }
}

/// A message that cannot be read, or is not what was pushed, is counted and left out (IN-06); its lease ends by itself.
fn item(shared: &Shared, mesh: &MeshState, order: &Order, taken: TakenItem) -> Option<QueueItem> {
    let delivery = taken.delivery;
    let envelope = match Envelope::parse(delivery.envelope.get().as_bytes()) {
        Ok(envelope) => Some(envelope),
        // What was accepted was one: the bytes have changed since.
        Err(_) if delivery.wire_fingerprint.is_some() => None,
        Err(error) => {
            metrics::counter!("heddle_inbox_malformed_total").increment(1);
            tracing::warn!(history_id = %delivery.history_id, %error, "work of a queue was refused");
            return None;
        }
    };
    let Some(envelope) = envelope.filter(|one| damage::is_as_accepted(&delivery, one)) else {
        damage::count(delivery.history_id, &delivery.client_message_id);
        let (mesh, queue) = (&mesh.mesh.name, &order.queue);
        let place = format!("mesh {mesh}, queue {queue}, place {}", delivery.history_id);
        shared.damage.note_work(place);
        return None;
    };
    Some(QueueItem {
        id: delivery.history_id.to_string(),
        client_message_id: delivery.client_message_id.to_string(),
        broker_message_id: delivery.broker_message_id.to_string(),
        history_id: delivery.history_id.to_string(),
        mesh: mesh.mesh.name.to_string(),
        queue: order.queue.to_string(),
        agent: order.agent.to_string(),
        from: {
            let Sender { member_name, party } = &delivery.from;
            let called = mesh.with_known(|known| known.called(party.member, member_name));
            format!("@{called}/{}", party.agent)
        },
        body: envelope.body,
        priority: envelope.priority.as_str().to_owned(),
        meta: envelope.meta.unwrap_or(Value::Null),
        reply_to_id: (!envelope.reply_to.is_empty()).then_some(envelope.reply_to),
        fence: taken.fence,
        lease_seconds: taken.lease_ms / 1000,
        delivery_count: taken.delivery_count,
    })
}

pub(super) async fn ack(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    settle(&ipc, request, |queue, agent, items| Ask::QueueAck {
        queue,
        agent,
        items,
    })
    .await
}

pub(super) async fn release(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    settle(&ipc, request, |queue, agent, items| Ask::QueueRelease {
        queue,
        agent,
        items,
    })
    .await
}

async fn settle(
    ipc: &Ipc,
    request: Request,
    ask: impl FnOnce(QueueName, AgentName, Vec<LeasedItem>) -> Ask,
) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: QueueSettleBody = body::read(&parts, incoming).await?;
    let mesh = ipc.shared.mesh(body.mesh.as_deref())?;
    let queue = from_wire::queue_name(&body.queue)?;
    let agent = agent(ipc, body.agent.as_deref())?;
    let items = all_leased(&body.items)?;
    verdicts(mesh, ask(queue, agent, items.clone()), &items).await
}

pub(super) async fn renew(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: QueueRenewBody = body::read(&parts, incoming).await?;
    let mesh = ipc.shared.mesh(body.mesh.as_deref())?;
    let items = all_leased(&body.items)?;
    let lease_seconds = body.lease_seconds.unwrap_or(QUEUE_LEASE_DEFAULT.as_secs());
    let lease_range = 1..=QUEUE_LEASE_MS_MAX / 1000;
    let ask = Ask::QueueRenew {
        queue: from_wire::queue_name(&body.queue)?,
        agent: agent(&ipc, body.agent.as_deref())?,
        items: items.clone(),
        lease_ms: within("lease_seconds", lease_seconds, lease_range)? * 1000,
    };
    verdicts(mesh, ask, &items).await
}

fn all_leased(items: &[LeasedBody]) -> Result<Vec<LeasedItem>, Problem> {
    let range = 1..=QUEUE_ITEMS_MAX as u64;
    within("the number of items", items.len() as u64, range)?;
    items.iter().map(leased).collect()
}

async fn verdicts(mesh: &MeshState, ask: Ask, items: &[LeasedItem]) -> Answered {
    let answer = mesh.ask(ask).await;
    let answer = answer.map_err(|problem| or_next(problem, SETTLE_AGAIN))?;
    let ReplyResult::QueueVerdicts { items: verdicts } = answer else {
        return Err(another_question().into());
    };
    // Verdicts are matched by place: with another number of them, none can be trusted.
    if verdicts.len() != items.len() {
        return Err(another_question().into());
    }
    let settled = items
        .iter()
        .zip(verdicts)
        .map(|(item, verdict)| SettledItem {
            id: item.history_id.to_string(),
            verdict,
        });
    ok(&SettledItems {
        duplicate: false,
        items: settled.collect(),
    })
}

fn leased(item: &LeasedBody) -> Result<LeasedItem, Problem> {
    let history_id: HistoryId = item.id.parse().map_err(|error| {
        from_wire::invalid(format!("{error}"))
            .next("Use the id that the take gave; nothing was settled.")
    })?;
    Ok(LeasedItem {
        history_id,
        fence: item.fence,
    })
}

fn another_question() -> Problem {
    Problem::new(ErrorCode::Internal, "the broker answered another question")
}

/// A better next step for a link that is down.
fn or_next(problem: Problem, next: &str) -> Problem {
    if problem.known_code() == Some(ErrorCode::NotConnected) {
        problem.next(next)
    } else {
        problem
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    mesh: Option<String>,
}

pub(super) async fn list(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: ListQuery = body::query(&request.into_parts().0)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    // Figures cannot be remembered: without the broker there are none (C29).
    let counts = match mesh.ask(Ask::QueueCounts).await {
        Ok(ReplyResult::QueueCounts { queues }) => queues,
        _ => Vec::new(),
    };
    let queues = mesh.with_known(|known| {
        let view = |queue: &heddle_wire::broker::RosterQueue| {
            let count = counts.iter().find(|count| count.queue == queue.queue);
            QueueView {
                queue: queue.queue.to_string(),
                mesh: mesh.mesh.name.to_string(),
                ready: count.map(|count| count.ready),
                leased: count.map(|count| count.leased),
            }
        };
        known.roster.queues.iter().map(view).collect()
    });
    ok(&QueueList {
        queues,
        stale: !mesh.is_answering(),
        as_of: mesh.as_of(),
    })
}
