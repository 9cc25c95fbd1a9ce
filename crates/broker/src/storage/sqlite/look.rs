//! Looking ids up: B0's read, and the same look inside the accept transaction.

use std::collections::BTreeMap;

use heddle_core::ids::{MeshId, Party};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::super::rows::{Consumed, Look, SendId};
use super::columns::{Columns, member_key, mesh_key};
use super::error::JobError;

const CONSUMED: &str = "
SELECT wire_fingerprint, broker_message_id, epoch, seq, history_available, first_seen_at
FROM client_message_dedupe
WHERE mesh_id = ?1 AND id_key = ?2
  AND sender_member = ?3 AND sender_agent = ?4 AND client_message_id = ?5";

const REGISTERED: &str = "SELECT 1 FROM agent WHERE mesh_id = ?1 AND member_id = ?2 AND agent = ?3";

/// The statements above, for the test that looks at their plans.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[CONSUMED, REGISTERED];

/// The look-up of a consumed id, prepared once for a batch.
pub(super) struct Consumption<'c> {
    mesh: [u8; 16],
    statement: CachedStatement<'c>,
}

impl<'c> Consumption<'c> {
    pub(super) fn on(connection: &'c Connection, mesh: MeshId) -> rusqlite::Result<Self> {
        Ok(Self {
            mesh: mesh_key(mesh),
            statement: connection.prepare_cached(CONSUMED)?,
        })
    }

    pub(super) fn of(&mut self, id: &SendId) -> rusqlite::Result<Option<Consumed>> {
        let found = self.statement.query_row(
            params![
                self.mesh,
                id.key.0,
                member_key(id.sender.member),
                id.sender.agent.as_str(),
                id.client_message_id.as_str(),
            ],
            |row| {
                let mut columns = Columns::of(row);
                Ok(Consumed {
                    wire_fingerprint: columns.fingerprint()?,
                    broker_message_id: columns.broker_message_id()?,
                    history_id: columns.history_id()?,
                    history_available: columns.flag()?,
                    first_seen_at: columns.wall()?,
                })
            },
        );
        found.optional()
    }
}

pub(super) fn is_registered(
    connection: &Connection,
    mesh: MeshId,
    agent: &Party,
) -> rusqlite::Result<bool> {
    connection.prepare_cached(REGISTERED)?.exists(params![
        mesh_key(mesh),
        member_key(agent.member),
        agent.agent.as_str()
    ])
}

pub(super) fn known(
    connection: &Connection,
    mesh: MeshId,
    ids: &[SendId],
) -> Result<Vec<Look>, JobError> {
    let mut consumption = Consumption::on(connection, mesh)?;
    // A batch comes from few agents.
    let mut registered: BTreeMap<&Party, bool> = BTreeMap::new();
    let mut looks = Vec::with_capacity(ids.len());
    for id in ids {
        let sender_registered = if let Some(known) = registered.get(&id.sender) {
            *known
        } else {
            let found = is_registered(connection, mesh, &id.sender)?;
            registered.insert(&id.sender, found);
            found
        };
        looks.push(Look {
            consumed: consumption.of(id)?,
            sender_registered,
        });
    }
    Ok(looks)
}
