//! Max age: rows that have truly waited too long end, after a last look at the broker (C32, DR-10).
//!
//! What "truly" means is decided in `core::age`. A row that is over age goes through `inflight`, because
//! the look is a transmission: the broker has it → `done`; the broker does not → `dead`; the broker cannot
//! be reached → `dead`, with an outcome that says so.

use std::sync::Arc;

use futures_util::future::join_all;
use heddle_core::age::{AGE_TICK, AgeClock, LastLook, Now, death_by_age, over_age};
use heddle_core::drain::{RowMove, Waits};
use heddle_core::ids::RowId;
use heddle_store::{Settle, StoreError};

use super::drain::{settle, settle_until_done};
use super::requeue::{find_row, look};
use crate::mesh::MeshState;
use crate::shared::Shared;

/// Rows that are taken, asked for and settled together.
const ROWS_AT_ONCE: usize = 64;
/// Ticks between two clearings of marks that nobody needs.
const FORGET_TICKS: u32 = 60;

/// Keeps the age clock, and looks for rows that are over age, until the daemon stops.
pub(crate) async fn run(shared: Arc<Shared>, mut clock: AgeClock) {
    let mut ticks = 0_u32;
    loop {
        tokio::select! {
            () = tokio::time::sleep(AGE_TICK) => {}
            () = shared.shutdown.cancelled() => {
                // What passed since the last tick would be lost otherwise.
                mark(&shared, &mut clock).await;
                return;
            }
        }
        tick(&shared, &mut clock).await;
        ticks = ticks.wrapping_add(1);
        if ticks.is_multiple_of(FORGET_TICKS)
            && let Err(error) = shared.store.forget_births().await
        {
            tracing::warn!(%error, "old age marks could not be cleared");
        }
    }
}

/// Goes on where the last process ended.
pub(crate) async fn resume(shared: &Shared) -> Result<AgeClock, StoreError> {
    let last = shared.store.age_mark().await?;
    let clock = AgeClock::resume(last, Now::on(shared.clock.as_ref()));
    shared.store.mark_age(clock.mark()).await?;
    Ok(clock)
}

/// One tick: the clock advances, and what is over age ends.
pub(crate) async fn tick(shared: &Shared, clock: &mut AgeClock) {
    mark(shared, clock).await;
    // Side by side: a broker that is slow to answer holds up the rows of its own mesh only.
    let looks = shared.meshes.iter().map(|mesh| async {
        if let Err(error) = end_over_age(shared, mesh, clock).await {
            tracing::warn!(%error, mesh = %mesh.mesh.name, "ages could not be looked at");
        }
    });
    join_all(looks).await;
}

async fn mark(shared: &Shared, clock: &mut AgeClock) {
    let mark = clock.tick(Now::on(shared.clock.as_ref()));
    if let Err(error) = shared.store.mark_age(mark).await {
        // Rows look younger for it, and are kept longer.
        tracing::warn!(%error, "the age clock could not be written down");
    }
}

async fn end_over_age(
    shared: &Shared,
    mesh: &MeshState,
    clock: &AgeClock,
) -> Result<(), StoreError> {
    // Never agreed with any broker: nothing can be too old for it.
    let Some(hours) = mesh.max_age_hours() else {
        return Ok(());
    };
    let Some(born) = over_age(clock.age(), hours) else {
        return Ok(());
    };
    loop {
        let found = shared.store.over_age(mesh.mesh.mesh, born, ROWS_AT_ONCE);
        let rows = found.await?;
        let mut moves = Vec::new();
        for row in rows {
            moves.extend(end_of(shared, mesh, row, hours).await?);
        }
        let is_end = moves.is_empty() || moves.iter().any(is_retry);
        settle_until_done(shared, moves).await;
        if is_end {
            return Ok(());
        }
    }
}

/// A row that waits again would be found again at once.
fn is_retry(settle: &Settle) -> bool {
    matches!(settle.next, RowMove::Retry { .. })
}

/// The end of one row; `None` when it is not pending any more.
async fn end_of(
    shared: &Shared,
    mesh: &MeshState,
    row: RowId,
    hours: u32,
) -> Result<Option<Settle>, StoreError> {
    let Some(taken) = shared.store.take_one(row).await? else {
        return Ok(None);
    };
    let begun = shared.clock.wall();
    let next = match last_look(shared, mesh, row).await {
        Ok(Some(done)) => done,
        Ok(None) => dead(LastLook::Absent, hours),
        Err(_) if !mesh.is_connected() => dead(LastLook::Unreachable, hours),
        // It is there but does not say. The next tick asks again.
        Err(why) => RowMove::Retry {
            error: format!("last_look: {why}"),
            waits: Waits::Row,
        },
    };
    Ok(Some(settle(shared, &taken, begun, next)))
}

async fn last_look(
    shared: &Shared,
    mesh: &MeshState,
    row: RowId,
) -> Result<Option<RowMove>, String> {
    if !mesh.is_connected() {
        return Err("not connected".to_owned());
    }
    let row = find_row(shared, row).await.map_err(|p| p.detail)?;
    look(mesh, &row).await.map_err(|p| p.detail)
}

fn dead(look: LastLook, hours: u32) -> RowMove {
    metrics::counter!("heddle_outbox_dead_by_age_total").increment(1);
    RowMove::Dead {
        reason: death_by_age(look, hours).unwrap_or_default(),
    }
}
