//! Receipts at the recipient: shown and acknowledged, and the queue of those the broker must hear of.
//!
//! Level and queue entry are one transaction, so a receipt is reported at least once. The broker
//! takes it as often as it comes (DESIGN §13.1).

use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, MeshId};
use heddle_core::names::AgentName;
use rusqlite::{Connection, params};

use crate::cells::{Cells, history_cells};
use crate::error::StoreError;
use crate::store::Store;

/// How far an item has come on this side. Acknowledged implies shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiptLevel {
    Shown,
    Acked,
}

impl ReceiptLevel {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shown => "shown",
            Self::Acked => "acked",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Shown, Self::Acked]
            .into_iter()
            .find(|level| level.as_str() == text)
    }
}

/// What became of the items that a call named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acked {
    /// Acknowledged (or shown) by this call.
    pub acked: usize,
    /// Known, but acknowledged (or shown) before.
    pub already: usize,
    /// Not in this home, or not in this agent's mailboxes.
    pub unknown: Vec<i64>,
}

/// One that the broker has not confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueReceipt {
    pub agent: AgentName,
    pub history_id: HistoryId,
    pub level: ReceiptLevel,
    pub at: WallMs,
}

// Acknowledging implies that it was put before somebody.
pub(crate) const ACK: &str = "
    UPDATE inbox SET acked_at = ?2, shown_at = coalesce(shown_at, ?2)
    WHERE arrival = ?1 AND acked_at IS NULL AND (?3 IS NULL OR agent = ?3)";

pub(crate) const SHOW: &str = "
    UPDATE inbox SET shown_at = ?2
    WHERE arrival = ?1 AND shown_at IS NULL AND (?3 IS NULL OR agent = ?3)";

pub(crate) const KNOWN: &str = "
    SELECT 1 FROM inbox WHERE arrival = ?1 AND (?2 IS NULL OR agent = ?2)";

// One that was set aside (`receive`) has no place at which anything could be told of it.
pub(crate) const QUEUE: &str = "
    INSERT INTO inbox_receipt (mesh_id, agent, history_epoch, history_seq, level, at)
    SELECT mesh_id, agent, history_epoch, history_seq, ?2, ?3 FROM inbox
    WHERE arrival = ?1 AND history_epoch > 0
    ON CONFLICT DO NOTHING";

/// Acknowledged by somebody who could not see what was sent: nobody is told that it was shown.
pub(crate) const LET_GO: &str = "
    UPDATE inbox SET acked_at = ?2
    WHERE arrival = ?1 AND acked_at IS NULL AND (?3 IS NULL OR agent = ?3)";

/// Everything that was put before somebody here. A broker of a new epoch may have lost what it was told of it.
pub(crate) const QUEUE_ALL: &str = "
    INSERT INTO inbox_receipt (mesh_id, agent, history_epoch, history_seq, level, at)
    SELECT mesh_id, agent, history_epoch, history_seq, 'shown', shown_at FROM inbox
    WHERE mesh_id = ?1 AND shown_at IS NOT NULL AND history_epoch > 0
    UNION ALL
    SELECT mesh_id, agent, history_epoch, history_seq, 'acked', acked_at FROM inbox
    WHERE mesh_id = ?1 AND shown_at IS NOT NULL AND acked_at IS NOT NULL AND history_epoch > 0
    ON CONFLICT DO NOTHING";

/// The same of one that came again at another place, where nobody has told anything of it yet.
pub(crate) const QUEUE_AT: &str = "
    INSERT INTO inbox_receipt (mesh_id, agent, history_epoch, history_seq, level, at)
    SELECT mesh_id, agent, ?3, ?4, 'shown', shown_at FROM inbox
    WHERE agent = ?1 AND id_key = ?2 AND shown_at IS NOT NULL
    UNION ALL
    SELECT mesh_id, agent, ?3, ?4, 'acked', acked_at FROM inbox
    WHERE agent = ?1 AND id_key = ?2 AND shown_at IS NOT NULL AND acked_at IS NOT NULL
    ON CONFLICT DO NOTHING";

pub(crate) const DUE: &str = "
    SELECT agent, history_epoch, history_seq, level, at
    FROM inbox_receipt WHERE mesh_id = ?1 LIMIT ?2";

pub(crate) const CONFIRM: &str = "
    DELETE FROM inbox_receipt
    WHERE mesh_id = ?1 AND agent = ?2 AND history_epoch = ?3 AND history_seq = ?4 AND level = ?5";

impl Store {
    /// Acknowledges items: the first time counts, the others are told so. With `agent`, only items
    /// in mailboxes of that name.
    pub async fn inbox_ack(
        &self,
        arrivals: Vec<i64>,
        agent: Option<AgentName>,
        now: WallMs,
    ) -> Result<Acked, StoreError> {
        self.write(move |connection| {
            raise(
                connection,
                ReceiptLevel::Acked,
                &arrivals,
                agent.as_ref(),
                now,
            )
        })
        .await
    }

    /// The same for items that cannot be read: whoever lets them go has not seen what was sent, and its sender must not
    /// hear that it was shown.
    pub async fn inbox_let_go(
        &self,
        arrivals: Vec<i64>,
        agent: Option<AgentName>,
        now: WallMs,
    ) -> Result<Acked, StoreError> {
        self.write(move |connection| {
            let agent = agent.as_ref().map(AgentName::as_str);
            let mut update = connection.prepare_cached(LET_GO)?;
            let mut known = connection.prepare_cached(KNOWN)?;
            let mut result = Acked::default();
            for arrival in arrivals {
                if update.execute(params![arrival, now.0, agent])? == 1 {
                    result.acked += 1;
                } else if known.exists(params![arrival, agent])? {
                    result.already += 1;
                } else {
                    result.unknown.push(arrival);
                }
            }
            Ok(result)
        })
        .await
    }

    /// Notes that items were put before their agent. Relaxed: a power cut may forget it, and the
    /// item is then shown once more.
    pub async fn inbox_shown(
        &self,
        arrivals: Vec<i64>,
        agent: Option<AgentName>,
        now: WallMs,
    ) -> Result<Acked, StoreError> {
        self.write_relaxed(move |connection| {
            raise(
                connection,
                ReceiptLevel::Shown,
                &arrivals,
                agent.as_ref(),
                now,
            )
        })
        .await
    }

    /// Receipts of a mesh that its broker has not confirmed, at most `items_max`.
    pub async fn receipts_due(
        &self,
        mesh: MeshId,
        items_max: usize,
    ) -> Result<Vec<DueReceipt>, StoreError> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(DUE)?;
            let limit = i64::try_from(items_max).unwrap_or(i64::MAX);
            let mut rows = statement.query(params![mesh.0.to_bytes(), limit])?;
            let mut due = Vec::new();
            while let Some(row) = rows.next()? {
                let mut cells = Cells::of("inbox_receipt", row);
                due.push(DueReceipt {
                    agent: cells.parsed(AgentName::parse)?,
                    history_id: cells.history()?,
                    level: cells.word(ReceiptLevel::parse)?,
                    at: cells.wall()?,
                });
            }
            Ok(due)
        })
        .await
    }

    /// The broker has these. Relaxed: one that is forgotten is reported once more.
    pub async fn receipts_confirmed(
        &self,
        mesh: MeshId,
        receipts: Vec<DueReceipt>,
    ) -> Result<(), StoreError> {
        self.write_relaxed(move |connection| {
            let mut confirm = connection.prepare_cached(CONFIRM)?;
            for receipt in &receipts {
                let (epoch, seq) = history_cells(receipt.history_id);
                confirm.execute(params![
                    mesh.0.to_bytes(),
                    receipt.agent.as_str(),
                    epoch,
                    seq,
                    receipt.level.as_str(),
                ])?;
            }
            Ok(())
        })
        .await
    }
}

fn raise(
    connection: &Connection,
    level: ReceiptLevel,
    arrivals: &[i64],
    agent: Option<&AgentName>,
    now: WallMs,
) -> Result<Acked, StoreError> {
    let agent = agent.map(AgentName::as_str);
    let sql = match level {
        ReceiptLevel::Shown => SHOW,
        ReceiptLevel::Acked => ACK,
    };
    let mut update = connection.prepare_cached(sql)?;
    let mut queue = connection.prepare_cached(QUEUE)?;
    let mut known = connection.prepare_cached(KNOWN)?;
    let mut result = Acked::default();
    for arrival in arrivals {
        if update.execute(params![arrival, now.0, agent])? == 1 {
            queue.execute(params![arrival, level.as_str(), now.0])?;
            result.acked += 1;
        } else if known.exists(params![arrival, agent])? {
            result.already += 1;
        } else {
            result.unknown.push(*arrival);
        }
    }
    Ok(result)
}
