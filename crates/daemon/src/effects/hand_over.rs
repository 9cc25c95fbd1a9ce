//! A mesh that has moved to a broker elsewhere: what was decided about its effects here goes there, and from the moment
//! that it goes nothing more is decided here.
//!
//! The order is what makes it safe. Until the config names the new broker this home decides, and the broker, who knows
//! that the mesh came from somewhere, decides nothing. Then the home gives the mesh away, in the transaction that ends
//! its own right; then it tells what it has, in parts that can be told again. With the last one the broker decides.

use std::collections::BTreeSet;

use heddle_core::error_code::ErrorCode;
use heddle_core::ids::MeshId;
use heddle_registrar::carry::Unit;
use heddle_store::MeshKind;
use heddle_wire::broker::{EffectAnswer, EffectCall};
use heddle_wire::problem::Problem;

use super::{Effects, storage_problem};
use crate::mesh::MeshState;
use crate::shared::{Shared, lock, store_problem};

/// Of a part: far below what a frame takes, and more than any one unit but a very long one.
const PART_BYTES_MAX: usize = 256 << 10;

impl Effects {
    /// Whether this home decided about the mesh before a broker elsewhere did.
    pub(super) async fn has_moved(
        &self,
        shared: &Shared,
        mesh: &MeshState,
    ) -> Result<bool, Problem> {
        let Some(connector) = mesh.connector() else {
            return Ok(false);
        };
        // A broker of an earlier version takes nothing over: there, what was decided here stays here.
        let is_older = mesh.live().is_some_and(|live| !live.offers().hand_over);
        if connector.hosts() || mesh.identity.key.is_none() || is_older {
            return Ok(false);
        }
        let id = mesh.mesh.mesh;
        if lock(&self.not_ours).contains(&id) {
            return Ok(false);
        }
        let head = shared.store.sync_head(id).await;
        let kind = head.map_err(|error| store_problem(&error))?.kind;
        // Between the config and the store it is still a personal one.
        let is_ours = kind == MeshKind::SharedOwner || kind == MeshKind::Personal;
        if !is_ours {
            lock(&self.not_ours).insert(id);
        }
        Ok(is_ours)
    }

    /// Everything that was decided here is with the broker that decides now; or why not. Nothing to do is done.
    pub(super) async fn hand_over(&self, shared: &Shared, mesh: &MeshState) -> Result<(), Problem> {
        let id = mesh.mesh.mesh;
        if lock(&self.handed).contains(&id) || !self.has_moved(shared, mesh).await? {
            return Ok(());
        }
        let _one = self.handing.lock().await;
        let failed = |error| storage_problem(&error);
        if !self.storage().is_all_told(id).await.map_err(failed)? {
            if !self.tell_all(shared, mesh).await? {
                lock(&self.not_ours).insert(id);
                return Ok(());
            }
            let now = shared.clock.wall();
            self.storage().all_told(id, now).await.map_err(failed)?;
            // What was damaged is told there from now on.
            self.look_kept().await;
        }
        lock(&self.handed).insert(id);
        Ok(())
    }

    /// Effects that go as damaged when this mesh moves, each with why; none of one that has moved.
    pub(crate) async fn damaged_of(&self, mesh: &MeshState) -> Result<Vec<String>, Problem> {
        let found = self.storage().changed_of(mesh.mesh.mesh).await;
        found.map_err(|error| storage_problem(&error))
    }

    /// False where the broker knows nothing of a home that the mesh came from.
    async fn tell_all(&self, shared: &Shared, mesh: &MeshState) -> Result<bool, Problem> {
        let id = mesh.mesh.mesh;
        let failed = |error| storage_problem(&error);
        // IMPORTANT: the broker is asked before anything is given up. Whoever is not the founder there gives nothing.
        let mut from = match self.told(mesh, hand_over(0, Vec::new(), false)).await {
            Err(problem) if problem.known_code() == Some(ErrorCode::ApprovalRefused) => {
                return Ok(false);
            }
            told => told?.0,
        };
        let given = self.storage().give_away(id, shared.clock.wall());
        given.await.map_err(failed)?;
        loop {
            let read = self.storage().carried(id, from, PART_BYTES_MAX);
            let (units, is_last) = read.await.map_err(failed)?;
            for why in damaged(&units) {
                tracing::error!(mesh = %mesh.mesh.name, "handed over as damaged, and stays used: {why}");
            }
            let member = mesh.mesh.member_name.to_string();
            let texts = units
                .into_iter()
                .map(|unit| unit.of_member(&member).to_text());
            let texts: Result<Vec<String>, _> = texts.collect();
            let texts = texts.map_err(|error| broken(&error.to_string()))?;
            let (through, is_whole, skipped) =
                self.told(mesh, hand_over(from, texts, is_last)).await?;
            if skipped > 0 {
                tracing::error!(mesh = %mesh.mesh.name, skipped, "keys that were used in this home were used once more where the mesh has moved");
            }
            if is_whole {
                tracing::info!(mesh = %mesh.mesh.name, units = through, "what was decided about effects here is with the mesh's broker");
                return Ok(true);
            }
            if through <= from {
                return Err(broken("its broker does not take it"));
            }
            from = through;
        }
    }

    async fn told(&self, mesh: &MeshState, call: EffectCall) -> Result<(u64, bool, u64), Problem> {
        let person = self.named(mesh, &self.speaks.person)?;
        match self.through_broker(mesh, &person, None, call).await? {
            EffectAnswer::HandedOver {
                through,
                is_whole,
                skipped,
            } => Ok((through, is_whole, skipped)),
            _ => Err(broken("its broker answers something else")),
        }
    }

    /// Whether the broker elsewhere decides about every key of this mesh, those of before included; also while it is
    /// not known yet whether it takes them.
    pub(super) async fn is_given(
        &self,
        shared: &Shared,
        mesh: &MeshState,
    ) -> Result<bool, Problem> {
        let id: MeshId = mesh.mesh.mesh;
        Ok(lock(&self.handed).contains(&id) || self.has_moved(shared, mesh).await?)
    }
}

/// Why keys of these units are not told, each once.
pub(super) fn damaged(units: &[Unit]) -> BTreeSet<&str> {
    let why = units.iter().filter_map(|unit| match unit {
        Unit::Damaged { key, why } if !key.is_empty() => Some(why.as_str()),
        _ => None,
    });
    why.collect()
}

fn hand_over(from: u64, units: Vec<String>, is_last: bool) -> EffectCall {
    EffectCall::HandOver {
        from,
        units,
        is_last,
    }
}

fn broken(why: &str) -> Problem {
    let detail = format!("what was decided about effects here cannot be handed over: {why}");
    Problem::new(ErrorCode::StorageUnavailable, detail).next(
        "Nothing is decided until then. Look at the log of this home and at that of the broker.",
    )
}
