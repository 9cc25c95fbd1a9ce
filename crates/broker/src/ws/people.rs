//! What members ask about members: invitations, who is enrolled, who is shut out.

use std::collections::BTreeMap;

use heddle_core::clock::WallMs;
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::MemberId;
use heddle_core::limits::INVITE_LIFE_MAX;
use heddle_core::membership::{Bar, Change, ChangeVerdict, Role, SignedInvite};
use heddle_wire::broker::{MemberEntry, ReplyResult};

use super::Shared;
use crate::accept::{Refusal, refused};
use crate::limiter::Limiter;
use crate::members::{NewInvite, RevokeVerdict, Standing};
use crate::principal::Principal;
use crate::storage::{Storage, StorageError};

pub(super) fn no(code: ErrorCode, detail: &str) -> ReplyResult {
    ReplyResult::Refused(refused(Refusal::new(code, detail)))
}

/// Keeps an invitation that its owner signed, if it is one for here and for a time that makes sense.
pub(super) async fn create_invite<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    link: &str,
) -> Result<ReplyResult, StorageError> {
    let Ok(signed) = SignedInvite::parse(link) else {
        return Ok(no(ErrorCode::InviteInvalid, "the link is not whole"));
    };
    let invite = &signed.invite;
    let broker = shared.broker_id().await?;
    let credentials = shared
        .storage()
        .credentials(principal.mesh, principal.member)
        .await?;
    let Some(owner) = credentials.standing.filter(Standing::is_owner) else {
        let detail = if credentials.mesh_has_keys {
            "only an owner invites to this mesh"
        } else {
            "this mesh has no owner: its members come with the broker's token"
        };
        return Ok(no(ErrorCode::NotOwner, detail));
    };
    let now = shared.accept.clock.wall();
    let last = after(now, INVITE_LIFE_MAX);
    let is_for_here = (invite.broker, invite.mesh) == (broker, principal.mesh);
    let is_own = (invite.inviter, invite.inviter_key) == (owner.member, owner.key);
    let is_timely = invite.expires_at > now && invite.expires_at <= last;
    if !(is_for_here && is_own && is_timely && invite.role == Role::Member) {
        let detail = "it is for another mesh, by another key, or for a time that makes no sense";
        return Ok(no(ErrorCode::InviteInvalid, detail));
    }
    let new = NewInvite {
        invite: invite.invite,
        digest: signed.digest(),
        inviter: owner.member,
        role: invite.role,
        uses_max: invite.uses_max,
        created_at: now,
        expires_at: invite.expires_at,
    };
    let changed = shared.storage().create_invite(principal.mesh, new).await?;
    Ok(ReplyResult::Ok { changed })
}

fn after(now: WallMs, life: std::time::Duration) -> WallMs {
    WallMs(
        now.0
            .saturating_add_unsigned(u64::try_from(life.as_millis()).unwrap_or(u64::MAX)),
    )
}

/// IMPORTANT: first the table, then the connections: whoever says hello in between is refused by the
/// table, whoever was in before is cut (T-30).
pub(super) async fn revoke<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    member: MemberId,
) -> Result<ReplyResult, StorageError> {
    let at = shared.accept.clock.wall();
    let (mesh, by) = (principal.mesh, principal.member);
    let verdict = shared.storage().revoke(mesh, by, member, at).await?;
    Ok(match verdict {
        RevokeVerdict::Revoked | RevokeVerdict::Already => {
            shared.cut(mesh, member, Bar::Revoked);
            let changed = verdict == RevokeVerdict::Revoked;
            if changed {
                tracing::info!(%mesh, %member, %by, "a member was shut out");
            }
            ReplyResult::Ok { changed }
        }
        RevokeVerdict::UnknownMember => no(ErrorCode::UnknownMember, "nobody here has this id"),
        RevokeVerdict::NotOwner => no(ErrorCode::NotOwner, "only an owner shuts members out"),
        RevokeVerdict::IsOwner => no(
            ErrorCode::NotOwner,
            "an owner cannot be shut out; make it a member first with `heddle mesh grant NAME member`",
        ),
    })
}

pub(super) fn unknown_role() -> ReplyResult {
    no(ErrorCode::InvalidRequest, "a role is owner or member")
}

/// Blocks a member, or gives it a role. IMPORTANT: first the table, then the connections, as above.
pub(super) async fn change<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    member: MemberId,
    change: Change,
) -> Result<ReplyResult, StorageError> {
    let at = shared.accept.clock.wall();
    let (mesh, by) = (principal.mesh, principal.member);
    let changing = shared
        .storage()
        .change_standing(mesh, by, member, change, at);
    let verdict = changing.await?;
    Ok(match verdict {
        ChangeVerdict::Changed | ChangeVerdict::Already => {
            if change == Change::Block {
                shared.cut(mesh, member, Bar::Blocked);
            }
            let changed = verdict == ChangeVerdict::Changed;
            if changed {
                tracing::info!(%mesh, %member, %by, ?change, "a member stands otherwise");
            }
            ReplyResult::Ok { changed }
        }
        ChangeVerdict::UnknownMember => no(ErrorCode::UnknownMember, "nobody here has this id"),
        ChangeVerdict::NotOwner => no(ErrorCode::NotOwner, "only an owner says who may do what"),
        ChangeVerdict::IsOwner => no(
            ErrorCode::NotOwner,
            "an owner is not blocked; make it a member first with `heddle mesh grant NAME member`",
        ),
        ChangeVerdict::IsRevoked => no(
            ErrorCode::MemberRevoked,
            "that member was shut out for ever; a new invitation makes a new member",
        ),
        ChangeVerdict::LastOwner => no(ErrorCode::LastOwner, "the mesh would be without its owner"),
    })
}

pub(super) async fn members<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
) -> Result<ReplyResult, StorageError> {
    let storage = shared.storage();
    let standings = storage.standings(principal.mesh).await?;
    let present = storage.presence(principal.mesh, shared.lease.now()).await?;
    let present: BTreeMap<_, _> = present.into_iter().map(|one| (one.member, one)).collect();
    let entry = |standing: Standing| {
        let present = present.get(&standing.member);
        MemberEntry {
            member: standing.member,
            name: standing.name,
            role: standing.role.as_str().to_owned(),
            key: standing.key,
            enrolled_at: standing.enrolled_at.0,
            revoked_at: standing.revoked_at.map(|at| at.0),
            blocked_at: standing.blocked_at.map(|at| at.0),
            online: present.is_some_and(|present| present.is_online),
            since: present.and_then(|present| present.since).map(|at| at.0),
        }
    };
    Ok(ReplyResult::Members {
        mesh: Some(storage.mesh_name(principal.mesh).await?),
        members: standings.into_iter().map(entry).collect(),
    })
}
