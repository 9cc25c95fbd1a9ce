//! Who and what exists: meshes, members, agents, topics, subscriptions.

use heddle_core::ids::{HistoryId, MemberId, MeshId, Party};
use heddle_core::limits::RECIPIENTS_MAX;
use heddle_core::names::{MemberName, MeshName, TopicName};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::super::error::StorageError;
use super::super::mesh_names;
use super::super::rows::{Roster, RosterTopic};
use super::columns::{Columns, integer, member_key, mesh_key};
use super::error::JobError;
use super::look::is_registered;
use super::queues;

/// One that was revoked is none.
const IS_MEMBER: &str = "
SELECT 1 FROM member m WHERE m.mesh_id = ?1 AND m.member_id = ?2 AND NOT EXISTS (
    SELECT 1 FROM member_standing s WHERE s.mesh_id = m.mesh_id AND s.member_id = m.member_id
      AND s.revoked_at IS NOT NULL)";

const MEMBERS: &str = "
SELECT m.member_id, m.name FROM member m WHERE m.mesh_id = ?1 AND NOT EXISTS (
    SELECT 1 FROM member_standing s WHERE s.mesh_id = m.mesh_id AND s.member_id = m.member_id
      AND s.revoked_at IS NOT NULL)
ORDER BY m.member_id";

/// Runs a statement that changes one row or none.
fn change(
    connection: &Connection,
    sql: &str,
    key: impl rusqlite::Params,
) -> Result<bool, JobError> {
    Ok(connection.prepare_cached(sql)?.execute(key)? > 0)
}

pub(super) fn require_mesh(connection: &Connection, mesh: MeshId) -> Result<(), JobError> {
    let found = connection
        .prepare_cached("SELECT 1 FROM mesh WHERE mesh_id = ?1")?
        .exists([mesh_key(mesh)])?;
    if found {
        Ok(())
    } else {
        Err(StorageError::UnknownMesh(mesh).into())
    }
}

pub(super) fn ensure_mesh(
    connection: &Connection,
    mesh: MeshId,
    name: &MeshName,
) -> Result<bool, JobError> {
    // Meshes are few, and this is asked once for each: no index is worth it.
    let names = connection
        .prepare_cached("SELECT mesh_id = ?1, name FROM mesh")?
        .query_map([mesh_key(mesh)], |row| {
            let mut columns = Columns::of(row);
            Ok((columns.flag()?, columns.mesh_name()?))
        })?
        .collect::<rusqlite::Result<Vec<(bool, MeshName)>>>()?;
    let mut own = names.iter().filter(|(is_own, _)| *is_own);
    let current = own.next().map(|(_, name)| name);
    let name = mesh_names::choose(name, current, |wish| {
        names.iter().any(|(is_own, name)| !is_own && name == wish)
    });
    change(
        connection,
        "INSERT INTO mesh (mesh_id, name, epoch, next_seq) VALUES (?1, ?2, 1, 1)
         ON CONFLICT (mesh_id) DO UPDATE SET name = excluded.name WHERE name <> excluded.name",
        params![mesh_key(mesh), name.as_str()],
    )
}

pub(super) fn mesh_named(
    connection: &Connection,
    name: &MeshName,
    fresh: MeshId,
) -> Result<(MeshId, bool), JobError> {
    let mut statement = connection.prepare_cached("SELECT mesh_id FROM mesh WHERE name = ?1")?;
    let found = statement.query_row([name.as_str()], |row| Columns::of(row).mesh());
    if let Some(mesh) = found.optional()? {
        return Ok((mesh, false));
    }
    ensure_mesh(connection, fresh, name)?;
    Ok((fresh, true))
}

pub(super) fn mesh_name(connection: &Connection, mesh: MeshId) -> Result<MeshName, JobError> {
    let mut statement = connection.prepare_cached("SELECT name FROM mesh WHERE mesh_id = ?1")?;
    let name = statement.query_row([mesh_key(mesh)], |row| Columns::of(row).mesh_name());
    name.optional()?
        .ok_or_else(|| StorageError::UnknownMesh(mesh).into())
}

pub(super) fn raise_epoch_beyond(
    connection: &Connection,
    mesh: MeshId,
    seen: HistoryId,
) -> Result<bool, JobError> {
    let raised = change(
        connection,
        "UPDATE mesh SET epoch = max(epoch, ?2) + 1, next_seq = 1
         WHERE mesh_id = ?1 AND (epoch, next_seq - 1) < (?2, ?3)",
        params![mesh_key(mesh), integer(seen.epoch), integer(seen.seq)],
    )?;
    if raised {
        queues::end_leases(connection, mesh)?;
    }
    Ok(raised)
}

pub(super) fn ensure_member(
    connection: &Connection,
    mesh: MeshId,
    member: MemberId,
    name: &MemberName,
) -> Result<bool, JobError> {
    change(
        connection,
        "INSERT INTO member (mesh_id, member_id, name) VALUES (?1, ?2, ?3)
         ON CONFLICT (mesh_id, member_id) DO UPDATE SET name = excluded.name WHERE name <> excluded.name",
        params![mesh_key(mesh), member_key(member), name.as_str()],
    )
}

pub(super) fn register_agent(
    connection: &Connection,
    mesh: MeshId,
    agent: &Party,
) -> Result<bool, JobError> {
    let is_member = connection
        .prepare_cached(IS_MEMBER)?
        .exists(params![mesh_key(mesh), member_key(agent.member)])?;
    if !is_member {
        return Err(StorageError::UnknownMember(agent.member).into());
    }
    change(
        connection,
        "INSERT INTO agent (mesh_id, member_id, agent) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        params![
            mesh_key(mesh),
            member_key(agent.member),
            agent.agent.as_str()
        ],
    )
}

pub(super) fn create_topic(
    connection: &Connection,
    mesh: MeshId,
    topic: &TopicName,
) -> Result<bool, JobError> {
    change(
        connection,
        "INSERT INTO topic (mesh_id, topic) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        params![mesh_key(mesh), topic.as_str()],
    )
}

pub(super) fn subscribe(
    connection: &Connection,
    mesh: MeshId,
    topic: &TopicName,
    agent: &Party,
) -> Result<bool, JobError> {
    if !is_registered(connection, mesh, agent)? {
        return Err(StorageError::UnknownAgent(agent.clone()).into());
    }
    if has_no_room(connection, mesh, topic, agent)? {
        return Err(StorageError::TopicFull(topic.clone()).into());
    }
    create_topic(connection, mesh, topic)?;
    change(
        connection,
        "INSERT INTO topic_subscription (mesh_id, topic, member_id, agent) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO NOTHING",
        params![
            mesh_key(mesh),
            topic.as_str(),
            member_key(agent.member),
            agent.agent.as_str()
        ],
    )
}

/// Whether as many as may be have subscribed, and this one has not.
fn has_no_room(
    connection: &Connection,
    mesh: MeshId,
    topic: &TopicName,
    agent: &Party,
) -> Result<bool, JobError> {
    let mut statement = connection.prepare_cached(
        "SELECT count(*), count(*) FILTER (WHERE member_id = ?3 AND agent = ?4)
         FROM topic_subscription WHERE mesh_id = ?1 AND topic = ?2",
    )?;
    let key = params![
        mesh_key(mesh),
        topic.as_str(),
        member_key(agent.member),
        agent.agent.as_str()
    ];
    let (all, own): (i64, i64) = statement.query_row(key, |row| Ok((row.get(0)?, row.get(1)?)))?;
    let max = i64::try_from(RECIPIENTS_MAX).unwrap_or(i64::MAX);
    Ok(all >= max && own == 0)
}

pub(super) fn unsubscribe(
    connection: &Connection,
    mesh: MeshId,
    topic: &TopicName,
    agent: &Party,
) -> Result<bool, JobError> {
    change(
        connection,
        "DELETE FROM topic_subscription
         WHERE mesh_id = ?1 AND topic = ?2 AND member_id = ?3 AND agent = ?4",
        params![
            mesh_key(mesh),
            topic.as_str(),
            member_key(agent.member),
            agent.agent.as_str()
        ],
    )
}

pub(super) fn read(connection: &Connection, mesh: MeshId) -> Result<Roster, JobError> {
    let key = [mesh_key(mesh)];
    let members = connection
        .prepare_cached(MEMBERS)?
        .query_map(key, |row| {
            let mut columns = Columns::of(row);
            Ok((columns.member()?, columns.member_name()?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let agents = connection
        .prepare_cached(
            "SELECT member_id, agent FROM agent WHERE mesh_id = ?1 ORDER BY member_id, agent",
        )?
        .query_map(key, |row| Columns::of(row).party())?
        .collect::<rusqlite::Result<_>>()?;
    Ok(Roster {
        members,
        agents,
        topics: topics(connection, key)?,
        queues: connection
            .prepare_cached("SELECT queue FROM queue WHERE mesh_id = ?1 ORDER BY queue")?
            .query_map(key, |row| Columns::of(row).queue())?
            .collect::<rusqlite::Result<_>>()?,
    })
}

fn topics(connection: &Connection, key: [[u8; 16]; 1]) -> Result<Vec<RosterTopic>, JobError> {
    let mut topics: Vec<RosterTopic> = connection
        .prepare_cached("SELECT topic FROM topic WHERE mesh_id = ?1 ORDER BY topic")?
        .query_map(key, |row| {
            Ok(RosterTopic {
                topic: Columns::of(row).topic()?,
                subscribers: Vec::new(),
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    let mut statement = connection.prepare_cached(
        "SELECT topic, member_id, agent FROM topic_subscription WHERE mesh_id = ?1
         ORDER BY topic, member_id, agent",
    )?;
    let mut rows = statement.query(key)?;
    // Both lists are in the order of the topic, so one walk joins them.
    let mut at = 0;
    while let Some(row) = rows.next()? {
        let mut columns = Columns::of(row);
        let topic = columns.topic()?;
        while topics.get(at).is_some_and(|entry| entry.topic < topic) {
            at += 1;
        }
        if let Some(entry) = topics.get_mut(at) {
            entry.subscribers.push(columns.party()?);
        }
    }
    Ok(topics)
}
