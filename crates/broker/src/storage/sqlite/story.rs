//! Receipts and explanations in SQL.

use heddle_core::envelope::{DestinationKind, Priority};
use heddle_core::ids::{HistoryId, MemberId, MeshId, Party};
use heddle_core::names::MemberName;
use rusqlite::{Connection, OptionalExtension, params};

use super::super::error::StorageError;
use super::super::rows::{Consumed, DeliveryPlace, PageLimit, SendId};
use super::super::story::{
    Explanation, HeldPage, Levels, LimiterNote, Receipt, Recipient, Story, WorkStory,
};
use super::SqliteStorage;
use super::columns::{Columns, integer, member_key, mesh_key};
use super::error::JobError;
use super::{deliveries, held, queues};

const DEDUPE: &str = "
SELECT wire_fingerprint, broker_message_id, epoch, seq, history_available, first_seen_at,
    expires_at, destination_kind, destination_ref, limiter_window, limiter_counted
FROM client_message_dedupe
WHERE mesh_id = ?1 AND id_key = ?2
  AND sender_member = ?3 AND sender_agent = ?4 AND client_message_id = ?5";

const MEMBERS: &str = "SELECT member_id, name FROM member WHERE mesh_id = ?1 ORDER BY member_id";

// Deliveries lie by member. An explanation asks for each member in turn; an index by place would cost
// every accept what this saves a question that is rarely asked.
const DELIVERIES: &str = "
SELECT agent, delivered_at, shown_at, acked_at FROM delivery_queue
WHERE mesh_id = ?1 AND member_id = ?2 AND is_delivered = ?3 AND priority = ?4
  AND epoch = ?5 AND seq = ?6";

const NAME: &str = "SELECT name FROM member WHERE mesh_id = ?1 AND member_id = ?2";

const MENTIONS: &str = "
SELECT epoch, seq FROM mention_index
WHERE mesh_id = ?1 AND member_id = ?2 AND agent = ?3 AND (epoch, seq) > (?4, ?5)
ORDER BY epoch, seq LIMIT ?6";

/// The statements above, for the test that looks at their plans.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[DEDUPE, MEMBERS, DELIVERIES, NAME, MENTIONS];

fn explain(
    connection: &Connection,
    mesh: MeshId,
    id: &SendId,
) -> Result<Option<Explanation>, JobError> {
    let key = params![
        mesh_key(mesh),
        id.key.0,
        member_key(id.sender.member),
        id.sender.agent.as_str(),
        id.client_message_id.as_str(),
    ];
    let found = connection.prepare_cached(DEDUPE)?.query_row(key, |row| {
        let mut columns = Columns::of(row);
        Ok(Explanation {
            consumed: Consumed {
                wire_fingerprint: columns.fingerprint()?,
                broker_message_id: columns.broker_message_id()?,
                history_id: columns.history_id()?,
                history_available: columns.flag()?,
                first_seen_at: columns.wall()?,
            },
            expires_at: columns.maybe_wall()?,
            destination_kind: columns.destination_kind()?,
            destination_ref: columns.text()?,
            limiter: note(&mut columns)?,
            recipients: Vec::new(),
            work: None,
        })
    });
    let Some(mut explanation) = found.optional()? else {
        return Ok(None);
    };
    let at = explanation.consumed.history_id;
    explanation.recipients = recipients(connection, mesh, at)?;
    if explanation.destination_kind == DestinationKind::Queue {
        explanation.work = work(connection, mesh, &explanation.destination_ref, at)?;
    }
    Ok(Some(explanation))
}

/// Telemetry that makes no sense is no telemetry: it never spoils an answer.
fn note(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Option<LimiterNote>> {
    let window = columns.maybe_number().unwrap_or_default();
    let counted = columns.maybe_number().unwrap_or_default();
    Ok(window.zip(counted).map(|(window, counted)| LimiterNote {
        window,
        counted: counted != 0,
    }))
}

fn recipients(
    connection: &Connection,
    mesh: MeshId,
    at: HistoryId,
) -> rusqlite::Result<Vec<Recipient>> {
    let members = connection
        .prepare_cached(MEMBERS)?
        .query_map([mesh_key(mesh)], |row| {
            let mut columns = Columns::of(row);
            Ok((columns.member()?, columns.member_name()?))
        })?
        .collect::<rusqlite::Result<Vec<(MemberId, MemberName)>>>()?;
    let mut statement = connection.prepare_cached(DELIVERIES)?;
    let mut recipients = Vec::new();
    for (member, member_name) in members {
        for (is_delivered, priority) in both(Priority::ALL) {
            let mut rows = statement.query(params![
                mesh_key(mesh),
                member_key(member),
                is_delivered,
                priority.rank(),
                integer(at.epoch),
                integer(at.seq),
            ])?;
            while let Some(row) = rows.next()? {
                let mut columns = Columns::of(row);
                let agent = columns.agent()?;
                recipients.push(Recipient {
                    party: Party { member, agent },
                    member_name: member_name.clone(),
                    levels: Levels {
                        delivered_at: columns.maybe_wall()?,
                        shown_at: columns.maybe_wall()?,
                        acked_at: columns.maybe_wall()?,
                    },
                });
            }
        }
    }
    recipients.sort_by(|a, b| a.party.cmp(&b.party));
    Ok(recipients)
}

/// Where a delivery of unknown state can lie.
fn both(priorities: [Priority; 3]) -> impl Iterator<Item = (bool, Priority)> {
    [false, true]
        .into_iter()
        .flat_map(move |flag| priorities.map(|priority| (flag, priority)))
}

fn work(
    connection: &Connection,
    mesh: MeshId,
    queue: &str,
    at: HistoryId,
) -> rusqlite::Result<Option<WorkStory>> {
    let Some(item) = queues::item(connection, mesh, queue, at)? else {
        return Ok(None);
    };
    let holder = match &item.holder {
        None => None,
        Some(party) => connection
            .prepare_cached(NAME)?
            .query_row(params![mesh_key(mesh), member_key(party.member)], |row| {
                Columns::of(row).member_name()
            })
            .optional()?
            .map(|name| (party.clone(), name)),
    };
    Ok(Some(WorkStory {
        state: item.state(),
        fence: item.fence,
        delivery_count: item.delivery_count,
        holder,
        leased_until: item.leased_until,
        taken_at: item.taken_at,
        acked_at: item.acked_at,
    }))
}

fn mentions(
    connection: &Connection,
    mesh: MeshId,
    agent: &Party,
    (after, rows_max): (HistoryId, usize),
) -> Result<Vec<HistoryId>, JobError> {
    let key = params![
        mesh_key(mesh),
        member_key(agent.member),
        agent.agent.as_str(),
        integer(after.epoch),
        integer(after.seq),
        i64::try_from(rows_max).unwrap_or(i64::MAX),
    ];
    let places = connection
        .prepare_cached(MENTIONS)?
        .query_map(key, |row| Columns::of(row).history_id())?
        .collect::<rusqlite::Result<_>>()?;
    Ok(places)
}

impl Story for SqliteStorage {
    async fn receipts(
        &self,
        mesh: MeshId,
        member: MemberId,
        items: Vec<Receipt>,
    ) -> Result<usize, StorageError> {
        self.write(mesh, move |c| deliveries::receipts(c, mesh, member, &items))
            .await
    }

    async fn explain(&self, mesh: MeshId, id: SendId) -> Result<Option<Explanation>, StorageError> {
        self.read(mesh, move |c| explain(c, mesh, &id)).await
    }

    async fn mentions_after(
        &self,
        mesh: MeshId,
        agent: &Party,
        after: HistoryId,
        rows_max: usize,
    ) -> Result<Vec<HistoryId>, StorageError> {
        let agent = agent.clone();
        self.read(mesh, move |c| mentions(c, mesh, &agent, (after, rows_max)))
            .await
    }

    async fn deliveries_held(
        &self,
        mesh: MeshId,
        member: MemberId,
        after: (Priority, DeliveryPlace),
        limit: PageLimit,
    ) -> Result<HeldPage, StorageError> {
        self.read(mesh, move |c| {
            Ok(held::page(c, (mesh, member), after, limit)?)
        })
        .await
    }
}
