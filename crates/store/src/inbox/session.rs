//! Cursors of sessions: how far each has read an agent's mailbox. Reading moves none of them.

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use heddle_core::names::{AgentName, SessionName};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::StoreError;
use crate::inbox::cursor::last_arrival;
use crate::store::Store;

/// Whose cursor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionKey {
    pub mesh: MeshId,
    pub agent: AgentName,
    pub session: SessionName,
}

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionCursor {
    /// It has been given everything up to this arrival.
    pub read_through: i64,
    /// Since when it is known; `None` for one that has not moved yet.
    pub created_at: Option<WallMs>,
}

pub(crate) const SESSION: &str = "
    SELECT read_through, created_at FROM inbox_session
    WHERE mesh_id = ?1 AND agent = ?2 AND session = ?3";

pub(crate) const OLDEST_UNREAD: &str = "
    SELECT arrival FROM inbox INDEXED BY inbox_unread
    WHERE mesh_id = ?1 AND agent = ?2 AND acked_at IS NULL ORDER BY arrival LIMIT 1";

pub(crate) const MOVE: &str = "
    INSERT INTO inbox_session (mesh_id, agent, session, read_through, created_at, used_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?5)
    ON CONFLICT (mesh_id, agent, session)
    DO UPDATE SET read_through = excluded.read_through, used_at = excluded.used_at";

pub(crate) const ENTER: &str = "
    INSERT INTO inbox_session (mesh_id, agent, session, read_through, created_at, used_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?5) ON CONFLICT DO NOTHING";

impl Store {
    /// From now on the session is known, at the place where it begins, so that what a sibling acknowledges is not
    /// hidden from it. It is given nothing by this; one that is known already stays as it is.
    pub async fn inbox_enter(
        &self,
        key: SessionKey,
        now: WallMs,
    ) -> Result<SessionCursor, StoreError> {
        self.write_relaxed(move |connection| {
            let found = read(connection, &key)?;
            connection.prepare_cached(ENTER)?.execute(params![
                key.mesh.0.to_bytes(),
                key.agent.as_str(),
                key.session.as_str(),
                found.read_through,
                now.0,
            ])?;
            Ok(SessionCursor {
                created_at: found.created_at.or(Some(now)),
                ..found
            })
        })
        .await
    }

    /// A session that is new begins with what nobody has acknowledged yet.
    pub async fn inbox_session(&self, key: SessionKey) -> Result<SessionCursor, StoreError> {
        self.read(move |connection| read(connection, &key)).await
    }

    /// Moves the cursor forward to `through`, never back and never beyond what has arrived. Where it
    /// stands then.
    pub async fn inbox_seen(
        &self,
        key: SessionKey,
        through: i64,
        now: WallMs,
    ) -> Result<SessionCursor, StoreError> {
        self.write(move |connection| {
            let found = read(connection, &key)?;
            let wanted = through.min(last_arrival(connection)?);
            let read_through = found.read_through.max(wanted);
            connection.prepare_cached(MOVE)?.execute(params![
                key.mesh.0.to_bytes(),
                key.agent.as_str(),
                key.session.as_str(),
                read_through,
                now.0,
            ])?;
            Ok(SessionCursor {
                read_through,
                created_at: found.created_at.or(Some(now)),
            })
        })
        .await
    }
}

fn read(connection: &Connection, key: &SessionKey) -> Result<SessionCursor, StoreError> {
    let mesh = key.mesh.0.to_bytes();
    let agent = key.agent.as_str();
    let known = connection
        .prepare_cached(SESSION)?
        .query_row(params![mesh, agent, key.session.as_str()], |row| {
            Ok(SessionCursor {
                read_through: row.get(0)?,
                created_at: Some(WallMs(row.get(1)?)),
            })
        })
        .optional()?;
    if let Some(cursor) = known {
        return Ok(cursor);
    }
    let oldest: Option<i64> = connection
        .prepare_cached(OLDEST_UNREAD)?
        .query_row(params![mesh, agent], |row| row.get(0))
        .optional()?;
    let read_through = match oldest {
        Some(arrival) => arrival - 1,
        None => last_arrival(connection)?,
    };
    Ok(SessionCursor {
        read_through,
        created_at: None,
    })
}
