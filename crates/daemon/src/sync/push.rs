//! Sending ops in outbox order, one batch at a time: the next one goes when the last was answered.

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
    for _ in 0..BATCHES_MAX {
        let now = shared.clock.mono();
        if something && now >= until {
            break;
        }
        let ops = shared
            .store
            .due_ops(id, now, BATCH_ITEMS_MAX, BATCH_BYTES_MAX)
            .await?;
        if ops.is_empty() {
            return Ok(Exchange::Done(something));
        }
        let head = shared.store.sync_head(id).await?;
        let Sent { moves, epoch } = send((shared, mesh), live, ops, head.broker_epoch).await;
        if let Some(epoch) = epoch.filter(|epoch| *epoch != head.broker_epoch) {
            shared.store.hear_epoch(id, epoch).await?;
        }
        let waits = moves.iter().find_map(|settle| match &settle.next {
            OpMove::Wait { error, why } => Some((error.clone(), *why)),
            _ => None,
        });
        something |= moves
            .iter()
            .any(|settle| matches!(settle.next, OpMove::Done { .. }));
        count(&moves);
        if shared.store.settle_ops(id, moves).await? {
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

struct Sent {
    moves: Vec<OpSettle>,
    /// The epoch that the answer carried.
    epoch: Option<u64>,
}

async fn send(
    (shared, mesh): (&Shared, &MeshState),
    live: &Live,
    ops: Vec<DueOp>,
    epoch: u64,
) -> Sent {
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
        return Sent { moves, epoch: None };
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
    Sent { moves, epoch }
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
