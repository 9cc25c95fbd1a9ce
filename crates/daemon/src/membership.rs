//! Who this home is in its meshes: from the config on the first start, from the store ever after.

use heddle_core::ids::{MemberId, MeshId};
use heddle_core::names::{MemberName, MeshName};
use heddle_store::{Mesh, NewMesh, Store, StoreError};

use crate::config::{HOME_MESH, MeshConfig};
use crate::home::Home;
use crate::run::{StartError, StartOptions};

pub(crate) fn home_mesh(home: &Home, options: &StartOptions) -> Result<NewMesh, StartError> {
    let member_name = match &home.config.daemon.member {
        Some(name) => name.clone(),
        None => MemberName::parse(&options.login).or_else(|_| MemberName::parse("me"))?,
    };
    Ok(NewMesh {
        mesh: MeshId(options.ids.ulid()),
        name: MeshName::parse(HOME_MESH)?,
        member: MemberId(options.ids.ulid()),
        member_name,
        broker_url: None,
        now: options.clock.wall(),
    })
}

/// The person's mailbox is called like the member: another name would leave its mail behind unseen.
pub(crate) fn refuse_another_name(home: &Home, mesh: &Mesh) -> Result<(), StartError> {
    match &home.config.daemon.member {
        Some(wanted) if *wanted != mesh.member_name => Err(StartError::AnotherName {
            wanted: wanted.clone(),
            known: mesh.member_name.clone(),
        }),
        _ => Ok(()),
    }
}

/// Elsewhere the name is only what others call us; the broker hears of it with the next hello.
pub(crate) async fn renamed(
    store: &Store,
    mesh: Mesh,
    wanted: Option<&MemberName>,
) -> Result<Mesh, StoreError> {
    let Some(wanted) = wanted.filter(|wanted| **wanted != mesh.member_name) else {
        return Ok(mesh);
    };
    store.rename_member(mesh.mesh, wanted.clone()).await?;
    tracing::info!(mesh = %mesh.name, was = %mesh.member_name, now = %wanted, "our member has another name");
    Ok(Mesh {
        member_name: wanted.clone(),
        ..mesh
    })
}

/// A mesh of the config, with a member of its own. Homes that name the same mesh mean the same mesh.
pub(crate) fn mesh_elsewhere(config: &MeshConfig, home: &Mesh, options: &StartOptions) -> NewMesh {
    NewMesh {
        mesh: MeshId::named(&config.name),
        name: config.name.clone(),
        member: MemberId(options.ids.ulid()),
        member_name: config
            .member
            .clone()
            .unwrap_or_else(|| home.member_name.clone()),
        broker_url: Some(config.url.clone()),
        now: options.clock.wall(),
    }
}
