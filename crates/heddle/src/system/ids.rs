//! Ids from the system's randomness: the one place that asks the machine for random bytes.

use std::sync::{Arc, Mutex, PoisonError};

use heddle_core::clock::{Clock, Ids};
use ulid::Ulid;
use uuid::Uuid;

/// Ids rise within a process even when the wall clock stands still or goes back.
pub struct SystemIds {
    clock: Arc<dyn Clock>,
    last: Mutex<Ulid>,
    pool: Mutex<Pool>,
}

/// Random bytes fetched ahead: one system call serves many ids. Bytes are given out once.
struct Pool {
    bytes: [u8; POOL_BYTES],
    used: usize,
}

const POOL_BYTES: usize = 1024;

impl SystemIds {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            last: Mutex::new(Ulid::nil()),
            pool: Mutex::new(Pool {
                bytes: [0; POOL_BYTES],
                used: POOL_BYTES,
            }),
        }
    }

    /// Sixteen bytes for an id. Secrets are filled directly, never from here.
    fn pooled(&self) -> [u8; 16] {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.used + 16 > POOL_BYTES {
            self.fill(&mut pool.bytes);
            pool.used = 0;
        }
        let mut random = [0; 16];
        random.copy_from_slice(&pool.bytes[pool.used..pool.used + 16]);
        pool.used += 16;
        random
    }

    fn wall_ms(&self) -> u64 {
        u64::try_from(self.clock.wall().0).unwrap_or(0)
    }
}

impl Ids for SystemIds {
    fn ulid(&self) -> Ulid {
        let random = self.pooled();
        let fresh = Ulid::from_parts(self.wall_ms(), u128::from_le_bytes(random));
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // The same millisecond, or a clock that went back: one more than the last one given.
        let next = if fresh > *last {
            fresh
        } else {
            last.increment().unwrap_or(fresh)
        };
        *last = next;
        next
    }

    fn uuid_v7(&self) -> Uuid {
        let mut random = [0; 10];
        self.fill(&mut random);
        uuid::Builder::from_unix_timestamp_millis(self.wall_ms(), &random).into_uuid()
    }

    /// Without randomness there are no safe ids and no safe tokens: the process must not go on.
    #[allow(clippy::expect_used)]
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the system gives random bytes");
    }
}

#[cfg(test)]
mod tests {
    use heddle_core::clock::{ManualClock, WallMs};

    use super::*;

    #[test]
    fn ids_rise_while_the_clock_stands_still_or_goes_back() {
        let clock = Arc::new(ManualClock::at(WallMs(1_000_000)));
        let ids = SystemIds::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let mut last = ids.ulid();
        for step in 0..1000 {
            if step == 500 {
                clock.set_wall(WallMs(5));
            }
            let next = ids.ulid();
            assert!(next > last);
            last = next;
        }
    }
}
