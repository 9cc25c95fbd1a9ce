//! The log of the oracle: which places are ops, and the one before each.

use std::ops::Bound;

use heddle_core::ids::{HistoryId, MeshId};
use heddle_core::witness::Witness;

use super::super::error::StorageError;
use super::super::log::{Epochs, Log, LogPage, LogRow};
use super::super::parting::Parted;
use super::super::rows::PageLimit;
use super::MemoryStorage;
use super::tables::Tables;

impl Tables {
    /// Adds an op; the one before it is the last that is there.
    pub(super) fn append_to_log(&mut self, at: HistoryId) {
        let previous = self.log.last_key_value().map(|(last, _)| *last);
        self.log.insert(at, previous.unwrap_or(HistoryId::ZERO));
    }

    /// The last place of every epoch that has one.
    pub(super) fn ends(&self) -> Vec<HistoryId> {
        let mut ends: Vec<HistoryId> = Vec::new();
        for at in self.history.keys() {
            match ends.last_mut() {
                Some(last) if last.epoch == at.epoch => *last = *at,
                _ => ends.push(*at),
            }
        }
        ends
    }

    fn log_after(&self, after: HistoryId, limit: PageLimit) -> Vec<LogRow> {
        let mut rows: Vec<LogRow> = Vec::new();
        let mut bytes = 0;
        for (at, previous) in self.log.range((Bound::Excluded(after), Bound::Unbounded)) {
            let place = self.history.get(at);
            let message = place.and_then(|place| self.messages.get(&place.broker_message_id));
            let Some(message) = message else { continue };
            bytes += message.envelope.len();
            if rows.len() >= limit.rows_max || (bytes > limit.bytes_max && !rows.is_empty()) {
                break;
            }
            rows.push(LogRow {
                history_id: *at,
                previous: *previous,
                sender: message.id.sender.clone(),
                client_message_id: message.id.client_message_id.clone(),
                accepted_at: message.accepted_at,
                envelope: message.envelope.clone(),
            });
        }
        rows
    }
}

impl Log for MemoryStorage {
    async fn log_after(
        &self,
        mesh: MeshId,
        after: HistoryId,
        limit: PageLimit,
    ) -> Result<LogPage, StorageError> {
        self.on(mesh, |tables| {
            Ok(LogPage {
                epoch: tables.epoch,
                rows: tables.log_after(after, limit),
                misses: false,
            })
        })
    }

    async fn epochs(&self, mesh: MeshId) -> Result<Epochs, StorageError> {
        self.on(mesh, |tables| {
            Ok(Epochs {
                epoch: tables.epoch,
                ends: tables.ends(),
                holes: Vec::new(),
            })
        })
    }

    async fn part(&self, mesh: MeshId, seen: Vec<Witness>) -> Result<Option<Parted>, StorageError> {
        self.on(mesh, |tables| Ok(tables.part(mesh, &seen)))
    }

    async fn bump_epoch(&self, mesh: MeshId) -> Result<u64, StorageError> {
        self.on(mesh, |tables| {
            tables.begin_epoch(tables.epoch + 1);
            Ok(tables.epoch)
        })
    }
}
