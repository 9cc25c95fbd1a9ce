//! The oracle: ordered maps behind one lock, written to be obviously right. Other stores are compared
//! with it, row by row.
//!
//! It keeps nothing across a restart and shares no code with the SQL, except the decision of B2.

#[cfg(test)]
mod dump;
mod grants;
mod log;
mod members;
mod orphans;
mod parting;
mod presence;
mod queues;
mod snapshots;
mod story;
mod tables;
mod upkeep;
mod uploads;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use heddle_core::clock::WallMs;
use heddle_core::ids::{BrokerId, HistoryId, MemberId, MeshId, Party};
use heddle_core::names::{MemberName, MeshName, TopicName};

use super::contract::Storage;
use super::error::StorageError;
use super::mesh_names;
use super::parts::Parts;
use super::rows::{
    Accepted, Ack, Consumed, Delivery, DeliveryCursor, HistoryRow, Look, NewMessage, PageLimit,
    Roster, SendId,
};
use super::wakes::Wakes;
use tables::Tables;

#[derive(Default)]
pub struct MemoryStorage {
    meshes: Mutex<BTreeMap<MeshId, Tables>>,
    broker_id: OnceLock<BrokerId>,
}

impl MemoryStorage {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<MeshId, Tables>> {
        self.meshes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One operation on one mesh, under the lock: that makes it a transaction.
    fn on<T>(
        &self,
        mesh: MeshId,
        operation: impl FnOnce(&mut Tables) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let mut meshes = self.lock();
        let tables = meshes
            .get_mut(&mesh)
            .ok_or(StorageError::UnknownMesh(mesh))?;
        operation(tables)
    }

    #[cfg(test)]
    pub(crate) fn spoil_telemetry(&self) {
        for tables in self.lock().values_mut() {
            tables.upkeep.hours.insert(WallMs(-1), u64::MAX / 2);
            for row in tables.dedupe.values_mut() {
                row.limiter = None;
            }
        }
    }

    /// Every row as text, for comparison.
    #[cfg(test)]
    pub(crate) fn dump(&self) -> Vec<String> {
        let meshes = self.lock();
        let mut lines: Vec<String> = meshes
            .iter()
            .flat_map(|(mesh, tables)| tables.dump(*mesh))
            .collect();
        lines.sort_unstable();
        lines
    }
}

impl Wakes for MemoryStorage {}

impl Parts for MemoryStorage {}

impl Storage for MemoryStorage {
    async fn ensure_mesh(&self, mesh: MeshId, name: &MeshName) -> Result<bool, StorageError> {
        let mut meshes = self.lock();
        let current = meshes.get(&mesh).map(|tables| &tables.name);
        let name = mesh_names::choose(name, current, |wish| {
            let mut others = meshes.iter().filter(|(id, _)| **id != mesh);
            others.any(|(_, tables)| tables.name == *wish)
        });
        match meshes.get_mut(&mesh) {
            Some(tables) if tables.name == name => Ok(false),
            Some(tables) => {
                tables.name = name;
                Ok(true)
            }
            None => {
                meshes.insert(mesh, Tables::new(name));
                Ok(true)
            }
        }
    }

    async fn mesh_named(
        &self,
        name: &MeshName,
        fresh: MeshId,
    ) -> Result<(MeshId, bool), StorageError> {
        let mut meshes = self.lock();
        let found = meshes.iter().find(|(_, tables)| tables.name == *name);
        if let Some((mesh, _)) = found {
            return Ok((*mesh, false));
        }
        meshes.insert(fresh, Tables::new(name.clone()));
        Ok((fresh, true))
    }

    async fn mesh_name(&self, mesh: MeshId) -> Result<MeshName, StorageError> {
        self.on(mesh, |tables| Ok(tables.name.clone()))
    }

    async fn ensure_member(
        &self,
        mesh: MeshId,
        member: MemberId,
        name: &MemberName,
    ) -> Result<bool, StorageError> {
        self.on(mesh, |tables| Ok(tables.ensure_member(member, name)))
    }

    async fn register_agent(&self, mesh: MeshId, agent: &Party) -> Result<bool, StorageError> {
        self.on(mesh, |tables| tables.register_agent(agent))
    }

    async fn create_topic(&self, mesh: MeshId, topic: &TopicName) -> Result<bool, StorageError> {
        self.on(mesh, |tables| Ok(tables.create_topic(topic)))
    }

    async fn subscribe(
        &self,
        mesh: MeshId,
        topic: &TopicName,
        agent: &Party,
    ) -> Result<bool, StorageError> {
        self.on(mesh, |tables| tables.subscribe(topic, agent))
    }

    async fn unsubscribe(
        &self,
        mesh: MeshId,
        topic: &TopicName,
        agent: &Party,
    ) -> Result<bool, StorageError> {
        self.on(mesh, |tables| Ok(tables.unsubscribe(topic, agent)))
    }

    async fn roster(&self, mesh: MeshId) -> Result<Roster, StorageError> {
        self.on(mesh, |tables| Ok(tables.roster()))
    }

    async fn known(&self, mesh: MeshId, ids: Vec<SendId>) -> Result<Vec<Look>, StorageError> {
        self.on(mesh, |tables| {
            Ok(ids.iter().map(|id| tables.look(id)).collect())
        })
    }

    async fn status(&self, mesh: MeshId, id: SendId) -> Result<Option<Consumed>, StorageError> {
        self.on(mesh, |tables| Ok(tables.look(&id).consumed))
    }

    async fn accept(
        &self,
        mesh: MeshId,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<Accepted>, StorageError> {
        self.on(mesh, |tables| {
            Ok(messages.into_iter().map(|new| tables.accept(new)).collect())
        })
    }

    async fn deliveries_after(
        &self,
        mesh: MeshId,
        member: MemberId,
        after: DeliveryCursor,
        limit: PageLimit,
    ) -> Result<Vec<Delivery>, StorageError> {
        self.on(mesh, |tables| {
            Ok(tables.deliveries_after(member, &after, limit))
        })
    }

    async fn ack(
        &self,
        mesh: MeshId,
        member: MemberId,
        items: Vec<Ack>,
        at: WallMs,
    ) -> Result<usize, StorageError> {
        self.on(mesh, |tables| Ok(tables.ack(member, &items, at)))
    }

    async fn epoch(&self, mesh: MeshId) -> Result<u64, StorageError> {
        self.on(mesh, |tables| Ok(tables.epoch))
    }

    async fn raise_epoch_beyond(
        &self,
        mesh: MeshId,
        seen: HistoryId,
    ) -> Result<bool, StorageError> {
        self.on(mesh, |tables| {
            let reached = HistoryId {
                epoch: tables.epoch,
                seq: tables.next_seq - 1,
            };
            if reached >= seen {
                return Ok(false);
            }
            tables.begin_epoch(tables.epoch.max(seen.epoch) + 1);
            Ok(true)
        })
    }

    async fn history_after(
        &self,
        mesh: MeshId,
        after: HistoryId,
        rows_max: usize,
    ) -> Result<Vec<HistoryRow>, StorageError> {
        self.on(mesh, |tables| Ok(tables.history_after(after, rows_max)))
    }
}
