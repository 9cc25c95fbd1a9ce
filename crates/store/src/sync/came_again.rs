//! What the log has given back to a home that was put back from a backup: its own ops of the time since.

use std::str::FromStr as _;

use heddle_core::clock::WallMs;
use heddle_core::ids::{ClientMessageId, IdKey, MemberId, MeshId, Party};
use rusqlite::{OptionalExtension as _, params};

use super::incoming::KNOWN_BY_ID;
use crate::error::StoreError;
use crate::store::Store;

/// `MEMBER_ID/agent`, between the two letters around the slash.
pub(crate) const OWN: &str = "
    SELECT sender, op_id FROM op_inbox
    WHERE mesh_id = ?1 AND sender > ?2 || '/' AND sender < ?2 || '0' AND received_at >= ?3 AND state = 'applied'
    LIMIT ?4";

impl Store {
    /// Own changes of a mesh that came from its log since then, and that this home does not remember to have sent; no
    /// more than `limit` are looked at.
    pub async fn came_again(
        &self,
        (mesh, own): (MeshId, MemberId),
        since: WallMs,
        limit: u32,
    ) -> Result<u64, StoreError> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(OWN)?;
            let cells = params![mesh.0.to_bytes(), own.to_string(), since.0, limit];
            let mut rows = statement.query(cells)?;
            let mut count = 0;
            while let Some(row) = rows.next()? {
                let (sender, id): (String, String) = (row.get(0)?, row.get(1)?);
                let (Ok(sender), Ok(id)) = (Party::from_str(&sender), ClientMessageId::parse(&id))
                else {
                    continue;
                };
                let key = IdKey::of(mesh, &sender, &id);
                let mut known = connection.prepare_cached(KNOWN_BY_ID)?;
                let known = known.query_row([key.0], |_| Ok(())).optional()?;
                count += u64::from(known.is_none());
            }
            Ok(count)
        })
        .await
    }
}
