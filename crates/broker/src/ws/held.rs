//! What a member acknowledged, given once more to a home that lost it.

use heddle_core::clock::WallMs;
use heddle_core::envelope::Priority;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::limits::{BATCH_BYTES_MAX, BATCH_ITEMS_MAX};
use heddle_wire::broker::{HeldCursor, HeldItem, ReplyResult};

use super::Shared;
use super::pump::{fingerprints, pushed};
use crate::limiter::Limiter;
use crate::principal::Principal;
use crate::storage::{DeliveryPlace, Held, PageLimit, Storage, StorageError};

/// A connection asks for its own member only.
pub(super) async fn page<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    after: HeldCursor,
    limit: u32,
) -> Result<ReplyResult, StorageError> {
    let rows_max = usize::try_from(limit).unwrap_or(BATCH_ITEMS_MAX);
    let limit = PageLimit {
        rows_max: rows_max.clamp(1, BATCH_ITEMS_MAX),
        bytes_max: BATCH_BYTES_MAX,
    };
    let all = Priority::ALL.into_iter();
    // A number that no priority has is behind all of them.
    let Some(priority) = all.into_iter().find(|p| p.rank() == after.priority) else {
        return Ok(ReplyResult::Held {
            items: Vec::new(),
            gone: 0,
            next: None,
        });
    };
    let place = DeliveryPlace {
        history_id: after.history_id,
        agent: after.agent,
    };
    let storage = shared.storage();
    let page = storage.deliveries_held(principal.mesh, principal.member, (priority, place), limit);
    let page = page.await?;
    let mut gone = page.gone;
    let mut items = Vec::with_capacity(page.items.len());
    let deliveries = page.items.iter().map(|held| &held.delivery);
    let prints = fingerprints(storage, principal.mesh, deliveries).await;
    for (held, print) in page.items.into_iter().zip(prints) {
        match item(held, print) {
            Some(item) => items.push(item),
            None => gone += 1,
        }
    }
    Ok(ReplyResult::Held {
        items,
        gone,
        next: page.next.map(|(priority, place)| HeldCursor {
            priority: priority.rank(),
            history_id: place.history_id,
            agent: place.agent,
        }),
    })
}

fn item(Held { delivery, levels }: Held, print: Option<Fingerprint>) -> Option<HeldItem> {
    let place = delivery.history_id;
    let time = |at: Option<WallMs>| at.map(|at| at.0);
    match pushed(delivery, print) {
        Ok(delivery) => Some(HeldItem {
            delivered_at: time(levels.delivered_at).unwrap_or(delivery.accepted_at),
            shown_at: time(levels.shown_at),
            acked_at: time(levels.acked_at),
            delivery,
        }),
        Err(error) => {
            tracing::error!(%error, %place, "a stored envelope is not JSON");
            None
        }
    }
}
