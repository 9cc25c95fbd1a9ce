//! Upkeep of the oracle.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use heddle_core::age::AgeMark;
use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, MeshId};
use heddle_core::names::MeshName;

use super::super::births::{self, Births};
use super::super::error::StorageError;
use super::super::rows::Orphan;
use super::super::upkeep::{Job, JobClaim, Upkeep, is_claimed, traffic_hour};
use super::tables::Tables;
use super::{MemoryStorage, orphans};

/// What upkeep remembers of a mesh.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) claims: BTreeMap<Job, (String, WallMs)>,
    pub(super) counted: Option<HistoryId>,
    pub(super) hours: BTreeMap<WallMs, u64>,
    pub(super) age: Option<AgeMark>,
    /// By age, because an age never falls.
    pub(super) births: BTreeMap<HistoryId, Duration>,
}

impl Tables {
    fn keep_age(&mut self, mark: AgeMark, births_from: Duration) -> Duration {
        let before = self.upkeep.age.filter(|before| before.age > mark.age);
        let kept = before.unwrap_or(mark);
        self.upkeep.age = Some(kept);
        let newest = HistoryId {
            epoch: self.epoch,
            seq: self.next_seq.saturating_sub(1),
        };
        let births = &mut self.upkeep.births;
        if births
            .last_key_value()
            .is_none_or(|(last, _)| *last < newest)
        {
            births.insert(newest, kept.age);
        }
        let old = births.iter().filter(|(_, born)| **born < births_from);
        if let Some(last) = old.map(|(place, _)| *place).next_back() {
            births.retain(|place, _| *place >= last);
        }
        kept.age
    }

    fn sweep(&mut self, age: Duration) -> usize {
        let before = self.dedupe.len();
        let history = &mut self.history;
        let births = self.upkeep.births.iter();
        let births = Births::new(births.map(|(place, born)| (*place, *born)).collect());
        self.dedupe.retain(|_, row| {
            let is_over = row.expires_at.is_some_and(|at| {
                let kept = births::kept(row.consumed.first_seen_at.0, at.0);
                births.is_over(row.consumed.history_id, kept, age)
            });
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

    fn prune(&mut self, born: Duration) -> usize {
        let mut old = Vec::new();
        let births = self.upkeep.births.iter().rev();
        let through = births
            .map(|(place, at)| (*place, *at))
            .find(|(_, at)| *at <= born);
        let Some((through, _)) = through else {
            return 0;
        };
        for (at, place) in self.history.range(..=through) {
            match self.messages.get(&place.broker_message_id) {
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

    async fn claim_job(&self, wanted: JobClaim) -> Result<Option<(String, WallMs)>, StorageError> {
        self.on(wanted.mesh, |tables| {
            let claims = &mut tables.upkeep.claims;
            if let Some((other, ends)) = claims.get(&wanted.job)
                && *other != wanted.holder
                && is_claimed(*ends, wanted.now)
            {
                return Ok(Some((other.clone(), *ends)));
            }
            claims.insert(wanted.job, (wanted.holder, wanted.until));
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

    async fn age(&self, mesh: MeshId) -> Result<Option<AgeMark>, StorageError> {
        self.on(mesh, |tables| Ok(tables.upkeep.age))
    }

    async fn keep_age(
        &self,
        mesh: MeshId,
        mark: AgeMark,
        births_from: Duration,
    ) -> Result<Duration, StorageError> {
        self.on(mesh, |tables| Ok(tables.keep_age(mark, births_from)))
    }

    async fn sweep_expired(&self, mesh: MeshId, age: Duration) -> Result<usize, StorageError> {
        self.on(mesh, |tables| Ok(tables.sweep(age)))
    }

    async fn prune_messages(&self, mesh: MeshId, born: Duration) -> Result<usize, StorageError> {
        self.on(mesh, |tables| Ok(tables.prune(born)))
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
