//! B2 and B3 of a set in one statement and one trip to the server, where everything that is asked about the mesh was read
//! before and no id of it is known.
//!
//! The statement takes the lock of the mesh's row, and writes only if the mark of that row is the one under which all of
//! it was read: then nothing of it has changed, and the decision is the one that a look behind the lock would have led to.
//! And only if the next place lies behind all that this process has seen: else this is an older database (`seen`).
//! An id that somebody has written meanwhile breaks the key of the dedupe table, and the whole set is undone. In either
//! case the caller decides it anew, behind the lock.

use std::collections::BTreeSet;
use std::sync::Arc;

use deadpool_postgres::Object;
use futures_util::future::{BoxFuture, try_join5};
use heddle_core::ids::{HistoryId, MeshId};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::super::super::rows::{Accepted, Destination, NewMessage};
use super::super::acks::{self, AckJob};
use super::super::columns::{Columns, integer, mesh_key, rank, rows};
use super::super::error::JobError;
use super::super::line::LOCK;
use super::super::record::{Cell, Record};
use super::super::sql::{exists, query};
use super::asked::Found;
use super::decide::{Decided, Placed, decide};
use super::facts::Facts;
use super::kept::Kept;

/// Rows for recipients that are sent along; a set that reaches more of them reads its subscribers at the server.
const DELIVERIES_MAX: usize = 4_096;

// Nothing is written before the row of the line is there: every insert draws from it.
pub(super) const SWIFT: &str = "
WITH line AS (
    UPDATE mesh SET next_seq = next_seq + $2 WHERE mesh_id = $1 AND roster_mark = $3 AND (epoch, next_seq) > ($7, $8)
    RETURNING epoch, next_seq - $2 AS first),
n AS MATERIALIZED (
    SELECT l.epoch, l.first + u.place AS seq, u.* FROM line l CROSS JOIN unnest($4::sent_message[]) AS u),
dedupe AS (
    INSERT INTO client_message_dedupe (mesh_id, id_key, sender_member, sender_agent, client_message_id,
        wire_fingerprint, broker_message_id, epoch, seq, destination_kind, destination_ref, first_seen_at, expires_at,
        limiter_window, limiter_counted)
    SELECT $1, id_key, member, agent, client_id, print, id, epoch, seq, kind, ref, at, until, slot, counted FROM n),
message AS (
    INSERT INTO message (mesh_id, broker_message_id, sender_member, sender_agent, sender_name, client_message_id,
        destination_kind, destination_ref, accepted_at, envelope)
    SELECT $1, id, member, agent, name, client_id, kind, ref, at, envelope FROM n),
history AS (
    INSERT INTO message_history (mesh_id, epoch, seq, broker_message_id) SELECT $1, epoch, seq, id FROM n),
delivery AS (
    INSERT INTO delivery_queue (mesh_id, member_id, epoch, seq, agent, priority, broker_message_id)
    SELECT $1, u.member, l.epoch, l.first + u.place, u.agent, u.priority, u.id FROM line l
    CROSS JOIN unnest($5::sent_delivery[]) AS u),
mention AS (
    INSERT INTO mention_index (mesh_id, member_id, agent, epoch, seq)
    SELECT $1, u.member, u.agent, l.epoch, l.first + u.place FROM line l
    CROSS JOIN unnest($6::sent_mention[]) AS u)
SELECT epoch, first FROM line";

/// A set that was decided before the lock. Its places are counted from 0.
pub(super) struct Plan<'m> {
    mark: i64,
    /// The newest place that was seen.
    newest: HistoryId,
    decided: Decided<'m>,
    messages: Vec<Record<'m, 15>>,
    deliveries: Vec<Record<'m, 5>>,
    mentions: Vec<Record<'m, 3>>,
}

/// What came of it: the answers, if the mark held, and what each of the acknowledgements changed, which stays in any case.
pub(super) struct Ran {
    pub(super) answers: Option<Vec<Accepted>>,
    pub(super) changed: Vec<usize>,
}

/// Decides it by what was read under a mark; `None` where it has to be looked at behind the lock.
pub(super) fn plan<'m>(
    messages: &[&'m NewMessage],
    (mark, newest): (i64, HistoryId),
    found: &'m Arc<Found>,
) -> Option<Plan<'m>> {
    let decided = decide(
        messages,
        Facts {
            next: HistoryId::ZERO,
            consumed: Vec::new(),
            queues: BTreeSet::new(),
            taken: BTreeSet::new(),
            last_op: HistoryId::ZERO,
            found: Arc::clone(found),
        },
    );
    let is_plain = |placed: &Placed<'_>| placed.withheld.is_empty();
    if decided.placed.is_empty() || !decided.placed.iter().all(is_plain) {
        return None;
    }
    Some(Plan {
        mark,
        newest,
        messages: decided.placed.iter().map(message).collect(),
        deliveries: deliveries(&decided.placed, found)?,
        mentions: decided.placed.iter().flat_map(mentions).collect(),
        decided,
    })
}

/// As `sent_message` has it.
fn message<'m>(placed: &Placed<'m>) -> Record<'m, 15> {
    let new = placed.new;
    let reference = match &new.destination {
        Destination::Topic(topic) => Cell::text(topic.as_str()),
        other => Cell::Text(other.to_string().into()),
    };
    Record([
        Cell::Bytes(&new.id.key.0),
        Cell::Id(new.id.sender.member.0),
        Cell::text(new.id.sender.agent.as_str()),
        Cell::text(new.sender_name.as_str()),
        Cell::text(new.id.client_message_id.as_str()),
        Cell::Bytes(&new.wire_fingerprint.0),
        Cell::Id(new.broker_message_id.0),
        Cell::Big(integer(placed.at.seq)),
        Cell::text(new.destination.kind().as_str()),
        reference,
        Cell::Big(new.accepted_at.0),
        Cell::maybe_big(new.expires_at.map(|at| at.0)),
        Cell::maybe_big(new.limiter.map(|note| integer(note.window))),
        Cell::maybe_big(new.limiter.map(|note| i64::from(note.counted))),
        Cell::text(&new.envelope),
    ])
}

/// As `sent_delivery` has them; `None` where there are too many.
fn deliveries<'m>(all: &[Placed<'m>], found: &'m Found) -> Option<Vec<Record<'m, 5>>> {
    let mut list = Vec::with_capacity(all.len());
    for placed in all {
        let new = placed.new;
        let mailboxes = match &new.destination {
            Destination::Topic(topic) => &*found.subscribers(topic)?.mailboxes,
            Destination::Dm(party) => std::slice::from_ref(party),
            Destination::Queue(_) | Destination::Log => return None,
        };
        if list.len() + mailboxes.len() > DELIVERIES_MAX {
            return None;
        }
        list.extend(mailboxes.iter().map(|party| {
            Record([
                Cell::Id(party.member.0),
                Cell::text(party.agent.as_str()),
                Cell::Big(integer(placed.at.seq)),
                Cell::Small(rank(new.priority)),
                Cell::Id(new.broker_message_id.0),
            ])
        }));
    }
    Some(list)
}

/// As `sent_mention` has them.
fn mentions<'m>(placed: &Placed<'m>) -> Vec<Record<'m, 3>> {
    let mentioned = placed.mentions.iter();
    mentioned
        .map(|party| {
            Record([
                Cell::Id(party.member.0),
                Cell::text(party.agent.as_str()),
                Cell::Big(integer(placed.at.seq)),
            ])
        })
        .collect()
}

impl Plan<'_> {
    /// Alone it is its own transaction; beside acknowledgements all of it is sent at once.
    pub(super) async fn run(
        self,
        client: &Object,
        mesh: MeshId,
        acked: &[&AckJob],
        kept: &Kept,
    ) -> Result<Ran, JobError> {
        // IMPORTANT: what is prepared is sent in the order in which it is polled.
        client.prepare_cached(SWIFT).await?;
        let (found, changed) = if acked.is_empty() {
            (self.send(client, mesh).await?, Vec::new())
        } else {
            client.prepare_cached(LOCK).await?;
            client.prepare_cached(acks::DELIVERED).await?;
            let key = mesh_key(mesh);
            let key: [&(dyn ToSql + Sync); 1] = [&key];
            let begin = async { Ok(client.batch_execute("BEGIN").await?) };
            let commit = async { Ok(client.batch_execute("COMMIT").await?) };
            // Acknowledgements stay though the mark does not hold, so the row is locked before it is asked.
            let lock = exists(client, LOCK, &key);
            let marked = acks::mark(client, mesh, acked);
            let ((), _, found, changed, ()) =
                try_join5(begin, lock, self.send(client, mesh), marked, commit).await?;
            (found, changed)
        };
        let Some(row) = found.first() else {
            return Ok(Ran {
                answers: None,
                changed,
            });
        };
        let first = Columns::of(row).history_id()?;
        let placed = self.decided.placed.iter();
        kept.wrote(mesh, placed.map(|placed| placed.new.id.key));
        let answers = self.decided.answers.into_iter();
        Ok(Ran {
            answers: Some(answers.map(|answer| from(first, answer)).collect()),
            changed,
        })
    }

    fn send<'s>(
        &'s self,
        client: &'s Object,
        mesh: MeshId,
    ) -> BoxFuture<'s, Result<Vec<Row>, JobError>> {
        let (mesh, count) = (mesh_key(mesh), rows(self.decided.placed.len()));
        let (epoch, seq) = (integer(self.newest.epoch), integer(self.newest.seq));
        Box::pin(async move {
            let params: [&(dyn ToSql + Sync); 8] = [
                &mesh,
                &count,
                &self.mark,
                &self.messages,
                &self.deliveries,
                &self.mentions,
                &epoch,
                &seq,
            ];
            query(client, SWIFT, &params).await
        })
    }
}

/// The answer with its place in the history, once the first of the set has one. Ids that are known are of this very set.
fn from(first: HistoryId, answer: Accepted) -> Accepted {
    let at = |counted: HistoryId| HistoryId {
        epoch: first.epoch,
        seq: first.seq + counted.seq,
    };
    match answer {
        Accepted::Created {
            history_id,
            recipients,
            withheld,
            is_new_queue,
        } => Accepted::Created {
            history_id: at(history_id),
            recipients,
            withheld,
            is_new_queue,
        },
        Accepted::Duplicate(mut consumed) => {
            consumed.history_id = at(consumed.history_id);
            Accepted::Duplicate(consumed)
        }
        Accepted::Conflict(mut consumed) => {
            consumed.history_id = at(consumed.history_id);
            Accepted::Conflict(consumed)
        }
        other => other,
    }
}
