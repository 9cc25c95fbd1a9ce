//! The deliveries of a connection that are pushed and not yet acknowledged.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::storage::Ack;

pub(super) struct Window {
    size: usize,
    in_flight: Mutex<BTreeSet<Ack>>,
    /// Something was acknowledged.
    opened: Notify,
}

impl Window {
    pub(super) fn new(size: usize) -> Self {
        Self {
            size: size.max(1),
            in_flight: Mutex::new(BTreeSet::new()),
            opened: Notify::new(),
        }
    }

    /// Waits until something may be pushed, and says how much.
    pub(super) async fn room(&self) -> usize {
        loop {
            let room = self.size.saturating_sub(self.lock().len());
            if room > 0 {
                return room;
            }
            self.opened.notified().await;
        }
    }

    pub(super) fn pushed(&self, items: impl Iterator<Item = Ack>) {
        self.lock().extend(items);
    }

    /// An ack for what was never pushed here opens nothing.
    pub(super) fn acked(&self, items: &[Ack]) {
        let mut in_flight = self.lock();
        for item in items {
            in_flight.remove(item);
        }
        drop(in_flight);
        self.opened.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Ack>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
