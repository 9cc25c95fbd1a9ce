//! New places in SQL, in one transaction: everything that knows a place goes along (`parting`).

use std::collections::HashMap;

use heddle_core::ids::{HistoryId, IdKey, MeshId};
use heddle_core::witness::{Parting, Witness, parting};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::super::error::StorageError;
use super::super::parting::{Parted, Plan};
use super::columns::{Columns, integer, mesh_key};
use super::error::JobError;
use super::history::Line;
use super::{log, queues};

const STANDS: &str = "
SELECT m.sender_member, m.sender_agent, m.client_message_id
FROM message_history h
JOIN message m ON m.mesh_id = h.mesh_id AND m.broker_message_id = h.broker_message_id
WHERE h.mesh_id = ?1 AND h.epoch = ?2 AND h.seq = ?3";

/// Of one stretch: mesh, epoch and place behind which it begins, the new epoch, and by how much.
const MOVES: &[&str] = &[
    "UPDATE client_message_dedupe SET epoch = ?4, seq = seq + ?5
     WHERE mesh_id = ?1 AND epoch = ?2 AND seq > ?3",
    "UPDATE message_history SET epoch = ?4, seq = seq + ?5
     WHERE mesh_id = ?1 AND epoch = ?2 AND seq > ?3",
    "UPDATE log_row SET epoch = ?4, seq = seq + ?5
     WHERE mesh_id = ?1 AND epoch = ?2 AND seq > ?3",
    "UPDATE delivery_queue SET epoch = ?4, seq = seq + ?5
     WHERE mesh_id = ?1 AND epoch = ?2 AND seq > ?3",
    "UPDATE queue_item SET epoch = ?4, seq = seq + ?5
     WHERE mesh_id = ?1 AND epoch = ?2 AND seq > ?3",
    "UPDATE mention_index SET epoch = ?4, seq = seq + ?5
     WHERE mesh_id = ?1 AND epoch = ?2 AND seq > ?3",
    "UPDATE delivery_withheld SET epoch = ?4, seq = seq + ?5
     WHERE mesh_id = ?1 AND epoch = ?2 AND seq > ?3",
    "UPDATE rate_limit_counted SET epoch = ?4, seq = seq + ?5
     WHERE mesh_id = ?1 AND epoch = ?2 AND seq > ?3",
    "UPDATE log_snapshot SET behind_epoch = ?4, behind_seq = behind_seq + ?5
     WHERE mesh_id = ?1 AND behind_epoch = ?2 AND behind_seq > ?3",
    "UPDATE snapshot_upload SET first_epoch = ?4, first_seq = first_seq + ?5
     WHERE mesh_id = ?1 AND first_epoch = ?2 AND first_seq > ?3",
];

/// IMPORTANT: behind all rows, which are in the new epoch by then.
const PREVIOUS: &str = "
UPDATE log_row SET previous_epoch = ?4, previous_seq = previous_seq + ?5
WHERE mesh_id = ?1 AND epoch = ?4 AND previous_epoch = ?2 AND previous_seq > ?3";

/// Whatever speaks of places behind the last sure one, and can do without.
const CUT: &[&str] = &[
    "DELETE FROM age_birth WHERE mesh_id = ?1 AND (epoch, seq) > (?2, ?3)",
    "DELETE FROM log_hole WHERE mesh_id = ?1 AND (after_epoch, after_seq) >= (?2, ?3)",
    "UPDATE log_hole SET through_epoch = ?2, through_seq = ?3
     WHERE mesh_id = ?1 AND (through_epoch, through_seq) > (?2, ?3)",
];

const BEGIN: &str = "UPDATE mesh SET epoch = ?2, next_seq = ?3 WHERE mesh_id = ?1";

/// Where the history and what was seen of it are not the same any more.
pub(super) fn find(
    connection: &Connection,
    mesh: MeshId,
    seen: &[Witness],
) -> Result<Option<Parting>, JobError> {
    let line = Line::of(connection, mesh)?.ok_or(StorageError::UnknownMesh(mesh))?;
    let mut stands: HashMap<HistoryId, IdKey> = HashMap::new();
    let mut statement = connection.prepare_cached(STANDS)?;
    for place in seen.iter().map(|one| one.place) {
        let at = params![mesh_key(mesh), integer(place.epoch), integer(place.seq)];
        let id = statement.query_row(at, |row| {
            let mut columns = Columns::of(row);
            // One whose names are damaged says nothing.
            Ok(columns.party().ok().zip(columns.client_message_id().ok()))
        });
        if let Some((sender, id)) = id.optional()?.flatten() {
            stands.insert(place, IdKey::of(mesh, &sender, &id));
        }
    }
    let head = line.next().before();
    Ok(parting(seen, head, |at| stands.get(&at).copied()))
}

pub(super) fn part(
    connection: &Connection,
    mesh: MeshId,
    seen: &[Witness],
) -> Result<Option<Parted>, JobError> {
    let Some(found) = find(connection, mesh, seen)? else {
        return Ok(None);
    };
    let running = log::epoch(connection, mesh)?;
    let Some(plan) = Plan::new(found, running, &log::ends(connection, mesh)?) else {
        return Ok(None);
    };
    if plan.epoch == running {
        return Ok(Some(plan.done()));
    }
    let (key, epoch) = (mesh_key(mesh), integer(plan.epoch));
    for sql in MOVES.iter().chain([&PREVIOUS]) {
        let mut statement = connection.prepare_cached(sql)?;
        for stretch in &plan.stretches {
            let (from, behind) = (integer(stretch.epoch), integer(stretch.behind));
            statement.execute(params![key, from, behind, epoch, stretch.by])?;
        }
    }
    if !plan.stretches.is_empty() {
        let (after_epoch, after_seq) = (integer(plan.after.epoch), integer(plan.after.seq));
        for sql in CUT {
            connection
                .prepare_cached(sql)?
                .execute(params![key, after_epoch, after_seq])?;
        }
    }
    connection
        .prepare_cached(BEGIN)?
        .execute(params![key, epoch, integer(plan.next_seq())])?;
    queues::end_leases(connection, mesh)?;
    Ok(Some(plan.done()))
}
