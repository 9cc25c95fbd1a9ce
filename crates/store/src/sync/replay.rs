//! Own ops that the broker has lost: it was put back from an older copy, and a new epoch has begun.
//!
//! They are found among the rows that are `done`, by the place that their ack gave them. They are sent
//! again as they are; a broker that has them after all answers with the first place (LF-13).

use heddle_core::ids::{BrokerMessageId, ClientMessageId, HistoryId, MeshId};
use heddle_core::limits::PRUNE_LOOK_MAX;
use heddle_core::names::AgentName;
use rusqlite::params;

use crate::cells::{Cells, history_cells};
use crate::error::StoreError;
use crate::store::Store;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayRow {
    pub arrival: i64,
    pub agent: AgentName,
    pub client_message_id: ClientMessageId,
    pub place: HistoryId,
    /// Empty where it was pruned: then this op can be brought by nobody but those who read it.
    pub payload: Vec<u8>,
}

/// A stretch of the outbox, looked through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayLook {
    pub rows: Vec<ReplayRow>,
    /// Where the next stretch begins; `None` at the end.
    pub next: Option<i64>,
}

pub(crate) const LOOK: &str = "
    SELECT arrival, agent, client_message_id, history_epoch, history_seq, payload FROM outbox
    WHERE arrival > ?1 AND arrival <= ?2 AND kind = 'op' AND mesh_id = ?3 AND status = 'done'
    ORDER BY arrival";

pub(crate) const MOVED: &str = "
    UPDATE outbox SET broker_message_id = ?2, history_epoch = ?3, history_seq = ?4
    WHERE arrival = ?1 AND status = 'done' AND kind = 'op'";

impl Store {
    /// Own ops in one stretch behind `after` for which `is_lost` says so.
    pub async fn lost_ops(
        &self,
        mesh: MeshId,
        after: i64,
        is_lost: impl Fn(HistoryId) -> bool + Send + 'static,
    ) -> Result<ReplayLook, StoreError> {
        self.read(move |connection| {
            let end = after.saturating_add(PRUNE_LOOK_MAX);
            let newest: Option<i64> = connection
                .prepare_cached("SELECT max(arrival) FROM outbox")?
                .query_row([], |row| row.get(0))?;
            let mut statement = connection.prepare_cached(LOOK)?;
            let mut rows = statement.query(params![after, end, mesh.0.to_bytes()])?;
            let mut look = ReplayLook {
                rows: Vec::new(),
                next: newest.filter(|newest| *newest > end).map(|_| end),
            };
            while let Some(row) = rows.next()? {
                let mut cells = Cells::of("outbox", row);
                let arrival = cells.get()?;
                let agent = cells.parsed(AgentName::parse)?;
                let client_message_id = cells.parsed(ClientMessageId::parse)?;
                let Some(place) = cells.history_or_null()? else {
                    continue;
                };
                if is_lost(place) {
                    look.rows.push(ReplayRow {
                        arrival,
                        agent,
                        client_message_id,
                        place,
                        payload: cells.get()?,
                    });
                }
            }
            Ok(look)
        })
        .await
    }

    /// The broker has it again, there.
    pub async fn moved_ops(
        &self,
        moved: Vec<(i64, BrokerMessageId, HistoryId)>,
    ) -> Result<(), StoreError> {
        self.write(move |connection| {
            for (arrival, id, place) in moved {
                let (epoch, seq) = history_cells(place);
                connection.prepare_cached(MOVED)?.execute(params![
                    arrival,
                    id.0.to_bytes(),
                    epoch,
                    seq
                ])?;
            }
            Ok(())
        })
        .await
    }
}
