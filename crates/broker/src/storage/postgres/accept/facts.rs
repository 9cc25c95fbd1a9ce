//! What a set must know before it is decided: nine look-ups, sent together.

use std::collections::{BTreeMap, BTreeSet};

use deadpool_postgres::{GenericClient, Object};
use futures_util::future::{try_join_all, try_join3};
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
use super::super::look::{CONSUMED_COLUMNS, IdArrays, consumed_of};
use super::super::sql::{exists, query};

const LINE: &str = "SELECT epoch, next_seq FROM mesh WHERE mesh_id = $1";

const TOPICS: &str = "
SELECT DISTINCT t.topic, s.member_id FROM topic t
LEFT JOIN topic_subscription s ON s.mesh_id = t.mesh_id AND s.topic = t.topic
WHERE t.mesh_id = $1 AND t.topic = ANY ($2)";

const AGENTS: &str = "
SELECT a.member_id, a.agent FROM unnest($2::bytea[], $3::text[]) AS k (member_id, agent)
JOIN agent a ON a.mesh_id = $1 AND a.member_id = k.member_id AND a.agent = k.agent";

const QUEUES: &str = "SELECT queue FROM queue WHERE mesh_id = $1 AND queue = ANY ($2)";

/// Ids are minted anew for every message: one that is taken is a fault of ours, and its message's alone.
const TAKEN: &str = "
SELECT broker_message_id FROM message WHERE mesh_id = $1 AND broker_message_id = ANY ($2)";

const SENDERS: &str = "
SELECT m.member_id, m.generation, s.revoked_at, s.blocked_at FROM member m
LEFT JOIN member_standing s ON s.mesh_id = m.mesh_id AND s.member_id = m.member_id
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
/// statement is prepared already ([`statements`]).
pub(super) async fn begin(
    client: &Object,
    mesh: MeshId,
    messages: &[&NewMessage],
) -> Result<Facts, JobError> {
    let begin = async { Ok(client.batch_execute("BEGIN").await?) };
    let key = mesh_key(mesh);
    let lock = [&key as &(dyn ToSql + Sync)];
    let lock = exists(client, LOCK, &lock);
    let ((), is_there, facts) = try_join3(begin, lock, look(client, mesh, messages)).await?;
    if is_there {
        Ok(facts)
    } else {
        Err(StorageError::UnknownMesh(mesh).into())
    }
}

/// Everything that [`begin`] runs.
pub(super) fn statements() -> [String; 10] {
    let consumed = consumed_sql();
    let plain = [
        LOCK,
        LINE,
        TOPICS,
        AGENTS,
        QUEUES,
        TAKEN,
        LAST_OP,
        SENDERS,
        grants::OF_SENDERS,
    ];
    let mut all = plain.into_iter().map(str::to_owned).chain([consumed]);
    std::array::from_fn(|_| all.next().unwrap_or_default())
}

fn consumed_sql() -> String {
    format!("{CONSUMED_COLUMNS} ORDER BY k.place")
}

pub(super) async fn look<C: GenericClient>(
    transaction: &C,
    mesh: MeshId,
    messages: &[&NewMessage],
) -> Result<Facts, JobError> {
    let key = mesh_key(mesh);
    let ids = IdArrays::of(messages.iter().map(|new| &new.id));
    let (members, agents) = meant(messages);
    let topics: Vec<&str> = distinct(messages, |destination| match destination {
        Destination::Topic(topic) => Some(topic.as_str()),
        _ => None,
    });
    let queues: Vec<&str> = distinct(messages, |destination| match destination {
        Destination::Queue(queue) => Some(queue.as_str()),
        _ => None,
    });
    let minted: Vec<Vec<u8>> = messages
        .iter()
        .map(|new| message_key(new.broker_message_id))
        .collect();
    let senders: BTreeSet<MemberId> = messages.iter().map(|new| new.id.sender.member).collect();
    let senders: Vec<Vec<u8>> = senders.into_iter().map(member_key).collect();
    let consumed_sql = consumed_sql();
    let with_ids = ids.params(&key);
    let answers = try_join_all([
        query(transaction, LINE, &[&key]),
        query(transaction, &consumed_sql, &with_ids),
        query(transaction, TOPICS, &[&key, &topics]),
        query(transaction, AGENTS, &[&key, &members, &agents]),
        query(transaction, QUEUES, &[&key, &queues]),
        query(transaction, TAKEN, &[&key, &minted]),
        query(transaction, LAST_OP, &[&key]),
        query(transaction, SENDERS, &[&key, &senders]),
        query(transaction, grants::OF_SENDERS, &[&key, &senders]),
    ])
    .await?;
    let [
        line,
        consumed,
        topics,
        agents,
        queues,
        taken,
        last_op,
        senders,
        granted,
    ] = answers
        .try_into()
        .map_err(|_| JobError::BadRow("each question has an answer".to_owned()))?;
    let (generations, barred) = who_sends(&senders)?;
    let first = line.first().ok_or(StorageError::UnknownMesh(mesh))?;
    Ok(Facts {
        next: Columns::of(first).history_id()?,
        consumed: read(&consumed, consumed_of)?,
        topics: subscribers(&topics)?,
        agents: read(&agents, Columns::party)?,
        queues: read(&queues, Columns::queue)?,
        taken: read(&taken, Columns::broker_message_id)?,
        last_op: match last_op.first() {
            None => HistoryId::ZERO,
            Some(row) => Columns::of(row).history_id()?,
        },
        generations,
        barred,
        grants: grants::map(&granted)?,
    })
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
