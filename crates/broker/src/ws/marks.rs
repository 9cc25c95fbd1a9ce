//! What has been seen of the histories, and whether they are still what they were.
//!
//! Whoever puts an older store in the place of a newer one makes it give places out twice. Who notices: a member, by what its
//! home has seen; and the broker itself, by marks that it keeps outside of its store, and compares when it starts and as long
//! as it runs. Either way it is the store's own rows that decide, and this broker alone that begins an epoch (T-31).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use heddle_core::ids::{HistoryId, IdKey, MemberId, MeshId};
use heddle_core::witness::{Witness, remember};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Shared;
use crate::limiter::Limiter;
use crate::storage::{Parted, Seen, Storage, StorageError};

/// What a broker has seen of its histories, by mesh.
pub type Marks = BTreeMap<MeshId, Vec<Witness>>;

/// How often they are looked at: what was accepted since is what goes unnoticed.
const EVERY: Duration = Duration::from_secs(5);

/// How long that may take: a broker that stops waits for it.
const LOOK_MAX: Duration = Duration::from_secs(4);

/// Between two histories of a mesh that part by the word of members. New places for all that was given out twice are work
/// for everybody, and a member may lie: its word counts so often and no more. One that is true counts the next time.
const PAUSE: Duration = Duration::from_secs(600);

/// Who has seen something.
#[derive(Debug, Clone, Copy)]
pub(super) enum By {
    Member(MemberId),
    /// This broker, or one that had this folder before it.
    Marks,
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(member) => write!(f, "member {member}"),
            Self::Marks => f.write_str("the marks of this broker"),
        }
    }
}

/// Begins a new epoch where the history is not what was seen of it, or has not come so far.
pub(super) async fn compare<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    mesh: MeshId,
    (seen, witnesses): (HistoryId, Vec<Witness>),
    by: By,
) -> Result<Option<Parted>, StorageError> {
    let storage = shared.storage();
    if matches!(by, By::Member(_)) {
        entered(shared).insert(mesh);
    }
    let parted = if !witnesses.is_empty() && may_part(shared, mesh, by) {
        storage.part(mesh, witnesses).await?
    } else {
        None
    };
    if let Some(parted) = parted {
        if let Some(seen) = storage.seen() {
            seen.forget(mesh, &parted);
        }
        if matches!(by, By::Member(_)) {
            parted_at(shared).insert(mesh, shared.accept.clock.mono());
        }
        tell(mesh, by, parted);
        shared.look_again(mesh);
    }
    // Places that this history has not reached: they must not be given out again.
    if storage.raise_epoch_beyond(mesh, seen).await? {
        shared.look_again(mesh);
        if storage.epochs(mesh).await?.ends.is_empty() {
            // As it is with a mesh that has moved here.
            tracing::info!(%mesh, %by, %seen, "a mesh without a history goes on in an epoch behind what was seen of it");
        } else {
            metrics::counter!("heddle_broker_histories_parted_total").increment(1);
            tracing::warn!(%mesh, %by, %seen, "more was seen than this store holds: it is an earlier copy of itself; a new epoch has begun");
        }
    }
    Ok(parted)
}

/// Whether this word counts now. The broker's own always does.
fn may_part<S, L>(shared: &Shared<S, L>, mesh: MeshId, by: By) -> bool {
    let last = parted_at(shared).get(&mesh).copied();
    let is_soon = |last| shared.accept.clock.mono().saturating_sub(last) < PAUSE;
    matches!(by, By::Marks) || !last.is_some_and(is_soon)
}

fn parted_at<S, L>(shared: &Shared<S, L>) -> MutexGuard<'_, BTreeMap<MeshId, Duration>> {
    let parted = shared.parted_at.lock();
    parted.unwrap_or_else(PoisonError::into_inner)
}

fn tell(mesh: MeshId, by: By, parted: Parted) {
    let Parted {
        after,
        epoch,
        moved,
        is_left,
    } = parted;
    metrics::counter!("heddle_broker_histories_parted_total").increment(1);
    if is_left {
        tracing::error!(%mesh, %by, %after, moved, "this store is an earlier copy of itself, and has given out too many places again to give them new ones; whoever has seen the old ones keeps both messages");
    } else {
        tracing::warn!(%mesh, %by, %after, epoch, moved, "this store is an earlier copy of itself that went on: other messages were seen at places behind this one; those that stand there now have places in a new epoch");
    }
}

/// Before anybody is served.
pub(super) async fn compare_all<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    marks: &Marks,
) -> Result<(), StorageError> {
    for (mesh, _) in shared.storage().meshes().await? {
        if let Some(seen) = marks.get(&mesh) {
            compare_marks(shared, mesh, seen.clone()).await?;
        }
    }
    Ok(())
}

async fn compare_marks<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    mesh: MeshId,
    seen: Vec<Witness>,
) -> Result<Option<Parted>, StorageError> {
    let newest = seen.iter().map(|one| one.place).max();
    let newest = newest.unwrap_or(HistoryId::ZERO);
    compare(shared, mesh, (newest, seen), By::Marks).await
}

/// Until the broker stops, and once more then. `keep` puts them where they outlive the store.
pub(super) async fn run<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    mut marks: Marks,
    keep: impl Fn(&Marks) + Send,
    shutdown: CancellationToken,
) {
    if let Some(process) = shared.storage().seen() {
        for (mesh, seen) in &marks {
            let oldest_first = seen.iter().rev();
            oldest_first.for_each(|one| process.note(*mesh, *one));
        }
    }
    loop {
        let is_last = shutdown.run_until_cancelled(due(shared)).await.is_none();
        // Who was here and has gone since the last look may have sent something.
        let mut meshes = std::mem::take(&mut *entered(shared));
        let present = shared.hub.meshes();
        entered(shared).extend(&present);
        meshes.extend(present);
        meshes.extend(
            shared
                .storage()
                .seen()
                .into_iter()
                .flat_map(Seen::take_fallen),
        );
        let looked = timeout(LOOK_MAX, look_at_all(shared, &meshes, &mut marks)).await;
        if looked.unwrap_or(false) {
            keep(&marks);
        }
        if is_last {
            return;
        }
    }
}

/// At once where the store itself has found that it is an older one: until it was compared it accepts nothing.
async fn due<S: Storage, L: Limiter>(shared: &Shared<S, L>) {
    let Some(seen) = shared.storage().seen() else {
        return sleep(EVERY).await;
    };
    let _ = timeout(EVERY, seen.fell()).await;
}

fn entered<S, L>(shared: &Shared<S, L>) -> MutexGuard<'_, BTreeSet<MeshId>> {
    let entered = shared.entered.lock();
    entered.unwrap_or_else(PoisonError::into_inner)
}

/// True if there is something new to keep.
async fn look_at_all<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    meshes: &BTreeSet<MeshId>,
    marks: &mut Marks,
) -> bool {
    let mut has_changed = false;
    for mesh in meshes {
        let seen = marks.entry(*mesh).or_default();
        match look(shared, *mesh, seen).await {
            Ok(is_new) => has_changed |= is_new,
            Err(error) => tracing::debug!(%error, %mesh, "a history could not be marked"),
        }
    }
    has_changed
}

/// True if there is something new to keep.
async fn look<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    mesh: MeshId,
    seen: &mut Vec<Witness>,
) -> Result<bool, StorageError> {
    let mut known = seen.clone();
    let of_process = shared.storage().seen();
    known.extend(of_process.iter().flat_map(|process| process.of(mesh)));
    let newest = newest(shared.storage(), mesh).await?;
    if newest.is_some() && newest == known.iter().max().copied() {
        return Ok(add(seen, newest));
    }
    // IMPORTANT: before the new mark, which would speak for what the store has become.
    if let Some(parted) = compare_marks(shared, mesh, known).await? {
        seen.retain(|one| parted.keeps(one.place));
    }
    let newest = self::newest(shared.storage(), mesh).await?;
    if let Some((process, newest)) = of_process.zip(newest) {
        process.note(mesh, newest);
    }
    Ok(add(seen, newest))
}

/// The last place of a history, and whose message stands there; `None` where that cannot be said.
async fn newest<S: Storage>(storage: &S, mesh: MeshId) -> Result<Option<Witness>, StorageError> {
    let Some(end) = storage.epochs(mesh).await?.ends.last().copied() else {
        return Ok(None);
    };
    let rows = storage.history_after(mesh, end.before(), 1).await?;
    let row = rows.into_iter().find(|row| row.history_id == end);
    Ok(row.and_then(|row| row.id).map(|(sender, id)| Witness {
        place: end,
        id: IdKey::of(mesh, &sender, &id),
    }))
}

/// True if it was not there.
fn add(seen: &mut Vec<Witness>, newest: Option<Witness>) -> bool {
    match newest {
        Some(newest) if !seen.contains(&newest) => {
            remember(seen, newest);
            true
        }
        _ => false,
    }
}
