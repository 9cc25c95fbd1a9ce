//! What accepts ask for between two looks at the disk: an atomic add and two compares for each.

use std::sync::atomic::{AtomicU64, Ordering};

use heddle_core::ids::MeshId;
use heddle_core::limits::DISK_ROW_BYTES;
use heddle_core::pressure::has_room;

use super::shares::Shares;

/// Bytes, counted from the start of the process: asked for by accepts, and of those in the store, or never coming.
#[derive(Debug, Default)]
struct Tally {
    reserved: AtomicU64,
    settled: AtomicU64,
}

impl Tally {
    fn add(&self, bytes: u64) -> u64 {
        self.reserved.fetch_add(bytes, Ordering::AcqRel)
    }

    fn settle(&self, bytes: u64) {
        self.settled.fetch_add(bytes, Ordering::AcqRel);
    }

    fn give_back(&self, bytes: u64) {
        self.reserved.fetch_sub(bytes, Ordering::AcqRel);
    }
}

#[derive(Debug)]
pub(super) struct Count {
    /// What the payloads of the outbox may hold, where that is set.
    budget: Option<u64>,
    /// Payloads, where there is a budget.
    payloads: Tally,
    /// What the last look found in the outbox, less what had been settled by then: with what is reserved it is what
    /// is held now.
    base: AtomicU64,
    /// The same by mesh, where there is a budget.
    pub(super) shares: Shares,
    /// Messages as they lie on a disk.
    disk: Tally,
    /// How far `disk` may come before the next look, and from where on that look is due.
    reserved_max: AtomicU64,
    look_from: AtomicU64,
    /// The smallest message that found no room on the disk, and finds none still.
    too_large: AtomicU64,
}

/// Who asks for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    Send,
    /// What an operator sends again may use what is left of the budget when new sends are refused, and no more.
    Requeue,
}

/// Bytes that an accept is about to write.
#[derive(Debug)]
pub(crate) struct Reserved<'c> {
    count: &'c Count,
    mesh: MeshId,
    bytes: u64,
}

impl Reserved<'_> {
    /// Nothing is written after all.
    pub(crate) fn give_back(self) {
        self.count.disk.give_back(on_disk(self.bytes));
        if self.count.budget.is_some() {
            self.count.payloads.give_back(self.bytes);
            self.count.shares.give_back(self.mesh, self.bytes);
        }
        std::mem::forget(self);
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.count.disk.settle(on_disk(self.bytes));
        if self.count.budget.is_some() {
            self.count.payloads.settle(self.bytes);
            self.count.shares.settle(self.mesh, self.bytes);
        }
    }
}

fn on_disk(bytes: u64) -> u64 {
    bytes.saturating_add(DISK_ROW_BYTES)
}

/// What was in the store when a look began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settled {
    payloads: u64,
    pub(super) disk: u64,
}

impl Count {
    pub(super) fn new(budget: Option<u64>) -> Self {
        Self {
            budget,
            payloads: Tally::default(),
            base: AtomicU64::new(0),
            shares: Shares::default(),
            disk: Tally::default(),
            reserved_max: AtomicU64::new(u64::MAX),
            look_from: AtomicU64::new(u64::MAX),
            too_large: AtomicU64::new(u64::MAX),
        }
    }

    /// Counts a message before it is written, if it has room; and whether a look is due.
    pub(super) fn reserve(
        &self,
        asks: Asks,
        mesh: MeshId,
        bytes: u64,
    ) -> (Option<Reserved<'_>>, bool) {
        let after = self.disk.add(on_disk(bytes)).saturating_add(on_disk(bytes));
        let is_within = self.budget.is_none_or(|budget| {
            let before = self.payloads.add(bytes);
            let kept = self.shares.add(mesh, bytes, budget);
            // What is kept for other meshes counts as held, whoever asks.
            let held = self.held_with(before).saturating_add(kept);
            match asks {
                Asks::Send => has_room(held, bytes, budget),
                Asks::Requeue => held.saturating_add(bytes) <= budget,
            }
        });
        let reserved = Reserved {
            count: self,
            mesh,
            bytes,
        };
        if after > self.reserved_max.load(Ordering::Relaxed) {
            self.too_large.fetch_min(bytes, Ordering::Relaxed);
        } else if is_within {
            let is_look_due = after > self.look_from.load(Ordering::Relaxed);
            return (Some(reserved), is_look_due);
        }
        reserved.give_back();
        (None, true)
    }

    /// What is in the store by now; to be read before the look.
    pub(super) fn settled(&self) -> Settled {
        Settled {
            payloads: self.payloads.settled.load(Ordering::Acquire),
            disk: self.disk.settled.load(Ordering::Acquire),
        }
    }

    /// The look is over: the outbox holds `used`, and so much more may come; `None` where nobody knows.
    pub(super) fn looked(&self, settled: Settled, used: u64, new_max: Option<u64>) {
        let base = used.wrapping_sub(settled.payloads);
        self.base.store(base, Ordering::Release);
        let new_max = new_max.unwrap_or(u64::MAX);
        let max = settled.disk.saturating_add(new_max);
        let look_from = settled.disk.saturating_add(new_max / 2);
        self.look_from.store(look_from, Ordering::Relaxed);
        self.reserved_max.store(max, Ordering::Relaxed);
        if self
            .too_large()
            .is_some_and(|bytes| on_disk(bytes) <= new_max)
        {
            self.too_large.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// The smallest message that finds no room on the disk, if one was refused.
    pub(super) fn too_large(&self) -> Option<u64> {
        Some(self.too_large.load(Ordering::Relaxed)).filter(|bytes| *bytes < u64::MAX)
    }

    /// With a budget: what the outbox holds with what is on its way there.
    pub(super) fn held(&self) -> u64 {
        self.held_with(self.payloads.reserved.load(Ordering::Acquire))
    }

    fn held_with(&self, reserved: u64) -> u64 {
        self.base.load(Ordering::Acquire).wrapping_add(reserved)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const ROW: u64 = DISK_ROW_BYTES;
    const MESH: MeshId = MeshId(ulid::Ulid(7));

    #[test]
    fn what_was_asked_for_is_counted_until_a_look_has_seen_it() {
        let count = Count::new(None);
        let (first, is_due) = count.reserve(Asks::Send, MESH, 7);
        assert!(first.is_some() && !is_due, "nobody has looked yet");
        // It is not in the store yet, so this look did not see it.
        count.looked(count.settled(), 0, Some(100 + 4 * ROW));
        assert!(matches!(
            count.reserve(Asks::Send, MESH, 94 + 3 * ROW),
            (None, true)
        ));
        assert_eq!(count.too_large(), Some(94 + 3 * ROW));
        let (second, is_due) = count.reserve(Asks::Send, MESH, 43);
        assert!(second.is_some() && !is_due);
        let (third, is_due) = count.reserve(Asks::Send, MESH, 1);
        assert!(third.is_some() && is_due, "half of it is gone");
        third.unwrap().give_back();
        drop((first, second));
        count.looked(count.settled(), 0, Some(93 + 4 * ROW));
        assert!(count.too_large().is_some());
        count.looked(count.settled(), 0, Some(94 + 4 * ROW));
        assert_eq!(count.too_large(), None);
        assert!(count.reserve(Asks::Send, MESH, 94 + 3 * ROW).0.is_some());
    }

    #[test]
    fn a_budget_and_the_disk_each_have_a_say() {
        let count = Count::new(Some(9));
        count.looked(count.settled(), 0, Some(10 + ROW));
        assert!(count.reserve(Asks::Send, MESH, 11).0.is_none());
        assert_eq!(count.too_large(), Some(11));
        assert!(
            count.reserve(Asks::Send, MESH, 10).0.is_none(),
            "the budget"
        );
        assert_eq!(count.too_large(), Some(11), "it had room on the disk");
        let (taken, _) = count.reserve(Asks::Send, MESH, 5);
        assert!(taken.is_some());
        assert_eq!(count.held(), 5);
        drop(taken);
        count.looked(count.settled(), 5, None);
        assert_eq!((count.held(), count.too_large()), (5, None));
        assert!(
            count.reserve(Asks::Send, MESH, 5).0.is_none()
                && count.reserve(Asks::Send, MESH, 4).0.is_some()
        );
    }

    #[test]
    fn requeues_use_the_last_of_the_budget_and_nothing_of_what_is_kept_for_other_meshes() {
        let other = MeshId(ulid::Ulid(8));
        let count = Count::new(Some(1_000));
        let names = [(MESH, "away".to_owned(), 0), (other, "home".to_owned(), 0)];
        count.shares.looked(&BTreeMap::new(), names.into_iter());
        count.looked(count.settled(), 0, None);
        // A quarter is kept for each of the two.
        let fill = |asks: Asks, mesh: MeshId| {
            let taken = (0..1_000).map_while(|_| count.reserve(asks, mesh, 1).0);
            taken.map(drop).count()
        };
        assert_eq!(fill(Asks::Send, MESH), 700);
        assert_eq!(fill(Asks::Send, MESH), 0);
        assert_eq!(fill(Asks::Requeue, MESH), 50);
        assert_eq!(fill(Asks::Requeue, MESH), 0);
        assert_eq!(fill(Asks::Send, other), 200);
        assert_eq!(fill(Asks::Requeue, other), 50);
        assert_eq!(count.held(), 1_000);
    }
}
