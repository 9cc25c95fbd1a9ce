//! Who decides about the effects of the meshes that a broker of its own serves: the broker itself, by
//! `effects.toml` in its data folder, on `effects.db` there or in the PostgreSQL that brokers share.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use heddle_broker::members::{Members as _, Standing};
use heddle_broker::storage::{AnyStorage, PostgresStorage, SqliteStorage};
use heddle_broker::{EffectAsked, EffectAuthority, Principal};
use heddle_core::clock::{Clock, Ids};
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::MemberId;

use heddle_core::names::MemberName;
use heddle_daemon::{EffectStorage, EffectsError, TeamCaller, TeamDesk};
use heddle_wire::broker::{EffectCall, ReplyResult};
use heddle_wire::problem::Problem;

use super::engine::said_later;
use crate::cli::{CliError, exit};
use crate::up::on_full_disk;

/// Beside the schema of the messages: whoever may append there may not read here.
const SCHEMA_SUFFIX: &str = "_effects";

/// Between two looks at a database that others write to.
const LOOK: Duration = Duration::from_secs(2);

/// The authority, and what is to be done when the broker ends.
pub struct Decider {
    pub authority: Arc<dyn EffectAuthority>,
    stop: Box<dyn FnOnce() + Send>,
}

impl Decider {
    pub async fn close(self) {
        let _ = tokio::task::spawn_blocking(self.stop).await;
    }
}

pub type Sources = (Arc<dyn Clock>, Arc<dyn Ids>);

pub async fn on_file(
    members: SqliteStorage,
    folder: &Path,
    (clock, ids): Sources,
) -> Result<Decider, CliError> {
    let desk = TeamDesk::on_file(folder, clock, ids).await;
    let desk = desk.map_err(|error| on_full_disk(folder, cannot_decide(&error)))?;
    let desk = Arc::new(desk);
    let (closing, looking) = (Arc::clone(&desk), Arc::clone(&desk));
    let looking = tokio::spawn(async move { looking.look_kept().await });
    Ok(Decider {
        authority: Arc::new(Team {
            desk,
            members: AnyStorage::Sqlite(members),
        }),
        stop: Box::new(move || {
            looking.abort();
            closing.stop();
        }),
    })
}

pub async fn on_database(
    members: PostgresStorage,
    schema: &str,
    folder: &Path,
    (clock, ids): Sources,
) -> Result<Decider, CliError> {
    let own = format!("{schema}{SCHEMA_SUFFIX}");
    let place = (members.effects_pool(), own.as_str());
    let desk = TeamDesk::on_database(place, folder, clock, ids).await;
    let desk = desk.map_err(|error| {
        let known = said_later(&error.to_string(), schema);
        known.unwrap_or_else(|| on_full_disk(folder, cannot_decide(&error)))
    })?;
    let desk = Arc::new(desk);
    let looking = tokio::spawn(look_again(Arc::clone(&desk)));
    Ok(Decider {
        authority: Arc::new(Team {
            desk,
            members: AnyStorage::Postgres(members),
        }),
        // Its connections are the broker's, and end with them.
        stop: Box::new(move || looking.abort()),
    })
}

/// What other brokers of the database have decided is remembered here too, so that a database that is put back is
/// noticed by whichever broker asks it next.
async fn look_again<S: EffectStorage + Clone>(desk: Arc<TeamDesk<S>>) {
    desk.look_kept().await;
    loop {
        tokio::time::sleep(LOOK).await;
        desk.look().await;
    }
}

/// Brings the tables of the effects up to date, as a start would.
pub async fn migrate(storage: &PostgresStorage, schema: &str) -> Result<(), CliError> {
    let own = format!("{schema}{SCHEMA_SUFFIX}");
    let migrated = TeamDesk::migrate((storage.effects_pool(), &own)).await;
    migrated.map_err(|error| {
        let known = said_later(&error.to_string(), schema);
        known.unwrap_or_else(|| cannot_decide(&error))
    })
}

fn cannot_decide(error: &EffectsError) -> CliError {
    CliError::new(exit::FAILED, error.to_string()).next(
        "Nothing was changed. Mend what it names: effects.toml in the data folder by hand, effects.db from a copy of the \
         folder; in PostgreSQL the user must be allowed to create a schema. Without it nobody can say which effects have \
         happened.",
    )
}

struct Team<D> {
    desk: Arc<TeamDesk<D>>,
    members: AnyStorage,
}

impl<D: EffectStorage + Clone> Team<D> {
    async fn ask(&self, principal: &Principal, asked: EffectAsked) -> ReplyResult {
        let EffectAsked {
            agent,
            id,
            seen,
            call,
        } = asked;
        // Who reads in a mesh that has long been here needs no right; a status names those who may decide.
        let needs_none = !call.is_change() && self.desk.is_settled(principal.mesh).await;
        let is_status = matches!(call, EffectCall::Status { .. });
        let standings = if needs_none && !is_status {
            None
        } else {
            match self.members.standings(principal.mesh).await {
                Ok(standings) => Some(standings),
                Err(_) if needs_none => None,
                Err(error) => return not_now(&error.to_string()),
            }
        };
        let deciders = standings
            .as_ref()
            .map(|all| deciders(all, &principal.member_name));
        let standings = standings.unwrap_or_default();
        let who = TeamCaller {
            mesh: principal.mesh,
            member: &principal.member_name,
            agent: &agent,
            may_decide: call.is_change() && decides(&standings, principal.member),
            deciders: deciders.unwrap_or_default(),
            founder: founder(&standings, principal.member),
        };
        self.desk.call(who, (id, seen), call).await
    }
}

impl<D: EffectStorage + Clone> EffectAuthority for Team<D> {
    fn call(
        &self,
        principal: Principal,
        asked: EffectAsked,
    ) -> Pin<Box<dyn Future<Output = ReplyResult> + Send + '_>> {
        Box::pin(async move { self.ask(&principal, asked).await })
    }
}

/// Whose home the mesh has moved from, and whether that is this member. One who is no owner any more, or is shut out,
/// has still been it: what was decided there is waited for.
fn founder(standings: &[Standing], member: MemberId) -> Option<(&MemberName, bool)> {
    let mut founders = standings.iter().filter(|standing| standing.is_founder);
    let founder = founders.next()?;
    Some((&founder.name, founder.member == member))
}

/// The owners of a mesh decide; where it has none, every member's person does.
fn decides(standings: &[Standing], member: MemberId) -> bool {
    let owners = standings.iter().filter(|standing| standing.is_owner());
    let mut owners = owners.map(|standing| standing.member).peekable();
    owners.peek().is_none() || owners.any(|owner| owner == member)
}

/// Those who decide, by their members' names; where everybody does, who asks is told of the person nearest by.
fn deciders(standings: &[Standing], asker: &MemberName) -> Vec<String> {
    let owners = standings.iter().filter(|standing| standing.is_owner());
    let owners: Vec<String> = owners.map(|it| format!("@{}", it.name)).collect();
    if owners.is_empty() {
        return vec![format!("@{asker}")];
    }
    owners
}

fn not_now(why: &str) -> ReplyResult {
    let problem = Problem::new(ErrorCode::StorageUnavailable, why)
        .next("Try again; the same call again is safe.");
    ReplyResult::EffectRefused {
        problem: Box::new(problem),
    }
}

#[cfg(test)]
mod tests {
    use heddle_core::clock::{Ids as _, ManualIds, WallMs};
    use heddle_core::membership::{MemberKey, Role};

    use super::*;

    #[test]
    fn owners_decide_and_everybody_where_there_is_none() {
        let ids = ManualIds::seeded(1);
        let [ann, bob, eve] = [0; 3].map(|_| MemberId(ids.ulid()));
        let standing = |member, role, revoked| Standing {
            member,
            name: MemberName::parse("x").unwrap(),
            role,
            key: MemberKey::from_seed([1; 32]).public(),
            enrolled_at: WallMs(1),
            revoked_at: Some(WallMs(2)).filter(|_| revoked),
            blocked_at: None,
            is_founder: false,
        };
        assert!(decides(&[], bob));
        let plain = [standing(ann, Role::Member, false)];
        assert!(decides(&plain, ann) && decides(&plain, bob));
        let owned = [
            standing(ann, Role::Owner, false),
            standing(bob, Role::Member, false),
            standing(eve, Role::Owner, true),
        ];
        assert!(decides(&owned, ann));
        let asker = MemberName::parse("zoe").unwrap();
        assert_eq!(deciders(&owned, &asker), ["@x"]);
        assert_eq!(deciders(&plain, &asker), ["@zoe"]);
        assert!(!decides(&owned, bob) && !decides(&owned, eve));
    }
}
