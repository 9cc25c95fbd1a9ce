//! Sending ops in outbox order, one batch at a time: the next one goes when the last was answered. Where the broker has
//! all of that one, it goes while the answers are written.

use std::time::Duration;

use heddle_core::backoff::backoff;
use heddle_core::clock::WallMs;
use heddle_core::ids::ClientMessageId;
use heddle_core::limits::{BATCH_BYTES_MAX, BATCH_ITEMS_MAX};
use heddle_core::names::AgentName;
use heddle_core::sync::{OpMove, WaitFor, op_move};
use heddle_store::{DueOp, OpSettle, StoreError};
use heddle_wire::broker::SendItem;
use serde_json::value::RawValue;

use super::{Exchange, known};
use crate::link::Live;
use crate::mesh::MeshState;
use crate::outbox::drain::{answer_about, silence};
use crate::shared::Shared;

/// Batches of one tick, and how long it begins another one; behind them the log is read again. What was made offline
/// reaches the others before we read back that it has.
const BATCHES_MAX: usize = 64;
const TICK_MAX: Duration = Duration::from_secs(1);

pub(super) async fn run(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
) -> Result<Exchange, StoreError> {
    let id = mesh.mesh.mesh;
    let mut something = false;
    let until = shared.clock.mono() + TICK_MAX;
    let mut ahead = None;
    for number in 1..=BATCHES_MAX {
        let sent = match ahead.take() {
            Some(sent) => sent,
            None if something && shared.clock.mono() >= until => break,
            None => {
                let ops = due_behind(shared, mesh, 0).await?;
                if ops.is_empty() {
                    return Ok(Exchange::Done(something));
                }
                send_batch(shared, mesh, live, ops).await?
            }
        };
        let goes_on = sent.is_well() && number < BATCHES_MAX && shared.clock.mono() < until;
        let Sent { moves, next, .. } = sent;
        let waits = moves.iter().find_map(|settle| match &settle.next {
            OpMove::Wait { error, why } => Some((error.clone(), *why)),
            _ => None,
        });
        something |= moves
            .iter()
            .any(|settle| matches!(settle.next, OpMove::Done { .. }));
        count(&moves);
        let settling = shared.store.settle_ops(id, moves);
        let paused = if goes_on && !next.is_empty() {
            // It is on its way while this one is settled. IMPORTANT: sent first, for whoever settles may commit on this
            // very task; and none of this batch is in it, so nothing is sent twice at once (DR-01).
            let (sent, settled) = tokio::join!(send_batch(shared, mesh, live, next), settling);
            ahead = Some(sent?);
            settled?
        } else {
            settling.await?
        };
        if paused {
            tracing::error!(
                mesh = %mesh.mesh.name,
                "an op was refused too often; the sync of the mesh is paused. `heddle doctor` says more"
            );
            metrics::counter!("heddle_sync_pauses_total").increment(1);
        }
        match waits {
            None => {}
            // What the broker has lost goes before what is new.
            Some((_, WaitFor::Epoch)) => return Ok(Exchange::More),
            Some((error, WaitFor::Network | WaitFor::Broker)) => {
                return Ok(Exchange::Later(error));
            }
        }
    }
    Ok(Exchange::More)
}

/// The next batch behind an arrival.
async fn due_behind(
    shared: &Shared,
    mesh: &MeshState,
    after: i64,
) -> Result<Vec<DueOp>, StoreError> {
    let (id, now) = (mesh.mesh.mesh, shared.clock.mono());
    let due = shared
        .store
        .due_ops_behind(id, after, now, BATCH_ITEMS_MAX, BATCH_BYTES_MAX);
    due.await
}

/// Sends a batch, and looks meanwhile what comes after it.
async fn send_batch(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
    ops: Vec<DueOp>,
) -> Result<Sent, StoreError> {
    let id = mesh.mesh.mesh;
    let through = ops.last().map_or(0, |op| op.arrival);
    let head = shared.store.sync_head(id).await?;
    let sending = send((shared, mesh), live, ops, head.broker_epoch);
    let ((moves, epoch), next) = tokio::join!(sending, due_behind(shared, mesh, through));
    let news = epoch.filter(|epoch| *epoch != head.broker_epoch);
    if let Some(epoch) = news {
        shared.store.hear_epoch(id, epoch).await?;
    }
    Ok(Sent {
        moves,
        next: next?,
        is_same_epoch: news.is_none(),
    })
}

/// A batch that was answered, or was not.
struct Sent {
    moves: Vec<OpSettle>,
    /// The batch behind it, as it was while this one was on its way.
    next: Vec<DueOp>,
    is_same_epoch: bool,
}

impl Sent {
    /// The broker has all of it, where it was said to be: then the next batch need not wait for anything.
    fn is_well(&self) -> bool {
        let is_done = |settle: &OpSettle| matches!(settle.next, OpMove::Done { .. });
        self.is_same_epoch && self.moves.iter().all(is_done)
    }
}

/// What became of each, and the epoch that the answer carried.
async fn send(
    (shared, mesh): (&Shared, &MeshState),
    live: &Live,
    ops: Vec<DueOp>,
    epoch: u64,
) -> (Vec<OpSettle>, Option<u64>) {
    // Before the first answer no epoch is known; the broker's word is heard with it.
    let begun = shared.clock.wall();
    let tag = Some(epoch).filter(|epoch| *epoch > 0);
    let (mut items, mut sent, mut moves) = (Vec::new(), Vec::new(), Vec::new());
    for mut op in ops {
        let payload = std::mem::take(&mut op.payload);
        match item(&op.agent, &op.client_message_id, payload, tag) {
            Some(item) => {
                items.push(item);
                sent.push(op);
            }
            // Our own frozen bytes: the row was damaged after its commit. Counted as the op's own fault.
            None => moves.push(settle(
                shared,
                &op,
                begun,
                OpMove::Refused {
                    error: "damaged: the stored op cannot be read".to_owned(),
                },
            )),
        }
    }
    if items.is_empty() {
        return (moves, None);
    }
    let (answers, epoch) = match known::send(shared, mesh, live, items).await {
        Some((verdicts, epoch)) if verdicts.len() == sent.len() => {
            let about = |(verdict, op): (_, &DueOp)| answer_about(verdict, &op.client_message_id);
            (verdicts.into_iter().zip(&sent).map(about).collect(), epoch)
        }
        Some((_, epoch)) => {
            let all = vec![silence("the broker answered another number of items"); sent.len()];
            (all, epoch)
        }
        None => (vec![silence("no answer from the broker"); sent.len()], None),
    };
    for (op, answer) in sent.iter().zip(answers) {
        moves.push(settle(shared, op, begun, op_move(answer)));
    }
    (moves, epoch)
}

pub(super) fn item(
    agent: &AgentName,
    id: &ClientMessageId,
    payload: Vec<u8>,
    epoch: Option<u64>,
) -> Option<SendItem> {
    let text = String::from_utf8(payload).ok()?;
    Some(SendItem {
        agent: agent.clone(),
        client_message_id: id.clone(),
        epoch: Some(epoch.unwrap_or(0)).filter(|epoch| *epoch > 0),
        envelope: RawValue::from_string(text).ok()?,
    })
}

fn settle(shared: &Shared, op: &DueOp, begun: WallMs, next: OpMove) -> OpSettle {
    if let OpMove::Refused { error } = &next {
        tracing::warn!(id = %op.client_message_id, %error, "an op was refused");
    }
    let wait: Duration = backoff(op.attempts, shared.ids.below(u64::MAX));
    OpSettle {
        arrival: op.arrival,
        row: op.row,
        attempts: op.attempts,
        next,
        begun,
        at: shared.clock.wall(),
        due: shared.clock.mono() + wait,
    }
}

fn count(moves: &[OpSettle]) {
    for settle in moves {
        let outcome = match &settle.next {
            OpMove::Done { .. } => "done",
            OpMove::Refused { .. } => "refused",
            OpMove::Wait { .. } => "wait",
        };
        metrics::counter!("heddle_sync_sent_total", "outcome" => outcome).increment(1);
    }
}
