//! Rows that died of age while the broker could not be asked: when it is back it is asked once more (C32, DR-05).
//!
//! One that it has was delivered after all and is `done`; of one that it does not have that is known from now on, unless it may
//! have forgotten it. Nothing is sent.

use std::time::Duration;

use heddle_core::age::death_by_age;
use heddle_core::drain::RowMove;
use heddle_store::StoreError;

use super::age::absence_of;
use super::requeue::look;
use crate::mesh::MeshState;
use crate::shared::Shared;

/// Rows that are read together.
const ROWS_AT_ONCE: usize = 64;
/// After a failure of our own store.
const AGAIN: Duration = Duration::from_secs(30);

/// Beside a connection: ends when all of them were asked about.
pub(crate) async fn run(shared: &Shared, mesh: &MeshState) {
    while let Err(error) = once(shared, mesh).await {
        tracing::warn!(%error, mesh = %mesh.mesh.name, "dead rows of unknown outcome could not be looked at");
        tokio::time::sleep(AGAIN).await;
    }
}

pub(crate) async fn once(shared: &Shared, mesh: &MeshState) -> Result<(), StoreError> {
    let mut after = 0;
    loop {
        let rows = shared
            .store
            .dead_of_unknown_outcome(mesh.mesh.mesh, after, ROWS_AT_ONCE)
            .await?;
        let Some(last) = rows.last() else {
            return Ok(());
        };
        after = last.arrival;
        // Nobody can ask for one that cannot be read; the others are asked for.
        for row in rows.into_iter().filter(|row| row.damaged.is_none()) {
            match look(mesh, &row).await {
                Ok(Some(RowMove::Done {
                    broker_message_id,
                    history_id,
                })) => {
                    let place = (broker_message_id, history_id);
                    let at = shared.clock.wall();
                    let settled =
                        shared
                            .store
                            .settle_dead_as_done(row.row, row.attempts, place, at);
                    if settled.await? {
                        tracing::info!(id = %row.client_message_id, "a message that was given up had arrived");
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    let hours = mesh.max_age_hours().unwrap_or(0);
                    let worth = absence_of(shared, mesh, &row).await?;
                    let reason = death_by_age(worth, hours).unwrap_or_default();
                    shared.store.set_dead_reason(row.row, reason).await?;
                }
                // The next connection asks again.
                Err(_) => return Ok(()),
            }
        }
    }
}
