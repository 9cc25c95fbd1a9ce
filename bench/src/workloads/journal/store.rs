//! Stores of the run: filled once, read or added to in every round, by the library and by the product alike.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use heddle_core::clock::{BootTime, Clock, ManualIds, WallMs};
use heddle_journal::action::Action;
use heddle_journal::disk::RealDisk;
use heddle_journal::{Change, Journal, Who, World};
use serde_json::json;

use crate::error::{Outcome, While as _};
use crate::series::Series;

pub(super) const PAYLOAD_BYTES: usize = 2 << 10;
pub(super) const EVENTS: usize = 100_000;
/// Entities in one batch while a store is filled.
const FILL: usize = 1000;
const OPS: usize = 100;

pub(super) struct Store {
    pub(super) folder: PathBuf,
    pub(super) journal: Journal,
}

/// With the machine's own boot: a cache that says another one is not believed by the product, which would compare everything
/// first where a level store is to be measured.
#[derive(Debug)]
struct BenchClock {
    start: Instant,
    boot: Option<u128>,
}

impl BenchClock {
    fn start() -> Self {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let digits: String = text
            .unwrap_or_default()
            .chars()
            .filter(char::is_ascii_hexdigit)
            .collect();
        Self {
            start: Instant::now(),
            boot: u128::from_str_radix(&digits, 16).ok(),
        }
    }
}

impl Clock for BenchClock {
    fn wall(&self) -> WallMs {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let ms = since.map_or(0, |since| since.as_millis());
        WallMs(i64::try_from(ms).unwrap_or(i64::MAX))
    }

    fn mono(&self) -> Duration {
        self.start.elapsed()
    }

    fn boot(&self) -> Option<BootTime> {
        let since = self.start.elapsed();
        self.boot.map(|boot| BootTime { boot, since })
    }
}

impl Store {
    /// The store of a folder, made where there is none.
    pub(super) fn new(folder: &Path, seed: u64) -> Outcome<Self> {
        let world = World {
            disk: Arc::new(RealDisk),
            clock: Arc::new(BenchClock::start()),
            ids: Arc::new(ManualIds::seeded(seed)),
        };
        let who = Who {
            agent: "bench".to_owned(),
            ..Who::default()
        };
        let journal = Journal::init(world, &folder.join(".heddle"), who).or_fail("journal")?;
        Ok(Self {
            folder: folder.to_owned(),
            journal,
        })
    }

    /// So many events, over so many entities. The files of one pass over them are moved away before the next: what takes the place of a
    /// file frees an inode, and a file system that remembers 90,000 of those is slow for everything that is measured then.
    pub(super) fn fill(&self, events: usize, entities: usize) -> Outcome<()> {
        for first in (0..events).step_by(FILL) {
            if first > 0 && first % entities == 0 {
                let files = self.journal.layout().entities();
                std::fs::rename(&files, self.folder.join(format!("filled{first}")))?;
                std::fs::create_dir(files)?;
            }
            let one = |n: usize| change(n % entities, n / entities);
            let changes = (first..first + FILL).map(one).collect();
            self.journal.mutate_whole(changes).or_fail("filling")?;
        }
        Ok(())
    }

    /// P16: the median of a whole single-entity operation, projection included, in microseconds.
    pub(super) fn op(&self, round: usize) -> Outcome<f64> {
        let mut times = Series::default();
        for n in 0..OPS {
            let changes = vec![change(n * 7, round + 1)];
            let start = Instant::now();
            self.journal.mutate_whole(changes).or_fail("an operation")?;
            times.push(us(start));
        }
        Ok(times.median())
    }
}

pub(super) fn change(n: usize, rev: usize) -> Change {
    Change {
        item_type: "plan".to_owned(),
        item_id: Some(format!("pln_{n}")),
        action: Some(Action::Update),
        document: Some(json!({"title": "bench", "rev": rev, "body": "x".repeat(PAYLOAD_BYTES)})),
        summary: None,
    }
}

pub(super) fn us(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}
