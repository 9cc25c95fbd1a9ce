//! Finding items by their words, newest first.

use rusqlite::{Rows, Statement, params};

use heddle_core::names::{AgentName, MemberName, TopicName};

use crate::error::StoreError;
use crate::inbox::page::{InboxFilter, InboxRows, one_more, take_page};
use crate::inbox::query::SearchQuery;
use crate::inbox::row::inbox_columns;
use crate::store::Store;

// Newest first and not by rank: it is what people look for among messages, and a page can go on
// behind its last item however many came meanwhile.
pub(crate) const SEARCH: &str = concat!(
    "SELECT ",
    inbox_columns!(),
    " FROM (
        SELECT rowid AS place FROM inbox_fts
        WHERE inbox_fts MATCH ?1 AND rowid < ?2 AND rowid > ?10 ORDER BY rowid DESC
     ) CROSS JOIN inbox ON arrival = place
     WHERE (?3 IS NULL OR mesh_id = ?3) AND (?4 IS NULL OR agent = ?4)
        AND (?5 IS NULL OR received_at >= ?5) AND (?6 IS NULL OR topic = ?6)
        AND (?7 IS NULL OR sender_name = ?7) AND (?8 IS NULL OR sender_agent = ?8)
     ORDER BY place DESC LIMIT ?9"
);

impl Store {
    /// What is indexed and matches; of `filter` everything counts but `acked`: whatever lies in the
    /// mailbox is found. `before` goes on behind the last item of a page.
    pub async fn inbox_search(
        &self,
        query: SearchQuery,
        before: Option<i64>,
        filter: InboxFilter,
    ) -> Result<InboxRows, StoreError> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(SEARCH)?;
            let limit = one_more(filter.limit);
            let rows = matching(&mut statement, &query, before, (&filter, limit))?;
            take_page(rows, &filter)
        })
        .await
    }
}

/// Runs a search or a scan: both take the same parameters.
pub(super) fn matching<'s>(
    statement: &'s mut Statement<'_>,
    query: &SearchQuery,
    before: Option<i64>,
    (filter, limit): (&InboxFilter, i64),
) -> rusqlite::Result<Rows<'s>> {
    statement.query(params![
        query.as_str(),
        before.unwrap_or(i64::MAX),
        filter.mesh.map(|mesh| mesh.0.to_bytes()),
        filter.agent.as_ref().map(AgentName::as_str),
        filter.since.map(|since| since.0),
        filter.topic.as_ref().map(TopicName::as_str),
        filter.from_member.as_ref().map(MemberName::as_str),
        filter.from_agent.as_ref().map(AgentName::as_str),
        limit,
        filter.after.unwrap_or(0),
    ])
}
