//! What an owner changes about a member: its role, whether it is heard, whether it belongs at all.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_core::error_code::ErrorCode;
use heddle_core::membership::Role;
use heddle_core::names::nfc;
use heddle_wire::broker::{MemberEntry, ReplyResult, Request as Ask};
use heddle_wire::from_wire::invalid;
use heddle_wire::ipc::{
    MeshBlockBody, MeshGrantBody, MeshRevokeAnswer, MeshRevokeBody, MeshStandingAnswer,
};
use heddle_wire::problem::Problem;

use super::mesh::{members, strange};
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::membership::Missed;
use crate::mesh::MeshState;

pub(super) async fn revoke(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: MeshRevokeBody = body::read(&parts, incoming).await?;
    let mesh = ipc.shared.mesh(body.mesh.as_deref())?;
    let found = match find(mesh, &body.member).await {
        Ok(found) => found,
        // Whom the broker has lost is forgotten here as well.
        Err(unknown) if unknown.known_code() == Some(ErrorCode::UnknownMember) => {
            let forgotten = forget(&ipc, mesh, &body.member).await;
            return ok(&forgotten.ok_or(unknown)?);
        }
        Err(problem) => return Err(problem.into()),
    };
    let request = Ask::RevokeMember {
        member: found.member,
    };
    let changed = change(&ipc, mesh, request)
        .await
        .map_err(|problem| about(mesh, &found, problem))?;
    ok(&MeshRevokeAnswer {
        duplicate: false,
        member: found.name.to_string(),
        member_id: found.member.to_string(),
        mesh: mesh.mesh.name.to_string(),
        changed,
    })
}

pub(super) async fn block(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: MeshBlockBody = body::read(&parts, incoming).await?;
    let mesh = ipc.shared.mesh(body.mesh.as_deref())?;
    let found = find(mesh, &body.member).await?;
    let request = Ask::BlockMember {
        member: found.member,
    };
    let changed = change(&ipc, mesh, request)
        .await
        .map_err(|problem| about(mesh, &found, problem))?;
    let role = found.role.clone();
    ok(&standing(mesh, &found, role, (true, changed)))
}

pub(super) async fn grant(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: MeshGrantBody = body::read(&parts, incoming).await?;
    let Some(role) = Role::parse(&body.role) else {
        return Err(invalid(format!("no role is called {:?}", body.role))
            .next("Grant `owner` or `member`.")
            .into());
    };
    let mesh = ipc.shared.mesh(body.mesh.as_deref())?;
    let found = find(mesh, &body.member).await?;
    let request = Ask::GrantMember {
        member: found.member,
        role: role.as_str().to_owned(),
    };
    let changed = change(&ipc, mesh, request).await?;
    let role = role.as_str().to_owned();
    ok(&standing(mesh, &found, role, (false, changed)))
}

/// A member that the broker has lost is forgotten here as well.
async fn forget(ipc: &Ipc, mesh: &MeshState, wanted: &str) -> Option<MeshRevokeAnswer> {
    let wanted = nfc(wanted.strip_prefix('@').unwrap_or(wanted));
    let missed = mesh.standing.missed();
    let is_it = |one: &Missed| one.name.as_str() == wanted || one.member.to_string() == wanted;
    let one = missed.into_iter().find(is_it)?;
    mesh.standing.forget(is_it);
    mesh.note_changed(&ipc.shared).await;
    Some(MeshRevokeAnswer {
        duplicate: false,
        member: one.name.to_string(),
        member_id: one.member.to_string(),
        mesh: mesh.mesh.name.to_string(),
        changed: true,
    })
}

fn standing(
    mesh: &MeshState,
    found: &MemberEntry,
    role: String,
    (blocked, changed): (bool, bool),
) -> MeshStandingAnswer {
    MeshStandingAnswer {
        duplicate: false,
        member: found.name.to_string(),
        member_id: found.member.to_string(),
        mesh: mesh.mesh.name.to_string(),
        role,
        blocked,
        changed,
    }
}

/// Asks for a change. Who is answered writes to nobody who was shut out by it.
async fn change(ipc: &Ipc, mesh: &MeshState, request: Ask) -> Result<bool, Problem> {
    let ReplyResult::Ok { changed } = mesh.ask(request).await? else {
        return Err(strange());
    };
    mesh.ask_for_roster(&ipc.shared).await;
    Ok(changed)
}

/// Whoever is an owner and means itself need not ask one: it is that owner who stands in the way.
fn about(mesh: &MeshState, found: &MemberEntry, problem: Problem) -> Problem {
    let is_own = found.member == mesh.mesh.member && found.role == Role::Owner.as_str();
    if !is_own || problem.known_code() != Some(ErrorCode::NotOwner) {
        return problem;
    }
    problem.next(
        "This home is that owner. Make somebody else an owner with `heddle mesh grant NAME owner`, then have that one make this \
         home a member; the home that hosts a mesh stays its owner. Nothing was changed.",
    )
}

/// A member by its name or its id; the broker knows them.
async fn find(mesh: &MeshState, wanted: &str) -> Result<MemberEntry, Problem> {
    let wanted = nfc(wanted.strip_prefix('@').unwrap_or(wanted));
    let entries = members(mesh).await?;
    let names: Vec<String> = entries.iter().map(|entry| entry.name.to_string()).collect();
    let found = entries
        .into_iter()
        .find(|entry| entry.name.as_str() == wanted || entry.member.to_string() == wanted);
    found.ok_or_else(|| {
        let detail = format!("nobody in mesh {} is called {wanted:?}", mesh.mesh.name);
        Problem::new(ErrorCode::UnknownMember, detail).with("candidates", names)
    })
}
