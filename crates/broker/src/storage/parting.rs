//! New places for everything behind the last place that is sure.
//!
//! A history whose past was replaced by an older one, and which has gone on since, has given places out twice: whoever has seen
//! the lost stretch knows other messages at them. Nobody can make these places mean one thing again. So the stretch behind
//! the last place that both agree on begins anew: the same messages, in the same order, with everything that belongs to them,
//! in an epoch that nobody has seen yet. Then the places that were given out twice are nobody's any more; who knows them
//! hears with the new epoch that they are lost, and who has a message knows it by its id (C9).

use heddle_core::ids::HistoryId;
use heddle_core::witness::Parting;

/// Messages that get new places in one transaction. Beyond that a new epoch begins, and they stay where they are.
#[cfg(not(test))]
pub(super) const MOVED_MAX: u64 = 100_000;
#[cfg(test)]
pub(super) const MOVED_MAX: u64 = 20;

/// What was found out about a history, and done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parted {
    /// Up to here it is the one that was seen.
    pub after: HistoryId,
    /// The epoch that began.
    pub epoch: u64,
    /// Messages behind that place, which are in the new epoch now.
    pub moved: u64,
    /// They were too many, and stayed where they were.
    pub is_left: bool,
}

/// Messages of one epoch, and where they go: `seq + by`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) epoch: u64,
    pub(super) behind: u64,
    pub(super) by: i64,
}

impl Stretch {
    #[cfg(test)]
    pub(super) fn place(&self, at: HistoryId, epoch: u64) -> Option<HistoryId> {
        let is_here = at.epoch == self.epoch && at.seq > self.behind;
        let seq = is_here.then(|| at.seq.checked_add_signed(self.by))??;
        Some(HistoryId { epoch, seq })
    }
}

impl Parted {
    /// Whether what was seen at this place still says anything.
    pub fn keeps(&self, place: HistoryId) -> bool {
        place <= self.after || place.epoch >= self.epoch
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) after: HistoryId,
    /// None where they would be too many.
    pub(super) stretches: Vec<Stretch>,
    /// That of the history when it is done.
    pub(super) epoch: u64,
    moved: u64,
}

impl Plan {
    /// For a history in this epoch, with the last place of each; `None` where nothing stands behind the last sure place.
    pub(super) fn new(parting: Parting, running: u64, ends: &[HistoryId]) -> Option<Self> {
        let after = parting.after;
        let mut plan = Self {
            after,
            stretches: Vec::new(),
            epoch: running.saturating_add(1),
            moved: 0,
        };
        for end in ends.iter().filter(|end| **end > after) {
            let behind = if end.epoch == after.epoch {
                after.seq
            } else {
                0
            };
            let by = i64::try_from(plan.moved).ok()? - i64::try_from(behind).ok()?;
            plan.stretches.push(Stretch {
                epoch: end.epoch,
                behind,
                by,
            });
            plan.moved = plan.moved.saturating_add(end.seq - behind);
        }
        if plan.moved > MOVED_MAX {
            plan.stretches.clear();
            // A new epoch is due once, however often somebody comes who has seen the old one.
            if parting.at.epoch < running {
                plan.epoch = running;
            }
        }
        (plan.moved > 0).then_some(plan)
    }

    /// Where the next message goes, if an epoch begins.
    pub(super) fn next_seq(&self) -> u64 {
        if self.stretches.is_empty() {
            1
        } else {
            self.moved.saturating_add(1)
        }
    }

    pub(super) fn done(&self) -> Parted {
        Parted {
            after: self.after,
            epoch: self.epoch,
            moved: self.moved,
            is_left: self.stretches.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_behind_a_place_follows_on_in_the_next_epoch() {
        let at = |epoch, seq| HistoryId { epoch, seq };
        let ends = [at(1, 5), at(2, 3), at(4, 2)];
        let from = |after| Parting {
            after,
            at: at(1, 9),
        };
        let plan = Plan::new(from(at(1, 3)), 4, &ends).unwrap();
        assert_eq!((plan.epoch, plan.moved, plan.next_seq()), (5, 7, 8));
        let moved = |place| plan.stretches.iter().find_map(|one| one.place(place, 5));
        let behind = [(1, 4), (1, 5), (2, 1), (2, 2), (2, 3), (4, 1), (4, 2)];
        for ((epoch, seq), new) in behind.into_iter().zip(1..) {
            assert_eq!(moved(at(epoch, seq)), Some(at(5, new)));
        }
        assert_eq!(moved(at(1, 3)), None);
        assert_eq!(Plan::new(from(at(4, 2)), 4, &ends), None);
        assert_eq!(Plan::new(from(HistoryId::ZERO), 1, &[]), None);
        let whole = Plan::new(from(HistoryId::ZERO), 1, &[at(1, 5)]).unwrap();
        assert_eq!(whole.moved, 5);
        // Too many: an epoch begins, once.
        let many = [at(1, MOVED_MAX + 1), at(2, 1)];
        for (running, epoch) in [(1, 2), (2, 2)] {
            let plan = Plan::new(from(HistoryId::ZERO), running, &many).unwrap();
            assert_eq!((plan.stretches.len(), plan.epoch), (0, epoch));
            assert!(plan.done().is_left);
        }
    }
}
