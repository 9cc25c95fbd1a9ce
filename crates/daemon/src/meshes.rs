//! The meshes of a running daemon: a list that only grows, and is read without a lock.

use std::sync::{Arc, OnceLock};

use heddle_core::limits::MESHES_MAX;

use crate::mesh::MeshState;

/// Meshes are joined while the daemon runs, and each stays to its end.
pub(crate) struct Meshes {
    slots: Box<[OnceLock<Arc<MeshState>>]>,
}

impl Default for Meshes {
    fn default() -> Self {
        Self {
            slots: (0..MESHES_MAX).map(|_| OnceLock::new()).collect(),
        }
    }
}

impl Meshes {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<MeshState>> {
        self.slots.iter().map_while(OnceLock::get)
    }

    pub(crate) fn first(&self) -> Option<&Arc<MeshState>> {
        self.iter().next()
    }

    /// False when there is no room.
    pub(crate) fn push(&self, mesh: Arc<MeshState>) -> bool {
        self.slots
            .iter()
            .any(|slot| slot.set(Arc::clone(&mesh)).is_ok())
    }

    pub(crate) fn is_full(&self) -> bool {
        self.iter().count() == self.slots.len()
    }
}

impl<'a> IntoIterator for &'a Meshes {
    type Item = &'a Arc<MeshState>;
    type IntoIter = Box<dyn Iterator<Item = &'a Arc<MeshState>> + Send + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.slots.iter().map_while(OnceLock::get))
    }
}
