//! New places in SQL, in one transaction: everything that knows a place goes along (`parting`).

use std::collections::HashMap;

use deadpool_postgres::{GenericClient, Transaction};
use heddle_core::ids::{HistoryId, IdKey, MeshId};
use heddle_core::witness::{Parting, Witness, parting};

use super::super::parting::{Parted, Plan};
use super::columns::{Columns, integer, mesh_key};
use super::error::JobError;
use super::sql::{Params, execute, query};
use super::{history, queues};

// By LATERAL, as in `accept/facts`.
const STAND: &str = "
SELECT h.epoch, h.seq, m.sender_member, m.sender_agent, m.client_message_id
FROM unnest($2::BIGINT[], $3::BIGINT[]) AS seen (epoch, seq)
JOIN LATERAL (SELECT b.* FROM message_history b
    WHERE b.mesh_id = $1 AND b.epoch = seen.epoch AND b.seq = seen.seq OFFSET 0) AS h ON TRUE
JOIN LATERAL (SELECT b.* FROM message b
    WHERE b.mesh_id = $1 AND b.broker_message_id = h.broker_message_id OFFSET 0) AS m ON TRUE";

/// It goes through all deliveries of the mesh, and through its ids: rare, and longer than a statement may take as a rule.
const PATIENT: &str = "SET LOCAL statement_timeout = 0";

/// Of one stretch: mesh, epoch and place behind which it begins, the new epoch, and by how much.
const MOVES: &[&str] = &[
    "UPDATE client_message_dedupe SET epoch = $4, seq = seq + $5
     WHERE mesh_id = $1 AND epoch = $2 AND seq > $3",
    "UPDATE message_history SET epoch = $4, seq = seq + $5
     WHERE mesh_id = $1 AND epoch = $2 AND seq > $3",
    "UPDATE log_row SET epoch = $4, seq = seq + $5
     WHERE mesh_id = $1 AND epoch = $2 AND seq > $3",
    "UPDATE delivery_queue SET epoch = $4, seq = seq + $5
     WHERE mesh_id = $1 AND epoch = $2 AND seq > $3",
    "UPDATE queue_item SET epoch = $4, seq = seq + $5
     WHERE mesh_id = $1 AND epoch = $2 AND seq > $3",
    "UPDATE mention_index SET epoch = $4, seq = seq + $5
     WHERE mesh_id = $1 AND epoch = $2 AND seq > $3",
    "UPDATE delivery_withheld SET epoch = $4, seq = seq + $5
     WHERE mesh_id = $1 AND epoch = $2 AND seq > $3",
    "UPDATE rate_limit_counted SET epoch = $4, seq = seq + $5
     WHERE mesh_id = $1 AND epoch = $2 AND seq > $3",
    "UPDATE log_snapshot SET behind_epoch = $4, behind_seq = behind_seq + $5
     WHERE mesh_id = $1 AND behind_epoch = $2 AND behind_seq > $3",
    "UPDATE snapshot_upload SET first_epoch = $4, first_seq = first_seq + $5
     WHERE mesh_id = $1 AND first_epoch = $2 AND first_seq > $3",
];

/// IMPORTANT: behind all rows, which are in the new epoch by then.
const PREVIOUS: &str = "
UPDATE log_row SET previous_epoch = $4, previous_seq = previous_seq + $5
WHERE mesh_id = $1 AND epoch = $4 AND previous_epoch = $2 AND previous_seq > $3";

/// Whatever speaks of places behind the last sure one, and can do without.
const CUT: &[&str] = &[
    "DELETE FROM age_birth WHERE mesh_id = $1 AND (epoch, seq) > ($2, $3)",
    "DELETE FROM log_hole WHERE mesh_id = $1 AND (after_epoch, after_seq) >= ($2, $3)",
    "UPDATE log_hole SET through_epoch = $2, through_seq = $3
     WHERE mesh_id = $1 AND (through_epoch, through_seq) > ($2, $3)",
];

const BEGIN: &str = "UPDATE mesh SET epoch = $2, next_seq = $3 WHERE mesh_id = $1";

/// Where the history and what was seen of it are not the same any more.
pub(super) async fn find<C: GenericClient>(
    client: &C,
    mesh: MeshId,
    seen: &[Witness],
) -> Result<Option<Parting>, JobError> {
    let head = history::next(client, mesh).await?.before();
    let epochs: Vec<i64> = seen.iter().map(|one| integer(one.place.epoch)).collect();
    let seqs: Vec<i64> = seen.iter().map(|one| integer(one.place.seq)).collect();
    let rows = query(client, STAND, &[&mesh_key(mesh), &epochs, &seqs]).await?;
    let mut stands: HashMap<HistoryId, IdKey> = HashMap::new();
    for row in &rows {
        let mut columns = Columns::of(row);
        let place = columns.history_id()?;
        // One whose names are damaged says nothing.
        let id = columns.party().ok().zip(columns.client_message_id().ok());
        stands.extend(id.map(|(sender, id)| (place, IdKey::of(mesh, &sender, &id))));
    }
    Ok(parting(seen, head, |at| stands.get(&at).copied()))
}

/// IMPORTANT: looked at once more, under the lock of the mesh: another broker may have done it.
pub(super) async fn part(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    seen: &[Witness],
) -> Result<Option<Parted>, JobError> {
    let Some(found) = find(transaction, mesh, seen).await? else {
        return Ok(None);
    };
    let running = history::epoch(transaction, mesh).await?;
    let ends = history::ends(transaction, mesh).await?;
    let Some(plan) = Plan::new(found, running, &ends) else {
        return Ok(None);
    };
    if plan.epoch == running {
        return Ok(Some(plan.done()));
    }
    transaction.batch_execute(PATIENT).await?;
    let (key, epoch) = (mesh_key(mesh), integer(plan.epoch));
    for sql in MOVES.iter().chain([&PREVIOUS]) {
        for stretch in &plan.stretches {
            let (from, behind) = (integer(stretch.epoch), integer(stretch.behind));
            let cells: Params<'_> = &[&key, &from, &behind, &epoch, &stretch.by];
            execute(transaction, sql, cells).await?;
        }
    }
    if !plan.stretches.is_empty() {
        let (after, seq) = (integer(plan.after.epoch), integer(plan.after.seq));
        for sql in CUT {
            execute(transaction, sql, &[&key, &after, &seq]).await?;
        }
    }
    let next = integer(plan.next_seq());
    execute(transaction, BEGIN, &[&key, &epoch, &next]).await?;
    queues::end_leases(transaction, mesh).await?;
    Ok(Some(plan.done()))
}
