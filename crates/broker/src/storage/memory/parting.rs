//! New places in the oracle: every map that knows a place, one after the other.

use std::collections::BTreeMap;

use heddle_core::ids::{HistoryId, IdKey, MeshId};
use heddle_core::witness::{Witness, parting};

use super::super::parting::{Parted, Plan};
use super::super::rows::Ack;
use super::tables::Tables;

impl Tables {
    pub(super) fn part(&mut self, mesh: MeshId, seen: &[Witness]) -> Option<Parted> {
        let head = HistoryId {
            epoch: self.epoch,
            seq: self.next_seq - 1,
        };
        let found = parting(seen, head, |at| {
            let place = self.history.get(&at)?;
            let id = &self.messages.get(&place.broker_message_id)?.id;
            Some(IdKey::of(mesh, &id.sender, &id.client_message_id))
        })?;
        let plan = Plan::new(found, self.epoch, &self.ends())?;
        if plan.epoch > self.epoch {
            self.begin_epoch(plan.epoch);
            self.next_seq = plan.next_seq();
            self.move_by(&plan);
        }
        Some(plan.done())
    }

    fn move_by(&mut self, plan: &Plan) {
        let moved = |at: HistoryId| {
            let mut stretches = plan.stretches.iter();
            let found = stretches.find(|one| at.epoch == one.epoch && at.seq > one.behind);
            let seq = found.and_then(|one| at.seq.checked_add_signed(one.by));
            seq.map_or(at, |seq| HistoryId {
                epoch: plan.epoch,
                seq,
            })
        };
        self.history = with_keys(&mut self.history, moved);
        for row in self.dedupe.values_mut() {
            row.consumed.history_id = moved(row.consumed.history_id);
        }
        let log = std::mem::take(&mut self.log).into_iter();
        self.log = log.map(|(at, before)| (moved(at), moved(before))).collect();
        for rows in self.deliveries.values_mut() {
            *rows = with_keys(rows, |Ack { history_id, agent }| Ack {
                history_id: moved(history_id),
                agent,
            });
        }
        for queue in self.queues.values_mut() {
            queue.items = with_keys(&mut queue.items, moved);
        }
        let mentions = std::mem::take(&mut self.mentions).into_iter();
        self.mentions = mentions.map(|(who, at)| (who, moved(at))).collect();
        let withheld = std::mem::take(&mut self.withheld).into_iter();
        self.withheld = withheld.map(|(at, who)| (moved(at), who)).collect();
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.open.behind = moved(snapshot.open.behind);
        }
        for (upload, _) in self.uploads.values_mut() {
            if let Some(shown) = &mut upload.shown {
                shown.first = moved(shown.first);
            }
        }
        if !plan.stretches.is_empty() {
            self.upkeep.counted = self.upkeep.counted.map(moved);
            // What they are behind is younger than it was: it is kept longer.
            self.upkeep.births.retain(|at, _| *at <= plan.after);
        }
    }
}

fn with_keys<K: Ord, V>(map: &mut BTreeMap<K, V>, key: impl Fn(K) -> K) -> BTreeMap<K, V> {
    let rows = std::mem::take(map).into_iter();
    rows.map(|(at, row)| (key(at), row)).collect()
}
