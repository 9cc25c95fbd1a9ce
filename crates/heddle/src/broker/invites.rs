//! Meshes and invitations that the operator of a broker makes: the way by which a mesh on a team broker gets its first
//! owner. An owner invites by its own key; the operator owns the tables, and signs with a key that nobody keeps.

use std::time::Duration;

use heddle_broker::members::{Members as _, NewInvite};
use heddle_broker::storage::{AnyStorage, Storage as _, StorageError};
use heddle_core::clock::{Ids, WallMs};
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::{BrokerId, InviteId, MemberId, MeshId};
use heddle_core::limits::{INVITE_LIFE_MAX, INVITE_URL_BYTES_MAX, INVITE_USES_MAX};
use heddle_core::membership::{Invite, MemberKey, Role, SignedInvite};
use heddle_core::names::{MemberName, MeshName};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use ulid::Ulid;

/// Who such an invitation comes from, for people.
const OPERATOR: &str = "operator";

/// What is asked for.
#[derive(Debug, Clone)]
pub struct InviteSpec {
    pub mesh: MeshName,
    pub role: Role,
    pub uses_max: u32,
    pub life: Duration,
    /// Where the broker is reached.
    pub url: String,
}

/// Where the random parts of a link come from.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    Fresh,
    /// From a secret of the broker and the caller's own id: the same id again is the same link.
    Key {
        secret: &'a str,
        id: &'a str,
    },
}

/// The link is a secret: whoever has it may join.
#[derive(Serialize)]
pub struct MadeInvite {
    pub link: String,
    pub mesh: String,
    pub mesh_id: String,
    pub invite_id: String,
    pub role: &'static str,
    pub uses: u32,
    pub expires_at: String,
    /// The mesh was made by this call.
    pub created: bool,
    pub duplicate: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum InviteError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A code, and what is wrong.
    #[error("{1}")]
    Refused(ErrorCode, String),
}

fn refused(code: ErrorCode, why: impl Into<String>) -> InviteError {
    InviteError::Refused(code, why.into())
}

/// Once one member has a key all need one: a mesh whose members come with the token is not closed to them in passing.
pub async fn refuse_keyless(storage: &AnyStorage, mesh: MeshId) -> Result<(), InviteError> {
    let has_keys = !storage.standings(mesh).await?.is_empty();
    if has_keys || storage.roster(mesh).await?.members.is_empty() {
        return Ok(());
    }
    Err(refused(
        ErrorCode::NameTaken,
        "the members of this mesh come with the broker's token, and could not enter it any more once one has a key; \
         choose another name for a mesh with invitations",
    ))
}

pub async fn make(
    storage: &AnyStorage,
    (ids, now): (&dyn Ids, WallMs),
    spec: &InviteSpec,
    source: Source<'_>,
) -> Result<MadeInvite, InviteError> {
    check(spec)?;
    let (mesh, created) = storage.mesh_named(&spec.mesh, MeshId(ids.ulid())).await?;
    refuse_keyless(storage, mesh).await?;
    let broker = storage.broker_id(BrokerId(ids.ulid())).await?;
    let bytes = |purpose: &str| random(ids, mesh, source, purpose);
    let id = match source {
        Source::Fresh => InviteId(ids.ulid()),
        Source::Key { .. } => derived(&bytes("id")),
    };
    let kept = storage.invite(mesh, id).await?;
    let (at, expires_at) = match &kept {
        Some(kept) => (kept.created_at, kept.expires_at),
        None => (now, after(now, spec.life)),
    };
    let key = MemberKey::from_seed(bytes("key"));
    let invite = Invite {
        broker,
        mesh,
        invite: id,
        inviter: MemberId(id.0),
        inviter_key: key.public(),
        role: spec.role,
        uses_max: spec.uses_max,
        expires_at,
        secret: bytes("secret"),
        mesh_name: spec.mesh.clone(),
        inviter_name: MemberName::parse(OPERATOR)
            .map_err(|error| refused(ErrorCode::Internal, error.to_string()))?,
        url: spec.url.clone(),
    };
    let signed = SignedInvite::sign(invite, &key);
    let new = NewInvite {
        invite: id,
        digest: signed.digest(),
        inviter: MemberId(id.0),
        role: spec.role,
        uses_max: spec.uses_max,
        created_at: at,
        expires_at,
    };
    match &kept {
        Some(kept) if *kept != new || after(at, spec.life) != expires_at => {
            let why = "this Idempotency-Key belongs to another invitation to the mesh";
            return Err(refused(ErrorCode::IdempotencyKeyReused, why));
        }
        Some(_) => {}
        None => {
            storage.create_invite(mesh, new).await?;
        }
    }
    Ok(MadeInvite {
        link: signed.link(),
        mesh: spec.mesh.to_string(),
        mesh_id: mesh.to_string(),
        invite_id: id.to_string(),
        role: spec.role.as_str(),
        uses: spec.uses_max,
        expires_at: expires_at.to_rfc3339(),
        created,
        duplicate: kept.is_some(),
    })
}

/// The same key gives the same invitation.
fn derived(bytes: &[u8; 32]) -> InviteId {
    let mut id = [0; 16];
    id.copy_from_slice(&bytes[..16]);
    InviteId(Ulid::from_bytes(id))
}

fn check(spec: &InviteSpec) -> Result<(), InviteError> {
    let invalid = |why: String| Err(refused(ErrorCode::InvalidRequest, why));
    if !(1..=INVITE_USES_MAX).contains(&spec.uses_max) {
        return invalid(format!("an invitation is for 1 to {INVITE_USES_MAX}"));
    }
    if spec.life.is_zero() || spec.life > INVITE_LIFE_MAX {
        let days = INVITE_LIFE_MAX.as_secs() / 86_400;
        return invalid(format!(
            "an invitation lasts at least a second and at most {days} days"
        ));
    }
    let rest = ["ws://", "wss://"]
        .iter()
        .find_map(|scheme| spec.url.strip_prefix(scheme));
    let is_address = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
        && spec.url.len() <= INVITE_URL_BYTES_MAX
        && !spec
            .url
            .chars()
            .any(|c| c.is_control() || c.is_whitespace());
    if !is_address {
        return invalid("the url of the broker begins with ws:// or wss://".to_owned());
    }
    // It goes into the link as it is, and from there into the settings of whoever joins.
    if spec.url.contains(['@', '?', '#']) {
        return invalid(
            "the url of the broker is ws:// or wss://, a host and a port: no user, no password, no ? and no #".to_owned(),
        );
    }
    Ok(())
}

fn random(ids: &dyn Ids, mesh: MeshId, source: Source<'_>, purpose: &str) -> [u8; 32] {
    match source {
        Source::Fresh => {
            let mut bytes = [0; 32];
            ids.fill(&mut bytes);
            bytes
        }
        Source::Key { secret, id } => {
            let mut digest = Sha256::new();
            digest.update(b"heddle.operator.invite.v1\0");
            for part in [
                secret.as_bytes(),
                &mesh.0.to_bytes(),
                purpose.as_bytes(),
                id.as_bytes(),
            ] {
                digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
                digest.update(part);
            }
            digest.finalize().into()
        }
    }
}

fn after(now: WallMs, life: Duration) -> WallMs {
    let millis = i64::try_from(life.as_millis()).unwrap_or(i64::MAX);
    WallMs(now.0.saturating_add(millis))
}
