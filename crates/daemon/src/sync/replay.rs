//! A new epoch may mean that the broker was put back from an older copy, or has mended a log with holes: what it has lost
//! of our own ops is sent again, under the same ids. Those who read them before know them by their ids (C9).

use heddle_core::limits::BATCH_ITEMS_MAX;
use heddle_core::sync::{OpMove, is_lost_op, op_move};
use heddle_store::{ReplayRow, StoreError};
use heddle_wire::broker::{ReplyResult, Request};

use super::push::item;
use super::{Exchange, known};
use crate::link::Live;
use crate::mesh::MeshState;
use crate::outbox::drain::answer_about;
use crate::shared::Shared;

pub(super) async fn run(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
) -> Result<Exchange, StoreError> {
    let id = mesh.mesh.mesh;
    let head = shared.store.sync_head(id).await?;
    if head.broker_epoch <= head.replayed_epoch {
        return Ok(Exchange::Done(false));
    }
    let (epoch, ends, holes) = match live.request(Request::Epochs).await {
        Some(ReplyResult::Epochs { epoch, ends, holes }) => (epoch, ends, holes),
        Some(_) => return Ok(Exchange::Later("the broker names no epochs".to_owned())),
        None => return Ok(Exchange::Later("no answer from the broker".to_owned())),
    };
    let mut after = 0;
    let mut count = 0_u64;
    loop {
        let known = (ends.clone(), holes.clone());
        let look = shared
            .store
            .lost_ops(id, after, move |place| {
                is_lost_op(place, epoch, &known.0, &known.1)
            })
            .await?;
        for rows in look.rows.chunks(BATCH_ITEMS_MAX) {
            match again((shared, mesh), live, rows).await? {
                Some(sent) => count += sent,
                None => {
                    return Ok(Exchange::Later(
                        "lost ops could not be sent again".to_owned(),
                    ));
                }
            }
        }
        match look.next {
            Some(next) => after = next,
            None => break,
        }
    }
    if count > 0 {
        tracing::warn!(count, epoch, mesh = %mesh.mesh.name, "the broker had lost ops of this home; they were sent again");
        metrics::counter!("heddle_sync_replayed_total").increment(count);
    }
    shared
        .store
        .replayed(id, epoch.max(head.broker_epoch))
        .await?;
    Ok(Exchange::Done(count > 0))
}

/// How many the broker has again; `None` if it does not take them now.
async fn again(
    (shared, mesh): (&Shared, &MeshState),
    live: &Live,
    rows: &[ReplayRow],
) -> Result<Option<u64>, StoreError> {
    let (mut items, mut sent) = (Vec::new(), Vec::new());
    for row in rows {
        let item = item(
            &row.agent,
            &row.client_message_id,
            row.payload.clone(),
            None,
        );
        match item {
            Some(item) => {
                items.push(item);
                sent.push(row);
            }
            None => {
                tracing::error!(id = %row.client_message_id, "the broker has lost an op whose bytes are not here any more");
            }
        }
    }
    if items.is_empty() {
        return Ok(Some(0));
    }
    let Some((verdicts, _)) = known::send(shared, mesh, live, items).await else {
        return Ok(None);
    };
    let mut moved = Vec::new();
    let mut waits = verdicts.len() != sent.len();
    for (row, verdict) in sent.iter().zip(verdicts) {
        match op_move(answer_about(verdict, &row.client_message_id)) {
            OpMove::Done {
                broker_message_id,
                history_id,
            } => moved.push((row.arrival, broker_message_id, history_id)),
            OpMove::Refused { error } => {
                tracing::error!(id = %row.client_message_id, %error, "an op that the broker had lost is refused now");
            }
            OpMove::Wait { .. } => waits = true,
        }
    }
    let count = u64::try_from(moved.len()).unwrap_or(u64::MAX);
    shared.store.moved_ops(moved).await?;
    Ok((!waits).then_some(count))
}
