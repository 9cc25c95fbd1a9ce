//! Who has a message: what the broker says of its recipients, and what lies in the mailboxes of this home.

use heddle_core::clock::WallMs;
use heddle_core::names::AgentName;
use heddle_store::{InboxRow, OutboxRow as Row};
use heddle_wire::broker::{Envelope, Explained};
use heddle_wire::ipc::DeliveryView;
use heddle_wire::problem::Problem;

use super::explain::name;
use crate::inbox::damage;
use crate::ipc::Ipc;
use crate::mesh::MeshState;
use crate::shared::store_problem;

pub(super) fn deliveries(mesh: Option<&MeshState>, explained: &Explained) -> Vec<DeliveryView> {
    let time = |at: Option<i64>| at.map(|ms| WallMs(ms).to_rfc3339());
    let view = explained.deliveries.iter().map(|delivery| {
        // Nobody says that a damaged message was shown (`inbox_marks`): what was shown had come before a disk changed it.
        let damaged = explained.damaged && delivery.shown_at.is_none();
        // What was received before it was gone lies there.
        let damaged = damaged || (explained.gone && delivery.delivered_at.is_none());
        DeliveryView {
            recipient: name(mesh, &delivery.recipient),
            delivered_at: time(delivery.delivered_at).filter(|_| !damaged),
            shown_at: time(delivery.shown_at),
            acked_at: time(delivery.acked_at),
            damaged,
        }
    });
    view.collect()
}

/// What lies in mailboxes of this home is known here, whatever the broker still knows of it. And what does not
/// lie there is not delivered there, though the broker was told so once: by a home whose store is gone since.
pub(super) async fn with_own(
    ipc: &Ipc,
    mesh: Option<&MeshState>,
    row: &Row,
    mut told: Vec<DeliveryView>,
) -> Result<Vec<DeliveryView>, Problem> {
    let Some(mesh) = mesh else {
        return Ok(told);
    };
    let agents = mesh.own_agents().into_iter().collect();
    let (sender, id) = (row.sender.clone(), row.client_message_id.clone());
    let own = ipc.shared.store.inbox_copies(row.mesh, sender, id, agents);
    let own = own.await.map_err(|error| store_problem(&error))?;
    // Under the same id another body may lie there, from an earlier life of this home: its story is not ours.
    let own: Vec<InboxRow> = own.into_iter().filter(|copy| is_of(copy, row)).collect();
    for one in &mut told {
        if is_not_here(ipc, mesh, row, (one, &own)).await? {
            (one.delivered_at, one.shown_at, one.acked_at) = (None, None, None);
        }
    }
    for copy in own {
        let recipient = mesh.address(mesh.mesh.member, &copy.agent);
        let at = told.iter().position(|one| one.recipient == recipient);
        let at = at.unwrap_or_else(|| {
            told.push(DeliveryView {
                recipient,
                delivered_at: None,
                shown_at: None,
                acked_at: None,
                damaged: false,
            });
            told.len() - 1
        });
        let time = |at: WallMs| at.to_rfc3339();
        let one = &mut told[at];
        one.damaged = damage::readable(&copy.envelope, copy.fingerprint).is_none();
        if one.damaged {
            // It was shown as long as it could be read, or it came damaged.
            let was_shown = one.shown_at.is_some();
            one.delivered_at = one.delivered_at.take().filter(|_| was_shown);
            one.damaged = !was_shown;
            continue;
        }
        one.delivered_at.get_or_insert(time(copy.received_at));
        one.shown_at = one.shown_at.take().or(copy.shown_at.map(time));
        one.acked_at = one.acked_at.take().or(copy.acked_at.map(time));
    }
    Ok(told)
}

/// Whether this is what the row sent. A damaged copy is taken for it if it came from the same place.
fn is_of(copy: &InboxRow, row: &Row) -> bool {
    if copy.fingerprint == Some(row.wire_fingerprint) {
        return true;
    }
    let sent = Envelope::parse(&copy.envelope)
        .ok()
        .and_then(|envelope| envelope.wire_fingerprint().ok());
    match sent {
        Some(fingerprint) => fingerprint == row.wire_fingerprint,
        None => row.history_id == Some(copy.history_id),
    }
}

/// Whether a mailbox of this home, to which the broker says it was delivered, has never had it. What retention
/// took away was there.
async fn is_not_here(
    ipc: &Ipc,
    mesh: &MeshState,
    row: &Row,
    (one, own): (&DeliveryView, &[InboxRow]),
) -> Result<bool, Problem> {
    let mut agents = mesh.own_agents().into_iter();
    let is_to = |agent: &AgentName| mesh.address(mesh.mesh.member, agent) == one.recipient;
    let Some(agent) = agents.find(is_to) else {
        return Ok(false);
    };
    if one.delivered_at.is_none() || own.iter().any(|copy| copy.agent == agent) {
        return Ok(false);
    }
    let id = row.client_message_id.clone();
    let known = ipc
        .shared
        .store
        .inbox_knows(row.mesh, vec![row.sender.clone()], id, agent);
    let is_known = known.await.map_err(|error| store_problem(&error))?;
    Ok(!is_known)
}
