//! The story of an id or a key of the data, as `GET /v1/explain/{id}` tells it.

use heddle_core::clock::WallMs;
use heddle_core::ids::{ClientMessageId, OpId, Party};
use heddle_core::lamport::PeerId;
use heddle_core::task::TaskId;
use heddle_store::{
    DataStory, OutboxFind, StoryArrival, StoryLeft, StoryRequest, StoryRow, TaskDamage,
};
use heddle_wire::ipc::{DataArrivalView, DataRequestView, DataRowView, DataStoryView, OutboxRow};
use heddle_wire::problem::Problem;

use super::outbox::told;
use crate::ipc::Ipc;
use crate::mesh::MeshState;
use crate::shared::store_problem;
use crate::upkeep::TASK_NEXT;

/// In the mesh that was named, or in the first one that knows it.
pub(super) async fn find(
    ipc: &Ipc,
    mesh: Option<&str>,
    id: &str,
) -> Result<Option<DataStoryView>, Problem> {
    if let Some(name) = mesh {
        return of(ipc, ipc.shared.mesh(Some(name))?, id).await;
    }
    for mesh in &ipc.shared.meshes {
        if let Some(story) = of(ipc, mesh, id).await? {
            return Ok(Some(story));
        }
    }
    Ok(None)
}

pub(super) async fn of(
    ipc: &Ipc,
    mesh: &MeshState,
    id: &str,
) -> Result<Option<DataStoryView>, Problem> {
    let story = ipc.shared.store.data_story(mesh.mesh.mesh, id.to_owned());
    let story = story.await.map_err(|error| store_problem(&error))?;
    if story.is_empty() {
        return Ok(None);
    }
    let outbox = match story.op {
        Some(op) => outbox(ipc, mesh, op).await?,
        None => None,
    };
    let head = ipc.shared.store.sync_head(mesh.mesh.mesh).await;
    let is_shared = head
        .map_err(|error| store_problem(&error))?
        .kind
        .is_shared();
    let (result, says) = verdict(&story);
    Ok(Some(DataStoryView {
        id: id.to_owned(),
        kind: "data".to_owned(),
        mesh: mesh.mesh.name.to_string(),
        op_id: story.op.map(|op| op.to_string()),
        result: result.to_owned(),
        says,
        next: what_helps(mesh, &story, is_shared),
        rows: story.rows.iter().map(|row| row_view(mesh, row)).collect(),
        request: story.request.map(request_view),
        arrival: story.arrival.map(|arrival| arrival_view(mesh, arrival)),
        outbox,
    }))
}

fn what_helps(mesh: &MeshState, story: &DataStory, is_shared: bool) -> Option<String> {
    if let Some((task, damage)) = story.damaged {
        return Some(what_mends(task, damage));
    }
    let from_log = || {
        let name = &mesh.mesh.name;
        format!(
            "`heddle doctor --resume-sync {name}` reads the log of the mesh again, and what is missing here of it comes back"
        )
    };
    match &story.left {
        Some(StoryLeft::Gone(_)) if is_shared => Some(format!(
            "{}; or write it again under a new id: the same id is answered as done, and writes nothing.",
            from_log()
        )),
        Some(StoryLeft::Gone(_)) => Some(
            "Write it again under a new id (the same id is answered as done, and writes nothing), or put a backup back with `heddle daemon restore FILE`. `heddle doctor` names all that is gone so."
                .to_owned(),
        ),
        Some(StoryLeft::Unknown) if is_shared && verdict(story).0 == UNKNOWN => Some(format!("If it should stand here, {}.", from_log())),
        _ => None,
    }
}

fn what_mends(task: TaskId, damage: TaskDamage) -> String {
    match damage {
        TaskDamage::Row => {
            format!("Its next step mends it (such as `heddle task claim {task}`). {TASK_NEXT}")
        }
        TaskDamage::Step | TaskDamage::Lost => TASK_NEXT.to_owned(),
    }
}

/// What became of it: one word, one sentence.
fn verdict(story: &DataStory) -> (&'static str, String) {
    if let Some((task, damage)) = story.damaged {
        let what = match damage {
            TaskDamage::Row => {
                "its row or its record is not what was written here, and is not served"
            }
            TaskDamage::Step => {
                "one of its steps is not what was written here; its row is, and stands"
            }
            TaskDamage::Lost => {
                "its row and its steps do not say the same: a row of data.db is lost"
            }
        };
        return ("damaged", format!("task {task} is damaged: {what}"));
    }
    let Some(op) = story.op else {
        return ("key", "what stands under this key now".to_owned());
    };
    if let Some(row) = story.rows.iter().find(|row| row.stamp.op == op) {
        let what = if row.is_deleted {
            "it deleted what stood there, and nothing younger has come since"
        } else if row.noun == "task" {
            "it is one of the ops that the task's state is folded from"
        } else {
            "its value is the one that stands there now"
        };
        return ("stands", what.to_owned());
    }
    if story
        .request
        .as_ref()
        .is_none_or(|request| request.op != op)
        && let Some(arrival) = &story.arrival
    {
        let why = arrival.reason.as_deref().unwrap_or("no reason was kept");
        match arrival.state.as_str() {
            "waiting" => return ("waiting", "it came and waits for its turn".to_owned()),
            "parked" => return ("parked", "what it is about has not come yet".to_owned()),
            "quarantined" => {
                return (
                    "quarantined",
                    format!("it was set aside: {why}; `heddle doctor` lists it"),
                );
            }
            "dropped" => return ("dropped", "a person dropped it here".to_owned()),
            _ => {}
        }
    }
    if story.rows.iter().any(|row| row.noun == "task") {
        return ("stands", "the ops of this task, in their order".to_owned());
    }
    without_row(story.left.as_ref())
}

/// What became of an op that no row holds.
fn without_row(left: Option<&StoryLeft>) -> (&'static str, String) {
    match left {
        Some(StoryLeft::Younger) | None => (
            "superseded",
            "it was applied, and a younger change has taken its place since".to_owned(),
        ),
        Some(StoryLeft::Collected) => (
            UNKNOWN,
            "it was applied, and nothing stands there any more: it was deleted since and the mark of that was collected, \
             or its row is gone. After the first collection that cannot be told apart"
                .to_owned(),
        ),
        Some(StoryLeft::Gone(what)) => (
            "lost",
            format!(
                "it was applied, and its row is gone from data.db: no younger change of {what} is there, and no mark of a deletion"
            ),
        ),
        Some(StoryLeft::Unknown) => (
            UNKNOWN,
            "it was applied, and no row holds it now: whether a younger change took its place or its row is gone is not known here"
                .to_owned(),
        ),
    }
}

/// No row holds it, and nobody here knows what it was about.
const UNKNOWN: &str = "not_known";

async fn outbox(ipc: &Ipc, mesh: &MeshState, op: OpId) -> Result<Option<Box<OutboxRow>>, Problem> {
    match row_of_op(ipc, mesh, op).await? {
        Some(row) => Ok(Some(Box::new(told(ipc, &row).await?))),
        None => Ok(None),
    }
}

/// The row that carries an op of this home to the others, where it has one.
pub(super) async fn row_of_op(
    ipc: &Ipc,
    mesh: &MeshState,
    op: OpId,
) -> Result<Option<heddle_store::OutboxRow>, Problem> {
    let Ok(id) = ClientMessageId::parse(&op.to_string()) else {
        return Ok(None);
    };
    let found = ipc.shared.store.outbox_find(OutboxFind::ClientMessageId {
        id,
        mesh: Some(mesh.mesh.mesh),
        agent: None,
    });
    let rows = found.await.map_err(|error| store_problem(&error))?;
    Ok(rows.into_iter().next())
}

/// `@member/agent` where the peer is known, else as it stands in the row.
fn peer_name(mesh: &MeshState, peer: &PeerId) -> String {
    match peer.as_str().parse::<Party>() {
        Ok(party) => mesh.address(party.member, &party.agent),
        Err(_) => peer.as_str().to_owned(),
    }
}

fn row_view(mesh: &MeshState, row: &StoryRow) -> DataRowView {
    DataRowView {
        noun: row.noun.to_owned(),
        key: row.key.clone(),
        op: Some(row.op.clone()).filter(|op| !op.is_empty()),
        peer: peer_name(mesh, &row.stamp.peer),
        op_id: row.stamp.op.to_string(),
        lamport: row.stamp.lamport,
        incarnation: row.incarnation,
        at: row.at.to_rfc3339(),
        deleted: row.is_deleted,
    }
}

fn request_view(request: StoryRequest) -> DataRequestView {
    DataRequestView {
        idempotency_key: request.key,
        agent: request.agent,
        at: request.at.to_rfc3339(),
        op_id: request.op.to_string(),
        lamport: request.lamport,
    }
}

fn arrival_view(mesh: &MeshState, arrival: StoryArrival) -> DataArrivalView {
    DataArrivalView {
        history_id: arrival.at.to_string(),
        sender: peer_name(mesh, &PeerId::new(&arrival.sender)),
        state: arrival.state,
        reason: arrival.reason,
        received_at: arrival.received_at.to_rfc3339(),
        applied_at: arrival.applied_at.map(WallMs::to_rfc3339),
    }
}
