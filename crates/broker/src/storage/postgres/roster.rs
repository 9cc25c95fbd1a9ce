//! Who and what exists: meshes, members, agents, topics, subscriptions.

use deadpool_postgres::{GenericClient, Transaction};
use heddle_core::ids::{HistoryId, MemberId, MeshId, Party};
use heddle_core::limits::RECIPIENTS_MAX;
use heddle_core::names::{MemberName, MeshName, TopicName};
use tokio_postgres::Row;

use super::super::error::StorageError;
use super::super::mesh_names;
use super::super::rows::{Roster, RosterTopic};
use super::columns::{Columns, integer, member_key, mesh_key};
use super::error::JobError;
use super::queues;
use super::sql::{change, execute, exists, query, query_opt};

const MESH: &str = "SELECT 1 FROM mesh WHERE mesh_id = $1";

/// Names are chosen one after the other, across all brokers.
const NAMES_LOCK: &str = "SELECT pg_advisory_xact_lock(7264517012875)";

const MESH_NAME: &str = "SELECT name FROM mesh WHERE mesh_id = $1";

const MESH_NAMES: &str = "SELECT mesh_id = $1, name FROM mesh";

const NAMED: &str = "SELECT mesh_id FROM mesh WHERE name = $1 ORDER BY mesh_id LIMIT 1";

const ENSURE_MESH: &str = "
INSERT INTO mesh (mesh_id, name, epoch, next_seq) VALUES ($1, $2, 1, 1)
ON CONFLICT (mesh_id) DO UPDATE SET name = excluded.name WHERE mesh.name <> excluded.name";

const RAISE_EPOCH: &str = "
UPDATE mesh SET epoch = greatest(epoch, $2) + 1, next_seq = 1
WHERE mesh_id = $1 AND (epoch, next_seq - 1) < ($2, $3)";

const ENSURE_MEMBER: &str = "
INSERT INTO member (mesh_id, member_id, name) VALUES ($1, $2, $3)
ON CONFLICT (mesh_id, member_id) DO UPDATE SET name = excluded.name WHERE member.name <> excluded.name";

/// One that was revoked is none.
const IS_MEMBER: &str = "
SELECT 1 FROM member m WHERE m.mesh_id = $1 AND m.member_id = $2 AND NOT EXISTS (
    SELECT 1 FROM member_standing s WHERE s.mesh_id = m.mesh_id AND s.member_id = m.member_id
      AND s.revoked_at IS NOT NULL)";

const REGISTER: &str = "
INSERT INTO agent (mesh_id, member_id, agent) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";

const REGISTERED: &str = "SELECT 1 FROM agent WHERE mesh_id = $1 AND member_id = $2 AND agent = $3";

const TOPIC: &str = "INSERT INTO topic (mesh_id, topic) VALUES ($1, $2) ON CONFLICT DO NOTHING";

const SUBSCRIBE: &str = "
INSERT INTO topic_subscription (mesh_id, topic, member_id, agent) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING";

/// A row where as many as may be have subscribed ($5), and this one has not.
const NO_ROOM: &str = "
SELECT 1 FROM topic_subscription WHERE mesh_id = $1 AND topic = $2
HAVING count(*) >= $5 AND count(*) FILTER (WHERE member_id = $3 AND agent = $4) = 0";

const UNSUBSCRIBE: &str = "
DELETE FROM topic_subscription WHERE mesh_id = $1 AND topic = $2 AND member_id = $3 AND agent = $4";

const MEMBERS: &str = "
SELECT m.member_id, m.name FROM member m WHERE m.mesh_id = $1 AND NOT EXISTS (
    SELECT 1 FROM member_standing s WHERE s.mesh_id = m.mesh_id AND s.member_id = m.member_id
      AND s.revoked_at IS NOT NULL)
ORDER BY m.member_id";

const AGENTS: &str =
    "SELECT member_id, agent FROM agent WHERE mesh_id = $1 ORDER BY member_id, agent";

const QUEUES: &str = "SELECT queue FROM queue WHERE mesh_id = $1 ORDER BY queue";

const TOPICS: &str = "
SELECT t.topic, s.member_id, s.agent FROM topic t
LEFT JOIN topic_subscription s ON s.mesh_id = t.mesh_id AND s.topic = t.topic
WHERE t.mesh_id = $1 ORDER BY t.topic, s.member_id, s.agent";

pub(super) async fn require_mesh<C: GenericClient>(
    client: &C,
    mesh: MeshId,
) -> Result<(), JobError> {
    if exists(client, MESH, &[&mesh_key(mesh)]).await? {
        Ok(())
    } else {
        Err(StorageError::UnknownMesh(mesh).into())
    }
}

pub(super) async fn ensure_mesh(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    name: &MeshName,
) -> Result<bool, JobError> {
    execute(transaction, NAMES_LOCK, &[]).await?;
    let key = mesh_key(mesh);
    let mut names: Vec<(bool, MeshName)> = Vec::new();
    for row in query(transaction, MESH_NAMES, &[&key]).await? {
        let mut columns = Columns::of(&row);
        names.push((columns.flag()?, columns.mesh_name()?));
    }
    let mut own = names.iter().filter(|(is_own, _)| *is_own);
    let current = own.next().map(|(_, name)| name);
    let name = mesh_names::choose(name, current, |wish| {
        names.iter().any(|(is_own, name)| !is_own && name == wish)
    });
    change(transaction, ENSURE_MESH, &[&key, &name.as_str()]).await
}

/// IMPORTANT: the lock comes before the look, or two who look at once would both make one.
pub(super) async fn mesh_named(
    transaction: &Transaction<'_>,
    name: &MeshName,
    fresh: MeshId,
) -> Result<(MeshId, bool), JobError> {
    execute(transaction, NAMES_LOCK, &[]).await?;
    if let Some(row) = query_opt(transaction, NAMED, &[&name.as_str()]).await? {
        return Ok((Columns::of(&row).mesh()?, false));
    }
    ensure_mesh(transaction, fresh, name).await?;
    Ok((fresh, true))
}

pub(super) async fn mesh_name<C: GenericClient>(
    client: &C,
    mesh: MeshId,
) -> Result<MeshName, JobError> {
    match query_opt(client, MESH_NAME, &[&mesh_key(mesh)]).await? {
        None => Err(StorageError::UnknownMesh(mesh).into()),
        Some(row) => Columns::of(&row).mesh_name(),
    }
}

pub(super) async fn raise_epoch_beyond(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    seen: HistoryId,
) -> Result<bool, JobError> {
    let (epoch, seq) = (integer(seen.epoch), integer(seen.seq));
    let raised = change(transaction, RAISE_EPOCH, &[&mesh_key(mesh), &epoch, &seq]).await?;
    if raised {
        queues::end_leases(transaction, mesh).await?;
    }
    Ok(raised)
}

pub(super) async fn ensure_member(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    member: MemberId,
    name: &MemberName,
) -> Result<bool, JobError> {
    let (mesh, member) = (mesh_key(mesh), member_key(member));
    change(
        transaction,
        ENSURE_MEMBER,
        &[&mesh, &member, &name.as_str()],
    )
    .await
}

pub(super) async fn register_agent(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    agent: &Party,
) -> Result<bool, JobError> {
    let (mesh, member) = (mesh_key(mesh), member_key(agent.member));
    if !exists(transaction, IS_MEMBER, &[&mesh, &member]).await? {
        return Err(StorageError::UnknownMember(agent.member).into());
    }
    change(
        transaction,
        REGISTER,
        &[&mesh, &member, &agent.agent.as_str()],
    )
    .await
}

pub(super) async fn is_registered(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    agent: &Party,
) -> Result<bool, JobError> {
    let (mesh, member) = (mesh_key(mesh), member_key(agent.member));
    exists(
        transaction,
        REGISTERED,
        &[&mesh, &member, &agent.agent.as_str()],
    )
    .await
}

pub(super) async fn create_topic(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    topic: &TopicName,
) -> Result<bool, JobError> {
    change(transaction, TOPIC, &[&mesh_key(mesh), &topic.as_str()]).await
}

pub(super) async fn subscribe(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    topic: &TopicName,
    agent: &Party,
) -> Result<bool, JobError> {
    if !is_registered(transaction, mesh, agent).await? {
        return Err(StorageError::UnknownAgent(agent.clone()).into());
    }
    if has_no_room(transaction, mesh, topic, agent).await? {
        return Err(StorageError::TopicFull(topic.clone()).into());
    }
    create_topic(transaction, mesh, topic).await?;
    subscription(transaction, SUBSCRIBE, mesh, topic, agent).await
}

async fn has_no_room(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    topic: &TopicName,
    agent: &Party,
) -> Result<bool, JobError> {
    let (mesh, member) = (mesh_key(mesh), member_key(agent.member));
    let (topic, agent) = (topic.as_str(), agent.agent.as_str());
    let max = i64::try_from(RECIPIENTS_MAX).unwrap_or(i64::MAX);
    exists(
        transaction,
        NO_ROOM,
        &[&mesh, &topic, &member, &agent, &max],
    )
    .await
}

pub(super) async fn unsubscribe(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    topic: &TopicName,
    agent: &Party,
) -> Result<bool, JobError> {
    subscription(transaction, UNSUBSCRIBE, mesh, topic, agent).await
}

async fn subscription(
    transaction: &Transaction<'_>,
    sql: &str,
    mesh: MeshId,
    topic: &TopicName,
    agent: &Party,
) -> Result<bool, JobError> {
    let (mesh, member) = (mesh_key(mesh), member_key(agent.member));
    let (topic, agent) = (topic.as_str(), agent.agent.as_str());
    change(transaction, sql, &[&mesh, &topic, &member, &agent]).await
}

pub(super) async fn read(transaction: &Transaction<'_>, mesh: MeshId) -> Result<Roster, JobError> {
    require_mesh(transaction, mesh).await?;
    let key = mesh_key(mesh);
    let mut roster = Roster::default();
    for row in query(transaction, MEMBERS, &[&key]).await? {
        let mut columns = Columns::of(&row);
        roster
            .members
            .push((columns.member()?, columns.member_name()?));
    }
    for row in query(transaction, AGENTS, &[&key]).await? {
        roster.agents.push(Columns::of(&row).party()?);
    }
    for row in query(transaction, QUEUES, &[&key]).await? {
        roster.queues.push(Columns::of(&row).queue()?);
    }
    roster.topics = topics(&query(transaction, TOPICS, &[&key]).await?)?;
    Ok(roster)
}

/// Rows of one topic stand together.
fn topics(rows: &[Row]) -> Result<Vec<RosterTopic>, JobError> {
    let mut topics: Vec<RosterTopic> = Vec::new();
    for row in rows {
        let mut columns = Columns::of(row);
        let topic = columns.topic()?;
        if topics.last().is_none_or(|last| last.topic != topic) {
            topics.push(RosterTopic {
                topic,
                subscribers: Vec::new(),
            });
        }
        if let (Some(last), Some(party)) = (topics.last_mut(), columns.maybe_party()?) {
            last.subscribers.push(party);
        }
    }
    Ok(topics)
}
