//! A mesh that others share and that is personal in this home's file: the file is a copy from before the mesh was published.
//!
//! A restore leaves the broker where it is, so the two do not agree: the file says that the data is this home's own, the
//! broker has the ops of before and the members that joined. Nothing would ever pass between them, and nobody would
//! miss it. Only the file's side can tell, so it asks whenever it has a connection.

use heddle_core::ids::HistoryId;
use heddle_store::MeshKind;
use heddle_wire::broker::{ReplyResult, Request};

use crate::link::Live;
use crate::mesh::MeshState;

/// Whether it is so. Without an answer what was known stays.
pub(super) async fn look(mesh: &MeshState, live: Option<&Live>, kind: MeshKind) -> bool {
    if kind.is_shared() {
        return false;
    }
    let known = mesh.sync.view().split;
    let Some(live) = live else {
        return known;
    };
    let has_others = mesh.with_known(|known| {
        let own = known.own_member;
        known
            .roster
            .members
            .iter()
            .any(|member| member.member != own)
    });
    if has_others {
        return true;
    }
    // Everybody may have left again: what was published is in the log all the same.
    let after = HistoryId::default();
    match live.request(Request::LogRead { after, limit: 1 }).await {
        Some(ReplyResult::Log { items, .. }) => !items.is_empty(),
        _ => known,
    }
}

pub(crate) fn says(mesh: &str) -> String {
    format!(
        "mesh {mesh} is shared at its broker and personal in data.db, which is a copy from before it was published: what is \
         written here reaches nobody, and nothing of the others comes here; `heddle mesh publish {mesh}` shares it again"
    )
}

pub(crate) fn next(mesh: &str) -> String {
    format!(
        "`heddle mesh publish {mesh}`: what is here goes to the others, and what they have comes back."
    )
}
