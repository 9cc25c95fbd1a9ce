//! Looking for items whose kept bytes cannot be read any more. It changes nothing.

use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{ClientMessageId, IdKey, MemberId, MeshId, Party};
use heddle_core::names::AgentName;
use rusqlite::{Connection, Row, params};
use ulid::Ulid;

use crate::error::StoreError;
use crate::store::Store;

/// Items and bytes that one look goes through: a few milliseconds of a reading thread.
const LOOK_ITEMS_MAX: usize = 256;
const LOOK_BYTES_MAX: usize = 4 << 20;

/// Whether the bytes of an envelope are one, and the one that was accepted where that is known. Handed in: this room
/// knows no frames.
pub type IsReadable = fn(&[u8], Option<Fingerprint>) -> bool;

// What was acknowledged is not looked at: its reader has done with it.
pub(crate) const LOOK_THROUGH: &str = "
    SELECT arrival, envelope, wire_fingerprint, id_key, mesh_id, member_id, sender_agent, client_message_id
    FROM inbox WHERE arrival > ?1 AND acked_at IS NULL
    ORDER BY arrival LIMIT ?2";

/// The same in a file of before there was such a column.
const LOOK_THROUGH_OLD: &str = "
    SELECT arrival, envelope, NULL, id_key, mesh_id, member_id, sender_agent, client_message_id
    FROM inbox WHERE arrival > ?1 AND acked_at IS NULL
    ORDER BY arrival LIMIT ?2";

/// What one look has found, and where the next one begins; `None` behind the last item.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DamageLook {
    pub damaged: Vec<i64>,
    pub next: Option<i64>,
}

impl Store {
    /// Looks at the next items behind `after`.
    pub async fn inbox_look_for_damage(
        &self,
        after: i64,
        is_readable: IsReadable,
    ) -> Result<DamageLook, StoreError> {
        self.read(move |connection| Ok(look(connection, LOOK_THROUGH, after, is_readable)?))
            .await
    }
}

fn look(
    connection: &Connection,
    sql: &str,
    after: i64,
    is_readable: IsReadable,
) -> rusqlite::Result<DamageLook> {
    let mut found = DamageLook::default();
    let mut statement = connection.prepare_cached(sql)?;
    let limit = i64::try_from(LOOK_ITEMS_MAX).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![after, limit])?;
    let (mut items, mut bytes) = (0, 0);
    while let Some(row) = rows.next()? {
        let arrival = row.get(0)?;
        let envelope = row.get_ref(1)?.as_blob().unwrap_or_default();
        let print = row.get_ref(2)?.as_blob_or_null().ok().flatten();
        let print = print.and_then(Fingerprint::from_slice);
        if !is_readable(envelope, print) || is_its_senders(row) == Some(false) {
            found.damaged.push(arrival);
        }
        found.next = Some(arrival);
        (items, bytes) = (items + 1, bytes + envelope.len());
        if bytes >= LOOK_BYTES_MAX {
            return Ok(found);
        }
    }
    if items < LOOK_ITEMS_MAX {
        found.next = None;
    }
    Ok(found)
}

/// Whether it stands under the names that it came under; `None` where they cannot be read, which others tell.
fn is_its_senders(row: &Row<'_>) -> Option<bool> {
    let ulid = |column| Some(Ulid::from_bytes(row.get(column).ok()?));
    let text = |column| row.get_ref(column).ok()?.as_str().ok();
    let sender = Party {
        member: MemberId(ulid(5)?),
        agent: AgentName::parse(text(6)?).ok()?,
    };
    let id = ClientMessageId::parse(text(7)?).ok()?;
    let key: [u8; 24] = row.get(3).ok()?;
    Some(IdKey::of(MeshId(ulid(4)?), &sender, &id).0 == key)
}

/// All of a file that is only looked at, by the doctor.
pub(crate) fn damaged(
    connection: &Connection,
    is_readable: IsReadable,
) -> rusqlite::Result<Vec<i64>> {
    let column = "SELECT 1 FROM pragma_table_info('inbox') WHERE name = 'wire_fingerprint'";
    let sql = if connection.prepare(column)?.exists([])? {
        LOOK_THROUGH
    } else {
        LOOK_THROUGH_OLD
    };
    let mut damaged = Vec::new();
    let mut after = 0;
    loop {
        let found = look(connection, sql, after, is_readable)?;
        damaged.extend(found.damaged);
        match found.next {
            Some(next) => after = next,
            None => return Ok(damaged),
        }
    }
}
