//! Operator recovery: retire a stuck or dead row and send its payload under a fresh id.
//!
//! The broker is asked first whether it holds the old id (C5): a message whose ack was lost must
//! not be sent twice. The old id is never free again.

use heddle_core::age::{LastLook, is_outcome_unknown};
use heddle_core::drain::RowMove;
use heddle_core::envelope::EnvelopeKind;
use heddle_core::error_code::ErrorCode;
use heddle_core::fingerprint::{Fingerprint, request_fingerprint};
use heddle_core::ids::{ClientMessageId, RowId};
use heddle_core::names::AgentName;
use heddle_core::outbox_status::OutboxStatus;
use heddle_core::pressure::Pressure;
use heddle_core::shell::quoted;
use heddle_store::{OutboxFind, OutboxRow, Requeue, Requeued, Settle, StoreError};
use heddle_wire::broker::{Envelope, ReplyResult, Request};
use heddle_wire::from_wire;
use heddle_wire::ipc::{RequeueBody, SendBody};
use heddle_wire::problem::Problem;
use serde_json::Value;

use super::accept::{new_row, seal};
use super::age::absence_of;
use super::count::Asks;
use crate::mesh::MeshState;
use crate::shared::{Shared, store_problem};

pub(crate) struct Outcome {
    pub(crate) old: OutboxRow,
    pub(crate) new: Option<OutboxRow>,
}

pub(crate) async fn requeue(
    shared: &Shared,
    mesh: &MeshState,
    old: OutboxRow,
    new_id: Option<ClientMessageId>,
    body: RequeueBody,
) -> Result<Outcome, Problem> {
    if let Some(why) = &old.damaged {
        return Err(store_problem(&StoreError::Corrupt(why.clone())));
    }
    if let Some(id) = &new_id
        && let Some(before) = answered_before(shared, &old, id, &body).await?
    {
        return Ok(before);
    }
    if old.kind == EnvelopeKind::Op {
        return Err(from_wire::invalid(
            "a change to the data keeps its id, so it cannot be requeued".to_owned(),
        )
        .next(
            "`heddle doctor --retry ID` sends it again, `heddle doctor --drop ID` gives it up.",
        ));
    }
    if !old.status.may_become(OutboxStatus::Aborted) {
        return Err(refused(shared, &old).await);
    }
    if let Some(problem) = shared.disk.refusal_for(Pressure::InboundOnly) {
        return Err(problem);
    }
    let new_id = new_id.unwrap_or_else(|| ClientMessageId::minted(shared.ids.ulid()));
    if old.payload.is_empty() {
        return only_look(shared, mesh, &old).await;
    }
    if let Some(done) = damaged_but_arrived(shared, mesh, &old).await? {
        return Ok(done);
    }
    let request = from_wire::send_request(&patched(&old, body.patch_payload)?)?;
    let sealed = seal(mesh, &request)?;
    if let Some(committed) = last_look(shared, mesh, &old, body.force).await? {
        return Ok(Outcome {
            old: committed,
            new: None,
        });
    }
    let requeue = Requeue {
        old: old.row,
        new: new_row(shared, &request, sealed),
        new_client_message_id: new_id.clone(),
        request_fingerprint: request_fingerprint(&request),
        aborted_by: "operator".to_owned(),
        now: shared.clock.wall(),
    };
    match put(shared, mesh, requeue).await? {
        Requeued::Done { old, new } => {
            mesh.drain.notify_one();
            Ok(Outcome {
                old,
                new: Some(new),
            })
        }
        Requeued::NotRequeueable(status) => Err(not_requeueable(&old, status)),
        Requeued::IdTaken => Err(taken(shared, mesh, (&old.sender.agent, &new_id)).await),
        Requeued::Unknown => Err(Problem::new(ErrorCode::NotFound, "the row is gone")),
    }
}

/// The fingerprint is that of the row which has the id (OB-11).
async fn taken(
    shared: &Shared,
    mesh: &MeshState,
    (agent, id): (&AgentName, &ClientMessageId),
) -> Problem {
    let problem = Problem::new(
        ErrorCode::IdempotencyKeyReused,
        "the new id is taken already; nothing was changed",
    );
    let holder = shared.store.outbox_find(OutboxFind::ClientMessageId {
        id: id.clone(),
        mesh: Some(mesh.mesh.mesh),
        agent: Some(agent.clone()),
    });
    match holder.await.unwrap_or_default().first() {
        Some(holder) => with_prefix(problem, holder),
        None => problem,
    }
}

/// Every refusal for what a row holds says of which request that is (OB-11).
fn with_prefix(problem: Problem, row: &OutboxRow) -> Problem {
    problem.with(
        "daemon_fingerprint_prefix",
        row.request_fingerprint.prefix(),
    )
}

/// IMPORTANT: counted before it is written, as a send is: a burst of them would pass the budget between two looks.
async fn put(shared: &Shared, mesh: &MeshState, requeue: Requeue) -> Result<Requeued, Problem> {
    let bytes = requeue.new.payload.len();
    let reserved = shared.disk.reserve(Asks::Requeue, mesh.mesh.mesh, bytes)?;
    let requeued = shared.store.requeue(requeue).await;
    if matches!(requeued, Ok(Requeued::Done { .. })) {
        drop(reserved);
    } else {
        reserved.give_back();
    }
    requeued.map_err(|error| store_problem(&error))
}

/// The answer to a requeue whose answer was lost: who names the new id gets the same again, and moves nothing.
async fn answered_before(
    shared: &Shared,
    old: &OutboxRow,
    new_id: &ClientMessageId,
    body: &RequeueBody,
) -> Result<Option<Outcome>, Problem> {
    if old.status == OutboxStatus::Done {
        // It had arrived, or has since.
        let old = old.clone();
        return Ok(Some(Outcome { old, new: None }));
    }
    let Some(successor) = old.superseded_by else {
        return Ok(None);
    };
    let new = find_row(shared, successor).await?;
    if new.client_message_id != *new_id {
        return Ok(None);
    }
    if !old.payload.is_empty() {
        let request = from_wire::send_request(&patched(old, body.patch_payload.clone())?)?;
        if request_fingerprint(&request) != new.request_fingerprint {
            let problem = Problem::new(
                ErrorCode::IdempotencyKeyReused,
                "the row was requeued under this id with another payload; nothing was changed",
            );
            return Err(with_prefix(problem, &new)
            .next("Look at what was sent with `heddle daemon outbox inspect`; requeue that row if it is to be sent anew."));
        }
    }
    let old = old.clone();
    Ok(Some(Outcome {
        old,
        new: Some(new),
    }))
}

/// Of a damaged row, too, the broker may have what was accepted: then there is nothing to say again.
async fn damaged_but_arrived(
    shared: &Shared,
    mesh: &MeshState,
    old: &OutboxRow,
) -> Result<Option<Outcome>, Problem> {
    if whole(old).is_some() {
        return Ok(None);
    }
    let Ok(Some(done)) = look(mesh, old).await else {
        return Ok(None);
    };
    let old = settle_as_done(shared, old, done).await?;
    Ok(Some(Outcome { old, new: None }))
}

/// Why this row is not requeued; of one that was before, under which id it goes on.
async fn refused(shared: &Shared, old: &OutboxRow) -> Problem {
    let problem = not_requeueable(old, old.status);
    if old.status != OutboxStatus::Aborted {
        return problem;
    }
    let Some(newest) = newest_of_chain(shared, old).await else {
        return problem;
    };
    let (id, status) = (newest.client_message_id.to_string(), newest.status.as_str());
    let agent = &newest.sender.agent;
    let next = match newest.status {
        OutboxStatus::Dead => format!(
            "It was requeued as {id}, which is dead, too: `heddle daemon outbox requeue --id {} --auto --agent {agent}` sends that one again.",
            quoted(&id)
        ),
        _ => format!(
            "It was requeued as {id}, which is {status}: `heddle explain {} --agent {agent}` says what became of it.",
            quoted(&id)
        ),
    };
    problem.with("successor", id).next(next)
}

/// The row under whose id the message of a retired one goes on.
pub(crate) async fn newest_of_chain(shared: &Shared, row: &OutboxRow) -> Option<OutboxRow> {
    let chain = shared.store.outbox_chain(row.row).await.unwrap_or_default();
    let newest = chain.into_iter().next_back();
    newest.filter(|newest| newest.row != row.row)
}

/// `status` as it was found when the move was tried; the row may be older.
fn not_requeueable(row: &OutboxRow, status: OutboxStatus) -> Problem {
    let next = match status {
        OutboxStatus::Inflight => "Wait for the broker's verdict; then look again.",
        OutboxStatus::Done => "The broker has it; there is nothing to requeue.",
        _ => {
            "It was retired by an operator without a successor, and its text was given back: send the message anew under a new id."
        }
    };
    let problem = Problem::new(
        ErrorCode::IdempotencyKeyReused,
        format!("a row that is {} cannot be requeued", status.as_str()),
    );
    with_prefix(problem, row)
        .with(
            "conflict",
            format!("outbox_{}_not_requeueable", status.as_str()),
        )
        .next(next)
}

/// Asks the broker for the id of a row: a read-only B0. The move is the row's way to `done`; `None`
/// means that the broker does not have it.
pub(crate) async fn look(mesh: &MeshState, row: &OutboxRow) -> Result<Option<RowMove>, Problem> {
    let id = (&row.sender.agent, &row.client_message_id);
    look_for(mesh, id, row.wire_fingerprint).await
}

/// The same for whoever does not have the whole row.
pub(crate) async fn look_for(
    mesh: &MeshState,
    (agent, id): (&AgentName, &ClientMessageId),
    fingerprint: Fingerprint,
) -> Result<Option<RowMove>, Problem> {
    let asked = mesh.ask(Request::MessageStatus {
        agent: agent.clone(),
        client_message_id: id.clone(),
    });
    match asked.await? {
        ReplyResult::Committed {
            broker_message_id,
            history_id,
            wire_fingerprint,
        } if wire_fingerprint == fingerprint.to_hex() => Ok(Some(RowMove::Done {
            broker_message_id,
            history_id,
        })),
        // Another request holds the id at the broker: ours was never committed.
        ReplyResult::Committed { .. } | ReplyResult::Absent => Ok(None),
        _ => Err(Problem::new(
            ErrorCode::Internal,
            "the broker answered another question",
        )),
    }
}

/// Of a row whose payload was pruned nothing can be sent; whether it arrived can still be known.
async fn only_look(shared: &Shared, mesh: &MeshState, old: &OutboxRow) -> Result<Outcome, Problem> {
    match last_look(shared, mesh, old, true).await? {
        Some(old) => Ok(Outcome { old, new: None }),
        None => Err(with_prefix(
            Problem::new(
                ErrorCode::PayloadPruned,
                format!(
                    "row {} gave up its payload in a prune; there is nothing to requeue",
                    old.row
                ),
            ),
            old,
        )
        .next("Send the message anew under a new id, if it is still wanted.")),
    }
}

/// Asks the broker for the old id. `Some` is the old row, settled as done.
async fn last_look(
    shared: &Shared,
    mesh: &MeshState,
    old: &OutboxRow,
    force: bool,
) -> Result<Option<OutboxRow>, Problem> {
    match look(mesh, old).await {
        Ok(Some(done)) => settle_as_done(shared, old, done).await.map(Some),
        Ok(None) | Err(_) if force => Ok(None),
        Ok(None) => refuse_forgotten(shared, mesh, old).await.map(|()| None),
        Err(problem) => Err(problem.next(
            "Try again when the broker is back, or use --force: the message may then arrive twice.",
        )),
    }
}

/// That the broker does not have it proves nothing once it may have forgotten it.
pub(super) async fn refuse_forgotten(
    shared: &Shared,
    mesh: &MeshState,
    old: &OutboxRow,
) -> Result<(), Problem> {
    // What a row died of was known when it died: it was refused, or was never sent, and its last look is no try.
    if old.status == OutboxStatus::Dead && !is_outcome_unknown(old.last_error.as_deref()) {
        return Ok(());
    }
    let worth = absence_of(shared, mesh, old).await;
    if worth.map_err(|error| store_problem(&error))? != LastLook::Forgotten {
        return Ok(());
    }
    let problem = Problem::new(
        ErrorCode::OutcomeUnknown,
        format!(
            "whether {} arrived cannot be known any more: it was sent longer ago than the broker remembers ids; nothing was changed",
            old.client_message_id
        ),
    );
    Err(with_prefix(problem, old).with("conflict", "outbox_outcome_unknown"))
}

/// A row that somebody else has moved since it was looked at, and whose message the broker holds.
fn has_arrived(row: &OutboxRow, done: &RowMove) -> Problem {
    let mut problem = Problem::new(
        ErrorCode::IdempotencyKeyReused,
        "the broker has this message; it was delivered, so nothing was requeued",
    )
    .with("conflict", "outbox_committed_not_requeueable")
    .next("There is nothing to do: sending it again would deliver it twice.");
    if let RowMove::Done {
        broker_message_id,
        history_id,
    } = done
    {
        problem = problem
            .with("broker_message_id", broker_message_id.to_string())
            .with("history_id", history_id.to_string());
    }
    with_prefix(problem, row)
}

/// How often the drain may move the row between two steps of ours before we only say what is true.
const SETTLE_TRIES_MAX: usize = 4;

/// The look was a transmission: a waiting row passes through `inflight`, one that the drain took meanwhile is
/// there already. A dead one is done at once: it is never on its way again.
async fn settle_as_done(
    shared: &Shared,
    old: &OutboxRow,
    done: RowMove,
) -> Result<OutboxRow, Problem> {
    for _ in 0..SETTLE_TRIES_MAX {
        let row = find_row(shared, old.row).await?;
        match row.status {
            OutboxStatus::Done => return Ok(row),
            OutboxStatus::Aborted => break,
            OutboxStatus::Dead => settle_dead(shared, &row, &done).await?,
            OutboxStatus::Pending => {
                let taken = shared.store.take_one(row.row).await;
                if taken.map_err(|error| store_problem(&error))?.is_some() {
                    settle_inflight(shared, &row, &done).await?;
                }
            }
            // The drain sends it at this moment. Its verdict comes too late and moves nothing.
            OutboxStatus::Inflight => settle_inflight(shared, &row, &done).await?,
        }
    }
    let row = find_row(shared, old.row).await?;
    if row.status == OutboxStatus::Done {
        return Ok(row);
    }
    Err(has_arrived(&row, &done))
}

async fn settle_dead(shared: &Shared, row: &OutboxRow, done: &RowMove) -> Result<(), Problem> {
    if let RowMove::Done {
        broker_message_id,
        history_id,
    } = done
    {
        let place = (*broker_message_id, *history_id);
        let at = shared.clock.wall();
        let settled = shared
            .store
            .settle_dead_as_done(row.row, row.attempts, place, at);
        settled.await.map_err(|error| store_problem(&error))?;
    }
    Ok(())
}

async fn settle_inflight(shared: &Shared, row: &OutboxRow, done: &RowMove) -> Result<(), Problem> {
    let settle = Settle {
        row: row.row,
        attempts: row.attempts,
        next: done.clone(),
        begun: shared.clock.wall(),
        at: shared.clock.wall(),
        due: shared.clock.mono(),
    };
    let settled = shared.store.settle(vec![settle]).await;
    settled.map_err(|error| store_problem(&error))
}

pub(crate) async fn find_row(shared: &Shared, row: RowId) -> Result<OutboxRow, Problem> {
    let found = shared.store.outbox_find(OutboxFind::Row(row)).await;
    let mut rows = found.map_err(|error| store_problem(&error))?;
    rows.pop()
        .ok_or_else(|| Problem::new(ErrorCode::NotFound, format!("no outbox row {row}")))
}

/// The envelope of a row, if it still is what was accepted.
pub(super) fn whole(row: &OutboxRow) -> Option<Envelope> {
    let envelope = Envelope::parse(&row.payload).ok()?;
    let found = envelope.wire_fingerprint().ok()?;
    (found == row.wire_fingerprint).then_some(envelope)
}

fn damaged(row: &OutboxRow) -> Problem {
    from_wire::invalid(format!(
        "the stored payload of row {} is not what was accepted; it is not sent like this",
        row.row
    ))
    .next("Say again what was meant: --patch-payload FILE, with {\"message\": \"…\"} in the file (and meta and reply_to_id, where it had any).")
}

/// The old request, with the patch's fields in place of its own (C19: the rest travels along).
fn patched(old: &OutboxRow, patch: Option<Value>) -> Result<SendBody, Problem> {
    let mut body = SendBody {
        to: old.to.clone(),
        priority: Some(old.priority.as_str().to_owned()),
        mentions: old.mentions.clone(),
        ..SendBody::default()
    };
    match whole(old) {
        Some(envelope) => {
            body.message = envelope.body;
            body.meta = envelope.meta;
            body.reply_to_id = (!envelope.reply_to.is_empty()).then_some(envelope.reply_to);
        }
        // Nothing of it can be trusted: what was meant must be said again.
        None if patch
            .as_ref()
            .is_some_and(|patch| patch.get("message").is_some()) => {}
        None => return Err(damaged(old)),
    }
    let Some(patch) = patch else {
        return Ok(body);
    };
    let Value::Object(patch) = patch else {
        return Err(from_wire::invalid("patch_payload must be an object"));
    };
    let patchable = [
        "to",
        "message",
        "priority",
        "meta",
        "reply_to_id",
        "mentions",
    ];
    if let Some(name) = patch
        .keys()
        .find(|name| !patchable.contains(&name.as_str()))
    {
        return Err(from_wire::invalid(format!(
            "patch_payload cannot change {name:?}"
        )));
    }
    let mut value = serde_json::to_value(body).unwrap_or_default();
    if let Value::Object(fields) = &mut value {
        fields.extend(patch);
    }
    from_wire::typed(value)
}
