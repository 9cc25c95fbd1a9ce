//! Who may be at the door of a broker at once, each kind within a bound of its own: those that have not said yet what they
//! want, requests for pages, daemons. None of them can take the places of another.
//!
//! A connection that says nothing holds its place only while there is room: where all are taken, the one that has had its
//! time longest is cut, so that nobody keeps the others out by silence.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use heddle_core::limits::{
    BROKER_ARRIVAL_PATIENCE, BROKER_ARRIVALS_MAX, BROKER_DAEMONS_MAX, BROKER_PAGES_MAX,
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Descriptors for the tables, the database, Redis, the log.
const DESCRIPTORS_KEPT: usize = 64;

pub struct Places {
    arrivals: Arc<Arrivals>,
    pages: Arc<Semaphore>,
    daemons: Arc<Semaphore>,
}

/// The place that a connection holds, and gives back when it is dropped.
#[allow(dead_code, reason = "held, and never looked at")]
pub enum Place {
    Arriving(Arrival),
    Taken(OwnedSemaphorePermit),
}

impl Places {
    pub fn new() -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = limit.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
        Self::within(limit)
    }

    /// Daemons stay connected, so it is they who must leave descriptors for the rest.
    fn within(descriptors: usize) -> Self {
        let rest = DESCRIPTORS_KEPT + BROKER_ARRIVALS_MAX + BROKER_PAGES_MAX;
        let daemons = BROKER_DAEMONS_MAX
            .min(descriptors.saturating_sub(rest))
            .max(1);
        Self {
            arrivals: Arc::new(Arrivals::default()),
            pages: Arc::new(Semaphore::new(BROKER_PAGES_MAX)),
            daemons: Arc::new(Semaphore::new(daemons)),
        }
    }

    /// A place for a connection that was taken now; waits for one. `now` is the time that passes evenly.
    pub async fn arrive(&self, now: impl Fn() -> Duration) -> Arrival {
        self.arrivals.enter(now).await
    }

    pub fn page(&self) -> Option<Place> {
        take(&self.pages, "page")
    }

    pub fn daemon(&self) -> Option<Place> {
        take(&self.daemons, "daemon")
    }
}

fn take(of: &Arc<Semaphore>, kind: &'static str) -> Option<Place> {
    let permit = Arc::clone(of).try_acquire_owned().ok();
    if permit.is_none() {
        refused(kind);
    }
    permit.map(Place::Taken)
}

fn refused(kind: &'static str) {
    metrics::counter!("heddle_broker_door_refused_total", "kind" => kind).increment(1);
}

/// Connections that have not said yet what they want, in the order in which they came.
#[derive(Default)]
struct Arrivals {
    waiting: Mutex<BTreeMap<u64, Waiting>>,
    numbers: AtomicU64,
    left: Notify,
}

struct Waiting {
    since: Duration,
    cut: CancellationToken,
}

/// One of them; the place is free again when it is dropped.
pub struct Arrival {
    of: Arc<Arrivals>,
    number: u64,
    /// Cancelled where somebody else needs the place.
    pub cut: CancellationToken,
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.of.lock().remove(&self.number);
        self.of.left.notify_one();
    }
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn enter(self: &Arc<Self>, now: impl Fn() -> Duration) -> Arrival {
        loop {
            let patience = match self.try_enter(now()) {
                Ok(arrival) => return arrival,
                Err(patience) => patience,
            };
            tokio::select! {
                () = self.left.notified() => {}
                () = tokio::time::sleep(patience) => {}
            }
        }
    }

    /// A place, or how long the one that came first may still take. One that has had its time makes room.
    fn try_enter(self: &Arc<Self>, now: Duration) -> Result<Arrival, Duration> {
        let mut waiting = self.lock();
        if waiting.len() >= BROKER_ARRIVALS_MAX
            && let Some(first) = waiting.first_entry()
        {
            let waited = now.saturating_sub(first.get().since);
            if waited < BROKER_ARRIVAL_PATIENCE {
                return Err(BROKER_ARRIVAL_PATIENCE.saturating_sub(waited));
            }
            first.remove().cut.cancel();
            refused("arrival");
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let cut = CancellationToken::new();
        let one = Waiting {
            since: now,
            cut: cut.clone(),
        };
        waiting.insert(number, one);
        Ok(Arrival {
            of: Arc::clone(self),
            number,
            cut,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn l_06_silence_keeps_nobody_out_and_whoever_came_a_moment_ago_is_not_cut() {
        let arrivals = Arc::new(Arrivals::default());
        let enter = |now| arrivals.try_enter(now);
        let mut all: Vec<Arrival> = (0..BROKER_ARRIVALS_MAX)
            .map(|_| enter(NOW).ok().unwrap())
            .collect();
        // Full, and everybody has just come: the next one waits, for as long as the first may take.
        let early = NOW + BROKER_ARRIVAL_PATIENCE / 2;
        assert_eq!(enter(early).err(), Some(BROKER_ARRIVAL_PATIENCE / 2));
        assert!(all.iter().all(|one| !one.cut.is_cancelled()));
        // One that says what it wants makes room at once.
        all.pop();
        let late = NOW + BROKER_ARRIVAL_PATIENCE;
        let fresh = enter(early).ok().unwrap();
        // Then it is the first that goes, and no other.
        let second = enter(late).ok().unwrap();
        let cut: Vec<bool> = all.iter().map(|one| one.cut.is_cancelled()).collect();
        assert!(cut[0] && !cut[1..].contains(&true));
        assert!(!fresh.cut.is_cancelled() && !second.cut.is_cancelled());
        // The one that was cut gives back no place that is another's by now.
        drop(all.remove(0));
        assert_eq!(arrivals.lock().len(), BROKER_ARRIVALS_MAX);
    }

    #[test]
    fn l_14_pages_and_daemons_have_places_of_their_own_also_where_descriptors_are_few() {
        for (descriptors, daemons) in [
            (usize::MAX, BROKER_DAEMONS_MAX),
            (65_536, BROKER_DAEMONS_MAX),
            (1024, BROKER_DAEMONS_MAX),
            (
                300,
                300 - DESCRIPTORS_KEPT - BROKER_ARRIVALS_MAX - BROKER_PAGES_MAX,
            ),
            (64, 1),
        ] {
            let places = Places::within(descriptors);
            let held: Vec<Place> = (0..daemons).map(|_| places.daemon().unwrap()).collect();
            assert!(places.daemon().is_none(), "{descriptors}");
            let pages: Vec<Place> = (0..BROKER_PAGES_MAX)
                .map(|_| places.page().unwrap())
                .collect();
            assert!(places.page().is_none());
            drop(held);
            assert!(places.daemon().is_some() && places.page().is_none());
            drop(pages);
            assert!(places.page().is_some());
        }
    }
}
