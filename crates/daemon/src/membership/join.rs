//! Joining a mesh, step by step. A crash anywhere is mended by joining again with the same link: the key
//! is on disk before it is enrolled, the broker knows it again, and the config is written after that.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use heddle_core::error_code::ErrorCode;
use heddle_core::ids::MeshId;
use heddle_core::membership::{Invite, LinkError, MemberKey, SignedInvite};
use heddle_core::names::{AgentName, MemberName, MeshName};
use heddle_store::Mesh;
use heddle_wire::from_wire::invalid;
use heddle_wire::ipc::{MeshJoinAnswer, MeshJoinBody};
use heddle_wire::problem::Problem;

use super::claim::{self, Claimed};
use super::{Link, config_file, keys, of_config, rejoin};
use crate::config::{HOME_MESH, MeshConfig};
use crate::files::fetch;
use crate::link;
use crate::mesh::MeshState;
use crate::shared::{Shared, lock, store_problem};
use crate::sync;

/// How long the answer waits for the first connection; it is made in any case.
pub(super) const CONNECT_WAIT: Duration = Duration::from_secs(3);

/// Whoever joins: this home.
pub(crate) struct Joiner<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) home: PathBuf,
    /// Its person, and the mailboxes that every mesh of this home has.
    pub(crate) person: MemberName,
    pub(crate) agents: Vec<AgentName>,
}

pub(crate) async fn join(
    joiner: Joiner<'_>,
    body: MeshJoinBody,
) -> Result<MeshJoinAnswer, Problem> {
    let shared = joiner.shared;
    let link = SignedInvite::parse(&body.link).map_err(|error| {
        let problem = Problem::new(ErrorCode::InviteInvalid, error.to_string());
        match error {
            LinkError::Newer => problem.next("Update heddle in this home, then join again."),
            LinkError::NotALink | LinkError::Damaged => problem,
        }
    })?;
    claim::check_address(&link.invite)?;
    let ca_file = body.ca_file.map(PathBuf::from);
    claim::check_ca(&link.invite.url, ca_file.as_deref())?;
    let name = match body.name.as_deref() {
        Some(text) => {
            let text = text.strip_prefix('@').unwrap_or(text);
            MemberName::parse(text).map_err(|error| invalid(error.to_string()))?
        }
        None => joiner.person.clone(),
    };
    let wanted = match body.mesh.as_deref() {
        Some(text) => Some(MeshName::parse(text).map_err(|error| invalid(error.to_string()))?),
        None => None,
    };
    let _one = shared.joining.lock().await;
    let mut meshes = shared.meshes.iter();
    if let Some(there) = meshes.find(|m| m.mesh.mesh == link.invite.mesh) {
        return rejoin::rejoin(&joiner, there, &link, ca_file).await;
    }
    if shared.meshes.is_full() {
        return Err(invalid("this home has as many meshes as it can have"));
    }
    let known = shared.store.meshes().await;
    let known = known.map_err(|error| store_problem(&error))?;
    let mesh_name = local_name(&link.invite, wanted, &known)?;
    let before = known.iter().find(|mesh| mesh.mesh == link.invite.mesh);
    let key = own_key(&joiner, link.invite.mesh, before).await?;
    let claimed = claim::claim(&link, ca_file.as_deref(), &key, &name).await?;
    rejoin::refuse_somebody_else(before, &claimed)?;
    let config = MeshConfig {
        ca_file,
        ..config(&link.invite, mesh_name, &claimed)
    };
    // IMPORTANT: what a start would refuse is refused here, before the file names it. The row in the store
    // alone harms nobody: the same link joins again.
    let linked = link_of(&joiner, &config).await?;
    let (path, added) = (joiner.home.join("config.toml"), config.clone());
    let written = blocking(move || config_file::add(&path, &added)).await?;
    written.map_err(|why| {
        Problem::new(ErrorCode::Internal, why)
            .next("Mend the file and join again with the same link; that takes no further use.")
    })?;
    let state = begin(&joiner, linked).await?;
    let _ = tokio::time::timeout(CONNECT_WAIT, state.wait_connected()).await;
    tracing::info!(mesh = %state.mesh.name, member = %claimed.name, "joined a mesh");
    Ok(answer(&state, claimed.duplicate))
}

/// The key that the mesh knows this home by, or a new one where it never knew it.
async fn own_key(
    joiner: &Joiner<'_>,
    mesh: MeshId,
    before: Option<&Mesh>,
) -> Result<MemberKey, Problem> {
    let (home, ids) = (joiner.home.clone(), Arc::clone(&joiner.shared.ids));
    if let Some(before) = before {
        let file = home.join(keys::file_of(mesh));
        let is_there = blocking(move || file.symlink_metadata().is_ok()).await?;
        if !is_there {
            return Err(rejoin::key_lost(before));
        }
    }
    let key = blocking(move || keys::load_or_mint(&home, mesh, ids.as_ref())).await?;
    key.map_err(|error| io("the key cannot be kept", &error))
}

pub(super) fn answer(state: &MeshState, duplicate: bool) -> MeshJoinAnswer {
    MeshJoinAnswer {
        mesh: state.mesh.name.to_string(),
        member: state.mesh.member_name.to_string(),
        broker: state.broker(),
        mesh_id: state.mesh.mesh.to_string(),
        member_id: state.mesh.member.to_string(),
        duplicate,
        connected: state.is_connected(),
        next: None,
    }
}

/// What the mesh is called here: as asked for, or as the inviter calls it, or with the inviter's name
/// before it. One that this home was in before keeps its name.
fn local_name(
    invite: &Invite,
    wanted: Option<MeshName>,
    known: &[Mesh],
) -> Result<MeshName, Problem> {
    if let Some(mesh) = known.iter().find(|mesh| mesh.mesh == invite.mesh) {
        return Ok(mesh.name.clone());
    }
    let is_taken =
        |name: &MeshName| name.as_str() == HOME_MESH || known.iter().any(|mesh| mesh.name == *name);
    if let Some(wanted) = wanted {
        if !is_taken(&wanted) {
            return Ok(wanted);
        }
        return Err(taken(&wanted, first_free(&[wanted.to_string()], is_taken)));
    }
    let stem = format!("{}-{}", invite.inviter_name, invite.mesh_name);
    first_free(&[invite.mesh_name.to_string(), stem], is_taken)
        .ok_or_else(|| invalid("name the mesh with --as NAME"))
}

/// The first of these that is free, else the last of them with a number behind it.
pub(super) fn first_free(
    names: &[String],
    is_taken: impl Fn(&MeshName) -> bool,
) -> Option<MeshName> {
    let stem = names.last()?;
    let numbered = (2..1000).map(|number| format!("{stem}-{number}"));
    names
        .iter()
        .cloned()
        .chain(numbered)
        .filter_map(|text| MeshName::parse(&text).ok())
        .find(|name| !is_taken(name))
}

/// The name is another mesh's; one that is free is offered with the refusal (seed §9.4).
fn taken(wanted: &MeshName, free: Option<MeshName>) -> Problem {
    let detail = format!("a mesh of this home is called {wanted} already");
    let problem = Problem::new(ErrorCode::NameTaken, detail);
    match free {
        Some(free) => problem.with("suggestion", free.to_string()).next(format!(
            "Join with --as {free}, which is free, or with another name; nothing was changed."
        )),
        None => {
            problem.next("Choose another name for the mesh with --as NAME; nothing was changed.")
        }
    }
}

pub(super) fn config(invite: &Invite, name: MeshName, claimed: &Claimed) -> MeshConfig {
    MeshConfig {
        name,
        url: invite.url.clone(),
        token_file: None,
        ca_file: None,
        member: Some(claimed.name.clone()),
        id: Some(invite.mesh),
        broker_id: Some(invite.broker),
        member_id: Some(claimed.member),
        key_file: Some(keys::file_of(invite.mesh)),
    }
}

/// What the next start would make of the config.
async fn link_of(joiner: &Joiner<'_>, config: &MeshConfig) -> Result<Link, Problem> {
    let shared = joiner.shared;
    let sources = (shared.ids.as_ref(), shared.clock.as_ref());
    let linked = of_config(config, &joiner.home, &joiner.person, &shared.store, sources).await;
    linked.map_err(|error| {
        Problem::new(ErrorCode::Internal, error.to_string())
            .next("config.toml was not changed. Mend that and join again with the same link; that takes no further use.")
    })
}

/// A mesh that is new while the daemon runs: its mailboxes, its link, its sync.
pub(super) async fn begin(joiner: &Joiner<'_>, linked: Link) -> Result<Arc<MeshState>, Problem> {
    let shared = joiner.shared;
    let (mesh, now) = (linked.mesh.mesh, shared.clock.wall());
    for agent in &joiner.agents {
        let registered = shared.store.register_agent(mesh, agent.clone(), now).await;
        registered.map_err(|error| store_problem(&error))?;
    }
    let state = linked.load(&shared.store).await;
    let state = Arc::new(state.map_err(|error| store_problem(&error))?);
    if shared.meshes.push(Arc::clone(&state)) {
        let keep = link::keep(Arc::clone(shared), Arc::clone(&state));
        let syncing = sync::run(Arc::clone(shared), Arc::clone(&state));
        let fetching = fetch::run(Arc::clone(shared), Arc::clone(&state));
        let mut links = lock(&shared.links);
        links.push(tokio::spawn(keep));
        links.push(tokio::spawn(syncing));
        links.push(tokio::spawn(fetching));
    }
    Ok(state)
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))
}

fn io(what: &str, error: &std::io::Error) -> Problem {
    Problem::new(ErrorCode::Internal, format!("{what}: {error}"))
        .next("Mend that and join again with the same link; no use was taken.")
}

#[cfg(test)]
mod tests {
    use heddle_core::clock::WallMs;
    use heddle_core::ids::{BrokerId, InviteId, MemberId, MeshId};
    use heddle_core::membership::{MemberKey, Role};
    use ulid::Ulid;

    use super::*;

    fn invite(mesh_name: &str) -> Invite {
        Invite {
            broker: BrokerId(Ulid(1)),
            mesh: MeshId(Ulid(2)),
            invite: InviteId(Ulid(3)),
            inviter: MemberId(Ulid(4)),
            inviter_key: MemberKey::from_seed([1; 32]).public(),
            role: Role::Member,
            uses_max: 1,
            expires_at: WallMs(1),
            secret: [0; 32],
            mesh_name: MeshName::parse(mesh_name).unwrap(),
            inviter_name: MemberName::parse("alice").unwrap(),
            url: "ws://127.0.0.1:1/".to_owned(),
        }
    }

    fn known(name: &str, id: u128) -> Mesh {
        Mesh {
            mesh: MeshId(Ulid(id)),
            name: MeshName::parse(name).unwrap(),
            member: MemberId(Ulid(9)),
            member_name: MemberName::parse("bob").unwrap(),
            broker_url: None,
            created_at: WallMs(0),
        }
    }

    #[test]
    fn a_mesh_gets_a_name_that_is_free_in_this_home() {
        let name = |text: &str| MeshName::parse(text).unwrap();
        let home = [known("home", 7)];
        let pick = |invite: &Invite, wanted, known: &[Mesh]| {
            local_name(invite, wanted, known).map_err(|problem| problem.code)
        };
        assert_eq!(pick(&invite("team"), None, &home), Ok(name("team")));
        assert_eq!(pick(&invite("home"), None, &home), Ok(name("alice-home")));
        let both = [known("home", 7), known("alice-home", 8)];
        assert_eq!(pick(&invite("home"), None, &both), Ok(name("alice-home-2")));
        // One that was here before keeps its name, whatever is asked for.
        let before = [known("home", 7), known("ours", 2)];
        assert_eq!(
            pick(&invite("home"), Some(name("x")), &before),
            Ok(name("ours"))
        );
        assert_eq!(pick(&invite("home"), Some(name("x")), &home), Ok(name("x")));
        let taken = pick(&invite("x"), Some(name("home")), &[]);
        assert_eq!(taken, Err("name_taken".to_owned()));
        let both = [known("work", 7), known("work-2", 8)];
        let refused = local_name(&invite("x"), Some(name("work")), &both).unwrap_err();
        let shown = serde_json::to_value(&refused).unwrap();
        assert_eq!(shown["suggestion"], "work-3", "{shown}");
        assert!(shown["next"].as_str().unwrap().contains("--as work-3"));
    }

    #[test]
    fn a_link_leads_to_this_machine_or_over_tls_and_nowhere_else() {
        for (url, is_followed) in [
            ("ws://127.0.0.1:7/", true),
            ("ws://[::1]:7/", true),
            ("ws://localhost:7/", true),
            ("ws://192.0.2.1:7/", false),
            ("wss://127.0.0.1:7/", true),
            ("wss://broker.example:7443/", true),
            ("http://127.0.0.1:7/", false),
            ("https://broker.example/", false),
            ("", false),
        ] {
            let invite = Invite {
                url: url.to_owned(),
                ..invite("home")
            };
            assert_eq!(claim::check_address(&invite).is_ok(), is_followed, "{url}");
        }
    }
}
