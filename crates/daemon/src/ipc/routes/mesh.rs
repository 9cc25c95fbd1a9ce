//! Meshes: which there are, who is in them, creating, inviting, joining.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use heddle_core::clock::WallMs;
use heddle_core::data::change_fingerprint;
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::{ClientMessageId, InviteId, MemberId};
use heddle_core::limits::{INVITE_LIFE_DEFAULT, INVITE_LIFE_MAX, INVITE_USES_MAX};
use heddle_core::membership::{Invite, Role, SignedInvite};
use heddle_core::names::{MemberName, MeshName};
use heddle_store::KeptInvite;
use heddle_wire::broker::{MemberEntry, ReplyResult, Request as Ask};
use heddle_wire::from_wire::invalid;
use heddle_wire::ipc::{
    Finding, MeshCreateBody, MeshInfo, MeshInviteAnswer, MeshInviteBody, MeshJoinBody, MeshList,
    MeshMember, MeshView,
};
use heddle_wire::problem::Problem;
use serde::Deserialize;
use serde_json::json;

use super::send::idempotency_key;
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::membership::{self, Joiner};
use crate::mesh::MeshState;
use crate::shared::{Shared, store_problem};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InfoQuery {
    mesh: Option<String>,
}

fn view(mesh: &MeshState) -> MeshView {
    MeshView {
        mesh: mesh.mesh.name.to_string(),
        mesh_id: mesh.mesh.mesh.to_string(),
        member: mesh.mesh.member_name.to_string(),
        member_id: mesh.mesh.member.to_string(),
        broker: mesh.broker(),
        connected: mesh.is_answering(),
    }
}

pub(super) async fn list(State(ipc): State<Arc<Ipc>>) -> Answered {
    ok(&MeshList {
        meshes: ipc.shared.meshes.iter().map(|mesh| view(mesh)).collect(),
    })
}

pub(super) async fn info(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: InfoQuery = body::query(&request.into_parts().0)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    let ((entries, name_at_broker), stale) = match roll(mesh).await {
        Ok(roll) => (roll, false),
        Err(problem) if problem.known_code() == Some(ErrorCode::NotConnected) => {
            ((Vec::new(), None), true)
        }
        Err(problem) => return Err(problem.into()),
    };
    let own = mesh.mesh.member;
    let gone = entries.iter().filter(|entry| entry.revoked_at.is_some());
    mesh.note_past(gone.map(|entry| (entry.member, entry.name.clone())));
    let members: Vec<MeshMember> = entries.iter().map(|entry| member(entry, own)).collect();
    let mine = members.iter().find(|member| member.own);
    let view = view(mesh);
    ok(&MeshInfo {
        mesh: view.mesh,
        mesh_id: view.mesh_id,
        member: view.member,
        member_id: view.member_id,
        broker: view.broker,
        name_at_broker: name_at_broker.map(|name| name.to_string()),
        connected: view.connected,
        url: mesh.reach(),
        broker_id: mesh.broker_id().map(|id| id.to_string()),
        role: mine.map(|member| member.role.clone()),
        members,
        stale,
    })
}

fn member(entry: &MemberEntry, own: MemberId) -> MeshMember {
    let shown = |at: i64| WallMs(at).to_rfc3339();
    MeshMember {
        member: entry.name.to_string(),
        member_id: entry.member.to_string(),
        role: entry.role.clone(),
        key_fingerprint: entry.key.fingerprint(),
        enrolled_at: shown(entry.enrolled_at),
        revoked_at: entry.revoked_at.map(shown),
        blocked_at: entry.blocked_at.map(shown),
        online: entry.online,
        last_seen: entry.since.map(shown),
        own: entry.member == own,
    }
}

pub(super) async fn members(mesh: &MeshState) -> Result<Vec<MemberEntry>, Problem> {
    roll(mesh).await.map(|(members, _)| members)
}

/// The members of the mesh, and what its broker calls it, if that one tells.
async fn roll(mesh: &MeshState) -> Result<(Vec<MemberEntry>, Option<MeshName>), Problem> {
    match mesh.ask(Ask::Members).await? {
        ReplyResult::Members { mesh, members } => Ok((members, mesh)),
        _ => Err(strange()),
    }
}

pub(super) fn strange() -> Problem {
    Problem::new(
        ErrorCode::Internal,
        "the broker's answer was not understood",
    )
}

/// Makes a link and has the broker keep it. The link leaves the daemon once, in this answer.
pub(super) async fn invite(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: MeshInviteBody = body::read(&parts, incoming).await?;
    let mesh = ipc.shared.mesh(body.mesh.as_deref())?;
    let signed = sign(&ipc, mesh, &body)?;
    let (signed, duplicate) = match idempotency_key(&parts.headers)? {
        Some(key) => under_key(&ipc, mesh, &body, &key, signed).await?,
        None => (signed, false),
    };
    // Before anybody can join: what they read from then on is whole (DESIGN §5).
    let published = super::publish::begin(&ipc, mesh).await?;
    let link = signed.link();
    let create = Ask::CreateInvite { link: link.clone() };
    match mesh.ask(create).await? {
        ReplyResult::Ok { .. } => {}
        _ => return Err(strange().into()),
    }
    ok(&MeshInviteAnswer {
        link,
        mesh: mesh.mesh.name.to_string(),
        invite_id: signed.invite.invite.to_string(),
        uses: signed.invite.uses_max,
        expires_at: signed.invite.expires_at.to_rfc3339(),
        published,
        duplicate,
    })
}

/// The invitation that this key stands for: the new one if the key is free. IMPORTANT: kept before the
/// broker hears of it, so that a retry tells it of the same one again.
async fn under_key(
    ipc: &Ipc,
    mesh: &MeshState,
    body: &MeshInviteBody,
    key: &str,
    signed: SignedInvite,
) -> Result<(SignedInvite, bool), Problem> {
    let key = ClientMessageId::parse(key).map_err(|error| invalid(error.to_string()))?;
    let fields = json!({"uses": signed.invite.uses_max, "expires_seconds": body.expires_seconds});
    let fingerprint = change_fingerprint("mesh.invite", &fields);
    let fingerprint = fingerprint.map_err(|error| invalid(error.to_string()))?;
    let new = KeptInvite {
        fingerprint,
        made_at: ipc.shared.clock.wall(),
        link: signed.link(),
    };
    let kept = ipc
        .shared
        .store
        .keep_invite(mesh.mesh.mesh, key.clone(), new);
    let (kept, is_new) = kept.await.map_err(|error| store_problem(&error))?;
    if is_new {
        return Ok((signed, false));
    }
    if kept.fingerprint != fingerprint {
        return Err(membership::key_reused(&key, &kept));
    }
    let before = SignedInvite::parse(&kept.link);
    let before = before.map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))?;
    Ok((before, true))
}

fn sign(ipc: &Ipc, mesh: &MeshState, body: &MeshInviteBody) -> Result<SignedInvite, Problem> {
    let uses_max = body.uses.unwrap_or(1);
    if !(1..=INVITE_USES_MAX).contains(&uses_max) {
        return Err(invalid(format!(
            "uses is {uses_max}; an invitation is for 1 to {INVITE_USES_MAX}"
        )));
    }
    let life = body.expires_seconds.map(Duration::from_secs);
    let life = life.unwrap_or(INVITE_LIFE_DEFAULT);
    if life.is_zero() || life > INVITE_LIFE_MAX {
        let days = INVITE_LIFE_MAX.as_secs() / 86_400;
        return Err(invalid(format!(
            "an invitation lasts at least a second and at most {days} days"
        )));
    }
    let not_owner = |detail: &str| Problem::new(ErrorCode::NotOwner, detail);
    let Some(key) = &mesh.identity.key else {
        return Err(not_owner("this home has no key in the mesh"));
    };
    let Some(broker) = mesh.broker_id() else {
        return Err(Problem::new(
            ErrorCode::NotConnected,
            "the broker has not said yet who it is",
        ));
    };
    let Some(url) = mesh.reach() else {
        let why = mesh.trouble();
        let why = why.unwrap_or_else(|| "its broker cannot be reached by others".to_owned());
        return Err(Problem::new(ErrorCode::NotConnected, why));
    };
    let millis = i64::try_from(life.as_millis()).unwrap_or(i64::MAX);
    let mut secret = [0; 32];
    ipc.shared.ids.fill(&mut secret);
    let invite = Invite {
        broker,
        mesh: mesh.mesh.mesh,
        invite: InviteId(ipc.shared.ids.ulid()),
        inviter: mesh.mesh.member,
        inviter_key: key.public(),
        role: Role::Member,
        uses_max,
        expires_at: WallMs(ipc.shared.clock.wall().0.saturating_add(millis)),
        secret,
        mesh_name: mesh.mesh.name.clone(),
        inviter_name: mesh.mesh.member_name.clone(),
        url,
    };
    Ok(SignedInvite::sign(invite, key))
}

pub(super) async fn join(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: MeshJoinBody = body::read(&parts, incoming).await?;
    ok(&membership::join(joiner(&ipc)?, body).await?)
}

pub(super) async fn create(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: MeshCreateBody = body::read(&parts, incoming).await?;
    let key = idempotency_key(&parts.headers)?;
    let key = key.as_deref().map(ClientMessageId::parse).transpose();
    let key = key.map_err(|error| invalid(error.to_string()))?;
    ok(&membership::create(joiner(&ipc)?, &ipc.effects, &body, key).await?)
}

/// This home, as one that gets a further mesh.
fn joiner(ipc: &Ipc) -> Result<Joiner<'_>, Problem> {
    let person = MemberName::parse(ipc.person.as_str());
    Ok(Joiner {
        shared: &ipc.shared,
        home: ipc.home.clone(),
        person: person.map_err(|error| invalid(error.to_string()))?,
        agents: vec![ipc.person.clone(), ipc.default_agent.clone()],
    })
}

/// The members that this home has seen in the mesh it hosts, and that its broker does not know any more.
pub(super) async fn lost(shared: &Shared, mesh: &MeshState) -> Vec<String> {
    if mesh.standing.missed().is_empty() {
        return Vec::new();
    }
    // Whoever was shut out is not lost; the broker knows that of it.
    if let Ok(entries) = members(mesh).await
        && mesh.standing.found(&entries)
    {
        mesh.note_changed(shared).await;
    }
    let missed = mesh.standing.missed();
    missed.iter().map(|one| one.name.to_string()).collect()
}

/// What the doctor says of the members of a mesh that is hosted here.
pub(super) async fn members_finding(shared: &Shared, mesh: &MeshState) -> Finding {
    let lost = lost(shared, mesh).await;
    let check = format!("members of mesh {}", mesh.mesh.name);
    if lost.is_empty() {
        return Finding {
            check,
            ok: true,
            says: "the broker knows everybody who was seen here".to_owned(),
            next: String::new(),
        };
    }
    Finding {
        check,
        ok: false,
        says: format!(
            "the broker does not know @{} any more: broker.db is another one than before, and they are not let in",
            lost.join(", @")
        ),
        next: format!(
            "With a backup: `heddle down`, then `heddle daemon restore FILE --only broker`. Without: `heddle mesh invite --mesh {mesh}` for each of them, who joins again as before; `heddle mesh revoke NAME` forgets one.",
            mesh = mesh.mesh.name
        ),
    }
}
