//! The log of a mesh is read once more, and what is missing here of it is put back. An op that was applied is known by its row of
//! `op_inbox` and passed over when it comes again; of those that no row of the data bears that row goes, so that they are applied as
//! if for the first time. Most of them are older than what stands under their key, and change nothing.

use std::collections::HashSet;
use std::str::FromStr as _;

use heddle_core::ids::{ClientMessageId, IdKey, MeshId, OpId, Party};
use heddle_core::op::DataOp;
use rusqlite::{Connection, params};

use super::head::READ_AGAIN;
use super::incoming::KNOWN_BY_ID;
use crate::data::OLD_TABLES;
use crate::error::StoreError;
use crate::store::Store;

/// Rows that are read, and ops that are forgotten, at a time.
const AT_ONCE: usize = 500;

pub(crate) const APPLIED: &str = "
    SELECT epoch, seq, sender, op_id FROM op_inbox
    WHERE mesh_id = ?1 AND (epoch, seq) > (?2, ?3) AND state = 'applied' AND ifnull(reason, '') <> 'let be'
    ORDER BY epoch, seq LIMIT ?4";

pub(crate) const FORGET: &str = "
    DELETE FROM op_inbox WHERE mesh_id = ?1 AND epoch = ?2 AND seq = ?3 AND state = 'applied'";

const OWN: &str = "SELECT member_id FROM mesh WHERE mesh_id = ?1";

/// The ids under which what stands here was sent, or may have been.
type Borne = HashSet<OpId>;
type Place = (i64, i64);

impl Store {
    /// The log is read from its beginning, and what is missing here of it is put back.
    pub async fn read_log_anew(&self, mesh: MeshId) -> Result<(), StoreError> {
        let mut borne = Borne::new();
        for number in 0..OLD_TABLES.len() {
            let mut after = Some(Vec::new());
            while let Some(from) = after {
                let part = self.read(move |connection| borne_part(connection, mesh, number, &from));
                let (ids, next) = part.await?;
                borne.extend(ids);
                after = next;
            }
        }
        let mut after = Some((0, 0));
        while let Some(from) = after {
            let part = self.read(move |connection| applied(connection, mesh, from));
            let (ops, next) = part.await?;
            let places: Vec<Place> = ops
                .into_iter()
                .filter(|(_, id)| !borne.contains(id))
                .map(|(place, _)| place)
                .collect();
            after = next;
            if !places.is_empty() {
                self.write(move |connection| forget(connection, mesh, &places))
                    .await?;
            }
        }
        self.reread_log(mesh).await
    }
}

/// The same in a file that nobody else has open.
pub(crate) fn read_anew(connection: &Connection, mesh: MeshId) -> Result<(), StoreError> {
    let mut borne = Borne::new();
    for number in 0..OLD_TABLES.len() {
        let mut after = Some(Vec::new());
        while let Some(from) = after {
            let (ids, next) = borne_part(connection, mesh, number, &from)?;
            borne.extend(ids);
            after = next;
        }
    }
    let mut after = Some((0, 0));
    while let Some(from) = after {
        let (mut ops, next) = applied(connection, mesh, from)?;
        ops.retain(|(_, id)| !borne.contains(id));
        let places: Vec<Place> = ops.into_iter().map(|(place, _)| place).collect();
        forget(connection, mesh, &places)?;
        after = next;
    }
    connection
        .prepare_cached(READ_AGAIN)?
        .execute([mesh.0.to_bytes()])?;
    Ok(())
}

type BornePart = (Vec<OpId>, Option<Vec<u8>>);

fn borne_part(
    connection: &Connection,
    mesh: MeshId,
    number: usize,
    after: &[u8],
) -> Result<BornePart, StoreError> {
    let limit = i64::try_from(AT_ONCE).unwrap_or(i64::MAX);
    let rows = match OLD_TABLES.get(number) {
        Some(table) => (table.read)(connection, mesh, after, limit)?,
        None => Vec::new(),
    };
    // Only forwards: pages that are damaged may say anything.
    let next = rows.last().map(|row| row.through.clone());
    let next = next.filter(|next| rows.len() == AT_ONCE && next.as_slice() > after);
    let ids = |op: DataOp| [op.stamp.op, op.published_id(mesh)];
    let ids = rows
        .into_iter()
        .filter_map(|row| row.op.ok())
        .flat_map(ids)
        .collect();
    Ok((ids, next))
}

type AppliedPart = (Vec<(Place, OpId)>, Option<Place>);

/// Ops that were applied, but for those of this home that only this table knows: they would be taken for a sign that an older
/// copy of the file was put back.
fn applied(
    connection: &Connection,
    mesh: MeshId,
    (epoch, seq): Place,
) -> Result<AppliedPart, StoreError> {
    let own: [u8; 16] = connection
        .prepare_cached(OWN)?
        .query_row([mesh.0.to_bytes()], |row| row.get(0))?;
    let limit = i64::try_from(AT_ONCE).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(APPLIED)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), epoch, seq, limit])?;
    let (mut found, mut looked, mut last) = (Vec::new(), 0, None);
    while let Some(row) = rows.next()? {
        let place = (row.get(0)?, row.get(1)?);
        looked += 1;
        last = Some(place);
        let (sender, id): (String, String) = (row.get(2)?, row.get(3)?);
        let (Ok(party), Ok(op)) = (Party::from_str(&sender), OpId::from_str(&id)) else {
            continue;
        };
        if party.member.0.to_bytes() == own {
            let Ok(id) = ClientMessageId::parse(&id) else {
                continue;
            };
            let key = IdKey::of(mesh, &party, &id);
            if !connection.prepare_cached(KNOWN_BY_ID)?.exists([key.0])? {
                continue;
            }
        }
        found.push((place, op));
    }
    Ok((found, last.filter(|_| looked == AT_ONCE)))
}

fn forget(connection: &Connection, mesh: MeshId, places: &[Place]) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(FORGET)?;
    for (epoch, seq) in places {
        statement.execute(params![mesh.0.to_bytes(), epoch, seq])?;
    }
    Ok(())
}
