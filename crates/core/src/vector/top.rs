//! The k nearest so far, in one fixed order: by distance, then by key, then by peer.

use std::cmp::Ordering;

use super::matrix::Label;

#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    pub distance: f32,
    pub label: Label,
}

/// Keeps k of what is offered; what was offered when makes no difference.
#[derive(Debug, Clone)]
pub struct Top {
    limit: usize,
    hits: Vec<Hit>,
}

impl Top {
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            hits: Vec::with_capacity(limit.min(1024)),
        }
    }

    /// Nothing farther than this can come in any more.
    pub(super) fn reach(&self) -> f32 {
        match self.hits.last() {
            Some(last) if self.hits.len() >= self.limit => last.distance,
            _ if self.limit == 0 => f32::NEG_INFINITY,
            _ => f32::INFINITY,
        }
    }

    pub(super) fn offer(&mut self, distance: f32, label: &Label) {
        if distance > self.reach() {
            return;
        }
        let place = self
            .hits
            .partition_point(|hit| order(hit, distance, label) == Ordering::Less);
        if place < self.limit {
            self.hits.truncate(self.limit - 1);
            let label = label.clone();
            self.hits.insert(place, Hit { distance, label });
        }
    }

    /// Nearest first.
    pub fn into_hits(self) -> Vec<Hit> {
        self.hits
    }
}

fn order(hit: &Hit, distance: f32, label: &Label) -> Ordering {
    hit.distance
        .total_cmp(&distance)
        .then_with(|| hit.label.key.as_bytes().cmp(label.key.as_bytes()))
        .then_with(|| hit.label.peer.as_bytes().cmp(label.peer.as_bytes()))
}
