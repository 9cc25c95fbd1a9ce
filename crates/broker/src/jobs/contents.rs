//! What messages say, compared with the rows that their accepts wrote beside them: a row that is there may still be
//! another one than was accepted.

use std::collections::BTreeSet;

use heddle_core::ids::{HistoryId, MeshId, Party};
use heddle_wire::broker::Envelope;

use crate::accept::read_mentions;
use crate::storage::{HistoryRow, Look, Orphan, SendId, Storage, StorageError};

/// Messages that are read at once; each may be a megabyte.
const ROWS_AT_ONCE: usize = 32;

/// Goes through the history of a mesh; reads only.
pub(super) async fn check<S: Storage>(
    storage: &S,
    mesh: MeshId,
) -> Result<Vec<Orphan>, StorageError> {
    let agents: BTreeSet<Party> = storage.roster(mesh).await?.agents.into_iter().collect();
    let mut orphans = Vec::new();
    let mut after = HistoryId::ZERO;
    loop {
        let rows = look_after(storage, mesh, after, ROWS_AT_ONCE).await?;
        let Some((last, _)) = rows.last() else {
            return Ok(orphans);
        };
        let end = last.history_id;
        for (row, look) in rows {
            let before = before(row.history_id);
            if wrong(storage, mesh, &agents, (&row, look))
                .await?
                .is_empty()
            {
                continue;
            }
            // Accepts and sweeps go on meanwhile, and the looks were not one: what is still so is so.
            for (row, look) in look_after(storage, mesh, before, 1).await? {
                orphans.extend(wrong(storage, mesh, &agents, (&row, look)).await?);
            }
        }
        after = end;
    }
}

/// Places behind this one, with what is known of the ids of their messages.
async fn look_after<S: Storage>(
    storage: &S,
    mesh: MeshId,
    after: HistoryId,
    rows_max: usize,
) -> Result<Vec<(HistoryRow, Option<Look>)>, StorageError> {
    let rows = storage.history_after(mesh, after, rows_max).await?;
    let ids = rows.iter().filter_map(|row| row.id.clone());
    let ids = ids.map(|(sender, id)| SendId::new(mesh, sender, id));
    let mut looks = storage.known(mesh, ids.collect()).await?.into_iter();
    let looked = rows.into_iter().map(|row| {
        let look = row.id.as_ref().and_then(|_| looks.next());
        (row, look)
    });
    Ok(looked.collect())
}

fn before(HistoryId { epoch, seq }: HistoryId) -> HistoryId {
    let seq = seq.saturating_sub(1);
    HistoryId { epoch, seq }
}

/// What of one message is not as it was accepted; nothing of one that was pruned.
async fn wrong<S: Storage>(
    storage: &S,
    mesh: MeshId,
    agents: &BTreeSet<Party>,
    (row, look): (&HistoryRow, Option<Look>),
) -> Result<Vec<Orphan>, StorageError> {
    let (Some(look), Some(envelope)) = (look, &row.envelope) else {
        return Ok(Vec::new());
    };
    let orphan = |problem: &'static str| Orphan {
        problem,
        row: format!("{} {}", row.history_id, row.broker_message_id),
    };
    let Ok(envelope) = Envelope::parse(envelope.as_bytes()) else {
        return Ok(vec![orphan("message_unreadable")]);
    };
    let mut orphans = Vec::new();
    if !row.is_expired && !is_as_accepted(&envelope, look, row) {
        orphans.push(orphan("message_differs_from_dedupe"));
    }
    for party in read_mentions(&envelope.mentions) {
        // Whoever was not there when it was accepted has no row.
        if !agents.contains(&party) {
            continue;
        }
        let found = storage.mentions_after(mesh, &party, before(row.history_id), 1);
        if found.await?.first() != Some(&row.history_id) {
            orphans.push(Orphan {
                problem: "mention_without_index",
                row: format!("{} {party}", row.history_id),
            });
        }
    }
    Ok(orphans)
}

/// Whether the id was consumed by this very message. That it was not consumed at all, the tables tell by themselves.
fn is_as_accepted(envelope: &Envelope, look: Look, row: &HistoryRow) -> bool {
    let Some(consumed) = look.consumed else {
        return true;
    };
    consumed.broker_message_id == row.broker_message_id
        && consumed.history_id == row.history_id
        && envelope.wire_fingerprint().ok() == Some(consumed.wire_fingerprint)
}
