//! The authority of a broker without a home: one desk for each of its meshes, all on one store, by the
//! `effects.toml` of its data folder.
//!
//! Everybody who calls is a member elsewhere. Where the policy names nobody, the persons of those members are
//! asked who may decide in the mesh, as the broker says: its owners, or everybody where it has none.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use heddle_core::clock::{Clock, Ids};
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::MeshId;
use heddle_core::names::{AgentName, MemberName};
use heddle_registrar::carry::{Part, Unit};
use heddle_registrar::registrar::Caller;
use heddle_registrar::storage::Storage;
use heddle_registrar::storage::postgres::{Pool, Postgres};
use heddle_registrar::storage::sqlite::Sqlite;
use heddle_registrar::surface_check::criteria;
use heddle_registrar::{Registrar, RegistrarError};
use heddle_wire::broker::{EffectAnswer, EffectCall, ReplyResult};
use heddle_wire::from_wire;
use heddle_wire::problem::Problem;
use tokio::sync::{Mutex, Semaphore};

use super::desk::{Desk, refused_reply};
use super::hand_over::damaged;
use super::{
    ANEW, EffectsError, HighWater, NAME, PolicyFile, begun_anew, open_file, storage_problem,
};
use crate::home::create_private_folder;

/// Who calls, as the broker has proven it.
#[derive(Debug, Clone)]
pub struct TeamCaller<'a> {
    pub mesh: MeshId,
    pub member: &'a MemberName,
    pub agent: &'a AgentName,
    /// Its person may say yes where the policy names nobody.
    pub may_decide: bool,
    /// Whose persons may, as `@member`; of a call whose answer names them.
    pub deciders: Vec<String>,
    /// The member whose home the mesh has moved from, where it has; and whether that is who calls.
    pub founder: Option<(&'a MemberName, bool)>,
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
        Caller {
            deciders: self.deciders.clone(),
            ..Caller::new(name, person)
        }
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
    /// Meshes that were taken over whole.
    settled: Mutex<HashSet<MeshId>>,
    /// By a person's word: what has not come by now is not waited for.
    waits_for_nobody: bool,
    /// Who decides about many at once decides about none of them sooner.
    turns: Semaphore,
}

/// Calls that are decided at once: no more than there are connections to the database, so that nobody waits for one of
/// these in the middle of a call.
const CALLS_AT_ONCE: usize = 4;

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
    /// Brings the tables up to date, and says whether they are fit, as a start would.
    pub async fn migrate((pool, schema): (Pool, &str)) -> Result<(), EffectsError> {
        let fit = async {
            let storage = Postgres::open(pool, schema).await?;
            let criteria = criteria(&storage.surface().await?);
            if criteria.iter().all(|criterion| criterion.is_met) {
                Ok(())
            } else {
                Err(EffectsError::from(RegistrarError::NotFit(criteria)))
            }
        };
        fit.await.map_err(|error| error.at(&name_of(schema)))
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
        let waits_for_nobody = folder.join(ANEW).exists();
        let high = HighWater::open(folder, None, (&storage, name), (is_anew, &ids)).await;
        let high = Arc::new(high.map_err(|error| error.at(name))?);
        let team = Self {
            storage,
            high,
            clock,
            ids,
            policy: PolicyFile::new(folder.join("effects.toml")),
            desks: Mutex::default(),
            settled: Mutex::default(),
            waits_for_nobody,
            turns: Semaphore::new(CALLS_AT_ONCE),
        };
        // For no mesh that anybody has: to open it is to check it.
        let nobodys = MeshId(team.ids.ulid());
        let opened = team.open(nobodys).await;
        opened.map_err(|error| error.at(name))?;
        team.high.seal(&team.storage, team.ids.as_ref()).await;
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

    /// Whether everything that was decided about this mesh before it came here has come, too.
    pub async fn is_settled(&self, mesh: MeshId) -> bool {
        let mut settled = self.settled.lock().await;
        if settled.contains(&mesh) {
            return true;
        }
        let taken = self.storage.taken(mesh).await;
        let is_whole = taken.is_ok_and(|taken| taken.is_whole);
        if is_whole {
            settled.insert(mesh);
        }
        is_whole
    }

    /// Whether the store is still the one that was last seen; what brokers beside this one have written is remembered.
    pub async fn look(&self) {
        // Told by the log, and to everybody who asks.
        let _ = self.high.look(&self.storage).await;
    }

    /// Looks once whether every effect is as it was written, and says in the log what is not.
    pub async fn look_kept(&self) {
        match self.storage.kept().await {
            Ok(kept) => kept.changed.iter().for_each(|one| tracing::error!("{one}")),
            Err(error) => {
                tracing::warn!(%error, "the effects could not be compared with their digests");
            }
        }
    }

    pub async fn call(
        &self,
        who: TeamCaller<'_>,
        said: (Option<String>, Option<String>),
        call: EffectCall,
    ) -> ReplyResult {
        // In the order in which they came; it is never closed.
        let _turn = self.turns.acquire().await;
        if let EffectCall::HandOver {
            from,
            units,
            is_last,
        } = call
        {
            let taken = self.take_over(&who, (from, units, is_last)).await;
            return match taken {
                Ok(answer) => ReplyResult::Effect {
                    answer: Box::new(answer),
                    proof: None,
                },
                Err(problem) => refused_reply(problem),
            };
        }
        let needs_none = matches!(call, EffectCall::SurfaceCheck);
        if let Some((founder, _)) = who.founder
            && !needs_none
            && !self.is_settled(who.mesh).await
            && let Err(problem) = self.wait_for(who.mesh, founder).await
        {
            return refused_reply(problem);
        }
        match self.desk(who.mesh).await {
            Ok(desk) => desk.answer(who.caller(), said, call).await,
            Err(error) => refused_reply(error.problem()),
        }
    }

    async fn wait_for(&self, mesh: MeshId, founder: &MemberName) -> Result<(), Problem> {
        if !self.waits_for_nobody {
            let detail = format!(
                "the mesh has moved here, and what was decided about its effects in the home of @{founder} has not come yet; keys that were used there would be free, so no effect is decided about"
            );
            return Err(Problem::new(ErrorCode::StorageUnavailable, detail).next(format!(
                "Start the home of @{founder} (`heddle up`): it hands them over by itself as soon as it is connected; one of an earlier version has to be updated for that. If it is lost for good, the operator makes an empty file effects-begin-anew in the broker's data folder and restarts; keys that were used there can then be used again."
            )));
        }
        let failed = |error| storage_problem(&error);
        let from = self.storage.taken(mesh).await.map_err(failed)?.through;
        let nothing = Part {
            from,
            units: Vec::new(),
            is_last: true,
            at: self.clock.wall(),
        };
        let taken = self.storage.take_over(mesh, nothing).await;
        taken.map_err(failed)?;
        tracing::warn!(%mesh, "by a person's word nothing more is waited for; what was decided elsewhere is not known");
        Ok(())
    }

    /// For nobody but the home that the mesh has moved from.
    async fn take_over(
        &self,
        who: &TeamCaller<'_>,
        (from, units, is_last): (u64, Vec<String>, bool),
    ) -> Result<EffectAnswer, Problem> {
        if !who.founder.is_some_and(|(_, is_caller)| is_caller) {
            let detail =
                "only the home that a mesh has moved from hands over what was decided about it";
            return Err(Problem::new(ErrorCode::ApprovalRefused, detail));
        }
        let units = units.iter().map(|unit| Unit::parse(unit));
        let units: Result<Vec<Unit>, _> = units.collect();
        let units = units.map_err(|error| from_wire::invalid(error.to_string()))?;
        self.high.look(&self.storage).await?;
        for why in damaged(&units) {
            tracing::error!(mesh = %who.mesh, from = %who.member, "came damaged, and stays used: {why}");
        }
        let part = Part {
            from,
            units,
            is_last,
            at: self.clock.wall(),
        };
        let taken = self.storage.take_over(who.mesh, part).await;
        let taken = taken.map_err(|error| storage_problem(&error))?;
        // IMPORTANT: before it is answered, as for every other change.
        self.high.look(&self.storage).await?;
        if taken.skipped > 0 {
            tracing::error!(mesh = %who.mesh, skipped = taken.skipped, "keys that were used before the mesh came here were used here as well");
        }
        Ok(EffectAnswer::HandedOver {
            through: taken.through,
            is_whole: taken.is_whole,
            skipped: taken.skipped,
        })
    }
}
