//! What accepted messages will still take of a short disk: a copy at our own broker, and one in each inbox here.

use std::sync::Mutex;
use std::time::Duration;

use heddle_core::limits::DISK_ROW_BYTES;
use heddle_core::pressure::{Copies, FileSystem, Owed};
use heddle_store::StoreError;

use crate::shared::{Shared, lock};

/// Summing up takes at most this share of the time.
const SUM_SHARE: u32 = 20;

/// Bytes that had still to be sent when somebody last summed them up, and at the last look.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Owes {
    summed: u64,
    /// Counted as settled by then.
    summed_at: u64,
    sum_again: Duration,
    before: u64,
    before_at: u64,
}

/// What is owed now, where `settled` bytes were accepted so far. Nobody counts on a large disk, nor what others host.
pub(super) async fn look(
    shared: &Shared,
    around: Option<FileSystem>,
    owes: &Mutex<Owes>,
    settled: u64,
) -> (Copies, Owed) {
    let copies = copies(shared);
    if !copies.at_broker || !around.is_some_and(FileSystem::is_short) {
        return (copies, Owed::default());
    }
    let mut now = *lock(owes);
    let started = shared.clock.mono();
    if started >= now.sum_again {
        match sum(shared).await {
            Ok(bytes) => {
                let took = shared.clock.mono().saturating_sub(started);
                now.summed = bytes;
                now.summed_at = settled;
                now.sum_again = started + took * SUM_SHARE;
            }
            Err(error) => tracing::warn!(%error, "what waits in the outbox cannot be summed up"),
        }
    }
    let since = |at: u64| settled.saturating_sub(at);
    let waiting = now.summed.saturating_add(since(now.summed_at));
    // What the broker took meanwhile may not have come back to an inbox yet.
    let may_come = waiting.max(now.before.saturating_add(since(now.before_at)));
    (now.before, now.before_at) = (waiting, settled);
    *lock(owes) = now;
    let owed = Owed {
        broker: waiting,
        inbox: may_come.saturating_mul(copies.inboxes),
    };
    (copies, owed)
}

async fn sum(shared: &Shared) -> Result<u64, StoreError> {
    let mut bytes = 0_u64;
    for mesh in &shared.meshes {
        if mesh.is_hosted_here() {
            let (rows, waiting) = shared.store.outbox_waiting(mesh.mesh.mesh).await?;
            bytes = bytes.saturating_add(rows * DISK_ROW_BYTES + waiting);
        }
    }
    Ok(bytes)
}

/// The most that a message of this home may become here.
fn copies(shared: &Shared) -> Copies {
    let mut copies = Copies::default();
    for mesh in &shared.meshes {
        if mesh.is_hosted_here() {
            copies.at_broker = true;
            copies.inboxes = copies.inboxes.max(mesh.mailboxes_of_one());
        }
    }
    copies
}
