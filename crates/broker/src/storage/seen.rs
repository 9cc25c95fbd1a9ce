//! What a process has seen of its histories since it began: the newest places, and whose messages stand there.
//!
//! Somebody may put an older database in the place of the one that is in use, under brokers that keep running. A place
//! that was given out or pushed here and lies ahead of where the next message would go is a sign of that, and the row that
//! every accept locks or writes says where that is. So nothing is accepted there until the places have begun anew (ADR 13).
//! Memory alone: what outlives the process are the marks of the broker.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use heddle_core::ids::{HistoryId, IdKey, MeshId};
use heddle_core::witness::{Witness, remember};
use tokio::sync::Notify;

use super::error::StorageError;
use super::parting::Parted;
use super::rows::Delivery;

/// Meshes that anything is remembered of; with more of them it begins anew, and the marks are what is left.
const MESHES_MAX: usize = 1_024;

#[derive(Default)]
pub struct Seen {
    meshes: Mutex<HashMap<MeshId, Vec<Witness>>>,
    fallen: Mutex<BTreeSet<MeshId>>,
    fell: Notify,
}

impl Seen {
    /// A place that is committed. Only one that is newer than all others says anything new.
    pub fn note(&self, mesh: MeshId, one: Witness) {
        let mut meshes = self.lock();
        if meshes.len() >= MESHES_MAX && !meshes.contains_key(&mesh) {
            meshes.clear();
        }
        let known = meshes.entry(mesh).or_default();
        if known.first().is_none_or(|newest| newest.place < one.place) {
            remember(known, one);
        }
    }

    /// What is about to be pushed.
    pub(super) fn note_read(&self, mesh: MeshId, page: &[Delivery]) {
        let newest = page.iter().max_by_key(|one| one.history_id);
        if let Some(one) = newest.filter(|one| one.history_id > self.newest(mesh)) {
            let id = IdKey::of(mesh, &one.sender, &one.client_message_id);
            let place = one.history_id;
            self.note(mesh, Witness { place, id });
        }
    }

    /// The newest place of all.
    pub fn newest(&self, mesh: MeshId) -> HistoryId {
        let meshes = self.lock();
        let known = meshes.get(&mesh).and_then(|known| known.first());
        known.map_or(HistoryId::ZERO, |one| one.place)
    }

    /// All that is remembered, the newest first.
    pub fn of(&self, mesh: MeshId) -> Vec<Witness> {
        self.lock().get(&mesh).cloned().unwrap_or_default()
    }

    /// Whether the next message may stand at this place. If not, whoever waits for [`Self::fell`] hears of it.
    pub(super) fn check(&self, mesh: MeshId, next: HistoryId) -> Result<(), StorageError> {
        if next > self.newest(mesh) {
            return Ok(());
        }
        self.fallen().insert(mesh);
        self.fell.notify_one();
        let why = "it is an older copy of itself; places begin anew, and then it goes on";
        Err(StorageError::Unavailable(why.to_owned()))
    }

    /// Until a mesh has fallen behind what was seen of it.
    pub async fn fell(&self) {
        self.fell.notified().await;
    }

    /// Those that have, once.
    pub fn take_fallen(&self) -> BTreeSet<MeshId> {
        std::mem::take(&mut *self.fallen())
    }

    /// Places that are nobody's any more.
    pub fn forget(&self, mesh: MeshId, parted: &Parted) {
        if let Some(known) = self.lock().get_mut(&mesh) {
            known.retain(|one| parted.keeps(one.place));
        }
    }

    /// Nothing that can panic half way runs under these locks.
    fn lock(&self) -> MutexGuard<'_, HashMap<MeshId, Vec<Witness>>> {
        self.meshes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fallen(&self) -> MutexGuard<'_, BTreeSet<MeshId>> {
        self.fallen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::mesh;

    fn witness(seq: u64) -> Witness {
        Witness {
            place: HistoryId { epoch: 1, seq },
            id: IdKey([1; 24]),
        }
    }

    #[test]
    fn what_was_seen_is_bounded_and_a_place_that_was_seen_is_not_given_out_again() {
        let seen = Seen::default();
        let at = |epoch, seq| HistoryId { epoch, seq };
        assert_eq!(seen.check(mesh(1), at(1, 1)), Ok(()));
        for seq in [1, 9, 4, 9] {
            seen.note(mesh(1), witness(seq));
        }
        assert_eq!(seen.of(mesh(1)), [witness(9), witness(1)]);
        assert_eq!(seen.check(mesh(2), at(1, 1)), Ok(()), "another mesh");
        assert_eq!(seen.take_fallen(), BTreeSet::new());
        for (next, is_free) in [(at(1, 9), false), (at(1, 10), true), (at(2, 1), true)] {
            assert_eq!(seen.check(mesh(1), next).is_ok(), is_free, "{next}");
        }
        assert_eq!(seen.take_fallen(), [mesh(1)].into());
        assert_eq!(seen.take_fallen(), BTreeSet::new());
        let parted = Parted {
            after: at(1, 1),
            epoch: 2,
            moved: 3,
            is_left: true,
        };
        seen.forget(mesh(1), &parted);
        assert_eq!(seen.newest(mesh(1)), at(1, 1));
        for number in 0..3_000 {
            seen.note(mesh(number), witness(1));
        }
        assert!(seen.lock().len() <= MESHES_MAX);
    }
}
