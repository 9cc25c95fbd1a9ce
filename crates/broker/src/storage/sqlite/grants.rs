//! What members let each other send them, in SQLite.

use std::collections::BTreeMap;

use heddle_core::ids::{MemberId, MeshId};
use heddle_core::membership::{Capabilities, GrantChange};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::super::error::StorageError;
use super::SqliteStorage;
use super::columns::{Columns, member_key, mesh_key};
use super::error::JobError;
use crate::members::{Granted, Grants};

pub(super) const SCHEMA: &str = "
-- What `member_id` lets `peer_id` send it; whoever has no row has everything. By sender, because an accept asks so.
CREATE TABLE member_grant (
    mesh_id BLOB NOT NULL,
    peer_id BLOB NOT NULL,
    member_id BLOB NOT NULL,
    may_dm INTEGER NOT NULL CHECK (may_dm = 0 OR may_dm = 1),
    may_topic INTEGER NOT NULL CHECK (may_topic = 0 OR may_topic = 1),
    PRIMARY KEY (mesh_id, peer_id, member_id),
    FOREIGN KEY (mesh_id, peer_id) REFERENCES member (mesh_id, member_id),
    FOREIGN KEY (mesh_id, member_id) REFERENCES member (mesh_id, member_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX member_grant_own ON member_grant (mesh_id, member_id);

-- Who got no delivery of an accepted message because it had not granted its sender as much.
CREATE TABLE delivery_withheld (
    mesh_id BLOB NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    member_id BLOB NOT NULL,
    PRIMARY KEY (mesh_id, epoch, seq, member_id)
) STRICT, WITHOUT ROWID;
";

const MEMBER: &str = "SELECT 1 FROM member WHERE mesh_id = ?1 AND member_id = ?2";

const GRANTED: &str = "
SELECT may_dm, may_topic FROM member_grant WHERE mesh_id = ?1 AND peer_id = ?2 AND member_id = ?3";

const KEEP: &str = "
INSERT INTO member_grant (mesh_id, peer_id, member_id, may_dm, may_topic) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (mesh_id, peer_id, member_id) DO UPDATE SET may_dm = ?4, may_topic = ?5";

const FORGET: &str = "
DELETE FROM member_grant WHERE mesh_id = ?1 AND peer_id = ?2 AND member_id = ?3";

const OF_SENDER: &str = "
SELECT member_id, may_dm, may_topic FROM member_grant WHERE mesh_id = ?1 AND peer_id = ?2";

const OF_RECIPIENT: &str = "
SELECT peer_id, may_dm, may_topic FROM member_grant WHERE mesh_id = ?1 AND member_id = ?2
ORDER BY peer_id";

/// What an accept runs, and the rest, for the test that looks at their plans.
#[cfg(test)]
pub(super) const IN_ACCEPT: &[&str] = &[OF_SENDER];
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[MEMBER, GRANTED, KEEP, FORGET, OF_RECIPIENT];

fn capabilities(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Capabilities> {
    Ok(Capabilities {
        dm: columns.flag()?,
        topic: columns.flag()?,
    })
}

fn of_member(row: &Row<'_>) -> rusqlite::Result<(MemberId, Capabilities)> {
    let mut columns = Columns::of(row);
    Ok((columns.member()?, capabilities(&mut columns)?))
}

/// Those who withhold something from this sender.
pub(super) fn of_sender(
    connection: &Connection,
    mesh: MeshId,
    sender: MemberId,
) -> rusqlite::Result<BTreeMap<MemberId, Capabilities>> {
    let mut statement = connection.prepare_cached(OF_SENDER)?;
    let rows = statement.query_map(params![mesh_key(mesh), member_key(sender)], of_member)?;
    rows.collect()
}

fn change(
    connection: &Connection,
    mesh: MeshId,
    (member, peer): (MemberId, MemberId),
    change: GrantChange,
) -> Result<Granted, JobError> {
    for one in [member, peer] {
        let key = params![mesh_key(mesh), member_key(one)];
        if !connection.prepare_cached(MEMBER)?.exists(key)? {
            return Err(StorageError::UnknownMember(one).into());
        }
    }
    let key = (mesh_key(mesh), member_key(peer), member_key(member));
    let before = connection
        .prepare_cached(GRANTED)?
        .query_row(key, |row| capabilities(&mut Columns::of(row)))
        .optional()?
        .unwrap_or(Capabilities::ALL);
    let after = change.apply(before);
    if after == Capabilities::ALL {
        connection.prepare_cached(FORGET)?.execute(key)?;
    } else if after != before {
        let row = params![key.0, key.1, key.2, after.dm, after.topic];
        connection.prepare_cached(KEEP)?.execute(row)?;
    }
    Ok(Granted {
        capabilities: after,
        changed: after != before,
    })
}

impl Grants for SqliteStorage {
    async fn change_grant(
        &self,
        mesh: MeshId,
        member: MemberId,
        peer: MemberId,
        wanted: GrantChange,
    ) -> Result<Granted, StorageError> {
        self.write(mesh, move |c| change(c, mesh, (member, peer), wanted))
            .await
    }

    async fn grants(
        &self,
        mesh: MeshId,
        member: MemberId,
    ) -> Result<Vec<(MemberId, Capabilities)>, StorageError> {
        self.read(mesh, move |connection| {
            let mut statement = connection.prepare_cached(OF_RECIPIENT)?;
            let key = params![mesh_key(mesh), member_key(member)];
            let rows = statement.query_map(key, of_member)?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
        .await
    }
}
