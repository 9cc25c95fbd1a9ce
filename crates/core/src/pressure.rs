//! How full the outbox's disk is, in the four steps that matter (DESIGN §6).
//!
//! With a budget, what the outbox's payloads hold is compared with it (the file first, which is quicker).
//! Without one the room decides: the budget is then what is held and what there is room for together, and
//! it matters only where little is free at all. Room is what waits in the file to be used again, and what is
//! free on the file system beyond the little that logs need: a log that cannot grow stops everything, also
//! what would give room back.

use crate::limits::{
    DISK_FREE_ENOUGH, DISK_HIGH_PERCENT, DISK_REFUSE_PERCENT, LOG_ROOM_MAX, LOG_ROOM_MIN,
};

/// In rising order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    Fine,
    /// 80 %: said aloud, and payloads of delivered rows are given back.
    High,
    /// 95 %: new sends are refused.
    Refusing,
    /// 100 %: only what comes in is still kept.
    InboundOnly,
}

impl Pressure {
    pub const ALL: [Self; 4] = [Self::Fine, Self::High, Self::Refusing, Self::InboundOnly];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::High => "high",
            Self::Refusing => "refusing",
            Self::InboundOnly => "inbound_only",
        }
    }

    /// Back from its place in [`Self::ALL`]; anything else is the worst.
    pub fn from_index(index: u8) -> Self {
        Self::ALL
            .get(usize::from(index))
            .copied()
            .unwrap_or(Self::InboundOnly)
    }

    pub fn index(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::High => 1,
            Self::Refusing => 2,
            Self::InboundOnly => 3,
        }
    }
}

/// What was measured, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// Held by the store, without pages that wait to be used again; by the outbox where a closer look was taken.
    pub used: u64,
    /// Room for more; `None` where that cannot be known.
    pub free: Option<u64>,
}

/// What becomes of a message on this disk beside its row in the outbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copies {
    /// Our own broker keeps one.
    pub at_broker: bool,
    /// Mailboxes of this home that may get one each.
    pub inboxes: u64,
}

impl Copies {
    /// Bytes of the disk that each byte of a new message takes in the end: in the outbox, in the log on the way
    /// there, and its copies.
    fn of_new(self) -> u64 {
        2 + u64::from(self.at_broker) + self.inboxes
    }
}

/// What accepted messages will still take of the disk, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Owed {
    pub broker: u64,
    pub inbox: u64,
}

impl Owed {
    pub fn all(self) -> u64 {
        self.broker.saturating_add(self.inbox)
    }
}

/// A file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem {
    pub size: u64,
    pub free: u64,
}

impl FileSystem {
    /// Whether every byte of it is counted.
    pub fn is_short(self) -> bool {
        self.free < DISK_FREE_ENOUGH
    }

    /// What is left to the logs of databases, and never filled with messages or words.
    pub fn log_room(self) -> u64 {
        (self.size / 16).clamp(LOG_ROOM_MIN, LOG_ROOM_MAX)
    }

    /// Where not even a short log has room: nothing new is promised, whatever a file has to spare.
    pub fn is_full(self) -> bool {
        self.free < self.log_room() / 4
    }

    /// Where so little is left that it is kept for deletes: each of them writes a little before it gives something back.
    pub fn is_for_deletes(self) -> bool {
        self.free < self.log_room() / 2
    }

    /// Room for messages beside what the file has to spare.
    pub fn room(self) -> u64 {
        if self.is_short() {
            self.free.saturating_sub(self.log_room())
        } else {
            self.free
        }
    }

    /// Bytes of new messages that may be accepted until the next look, so that each of them and everything that
    /// was accepted before can go all of its way. The store can use again what it has to spare; a broker cannot.
    pub fn new_max(self, spare: u64, owed: Owed, copies: Copies) -> u64 {
        if self.is_full() {
            return 0;
        }
        let room = self.free.saturating_sub(self.log_room());
        let room_of_all = room.saturating_add(spare).saturating_sub(owed.all());
        let new = room_of_all / copies.of_new();
        if copies.at_broker {
            // Once in its file, and as much in logs.
            new.min(room.saturating_sub(owed.broker) / 2)
        } else {
            new
        }
    }

    /// By how much the file of our own broker may grow until the next look. What is left to logs stays but for the
    /// little that marks and sessions need.
    pub fn broker_growth_max(self) -> Option<u64> {
        let on_top = if self.free < self.log_room() / 2 {
            0
        } else {
            self.log_room() / 16
        };
        // Most of the room: what was accepted is counted, and must not be refused there.
        let bytes = self.room() / 4 * 3 + on_top;
        self.is_short().then_some(bytes)
    }

    /// By how much the store's file may grow until the next look; `None` where nobody counts.
    ///
    /// What grows is written twice, to the log and then to the file: half of the room, so that whatever was
    /// committed can be moved into the file. A log that cannot be moved would never give its room back. A
    /// little comes on top, of what is left to logs: pages around the message, and marks where no room is.
    pub fn growth_max(self) -> Option<u64> {
        let on_top = if self.is_full() {
            0
        } else {
            self.log_room().min(self.free) / 4
        };
        let bytes = self.room() / 2 + on_top;
        self.is_short().then_some(bytes)
    }

    /// How much a log of words may hold that holds this much now; `None` where it must not grow at all.
    pub fn words_max(self, held: u64) -> Option<u64> {
        if !self.is_short() {
            return Some(u64::MAX);
        }
        let room = self.room();
        (room > 0).then(|| held.saturating_add(room) / 8)
    }
}

/// The limit that applies, or `None` where there is plenty.
pub fn limit_bytes(measured: Measured, budget: Option<u64>) -> Option<u64> {
    match (budget, measured.free) {
        (Some(budget), _) => Some(budget),
        (None, Some(free)) if free < DISK_FREE_ENOUGH => Some(measured.used.saturating_add(free)),
        (None, _) => None,
    }
}

pub fn pressure(measured: Measured, budget: Option<u64>) -> Pressure {
    let Some(limit) = limit_bytes(measured, budget) else {
        return Pressure::Fine;
    };
    let used = u128::from(measured.used) * 100;
    let limit = u128::from(limit);
    if used >= limit * 100 {
        Pressure::InboundOnly
    } else if used >= limit * u128::from(DISK_REFUSE_PERCENT) {
        Pressure::Refusing
    } else if used >= limit * u128::from(DISK_HIGH_PERCENT) {
        Pressure::High
    } else {
        Pressure::Fine
    }
}

/// Whether a message of so many bytes may still be taken, where the outbox holds `used` of its budget: not from the
/// step on at which new sends are refused, and never beyond the budget.
pub fn has_room(used: u64, more: u64, budget: u64) -> bool {
    let measured = Measured { used, free: None };
    pressure(measured, Some(budget)) < Pressure::Refusing && used.saturating_add(more) <= budget
}

/// Pages of a log from which it is moved into its file: by an idle writer, and by a busy one.
///
/// A log takes its own room and, when it is moved, as much again in the file. On a disk of a few megabytes
/// a log of the usual length would be the disk: not even giving payloads back would have room.
pub fn log_pages(free_bytes: u64) -> (u32, u32) {
    const PAGE_BYTES: u64 = 4096;
    let share = |part: u64, min: u64, max: u64| {
        let pages = (free_bytes / part / PAGE_BYTES).clamp(min, max);
        u32::try_from(pages).unwrap_or(u32::MAX)
    };
    (share(128, 8, 1_000), share(32, 32, 8_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_has_steps_at_80_95_and_100_percent() {
        for (used, expected) in [
            (0, Pressure::Fine),
            (799, Pressure::Fine),
            (800, Pressure::High),
            (949, Pressure::High),
            (950, Pressure::Refusing),
            (999, Pressure::Refusing),
            (1000, Pressure::InboundOnly),
            (u64::MAX, Pressure::InboundOnly),
        ] {
            // With a budget the free space is no matter.
            for free in [None, Some(0), Some(u64::MAX)] {
                let measured = Measured { used, free };
                assert_eq!(pressure(measured, Some(1000)), expected, "{used}");
            }
        }
    }

    #[test]
    fn without_a_budget_a_large_disk_is_never_full_and_a_small_one_is() {
        let of = |used, free| pressure(Measured { used, free }, None);
        assert_eq!(of(u64::MAX / 2, Some(DISK_FREE_ENOUGH)), Pressure::Fine);
        assert_eq!(of(1000, None), Pressure::Fine);
        assert_eq!(of(1000, Some(1000)), Pressure::Fine);
        assert_eq!(of(1000, Some(250)), Pressure::High);
        assert_eq!(of(1000, Some(50)), Pressure::Refusing);
        assert_eq!(of(1000, Some(0)), Pressure::InboundOnly);
    }

    #[test]
    fn a_budget_is_never_passed_and_nothing_is_taken_from_95_percent_on() {
        for (used, more, expected) in [
            (0, 1000, true),
            (0, 1001, false),
            (949, 51, true),
            (949, 52, false),
            (950, 1, false),
            (u64::MAX, 1, false),
            (1, u64::MAX, false),
        ] {
            assert_eq!(has_room(used, more, 1000), expected, "{used} + {more}");
        }
    }

    #[test]
    fn a_step_survives_its_number() {
        for (index, step) in Pressure::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(step.index()), index);
            assert_eq!(Pressure::from_index(step.index()), step);
        }
        assert_eq!(Pressure::from_index(9), Pressure::InboundOnly);
    }

    #[test]
    fn a_short_disk_keeps_room_for_its_logs_and_lets_a_file_grow_by_half_of_the_rest() {
        let mb = 1 << 20;
        let large = FileSystem {
            size: u64::MAX,
            free: DISK_FREE_ENOUGH,
        };
        assert_eq!((large.room(), large.growth_max()), (DISK_FREE_ENOUGH, None));
        assert_eq!(large.broker_growth_max(), None);
        assert_eq!(large.words_max(7), Some(u64::MAX));
        let tiny = |free| FileSystem { size: 6 * mb, free };
        let kept = tiny(0).log_room();
        assert_eq!(kept, 6 * mb / 16);
        for free in [0, 1, kept / 4, kept, kept + 1, 2 * mb, 6 * mb] {
            let disk = tiny(free);
            let growth = disk.growth_max().unwrap();
            // Once in the log, once in the file, and the logs have half of their room still.
            assert!(2 * growth + kept.min(free) / 2 <= free, "{free}");
            assert!(growth > 0 || free < 4, "{free}");
            // A message that has room at the door has room at the broker, when it lies in the outbox and its log.
            let home = Copies {
                at_broker: true,
                inboxes: 1,
            };
            let message = disk.new_max(0, Owed::default(), home);
            let then = tiny(free - 2 * message).broker_growth_max().unwrap();
            assert!(then >= message, "{free}: {then}");
            assert_eq!(disk.is_full(), free < kept / 4);
            assert!(disk.words_max(0).unwrap_or(0) <= disk.room() / 8);
            assert_eq!(disk.words_max(mb).is_none(), free <= kept, "{free}");
        }
        let huge = FileSystem {
            size: u64::MAX,
            free: 5 * mb,
        };
        assert_eq!(huge.log_room(), LOG_ROOM_MAX);
        assert_eq!(FileSystem { size: 0, free: 0 }.log_room(), LOG_ROOM_MIN);
    }

    #[test]
    fn no_more_is_taken_than_can_go_all_of_its_way() {
        let mb = 1 << 20;
        let home = Copies {
            at_broker: true,
            inboxes: 1,
        };
        let disk = |free| FileSystem {
            size: 24 * mb,
            free,
        };
        let kept = disk(0).log_room();
        for free in [0, kept - 1, kept, kept + 1, 4 * mb, 9 * mb, 24 * mb] {
            for spare in [0, mb, 20 * mb] {
                for owed in [0, 60_000, mb, 8 * mb] {
                    let owed = Owed {
                        broker: owed,
                        inbox: owed,
                    };
                    let new = disk(free).new_max(spare, owed, home);
                    if new == 0 {
                        continue;
                    }
                    // The store's two copies, as far as it has nothing to spare for them; the broker's; a log.
                    let store = (2 * new + owed.inbox).saturating_sub(spare);
                    let all = store + new + owed.broker + new;
                    assert!(all + kept <= free, "{free} {spare} {owed:?}: {new}");
                }
            }
        }
        let free = |free| disk(free).new_max(0, Owed::default(), home);
        assert_eq!((free(kept), free(kept + 400)), (0, 100));
        // Elsewhere the broker's copy is not ours to count, nor are other people's inboxes.
        let away = disk(kept + 400).new_max(0, Owed::default(), Copies::default());
        assert_eq!(away, 200);
        let many = Copies { inboxes: 7, ..home };
        assert_eq!(disk(kept + 400).new_max(0, Owed::default(), many), 40);
    }

    #[test]
    fn a_log_is_short_on_a_small_disk_and_as_usual_on_any_other() {
        assert_eq!(log_pages(0), (8, 32));
        assert_eq!(log_pages(6 << 20), (12, 48));
        assert_eq!(log_pages(1 << 30), (1_000, 8_000));
        assert_eq!(log_pages(u64::MAX), (1_000, 8_000));
    }
}
