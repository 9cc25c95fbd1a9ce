//! The authority of a broker without a home: one desk for each of its meshes, all on one store, by the
//! `effects.toml` of its data folder.
//!
//! Everybody who calls is a member elsewhere. Where the policy names nobody, the persons of those members are
//! asked who may decide in the mesh, as the broker says: its owners, or everybody where it has none.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use heddle_core::clock::{Clock, Ids};
use heddle_core::ids::MeshId;
use heddle_core::names::{AgentName, MemberName};
use heddle_registrar::Registrar;
use heddle_registrar::registrar::Caller;
use heddle_registrar::storage::Storage;
use heddle_registrar::storage::postgres::{Pool, Postgres};
use heddle_registrar::storage::sqlite::Sqlite;
use heddle_wire::broker::{EffectCall, ReplyResult};
use tokio::sync::Mutex;

use super::desk::{Desk, refused_reply};
use super::{EffectsError, HighWater, NAME, PolicyFile, begun_anew, open_file};
use crate::home::create_private_folder;

/// Who calls, as the broker has proven it.
#[derive(Debug, Clone, Copy)]
pub struct TeamCaller<'a> {
    pub mesh: MeshId,
    pub member: &'a MemberName,
    pub agent: &'a AgentName,
    /// Its person may say yes where the policy names nobody.
    pub may_decide: bool,
}

impl TeamCaller<'_> {
    fn caller(&self) -> Caller {
        let (member, agent) = (self.member, self.agent);
        let is_person = member.as_str() == agent.as_str();
        let name = format!("@{member}/{agent}");
        // Nobody is called by the empty name.
        let person = if self.may_decide && is_person {
            name.clone()
        } else {
            String::new()
        };
        Caller::new(name, person)
    }
}

pub struct TeamDesk<S> {
    storage: S,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    policy: PolicyFile,
    high: Arc<HighWater>,
    /// Made at the first call of each mesh; there are no more than the broker serves.
    desks: Mutex<HashMap<MeshId, Arc<Desk<S>>>>,
}

impl TeamDesk<Sqlite> {
    /// On `effects.db` in the broker's folder. One that was there and is gone ends the start: used keys
    /// would be free again.
    pub async fn on_file(
        folder: &Path,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Result<Self, EffectsError> {
        let (storage, is_anew) = open_file(folder, false)?;
        let desk = Self::checked((storage, NAME, is_anew), folder, clock, ids).await?;
        create_private_folder(&folder.join("effects"))?;
        begun_anew(folder)?;
        Ok(desk)
    }

    /// Finishes what is queued and closes the file. Blocks until that is done.
    pub fn stop(&self) {
        self.storage.stop();
    }
}

impl TeamDesk<Postgres> {
    /// Brings the tables up to date, and no more.
    pub async fn migrate((pool, schema): (Pool, &str)) -> Result<(), EffectsError> {
        let opened = Postgres::open(pool, schema).await;
        let opened = opened.map_err(EffectsError::from);
        opened.map(drop).map_err(|error| error.at(&name_of(schema)))
    }

    /// On the tables of a schema that any number of brokers share.
    pub async fn on_database(
        (pool, schema): (Pool, &str),
        folder: &Path,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Result<Self, EffectsError> {
        let name = name_of(schema);
        let storage = Postgres::open(pool, schema).await;
        let storage = storage.map_err(|error| EffectsError::from(error).at(&name))?;
        let desk = Self::checked((storage, &name, false), folder, clock, ids).await?;
        begun_anew(folder)?;
        Ok(desk)
    }
}

/// What a schema of the database is called to people.
fn name_of(schema: &str) -> String {
    format!("the schema {schema} of PostgreSQL")
}

impl<S: Storage + Clone> TeamDesk<S> {
    /// An unfit store or a policy that cannot be read ends the start, as in a home. One that is an earlier copy of
    /// itself decides nothing.
    async fn checked(
        (storage, name, is_anew): (S, &str, bool),
        folder: &Path,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Result<Self, EffectsError> {
        let high = HighWater::open(folder, None, (&storage, name), is_anew).await;
        let high = Arc::new(high.map_err(|error| error.at(name))?);
        let team = Self {
            storage,
            high,
            clock,
            ids,
            policy: PolicyFile::new(folder.join("effects.toml")),
            desks: Mutex::default(),
        };
        // For no mesh that anybody has: to open it is to check it.
        let nobodys = MeshId(team.ids.ulid());
        let opened = team.open(nobodys).await;
        opened.map_err(|error| error.at(name))?;
        Ok(team)
    }

    async fn open(&self, mesh: MeshId) -> Result<Desk<S>, EffectsError> {
        let (clock, ids) = (Arc::clone(&self.clock), Arc::clone(&self.ids));
        let policy = self.policy.read()?;
        let storage = self.storage.clone();
        let registrar = Registrar::open(storage, clock, ids, policy, mesh).await?;
        let files = (self.policy.clone(), Arc::clone(&self.high));
        Ok(Desk::new(registrar, (mesh, String::new()), files))
    }

    async fn desk(&self, mesh: MeshId) -> Result<Arc<Desk<S>>, EffectsError> {
        let mut desks = self.desks.lock().await;
        if let Some(desk) = desks.get(&mesh) {
            return Ok(Arc::clone(desk));
        }
        let desk = Arc::new(self.open(mesh).await?);
        desks.insert(mesh, Arc::clone(&desk));
        Ok(desk)
    }

    pub async fn call(
        &self,
        who: TeamCaller<'_>,
        id: Option<String>,
        call: EffectCall,
    ) -> ReplyResult {
        match self.desk(who.mesh).await {
            Ok(desk) => desk.answer(who.caller(), id, call).await,
            Err(error) => refused_reply(error.problem()),
        }
    }
}
