//! What this home is called in its meshes: from the config on the first start, from the store ever after.

use heddle_core::names::MemberName;
use heddle_store::{Mesh, Store, StoreError};

use crate::home::Home;
use crate::start_error::StartError;

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
