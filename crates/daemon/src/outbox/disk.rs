//! The disk: measured every second, after each prune, and whenever much was accepted since; asked with an atomic
//! load. What is accepted between two looks is counted, with the copies that will be made of it on this disk (our own
//! broker's, an inbox's) and of what was accepted before: a burst is no way around the disk, nor around a budget, and
//! whatever was accepted has the room for all of its way.
//!
//! Under pressure the payloads of rows that were delivered are given back first, oldest first: nobody
//! needs them any more, and their ids stay. So draining alone recovers. Where little is free, the store's file
//! may grow only so far that its log can always be moved into it: a burst between two looks finds the
//! disk full a little early, and never so full that nothing can be given back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use heddle_core::clock::WallMs;
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::MeshId;
use heddle_core::limits::{DISK_FREE_ENOUGH, PRUNE_ROWS_MAX, PRUNE_ROWS_MIN};
use heddle_core::outbox_status::OutboxStatus;
use heddle_core::pressure::{FileSystem, Measured, Pressure, limit_bytes, pressure};
use heddle_store::{PruneFilter, StoreError};
use heddle_wire::ipc::DiskView;
use heddle_wire::problem::Problem;
use tokio::sync::Notify;

use super::count::{Asks, Count, Reserved};
use super::growth::bound_growth;
use super::owed::{self, Owes};
use super::relief::Relief;
use super::{full, prune, steps};
use crate::shared::{Shared, lock};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After a refusal by count, where a look counts the whole outbox; and where it does not.
const LOOK_SOON: Duration = Duration::from_millis(100);
const LOOK_AT_ONCE: Duration = Duration::from_millis(10);
/// Stretches of the outbox that one look goes through for payloads to give back.
const STRETCHES_MAX: usize = 16;
/// Free bytes for each row that one transaction of a prune empties: its log then takes a small part of them.
const FREE_PER_PRUNED_ROW: u64 = 64 << 10;

/// How full it is, as it was last measured.
#[derive(Debug)]
pub(crate) struct Disk {
    folder: PathBuf,
    budget: Option<u64>,
    level: AtomicU8,
    /// What the last event said, shares of meshes included.
    told: AtomicU8,
    used: AtomicU64,
    /// Free on the file system; the most there can be where that is not known.
    free: AtomicU64,
    /// Not even a log has room: what a budget allows is no matter.
    is_full: AtomicBool,
    /// The last look found payloads that a prune would give back.
    has_dead: AtomicBool,
    /// Nothing was on its way when somebody last counted: delivered messages hold it, and give it back by themselves.
    nothing_waits: AtomicBool,
    /// Whether the store's file is held back from growing.
    pub(super) is_bounded: AtomicBool,
    /// Where the search for payloads to give back goes on.
    given_back_to: std::sync::Mutex<i64>,
    /// With a budget: the payloads up to an arrival, and their bytes.
    counted: std::sync::Mutex<(i64, BTreeMap<MeshId, u64>)>,
    /// What accepts have asked for since.
    counted_new: Count,
    /// What the outbox had still to send at the last looks.
    owes: std::sync::Mutex<Owes>,
    /// Somebody was refused by count: a look is due.
    look: Notify,
    pub(crate) relief: Relief,
}

impl Disk {
    pub(crate) fn new(folder: PathBuf, budget_mb: Option<u64>) -> Self {
        let budget = budget_mb.map(|mb| mb.saturating_mul(1 << 20));
        Self {
            folder,
            budget,
            level: AtomicU8::new(0),
            used: AtomicU64::new(0),
            free: AtomicU64::new(u64::MAX),
            told: AtomicU8::new(Pressure::Fine.index()),
            is_full: AtomicBool::new(false),
            has_dead: AtomicBool::new(false),
            nothing_waits: AtomicBool::new(false),
            is_bounded: AtomicBool::new(false),
            given_back_to: std::sync::Mutex::new(0),
            counted: std::sync::Mutex::default(),
            counted_new: Count::new(budget),
            owes: std::sync::Mutex::default(),
            look: Notify::new(),
            relief: Relief::default(),
        }
    }

    pub(crate) fn level(&self) -> Pressure {
        let measured = Pressure::from_index(self.level.load(Ordering::Relaxed));
        let measured = match self.counted_new.too_large() {
            None => measured,
            Some(_) => measured.max(Pressure::High),
        };
        let Some(budget) = self.budget else {
            return measured;
        };
        let used = self.counted_new.held();
        let level = measured.max(pressure(Measured { used, free: None }, Some(budget)));
        let tightest = self.counted_new.shares.tightest(used, budget);
        tightest.map_or(level, |(_, tightest)| level.max(tightest))
    }

    /// The mesh that has used up what the budget leaves to it, where the others have room still.
    fn tight_mesh(&self) -> Option<String> {
        let (used, budget) = (self.counted_new.held(), self.budget?);
        let all = pressure(Measured { used, free: None }, Some(budget));
        let (name, level) = self.counted_new.shares.tightest(used, budget)?;
        (level > all).then_some(name)
    }

    /// Counts a message and the copies that will be made of it before it is written.
    pub(crate) fn reserve(
        &self,
        asks: Asks,
        mesh: MeshId,
        bytes: usize,
    ) -> Result<Reserved<'_>, Problem> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let (reserved, is_look_due) = self.counted_new.reserve(asks, mesh, bytes);
        if is_look_due {
            self.look.notify_one();
        }
        reserved.ok_or_else(|| self.refusal())
    }

    /// Ends when much was counted since the last look, but not at once again: a look may go through the whole outbox.
    async fn asked_for(&self) {
        let soon = match self.budget {
            Some(_) => LOOK_SOON,
            None => LOOK_AT_ONCE,
        };
        tokio::time::sleep(soon).await;
        self.look.notified().await;
    }

    fn refusal(&self) -> Problem {
        let mut detail = self.figures();
        if self.is_by_budget() && self.tight_mesh().is_some() {
            detail.push_str("; the rest is kept for the other meshes");
        }
        let problem = Problem::new(ErrorCode::InsufficientStorage, detail);
        let next = match (self.is_by_budget(), self.can_prune()) {
            (true, true) => {
                "Give back what dead and aborted messages hold with `heddle daemon outbox prune --older-than 0s` (it says what it would do; they cannot be requeued afterwards), let the outbox drain (`heddle daemon outbox list` says what it waits for), or raise disk_budget_mb in config.toml; known ids are still answered."
            }
            (true, false) => {
                "Let the outbox drain (`heddle daemon outbox list` says what it waits for), or raise disk_budget_mb in config.toml; known ids are still answered."
            }
            (false, true) => {
                "Free some space on this disk, or give back what dead and aborted messages hold with `heddle daemon outbox prune --older-than 0s` (it says what it would do; they cannot be requeued afterwards); then send it again with the same id. Known ids are still answered."
            }
            (false, false) => {
                "Free some space on this disk (`heddle doctor` says what holds it); then send it again with the same id. Known ids are still answered."
            }
        };
        problem.next(next)
    }

    /// Whether it is the budget that is used up, and not the disk.
    fn is_by_budget(&self) -> bool {
        let level = Pressure::from_index(self.level.load(Ordering::Relaxed));
        let is_disk = self.is_full.load(Ordering::Relaxed)
            || self.counted_new.too_large().is_some()
            || self.budget.is_none();
        !is_disk || (self.budget.is_some() && level == Pressure::Fine)
    }

    /// Why nothing new is taken, where the pressure has come to that. One atomic load when it has not.
    pub(crate) fn refusal_for(&self, from: Pressure) -> Option<Problem> {
        if self.level.load(Ordering::Relaxed) < from.index() {
            return None;
        }
        Some(self.refusal())
    }

    /// The same for data that does not wait in the outbox: a budget is for what does.
    pub(crate) fn refusal_by_disk(&self) -> Option<Problem> {
        self.refusal_for(Pressure::Refusing)
            .filter(|_| !self.is_by_budget())
    }

    /// The same where data alone fills the disk between two looks: it is measured now. Data leaves room for a delete, or nobody
    /// could make any. No look where there is plenty.
    pub(crate) fn refusal_as_it_is_now(&self) -> Option<Problem> {
        if self.free.load(Ordering::Relaxed) >= DISK_FREE_ENOUGH {
            return None;
        }
        self.refusal_for_a_file()
    }

    /// And for a file, which may be as large as all that is free.
    pub(crate) fn refusal_for_a_file(&self) -> Option<Problem> {
        full::is_full(&self.folder).then(full::refusal)
    }

    /// After a refusal: whether to ask once more, because delivered messages have given something back meanwhile.
    pub(crate) async fn relieved(&self) -> bool {
        self.is_by_budget() && self.relief.comes(|| self.look.notify_one()).await
    }

    /// Whether so much more may come in that nobody here asked for: what people send goes first.
    pub(crate) fn has_room_for(&self, bytes: u64) -> bool {
        let free = self.free.load(Ordering::Relaxed);
        self.level() < Pressure::Refusing && free.saturating_sub(bytes) >= DISK_FREE_ENOUGH
    }

    /// Rows whose payloads one transaction gives back.
    pub(crate) fn prune_rows_max(&self) -> usize {
        let rows = self.free.load(Ordering::Relaxed) / FREE_PER_PRUNED_ROW;
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        rows.clamp(PRUNE_ROWS_MIN, PRUNE_ROWS_MAX)
    }

    /// Rows and bytes that one batch moves, of these: fewer where a long log would be the disk.
    pub(crate) fn batch_max(&self, items_max: usize, bytes_max: usize) -> (usize, usize) {
        let free = usize::try_from(self.free.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let items = (free >> 16).clamp(PRUNE_ROWS_MIN, items_max);
        (items, bytes_max.min(free / 16))
    }

    /// What is wrong, in a sentence.
    pub(crate) fn degraded(&self) -> Option<String> {
        // What was refused a moment ago must not be well here until the next look.
        let is_known = self.level() >= Pressure::Refusing && !self.is_by_budget();
        if !is_known && full::is_full(&self.folder) {
            return Some(full::FULL_NOW.to_owned());
        }
        let consequence = match self.level() {
            Pressure::Fine => return None,
            Pressure::High => "new sends are refused from 95 % on",
            Pressure::Refusing => "new sends are refused",
            Pressure::InboundOnly => "only what comes in is still kept",
        };
        // The budget is not used up as a whole: the other meshes have their part.
        let of_mesh = self.tight_mesh().filter(|_| self.is_by_budget());
        let consequence = of_mesh.map_or_else(
            || consequence.to_owned(),
            |mesh| match self.level() {
                Pressure::High => {
                    format!("mesh {mesh} has nearly used up what is not kept for the other meshes")
                }
                _ => format!(
                    "new sends to mesh {mesh} are refused; the rest is kept for the other meshes"
                ),
            },
        );
        let consequence = match self.counted_new.too_large() {
            Some(bytes) if self.level() == Pressure::High => format!(
                "a message of {} KB and its copies find no room",
                bytes.div_ceil(1 << 10)
            ),
            _ => consequence,
        };
        let next = match (!self.can_prune(), self.is_by_budget()) {
            (false, false) => {
                "Run `heddle daemon outbox prune --older-than 0s`, which says what it would give back, or free some space"
            }
            (false, true) => {
                "Run `heddle daemon outbox prune --older-than 0s`, which says what it would give back, or raise disk_budget_mb in config.toml"
            }
            (true, false) => {
                "What delivered messages held is given back already, their ids stay: free some space"
            }
            (true, true) if self.gives_back() => {
                "What delivered messages hold is given back by itself: look again in a moment"
            }
            (true, true) => {
                "Messages hold it that still wait: `heddle daemon outbox list` says what for; or raise disk_budget_mb in config.toml"
            }
        };
        Some(format!("{}; {consequence}. {next}", self.figures()))
    }

    /// The same for whoever decides what is to be done next.
    pub(crate) fn view(&self) -> Option<DiskView> {
        let level = self.level();
        (level > Pressure::Fine).then(|| DiskView {
            pressure: level.as_str().to_owned(),
            by: if self.is_by_budget() {
                "budget"
            } else {
                "disk"
            }
            .to_owned(),
            can_prune: self.can_prune(),
            gives_back: self.gives_back(),
        })
    }

    /// Payloads were given back: what was counted before is too much.
    pub(super) fn count_anew(&self) {
        *lock(&self.counted) = Default::default();
    }

    /// How many messages are on their way: what is said of a full budget depends on it.
    pub(crate) fn note_waiting(&self, rows: u64) {
        self.nothing_waits.store(rows == 0, Ordering::Relaxed);
    }

    fn gives_back(&self) -> bool {
        self.nothing_waits.load(Ordering::Relaxed) && !self.can_prune()
    }

    /// Whether a prune would give something back: what delivered messages held is given back without one.
    fn can_prune(&self) -> bool {
        self.has_dead.load(Ordering::Relaxed)
    }

    fn figures(&self) -> String {
        let mb = |bytes: u64| match bytes.saturating_mul(10) >> 20 {
            0 => "0".to_owned(),
            tenths if tenths < 100 => format!("{}.{}", tenths / 10, tenths % 10),
            _ => (bytes.saturating_add(1 << 19) >> 20).to_string(),
        };
        let used = self.used.load(Ordering::Relaxed);
        match self.budget {
            Some(budget) if self.is_by_budget() => format!(
                "the outbox holds {} MB of the {} MB that its budget allows",
                mb(self.counted_new.held()),
                mb(budget)
            ),
            // Others may have filled it: what the store holds says little.
            _ => format!(
                "the disk has {} MB left beside the {} MB of the store",
                mb(self.free.load(Ordering::Relaxed)),
                mb(used)
            ),
        }
    }
}

/// Measures until the daemon stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    while !shared.shutdown.is_cancelled() {
        refresh(&shared).await;
        if shared.disk.relief.is_wanted() || shared.disk.level() >= Pressure::High {
            shared.disk.relief.begins();
            give_back(&shared).await;
        }
        shared.disk.relief.has_looked();
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = shared.disk.asked_for() => {}
            () = shared.shutdown.cancelled() => {}
        }
    }
}

/// Measures now.
pub(crate) async fn refresh(shared: &Shared) {
    let disk = &shared.disk;
    // Before the measure: whatever is settled by now is in it.
    let settled = disk.counted_new.settled();
    let settled_shares = disk.counted_new.shares.settled();
    let usage = match shared.store.usage().await {
        Ok(usage) => usage,
        Err(error) => {
            tracing::warn!(%error, "the store's size cannot be measured");
            return;
        }
    };
    let used = usage.used_bytes;
    let around = file_system(&disk.folder).await;
    let (copies, owed) = owed::look(shared, around, &disk.owes, settled.disk).await;
    bound_growth(shared, around).await;
    let room = around.map(|around| around.room().saturating_add(usage.spare_bytes));
    // What messages on their way will still take is as good as taken.
    let mut measured = Measured {
        used: used.saturating_add(owed.all()),
        free: room.map(|room| room.saturating_sub(owed.all())),
    };
    // The budget is the outbox's, whatever else is in the file.
    if disk.budget.is_some() {
        match held_by_outbox(shared).await {
            Ok(held) => {
                measured.used = held
                    .values()
                    .fold(0, |all: u64, one| all.saturating_add(*one));
                let meshes = shared.meshes.iter().map(|mesh| {
                    let used = held.get(&mesh.mesh.mesh).copied().unwrap_or(0);
                    (mesh.mesh.mesh, mesh.mesh.name.to_string(), used)
                });
                disk.counted_new.shares.looked(&settled_shares, meshes);
            }
            Err(error) => tracing::warn!(%error, "the outbox's size cannot be measured"),
        }
    }
    let used = measured.used;
    let new_max = around.map(|around| around.new_max(usage.spare_bytes, owed, copies));
    disk.counted_new.looked(settled, used, new_max);
    let limit = limit_bytes(measured, disk.budget).unwrap_or(u64::MAX);
    let is_full = around.is_some_and(FileSystem::is_full);
    let level = match pressure(measured, disk.budget) {
        _ if is_full => Pressure::InboundOnly,
        level => level,
    };
    disk.is_full.store(is_full, Ordering::Relaxed);
    disk.used.store(used, Ordering::Relaxed);
    disk.free.store(
        around.map_or(u64::MAX, |around| around.free),
        Ordering::Relaxed,
    );
    disk.level.store(level.index(), Ordering::Relaxed);
    // A mesh that has used up its share is told like a budget that is used up: its sends are refused all the same.
    let level = disk.level();
    let before = Pressure::from_index(disk.told.swap(level.index(), Ordering::Relaxed));
    // A gauge is a double; files beyond 2^53 bytes are not met.
    #[allow(clippy::cast_precision_loss)]
    metrics::gauge!("heddle_outbox_disk_used_bytes").set(used as f64);
    metrics::gauge!("heddle_outbox_disk_pressure").set(f64::from(level.index()));
    if level != before {
        steps::say(shared, (before, level), used, limit);
    }
}

/// Bytes of the outbox's payloads. What came since the last look is added to what was counted before, which may
/// have shrunk meanwhile; where that would matter, all of it is counted anew.
async fn held_by_outbox(shared: &Shared) -> Result<BTreeMap<MeshId, u64>, StoreError> {
    let disk = &shared.disk;
    let (after, mut held) = lock(&disk.counted).clone();
    let (new, mut through) = shared.store.outbox_payload_bytes(after).await?;
    for (mesh, bytes) in new {
        let held = held.entry(mesh).or_default();
        *held = held.saturating_add(bytes);
    }
    let used = held
        .values()
        .fold(0, |all: u64, one| all.saturating_add(*one));
    let level = pressure(Measured { used, free: None }, disk.budget);
    if after > 0 && level.max(disk.level()) >= Pressure::High {
        (held, through) = shared.store.outbox_payload_bytes(0).await?;
    }
    *lock(&disk.counted) = (through, held.clone());
    Ok(held)
}

/// Empties payloads of delivered rows, as many as one look may.
async fn give_back(shared: &Shared) {
    let filter = PruneFilter {
        statuses: vec![OutboxStatus::Done],
        before: WallMs(i64::MAX),
        with_empty: false,
    };
    let after = *lock(&shared.disk.given_back_to);
    match prune::run(shared, filter, after, STRETCHES_MAX, prune::Prune::Empty).await {
        Ok(pruned) => {
            look_for_dead(shared).await;
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

/// Whether a prune would give something back.
pub(crate) async fn look_for_dead(shared: &Shared) {
    match shared.store.outbox_has_dead_payloads().await {
        Ok(has_dead) => shared.disk.has_dead.store(has_dead, Ordering::Relaxed),
        Err(error) => tracing::warn!(%error, "it cannot be looked for dead messages"),
    }
}

/// On a thread of its own: a network file system may take its time.
async fn file_system(folder: &Path) -> Option<FileSystem> {
    let folder = folder.to_owned();
    let stat = tokio::task::spawn_blocking(move || rustix::fs::statvfs(&folder)).await;
    let stat = stat.ok()?.ok()?;
    Some(FileSystem {
        size: stat.f_blocks.saturating_mul(stat.f_frsize),
        free: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}
