//! Max age: rows that have truly waited too long end, after a last look at the broker (C32, DR-10).
//!
//! What "truly" means is decided in `core::age`. A row that is over age goes through `inflight`, because
//! the look is a transmission: the broker has it → `done`; the broker does not → `dead`; the broker cannot
//! be reached, or may have forgotten it → `dead`, with an outcome that says so. The drain asks before it sends
//! (`over_age_by`): a row that is over age is never sent again, also not in the moments between two ticks.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use heddle_core::age::{
    AGE_TICK, AgeClock, AgeMark, LastLook, Now, absent, death_by_age, is_outcome_unknown, over_age,
};
use heddle_core::clock::WallMs;
use heddle_core::drain::{RowMove, Waits};
use heddle_store::{DueRow, OutboxRow, Settle, StoreError};

use super::drain::{settle, settle_until_done};
use super::requeue::look_for;
use crate::mesh::MeshState;
use crate::shared::{Shared, lock};

/// Rows that are taken, asked for and settled together.
const ROWS_AT_ONCE: usize = 64;
/// Ticks between two clearings of marks that nobody needs.
const FORGET_TICKS: u32 = 60;

/// Keeps the age clock, and looks for rows that are over age, until the daemon stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut ticks = 0_u32;
    loop {
        tokio::select! {
            () = tokio::time::sleep(AGE_TICK) => {}
            () = shared.shutdown.cancelled() => {
                // What passed since the last tick would be lost otherwise.
                mark(&shared).await;
                return;
            }
        }
        tick(&shared).await;
        ticks = ticks.wrapping_add(1);
        if ticks.is_multiple_of(FORGET_TICKS)
            && let Err(error) = shared.store.forget_births().await
        {
            tracing::warn!(%error, "old age marks could not be cleared");
        }
    }
}

/// Goes on where the last process ended.
pub(crate) async fn resume(shared: &Shared) -> Result<(), StoreError> {
    let last = shared.store.age_mark().await?;
    let clock = AgeClock::resume(last, Now::on(shared.clock.as_ref()));
    *lock(&shared.age) = Some(clock);
    shared.store.mark_age(clock.mark()).await
}

/// One tick: the clock advances, and what is over age ends.
pub(crate) async fn tick(shared: &Shared) {
    mark(shared).await;
    // Side by side: a broker that is slow to answer holds up the rows of its own mesh only.
    let looks = shared.meshes.iter().map(|mesh| async {
        if let Err(error) = end_over_age(shared, mesh).await {
            tracing::warn!(%error, mesh = %mesh.mesh.name, "ages could not be looked at");
        }
    });
    join_all(looks).await;
}

async fn mark(shared: &Shared) {
    let Some(mark) = advanced(shared) else {
        return;
    };
    if let Err(error) = shared.store.mark_age(mark).await {
        // Rows look younger for it, and are kept longer.
        tracing::warn!(%error, "the age clock could not be written down");
    }
}

/// The age clock as of now.
fn advanced(shared: &Shared) -> Option<AgeMark> {
    let now = Now::on(shared.clock.as_ref());
    lock(&shared.age).as_mut().map(|clock| clock.tick(now))
}

/// What the age clock shows.
pub(crate) fn now(shared: &Shared) -> Option<Duration> {
    advanced(shared).map(|mark| mark.age)
}

/// The last row that has waited for longer than so many hours; 0 if none has.
async fn older_than(shared: &Shared, hours: u32) -> Result<i64, StoreError> {
    match now(shared).and_then(|age| over_age(age, hours)) {
        Some(born) => shared.store.born_by(born).await,
        None => Ok(0),
    }
}

/// The last row of the mesh that is over age; 0 if none is.
pub(crate) async fn over_age_by(shared: &Shared, mesh: &MeshState) -> Result<i64, StoreError> {
    match mesh.max_age_hours() {
        Some(hours) => older_than(shared, hours).await,
        // Never agreed with any broker: nothing can be too old for it.
        None => Ok(0),
    }
}

/// What it is worth that the broker does not have a row of the outbox that is looked at once more.
pub(crate) async fn absence_of(
    shared: &Shared,
    mesh: &MeshState,
    row: &OutboxRow,
) -> Result<LastLook, StoreError> {
    // The last look was counted as a try, but it sends nothing: a row that died of age was sent once less.
    let looks = u32::from(is_outcome_unknown(row.last_error.as_deref()));
    let sent = row.attempts.saturating_sub(looks);
    absence(shared, mesh, (row.arrival, sent, row.enqueued_at)).await
}

/// What it is worth that the broker does not have a row that was sent so often.
async fn absence(
    shared: &Shared,
    mesh: &MeshState,
    (arrival, attempts, enqueued_at): (i64, u32, WallMs),
) -> Result<LastLook, StoreError> {
    let memory = mesh.memory_hours();
    let is_beyond_memory = match memory {
        Some(hours) => arrival <= older_than(shared, hours).await?,
        None => false,
    };
    let times = (enqueued_at, shared.clock.wall());
    Ok(absent(attempts, times, memory, is_beyond_memory))
}

async fn end_over_age(shared: &Shared, mesh: &MeshState) -> Result<(), StoreError> {
    let Some(hours) = mesh.max_age_hours() else {
        return Ok(());
    };
    let Some(born) = now(shared).and_then(|age| over_age(age, hours)) else {
        return Ok(());
    };
    loop {
        let found = shared.store.over_age(mesh.mesh.mesh, born, ROWS_AT_ONCE);
        let rows = found.await?;
        let mut moves = Vec::new();
        for row in rows {
            // `None`: it is not pending any more.
            if let Some(taken) = shared.store.take_one(row).await? {
                moves.push(end_of(shared, mesh, &taken).await?);
            }
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

/// The end of one row that is over age and was taken.
pub(crate) async fn end_of(
    shared: &Shared,
    mesh: &MeshState,
    taken: &DueRow,
) -> Result<Settle, StoreError> {
    let hours = mesh.max_age_hours().unwrap_or(0);
    let begun = shared.clock.wall();
    let next = match last_look(mesh, taken).await {
        Ok(Some(done)) => done,
        Ok(None) => {
            let known = (taken.arrival, taken.attempts, taken.enqueued_at);
            dead(absence(shared, mesh, known).await?, hours)
        }
        Err(_) if !mesh.is_connected() => dead(LastLook::Unreachable, hours),
        // It is there but does not say. The next tick asks again.
        Err(why) => RowMove::Retry {
            error: format!("last_look: {why}"),
            waits: Waits::Row,
        },
    };
    Ok(settle(shared, taken, begun, next))
}

async fn last_look(mesh: &MeshState, row: &DueRow) -> Result<Option<RowMove>, String> {
    if !mesh.is_connected() {
        return Err("not connected".to_owned());
    }
    let id = (&row.agent, &row.client_message_id);
    let looked = look_for(mesh, id, row.wire_fingerprint).await;
    looked.map_err(|problem| problem.detail)
}

fn dead(look: LastLook, hours: u32) -> RowMove {
    metrics::counter!("heddle_outbox_dead_by_age_total").increment(1);
    RowMove::Dead {
        reason: death_by_age(look, hours).unwrap_or_default(),
    }
}
