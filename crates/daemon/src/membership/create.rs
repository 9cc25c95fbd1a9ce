//! A further personal mesh of this home, hosted by its own broker. Its row is written first; whatever a crash leaves
//! out after that, the next start or the same call again does.

use std::path::Path;
use std::sync::Arc;

use heddle_core::clock::Ids;
use heddle_core::data::change_fingerprint;
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::{ClientMessageId, MemberId, MeshId};
use heddle_core::names::MeshName;
use heddle_store::{KeptInvite, Mesh, NewMesh, Store};
use heddle_wire::from_wire::invalid;
use heddle_wire::ipc::{MeshCreateAnswer, MeshCreateBody};
use heddle_wire::problem::Problem;
use serde_json::json;

use super::join::{CONNECT_WAIT, begin, blocking, first_free};
use super::{Joiner, Link, keys};
use crate::config::HOME_MESH;
use crate::effects::Effects;
use crate::link::{Connector, Hosted};
use crate::mesh::{Identity, MeshState};
use crate::shared::{Shared, store_problem};
use crate::start_error::StartError;

pub(crate) async fn create(
    creator: Joiner<'_>,
    effects: &Effects,
    body: &MeshCreateBody,
    key: Option<ClientMessageId>,
) -> Result<MeshCreateAnswer, Problem> {
    let shared = creator.shared;
    let name = MeshName::parse(&body.name).map_err(|error| invalid(error.to_string()))?;
    let _one = shared.joining.lock().await;
    let under = UnderKey::look_up(shared, key, &name).await?;
    if let Some(there) = shared.meshes.iter().find(|m| m.mesh.name == name) {
        if there.mesh.broker_url.is_some() {
            return Err(taken(shared, &name).await);
        }
        under.keep(shared).await?;
        return answer(shared, there, true).await;
    }
    let known = shared.store.meshes().await;
    let known = known.map_err(|error| store_problem(&error))?;
    let known = known.into_iter().find(|mesh| mesh.name == name);
    let is_resumed = known.is_some();
    if known.is_some_and(|mesh| mesh.broker_url.is_some()) {
        return Err(taken(shared, &name).await);
    }
    if shared.meshes.is_full() {
        return Err(invalid("this home has as many meshes as it can have"));
    }
    let connector = own_broker(shared)?;
    // IMPORTANT: behind everything that refuses, so that a refusal consumes nothing, and before the mesh is there.
    under.keep(shared).await?;
    let new = NewMesh {
        mesh: MeshId(shared.ids.ulid()),
        name,
        member: MemberId(shared.ids.ulid()),
        member_name: creator.person.clone(),
        broker_url: None,
        now: shared.clock.wall(),
    };
    let mesh = shared.store.ensure_mesh(new).await;
    let mesh = mesh.map_err(|error| store_problem(&error))?;
    let decided = effects.desks.host(mesh.mesh, mesh.member_name.clone());
    decided.await.map_err(|error| unfinished(&error))?;
    let (home, id, ids) = (creator.home.clone(), mesh.mesh, Arc::clone(&shared.ids));
    let key = blocking(move || keys::load_or_mint(&home, id, ids.as_ref())).await?;
    let key = key.map_err(|error| unfinished(&error))?;
    let link = at_own_broker(&connector, mesh, key, &shared.store).await;
    let link = link.map_err(|why| unfinished(&why))?;
    let state = match link {
        Some(link) => begin(&creator, link).await?,
        None => return Err(no_broker()),
    };
    let _ = tokio::time::timeout(CONNECT_WAIT, state.wait_connected()).await;
    tracing::info!(mesh = %state.mesh.name, "a further mesh of this home");
    answer(shared, &state, is_resumed).await
}

/// The request and its idempotency key, if it has one.
struct UnderKey(Option<(MeshId, ClientMessageId, KeptInvite)>);

impl UnderKey {
    /// Refused where the key stands for another request.
    async fn look_up(
        shared: &Shared,
        key: Option<ClientMessageId>,
        name: &MeshName,
    ) -> Result<Self, Problem> {
        let mut meshes = shared.meshes.iter();
        let home = meshes.find(|one| one.mesh.name.as_str() == HOME_MESH);
        let Some((key, home)) = key.zip(home.map(|home| home.mesh.mesh)) else {
            return Ok(Self(None));
        };
        let fingerprint = change_fingerprint("mesh.create", &json!({"name": name.as_str()}));
        let new = KeptInvite {
            fingerprint: fingerprint.map_err(|error| invalid(error.to_string()))?,
            made_at: shared.clock.wall(),
            link: String::new(),
        };
        let kept = shared.store.kept_invite(home, key.clone()).await;
        match kept.map_err(|error| store_problem(&error))? {
            Some(kept) if kept.fingerprint != new.fingerprint => Err(key_reused(&key, &kept)),
            _ => Ok(Self(Some((home, key, new)))),
        }
    }

    async fn keep(&self, shared: &Shared) -> Result<(), Problem> {
        let Some((home, key, new)) = self.0.clone() else {
            return Ok(());
        };
        let fingerprint = new.fingerprint;
        let kept = shared.store.keep_invite(home, key.clone(), new).await;
        let (kept, _) = kept.map_err(|error| store_problem(&error))?;
        // An invitation may have been quicker.
        if kept.fingerprint == fingerprint {
            Ok(())
        } else {
            Err(key_reused(&key, &kept))
        }
    }
}

/// The key of a request about meshes belongs to another one.
pub(crate) fn key_reused(key: &ClientMessageId, kept: &KeptInvite) -> Problem {
    let at = kept.made_at.to_rfc3339();
    let detail = format!("id {key} belongs to another request of {at}");
    Problem::new(ErrorCode::IdempotencyKeyReused, detail)
        .with("conflict", "request_fingerprint_mismatch")
        .with("client_message_id", key.to_string())
        .with("daemon_fingerprint_prefix", kept.fingerprint.prefix())
}

/// The broker that hosts this home's own meshes.
fn own_broker(shared: &Shared) -> Result<Arc<dyn Connector>, Problem> {
    shared.host.clone().ok_or_else(no_broker)
}

fn no_broker() -> Problem {
    invalid("this daemon has no broker of its own that could host a mesh").next(
        "Start it with `heddle up` and without a url under [broker]; or have the mesh made where its broker is, and \
         join it with `heddle mesh join`. Nothing was changed.",
    )
}

fn unfinished(why: &dyn std::fmt::Display) -> Problem {
    Problem::new(ErrorCode::Internal, format!("the mesh is not ready: {why}"))
        .next("Mend that and run the same command again; it goes on where it stopped.")
}

async fn taken(shared: &Shared, wanted: &MeshName) -> Problem {
    let detail = format!("a mesh that this home has joined is called {wanted} already");
    let problem = Problem::new(ErrorCode::NameTaken, detail);
    let known = shared.store.meshes().await.unwrap_or_default();
    let free = first_free(&[format!("{wanted}-2"), wanted.to_string()], |name| {
        known.iter().any(|mesh| mesh.name == *name)
    });
    match free {
        Some(free) => problem.with("suggestion", free.to_string()).next(format!(
            "Create it as {free}, which is free, or under another name."
        )),
        None => problem,
    }
}

async fn answer(
    shared: &Shared,
    state: &MeshState,
    duplicate: bool,
) -> Result<MeshCreateAnswer, Problem> {
    let head = shared.store.sync_head(state.mesh.mesh).await;
    let head = head.map_err(|error| store_problem(&error))?;
    Ok(MeshCreateAnswer {
        mesh: state.mesh.name.to_string(),
        mesh_id: state.mesh.mesh.to_string(),
        member: state.mesh.member_name.to_string(),
        member_id: state.mesh.member.to_string(),
        kind: head.kind.as_str().to_owned(),
        duplicate,
    })
}

/// Has the home's own broker host the mesh; `None` where there is no such broker.
async fn at_own_broker(
    connector: &Arc<dyn Connector>,
    mesh: Mesh,
    key: heddle_core::membership::MemberKey,
    store: &Store,
) -> Result<Option<Link>, String> {
    let seen = store.history_seen(mesh.mesh).await;
    let hosted = Hosted {
        mesh: mesh.clone(),
        key: key.public(),
        seen: seen.map_err(|error| error.to_string())?,
    };
    let Some(hosting) = connector.host(hosted) else {
        return Ok(None);
    };
    let connector = hosting.await.map_err(|error| error.to_string())?;
    Ok(Some(Link {
        mesh,
        connector,
        identity: Identity {
            key: Some(Arc::new(key)),
            pinned: None,
        },
    }))
}

/// A mesh that was created before, at a start. `None` where this daemon has no broker of its own.
pub(crate) async fn host(
    connector: &Arc<dyn Connector>,
    mesh: Mesh,
    (home, ids): (&Path, &dyn Ids),
    effects: &Effects,
    store: &Store,
) -> Result<Option<Link>, StartError> {
    if !connector.hosts() {
        tracing::warn!(mesh = %mesh.name, "not served: this daemon has no broker of its own");
        return Ok(None);
    }
    let name = mesh.name.to_string();
    let unusable = |why: String| StartError::Mesh {
        mesh: name.clone(),
        why,
    };
    let key = keys::load_or_mint(home, mesh.mesh, ids)
        .map_err(|why| unusable(format!("{}: {why}", keys::file_of(mesh.mesh).display())))?;
    let person = mesh.member_name.clone();
    effects.desks.host(mesh.mesh, person).await?;
    let link = at_own_broker(connector, mesh, key, store).await;
    link.map_err(unusable)
}
