//! The desks of a home: one authority for each mesh that it hosts, all on one file.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use heddle_core::clock::{Clock, Ids};
use heddle_core::ids::MeshId;
use heddle_core::names::{AgentName, MemberName};
use heddle_registrar::Registrar;
use heddle_registrar::storage::sqlite::Sqlite;
use heddle_wire::broker::{EffectCall, ReplyResult};

use super::desk::refused_reply;
use super::{EffectsError, HighWater, HomeDesk, OLDER_NEXT, PolicyFile, Used};
use crate::shared::{read, write};
use crate::standing::Wrong;
use crate::upkeep::look_effects;

pub struct HomeDesks {
    storage: Sqlite,
    policy: PolicyFile,
    pub(super) used: Used,
    high: Arc<HighWater>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    /// Of the mesh that every home has.
    home: Arc<HomeDesk>,
    more: RwLock<BTreeMap<MeshId, Arc<HomeDesk>>>,
}

impl HomeDesks {
    pub(super) async fn open(
        (storage, policy, (used, high)): (Sqlite, PolicyFile, (Used, Arc<HighWater>)),
        (clock, ids): (Arc<dyn Clock>, Arc<dyn Ids>),
        (mesh, person): (MeshId, MemberName),
    ) -> Result<Self, EffectsError> {
        let (now, minting) = (Arc::clone(&clock), Arc::clone(&ids));
        let home = desk(
            (storage.clone(), policy.clone(), Arc::clone(&high)),
            (now, minting),
            (mesh, person),
        )
        .await?;
        // A file of before there was a mark.
        if !home.is_empty().await? {
            let _ = used.say().await;
        }
        Ok(Self {
            storage,
            policy,
            used,
            high,
            clock,
            ids,
            home: Arc::new(home),
            more: RwLock::default(),
        })
    }

    /// From now on this home decides about the effects of this mesh, too.
    pub(crate) async fn host(&self, mesh: MeshId, person: MemberName) -> Result<(), EffectsError> {
        let sources = (Arc::clone(&self.clock), Arc::clone(&self.ids));
        let (storage, policy) = (self.storage.clone(), self.policy.clone());
        let files = (storage, policy, Arc::clone(&self.high));
        let desk = desk(files, sources, (mesh, person)).await?;
        write(&self.more).insert(mesh, Arc::new(desk));
        Ok(())
    }

    /// Why nothing can be decided now: a policy that cannot be read allows nothing, and neither does a store that
    /// is not the newest one.
    pub(super) fn wrong(&self) -> Vec<Wrong> {
        let older = self.high.trouble();
        let older = older.map(|says| Wrong::new(look_effects::OLDER, says, OLDER_NEXT));
        let policy = self.policy.trouble();
        let policy = policy.map(|says| Wrong::new(look_effects::POLICY, says, ""));
        older.into_iter().chain(policy).collect()
    }

    pub(super) fn home(&self) -> &HomeDesk {
        &self.home
    }

    /// Who decides about the effects of a mesh that this home hosts.
    pub(super) fn of(&self, mesh: MeshId) -> Option<Arc<HomeDesk>> {
        if self.home.is_of(mesh) {
            return Some(Arc::clone(&self.home));
        }
        read(&self.more).get(&mesh).cloned()
    }

    /// A call of a member elsewhere, as the broker has proven it; with the caller's own id and what it has seen.
    pub async fn guest(
        &self,
        (mesh, member): (MeshId, &MemberName),
        agent: &AgentName,
        said: (Option<String>, Option<String>),
        call: EffectCall,
    ) -> ReplyResult {
        if let Err(problem) = self.used.before(&call).await {
            return refused_reply(problem);
        }
        // One of no mesh that is hosted here is refused by the desk itself.
        let desk = self.of(mesh).unwrap_or_else(|| Arc::clone(&self.home));
        desk.guest((mesh, member), agent, said, call).await
    }
}

async fn desk(
    (storage, policy, high): (Sqlite, PolicyFile, Arc<HighWater>),
    (clock, ids): (Arc<dyn Clock>, Arc<dyn Ids>),
    (mesh, person): (MeshId, MemberName),
) -> Result<HomeDesk, EffectsError> {
    let registrar = Registrar::open(storage, clock, ids, policy.read()?, mesh).await?;
    let person = person.to_string();
    Ok(HomeDesk::new(registrar, (mesh, person), (policy, high)))
}
