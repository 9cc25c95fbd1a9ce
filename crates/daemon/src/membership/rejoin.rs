//! Joining a mesh that this home is in, or was in: nothing changes, or the broker hears of it again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use heddle_core::error_code::ErrorCode;
use heddle_core::membership::SignedInvite;
use heddle_store::Mesh;
use heddle_wire::from_wire::invalid;
use heddle_wire::ipc::MeshJoinAnswer;
use heddle_wire::problem::Problem;

use super::claim::{self, Claimed};
use super::config_file;
use super::join::{CONNECT_WAIT, Joiner, answer, blocking, config};
use crate::config::{Config, MeshConfig};
use crate::mesh::MeshState;

/// The link of a mesh that is served here. Connected, there is nothing to do. Otherwise the broker is asked:
/// one that has lost its members takes this home in again, one that shut it out says so.
pub(super) async fn rejoin(
    joiner: &Joiner<'_>,
    there: &Arc<MeshState>,
    link: &SignedInvite,
    ca_file: Option<PathBuf>,
) -> Result<MeshJoinAnswer, Problem> {
    let invite = &link.invite;
    if there.mesh.member == invite.inviter {
        return Err(invalid(format!(
            "the invitation is to this home's own mesh {}",
            there.mesh.name
        ))
        .next("Use the link in another home, with HEDDLE_HOME or --home."));
    }
    let Some(key) = there
        .identity
        .key
        .as_ref()
        .filter(|_| !there.is_connected())
    else {
        return Ok(answer(there, true));
    };
    let path = joiner.home.join("config.toml");
    let known = known_ca(&path, there).await?;
    let is_tls = invite.url.starts_with("wss://");
    let trusted = ca_file.or_else(|| known.clone()).filter(|_| is_tls);
    let file = trusted.as_ref().map(|file| joiner.home.join(file));
    let asked = claim::claim(link, file.as_deref(), key, &there.mesh.member_name);
    let claimed = match asked.await {
        // Nobody is there to ask. It was joined before, and connects by itself.
        Err(problem) if problem.known_code() == Some(ErrorCode::NotConnected) => {
            return Ok(answer(there, true));
        }
        other => other?,
    };
    refuse_somebody_else(Some(&there.mesh), &claimed)?;
    let is_trusted_anew = trusted != known;
    let renewed = MeshConfig {
        ca_file: trusted,
        ..config(invite, there.mesh.name.clone(), &claimed)
    };
    let written = blocking(move || config_file::renew(&path, &renewed)).await?;
    written.map_err(|why| {
        Problem::new(ErrorCode::Internal, why)
            .next("Mend the file and join again with the same link; that takes no further use.")
    })?;
    there.standing.pin(Some(invite.broker));
    there.standing.again.notify_one();
    tracing::info!(mesh = %there.mesh.name, broker = %invite.broker, "joined a mesh again");
    let has_moved = is_trusted_anew || there.reach().is_some_and(|url| url != invite.url);
    if !has_moved {
        let _ = tokio::time::timeout(CONNECT_WAIT, there.wait_connected()).await;
    }
    Ok(MeshJoinAnswer {
        next: has_moved.then(|| {
            "The broker has another address or another authority now: restart with `heddle down` and `heddle up`."
                .to_owned()
        }),
        ..answer(there, true)
    })
}

/// The authorities that the settings name for this mesh.
async fn known_ca(path: &Path, there: &MeshState) -> Result<Option<PathBuf>, Problem> {
    let (path, id) = (path.to_owned(), there.mesh.mesh);
    let read = blocking(move || Config::load(&path)).await?;
    let config = read.map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))?;
    let ours = config.mesh.into_iter().find(|mesh| mesh.id == Some(id));
    Ok(ours.and_then(|mesh| mesh.ca_file))
}

/// The rows of this home are those of one member. As another it would send and own what is not its own.
pub(super) fn refuse_somebody_else(
    before: Option<&Mesh>,
    claimed: &Claimed,
) -> Result<(), Problem> {
    match before {
        Some(before) if before.member != claimed.member => Err(key_lost(before)),
        _ => Ok(()),
    }
}

pub(super) fn key_lost(before: &Mesh) -> Problem {
    let detail = format!(
        "this home was @{} in mesh {}, and the key that proves it is not in keys/ any more",
        before.member_name, before.name
    );
    Problem::new(ErrorCode::MemberKeyLost, detail)
}
