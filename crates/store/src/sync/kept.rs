//! Rows that this home keeps and that the log of their mesh has lost: its broker was put back from an older copy.
//!
//! An op's bytes go once it was applied, so what is found here are rows, as the ops that would make them anew under
//! their own stamps. Own ones, whose outbox rows are gone because this home's file was put back as well, are queued
//! again under the ids that are derived from them; those of others only their own homes may send.

use std::str::FromStr as _;

use heddle_core::clock::WallMs;
use heddle_core::ids::{ClientMessageId, HistoryId, IdKey, MemberId, MeshId, Party};
use heddle_core::limits::PUBLISH_ROWS_AT_ONCE;
use heddle_core::op::DataOp;
use heddle_core::sync::LogHole;
use rusqlite::{Connection, OptionalExtension, params};

use crate::cells::{Cells, count_cell};
use crate::data::backfill::TABLES;
use crate::data::queue_published;
use crate::error::StoreError;
use crate::store::Store;

/// What the log has lost of what it had.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LostPlaces {
    /// Behind each of these places, up to the end of its epoch.
    pub ends: Vec<HistoryId>,
    /// And in its middle.
    pub holes: Vec<LogHole>,
}

impl LostPlaces {
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.holes.is_empty()
    }

    fn has(&self, place: HistoryId) -> bool {
        let mut ends = self.ends.iter();
        ends.any(|end| end.epoch == place.epoch && place.seq > end.seq)
            || self.holes.iter().any(|hole| hole.has(place))
    }
}

/// Whose rows are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptBy {
    This(MemberId),
    /// Anybody but this one.
    Others(MemberId),
}

/// Where a look goes on: the number of a table, and the place in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptCursor {
    pub table: usize,
    pub through: Vec<u8>,
}

/// A stretch of the rows, looked through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptLook {
    pub ops: Vec<DataOp>,
    /// Where the next stretch begins; `None` at the end.
    pub next: Option<KeptCursor>,
}

/// What became of ops that were given back to this home.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TakenBack {
    /// They go out again, as this home's own.
    pub queued: u64,
    /// The log has them, or they are on their way.
    pub known: u64,
    /// Somebody else made them.
    pub of_others: u64,
}

pub(crate) const EPOCHS_READ: &str =
    "SELECT epoch, max(seq) FROM op_inbox WHERE mesh_id = ?1 GROUP BY epoch";

// IMPORTANT: two questions. With one `op_id IN (…)` SQLite goes through every op of the mesh, for every row.
pub(crate) const PLACES_OF: &str = "
    SELECT epoch, seq, ifnull(reason, '') = 'let be' FROM op_inbox
    WHERE mesh_id = ?1 AND sender = ?2 AND op_id = ?3
    UNION ALL
    SELECT epoch, seq, ifnull(reason, '') = 'let be' FROM op_inbox
    WHERE mesh_id = ?1 AND sender = ?2 AND op_id = ?4";

pub(crate) const BYTES_OF: &str =
    "SELECT length(payload) FROM outbox WHERE id_key = ?1 AND kind = 'op'";

pub(crate) const LET_BE: &str = "
    UPDATE op_inbox SET reason = 'let be'
    WHERE mesh_id = ?1 AND epoch = ?2 AND seq > ?3 AND state = 'applied'";

pub(crate) const LET_BE_HOLE: &str = "
    UPDATE op_inbox SET reason = 'let be'
    WHERE mesh_id = ?1 AND (epoch, seq) > (?2, ?3) AND (epoch, seq) <= (?4, ?5) AND state = 'applied'";

impl Store {
    /// What the log has lost of the places that this home has read: `ends` are the last places of all its epochs,
    /// `holes` are named by the broker.
    pub async fn lost_places(
        &self,
        mesh: MeshId,
        epoch: u64,
        ends: Vec<HistoryId>,
        holes: Vec<LogHole>,
    ) -> Result<LostPlaces, StoreError> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(EPOCHS_READ)?;
            let mut rows = statement.query([mesh.0.to_bytes()])?;
            let mut lost = Vec::new();
            while let Some(row) = rows.next()? {
                let mut cells = Cells::of("op_inbox", row);
                let (read, through) = (cells.count()?, cells.count()?);
                // The running epoch loses nothing: its end is told before it grows on.
                let known = ends.iter().find(|end| end.epoch == read);
                let end = known.map_or(0, |end| end.seq);
                if read < epoch && through > end {
                    lost.push(HistoryId {
                        epoch: read,
                        seq: end,
                    });
                }
            }
            Ok(LostPlaces { ends: lost, holes })
        })
        .await
    }

    /// The rows of one stretch whose ops stand at lost places only.
    pub async fn kept_ops(
        &self,
        mesh: MeshId,
        by: KeptBy,
        lost: LostPlaces,
        after: KeptCursor,
    ) -> Result<KeptLook, StoreError> {
        self.read(move |connection| look(connection, mesh, by, &lost, after))
            .await
    }

    /// Ops that this member made go out again; what the log has, or is on its way to it, is left as it is.
    pub async fn take_back(
        &self,
        mesh: MeshId,
        own: MemberId,
        lost: LostPlaces,
        ops: Vec<DataOp>,
        now: WallMs,
    ) -> Result<TakenBack, StoreError> {
        self.write(move |connection| {
            let mut taken = TakenBack::default();
            for op in &ops {
                let Some(sender) = maker(op).filter(|maker| maker.member == own) else {
                    taken.of_others += 1;
                    continue;
                };
                let is_here = standing(connection, mesh, op, &lost)? == Standing::InTheLog
                    || is_on_its_way(connection, mesh, &sender, op)?;
                if is_here || queue_published(connection, mesh, &sender, op, now)?.is_none() {
                    taken.known += 1;
                } else {
                    taken.queued += 1;
                }
            }
            Ok(taken)
        })
        .await
    }

    /// A person says that nobody will bring what was lost; it stays in this home, and is told no more.
    pub async fn let_be(&self, mesh: MeshId, lost: LostPlaces) -> Result<u64, StoreError> {
        self.write(move |connection| {
            let mut count = 0;
            for end in &lost.ends {
                let (epoch, seq) = (count_cell(end.epoch)?, count_cell(end.seq)?);
                let cells = params![mesh.0.to_bytes(), epoch, seq];
                count += connection.prepare_cached(LET_BE)?.execute(cells)?;
            }
            for LogHole { after, through } in &lost.holes {
                count += connection.prepare_cached(LET_BE_HOLE)?.execute(params![
                    mesh.0.to_bytes(),
                    count_cell(after.epoch)?,
                    count_cell(after.seq)?,
                    count_cell(through.epoch)?,
                    count_cell(through.seq)?,
                ])?;
            }
            Ok(u64::try_from(count).unwrap_or(u64::MAX))
        })
        .await
    }
}

fn look(
    connection: &Connection,
    mesh: MeshId,
    by: KeptBy,
    lost: &LostPlaces,
    after: KeptCursor,
) -> Result<KeptLook, StoreError> {
    let mut found = KeptLook::default();
    let Some(table) = TABLES.get(after.table) else {
        return Ok(found);
    };
    let limit = i64::try_from(PUBLISH_ROWS_AT_ONCE).unwrap_or(i64::MAX);
    let rows = (table.read)(connection, mesh, &after.through, limit)?;
    found.next = match rows.last() {
        Some(last) if rows.len() == PUBLISH_ROWS_AT_ONCE => Some(KeptCursor {
            table: after.table,
            through: last.through.clone(),
        }),
        _ => Some(after.table + 1)
            .filter(|next| *next < TABLES.len())
            .map(|table| KeptCursor {
                table,
                through: Vec::new(),
            }),
    };
    for row in rows {
        let op = match row.op {
            Ok(op) => op,
            // A damaged row is told of elsewhere; the others are not held up by it.
            Err(StoreError::Corrupt(_)) => continue,
            Err(error) => return Err(error),
        };
        let is_wanted = maker(&op).is_some_and(|maker| match by {
            KeptBy::This(member) => maker.member == member,
            KeptBy::Others(member) => maker.member != member,
        });
        if is_wanted && standing(connection, mesh, &op, lost)? == Standing::Lost {
            found.ops.push(op);
        }
    }
    Ok(found)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    InTheLog,
    /// It was in the log, at places that are lost.
    Lost,
    /// It never came through the log.
    Unknown,
}

fn standing(
    connection: &Connection,
    mesh: MeshId,
    op: &DataOp,
    lost: &LostPlaces,
) -> Result<Standing, StoreError> {
    let mut statement = connection.prepare_cached(PLACES_OF)?;
    let mut rows = statement.query(params![
        mesh.0.to_bytes(),
        op.stamp.peer.as_str(),
        op.stamp.op.to_string(),
        op.published_id(mesh).to_string(),
    ])?;
    let mut standing = Standing::Unknown;
    while let Some(row) = rows.next()? {
        let mut cells = Cells::of("op_inbox", row);
        let place = HistoryId {
            epoch: cells.count()?,
            seq: cells.count()?,
        };
        let was_let_be: bool = cells.get()?;
        if was_let_be || !lost.has(place) {
            return Ok(Standing::InTheLog);
        }
        standing = Standing::Lost;
    }
    Ok(standing)
}

/// Its own row is in the outbox with its bytes: from there it is sent, or sent again.
fn is_on_its_way(
    connection: &Connection,
    mesh: MeshId,
    sender: &Party,
    op: &DataOp,
) -> Result<bool, StoreError> {
    let Ok(id) = ClientMessageId::parse(&op.stamp.op.to_string()) else {
        return Ok(false);
    };
    let bytes: Option<i64> = connection
        .prepare_cached(BYTES_OF)?
        .query_row([IdKey::of(mesh, sender, &id).0], |row| row.get(0))
        .optional()?;
    Ok(bytes.is_some_and(|bytes| bytes > 0))
}

/// Who made an op, where its stamp names somebody in the one way that there is.
fn maker(op: &DataOp) -> Option<Party> {
    let peer = op.stamp.peer.as_str();
    let party = Party::from_str(peer).ok();
    party.filter(|party| party.to_string() == peer)
}
