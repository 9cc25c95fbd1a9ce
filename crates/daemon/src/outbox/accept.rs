//! IPC accept: fingerprint, look up, and only then resolve (C47), in one writer job.

use std::sync::LazyLock;

use heddle_core::clock::WallMs;
use heddle_core::envelope::{EnvelopeKind, SendRequest};
use heddle_core::error_code::ErrorCode;
use heddle_core::fingerprint::{BodyDigest, Covered, Fingerprint, request_fingerprint_with};
use heddle_core::gate::IpcVerdict;
use heddle_core::ids::{ClientMessageId, RowId};
use heddle_core::names::AgentName;
use heddle_core::outbox_status::OutboxStatus;
use heddle_core::pressure::Pressure;
use heddle_core::shell::quoted;
use heddle_store::{AcceptKey, Accepted, NewOutboxRow, OutboxRow};
use heddle_wire::broker::{FrozenDestination, FrozenEnvelope};
use heddle_wire::ipc::{LostView, SendAnswer, SendStatus};
use heddle_wire::problem::Problem;

use super::count::{Asks, Reserved};
use super::relief::LOOKS_MAX;
use super::requeue::{find_row, newest_of_chain, whole};
use crate::mentions;
use crate::mesh::MeshState;
use crate::shared::{Shared, store_problem};

/// Looked up once: see the histogram beside the route.
static ACCEPTED: LazyLock<metrics::Counter> =
    LazyLock::new(|| metrics::counter!("heddle_outbox_accepted_total"));

/// The answer of a 2xx, and whether it is the `202` or the `200`.
#[derive(Debug)]
pub(crate) enum Answer {
    Accepted(SendAnswer),
    Duplicate(SendAnswer),
}

pub(crate) async fn accept(
    shared: &Shared,
    mesh: &MeshState,
    agent: AgentName,
    client_message_id: Option<ClientMessageId>,
    request: SendRequest,
) -> Result<Answer, Problem> {
    let body = BodyDigest::of(request.body.as_bytes());
    let fingerprint = request_fingerprint_with(&request, body);
    let unreached = mentions::unreached(mesh, &request);
    let id = client_message_id.unwrap_or_else(|| ClientMessageId::minted(shared.ids.ulid()));
    let mut fresh = fresh_row(shared, mesh, &request, body);
    for _ in 0..LOOKS_MAX {
        let is_full = |problem: &Problem| problem.code == ErrorCode::InsufficientStorage.as_str();
        if !fresh.as_ref().is_err_and(is_full) || !Box::pin(shared.disk.relieved()).await {
            break;
        }
        fresh = fresh_row(shared, mesh, &request, body);
    }
    let (fresh, reserved) = match fresh {
        Ok((row, reserved)) => (Ok(row), Some(reserved)),
        Err(problem) => (Err(Box::new(problem)), None),
    };
    let key = AcceptKey {
        mesh: mesh.mesh.mesh,
        sender: mesh.party(agent),
        client_message_id: id.clone(),
        request_fingerprint: fingerprint,
    };
    let accepted = shared.store.accept(key, fresh).await;
    match accepted.map_err(|error| store_problem(&error))? {
        Accepted::Inserted { .. } => {
            ACCEPTED.increment(1);
            mesh.drain.notify_one();
            let answer = queued(&id, fingerprint, SendStatus::Queued, None);
            Ok(Answer::Accepted(SendAnswer {
                unreached,
                ..answer
            }))
        }
        Accepted::Known {
            decision,
            row,
            lost,
        } => {
            if let Some(reserved) = reserved {
                reserved.give_back();
            }
            metrics::counter!("heddle_outbox_known_ids_total", "row" => decision.name).increment(1);
            if decision.verdict == IpcVerdict::Queued && is_damaged(shared, &row).await? {
                return Err(damaged(&row));
            }
            let lost = lost.map(|lost| super::lost::view(*lost));
            match known(decision.verdict, &row, fingerprint) {
                Ok(Answer::Duplicate(answer)) => Ok(Answer::Duplicate(with_loss(answer, lost))),
                Err(problem) if row.status == OutboxStatus::Aborted => {
                    Err(with_successor(shared, &row, problem).await)
                }
                other => other,
            }
        }
        Accepted::Refused(problem) => Err(*problem),
    }
}

/// The row of a new message, and room for it and its copies, held until it is in the store. Resolved from memory, but not yet
/// refused: a known id is answered whatever the roster says.
fn fresh_row<'s>(
    shared: &'s Shared,
    mesh: &MeshState,
    request: &SendRequest,
    body: BodyDigest,
) -> Result<(NewOutboxRow, Reserved<'s>), Problem> {
    if let Some(problem) = shared.disk.refusal_for(Pressure::Refusing) {
        return Err(problem);
    }
    let sealed = seal_with(mesh, request, body)?;
    let bytes = sealed.payload.len();
    let reserved = shared.disk.reserve(Asks::Send, mesh.mesh.mesh, bytes)?;
    Ok((new_row(shared, request, sealed), reserved))
}

/// The envelope as it will be sent, every time (DR-06), and its fingerprint.
pub(crate) struct Sealed {
    payload: Vec<u8>,
    fingerprint: Fingerprint,
}

/// Resolves every name and freezes the envelope.
pub(crate) fn seal(mesh: &MeshState, request: &SendRequest) -> Result<Sealed, Problem> {
    seal_with(mesh, request, BodyDigest::of(request.body.as_bytes()))
}

fn seal_with(mesh: &MeshState, request: &SendRequest, body: BodyDigest) -> Result<Sealed, Problem> {
    let reference = mesh.resolve(&request.to)?;
    let mut mentions = Vec::with_capacity(request.mentions.len());
    for mention in &request.mentions {
        let address = heddle_core::envelope::Address::parse(mention)
            .map_err(|error| Problem::new(ErrorCode::InvalidRequest, error.to_string()))?;
        mentions.push(mesh.resolve(&address)?);
    }
    mentions.sort_unstable();
    mentions.dedup();
    let destination = FrozenDestination {
        kind: request.to.kind(),
        reference: &reference,
    };
    let envelope = FrozenEnvelope {
        reply_to: &request.reply_to,
        meta: request.meta.as_ref(),
        mentions: &mentions,
        ..FrozenEnvelope::message(destination, request.priority, &request.body)
    };
    let covered = Covered {
        destination_kind: request.to.kind(),
        destination_ref: &reference,
        reply_to: &request.reply_to,
        priority: request.priority,
        meta_canonical: &request.meta_canonical,
        body: request.body.as_bytes(),
        mentions: &mentions,
    };
    let internal = |error: serde_json::Error| Problem::new(ErrorCode::Internal, error.to_string());
    Ok(Sealed {
        payload: envelope.bytes().map_err(internal)?,
        fingerprint: covered.fingerprint_with(body),
    })
}

pub(crate) fn new_row(shared: &Shared, request: &SendRequest, sealed: Sealed) -> NewOutboxRow {
    NewOutboxRow {
        row: RowId(shared.ids.ulid()),
        kind: EnvelopeKind::Message,
        to: request.to.to_string(),
        mentions: request.mentions.clone(),
        priority: request.priority,
        payload: sealed.payload,
        wire_fingerprint: sealed.fingerprint,
        enqueued_at: shared.clock.wall(),
    }
}

fn queued(
    id: &ClientMessageId,
    fingerprint: Fingerprint,
    status: SendStatus,
    duplicate: Option<bool>,
) -> SendAnswer {
    SendAnswer {
        client_message_id: id.to_string(),
        status: Some(status),
        duplicate,
        request_fingerprint: fingerprint.to_hex(),
        broker_message_id: None,
        history_id: None,
        durability: "local".to_owned(),
        lost: None,
        unreached: Vec::new(),
        next: None,
    }
}

/// The table of v10 §4.5.1 as answers.
fn known(verdict: IpcVerdict, row: &OutboxRow, presented: Fingerprint) -> Result<Answer, Problem> {
    match verdict {
        IpcVerdict::Insert | IpcVerdict::Queued => Ok(Answer::Accepted(queued(
            &row.client_message_id,
            presented,
            SendStatus::Queued,
            Some(true),
        ))),
        IpcVerdict::Inflight => Ok(Answer::Accepted(queued(
            &row.client_message_id,
            presented,
            SendStatus::Inflight,
            Some(true),
        ))),
        IpcVerdict::Duplicate => Ok(Answer::Duplicate(SendAnswer {
            client_message_id: row.client_message_id.to_string(),
            status: None,
            duplicate: Some(true),
            request_fingerprint: presented.to_hex(),
            broker_message_id: row.broker_message_id.map(|id| id.to_string()),
            history_id: row.history_id.map(|id| id.to_string()),
            durability: "committed".to_owned(),
            lost: None,
            unreached: Vec::new(),
            next: None,
        })),
        IpcVerdict::Conflict(conflict) => Err(conflict_problem(conflict, row)),
    }
}

/// The answer to a retry of what the broker has lost since: it was committed, and is not.
fn with_loss(answer: SendAnswer, lost: Option<LostView>) -> SendAnswer {
    let Some(lost) = lost.filter(LostView::is_away) else {
        return answer;
    };
    SendAnswer {
        broker_message_id: None,
        history_id: None,
        durability: "local".to_owned(),
        next: lost.next(&answer.client_message_id),
        lost: Some(lost),
        ..answer
    }
}

/// A row that was requeued: under which id its message goes on.
async fn with_successor(shared: &Shared, row: &OutboxRow, problem: Problem) -> Problem {
    let Some(newest) = newest_of_chain(shared, row).await else {
        if row.status != OutboxStatus::Aborted {
            return problem;
        }
        // A prune with --retire: nobody goes on with it.
        return problem.next(format!(
            "An operator retired it at {} without a successor, and its id stays taken: send the message anew under a new id, if it is still wanted.",
            row.aborted_at.map_or_else(|| "an unknown time".to_owned(), WallMs::to_rfc3339)
        ));
    };
    let id = newest.client_message_id.to_string();
    let next = format!(
        "It was requeued as {id}, which is {}: `heddle explain {}` says what became of it. Another message needs a new id.",
        newest.status.as_str(),
        quoted(&id)
    );
    problem.with("successor", id).next(next)
}

/// Whether a row that waits is not what was accepted any more. The look-up of an id leaves the payload where it lies.
async fn is_damaged(shared: &Shared, row: &OutboxRow) -> Result<bool, Problem> {
    let row = find_row(shared, row.row).await?;
    Ok(row.status == OutboxStatus::Pending && whole(&row).is_none())
}

/// A retry of what waits here, but not as it was accepted: it is never sent like that, so nobody may hear that it is
/// safe. What a row was accepted with never changes (OB-07), so the caller's own bytes cannot be put in its place.
fn damaged(row: &OutboxRow) -> Problem {
    Problem::new(
        ErrorCode::IdempotencyKeyReused,
        format!(
            "id {} belongs to this very request of {}, but its bytes in this home are damaged, so it is not sent",
            row.client_message_id,
            row.enqueued_at.to_rfc3339(),
        ),
    )
    .with("conflict", "outbox_damaged_fingerprint_match")
    .with("client_message_id", row.client_message_id.to_string())
    .with(
        "daemon_fingerprint_prefix",
        row.request_fingerprint.prefix(),
    )
    .next(format!(
        "`heddle daemon outbox requeue --id {} --auto --patch-payload FILE`, with {{\"message\": \"…\"}} in FILE, asks the broker first and then sends it under a new id.",
        row.row
    ))
}

fn conflict_problem(conflict: &'static str, row: &OutboxRow) -> Problem {
    let mut problem = Problem::new(
        ErrorCode::IdempotencyKeyReused,
        format!(
            "id {} belongs to {} request of {} that is {}",
            row.client_message_id,
            if conflict.ends_with("_match") {
                "this very"
            } else {
                "another"
            },
            row.enqueued_at.to_rfc3339(),
            row.status.as_str()
        ),
    )
    .with("conflict", conflict)
    .with("client_message_id", row.client_message_id.to_string())
    .with(
        "daemon_fingerprint_prefix",
        row.request_fingerprint.prefix(),
    );
    if let Some(id) = row.broker_message_id {
        problem = problem.with("broker_message_id", id.to_string());
    }
    if conflict.starts_with("outbox_dead") {
        problem = problem
            .with("reason", row.last_error.clone().unwrap_or_default())
            .next(format!(
                "`heddle daemon outbox requeue --id {} --auto` sends what is under it again, under a fresh id, unless a prune has given its payload back. Another message needs a new id.",
                quoted(row.client_message_id.as_str())
            ));
    }
    problem
}
