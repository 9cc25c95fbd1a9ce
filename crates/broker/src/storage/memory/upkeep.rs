//! Upkeep of the oracle.

use std::collections::BTreeMap;
use std::ops::Bound;

use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, MeshId};
use heddle_core::names::MeshName;

use super::super::error::StorageError;
use super::super::rows::Orphan;
use super::super::upkeep::{Job, Upkeep, is_claimed, traffic_hour};
use super::tables::Tables;
use super::{MemoryStorage, orphans};

/// What upkeep remembers of a mesh.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) claims: BTreeMap<Job, (String, WallMs)>,
    pub(super) counted: Option<HistoryId>,
    pub(super) hours: BTreeMap<WallMs, u64>,
}

impl Tables {
    fn sweep(&mut self, now: WallMs) -> usize {
        let before = self.dedupe.len();
        let history = &mut self.history;
        self.dedupe.retain(|_, row| {
            let is_over = row.expires_at.is_some_and(|at| at < now);
            if is_over && let Some(place) = history.get_mut(&row.consumed.history_id) {
                place.is_expired = true;
            }
            !is_over
        });
        before - self.dedupe.len()
    }

    fn waits(&self, at: HistoryId) -> bool {
        let in_queue = self.queues.values().any(|queue| {
            let work = queue.items.get(&at);
            work.is_some_and(|work| work.acked_at.is_none())
        });
        let mut rows = self.deliveries.values().flatten();
        // An op is needed by whoever joins later.
        let in_log = self.log.contains_key(&at);
        in_queue
            || in_log
            || rows.any(|(ack, row)| ack.history_id == at && row.levels.delivered_at.is_none())
    }

    fn prune(&mut self, before: WallMs) -> usize {
        let mut old = Vec::new();
        for (at, place) in &self.history {
            match self.messages.get(&place.broker_message_id) {
                Some(message) if message.accepted_at >= before => break,
                Some(_) if !self.waits(*at) => old.push(place.broker_message_id),
                _ => {}
            }
        }
        for id in &old {
            if let Some(message) = self.messages.remove(id) {
                let key = (message.id.sender, message.id.client_message_id);
                if let Some(row) = self.dedupe.get_mut(&key) {
                    row.consumed.history_available = false;
                }
            }
        }
        old.len()
    }

    fn count_traffic(&mut self) -> u64 {
        let mut count = 0;
        let from = self
            .upkeep
            .counted
            .map_or(Bound::Unbounded, Bound::Excluded);
        for (_, place) in self.history.range((from, Bound::Unbounded)) {
            count += 1;
            if let Some(message) = self.messages.get(&place.broker_message_id) {
                let hour = traffic_hour(message.accepted_at);
                *self.upkeep.hours.entry(hour).or_default() += 1;
            }
        }
        if let Some((last, _)) = self.history.last_key_value() {
            self.upkeep.counted = Some(*last);
        }
        count
    }

    fn effect_rows(&self) -> u64 {
        let deliveries: usize = self.deliveries.values().map(BTreeMap::len).sum();
        let work: usize = self.queues.values().map(|queue| queue.items.len()).sum();
        let rows = self.dedupe.len()
            + self.messages.len()
            + self.history.len()
            + self.mentions.len()
            + self.log.len()
            + deliveries
            + work;
        u64::try_from(rows).unwrap_or(u64::MAX)
    }
}

impl Upkeep for MemoryStorage {
    async fn meshes(&self) -> Result<Vec<(MeshId, MeshName)>, StorageError> {
        let meshes = self.lock();
        let names = meshes.iter();
        Ok(names.map(|(mesh, t)| (*mesh, t.name.clone())).collect())
    }

    async fn claim_job(
        &self,
        mesh: MeshId,
        job: Job,
        holder: &str,
        now: WallMs,
        until: WallMs,
    ) -> Result<Option<(String, WallMs)>, StorageError> {
        self.on(mesh, |tables| {
            let claims = &mut tables.upkeep.claims;
            if let Some((other, ends)) = claims.get(&job)
                && other != holder
                && is_claimed(*ends, now)
            {
                return Ok(Some((other.clone(), *ends)));
            }
            claims.insert(job, (holder.to_owned(), until));
            Ok(None)
        })
    }

    async fn release_job(&self, mesh: MeshId, job: Job, holder: &str) -> Result<(), StorageError> {
        self.on(mesh, |tables| {
            tables
                .upkeep
                .claims
                .retain(|claimed, (who, _)| *claimed != job || who != holder);
            Ok(())
        })
    }

    async fn sweep_expired(&self, mesh: MeshId, now: WallMs) -> Result<usize, StorageError> {
        self.on(mesh, |tables| Ok(tables.sweep(now)))
    }

    async fn prune_messages(&self, mesh: MeshId, before: WallMs) -> Result<usize, StorageError> {
        self.on(mesh, |tables| Ok(tables.prune(before)))
    }

    async fn count_traffic(&self, mesh: MeshId) -> Result<u64, StorageError> {
        self.on(mesh, |tables| Ok(tables.count_traffic()))
    }

    async fn traffic(&self, mesh: MeshId) -> Result<Vec<(WallMs, u64)>, StorageError> {
        self.on(mesh, |tables| {
            let hours = tables.upkeep.hours.iter();
            Ok(hours.map(|(hour, count)| (*hour, *count)).collect())
        })
    }

    async fn orphan_check(&self, mesh: MeshId) -> Result<Vec<Orphan>, StorageError> {
        self.on(mesh, |tables| Ok(orphans::check(tables)))
    }

    async fn effect_rows(&self, mesh: MeshId) -> Result<u64, StorageError> {
        self.on(mesh, |tables| Ok(tables.effect_rows()))
    }
}
