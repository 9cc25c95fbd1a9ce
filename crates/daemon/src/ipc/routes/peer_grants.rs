//! What this home lets its peers send it: grant, revoke, block. The broker asks at accept.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::MemberId;
use heddle_core::membership::Capability;
use heddle_core::names::nfc;
use heddle_wire::broker::{GrantAsk, GrantEntry, ReplyResult, Request as Ask};
use heddle_wire::from_wire::invalid;
use heddle_wire::ipc::{PeerGrantBody, PeerGrantList, PeerGrantView};
use heddle_wire::problem::Problem;

use super::mesh::strange;
use super::peers::ListQuery;
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;

pub(super) async fn grant(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    change(&ipc, request, Verb::Grant).await
}

pub(super) async fn revoke(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    change(&ipc, request, Verb::Revoke).await
}

pub(super) async fn block(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    change(&ipc, request, Verb::Block).await
}

pub(super) async fn list(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: ListQuery = body::query(&request.into_parts().0)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    let ReplyResult::Grants { grants } = mesh.ask(Ask::Grants).await? else {
        return Err(strange().into());
    };
    ok(&PeerGrantList {
        mesh: mesh.mesh.name.to_string(),
        grants: grants.into_iter().map(|one| view(mesh, one)).collect(),
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Grant,
    Revoke,
    Block,
}

async fn change(ipc: &Ipc, request: Request, verb: Verb) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: PeerGrantBody = body::read(&parts, incoming).await?;
    let capabilities = named(&body.capabilities, verb)?;
    let mesh = ipc.shared.mesh(body.mesh.as_deref())?;
    let ask = GrantAsk {
        peer: find(mesh, &body.peer)?,
        grant: verb == Verb::Grant,
        capabilities: capabilities
            .iter()
            .map(|one| one.as_str().to_owned())
            .collect(),
    };
    let ReplyResult::Granted(entry) = mesh.ask(Ask::ChangeGrant(ask)).await? else {
        return Err(strange().into());
    };
    ok(&view(mesh, entry))
}

/// Which capabilities are meant: those that were named, or all of them.
fn named(names: &[String], verb: Verb) -> Result<Vec<Capability>, Problem> {
    if names.is_empty() {
        return Ok(Capability::ALL.to_vec());
    }
    if verb == Verb::Block {
        return Err(invalid("a block takes every capability; name none").next(
            "To withhold one of them, use `heddle revoke PEER dm` or `heddle revoke PEER topic`.",
        ));
    }
    let one = |name: &String| {
        Capability::parse(name).ok_or_else(|| {
            invalid(format!("no capability is called {name:?}"))
                .next("Name `dm`, `topic`, or none for both.")
        })
    };
    names.iter().map(one).collect()
}

/// A member by its name or its id. Grants are between members, and cover all mailboxes of both.
fn find(mesh: &MeshState, wanted: &str) -> Result<MemberId, Problem> {
    let called = nfc(wanted.strip_prefix('@').unwrap_or(wanted));
    let called = called.as_str();
    let unknown = |detail: String, names: Vec<String>| {
        Problem::new(ErrorCode::UnknownMember, detail).with("candidates", names)
    };
    mesh.with_known(|known| {
        let members = || {
            let others = known.roster.members.iter();
            others.filter(|one| one.member != known.own_member)
        };
        if called == known.own_name.as_str() || called == known.own_member.to_string() {
            return Err(invalid("that is this home itself")
                .next("Name another member; `heddle peers` shows who is in the mesh."));
        }
        let found: Vec<MemberId> = members()
            .filter(|one| known.is_called(one.member, called) || one.member.to_string() == called)
            .map(|one| one.member)
            .collect();
        let names = members().map(|one| known.called(one.member, &one.name));
        match found.as_slice() {
            [one] => Ok(*one),
            [] => {
                let mut detail = format!("nobody in mesh {} is called {called:?}", mesh.mesh.name);
                if called.contains('/') {
                    detail.push_str("; grants are between members, without the agent");
                }
                Err(unknown(detail, names.collect()))
            }
            several => {
                let several: Vec<String> = several.iter().map(ToString::to_string).collect();
                Err(unknown(
                    format!("{called:?} is the name of several members; use an id"),
                    several,
                ))
            }
        }
    })
}

fn view(mesh: &MeshState, entry: GrantEntry) -> PeerGrantView {
    let peer = mesh.with_known(|known| {
        let name = known.member_name(entry.peer);
        name.map_or_else(
            || entry.peer.to_string(),
            |name| known.called(entry.peer, name),
        )
    });
    PeerGrantView {
        duplicate: false,
        peer,
        peer_id: entry.peer.to_string(),
        mesh: mesh.mesh.name.to_string(),
        blocked: entry.capabilities.is_empty(),
        capabilities: entry.capabilities,
        changed: entry.changed,
    }
}
