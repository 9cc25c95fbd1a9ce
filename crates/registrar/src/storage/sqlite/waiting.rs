//! What this home has to tell the authority of a mesh hosted elsewhere, while it cannot be reached.
//!
//! Not part of the contract: an authority waits for nobody. Rows are appended here too: a call that was
//! answered gets a second row, and stays readable.

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::Sqlite;
use crate::binding::LogicalKey;
use crate::storage::error::StorageError;

/// A call on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub key: String,
    /// The mailbox that speaks.
    pub caller: String,
    /// Its id at the authority: sent again, it is the same call.
    pub call_id: String,
    pub verb: String,
    /// As it goes over the wire.
    pub call: String,
    pub since: WallMs,
}

/// One that has arrived, and what was said to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waited {
    pub call: Waiting,
    pub outcome: String,
    pub ended_at: WallMs,
}

const WAIT: &str = "
    INSERT INTO effect_waiting (mesh_id, logical_request_key, caller, call_id, verb, call, waits_since)
    SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE NOT EXISTS (SELECT 1 FROM effect_waiting
        WHERE mesh_id = ?1 AND caller = ?3 AND call_id = ?4)";
const WAITING: &str = "
    SELECT w.seq, w.logical_request_key, w.caller, w.call_id, w.verb, w.call, w.waits_since
    FROM effect_waiting w LEFT JOIN effect_waited d USING (seq)
    WHERE w.mesh_id = ?1 AND d.seq IS NULL ORDER BY w.seq LIMIT ?2";
const KNOWN: &str = "
    SELECT w.seq, w.logical_request_key, w.caller, w.call_id, w.verb, w.call, w.waits_since, d.outcome
    FROM effect_waiting w LEFT JOIN effect_waited d USING (seq)
    WHERE w.mesh_id = ?1 AND w.caller = ?2 AND w.call_id = ?3";
const WAITED: &str = "
    INSERT INTO effect_waited (seq, outcome, ended_at)
    SELECT ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM effect_waited WHERE seq = ?1)";
const LAST_WAITED: &str = "
    SELECT w.seq, w.logical_request_key, w.caller, w.call_id, w.verb, w.call, w.waits_since, d.outcome, d.ended_at
    FROM effect_waiting w JOIN effect_waited d USING (seq)
    WHERE w.mesh_id = ?1 AND w.logical_request_key = ?2 ORDER BY w.seq DESC LIMIT 1";

fn waiting(row: &Row<'_>) -> Result<(i64, Waiting), rusqlite::Error> {
    Ok((
        row.get(0)?,
        Waiting {
            key: row.get(1)?,
            caller: row.get(2)?,
            call_id: row.get(3)?,
            verb: row.get(4)?,
            call: row.get(5)?,
            since: WallMs(row.get(6)?),
        },
    ))
}

impl Sqlite {
    /// Keeps a call. False where its id is another row's already: then nothing changes, and who asks looks whose.
    pub async fn wait(&self, mesh: MeshId, call: Waiting) -> Result<bool, StorageError> {
        let written = self.database.write(move |connection: &Connection| {
            let row = params![
                mesh.0.to_bytes(),
                call.key,
                call.caller,
                call.call_id,
                call.verb,
                call.call,
                call.since.0,
            ];
            let kept = connection.prepare_cached(WAIT)?.execute(row)?;
            Ok::<_, StorageError>(kept > 0)
        });
        Ok(written.await?)
    }

    /// The call that was kept under this id of this caller; with what came of it, where it waits no more.
    pub async fn known_waiting(
        &self,
        mesh: MeshId,
        caller: &str,
        call_id: &str,
    ) -> Result<Option<(Waiting, Option<String>)>, StorageError> {
        let (caller, call_id) = (caller.to_owned(), call_id.to_owned());
        let found = self.database.read(move |connection: &Connection| {
            let mut statement = connection.prepare_cached(KNOWN)?;
            let whose = params![mesh.0.to_bytes(), caller, call_id];
            let row = statement.query_row(whose, |row| Ok((waiting(row)?.1, row.get(7)?)));
            Ok::<_, StorageError>(row.optional()?)
        });
        Ok(found.await?)
    }

    /// What waits, in the order in which it came.
    pub async fn waiting(
        &self,
        mesh: MeshId,
        limit: usize,
    ) -> Result<Vec<(i64, Waiting)>, StorageError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let found = self.database.read(move |connection: &Connection| {
            let mut statement = connection.prepare_cached(WAITING)?;
            let rows = statement.query_map(params![mesh.0.to_bytes(), limit], waiting)?;
            Ok::<_, StorageError>(rows.collect::<Result<Vec<_>, _>>()?)
        });
        Ok(found.await?)
    }

    /// The authority has answered.
    pub async fn waited(&self, seq: i64, outcome: String, at: WallMs) -> Result<(), StorageError> {
        let written = self.database.write(move |connection: &Connection| {
            let row = params![seq, outcome, at.0];
            connection.prepare_cached(WAITED)?.execute(row)?;
            Ok::<_, StorageError>(())
        });
        Ok(written.await?)
    }

    /// The newest call about this key that had to wait and has its answer.
    pub async fn last_waited(
        &self,
        mesh: MeshId,
        key: &LogicalKey,
    ) -> Result<Option<Waited>, StorageError> {
        let key = key.to_string();
        let found = self.database.read(move |connection: &Connection| {
            let mut statement = connection.prepare_cached(LAST_WAITED)?;
            let row = statement.query_row(params![mesh.0.to_bytes(), key], |row| {
                Ok(Waited {
                    call: waiting(row)?.1,
                    outcome: row.get(7)?,
                    ended_at: WallMs(row.get(8)?),
                })
            });
            Ok::<_, StorageError>(row.optional()?)
        });
        Ok(found.await?)
    }
}
