//! How old each mesh is, in time that certainly passed: what is deleted for its age is deleted by this, and never by a
//! wall clock that somebody may set (C18, XC-05).
//!
//! The clock is kept in the store, so it goes on across restarts and belongs to all brokers of one store together. It
//! stands still while no broker runs and the machine was started anew meanwhile: what is old looks younger then, and is
//! kept longer.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use heddle_core::age::{AgeClock, Now};
use heddle_core::clock::Clock;
use heddle_core::ids::MeshId;

use super::DAY;
use crate::storage::{Storage, StorageError};

/// The age clocks of a process.
#[derive(Debug, Default)]
pub struct Ages {
    clocks: Mutex<BTreeMap<MeshId, AgeClock>>,
}

impl Ages {
    /// Advances the clock of a mesh and keeps it. Notes of what existed by when are needed for so many days.
    pub(super) async fn keep<S: Storage>(
        &self,
        storage: &S,
        clock: &dyn Clock,
        mesh: MeshId,
        days: u32,
    ) -> Result<Duration, StorageError> {
        let last = storage.age(mesh).await?;
        let now = Now::on(clock);
        let mark = {
            let mut clocks = self.clocks.lock().unwrap_or_else(PoisonError::into_inner);
            let shared = AgeClock::resume_shared(last, now);
            let own = clocks.entry(mesh).or_insert(shared);
            own.tick(now);
            // Others that serve this store may be further, or this machine for them.
            own.at_least(shared.age());
            own.mark()
        };
        // A day more than is asked for, so that nothing is thrown away at its edge.
        let needed = DAY.saturating_mul(days.saturating_add(1));
        let births_from = mark.age.saturating_sub(needed);
        storage.keep_age(mesh, mark, births_from).await
    }
}
