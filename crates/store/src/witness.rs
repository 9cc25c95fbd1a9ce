//! Places of a mesh's history that this home has seen, each with the id of the message that stood there.
//!
//! A broker compares them with its own rows (`core::witness`). The newest ones, and ever fewer of the older ones, from all three
//! tables that know both; a row that cannot be read is left out.

use heddle_core::ids::{ClientMessageId, HistoryId, IdKey, MeshId, Party};
use heddle_core::names::AgentName;
use heddle_core::witness::{Witness, choose, distances};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::error::StoreError;
use crate::inbox::last_arrival;
use crate::outbox::{NEWEST_ROW, answered_since};
use crate::store::Store;

/// Mailboxes that are asked; of a home with more, the others tell nothing new.
const AGENTS_MAX: usize = 32;
/// Rows of the outbox that one look goes through, which are of other meshes, or not done.
const LOOK_ROWS: i64 = 256;
/// Further back nobody looks.
const DISTANCE_MAX: u64 = 1 << 20;

pub(crate) const RECEIVED: &str = "
    SELECT history_epoch, history_seq, id_key FROM inbox
    WHERE mesh_id = ?1 AND agent = ?2 AND arrival <= ?3 ORDER BY arrival DESC LIMIT 1";

pub(crate) const SENT: &str = "
    SELECT history_epoch, history_seq, id_key FROM outbox
    WHERE arrival > ?2 AND arrival <= ?3 AND mesh_id = ?1 AND status = 'done'
        AND history_epoch IS NOT NULL ORDER BY arrival DESC LIMIT 1";

pub(crate) const NEWEST_OP: &str = "
    SELECT epoch, seq, sender, op_id FROM op_inbox WHERE mesh_id = ?1 AND (epoch, seq) <= (?2, ?3)
    ORDER BY epoch DESC, seq DESC LIMIT 1";

impl Store {
    /// What is worth telling the broker of a mesh.
    pub async fn witnesses(
        &self,
        mesh: MeshId,
        agents: Vec<AgentName>,
    ) -> Result<Vec<Witness>, StoreError> {
        self.read(move |connection| {
            let mut known = Vec::new();
            let newest = last_arrival(connection)?;
            for agent in agents.iter().take(AGENTS_MAX) {
                received(connection, mesh, (agent, newest), &mut known)?;
            }
            sent(connection, mesh, &mut known)?;
            ops(connection, mesh, &mut known)?;
            // What was set aside here has no place.
            known.retain(|one| one.place.epoch > 0 && one.place.is_possible());
            Ok(choose(known))
        })
        .await
    }
}

fn back() -> impl Iterator<Item = i64> {
    let near = distances().take_while(|distance| *distance <= DISTANCE_MAX);
    near.filter_map(|distance| i64::try_from(distance).ok())
}

fn received(
    connection: &Connection,
    mesh: MeshId,
    (agent, newest): (&AgentName, i64),
    known: &mut Vec<Witness>,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(RECEIVED)?;
    for distance in back().take_while(|distance| *distance < newest) {
        let cells = params![mesh.0.to_bytes(), agent.as_str(), newest - distance];
        let found = statement.query_row(cells, |row| Ok(read(row))).optional()?;
        match found {
            Some(found) => known.extend(found),
            // Nothing is older.
            None => break,
        }
    }
    Ok(())
}

fn sent(connection: &Connection, mesh: MeshId, known: &mut Vec<Witness>) -> Result<(), StoreError> {
    let newest: Option<i64> = connection
        .prepare_cached(NEWEST_ROW)?
        .query_row([], |row| row.get(0))?;
    let (newest, since) = (newest.unwrap_or(0), answered_since(connection, mesh)?);
    let mut statement = connection.prepare_cached(SENT)?;
    for distance in back().take_while(|distance| newest - *distance > since) {
        let end = newest - distance;
        let cells = params![mesh.0.to_bytes(), since.max(end - LOOK_ROWS), end];
        let found = statement.query_row(cells, |row| Ok(read(row))).optional()?;
        known.extend(found.flatten());
    }
    Ok(())
}

fn ops(connection: &Connection, mesh: MeshId, known: &mut Vec<Witness>) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(NEWEST_OP)?;
    let (mut epoch, mut seq, mut from) = (i64::MAX, i64::MAX, None);
    // By place: of an epoch that is shorter than the distance the one before it is asked.
    for distance in back() {
        if let Some((at_epoch, at_seq)) = from {
            (epoch, seq) = (at_epoch, i64::saturating_sub(at_seq, distance));
        }
        let cells = params![mesh.0.to_bytes(), epoch, seq];
        let found = statement
            .query_row(cells, |row| {
                let place: (i64, i64) = (row.get(0)?, row.get(1)?);
                Ok((place, read_op(row, mesh)))
            })
            .optional()?;
        let Some((place, one)) = found else {
            break;
        };
        from = from.or(Some(place));
        known.extend(one);
    }
    Ok(())
}

fn read(row: &Row<'_>) -> Option<Witness> {
    Some(Witness {
        place: place(row)?,
        id: IdKey(row.get(2).ok()?),
    })
}

fn read_op(row: &Row<'_>, mesh: MeshId) -> Option<Witness> {
    let sender: Party = row.get::<_, String>(2).ok()?.parse().ok()?;
    let id = ClientMessageId::parse(&row.get::<_, String>(3).ok()?).ok()?;
    Some(Witness {
        place: place(row)?,
        id: IdKey::of(mesh, &sender, &id),
    })
}

fn place(row: &Row<'_>) -> Option<HistoryId> {
    let number = |column| u64::try_from(row.get::<_, i64>(column).ok()?).ok();
    Some(HistoryId {
        epoch: number(0)?,
        seq: number(1)?,
    })
}
