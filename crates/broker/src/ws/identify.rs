//! Who a hello comes from: what the transport proved, or what the signature proves.

use heddle_core::membership::{HelloProof, Nonce, Proof, Proven, Signature, admit};

use super::Shared;
use super::ending::Ending;
use super::hello::refuse;
use crate::limiter::Limiter;
use crate::members::{Credentials, Standing};
use crate::principal::{Claim, Principal};
use crate::storage::{Storage, StorageError};

/// Who a hello says that it comes from.
pub(super) struct Said {
    pub(super) principal: Principal,
    pub(super) signature: Option<Signature>,
}

pub(super) async fn identify<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    claim: &Claim,
    nonce: Nonce,
    said: Said,
) -> Result<Principal, Ending> {
    let Principal { mesh, member, .. } = said.principal;
    let proven = match claim {
        // The name is not compared: the one that was proven counts.
        Claim::Member(proven) if (proven.mesh, proven.member) == (mesh, member) => {
            return Ok(proven.clone());
        }
        Claim::Member(_) => return Err(Ending::IdentityMismatch),
        Claim::Bearer(_) => Proven::Bearer,
        Claim::Stranger => Proven::Nothing,
    };
    let credentials = match shared.storage().credentials(mesh, member).await {
        // A stranger does not learn which meshes are here; a bearer may make one.
        Err(StorageError::UnknownMesh(_)) => Credentials {
            mesh_has_keys: false,
            standing: None,
        },
        other => other.map_err(refuse)?,
    };
    let signed = HelloProof {
        broker: shared.broker_id().await.map_err(refuse)?,
        mesh,
        member,
        nonce,
    };
    let standing = credentials.standing;
    let proof = Proof::of(
        said.signature,
        standing.as_ref().map(|standing| standing.key),
        |key, signature| signed.is_signed_by(key, &signature),
    );
    let bar = standing.as_ref().and_then(Standing::bar);
    admit(proven, credentials.mesh_has_keys, proof, bar).map_err(|denied| {
        metrics::counter!("heddle_broker_hellos_denied_total", "reason" => denied.to_string())
            .increment(1);
        tracing::warn!(%mesh, %member, %denied, "a hello was turned away");
        Ending::Denied(denied)
    })?;
    Ok(match standing {
        // The name under which it was enrolled counts.
        Some(standing) => Principal {
            member_name: standing.name,
            ..said.principal
        },
        None => said.principal,
    })
}
