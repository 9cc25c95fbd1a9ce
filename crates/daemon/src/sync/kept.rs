//! What this home has and the log has lost, beyond the ops that its outbox still holds.
//!
//! A broker that was put back together with its home, or behind one: then nobody's outbox has every op. Own rows
//! are sent again under derived ids. Rows of others stay where they are and are counted: a stamp in somebody
//! else's name is believed by nobody, so only the homes that made them can send them, once they were given back.

use std::time::Duration;

use heddle_core::ids::MeshId;
use heddle_store::{KeptBy, KeptCursor, LostPlaces, StoreError};
use heddle_wire::broker::{ReplyResult, Request};

use super::{Exchange, Kept};
use crate::link::Live;
use crate::mesh::MeshState;
use crate::shared::Shared;

/// Between two counts while others send theirs again.
const RECOUNT: Duration = Duration::from_secs(2);

/// What the loop remembers of it.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// The epoch for which it was asked what is lost.
    epoch: u64,
    /// Something came through the log since it was counted.
    pub(super) heard: bool,
    counted_at: Option<Duration>,
}

pub(super) async fn run(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
    look: &mut Look,
) -> Result<Exchange, StoreError> {
    let id = mesh.mesh.mesh;
    let head = shared.store.sync_head(id).await?;
    // The first epoch has lost nothing.
    if look.epoch != head.broker_epoch && head.broker_epoch > 1 {
        // A broker that names no epochs was refused before; this is silence.
        let asked = live.request(Request::Epochs).await;
        let Some(ReplyResult::Epochs { epoch, ends, holes }) = asked else {
            return Ok(Exchange::Later("no answer from the broker".to_owned()));
        };
        let lost = shared.store.lost_places(id, epoch, ends, holes).await?;
        if !lost.is_empty() {
            send_own(shared, mesh, &lost).await?;
        }
        let of_others = 0;
        mesh.sync.set_kept(Kept { lost, of_others });
        look.epoch = head.broker_epoch;
        look.counted_at = None;
    }
    let lost = mesh.sync.kept().lost;
    if lost.is_empty() {
        return Ok(Exchange::Done(false));
    }
    let now = shared.clock.mono();
    let is_due = match look.counted_at {
        None => true,
        Some(at) => look.heard && now.saturating_sub(at) >= RECOUNT,
    };
    if is_due {
        let of_others = count(shared, id, KeptBy::Others(mesh.mesh.member), &lost).await?;
        if of_others > 0 && look.counted_at.is_none() {
            tracing::warn!(count = of_others, mesh = %mesh.mesh.name, "the log has lost changes of others that this home has");
        }
        mesh.sync.set_kept(Kept { lost, of_others });
        look.counted_at = Some(now);
        look.heard = false;
    }
    Ok(Exchange::Done(false))
}

async fn send_own(shared: &Shared, mesh: &MeshState, lost: &LostPlaces) -> Result<(), StoreError> {
    let (id, own) = (mesh.mesh.mesh, mesh.mesh.member);
    let mut after = Some(KeptCursor::default());
    let mut queued = 0;
    while let Some(cursor) = after {
        let by = KeptBy::This(own);
        let found = shared.store.kept_ops(id, by, lost.clone(), cursor).await?;
        if !found.ops.is_empty() {
            let now = shared.clock.wall();
            let taken = shared
                .store
                .take_back(id, own, lost.clone(), found.ops, now)
                .await?;
            queued += taken.queued;
        }
        after = found.next;
    }
    if queued > 0 {
        tracing::warn!(count = queued, mesh = %mesh.mesh.name, "the broker had lost changes of this home whose ops are gone; they are sent again");
        metrics::counter!("heddle_sync_replayed_total").increment(queued);
    }
    Ok(())
}

async fn count(
    shared: &Shared,
    mesh: MeshId,
    by: KeptBy,
    lost: &LostPlaces,
) -> Result<u64, StoreError> {
    let mut after = Some(KeptCursor::default());
    let mut count = 0_u64;
    while let Some(cursor) = after {
        let found = shared
            .store
            .kept_ops(mesh, by, lost.clone(), cursor)
            .await?;
        count = count.saturating_add(u64::try_from(found.ops.len()).unwrap_or(u64::MAX));
        after = found.next;
    }
    Ok(count)
}
