//! `GET /v1/explain/{id}`: what this home and its broker know of one id, and waiting for a level. Ids and
//! keys of the data are told by `data_story`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use heddle_core::clock::WallMs;
use heddle_core::envelope::EnvelopeKind;
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::ClientMessageId;
use heddle_core::names::AgentName;
use heddle_core::outbox_status::OutboxStatus;
use heddle_store::OutboxRow as Row;
use heddle_wire::broker::{
    Explained, QueueState, QueueStatus, ReplyResult, Request as Asked, Sender,
};
use heddle_wire::from_wire;
use heddle_wire::ipc::{
    AttemptView, BrokerView, DataStoryView, ExplainView, Level, LimiterView, LostView, OutboxRow,
    QueueStateView,
};
use heddle_wire::problem::Problem;
use serde::Deserialize;

use super::data_story;
use super::effect;
use super::explain_own::{deliveries, with_own};
use super::explain_times;
use super::message_story::{self, Found};
use super::outbox::{FindQuery, find, told};
use crate::effects::is_passing;
use crate::ipc::body::Id;
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mentions;
use crate::mesh::MeshState;
use crate::outbox::drain::DAMAGED;
use crate::outbox::lost::view as lost_view;
use crate::outbox::window::pause_of;
use crate::shared::store_problem;

/// How long one request waits for a level at most; who wants more asks again.
const WAIT_SECONDS_MAX: u64 = 30;
/// How long the broker has for its part of a story: what this home knows is worth more than a long silence.
const ASK_WITHIN: Duration = Duration::from_secs(3);
/// And where next to no time is left.
const ASK_WITHIN_MIN: Duration = Duration::from_millis(200);
const LOOK_AGAIN_FIRST: Duration = Duration::from_millis(10);
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(500);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Query {
    mesh: Option<String>,
    agent: Option<String>,
    /// Do not answer before this level is reached for everybody, or the time is over.
    wait: Option<String>,
    timeout_seconds: Option<u64>,
}

pub(super) async fn explain(State(ipc): State<Arc<Ipc>>, Id(id): Id, request: Request) -> Answered {
    let query: Query = body::query(&request.into_parts().0)?;
    let level = query.wait.as_deref().map(parse_level).transpose()?;
    let seconds = query.timeout_seconds.unwrap_or(WAIT_SECONDS_MAX);
    if seconds > WAIT_SECONDS_MAX {
        return Err(from_wire::invalid(format!(
            "timeout_seconds is {seconds}; one request waits {WAIT_SECONDS_MAX} at most"
        ))
        .next("Ask again when the answer says that the level was not reached.")
        .into());
    }
    let whose = (query.mesh.clone(), query.agent.clone());
    let scope = FindQuery::new(query.mesh, query.agent);
    let row = match find(&ipc, &id, &scope).await {
        Ok(row) => row,
        Err(problem) => return of_other(&ipc, whose, &id, problem).await,
    };
    let started = ipc.shared.clock.mono();
    let Some(level) = level else {
        return ok(&story(&ipc, row, ASK_WITHIN).await?);
    };
    let deadline = started + Duration::from_secs(seconds);
    // Whoever waits is answered when the time is over, whatever the broker does.
    let left = || {
        let left = deadline.saturating_sub(ipc.shared.clock.mono());
        left.clamp(ASK_WITHIN_MIN, ASK_WITHIN)
    };
    let mut view = story(&ipc, row, left()).await?;
    let mut pause = LOOK_AGAIN_FIRST;
    let is_over = |view: &ExplainView| {
        let reaches_nobody = level > Level::Committed && view.has_nobody();
        view.is_over() || view.held_back().is_some() || reaches_nobody
    };
    while !view.has_reached(level) && !is_over(&view) && ipc.shared.clock.mono() < deadline {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = ipc.shared.shutdown.cancelled() => break,
        }
        pause = (pause * 2).min(LOOK_AGAIN_MAX);
        view = story(&ipc, find(&ipc, &id, &scope).await?, left()).await?;
    }
    view.reached = Some(view.has_reached(level));
    ok(&view)
}

/// No send of this home has this id; a message that came may, something of the data, or an effect.
async fn of_other(
    ipc: &Ipc,
    (mesh, agent): (Option<String>, Option<String>),
    id: &str,
    problem: Problem,
) -> Answered {
    let names_effect = id.starts_with("effect:");
    let is_unknown = problem.known_code() == Some(ErrorCode::NotFound);
    if is_unknown
        && !names_effect
        && let Some(story) = data_story::find(ipc, mesh.as_deref(), id).await?
    {
        return ok(&story);
    }
    let mut not_asked = None;
    if is_unknown && !names_effect {
        match message_story::find(ipc, (mesh.as_deref(), agent.as_deref()), id).await? {
            Found::Story(story) => return ok(&story),
            Found::NotKnown(why) => not_asked = Some(why),
            Found::Nothing => {}
        }
    }
    let told = effect::story(ipc, (mesh.as_deref(), agent.as_deref()), id).await;
    if told.is_err()
        && mesh.is_none()
        && let Some(story) = ipc.effects.waits_somewhere(&ipc.shared, id).await?
    {
        return ok(&story);
    }
    match told {
        Ok(story) => effect::told(story),
        // One that was changed is there, and nobody's word.
        Err(other) if names_effect || other.extra.contains_key("changed") => Err(other.into()),
        // What cannot be known now is not absent (C29).
        Err(mut other) if is_unknown && is_passing(&other) => {
            other.detail = format!(
                "no send and nothing of the data has the id {id} here, and whether an effect has it cannot be known now: {}",
                other.detail
            );
            Err(other.with("effects", "not_known").into())
        }
        Err(_) => Err(match not_asked {
            Some(why) => problem.with("broker", "not_known").next(format!(
                "This home has no row of it. Whether the broker knows it cannot be asked now ({why}): ask again when `heddle status` says connected."
            )),
            None => problem,
        }
        .into()),
    }
}

fn parse_level(text: &str) -> Result<Level, Problem> {
    Level::parse(text).ok_or_else(|| {
        from_wire::invalid(format!(
            "{text:?} is not one of local, committed, delivered, shown, acked"
        ))
    })
}

async fn story(ipc: &Ipc, row: Row, within: Duration) -> Result<ExplainView, Problem> {
    let outbox = told(ipc, &row).await?;
    let mesh = ipc.shared.meshes.iter().find(|m| m.mesh.mesh == row.mesh);
    let mesh = mesh.map(AsRef::as_ref);
    let asked = ask(mesh, &row, within).await;
    // A row that is done was committed, whether or not the broker can be asked now; unless it is known to have lost it.
    let lost = lost(ipc, &row).await?;
    let known = || known_here(&outbox).filter(|_| !lost.as_ref().is_some_and(LostView::is_away));
    // Another request under this id, of an earlier life of this home: its story is not ours.
    let is_foreign = |told: &Explained| told.wire_fingerprint != row.wire_fingerprint.to_hex();
    let (mut forgotten, mut damaged) = (false, false);
    let (broker, explained, stale_why) = match asked {
        Asking::Explained(told) if is_foreign(&told) => (known(), None, None),
        Asking::Explained(told) => {
            let now = ipc.shared.clock.wall();
            damaged = (told.damaged || told.gone) && told.queue.as_ref().is_some_and(is_open);
            (Some(broker(mesh, &told, now)), Some(told), None)
        }
        // Done, and the broker does not know the id any more: its time was over there.
        Asking::Absent => {
            forgotten = known().is_some();
            (known(), None, None)
        }
        Asking::Unreachable(why) => (known(), None, Some(why)),
    };
    let at_broker = explained.is_some();
    let mut view = ExplainView {
        id: outbox.client_message_id.clone(),
        kind: row.kind.as_str().to_owned(),
        mesh: outbox.mesh.clone(),
        receipts: Vec::new(),
        broker,
        limiter: {
            let noted = explained.as_ref().and_then(|told| told.limiter);
            let noted = noted.map(|noted| (noted.window, noted.counted));
            let told = LimiterView::of(noted, &outbox.attempts_log);
            paused(ipc, mesh, &row, at_broker, told)
        },
        attempts: attempts(&row, &outbox),
        deliveries_left_off: explained
            .as_ref()
            .map_or(0, |told| told.deliveries_left_off),
        gone: explained.as_ref().is_some_and(|told| told.gone),
        // Without the broker's list only those of this home are known.
        deliveries_partial: explained.is_none(),
        deliveries: {
            let told = explained.map_or_else(Vec::new, |told| deliveries(mesh, &told));
            with_own(ipc, mesh, &row, told).await?
        },
        mentions: Vec::new(),
        chain: outbox.chain.clone(),
        outbox: OutboxRow {
            chain: Vec::new(),
            attempts_log: Vec::new(),
            ..outbox
        },
        stale: stale_why.is_some(),
        stale_why,
        forgotten: forgotten && lost.is_none(),
        lost,
        data: None,
        damaged,
        reached: None,
    };
    if at_broker && is_damaged(&row) && view.outbox.waits_for.is_some() {
        view.outbox.waits_for = Some(only_to_be_marked(&row));
    }
    view.data = of_op(ipc, &row).await?;
    Ok(concluded(mesh, &row, view))
}

/// What follows from the rest of a story.
fn concluded(mesh: Option<&MeshState>, row: &Row, mut view: ExplainView) -> ExplainView {
    explain_times::set(&mut view);
    view.damaged |= view.deliveries.iter().any(|one| one.damaged);
    view.receipts = view.receipts();
    view.mentions = mentions::of_row(mesh, row, &view);
    view
}

fn is_open(queue: &QueueState) -> bool {
    queue.status == QueueStatus::Waiting
}

fn is_damaged(row: &Row) -> bool {
    let why = row.last_error.as_deref();
    why.is_some_and(|why| why.starts_with(DAMAGED))
}

/// What a damaged row waits for whose message the broker has.
fn only_to_be_marked(row: &Row) -> String {
    format!(
        "nothing but its mark as done: the broker has what was accepted, only this home's own bytes of it are damaged. `heddle daemon outbox requeue --id {} --auto` marks it, and so does the next start",
        row.row
    )
}

/// A row that waits has the pause of its mesh for a reason.
fn paused(
    ipc: &Ipc,
    mesh: Option<&MeshState>,
    row: &Row,
    is_at_broker: bool,
    told: Option<LimiterView>,
) -> Option<LimiterView> {
    let waits = row.status == OutboxStatus::Pending && !is_at_broker;
    match mesh
        .filter(|_| waits)
        .and_then(|mesh| pause_of(&ipc.shared, mesh))
    {
        Some(pause) => Some(LimiterView::paused(told, pause.why, pause.until)),
        None => told,
    }
}

/// Of an op: what it is about.
async fn of_op(ipc: &Ipc, row: &Row) -> Result<Option<Box<DataStoryView>>, Problem> {
    let mesh = ipc.shared.meshes.iter().find(|m| m.mesh.mesh == row.mesh);
    let Some(mesh) = mesh.filter(|_| row.kind == EnvelopeKind::Op) else {
        return Ok(None);
    };
    let told = data_story::of(ipc, mesh, row.client_message_id.as_str()).await?;
    // The row stands in the story already.
    Ok(told.map(|told| {
        Box::new(DataStoryView {
            outbox: None,
            ..told
        })
    }))
}

/// What became of it since the broker lost it, if it did.
async fn lost(ipc: &Ipc, row: &Row) -> Result<Option<LostView>, Problem> {
    let lost = ipc.shared.store.lost_of(row.arrival).await;
    let lost = lost.map_err(|error| store_problem(&error))?;
    Ok(lost.map(lost_view))
}

pub(super) enum Asking {
    Explained(Box<Explained>),
    Absent,
    Unreachable(String),
}

async fn ask(mesh: Option<&MeshState>, row: &Row, within: Duration) -> Asking {
    let Some(mesh) = mesh else {
        return Asking::Unreachable("its mesh is not served by this home any more".to_owned());
    };
    ask_for(mesh, &row.sender.agent, &row.client_message_id, within).await
}

/// Asks the broker for an id of an agent of this home.
pub(super) async fn ask_for(
    mesh: &MeshState,
    sender: &AgentName,
    id: &ClientMessageId,
    within: Duration,
) -> Asking {
    // One that has left questions unanswered is given a moment, in case it is back.
    let within = if mesh.is_answering() {
        within
    } else {
        ASK_WITHIN_MIN.min(within)
    };
    let asked = Asked::Explain {
        agent: sender.clone(),
        client_message_id: id.clone(),
    };
    let asked = mesh.ask_within(asked, within);
    match asked.await {
        Ok(ReplyResult::Explained(explained)) => Asking::Explained(explained),
        Ok(ReplyResult::Absent) => Asking::Absent,
        Ok(_) => Asking::Unreachable(format!(
            "the broker of mesh {} gave another answer than was asked for",
            mesh.mesh.name
        )),
        Err(problem) => Asking::Unreachable(problem.detail),
    }
}

/// The ack of the broker, as the outbox keeps it (C20).
fn known_here(outbox: &OutboxRow) -> Option<BrokerView> {
    Some(BrokerView {
        broker_message_id: outbox.broker_message_id.clone()?,
        history_id: outbox.history_id.clone()?,
        wire_fingerprint_prefix: outbox.wire_fingerprint_prefix.clone(),
        first_seen_at: None,
        committed_at: None,
        expires_at: None,
        history_available: None,
        destination: None,
        queue: None,
    })
}

pub(super) fn broker(mesh: Option<&MeshState>, explained: &Explained, now: WallMs) -> BrokerView {
    let time = |ms: i64| WallMs(ms).to_rfc3339();
    let kind = explained.destination_kind.as_str();
    BrokerView {
        broker_message_id: explained.broker_message_id.to_string(),
        history_id: explained.history_id.to_string(),
        wire_fingerprint_prefix: explained.wire_fingerprint.get(..16).map(str::to_owned),
        first_seen_at: Some(time(explained.first_seen_at)),
        committed_at: None,
        expires_at: explained.expires_at.map(time),
        history_available: Some(explained.history_available),
        destination: Some(format!("{kind} {}", explained.destination_ref)),
        queue: explained
            .queue
            .as_ref()
            .map(|state| queue(mesh, state, now)),
    }
}

fn later(now: WallMs, ms: u64) -> WallMs {
    WallMs(now.0.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)))
}

fn queue(mesh: Option<&MeshState>, state: &QueueState, now: WallMs) -> QueueStateView {
    let status = match state.status {
        QueueStatus::Waiting => "waiting",
        QueueStatus::Leased => "leased",
        QueueStatus::Acked => "acked",
    };
    QueueStateView {
        status: status.to_owned(),
        fence: state.fence,
        delivery_count: state.delivery_count,
        holder: state.holder.as_ref().map(|holder| name(mesh, holder)),
        lease_left_seconds: state.lease_left_ms.map(|ms| ms.div_ceil(1000)),
        lease_until: state.lease_left_ms.map(|ms| later(now, ms).to_rfc3339()),
        taken_at: state.taken_at.map(|ms| WallMs(ms).to_rfc3339()),
        acked_at: state.acked_at.map(|ms| WallMs(ms).to_rfc3339()),
    }
}

/// As everywhere else: with what tells namesakes apart.
pub(super) fn name(mesh: Option<&MeshState>, party: &Sender) -> String {
    let Sender { party, member_name } = party;
    let called = mesh.map_or_else(
        || member_name.to_string(),
        |mesh| mesh.with_known(|known| known.called(party.member, member_name)),
    );
    format!("@{called}/{}", party.agent)
}

/// What failed was noted as it happened; an attempt that succeeded at once left only its time.
fn attempts(row: &Row, outbox: &OutboxRow) -> Vec<AttemptView> {
    let mut attempts = outbox.attempts_log.clone();
    let is_noted = attempts
        .iter()
        .any(|attempt| attempt.outcome == "committed");
    if let Some(at) = &outbox.delivered_at
        && row.status == OutboxStatus::Done
        && !is_noted
    {
        attempts.push(AttemptView {
            number: attempts.last().map_or(1, |last| last.number + 1),
            at: at.clone(),
            outcome: "committed".to_owned(),
            detail: String::new(),
        });
    }
    attempts
}
