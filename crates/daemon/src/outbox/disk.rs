//! The disk budget: measured every second and after each prune, asked with one atomic load.
//!
//! Under pressure the payloads of rows that were delivered are given back first, oldest first: nobody
//! needs them any more, and their ids stay. So draining alone recovers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use heddle_core::clock::WallMs;
use heddle_core::error_code::ErrorCode;
use heddle_core::limits::DISK_FREE_ENOUGH;
use heddle_core::outbox_status::OutboxStatus;
use heddle_core::pressure::{Measured, Pressure, limit_bytes, pressure};
use heddle_store::PruneFilter;
use heddle_wire::ipc::PressureEvent;
use heddle_wire::problem::Problem;

use super::prune;
use crate::events::Event;
use crate::shared::{Shared, lock};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Stretches of the outbox that one look goes through for payloads to give back.
const STRETCHES_MAX: usize = 16;

/// How full it is, as it was last measured.
#[derive(Debug)]
pub(crate) struct Disk {
    folder: PathBuf,
    budget: Option<u64>,
    level: AtomicU8,
    used: AtomicU64,
    limit: AtomicU64,
    /// Free on the file system; the most there can be where that is not known.
    free: AtomicU64,
    /// Where the search for payloads to give back goes on.
    given_back_to: std::sync::Mutex<i64>,
}

impl Disk {
    pub(crate) fn new(folder: PathBuf, budget_mb: Option<u64>) -> Self {
        Self {
            folder,
            budget: budget_mb.map(|mb| mb.saturating_mul(1 << 20)),
            level: AtomicU8::new(0),
            used: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
            free: AtomicU64::new(u64::MAX),
            given_back_to: std::sync::Mutex::new(0),
        }
    }

    pub(crate) fn level(&self) -> Pressure {
        Pressure::from_index(self.level.load(Ordering::Relaxed))
    }

    /// Why nothing new is taken, where the pressure has come to that. One atomic load when it has not.
    pub(crate) fn refusal_for(&self, from: Pressure) -> Option<Problem> {
        if self.level.load(Ordering::Relaxed) < from.index() {
            return None;
        }
        let problem = Problem::new(ErrorCode::InsufficientStorage, self.figures());
        Some(problem.next("Let the outbox drain, or give payloads back with `heddle daemon outbox prune --confirm`; known ids are still answered."))
    }

    /// Whether so much more may come in that nobody here asked for: what people send goes first.
    pub(crate) fn has_room_for(&self, bytes: u64) -> bool {
        let free = self.free.load(Ordering::Relaxed);
        self.level() < Pressure::Refusing && free.saturating_sub(bytes) >= DISK_FREE_ENOUGH
    }

    /// What is wrong, in a sentence.
    pub(crate) fn degraded(&self) -> Option<String> {
        let consequence = match self.level() {
            Pressure::Fine => return None,
            Pressure::High => "new sends are refused from 95 % on",
            Pressure::Refusing => "new sends are refused",
            Pressure::InboundOnly => "only what comes in is still kept",
        };
        Some(format!(
            "{}; {consequence}. Run `heddle daemon outbox prune --confirm`, or free some space",
            self.figures()
        ))
    }

    fn figures(&self) -> String {
        let mb = |bytes: u64| bytes.saturating_add(1 << 19) >> 20;
        let used = self.used.load(Ordering::Relaxed);
        let limit = self.limit.load(Ordering::Relaxed);
        match self.budget {
            Some(_) => format!(
                "the outbox holds {} MB of the {} MB that its budget allows",
                mb(used),
                mb(limit)
            ),
            // Others may have filled it: what the store holds says little.
            None => format!(
                "the disk has {} MB left beside the {} MB of the store",
                mb(limit.saturating_sub(used)),
                mb(used)
            ),
        }
    }
}

/// Measures until the daemon stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    while !shared.shutdown.is_cancelled() {
        refresh(&shared).await;
        if shared.disk.level() >= Pressure::High {
            give_back(&shared).await;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = shared.shutdown.cancelled() => {}
        }
    }
}

/// Measures now.
pub(crate) async fn refresh(shared: &Shared) {
    let disk = &shared.disk;
    let used = match shared.store.usage_bytes().await {
        Ok(used) => used,
        Err(error) => {
            tracing::warn!(%error, "the store's size cannot be measured");
            return;
        }
    };
    let mut measured = Measured {
        used,
        free: free_bytes(&disk.folder).await,
    };
    // The budget is the outbox's. The whole file is quickly measured; only when that is too much is it
    // worth asking how much of it the outbox holds.
    if disk.budget.is_some() && pressure(measured, disk.budget) >= Pressure::High {
        match shared.store.outbox_payload_bytes().await {
            Ok(bytes) => measured.used = bytes.min(used),
            Err(error) => tracing::warn!(%error, "the outbox's size cannot be measured"),
        }
    }
    let used = measured.used;
    let limit = limit_bytes(measured, disk.budget).unwrap_or(u64::MAX);
    let level = pressure(measured, disk.budget);
    disk.used.store(used, Ordering::Relaxed);
    disk.free
        .store(measured.free.unwrap_or(u64::MAX), Ordering::Relaxed);
    disk.limit.store(limit, Ordering::Relaxed);
    let before = Pressure::from_index(disk.level.swap(level.index(), Ordering::Relaxed));
    // A gauge is a double; files beyond 2^53 bytes are not met.
    #[allow(clippy::cast_precision_loss)]
    metrics::gauge!("heddle_outbox_disk_used_bytes").set(used as f64);
    metrics::gauge!("heddle_outbox_disk_pressure").set(f64::from(level.index()));
    if level > before && before == Pressure::Fine {
        say_high(shared, level, used, limit);
    } else if level != before {
        tracing::warn!(
            level = level.as_str(),
            used,
            limit,
            "the outbox's disk pressure has changed"
        );
    }
}

fn say_high(shared: &Shared, level: Pressure, used: u64, limit: u64) {
    metrics::counter!("heddle_outbox_pressure_high_total").increment(1);
    tracing::warn!(level = level.as_str(), used, limit, "outbox_pressure_high");
    let event = PressureEvent {
        level: level.as_str().to_owned(),
        used_bytes: used,
        limit_bytes: limit,
        detail: shared.disk.degraded().unwrap_or_default(),
    };
    shared.events.publish(Event::OutboxPressureHigh(event));
}

/// Empties payloads of delivered rows, as many as one look may.
async fn give_back(shared: &Shared) {
    let filter = PruneFilter {
        statuses: vec![OutboxStatus::Done],
        before: WallMs(i64::MAX),
    };
    let after = *lock(&shared.disk.given_back_to);
    match prune::run(shared, filter, after, STRETCHES_MAX, true).await {
        Ok(pruned) => {
            // From the beginning again: rows in between may be done by then.
            *lock(&shared.disk.given_back_to) = pruned.next.unwrap_or(0);
            if pruned.rows > 0 {
                tracing::warn!(
                    rows = pruned.rows,
                    bytes = pruned.bytes,
                    "payloads of delivered rows were given back"
                );
                refresh(shared).await;
            }
        }
        Err(error) => tracing::warn!(%error, "payloads of delivered rows could not be given back"),
    }
}

/// On a thread of its own: a network file system may take its time.
async fn free_bytes(folder: &Path) -> Option<u64> {
    let folder = folder.to_owned();
    let stat = tokio::task::spawn_blocking(move || rustix::fs::statvfs(&folder)).await;
    let stat = stat.ok()?.ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}
