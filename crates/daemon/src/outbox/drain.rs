//! The drain: takes due rows, sends them in batches, settles them by the broker's verdicts.
//!
//! A row that was taken is settled before this ends, whatever becomes of the connection; no await
//! on the store is ever abandoned half way, because the write would happen all the same. Every mesh has
//! a drain of its own; one that waits for its broker holds up no other.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use heddle_core::age::may_be_forgotten;
use heddle_core::backoff::backoff;
use heddle_core::clock::WallMs;
use heddle_core::drain::{BrokerAnswer, RowMove, Waits, drain};
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::ClientMessageId;
use heddle_core::limits::{BATCH_BYTES_MAX, BATCH_ITEMS_MAX};
use heddle_store::{DueMoment, DueRow, Settle};
use heddle_wire::broker::{Envelope, SendItem, Verdict};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::age;
use super::pause::{BatchEnd, Pause};
use super::requeue::look_for;
use crate::link::Live;
use crate::mesh::MeshState;
use crate::shared::Shared;

/// Batches sent and not yet answered: enough to keep the broker's writer busy.
const BATCHES_IN_FLIGHT_MAX: usize = 4;
/// With nothing due at all, the table is looked at this often in case a hint was lost.
const IDLE_LOOK: Duration = Duration::from_secs(5);
/// What the error of a row begins with whose own bytes are not what was accepted.
pub(crate) const DAMAGED: &str = "damaged: ";
/// After the store failed to answer.
const STORE_WAIT: Duration = Duration::from_millis(500);

pub(crate) async fn run(
    shared: Arc<Shared>,
    mesh: Arc<MeshState>,
    live: Arc<Live>,
    lost: CancellationToken,
) {
    let mut batches = FuturesUnordered::new();
    let mut pause = Pause::default();
    loop {
        let stopping = shared.shutdown.is_cancelled() || lost.is_cancelled();
        if stopping && batches.is_empty() {
            return;
        }
        let mut wait = IDLE_LOOK;
        let batches_max = if mesh.window.is_tight() || pause.is_probing() {
            // The first batch of a window, or after a pause, holds what is to go first; more would only be refused.
            1
        } else {
            BATCHES_IN_FLIGHT_MAX
        };
        let has_room = !stopping && !pause.is_on() && batches.len() < batches_max;
        if has_room {
            match take(&shared, &mesh).await {
                Ok(Taken::Rows(batch)) => {
                    batches.push(transmit(&shared, &mesh, &live, batch));
                    continue;
                }
                Ok(Taken::Nothing { next }) => {
                    if next.is_none() && batches.is_empty() {
                        mesh.refusals.has_drained();
                    }
                    wait = next.map_or(wait, |next| wait.min(next));
                }
                Err(error) => {
                    tracing::warn!(%error, "the outbox cannot be read");
                    wait = STORE_WAIT;
                }
            }
        }
        tokio::select! {
            Some(end) = batches.next(), if !batches.is_empty() => pause.heard(end, &shared),
            () = pause.over(), if pause.is_on() && !stopping => {}
            () = mesh.drain.notified(), if has_room => {}
            () = tokio::time::sleep(wait), if has_room => {}
            () = lost.cancelled(), if !stopping => {}
            () = shared.shutdown.cancelled(), if !stopping => {}
        }
    }
}

/// Rows that were taken together.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) due: Vec<DueRow>,
    /// Of these nothing is sent: the broker is asked for them, and they end.
    pub(crate) over_age: Vec<DueRow>,
}

pub(crate) enum Taken {
    Rows(Batch),
    /// And when something is due again; `None` where nothing waits.
    Nothing {
        next: Option<Duration>,
    },
}

pub(crate) async fn take(
    shared: &Shared,
    mesh: &MeshState,
) -> Result<Taken, heddle_store::StoreError> {
    let now = shared.clock.mono();
    let id = mesh.mesh.mesh;
    if let Some(left) = mesh.window.left(now) {
        return Ok(Taken::Nothing { next: Some(left) });
    }
    // A row that moves is written anew, with its payload: all rows of a batch in one stretch of the log.
    let (items_max, bytes_max) = shared.disk.batch_max(BATCH_ITEMS_MAX, BATCH_BYTES_MAX);
    let store = &shared.store;
    let moment = DueMoment {
        now,
        age: age::now(shared),
        is_scarce: mesh.window.is_tight(),
    };
    let rows = match store.take_due(id, moment, items_max, bytes_max).await {
        // On a disk that is nearly full one row may find the room that several do not.
        Err(_) if store.poisoned().is_none() => store.take_due(id, moment, 1, 0).await?,
        taken => taken?,
    };
    if !rows.is_empty() {
        // IMPORTANT: after they were taken. A row that is over age by now is never sent, also right after a start or a sleep,
        // when no tick has looked yet: a broker that has forgotten its id would take it for a new one (C32).
        let over_age_by = age::over_age_by(shared, mesh).await;
        let over_age_by = over_age_by.unwrap_or_else(|error| {
            tracing::warn!(%error, "ages could not be looked at");
            0
        });
        let (over_age, due) = rows.into_iter().partition(|row| row.arrival <= over_age_by);
        return Ok(Taken::Rows(Batch { due, over_age }));
    }
    let next = shared.store.next_due(id).await?;
    Ok(Taken::Nothing {
        next: next.map(|due| due.saturating_sub(now)),
    })
}

/// Settles each row of a batch: what is due is sent, what is over age is asked for.
pub(crate) async fn transmit(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
    batch: Batch,
) -> BatchEnd {
    end_over_age(shared, mesh, batch.over_age).await;
    if batch.due.is_empty() {
        return BatchEnd::Answered;
    }
    send(shared, mesh, live, batch.due).await
}

async fn send(shared: &Shared, mesh: &MeshState, live: &Live, rows: Vec<DueRow>) -> BatchEnd {
    let (started, begun) = (shared.clock.mono(), shared.clock.wall());
    let mut items = Vec::with_capacity(rows.len());
    let mut sent = Vec::with_capacity(rows.len());
    let mut damaged = Vec::new();
    for mut row in rows {
        match item(&mut row) {
            Ok(item) => {
                note_late(shared, mesh, &row);
                items.push(item);
                sent.push(row);
            }
            Err(why) => damaged.push((row, why)),
        }
    }
    let mut moves = settle_damaged(shared, mesh, damaged).await;
    let answers = match live.send(items).await {
        Some(verdicts) if verdicts.len() == sent.len() => verdicts
            .into_iter()
            .zip(&sent)
            .map(|(verdict, row)| answer_about(verdict, &row.client_message_id))
            .collect(),
        Some(_) => vec![silence("the broker answered another number of items"); sent.len()],
        None => vec![silence("no answer from the broker"); sent.len()],
    };
    let mut end = BatchEnd::Answered;
    let mut refused = None;
    let mut limited = None;
    for (row, next) in sent.iter().zip(row_moves(answers, &sent)) {
        if let RowMove::Retry { error, waits } = &next {
            match waits {
                Waits::Mesh => {
                    end = BatchEnd::Silent;
                    // It is there and answers to a ping, but not to this: its tables are held by somebody, say.
                    if mesh.is_connected() {
                        refused = Some(error.clone());
                    }
                }
                Waits::Broker => {
                    end = BatchEnd::Silent;
                    refused = Some(error.clone());
                }
                Waits::Row => refused = Some(error.clone()),
                Waits::Window(wait) => {
                    refused = Some(error.clone());
                    limited = Some(*wait);
                }
            }
        }
        moves.push(settle(shared, row, begun, next));
    }
    // IMPORTANT: before the rows are settled, or they would be taken again at once.
    match limited {
        Some(wait) => mesh
            .window
            .is_full(shared.clock.mono(), wait, shared.ids.below(u64::MAX)),
        None if end == BatchEnd::Answered => mesh.window.is_open(shared.clock.mono()),
        None => {}
    }
    mesh.refusals.note(refused, shared.clock.mono());
    let elapsed = shared.clock.mono().saturating_sub(started);
    metrics::histogram!("heddle_drain_batch_seconds").record(elapsed.as_secs_f64());
    settle_until_done(shared, moves).await;
    end
}

/// Where each row of a batch goes. A broker that took one of them is there: what it did not take then waits by itself, or a
/// single row that it can never keep would hold up all others.
fn row_moves(answers: Vec<BrokerAnswer>, sent: &[DueRow]) -> Vec<RowMove> {
    let takes_some = answers
        .iter()
        .any(|answer| matches!(answer, BrokerAnswer::Committed { .. }));
    let moves = answers.into_iter().zip(sent).map(|(answer, row)| {
        note(&answer, row);
        match drain(answer) {
            RowMove::Retry {
                error,
                waits: Waits::Broker,
            } if takes_some => RowMove::Retry {
                error,
                waits: Waits::Row,
            },
            next => next,
        }
    });
    moves.collect()
}

/// Each is settled as soon as the broker has said what it knows of it.
async fn end_over_age(shared: &Shared, mesh: &MeshState, rows: Vec<DueRow>) {
    for row in rows {
        let end = age::end_of(shared, mesh, &row).await;
        let end = end.unwrap_or_else(|error| {
            let (error, waits) = (error.to_string(), Waits::Row);
            settle(
                shared,
                &row,
                shared.clock.wall(),
                RowMove::Retry { error, waits },
            )
        });
        settle_until_done(shared, vec![end]).await;
    }
}

/// Rows whose own frozen bytes have changed since they were accepted. Nothing is sent of them, so nothing is refused, and
/// only a refusal or age kills; but the broker may have one from an attempt before, and then it is done.
async fn settle_damaged(
    shared: &Shared,
    mesh: &MeshState,
    damaged: Vec<(DueRow, &'static str)>,
) -> Vec<Settle> {
    let begun = shared.clock.wall();
    let mut moves = Vec::with_capacity(damaged.len());
    let mut is_answering = true;
    for (row, why) in damaged {
        let mut found = None;
        if is_answering {
            let id = (&row.agent, &row.client_message_id);
            match look_for(mesh, id, row.wire_fingerprint).await {
                Ok(looked) => found = looked,
                Err(_) => is_answering = false,
            }
        }
        let next = found.unwrap_or_else(|| RowMove::Park {
            reason: format!("{DAMAGED}{why}"),
        });
        moves.push(settle(shared, &row, begun, next));
    }
    moves
}

/// v6 §4.12: the retry goes out, because the row is not over age on the clock that counts; a broker that has
/// forgotten the id makes a second message of it, and somebody should be able to see why.
fn note_late(shared: &Shared, mesh: &MeshState, row: &DueRow) {
    let now = shared.clock.wall();
    if may_be_forgotten(row.attempts, row.enqueued_at, now, mesh.max_age_hours()) {
        metrics::counter!("heddle_daemon_retry_after_dedupe_expired_total").increment(1);
        tracing::warn!(id = %row.client_message_id, "sent again after the time for which the broker promised to remember it");
    }
}

/// What v6 §4.5 asks to be told of a duplicate.
fn note(answer: &BrokerAnswer, row: &DueRow) {
    let BrokerAnswer::Committed {
        duplicate: true,
        history_available,
        ..
    } = answer
    else {
        return;
    };
    metrics::counter!("heddle_daemon_duplicates_total").increment(1);
    if *history_available {
        tracing::info!(id = %row.client_message_id, "the broker had it already");
    } else {
        metrics::counter!("heddle_daemon_dedupe_history_pruned_total").increment(1);
        tracing::warn!(id = %row.client_message_id, "the broker had it already, and has pruned it since");
    }
}

/// The rows stay inflight until they are settled, so a busy store is asked again.
pub(crate) async fn settle_until_done(shared: &Shared, moves: Vec<Settle>) {
    loop {
        match shared.store.settle(moves.clone()).await {
            Ok(()) => return,
            Err(heddle_store::StoreError::Stopped | heddle_store::StoreError::Poisoned(_)) => {
                // The next start finds them inflight and asks the broker again (DR-02).
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "rows could not be settled yet");
                tokio::time::sleep(STORE_WAIT).await;
            }
        }
    }
}

/// The row as it is sent. A disk that changed a letter of it since it was accepted must not have the last word: what
/// the broker gets is what the caller was promised, or nothing.
fn item(row: &mut DueRow) -> Result<SendItem, &'static str> {
    const UNREADABLE: &str = "the stored payload cannot be read";
    let text = String::from_utf8(std::mem::take(&mut row.payload)).map_err(|_| UNREADABLE)?;
    let envelope = Envelope::parse(text.as_bytes()).map_err(|_| UNREADABLE)?;
    let found = envelope.wire_fingerprint().map_err(|_| UNREADABLE)?;
    if found != row.wire_fingerprint {
        return Err("the stored payload is not what was accepted");
    }
    Ok(SendItem {
        agent: row.agent.clone(),
        client_message_id: row.client_message_id.clone(),
        epoch: None,
        envelope: RawValue::from_string(text).map_err(|_| UNREADABLE)?,
    })
}

pub(crate) fn settle(shared: &Shared, row: &DueRow, begun: WallMs, next: RowMove) -> Settle {
    let label = match &next {
        RowMove::Done { .. } => {
            let way = crate::metrics::seconds_between(row.enqueued_at, shared.clock.wall());
            metrics::histogram!("heddle_drain_seconds").record(way);
            shared.disk.relief.note_done();
            "done"
        }
        RowMove::Dead { .. } => "dead",
        RowMove::Retry { .. } => "retry",
        RowMove::Park { .. } => "parked",
    };
    metrics::counter!("heddle_outbox_settled_total", "outcome" => label).increment(1);
    if let RowMove::Dead { reason } = &next {
        tracing::warn!(id = %row.client_message_id, %reason, "an outbox row is dead");
    }
    if let RowMove::Park { reason } = &next {
        tracing::error!(id = %row.client_message_id, %reason, "an outbox row waits until it is mended; the others go on");
    }
    Settle {
        row: row.row,
        attempts: row.attempts,
        next,
        begun,
        at: shared.clock.wall(),
        due: shared.clock.mono() + backoff(row.attempts, shared.ids.below(u64::MAX)),
    }
}

pub(crate) fn silence(why: &str) -> BrokerAnswer {
    BrokerAnswer::Silence {
        why: why.to_owned(),
    }
}

/// The verdict, if it is about this id. One about another says nothing of ours, which is then asked for again.
pub(crate) fn answer_about(verdict: Verdict, id: &ClientMessageId) -> BrokerAnswer {
    if verdict.is_about(id) {
        answer(verdict)
    } else {
        silence("the broker answered for another id")
    }
}

/// The wire's verdict as the core's answer.
fn answer(verdict: Verdict) -> BrokerAnswer {
    match verdict {
        Verdict::Created {
            broker_message_id,
            history_id,
            ..
        } => BrokerAnswer::Committed {
            broker_message_id,
            history_id,
            duplicate: false,
            history_available: true,
        },
        Verdict::Duplicate {
            broker_message_id,
            history_id,
            history_available,
            ..
        } => BrokerAnswer::Committed {
            broker_message_id,
            history_id,
            duplicate: true,
            history_available,
        },
        Verdict::Conflict {
            broker_fingerprint_prefix,
            ..
        } => BrokerAnswer::Refused {
            code: ErrorCode::IdempotencyKeyReused.as_str().to_owned(),
            detail: format!(
                "the broker holds another request under this id ({broker_fingerprint_prefix}…)"
            ),
            retry_after: None,
        },
        Verdict::Refused(refused) => BrokerAnswer::Refused {
            code: refused.code,
            detail: refused.detail,
            retry_after: refused.retry_after_ms.map(Duration::from_millis),
        },
    }
}
