//! Vectors in memory, one matrix for each mesh and model, bounded as a whole.
//!
//! A matrix follows the table: it remembers up to which change it was read, and every search reads what
//! came since, in the snapshot of that search. Nothing has to be told about commits or rollbacks.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use heddle_core::ids::MeshId;
use heddle_core::vector::{Matrix, ModelFingerprint};

use super::labels::Unreadable;

pub(super) type Key = (MeshId, ModelFingerprint);

/// A matrix, and up to which change of the table it was read; `None` before the first time.
pub(super) struct Held {
    pub(super) through: Option<u64>,
    pub(super) matrix: Matrix,
    /// Live vectors whose numbers, key or owner cannot be right: a search goes on without them, and says so.
    pub(super) unreadable: Vec<Unreadable>,
}

/// Cheap to clone; all clones are one cache.
#[derive(Clone, Default)]
pub(crate) struct VectorCache(Arc<Mutex<Slots>>);

#[derive(Default)]
struct Slots {
    /// The longest unused first.
    slots: Vec<Slot>,
}

struct Slot {
    key: Key,
    bytes: usize,
    held: Arc<RwLock<Held>>,
}

impl VectorCache {
    pub(super) fn held(&self, key: Key, dim: usize) -> Arc<RwLock<Held>> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = match slots.slots.iter().position(|slot| slot.key == key) {
            Some(at) => slots.slots.remove(at),
            None => Slot {
                key,
                bytes: 0,
                held: Arc::new(RwLock::new(Held {
                    through: None,
                    matrix: Matrix::new(dim),
                    unreadable: Vec::new(),
                })),
            },
        };
        let held = Arc::clone(&slot.held);
        slots.slots.push(slot);
        held
    }

    /// Says how large it has become; the longest unused ones go until all fit into `bytes_max`.
    pub(super) fn account(&self, key: Key, bytes: usize, bytes_max: usize) {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.slots.iter_mut().find(|slot| slot.key == key) {
            slot.bytes = bytes;
        }
        let mut all: usize = slots.slots.iter().map(|slot| slot.bytes).sum();
        while all > bytes_max && slots.slots.len() > 1 {
            all -= slots.slots.remove(0).bytes;
        }
    }

    pub(super) fn forget(&self, key: Key) {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slots.slots.retain(|slot| slot.key != key);
    }
}

#[cfg(test)]
mod tests {
    use heddle_core::vector::hashed_identity;
    use ulid::Ulid;

    use super::*;

    #[test]
    fn the_longest_unused_matrices_make_room_and_the_last_one_stays() {
        let cache = VectorCache::default();
        let model = hashed_identity().unwrap().fingerprint();
        let keys: Vec<Key> = (1..=3).map(|n| (MeshId(Ulid::from(n)), model)).collect();
        let is_loaded = |key| cache.held(key, 1).read().unwrap().through.is_some();
        for key in &keys {
            cache.held(*key, 1).write().unwrap().through = Some(1);
            cache.account(*key, 40, 100);
        }
        assert!(is_loaded(keys[1]) && is_loaded(keys[2]) && !is_loaded(keys[0]));
        cache.account(keys[0], 500, 100);
        assert!(!is_loaded(keys[1]) && !is_loaded(keys[2]));
        cache.forget(keys[0]);
        assert!(!is_loaded(keys[0]));
    }
}
