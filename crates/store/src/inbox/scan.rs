//! Finding items by parts of a text, for scripts that put no space between words: read and compared, newest
//! first, within bounds.

use heddle_core::names::TopicName;

use crate::error::StoreError;
use crate::inbox::index::BodyOf;
use crate::inbox::page::{InboxFilter, InboxRows};
use crate::inbox::query::SearchQuery;
use crate::inbox::row::{InboxRow, inbox_columns, read_row};
use crate::inbox::search::{SEARCH, matching};
use crate::store::Store;

/// Items that one search reads, and how many bytes of them.
const SCAN_ROWS_MAX: i64 = 20_000;
const SCAN_BYTES_MAX: usize = 64 << 20;

pub(crate) const SCAN: &str = concat!(
    "SELECT ",
    inbox_columns!(),
    " FROM inbox WHERE ?1 = '' AND arrival < ?2 AND arrival > ?10
        AND (?3 IS NULL OR mesh_id = ?3) AND (?4 IS NULL OR agent = ?4)
        AND (?5 IS NULL OR received_at >= ?5) AND (?6 IS NULL OR topic = ?6)
        AND (?7 IS NULL OR sender_name = ?7) AND (?8 IS NULL OR sender_agent = ?8)
     ORDER BY arrival DESC LIMIT ?9"
);

impl Store {
    /// As `inbox_search`, for a query that has parts: what has all of its words, if there are any, and in whose
    /// text every part stands. Beyond the bounds of a scan there may be more.
    pub async fn inbox_scan(
        &self,
        query: SearchQuery,
        before: Option<i64>,
        filter: InboxFilter,
        body_of: BodyOf,
    ) -> Result<InboxRows, StoreError> {
        self.read(move |connection| {
            let sql = if query.has_words() { SEARCH } else { SCAN };
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = matching(&mut statement, &query, before, (&filter, SCAN_ROWS_MAX))?;
            let mut page = InboxRows::default();
            let (mut read, mut scanned, mut bytes) = (0, 0_usize, 0_usize);
            while let Some(row) = rows.next()? {
                let row = read_row(row)?;
                read += 1;
                scanned = scanned.saturating_add(row.envelope.len());
                page.more = scanned > SCAN_BYTES_MAX || read == SCAN_ROWS_MAX;
                if query.is_in(&text_of(&row, body_of)) {
                    bytes = bytes.saturating_add(row.envelope.len());
                    let is_too_much = bytes > filter.bytes_max && !page.rows.is_empty();
                    if is_too_much || page.rows.len() >= filter.limit {
                        page.more = true;
                        break;
                    }
                    page.rows.push(row);
                }
                if page.more {
                    break;
                }
            }
            Ok(page)
        })
        .await
    }
}

fn text_of(row: &InboxRow, body_of: BodyOf) -> String {
    let body = body_of(&row.envelope).unwrap_or_default();
    let topic = row.topic.as_ref().map_or("", TopicName::as_str);
    format!("{body}\n{topic}\n{} {}", row.sender_name, row.sender.agent)
}
