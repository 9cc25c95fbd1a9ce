//! What a broker has read about its meshes and may take for true while the mark of a mesh's row says so; and the ids that
//! it wrote of late. Hints both: under the lock the mark decides, and the key of an id does.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use heddle_core::ids::{IdKey, MeshId};

use super::super::super::rows::NewMessage;
use super::asked::{Asked, Found};

/// Names and mailboxes that are kept of one mesh; with more of them it is begun anew.
const FOUND_MAX: usize = 16_384;
/// Meshes that anything is kept of.
const MESHES_MAX: usize = 256;
/// Ids that are kept of one mesh: those that were committed while the look-up of a retry was under way, and some more.
const RECENT_MAX: usize = 4_096;

/// Of all meshes.
#[derive(Default)]
pub(in super::super) struct Kept(Mutex<HashMap<MeshId, OfMesh>>);

#[derive(Default)]
struct OfMesh {
    mark: i64,
    found: Arc<Found>,
    recent: HashSet<IdKey>,
    /// The same, in the order in which they came.
    recent_order: VecDeque<IdKey>,
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, HashMap<MeshId, OfMesh>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a mesh, with its mark, if that answers all that a set asks, and none of its ids was written of late.
    pub(super) fn of(&self, mesh: MeshId, messages: &[&NewMessage]) -> Option<(i64, Arc<Found>)> {
        let asked = Asked::by(messages);
        if asked.has_ops || !asked.queues.is_empty() {
            return None;
        }
        let all = self.lock();
        let kept = all.get(&mesh)?;
        let is_old = messages.iter().any(|new| kept.recent.contains(&new.id.key));
        let is_known = !is_old && kept.found.answers(&asked);
        is_known.then(|| (kept.mark, Arc::clone(&kept.found)))
    }

    /// What was read under the lock of the row, whose mark was this one.
    pub(super) fn learn(&self, mesh: MeshId, mark: i64, found: &Arc<Found>) {
        let mut all = self.lock();
        if all.len() >= MESHES_MAX && !all.contains_key(&mesh) {
            all.clear();
        }
        let kept = all.entry(mesh).or_default();
        let goes_on = kept.mark == mark && kept.found.size() + found.size() <= FOUND_MAX;
        if goes_on {
            Arc::make_mut(&mut kept.found).add(found.as_ref().clone());
        } else {
            kept.mark = mark;
            kept.found = Arc::clone(found);
        }
    }

    /// Ids that were committed.
    pub(super) fn wrote(&self, mesh: MeshId, keys: impl Iterator<Item = IdKey>) {
        let mut all = self.lock();
        let Some(kept) = all.get_mut(&mesh) else {
            return;
        };
        for key in keys {
            if kept.recent.insert(key) {
                kept.recent_order.push_back(key);
            }
        }
        while kept.recent_order.len() > RECENT_MAX {
            if let Some(old) = kept.recent_order.pop_front() {
                kept.recent.remove(&old);
            }
        }
    }
}
