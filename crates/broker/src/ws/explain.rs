//! Receipts in, explanations out.

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
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
    let Some(explanation) = storage.explain(mesh, id.clone()).await? else {
        return Ok(ReplyResult::Absent);
    };
    let body = body(storage, mesh, (&id, &explanation.consumed)).await?;
    let now = shared.lease.now();
    let explained = explained(explanation, now, body);
    Ok(ReplyResult::Explained(Box::new(explained)))
}

/// How the body of a message that was accepted lies here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    /// Whole, or pruned.
    Well,
    /// Other bytes, or another sender.
    Damaged,
    Gone,
}

/// A question for its sender, and rarely asked: it may cost a pass over the bytes.
async fn body<S: Storage>(
    storage: &S,
    mesh: MeshId,
    (id, consumed): (&SendId, &Consumed),
) -> Result<Body, StorageError> {
    if !consumed.history_available {
        return Ok(Body::Well);
    }
    let before = consumed.history_id.before();
    let rows = storage.history_after(mesh, before, 1).await?;
    let its_own = rows.into_iter().find(|row| {
        row.history_id == consumed.history_id && row.broker_message_id == consumed.broker_message_id
    });
    let Some(envelope) = its_own.as_ref().and_then(|row| row.envelope.as_ref()) else {
        return Ok(Body::Gone);
    };
    let named = its_own.as_ref().and_then(|row| row.id.as_ref());
    let is_from_it =
        named.is_some_and(|(sender, named)| (sender, named) == (&id.sender, &id.client_message_id));
    let is_whole = is_from_it && is_as_accepted(envelope, Some(consumed.wire_fingerprint));
    Ok(if is_whole { Body::Well } else { Body::Damaged })
}

fn explained(explanation: Explanation, now: LeaseMs, body: Body) -> Explained {
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
        damaged: body == Body::Damaged,
        gone: body == Body::Gone,
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
