//! Where time, ids and randomness enter: two traits, and manual versions for tests.
//!
//! The system versions live in the binary (`heddle/src/system`). Nothing else may ask the
//! machine for the time or for random bytes, so a test can run years in a second and replay a seed.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use ulid::Ulid;
use uuid::Uuid;

/// Always with milliseconds, so that times sort as text.
const RFC3339_MS: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// Wall-clock time in milliseconds since 1970. For people and for records; never for durations (C18).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallMs(pub i64);

/// The years 0000 to 9999.
const FIRST_MS: i64 = -62_167_219_200_000;
const LAST_MS: i64 = 253_402_300_799_999;

impl WallMs {
    /// RFC 3339 in UTC, as every surface shows it. A time outside of what that can say shows as its first or last moment.
    pub fn to_rfc3339(self) -> String {
        let shown = self.0.clamp(FIRST_MS, LAST_MS);
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(shown) * 1_000_000)
            .ok()
            .and_then(|t| t.format(&RFC3339_MS).ok())
            .unwrap_or_else(|| format!("{}ms", self.0))
    }

    /// A time as people type it: RFC 3339, or a day, which begins at midnight in UTC.
    pub fn parse_time(text: &str) -> Option<Self> {
        let is_day = text.len() == 10 && text.bytes().filter(|byte| *byte == b'-').count() == 2;
        if is_day {
            return Self::parse_rfc3339(&format!("{text}T00:00:00Z"));
        }
        Self::parse_rfc3339(text)
    }

    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let nanos = OffsetDateTime::parse(text, &Rfc3339)
            .ok()?
            .unix_timestamp_nanos();
        i64::try_from(nanos / 1_000_000).ok().map(Self)
    }
}

/// Time since the machine was started, sleep included, and which start that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootTime {
    pub boot: u128,
    pub since: Duration,
}

/// Time. `mono` never goes back and knows nothing of the wall; durations are measured with it alone.
pub trait Clock: Send + Sync + 'static {
    fn wall(&self) -> WallMs;
    /// Time since an arbitrary fixed point in this process.
    fn mono(&self) -> Duration;
    /// Where the machine can tell.
    fn boot(&self) -> Option<BootTime> {
        None
    }
}

/// Fresh ids and random bytes.
pub trait Ids: Send + Sync + 'static {
    /// Time-ordered, rising within this process.
    fn ulid(&self) -> Ulid;
    /// Time-ordered, for ops.
    fn uuid_v7(&self) -> Uuid;
    fn fill(&self, bytes: &mut [u8]);

    /// A number in `0..bound`; 0 when the bound is 0.
    fn below(&self, bound: u64) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        // The bias of a plain remainder is below 2^-40 for every bound that we use.
        u64::from_le_bytes(bytes).checked_rem(bound).unwrap_or(0)
    }
}

/// A clock that moves only when told. Wall and monotonic time move apart at will.
#[derive(Debug)]
pub struct ManualClock {
    wall_ms: AtomicI64,
    mono_ms: AtomicU64,
}

impl ManualClock {
    pub fn at(wall: WallMs) -> Self {
        Self {
            wall_ms: AtomicI64::new(wall.0),
            mono_ms: AtomicU64::new(0),
        }
    }

    /// Time passes for both clocks.
    pub fn advance(&self, by: Duration) {
        let ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.mono_ms.fetch_add(ms, Ordering::SeqCst);
        self.wall_ms
            .fetch_add(i64::try_from(ms).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Somebody sets the wall clock; no time passes.
    pub fn set_wall(&self, wall: WallMs) {
        self.wall_ms.store(wall.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> WallMs {
        WallMs(self.wall_ms.load(Ordering::SeqCst))
    }

    fn mono(&self) -> Duration {
        Duration::from_millis(self.mono_ms.load(Ordering::SeqCst))
    }
}

/// Ids from a seed: the same seed gives the same ids.
#[derive(Debug)]
pub struct ManualIds {
    state: AtomicU64,
}

impl ManualIds {
    pub fn seeded(seed: u64) -> Self {
        Self {
            state: AtomicU64::new(seed),
        }
    }

    /// SplitMix64: one addition and three mixes, enough for tests.
    fn next(&self) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15_u64;
        let mut z = self
            .state
            .fetch_add(step, Ordering::SeqCst)
            .wrapping_add(step);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Undoes the step: how many draws there were since seed 0, folded into 32 bits.
    fn ticks(&self) -> u64 {
        self.state
            .load(Ordering::SeqCst)
            .wrapping_mul(0xf1de_83e1_9937_733d)
            & 0xffff_ffff
    }
}

impl Ids for ManualIds {
    fn ulid(&self) -> Ulid {
        let random = u128::from(self.next()) << 64 | u128::from(self.next());
        Ulid::from_parts(self.ticks(), random)
    }

    fn uuid_v7(&self) -> Uuid {
        let mut random = [0; 10];
        self.fill(&mut random);
        uuid::Builder::from_unix_timestamp_millis(self.ticks(), &random).into_uuid()
    }

    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_round_trips() {
        let at = WallMs(1_794_000_000_123);
        assert_eq!(at.to_rfc3339(), "2026-11-06T21:20:00.123Z");
        assert_eq!(WallMs::parse_rfc3339(&at.to_rfc3339()), Some(at));
        assert_eq!(WallMs(0).to_rfc3339(), "1970-01-01T00:00:00.000Z");
        // Whatever somebody says the time was, what is shown is a time.
        for (at, shown) in [
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
            ((1 << 53) - 1, "9999-12-31T23:59:59.999Z"),
            (i64::MIN, "0000-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(WallMs(at).to_rfc3339(), shown);
            assert!(WallMs::parse_rfc3339(shown).is_some(), "{shown}");
        }
        assert_eq!(WallMs::parse_rfc3339("yesterday"), None);
    }

    #[test]
    fn a_day_is_a_time_too_and_begins_at_midnight() {
        let midnight = WallMs::parse_rfc3339("2026-11-16T00:00:00Z");
        assert!(midnight.is_some());
        assert_eq!(WallMs::parse_time("2026-11-16"), midnight);
        let later = WallMs::parse_rfc3339("2026-11-16T09:30:00+01:00");
        assert_eq!(WallMs::parse_time("2026-11-16T09:30:00+01:00"), later);
        for bad in [
            "2026-11-31",
            "2026-13-01",
            "16-11-2026",
            "2026-11-1",
            "yesterday!",
            "----------",
            "ää-ää-ä",
        ] {
            assert_eq!(WallMs::parse_time(bad), None, "{bad}");
        }
    }

    #[test]
    fn c18_setting_the_wall_moves_no_duration() {
        let clock = ManualClock::at(WallMs(0));
        clock.advance(Duration::from_secs(1));
        clock.set_wall(WallMs(-86_400_000));
        assert_eq!(clock.mono(), Duration::from_secs(1));
        assert_eq!(clock.wall(), WallMs(-86_400_000));
    }

    #[test]
    fn the_same_seed_gives_the_same_ids() {
        let (a, b) = (ManualIds::seeded(7), ManualIds::seeded(7));
        for _ in 0..100 {
            assert_eq!(a.ulid(), b.ulid());
            assert_eq!(a.uuid_v7(), b.uuid_v7());
            assert!(a.below(10) < 10);
            b.below(10);
        }
        assert_eq!(a.below(0), 0);
    }
}
