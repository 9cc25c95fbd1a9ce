//! Receipts in, explanations out.

use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, MeshId};
use heddle_core::limits::DELIVERIES_EXPLAINED_MAX;
use heddle_core::work::WorkState;
use heddle_wire::broker::{
    DeliveryReceipt, Explained, LimiterRecord, QueueState, QueueStatus, ReceiptItem,
    ReceiptLevel as Level, ReplyResult, Sender,
};

use super::Shared;
use super::pump::is_as_accepted;
use crate::limiter::Limiter;
use crate::principal::Principal;
use crate::storage::{
    Consumed, Explanation, LeaseMs, Receipt, ReceiptLevel, Recipient, SendId, Storage,
    StorageError, WorkStory,
};

/// True if one of them changed something.
pub(super) async fn receipts<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    items: Vec<ReceiptItem>,
) -> Result<bool, StorageError> {
    // A receipt is of the past. What a home's clock says beyond that is taken for now.
    let now = shared.accept.clock.wall();
    let items = items.into_iter().map(|item| Receipt {
        history_id: item.history_id,
        agent: item.agent,
        level: match item.level {
            Level::Shown => ReceiptLevel::Shown,
            Level::Acked => ReceiptLevel::Acked,
        },
        at: Some(WallMs(item.at))
            .filter(|at| (WallMs(1)..=now).contains(at))
            .unwrap_or(now),
    });
    let (mesh, member) = (principal.mesh, principal.member);
    let storage = shared.storage();
    Ok(storage.receipts(mesh, member, items.collect()).await? > 0)
}

pub(super) async fn explain<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    mesh: MeshId,
    id: SendId,
) -> Result<ReplyResult, StorageError> {
    let storage = shared.storage();
    let Some(explanation) = storage.explain(mesh, id).await? else {
        return Ok(ReplyResult::Absent);
    };
    let damaged = is_damaged(storage, mesh, &explanation.consumed).await?;
    let now = shared.lease.now();
    let explained = explained(explanation, now, damaged);
    Ok(ReplyResult::Explained(Box::new(explained)))
}

/// Whether the body that lies here is not the one that was accepted. A question for its sender, and rarely asked: it
/// may cost a pass over the bytes.
async fn is_damaged<S: Storage>(
    storage: &S,
    mesh: MeshId,
    consumed: &Consumed,
) -> Result<bool, StorageError> {
    let HistoryId { epoch, seq } = consumed.history_id;
    let before = HistoryId {
        epoch,
        seq: seq.saturating_sub(1),
    };
    let rows = storage.history_after(mesh, before, 1).await?;
    let its_own = rows.into_iter().find(|row| {
        row.history_id == consumed.history_id
            && row.broker_message_id == consumed.broker_message_id
            && !row.is_expired
    });
    let envelope = its_own.and_then(|row| row.envelope);
    Ok(
        envelope
            .is_some_and(|envelope| !is_as_accepted(&envelope, Some(consumed.wire_fingerprint))),
    )
}

fn explained(explanation: Explanation, now: LeaseMs, damaged: bool) -> Explained {
    let consumed = explanation.consumed;
    let mut deliveries: Vec<DeliveryReceipt> =
        explanation.recipients.into_iter().map(receipt).collect();
    let left_off = deliveries.len().saturating_sub(DELIVERIES_EXPLAINED_MAX);
    deliveries.truncate(DELIVERIES_EXPLAINED_MAX);
    Explained {
        broker_message_id: consumed.broker_message_id,
        history_id: consumed.history_id,
        wire_fingerprint: consumed.wire_fingerprint.to_hex(),
        first_seen_at: consumed.first_seen_at.0,
        expires_at: explanation.expires_at.map(|at| at.0),
        history_available: consumed.history_available,
        destination_kind: explanation.destination_kind,
        destination_ref: explanation.destination_ref,
        limiter: explanation.limiter.map(|note| LimiterRecord {
            window: note.window,
            counted: note.counted,
        }),
        deliveries,
        deliveries_left_off: u64::try_from(left_off).unwrap_or(u64::MAX),
        queue: explanation.work.map(|work| queue_state(work, now)),
        damaged,
    }
}

fn receipt(recipient: Recipient) -> DeliveryReceipt {
    let levels = recipient.levels.in_order();
    DeliveryReceipt {
        recipient: Sender {
            party: recipient.party,
            member_name: recipient.member_name,
        },
        delivered_at: levels.delivered_at.map(|at| at.0),
        shown_at: levels.shown_at.map(|at| at.0),
        acked_at: levels.acked_at.map(|at| at.0),
    }
}

fn queue_state(work: WorkStory, now: LeaseMs) -> QueueState {
    let left = work
        .leased_until
        .map(|until| until.0.saturating_sub(now.0))
        // Nobody has what is held back.
        .filter(|left| *left > 0 && work.holder.is_some());
    QueueState {
        status: match work.state {
            WorkState::Acked => QueueStatus::Acked,
            // A lease that ran out holds nothing any more.
            WorkState::Leased if left.is_some() => QueueStatus::Leased,
            WorkState::Leased | WorkState::Waiting => QueueStatus::Waiting,
        },
        fence: work.fence,
        delivery_count: work.delivery_count,
        holder: work
            .holder
            .map(|(party, member_name)| Sender { party, member_name }),
        lease_left_ms: left,
        taken_at: work.taken_at.map(|at| at.0),
        acked_at: work.acked_at.map(|at| at.0),
    }
}
