//! What a set must know before it is decided: at most seven look-ups behind the lock, sent together. One that nothing
//! in the set asks for is left out.

use std::collections::{BTreeMap, BTreeSet};

use deadpool_postgres::{GenericClient, Object};
use futures_util::future::{BoxFuture, try_join, try_join_all};
use heddle_core::ids::{BrokerMessageId, HistoryId, MemberId, MeshId, Party};
use heddle_core::membership::Bar;
use heddle_core::names::{QueueName, TopicName};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::super::super::error::StorageError;
use super::super::super::rows::{Consumed, Destination, NewMessage};
use super::super::columns::{Columns, member_key, mesh_key, message_key};
use super::super::error::JobError;
use super::super::grants::{self, GrantMap};
use super::super::line::LOCK;
use super::super::look::{IdArrays, consumed_of};
use super::super::sql::{Params, query};

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
SELECT DISTINCT t.topic, s.member_id FROM topic t
LEFT JOIN LATERAL (SELECT o.member_id FROM topic_subscription o
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
    /// Those that exist, with whoever has subscribed.
    pub(super) topics: BTreeMap<TopicName, BTreeSet<MemberId>>,
    /// Those that exist, of all that are meant or mentioned.
    pub(super) agents: BTreeSet<Party>,
    pub(super) queues: BTreeSet<QueueName>,
    pub(super) taken: BTreeSet<BrokerMessageId>,
    pub(super) last_op: HistoryId,
    /// The number of the latest session of each sender.
    pub(super) generations: BTreeMap<MemberId, u64>,
    /// Those of them that may not speak.
    pub(super) barred: BTreeMap<MemberId, Bar>,
    /// By sender and recipient, where that is not everything.
    pub(super) grants: GrantMap,
}

/// Begins a transaction with the lock of the mesh's row, and looks: one trip to the server.
///
/// IMPORTANT: the server runs what it is sent in order, and each statement sees what was committed before it ran: the
/// look-ups see everything that was committed before the lock was given (C4). They are sent in this order because every
/// statement is prepared already (`prepare`).
pub(super) async fn begin(
    client: &Object,
    mesh: MeshId,
    messages: &[&NewMessage],
) -> Result<Facts, JobError> {
    let begin = async { Ok(client.batch_execute("BEGIN").await?) };
    let ((), facts) = try_join(begin, look(client, mesh, messages)).await?;
    Ok(facts)
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

/// Under the lock of the mesh's row, which it takes if the transaction has not.
pub(super) async fn look<C: GenericClient>(
    transaction: &C,
    mesh: MeshId,
    messages: &[&NewMessage],
) -> Result<Facts, JobError> {
    let asked = Asked::by(messages);
    let key = mesh_key(mesh);
    let ids = IdArrays::of(messages.iter().map(|new| &new.id));
    let [_, keys, members, agents, client_ids] = ids.params(&key);
    let consumed = [&key, keys, members, agents, client_ids, &asked.minted];
    let key_only = [&key as Param<'_>];
    let (topics, queues) = (
        [&key as Param<'_>, &asked.topics],
        [&key as Param<'_>, &asked.queues],
    );
    let parties = [&key as Param<'_>, &asked.members, &asked.agents];
    let senders = [&key as Param<'_>, &asked.senders];
    let ask = |sql, params, is_asked| when(is_asked, transaction, sql, params);
    let answers = try_join_all([
        ask(LOCK, &key_only, true),
        ask(CONSUMED, &consumed, true),
        ask(TOPICS, &topics, !asked.topics.is_empty()),
        ask(AGENTS, &parties, !asked.agents.is_empty()),
        ask(QUEUES, &queues, !asked.queues.is_empty()),
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
    let (generations, barred) = who_sends(&senders)?;
    let first = line.first().ok_or(StorageError::UnknownMesh(mesh))?;
    let (consumed, taken) = known(&consumed, messages)?;
    Ok(Facts {
        next: Columns::of(first).history_id()?,
        consumed,
        topics: subscribers(&topics)?,
        agents: read(&agents, Columns::party)?,
        queues: read(&queues, Columns::queue)?,
        taken,
        last_op: match last_op.first() {
            None => HistoryId::ZERO,
            Some(row) => Columns::of(row).history_id()?,
        },
        generations,
        barred,
        grants: grants::map(&granted)?,
    })
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

/// What a set asks about, each once.
struct Asked<'m> {
    topics: Vec<&'m str>,
    queues: Vec<&'m str>,
    /// Mailboxes that are meant or mentioned.
    members: Vec<Vec<u8>>,
    agents: Vec<&'m str>,
    /// In order, one for each message.
    minted: Vec<Vec<u8>>,
    senders: Vec<Vec<u8>>,
    has_ops: bool,
}

impl<'m> Asked<'m> {
    fn by(messages: &[&'m NewMessage]) -> Self {
        let (members, agents) = meant(messages);
        let minted = messages
            .iter()
            .map(|new| message_key(new.broker_message_id));
        let senders: BTreeSet<MemberId> = messages.iter().map(|new| new.id.sender.member).collect();
        Self {
            topics: distinct(messages, |destination| match destination {
                Destination::Topic(topic) => Some(topic.as_str()),
                _ => None,
            }),
            queues: distinct(messages, |destination| match destination {
                Destination::Queue(queue) => Some(queue.as_str()),
                _ => None,
            }),
            members,
            agents,
            minted: minted.collect(),
            senders: senders.into_iter().map(member_key).collect(),
            has_ops: messages
                .iter()
                .any(|new| new.destination == Destination::Log),
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

type Senders = (BTreeMap<MemberId, u64>, BTreeMap<MemberId, Bar>);

fn who_sends(rows: &[Row]) -> Result<Senders, JobError> {
    let (mut generations, mut barred) = Senders::default();
    for row in rows {
        let mut columns = Columns::of(row);
        let member = columns.member()?;
        generations.insert(member, columns.number()?);
        match (columns.maybe_wall()?, columns.maybe_wall()?) {
            (Some(_), _) => barred.insert(member, Bar::Revoked),
            (None, Some(_)) => barred.insert(member, Bar::Blocked),
            (None, None) => None,
        };
    }
    Ok((generations, barred))
}

fn subscribers(rows: &[Row]) -> Result<BTreeMap<TopicName, BTreeSet<MemberId>>, JobError> {
    let mut topics: BTreeMap<TopicName, BTreeSet<MemberId>> = BTreeMap::new();
    for row in rows {
        let mut columns = Columns::of(row);
        let members = topics.entry(columns.topic()?).or_default();
        let nobody: Option<&[u8]> = row.try_get(1)?;
        if nobody.is_some() {
            members.insert(columns.member()?);
        }
    }
    Ok(topics)
}

/// Recipients of direct messages, and everybody who is mentioned; each once.
fn meant<'m>(messages: &[&'m NewMessage]) -> (Vec<Vec<u8>>, Vec<&'m str>) {
    let direct = messages.iter().filter_map(|new| match &new.destination {
        Destination::Dm(party) => Some(party),
        _ => None,
    });
    let mentioned = messages.iter().flat_map(|new| &new.mentions);
    let parties: BTreeSet<&'m Party> = direct.chain(mentioned).collect();
    parties
        .into_iter()
        .map(|party| (member_key(party.member), party.agent.as_str()))
        .unzip()
}

fn distinct<'m>(
    messages: &[&'m NewMessage],
    name: impl Fn(&'m Destination) -> Option<&'m str>,
) -> Vec<&'m str> {
    let names: BTreeSet<&str> = messages
        .iter()
        .filter_map(|new| name(&new.destination))
        .collect();
    names.into_iter().collect()
}
