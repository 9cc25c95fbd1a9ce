//! The orphan check over the oracle's maps.

use std::collections::{BTreeMap, BTreeSet};

use super::super::rows::{Ack, Destination, Orphan};
use super::tables::Tables;

pub(super) fn check(tables: &Tables) -> Vec<Orphan> {
    let mut orphans = Vec::new();
    let mut found = |problem, row: String| orphans.push(Orphan { problem, row });
    for ((sender, id), row) in &tables.dedupe {
        let consumed = &row.consumed;
        match tables.history.get(&consumed.history_id) {
            Some(place) if place.broker_message_id != consumed.broker_message_id => {
                found("dedupe_without_history", format!("{sender} {id}"));
            }
            Some(place) if place.is_expired => {
                found("dedupe_of_expired_history", format!("{sender} {id}"));
            }
            Some(_) => {}
            None => found("dedupe_without_history", format!("{sender} {id}")),
        }
        if tables.messages.contains_key(&consumed.broker_message_id) != consumed.history_available {
            found("dedupe_disagrees_with_message", format!("{sender} {id}"));
        }
    }
    for (message_id, message) in &tables.messages {
        let key = (
            message.id.sender.clone(),
            message.id.client_message_id.clone(),
        );
        let mut history = tables.history.iter();
        let place = history.find(|(_, place)| place.broker_message_id == *message_id);
        let is_expired = place.is_some_and(|(_, place)| place.is_expired);
        if !is_expired && !tables.dedupe.contains_key(&key) {
            found("message_without_dedupe", message_id.to_string());
        }
        match (place, &message.destination) {
            (None, _) => found("message_without_history", message_id.to_string()),
            (Some((history_id, _)), Destination::Dm(party)) => {
                let row = Ack {
                    history_id: *history_id,
                    agent: party.agent.clone(),
                };
                let rows = tables.deliveries.get(&party.member);
                if !rows.is_some_and(|rows| rows.contains_key(&row)) {
                    found("dm_without_delivery", message_id.to_string());
                }
            }
            (Some((history_id, _)), Destination::Queue(queue)) => {
                let queue = tables.queues.get(queue);
                if !queue.is_some_and(|queue| queue.items.contains_key(history_id)) {
                    found("queue_message_without_item", message_id.to_string());
                }
            }
            (Some(_), Destination::Topic(_)) => {}
        }
    }
    for (history_id, place) in &tables.history {
        let mut rows = tables.dedupe.values();
        if !place.is_expired && !rows.any(|row| row.consumed.history_id == *history_id) {
            found(
                "history_without_dedupe",
                format!("{history_id} {}", place.broker_message_id),
            );
        }
    }
    for (member, rows) in &tables.deliveries {
        for row in rows.keys() {
            if !tables.history.contains_key(&row.history_id) {
                found(
                    "delivery_without_history",
                    format!("{} {member}/{}", row.history_id, row.agent),
                );
            }
        }
    }
    for queue in tables.queues.values() {
        for history_id in queue.items.keys() {
            if !tables.history.contains_key(history_id) {
                found("queue_item_without_history", history_id.to_string());
            }
        }
    }
    for (party, history_id) in &tables.mentions {
        if !tables.history.contains_key(history_id) {
            found("mention_without_history", format!("{history_id} {party}"));
        }
    }
    for epoch in gaps(tables) {
        found("gap_in_history", format!("epoch {epoch}"));
    }
    orphans.sort_unstable();
    orphans
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
