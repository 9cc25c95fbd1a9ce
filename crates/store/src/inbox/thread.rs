//! A reply thread as one agent has it: what lies in its mailbox and what it sent itself, connected by their replies.
//!
//! What a message answers stands inside its envelope, so the newest ones of both are read and compared, within bounds.

use std::collections::BTreeSet;

use heddle_core::ids::{MeshId, Party};
use heddle_core::thread::{Link, members};
use rusqlite::{Connection, params};

use crate::error::StoreError;
use crate::inbox::row::{InboxRow, inbox_columns, read_row};
use crate::outbox::{OutboxRow, read_outbox_row, select_row};
use crate::store::Store;

/// Messages of either side that one look reads, and how many bytes of them.
const ROWS_MAX: usize = 20_000;
const BYTES_MAX: usize = 64 << 20;

/// What an envelope answers; empty where it answers nothing, `None` where it cannot be read.
pub type ReplyOf = fn(&[u8]) -> Option<String>;

pub(crate) const RECEIVED: &str = "
    SELECT arrival, client_message_id, envelope FROM inbox INDEXED BY inbox_mailbox
    WHERE mesh_id = ?1 AND agent = ?2 ORDER BY arrival DESC LIMIT ?3";

// The newest rows of all senders: there is no index by sender.
pub(crate) const SENT: &str = "
    SELECT arrival, client_message_id, payload FROM outbox
    WHERE arrival > (SELECT coalesce(max(arrival), 0) FROM outbox) - ?4
        AND mesh_id = ?1 AND member_id = ?2 AND agent = ?3 AND kind = 'message'
    ORDER BY arrival DESC";

pub(crate) const RECEIVED_ONE: &str = concat!(
    "SELECT ",
    inbox_columns!(),
    " FROM inbox WHERE arrival = ?1"
);

pub(crate) const SENT_ONE: &str = select_row!(with_payload, "FROM outbox WHERE arrival = ?1");

/// The messages of a thread, each side in its order of arrival.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Thread {
    pub received: Vec<InboxRow>,
    pub sent: Vec<OutboxRow>,
    /// Older messages were not looked at.
    pub is_cut: bool,
}

/// Arrivals and links of one side, newest first, and whether a bound cut it.
struct Side {
    links: Vec<(i64, Link)>,
    is_cut: bool,
}

impl Store {
    /// The thread that the message under this id is in, as this agent has it; at most `limit` of either side, the
    /// newest ones.
    pub async fn thread(
        &self,
        mesh: MeshId,
        agent: Party,
        of: String,
        (limit, reply_of): (usize, ReplyOf),
    ) -> Result<Thread, StoreError> {
        self.read(move |connection| {
            let rows_max = i64::try_from(ROWS_MAX).unwrap_or(i64::MAX);
            let mailbox = params![mesh.0.to_bytes(), agent.agent.as_str(), rows_max];
            let received = side(connection, RECEIVED, mailbox, reply_of)?;
            let own = params![
                mesh.0.to_bytes(),
                agent.member.0.to_bytes(),
                agent.agent.as_str(),
                rows_max
            ];
            let sent = side(connection, SENT, own, reply_of)?;
            let links = received.links.iter().chain(&sent.links);
            let thread = members(links.map(|(_, link)| link), &of);
            let mut is_cut = received.is_cut || sent.is_cut;
            let mut chosen = |side: &Side| {
                let all = side
                    .links
                    .iter()
                    .filter(|(_, link)| thread.contains(&link.id));
                let mut arrivals: BTreeSet<i64> = all.map(|(arrival, _)| *arrival).collect();
                while arrivals.len() > limit {
                    arrivals.pop_first();
                    is_cut = true;
                }
                arrivals
            };
            let (received, sent) = (chosen(&received), chosen(&sent));
            let mut found = Thread {
                is_cut,
                ..Thread::default()
            };
            for arrival in received {
                let mut statement = connection.prepare_cached(RECEIVED_ONE)?;
                let mut rows = statement.query([arrival])?;
                if let Some(row) = rows.next()? {
                    found.received.push(read_row(row)?);
                }
            }
            for arrival in sent {
                let mut statement = connection.prepare_cached(SENT_ONE)?;
                let mut rows = statement.query([arrival])?;
                if let Some(row) = rows.next()? {
                    found.sent.push(read_outbox_row(row)?);
                }
            }
            Ok(found)
        })
        .await
    }
}

fn side(
    connection: &Connection,
    sql: &str,
    bounds: &[&dyn rusqlite::ToSql],
    reply_of: ReplyOf,
) -> Result<Side, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(bounds)?;
    let mut side = Side {
        links: Vec::new(),
        is_cut: false,
    };
    let mut bytes = 0_usize;
    while let Some(row) = rows.next()? {
        let envelope = row.get_ref(2)?.as_blob().unwrap_or_default();
        bytes = bytes.saturating_add(envelope.len());
        side.links.push((
            row.get(0)?,
            Link {
                id: String::from_utf8_lossy(row.get_ref(1)?.as_bytes().unwrap_or_default())
                    .into_owned(),
                // One that cannot be read, or was given back, still is what others answer.
                reply_to: reply_of(envelope).unwrap_or_default(),
            },
        ));
        if bytes > BYTES_MAX || side.links.len() >= ROWS_MAX {
            side.is_cut = true;
            break;
        }
    }
    Ok(side)
}
