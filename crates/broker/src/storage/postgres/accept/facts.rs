//! What a set must know before it is decided: at most seven look-ups behind the lock, sent together. One that nothing
//! in the set asks for is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use deadpool_postgres::{GenericClient, Object};
use futures_util::future::{BoxFuture, try_join, try_join_all};
use heddle_core::ids::{BrokerMessageId, HistoryId, MemberId, MeshId, Party};
use heddle_core::membership::Bar;
use heddle_core::names::{QueueName, TopicName};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::super::super::error::StorageError;
use super::super::super::rows::{Consumed, NewMessage};
use super::super::columns::{Columns, member_key, mesh_key, message_key};
use super::super::error::JobError;
use super::super::grants;
use super::super::line::LOCK;
use super::super::look::{IdArrays, consumed_of};
use super::super::sql::{Params, query};
use super::asked::{Asked, Found, Sender, Subscribers};

/// For each message in its place: the row that holds its id, if there is one, and whether the id that was minted for it
/// is taken. Ids are minted anew for every message: one that is taken is a fault of ours, and its message's alone.
///
/// IMPORTANT: a table is only ever joined by LATERAL and OFFSET, here and wherever a set is looked up: then it is read by
/// its key for each row of the set. Left to itself, a planner that finds a young table nearly empty takes all rows of the
/// mesh for cheap, and keeps that plan while they become a hundred thousand (`tests/plans.rs` looks).
const CONSUMED: &str = "
SELECT d.wire_fingerprint, d.broker_message_id, d.epoch, d.seq, d.history_available, d.first_seen_at,
    m.broker_message_id IS NOT NULL
FROM unnest($2::bytea[], $3::bytea[], $4::text[], $5::text[], $6::bytea[])
    WITH ORDINALITY AS k (id_key, member, agent, client_message_id, minted, place)
LEFT JOIN LATERAL (SELECT c.* FROM client_message_dedupe c WHERE c.mesh_id = $1 AND c.id_key = k.id_key
    AND c.sender_member = k.member AND c.sender_agent = k.agent AND c.client_message_id = k.client_message_id
    OFFSET 0) AS d ON TRUE
LEFT JOIN LATERAL (SELECT t.broker_message_id FROM message t
    WHERE t.mesh_id = $1 AND t.broker_message_id = k.minted OFFSET 0) AS m ON TRUE
ORDER BY k.place";

const TOPICS: &str = "
SELECT t.topic, s.member_id, s.agent FROM topic t
LEFT JOIN LATERAL (SELECT o.member_id, o.agent FROM topic_subscription o
    WHERE o.mesh_id = $1 AND o.topic = t.topic OFFSET 0) AS s ON TRUE
WHERE t.mesh_id = $1 AND t.topic = ANY ($2)";

const AGENTS: &str = "
SELECT k.member_id, k.agent FROM unnest($2::bytea[], $3::text[]) AS k (member_id, agent)
CROSS JOIN LATERAL (SELECT 1 FROM agent a
    WHERE a.mesh_id = $1 AND a.member_id = k.member_id AND a.agent = k.agent OFFSET 0) AS found";

const QUEUES: &str = "SELECT queue FROM queue WHERE mesh_id = $1 AND queue = ANY ($2)";

const SENDERS: &str = "
SELECT m.member_id, m.generation, s.revoked_at, s.blocked_at FROM member m
LEFT JOIN LATERAL (SELECT o.revoked_at, o.blocked_at FROM member_standing o
    WHERE o.mesh_id = $1 AND o.member_id = m.member_id OFFSET 0) AS s ON TRUE
WHERE m.mesh_id = $1 AND m.member_id = ANY ($2)";

const LAST_OP: &str = "
SELECT epoch, seq FROM log_row WHERE mesh_id = $1 ORDER BY epoch DESC, seq DESC LIMIT 1";

/// What the transaction sees.
pub(super) struct Facts {
    pub(super) next: HistoryId,
    /// For each message, in order.
    pub(super) consumed: Vec<Option<Consumed>>,
    pub(super) queues: BTreeSet<QueueName>,
    pub(super) taken: BTreeSet<BrokerMessageId>,
    pub(super) last_op: HistoryId,
    /// About the mesh.
    pub(super) found: Arc<Found>,
}

/// Begins a transaction with the lock of the mesh's row, and looks: one trip to the server. With the mark under which
/// it was found.
///
/// IMPORTANT: the server runs what it is sent in order, and each statement sees what was committed before it ran: the
/// look-ups see everything that was committed before the lock was given (C4). They are sent in this order because every
/// statement is prepared already (`prepare`).
pub(super) async fn begin(
    client: &Object,
    mesh: MeshId,
    messages: &[&NewMessage],
) -> Result<(Facts, i64), JobError> {
    let begin = async { Ok(client.batch_execute("BEGIN").await?) };
    let ((), looked) = try_join(begin, look(client, mesh, messages)).await?;
    Ok(looked)
}

/// Everything that [`begin`] may run.
pub(super) const STATEMENTS: [&str; 8] = [
    LOCK,
    CONSUMED,
    TOPICS,
    AGENTS,
    QUEUES,
    LAST_OP,
    SENDERS,
    grants::OF_SENDERS,
];

/// Under the lock of the mesh's row, which it takes if the transaction has not. With the mark of that row.
pub(super) async fn look<C: GenericClient>(
    transaction: &C,
    mesh: MeshId,
    messages: &[&NewMessage],
) -> Result<(Facts, i64), JobError> {
    let asked = Asked::by(messages);
    let keys = AskedKeys::of(&asked, messages);
    let key = mesh_key(mesh);
    let ids = IdArrays::of(messages.iter().map(|new| &new.id));
    let [_, id_keys, members, agents, client_ids] = ids.params(&key);
    let consumed = [&key, id_keys, members, agents, client_ids, &keys.minted];
    let key_only = [&key as Param<'_>];
    let (topics, queues) = (
        [&key as Param<'_>, &keys.topics],
        [&key as Param<'_>, &keys.queues],
    );
    let parties = [&key as Param<'_>, &keys.members, &keys.agents];
    let senders = [&key as Param<'_>, &keys.senders];
    let ask = |sql, params, is_asked| when(is_asked, transaction, sql, params);
    let answers = try_join_all([
        ask(LOCK, &key_only, true),
        ask(CONSUMED, &consumed, true),
        ask(TOPICS, &topics, !keys.topics.is_empty()),
        ask(AGENTS, &parties, !keys.agents.is_empty()),
        ask(QUEUES, &queues, !keys.queues.is_empty()),
        ask(LAST_OP, &key_only, asked.has_ops),
        ask(SENDERS, &senders, true),
        ask(grants::OF_SENDERS, &senders, true),
    ])
    .await?;
    let [
        line,
        consumed,
        topics,
        agents,
        queues,
        last_op,
        senders,
        granted,
    ] = answers
        .try_into()
        .map_err(|_| JobError::BadRow("each question has an answer".to_owned()))?;
    let first = line.first().ok_or(StorageError::UnknownMesh(mesh))?;
    let mut line = Columns::of(first);
    let (next, mark) = (line.history_id()?, line.plain()?);
    let (consumed, taken) = known(&consumed, messages)?;
    let found = Found {
        topics: subscribers(&asked, &topics)?,
        mailboxes: mailboxes(&asked, &agents)?,
        senders: who_sends(&asked, &senders, &granted)?,
    };
    let facts = Facts {
        next,
        consumed,
        queues: read(&queues, Columns::queue)?,
        taken,
        last_op: match last_op.first() {
            None => HistoryId::ZERO,
            Some(row) => Columns::of(row).history_id()?,
        },
        found: Arc::new(found),
    };
    Ok((facts, mark))
}

type Param<'p> = &'p (dyn ToSql + Sync);

/// The rows, or none where nobody asks.
fn when<'q, C: GenericClient>(
    is_asked: bool,
    client: &'q C,
    sql: &'static str,
    params: Params<'q>,
) -> BoxFuture<'q, Result<Vec<Row>, JobError>> {
    Box::pin(async move {
        if is_asked {
            query(client, sql, params).await
        } else {
            Ok(Vec::new())
        }
    })
}

/// What a set asks about, column by column.
struct AskedKeys<'m> {
    topics: Vec<&'m str>,
    queues: Vec<&'m str>,
    /// Of mailboxes.
    members: Vec<Vec<u8>>,
    agents: Vec<&'m str>,
    /// In order, one for each message.
    minted: Vec<Vec<u8>>,
    senders: Vec<Vec<u8>>,
}

impl<'m> AskedKeys<'m> {
    fn of(asked: &Asked<'m>, messages: &[&'m NewMessage]) -> Self {
        let parties = asked.mailboxes.iter();
        let (members, agents) = parties
            .map(|party| (member_key(party.member), party.agent.as_str()))
            .unzip();
        let minted = messages
            .iter()
            .map(|new| message_key(new.broker_message_id));
        Self {
            topics: asked.topics.iter().map(|one| one.as_str()).collect(),
            queues: asked.queues.iter().map(|one| one.as_str()).collect(),
            members,
            agents,
            minted: minted.collect(),
            senders: asked.senders.iter().map(|one| member_key(*one)).collect(),
        }
    }
}

/// By [`CONSUMED`], in the order of the messages.
fn known(
    rows: &[Row],
    messages: &[&NewMessage],
) -> Result<(Vec<Option<Consumed>>, BTreeSet<BrokerMessageId>), JobError> {
    let mut consumed = Vec::with_capacity(rows.len());
    let mut taken = BTreeSet::new();
    for (row, new) in rows.iter().zip(messages) {
        let mut columns = Columns::of(row);
        consumed.push(consumed_of(&mut columns)?);
        if columns.flag()? {
            taken.insert(new.broker_message_id);
        }
    }
    Ok((consumed, taken))
}

fn read<'r, T, C: FromIterator<T>>(
    rows: &'r [Row],
    one: impl Fn(&mut Columns<'r>) -> Result<T, JobError>,
) -> Result<C, JobError> {
    rows.iter().map(|row| one(&mut Columns::of(row))).collect()
}

/// By [`SENDERS`] and [`grants::OF_SENDERS`].
fn who_sends(
    asked: &Asked<'_>,
    rows: &[Row],
    granted: &[Row],
) -> Result<BTreeMap<MemberId, Sender>, JobError> {
    let nobody = asked.senders.iter().map(|one| (*one, Sender::default()));
    let mut senders: BTreeMap<MemberId, Sender> = nobody.collect();
    for row in rows {
        let mut columns = Columns::of(row);
        let sender = senders.entry(columns.member()?).or_default();
        sender.generation = Some(columns.number()?);
        sender.bar = match (columns.maybe_wall()?, columns.maybe_wall()?) {
            (Some(_), _) => Some(Bar::Revoked),
            (None, Some(_)) => Some(Bar::Blocked),
            (None, None) => None,
        };
    }
    for ((sender, member), granted) in grants::map(granted)? {
        let sender = senders.entry(sender).or_default();
        sender.refusing.insert(member, granted);
    }
    Ok(senders)
}

/// By [`TOPICS`].
fn subscribers(
    asked: &Asked<'_>,
    rows: &[Row],
) -> Result<BTreeMap<TopicName, Option<Subscribers>>, JobError> {
    let mut found: BTreeMap<TopicName, BTreeSet<Party>> = BTreeMap::new();
    for row in rows {
        let mut columns = Columns::of(row);
        let mailboxes = found.entry(columns.topic()?).or_default();
        mailboxes.extend(columns.maybe_party()?);
    }
    let mut of_topic = |topic: &TopicName| {
        let mailboxes = found.remove(topic)?;
        let members: BTreeSet<MemberId> = mailboxes.iter().map(|one| one.member).collect();
        Some(Subscribers {
            members: members.into_iter().collect(),
            mailboxes: mailboxes.into_iter().collect(),
        })
    };
    let topics = asked.topics.iter();
    Ok(topics
        .map(|topic| ((*topic).clone(), of_topic(topic)))
        .collect())
}

/// By [`AGENTS`].
fn mailboxes(asked: &Asked<'_>, rows: &[Row]) -> Result<BTreeMap<Party, bool>, JobError> {
    let found: BTreeSet<Party> = read(rows, Columns::party)?;
    let all = asked.mailboxes.iter();
    Ok(all
        .map(|party| ((*party).clone(), found.contains(*party)))
        .collect())
}
