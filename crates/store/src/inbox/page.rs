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
    pub async fn inbox_page(&self, filter: InboxFilter) -> Result<Vec<InboxRow>, StoreError> {
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
            let mut page = Vec::new();
            for mesh in meshes_received_from(connection)? {
                page.extend(items(connection, sql, Some(mesh), &filter)?);
            }
            page.sort_unstable_by_key(|row| row.arrival);
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
) -> Result<Vec<InboxRow>, StoreError> {
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
        i64::try_from(filter.limit).unwrap_or(i64::MAX),
        acked_since,
    ])?;
    take_page(rows, filter.bytes_max)
}

/// As many of the rows as fit, and at least one if there is one.
pub(crate) fn take_page(mut rows: Rows<'_>, bytes_max: usize) -> Result<Vec<InboxRow>, StoreError> {
    let mut page = Vec::new();
    let mut bytes = 0_usize;
    while let Some(row) = rows.next()? {
        let row = read_row(row)?;
        bytes = bytes.saturating_add(row.envelope.len());
        if bytes > bytes_max && !page.is_empty() {
            break;
        }
        page.push(row);
    }
    Ok(page)
}

/// Cuts a merged page back to both bounds.
fn bounded(mut page: Vec<InboxRow>, filter: &InboxFilter) -> Vec<InboxRow> {
    let mut bytes = 0_usize;
    let fitting = page
        .iter()
        .take(filter.limit)
        .take_while(|row| {
            bytes = bytes.saturating_add(row.envelope.len());
            bytes <= filter.bytes_max
        })
        .count();
    page.truncate(fitting.max(filter.limit.min(1)));
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
