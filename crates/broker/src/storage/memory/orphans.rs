//! The orphan check over the oracle's maps.

use std::collections::{BTreeMap, BTreeSet};

use heddle_core::ids::HistoryId;

use super::super::rows::{Ack, Destination, Orphan};
use super::tables::Tables;

pub(super) fn check(tables: &Tables) -> Vec<Orphan> {
    let mut found = Found::default();
    found.of_dedupe(tables);
    found.of_messages(tables);
    found.of_history(tables);
    found.of_fan_out(tables);
    found.orphans.sort_unstable();
    found.orphans
}

#[derive(Default)]
struct Found {
    orphans: Vec<Orphan>,
}

impl Found {
    fn add(&mut self, problem: &'static str, row: String) {
        self.orphans.push(Orphan { problem, row });
    }

    fn of_dedupe(&mut self, tables: &Tables) {
        for ((sender, id), row) in &tables.dedupe {
            let (consumed, shown) = (&row.consumed, format!("{sender} {id}"));
            match tables.history.get(&consumed.history_id) {
                Some(place) if place.broker_message_id != consumed.broker_message_id => {
                    self.add("dedupe_without_history", shown.clone());
                }
                Some(place) if place.is_expired => {
                    self.add("dedupe_of_expired_history", shown.clone());
                }
                Some(_) => {}
                None => self.add("dedupe_without_history", shown.clone()),
            }
            let has_body = tables.messages.contains_key(&consumed.broker_message_id);
            if has_body != consumed.history_available {
                self.add("dedupe_disagrees_with_message", shown);
            }
        }
    }

    fn of_messages(&mut self, tables: &Tables) {
        for (message_id, message) in &tables.messages {
            let key = (
                message.id.sender.clone(),
                message.id.client_message_id.clone(),
            );
            let mut history = tables.history.iter();
            let place = history.find(|(_, place)| place.broker_message_id == *message_id);
            let is_expired = place.is_some_and(|(_, place)| place.is_expired);
            match tables.dedupe.get(&key) {
                Some(row) if row.consumed.broker_message_id == *message_id => {
                    let is_same = row.destination == message.destination
                        && row.consumed.first_seen_at == message.accepted_at;
                    if !is_same {
                        self.add("message_differs_from_dedupe", message_id.to_string());
                    }
                }
                _ if is_expired => {}
                _ => self.add("message_without_dedupe", message_id.to_string()),
            }
            match place {
                None => self.add("message_without_history", message_id.to_string()),
                Some((at, _)) => {
                    if let Some(problem) = missing_fan_out(tables, &message.destination, *at) {
                        self.add(problem, message_id.to_string());
                    }
                }
            }
        }
    }

    fn of_history(&mut self, tables: &Tables) {
        for (history_id, place) in &tables.history {
            let mut rows = tables.dedupe.values();
            if !place.is_expired && !rows.any(|row| row.consumed.history_id == *history_id) {
                self.add(
                    "history_without_dedupe",
                    format!("{history_id} {}", place.broker_message_id),
                );
            }
        }
        for epoch in gaps(tables) {
            self.add("gap_in_history", format!("epoch {epoch}"));
        }
    }

    fn of_fan_out(&mut self, tables: &Tables) {
        for (member, rows) in &tables.deliveries {
            for row in rows.keys() {
                if !tables.history.contains_key(&row.history_id) {
                    self.add(
                        "delivery_without_history",
                        format!("{} {member}/{}", row.history_id, row.agent),
                    );
                }
            }
        }
        for history_id in tables.queues.values().flat_map(|queue| queue.items.keys()) {
            if !tables.history.contains_key(history_id) {
                self.add("queue_item_without_history", history_id.to_string());
            }
        }
        for history_id in tables.log.keys() {
            if !tables.history.contains_key(history_id) {
                self.add("log_row_without_history", history_id.to_string());
            }
        }
        for (party, history_id) in &tables.mentions {
            if !tables.history.contains_key(history_id) {
                self.add("mention_without_history", format!("{history_id} {party}"));
            }
        }
    }
}

/// What a message to one mailbox or queue lacks. Who had subscribed to a topic is not known any more.
fn missing_fan_out(
    tables: &Tables,
    destination: &Destination,
    history_id: HistoryId,
) -> Option<&'static str> {
    match destination {
        Destination::Topic(_) => None,
        Destination::Dm(party) => {
            let row = Ack {
                history_id,
                agent: party.agent.clone(),
            };
            let rows = tables.deliveries.get(&party.member);
            let is_there = rows.is_some_and(|rows| rows.contains_key(&row));
            let is_withheld = tables.withheld.contains(&(history_id, party.member));
            (!is_there && !is_withheld).then_some("dm_without_delivery")
        }
        Destination::Queue(queue) => {
            let queue = tables.queues.get(queue);
            let is_there = queue.is_some_and(|queue| queue.items.contains_key(&history_id));
            (!is_there).then_some("queue_message_without_item")
        }
        Destination::Log => {
            let is_there = tables.log.contains_key(&history_id);
            (!is_there).then_some("op_without_log_row")
        }
    }
}

/// Epochs whose places do not follow each other, or that do not end where the next one begins.
fn gaps(tables: &Tables) -> BTreeSet<u64> {
    let mut epochs: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for history_id in tables.history.keys() {
        epochs
            .entry(history_id.epoch)
            .or_default()
            .push(history_id.seq);
    }
    let mut gaps = BTreeSet::new();
    for (epoch, places) in epochs {
        if places.windows(2).any(|pair| pair[1] != pair[0] + 1) {
            gaps.insert(epoch);
        }
        if epoch == tables.epoch && places.last() != Some(&(tables.next_seq - 1)) {
            gaps.insert(epoch);
        }
    }
    gaps
}
