//! What a member lets others send it. It speaks for itself alone: nobody else is asked, and nobody is told.

use heddle_core::error_code::ErrorCode;
use heddle_core::ids::MemberId;
use heddle_core::membership::{Capabilities, Capability, GrantChange};
use heddle_wire::broker::{GrantAsk, GrantEntry, ReplyResult};

use super::Shared;
use super::people::no;
use crate::limiter::Limiter;
use crate::members::Granted;
use crate::principal::Principal;
use crate::storage::{Storage, StorageError};

pub(super) async fn change<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    ask: &GrantAsk,
) -> Result<ReplyResult, StorageError> {
    let named = ask.capabilities.iter().map(|name| Capability::parse(name));
    let Some(named) = named.collect::<Option<Capabilities>>() else {
        let detail = "a capability is dm or topic";
        return Ok(no(ErrorCode::InvalidRequest, detail));
    };
    if ask.peer == principal.member {
        let detail = "a member withholds nothing from itself";
        return Ok(no(ErrorCode::InvalidRequest, detail));
    }
    let change = if ask.grant {
        GrantChange::Grant(named)
    } else {
        GrantChange::Revoke(named)
    };
    let (mesh, member) = (principal.mesh, principal.member);
    let changing = shared
        .storage()
        .change_grant(mesh, member, ask.peer, change);
    match changing.await {
        Ok(Granted {
            capabilities,
            changed,
        }) => {
            if changed {
                tracing::info!(%mesh, %member, peer = %ask.peer, ?change, "a member lets another send it other things");
            }
            Ok(ReplyResult::Granted(GrantEntry {
                changed,
                ..entry(ask.peer, capabilities)
            }))
        }
        Err(StorageError::UnknownMember(_)) => {
            Ok(no(ErrorCode::UnknownMember, "nobody here has this id"))
        }
        Err(error) => Err(error),
    }
}

pub(super) async fn list<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
) -> Result<ReplyResult, StorageError> {
    let storage = shared.storage();
    let rows = storage.grants(principal.mesh, principal.member).await?;
    let grants = rows.into_iter().map(|(peer, granted)| entry(peer, granted));
    Ok(ReplyResult::Grants {
        grants: grants.collect(),
    })
}

fn entry(peer: MemberId, capabilities: Capabilities) -> GrantEntry {
    let names = capabilities.list().map(|one| one.as_str().to_owned());
    GrantEntry {
        peer,
        capabilities: names.collect(),
        changed: false,
    }
}
