//! Listing the outbox, newest first, a page at a time.

use heddle_core::ids::MeshId;
use heddle_core::outbox_status::OutboxStatus;
use rusqlite::params;

use crate::error::StoreError;
use crate::outbox::row::{OutboxRow, read_rows_shown, select_row};
use crate::store::Store;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxFilter {
    pub status: Option<OutboxStatus>,
    pub mesh: Option<MeshId>,
    /// Only rows that arrived before this one: the `next` of the page before.
    pub before: Option<i64>,
    pub limit: usize,
}

/// Rows without their payloads. One that cannot be read says so, and the others go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxPage {
    pub rows: Vec<OutboxRow>,
    /// The `before` of the next page; `None` when there is nothing more.
    pub next: Option<i64>,
}

// Nearly every row is done, so walking backwards from the newest finds a page of those at once. The
// other states are rare among them and have an index each.
pub(crate) const ALL: &str = select_row!(
    without_payload,
    "FROM outbox
     WHERE arrival < ?1 AND (?2 IS NULL OR mesh_id = ?2) AND (?3 IS NULL OR status = ?3)
     ORDER BY arrival DESC LIMIT ?4"
);

pub(crate) const EXCEPTIONAL: &str = select_row!(
    without_payload,
    "FROM outbox INDEXED BY outbox_exceptional
     WHERE arrival < ?1 AND (?2 IS NULL OR mesh_id = ?2) AND status = ?3
         AND (status = 'inflight' OR status = 'dead' OR status = 'aborted')
     ORDER BY arrival DESC LIMIT ?4"
);

pub(crate) const PENDING: &str = select_row!(
    without_payload,
    "FROM outbox WHERE arrival IN (
         SELECT arrival FROM outbox INDEXED BY outbox_due
         WHERE arrival < ?1 AND (?2 IS NULL OR mesh_id = ?2) AND status = 'pending' AND ?3 IS NOT NULL
         ORDER BY arrival DESC LIMIT ?4
     )
     ORDER BY arrival DESC"
);

impl Store {
    pub async fn outbox_page(&self, filter: OutboxFilter) -> Result<OutboxPage, StoreError> {
        let sql = match filter.status {
            None | Some(OutboxStatus::Done) => ALL,
            Some(OutboxStatus::Pending) => PENDING,
            Some(OutboxStatus::Inflight | OutboxStatus::Dead | OutboxStatus::Aborted) => {
                EXCEPTIONAL
            }
        };
        self.read(move |connection| {
            // One more than asked for tells whether there is another page.
            let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
            let mut rows = read_rows_shown(
                connection,
                sql,
                params![
                    filter.before.unwrap_or(i64::MAX),
                    filter.mesh.map(|mesh| mesh.0.to_bytes()),
                    filter.status.map(OutboxStatus::as_str),
                    limit.saturating_add(1),
                ],
            )?;
            let more = rows.len() > filter.limit;
            rows.truncate(filter.limit);
            let next = rows.last().filter(|_| more).map(|row| row.arrival);
            Ok(OutboxPage { rows, next })
        })
        .await
    }
}
