//! Joining a mesh that this home is in, or was in: nothing changes, or the broker hears of it again.

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
use crate::mesh::MeshState;

/// The link of a mesh that is served here. Connected, there is nothing to do. Otherwise the broker is asked:
/// one that has lost its members takes this home in again, one that shut it out says so.
pub(super) async fn rejoin(
    joiner: &Joiner<'_>,
    there: &Arc<MeshState>,
    link: &SignedInvite,
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
    let claimed = match claim::claim(link, key, &there.mesh.member_name).await {
        // Nobody is there to ask. It was joined before, and connects by itself.
        Err(problem) if problem.known_code() == Some(ErrorCode::NotConnected) => {
            return Ok(answer(there, true));
        }
        other => other?,
    };
    refuse_somebody_else(Some(&there.mesh), &claimed)?;
    let renewed = config(invite, there.mesh.name.clone(), &claimed);
    let path = joiner.home.join("config.toml");
    let written = blocking(move || config_file::renew(&path, &renewed)).await?;
    written.map_err(|why| {
        Problem::new(ErrorCode::Internal, why)
            .next("Mend the file and join again with the same link; that takes no further use.")
    })?;
    there.standing.pin(Some(invite.broker));
    there.standing.again.notify_one();
    tracing::info!(mesh = %there.mesh.name, broker = %invite.broker, "joined a mesh again");
    let has_moved = there.reach().is_some_and(|url| url != invite.url);
    if !has_moved {
        let _ = tokio::time::timeout(CONNECT_WAIT, there.wait_connected()).await;
    }
    Ok(MeshJoinAnswer {
        next: has_moved.then(|| {
            "The broker has another address now: restart with `heddle down` and `heddle up`."
                .to_owned()
        }),
        ..answer(there, true)
    })
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
