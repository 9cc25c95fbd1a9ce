//! What this home has to tell the authority of a mesh hosted elsewhere, while it cannot be reached.
//!
//! Not part of the contract: an authority waits for nobody. Rows are appended here too: a call that was
//! answered gets a second row, and stays readable. Each has a digest beside it: what was changed here since it was kept is
//! nobody's word, and is not told.

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use ulid::Ulid;

use super::Sqlite;
use super::load::text;
use crate::binding::LogicalKey;
use crate::kept::{Beside, WaitingCells, of_waiting};
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

impl Waiting {
    fn digest(&self, mesh: MeshId) -> [u8; 32] {
        let cells = WaitingCells {
            key: &self.key,
            caller: &self.caller,
            call_id: &self.call_id,
            verb: &self.verb,
            call: &self.call,
            since: self.since,
        };
        of_waiting(mesh, &cells)
    }
}

/// A call as it is found here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptCall {
    pub seq: i64,
    pub call: Waiting,
    /// It is not as it was kept: nothing of it is to be told or shown as what somebody said.
    pub is_changed: bool,
}

/// One that has arrived, and what was said to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waited {
    /// Without what was said where that was changed since.
    pub call: Waiting,
    pub outcome: String,
    pub ended_at: WallMs,
}

const WAIT: &str = "
    INSERT INTO effect_waiting (mesh_id, logical_request_key, caller, call_id, verb, call, waits_since, digest)
    SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 WHERE NOT EXISTS (SELECT 1 FROM effect_waiting
        WHERE mesh_id = ?1 AND caller = ?3 AND call_id = ?4)";
/// What a row is read from, and what it is compared with.
macro_rules! kept {
    ($more:literal) => {
        concat!(
            "SELECT w.mesh_id, w.seq, w.logical_request_key, w.caller, w.call_id, w.verb, w.call, w.waits_since, w.digest,
                EXISTS (SELECT 1 FROM effect_undigested u WHERE u.mesh_id = w.mesh_id
                    AND u.table_name = 'effect_waiting' AND u.row_id = w.call_id AND u.seq = w.seq),
                d.outcome, d.ended_at
            FROM effect_waiting w LEFT JOIN effect_waited d USING (seq) ",
            $more
        )
    };
}
const WAITING: &str = kept!("WHERE w.mesh_id = ?1 AND d.seq IS NULL ORDER BY w.seq LIMIT ?2");
const WAITING_ANYWHERE: &str = kept!("WHERE d.seq IS NULL ORDER BY w.seq");
const KNOWN: &str = kept!("WHERE w.mesh_id = ?1 AND w.caller = ?2 AND w.call_id = ?3");
const LAST_WAITED: &str = kept!(
    "WHERE w.mesh_id = ?1 AND w.logical_request_key = ?2 AND d.seq IS NOT NULL ORDER BY w.seq DESC LIMIT 1"
);
const OUTCOME: usize = 10;
const ENDED_AT: usize = 11;
const WAITED: &str = "
    INSERT INTO effect_waited (seq, outcome, ended_at)
    SELECT ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM effect_waited WHERE seq = ?1)";

fn kept(row: &Row<'_>) -> Result<KeptCall, rusqlite::Error> {
    let mesh: Vec<u8> = row.get(0)?;
    let mesh = <[u8; 16]>::try_from(mesh).map(|bytes| MeshId(Ulid::from_bytes(bytes)));
    let call = Waiting {
        key: text(row, 2)?,
        caller: text(row, 3)?,
        call_id: text(row, 4)?,
        verb: text(row, 5)?,
        call: text(row, 6)?,
        since: WallMs(row.get(7)?),
    };
    let digest: Option<Vec<u8>> = row.get(8)?;
    let beside = Beside::of(digest.as_deref(), row.get(9)?);
    Ok(KeptCall {
        seq: row.get(1)?,
        is_changed: beside.differs(|| Some(call.digest(mesh.ok()?))),
        call,
    })
}

/// What waits here and was changed since, in words; of every mesh.
pub(super) fn changed(connection: &Connection) -> Result<Vec<String>, StorageError> {
    let mut statement = connection.prepare_cached(WAITING_ANYWHERE)?;
    let rows = statement.query_map([], kept)?;
    let mut changed = Vec::new();
    for row in rows {
        let row = row?;
        if row.is_changed {
            changed.push(in_words(&row.call.key));
        }
    }
    Ok(changed)
}

/// That nobody is told what was kept.
pub fn in_words(key: &str) -> String {
    format!(
        "{key}: what was kept here for the broker was changed after it was written, and is not told to anybody"
    )
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
                call.digest(mesh),
            ];
            let kept = connection.prepare_cached(WAIT)?.execute(row)?;
            Ok::<_, StorageError>(kept > 0)
        });
        Ok(written.await?)
    }

    /// The call that was kept under this id of this caller; with what came of it, where it waits no more. One that was
    /// changed since is an error: nobody can say whether it is this one.
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
            let row = statement.query_row(whose, |row| Ok((kept(row)?, row.get(OUTCOME)?)));
            match row.optional()? {
                Some((row, _)) if row.is_changed => Err(StorageError::Changed {
                    key: row.call.key,
                    what: "what was kept here for the broker",
                }),
                found => Ok(found.map(|(row, outcome)| (row.call, outcome))),
            }
        });
        Ok(found.await?)
    }

    /// What waits, in the order in which it came.
    pub async fn waiting(&self, mesh: MeshId, limit: usize) -> Result<Vec<KeptCall>, StorageError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let found = self.database.read(move |connection: &Connection| {
            let mut statement = connection.prepare_cached(WAITING)?;
            let rows = statement.query_map(params![mesh.0.to_bytes(), limit], kept)?;
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
                let mut found = kept(row)?;
                if found.is_changed {
                    found.call.call.clear();
                }
                Ok(Waited {
                    call: found.call,
                    outcome: row.get(OUTCOME)?,
                    ended_at: WallMs(row.get(ENDED_AT)?),
                })
            });
            Ok::<_, StorageError>(row.optional()?)
        });
        Ok(found.await?)
    }
}
