//! The meshes that a home is linked to, as its config and its store know them.

use std::path::Path;
use std::sync::Arc;

use heddle_core::clock::{Clock, Ids};
use heddle_core::ids::{MemberId, MeshId};
use heddle_core::names::{MemberName, MeshName};
use heddle_store::{Mesh, NewMesh, Store, StoreError};

use super::keys;
use super::names::renamed;
use crate::config::{HOME_MESH, MeshConfig};
use crate::home::Home;
use crate::link::{Connector, UrlConnector};
use crate::mesh::{Identity, MeshState};
use crate::start_error::StartError;

/// A mesh, the way to its broker, and who we are there.
pub(crate) struct Link {
    pub(crate) mesh: Mesh,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) identity: Identity,
}

impl Link {
    pub(crate) async fn load(self, store: &Store) -> Result<MeshState, StoreError> {
        let label = self.connector.label();
        let state = MeshState::load(self.mesh, label, store).await?;
        Ok(state.with(self.identity, self.connector))
    }
}

/// The personal mesh, as it is on the first start.
pub(crate) fn home_mesh(
    home: &Home,
    login: &str,
    ids: &dyn Ids,
    clock: &dyn Clock,
) -> Result<NewMesh, StartError> {
    let member_name = match &home.config.daemon.member {
        Some(name) => name.clone(),
        None => MemberName::parse(login).or_else(|_| MemberName::parse("me"))?,
    };
    Ok(NewMesh {
        mesh: MeshId(ids.ulid()),
        name: MeshName::parse(HOME_MESH)?,
        member: MemberId(ids.ulid()),
        member_name,
        broker_url: None,
        now: clock.wall(),
    })
}

/// A mesh of the config. One that was joined brings its ids and its key; homes that merely name the
/// same mesh mean the same mesh, each with a member of its own.
pub(crate) async fn of_config(
    config: &MeshConfig,
    folder: &Path,
    member_name: &MemberName,
    store: &Store,
    (ids, clock): (&dyn Ids, &dyn Clock),
) -> Result<Link, StartError> {
    let new = NewMesh {
        mesh: config.id.unwrap_or_else(|| MeshId::named(&config.name)),
        name: config.name.clone(),
        member: config.member_id.unwrap_or_else(|| MemberId(ids.ulid())),
        member_name: config.member.clone().unwrap_or_else(|| member_name.clone()),
        broker_url: Some(config.url.clone()),
        now: clock.wall(),
    };
    let unusable = |why: String| StartError::Mesh {
        mesh: config.name.to_string(),
        why,
    };
    let key = match &config.key_file {
        None => None,
        Some(file) => {
            let path = folder.join(file);
            let key = keys::load(&path);
            let key = key.map_err(|why| unusable(format!("{}: {why}", path.display())))?;
            Some(Arc::new(key))
        }
    };
    let mesh = store.ensure_mesh(new.clone()).await?;
    // One with the very ids has moved there.
    if mesh.broker_url.is_none() && config.id != Some(mesh.mesh) {
        return Err(unusable(
            "a mesh of this home's own is called so already; give the one in config.toml another name"
                .to_owned(),
        ));
    }
    let is_other = mesh.mesh != new.mesh || mesh.member != new.member;
    if config.id.is_some() && is_other {
        return Err(unusable(
            "this home knows another mesh, or was another member, under this name; give the mesh another name"
                .to_owned(),
        ));
    }
    let mesh = renamed(store, mesh, config.member.as_ref()).await?;
    let token_file = config.token_file.as_ref().map(|file| folder.join(file));
    let ca_file = config.ca_file.as_ref().map(|file| folder.join(file));
    let connector = UrlConnector::new(&config.url)
        .with_token_file(token_file)
        .with_ca_file(ca_file);
    Ok(Link {
        mesh,
        connector: Arc::new(connector),
        identity: Identity {
            key,
            pinned: config.broker_id,
        },
    })
}
