//! What a broker has read about its meshes and may take for true while the mark of a mesh's row says so; and the ids that
//! it wrote of late. Hints both: under the lock the mark decides, and the key of an id does.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use heddle_core::ids::{IdKey, MeshId};

use super::super::super::rows::NewMessage;
use super::asked::{Asked, Found};

/// Names and mailboxes that are kept of one mesh; with more of them it is begun anew, and a set that alone finds more is
/// not kept.
const FOUND_MAX: usize = 4_096;
/// Meshes that anything is kept of.
const MESHES_MAX: usize = 256;
/// Ids that are kept of one mesh: those that were committed while the look-up of a retry was under way, and some more.
const RECENT_MAX: usize = 1_024;

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
        let names_epoch = messages.iter().any(|new| new.epoch.is_some());
        if asked.has_ops || names_epoch || !asked.queues.is_empty() {
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
        let size = found.size();
        if kept.mark == mark && kept.found.size() + size <= FOUND_MAX {
            Arc::make_mut(&mut kept.found).add(found.as_ref().clone());
        } else if size <= FOUND_MAX {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{member, mesh, party};

    fn found(agents: usize) -> Arc<Found> {
        let mut found = Found::default();
        for number in 0..agents {
            let name = format!("a/n{number}");
            found.mailboxes.insert(party(&name), true);
        }
        found
            .senders
            .insert(member("a"), super::super::asked::Sender::default());
        Arc::new(found)
    }

    fn kept_of(kept: &Kept) -> (i64, usize, usize) {
        let all = kept.lock();
        let of_mesh = &all[&mesh(1)];
        (of_mesh.mark, of_mesh.found.size(), of_mesh.recent.len())
    }

    #[test]
    fn what_was_found_under_another_mark_is_forgotten_and_all_of_it_is_bounded() {
        let kept = Kept::default();
        kept.learn(mesh(1), 7, &found(10));
        kept.learn(mesh(1), 7, &found(20));
        assert_eq!(kept_of(&kept), (7, 21, 0));
        kept.learn(mesh(1), 8, &found(5));
        assert_eq!(kept_of(&kept), (8, 6, 0), "of the new mark only");
        kept.learn(mesh(1), 8, &found(FOUND_MAX - 1));
        assert_eq!(kept_of(&kept), (8, FOUND_MAX, 0), "begun anew");
        kept.learn(mesh(1), 9, &found(FOUND_MAX));
        assert_eq!(kept_of(&kept).0, 8, "one that is too large is not kept");
        for first in [0_u8, 1, 2] {
            let keys = (0..RECENT_MAX).map(|number| {
                let mut key = [first; 24];
                key[..8].copy_from_slice(&number.to_be_bytes());
                IdKey(key)
            });
            kept.wrote(mesh(1), keys);
        }
        assert_eq!(kept_of(&kept).2, RECENT_MAX);
        for number in 0..u128::try_from(MESHES_MAX).unwrap() {
            kept.learn(mesh(2 + number), 1, &found(1));
        }
        assert!(kept.lock().len() <= MESHES_MAX);
    }
}
