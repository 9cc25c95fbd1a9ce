//! Listing the inbox in order of arrival, a page at a time. Reading changes nothing.

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use heddle_core::names::{AgentName, MemberName, TopicName};
use rusqlite::{Connection, Rows, params};

use crate::cells::Cells;
use crate::error::StoreError;
use crate::inbox::row::{InboxRow, inbox_columns, read_row};
use crate::store::Store;

/// Which items; everything that is `None` lets all through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxFilter {
    pub mesh: Option<MeshId>,
    pub agent: Option<AgentName>,
    /// Only items that arrived after this one: the last `arrival` of the page before.
    pub after: Option<i64>,
    /// Only items received at or after this time.
    pub since: Option<WallMs>,
    pub topic: Option<TopicName>,
    pub from_member: Option<MemberName>,
    pub from_agent: Option<AgentName>,
    pub acked: AckedItems,
    pub limit: usize,
    /// Envelope bytes of a page; the first item is given whatever its size.
    pub bytes_max: usize,
}

/// Which acknowledged items are given beside the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckedItems {
    None,
    /// Those that were acknowledged at or after this time: what a sibling did while one was there.
    Since(WallMs),
    All,
}

/// Rows of a page, and whether others stand behind it that fitted no more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InboxRows {
    pub rows: Vec<InboxRow>,
    pub more: bool,
}

macro_rules! select_items {
    ($from:literal) => {
        concat!(
            "SELECT ",
            inbox_columns!(),
            " ",
            $from,
            " AND arrival > ?3 AND (?4 IS NULL OR received_at >= ?4)
               AND (?5 IS NULL OR topic = ?5) AND (?6 IS NULL OR sender_name = ?6)
               AND (?7 IS NULL OR sender_agent = ?7)
               AND (?9 IS NULL OR acked_at IS NULL OR acked_at >= ?9)
             ORDER BY arrival LIMIT ?8"
        )
    };
}

pub(crate) const MAILBOX: &str =
    select_items!("FROM inbox INDEXED BY inbox_mailbox WHERE mesh_id = ?1 AND agent = ?2");
pub(crate) const MAILBOX_UNREAD: &str = select_items!(
    "FROM inbox INDEXED BY inbox_unread WHERE mesh_id = ?1 AND agent = ?2 AND acked_at IS NULL"
);
// All mailboxes, for readers of events: in order of arrival from their cursor on.
pub(crate) const EVERYTHING: &str =
    select_items!("FROM inbox WHERE (?1 IS NULL OR mesh_id = ?1) AND ?2 IS NULL");
pub(crate) const EVERYTHING_UNREAD: &str = select_items!(
    "FROM inbox WHERE (?1 IS NULL OR mesh_id = ?1) AND ?2 IS NULL AND acked_at IS NULL"
);

impl Store {
    /// The rows alone, for whoever goes on until there are none.
    pub async fn inbox_page(&self, filter: InboxFilter) -> Result<Vec<InboxRow>, StoreError> {
        Ok(self.inbox_rows(filter).await?.rows)
    }

    pub async fn inbox_rows(&self, filter: InboxFilter) -> Result<InboxRows, StoreError> {
        self.read_few(move |connection| {
            let sql = match (&filter.agent, filter.acked) {
                (Some(_), AckedItems::None) => MAILBOX_UNREAD,
                (Some(_), _) => MAILBOX,
                (None, AckedItems::None) => EVERYTHING_UNREAD,
                (None, _) => EVERYTHING,
            };
            if filter.agent.is_none() || filter.mesh.is_some() {
                return items(connection, sql, filter.mesh, &filter);
            }
            // One agent in every mesh: each mailbox has its own order, so they are merged here.
            let mut page = InboxRows::default();
            for mesh in meshes_received_from(connection)? {
                let part = items(connection, sql, Some(mesh), &filter)?;
                page.rows.extend(part.rows);
                page.more |= part.more;
            }
            page.rows.sort_unstable_by_key(|row| row.arrival);
            Ok(bounded(page, &filter))
        })
        .await
    }
}

fn items(
    connection: &Connection,
    sql: &str,
    mesh: Option<MeshId>,
    filter: &InboxFilter,
) -> Result<InboxRows, StoreError> {
    let acked_since = match filter.acked {
        AckedItems::Since(at) => Some(at.0),
        AckedItems::None | AckedItems::All => None,
    };
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query(params![
        mesh.map(|mesh| mesh.0.to_bytes()),
        filter.agent.as_ref().map(AgentName::as_str),
        filter.after.unwrap_or(0),
        filter.since.map(|since| since.0),
        filter.topic.as_ref().map(TopicName::as_str),
        filter.from_member.as_ref().map(MemberName::as_str),
        filter.from_agent.as_ref().map(AgentName::as_str),
        one_more(filter.limit),
        acked_since,
    ])?;
    take_page(rows, filter)
}

/// What is asked for: the one row beyond the page tells that there is more.
pub(crate) fn one_more(limit: usize) -> i64 {
    i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX)
}

/// As many of the rows as fit, and at least one if there is one.
pub(crate) fn take_page(mut rows: Rows<'_>, filter: &InboxFilter) -> Result<InboxRows, StoreError> {
    let mut page = InboxRows::default();
    let mut bytes = 0_usize;
    while let Some(row) = rows.next()? {
        let row = read_row(row)?;
        bytes = bytes.saturating_add(row.envelope.len());
        let is_too_much = bytes > filter.bytes_max && !page.rows.is_empty();
        if is_too_much || page.rows.len() >= filter.limit {
            page.more = true;
            break;
        }
        page.rows.push(row);
    }
    Ok(page)
}

/// Cuts a merged page back to both bounds.
fn bounded(mut page: InboxRows, filter: &InboxFilter) -> InboxRows {
    let mut bytes = 0_usize;
    let fitting = page
        .rows
        .iter()
        .take(filter.limit)
        .take_while(|row| {
            bytes = bytes.saturating_add(row.envelope.len());
            bytes <= filter.bytes_max
        })
        .count();
    let fitting = fitting.max(filter.limit.min(1));
    page.more |= fitting < page.rows.len();
    page.rows.truncate(fitting);
    page
}

fn meshes_received_from(connection: &Connection) -> Result<Vec<MeshId>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT mesh_id FROM delivery")?;
    let mut rows = statement.query([])?;
    let mut meshes = Vec::new();
    while let Some(row) = rows.next()? {
        meshes.push(MeshId(Cells::of("delivery", row).ulid()?));
    }
    Ok(meshes)
}
