//! Steps that a repair says again in a mesh that others are in: those that this home's own people took and that no log ever
//! heard of, because a publish could not read them. Whatever went out comes back from the log, as it was made.

use std::str::FromStr as _;

use heddle_core::clock::WallMs;
use heddle_core::ids::{ClientMessageId, IdKey, MemberId, MeshId, Party};
use heddle_core::lamport::PeerId;
use heddle_core::op::{DataOp, OpBody, TaskChange};
use heddle_core::task::TaskId;
use heddle_core::task::fold::{Task, TaskOp};
use rusqlite::{Connection, OptionalExtension, params};
use ulid::Ulid;

use crate::data::outgoing::{IS_QUEUED, queue_published};
use crate::error::StoreError;

const OWN: &str = "SELECT member_id FROM mesh WHERE mesh_id = ?1";
/// What was stamped later went into the outbox with its row.
const PUBLISHED_THROUGH: &str = "SELECT through_lamport FROM mesh_publish WHERE mesh_id = ?1";
const CAME_BACK: &str = "SELECT 1 FROM op_inbox WHERE mesh_id = ?1 AND sender = ?2 AND op_id = ?3";
/// Rows of a publish have the time of their op in their ids.
const OF_THAT_TIME: &str = "
    SELECT payload FROM outbox
    WHERE row_id BETWEEN ?2 AND ?3 AND mesh_id = ?1 AND kind = 'op' AND agent = ?4";

/// Those of `made` that nobody else can know of, on their way out. None where somebody else had a hand in the task: then it was
/// in the log, and the log has what is missing.
pub(super) fn send(
    connection: &Connection,
    (mesh, row, left): (MeshId, &Task, &[TaskOp]),
    made: Vec<DataOp>,
    now: WallMs,
) -> Result<Vec<DataOp>, StoreError> {
    let Some(own) = own_member(connection, mesh)? else {
        return Ok(Vec::new());
    };
    let hands = [&row.created_by].into_iter();
    let hands = hands.chain(row.claim.as_ref().map(|claim| &claim.by));
    let hands = hands.chain(row.end.as_ref().map(|end| &end.by));
    let hands = hands.chain(row.events.iter().map(|event| &event.peer));
    let mut hands = hands.chain(left.iter().map(|op| &op.stamp.peer));
    if !hands.all(|peer| party(peer).is_some_and(|party| party.member == own)) {
        return Ok(Vec::new());
    }
    let through = connection.query_row(PUBLISHED_THROUGH, [mesh.0.to_bytes()], |row| row.get(0));
    let through: Option<i64> = through.optional()?;
    let is_before =
        |op: &DataOp| through.is_some_and(|last| op.stamp.lamport <= last.cast_unsigned());
    // One that is here as well is only said once more because another one is missing before it.
    let is_here = |op: &DataOp| {
        let by = |left: &TaskOp| (left.stamp.lamport, left.stamp.peer.clone());
        left.iter()
            .any(|left| by(left) == (op.stamp.lamport, op.stamp.peer.clone()))
    };
    let mut unheard = Vec::new();
    for op in made {
        if !is_before(&op) || is_here(&op) {
            continue;
        }
        let Some(sender) = party(&op.stamp.peer) else {
            continue;
        };
        if !was_heard(connection, mesh, &sender, &op)? {
            queue_published(connection, mesh, &sender, &op, now)?;
            unheard.push(op);
        }
    }
    Ok(unheard)
}

/// Who this home is in it.
pub(super) fn own_member(
    connection: &Connection,
    mesh: MeshId,
) -> Result<Option<MemberId>, StoreError> {
    let own = connection.query_row(OWN, [mesh.0.to_bytes()], |row| row.get::<_, [u8; 16]>(0));
    Ok(own.optional()?.map(|own| MemberId(Ulid::from_bytes(own))))
}

/// As it is written everywhere else.
pub(super) fn party(peer: &PeerId) -> Option<Party> {
    let party = Party::from_str(peer.as_str()).ok();
    party.filter(|party| party.to_string() == peer.as_str())
}

/// The keys that it can have gone out under: that of its own id, and that of a publish.
pub(super) fn outbox_keys(
    mesh: MeshId,
    sender: &Party,
    op: &DataOp,
) -> impl Iterator<Item = IdKey> {
    let ids = [op.stamp.op, op.published_id(mesh)].into_iter();
    let texts = ids.filter_map(|id| ClientMessageId::parse(&id.to_string()).ok());
    texts.map(move |text| IdKey::of(mesh, sender, &text))
}

/// Whether it went out, under its own id or that of a publish. A create is said again with its id, but with another stamp.
pub(super) fn was_heard(
    connection: &Connection,
    mesh: MeshId,
    sender: &Party,
    op: &DataOp,
) -> Result<bool, StoreError> {
    for id in [op.stamp.op, op.published_id(mesh)] {
        let Ok(text) = ClientMessageId::parse(&id.to_string()) else {
            continue;
        };
        let key = IdKey::of(mesh, sender, &text);
        let mut went_out = connection.prepare_cached(IS_QUEUED)?;
        let mut came_back = connection.prepare_cached(CAME_BACK)?;
        let came = params![mesh.0.to_bytes(), op.stamp.peer.as_str(), text.as_str()];
        if went_out.exists([key.0])? || came_back.exists(came)? {
            return Ok(true);
        }
    }
    match &op.body {
        OpBody::Task(change) if change.step.is_create() => {
            was_published(connection, mesh, sender, (change, op.at))
        }
        _ => Ok(false),
    }
}

fn was_published(
    connection: &Connection,
    mesh: MeshId,
    sender: &Party,
    (create, at): (&TaskChange, WallMs),
) -> Result<bool, StoreError> {
    let time = u64::try_from(at.0).unwrap_or(0);
    let [first, last] = [0, u128::MAX].map(|random| Ulid::from_parts(time, random).to_bytes());
    let mut statement = connection.prepare_cached(OF_THAT_TIME)?;
    let cells = params![mesh.0.to_bytes(), first, last, sender.agent.as_str()];
    let mut rows = statement.query(cells)?;
    while let Some(row) = rows.next()? {
        let payload = row.get_ref(0)?.as_bytes().unwrap_or_default();
        // One whose bytes are gone may have been it.
        if payload.is_empty() || is_create(payload, create.task) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_create(payload: &[u8], id: TaskId) -> bool {
    let envelope: serde_json::Value = serde_json::from_slice(payload).unwrap_or_default();
    let op = envelope["body"]
        .as_str()
        .map(str::as_bytes)
        .map(DataOp::parse);
    let body = op.and_then(Result::ok).map(|op| op.body);
    matches!(body, Some(OpBody::Task(change)) if change.task == id && change.step.is_create())
}
