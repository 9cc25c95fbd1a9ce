//! Which of the due rows go first: the urgent ones, but nothing is overtaken for ever.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, PoisonError};

use heddle_core::ids::MeshId;

/// One batch in so many is a fair one, while something is overtaken in each.
const FAIR_TURN: u32 = 8;

/// For each mesh: batches one after the other in which something urgent overtook something else.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<BTreeMap<MeshId, u32>>);

impl Turns {
    /// The next batch of the mesh: whether it is a fair one. An urgent row that comes to a backlog of others is never
    /// met by one: it takes seven batches with something urgent in each to come so far.
    pub(crate) fn next(&self, mesh: MeshId, is_mixed: bool) -> bool {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_mixed {
            turns.remove(&mesh);
            return false;
        }
        let turn = turns.entry(mesh).or_default();
        *turn = (*turn + 1) % FAIR_TURN;
        *turn == 0
    }
}

/// By rank; what is equally urgent stays in order of due time and arrival.
pub(crate) fn urgent_first(window: &[(u8, i64)]) -> Vec<i64> {
    let mut ranked = window.to_vec();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, arrival)| arrival).collect()
}

/// Whoever is due longest goes first, however few are let in; then half a batch of what is urgent; then by due time.
pub(crate) fn fair(window: &[(u8, i64)], items_max: usize) -> Vec<i64> {
    let by_due = || window.iter().map(|(_, arrival)| *arrival);
    let urgent = urgent_first(window);
    let mut seen = HashSet::new();
    by_due()
        .take(1)
        .chain(urgent.into_iter().take(items_max / 2))
        .chain(by_due())
        .filter(|arrival| seen.insert(*arrival))
        .collect()
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    const WINDOW: [(u8, i64); 5] = [(2, 1), (2, 2), (1, 3), (0, 4), (0, 5)];

    #[test]
    fn the_longest_due_leads_a_fair_batch_and_what_is_urgent_is_second() {
        assert_eq!(urgent_first(&WINDOW), [4, 5, 3, 1, 2]);
        assert_eq!(fair(&WINDOW, 4), [1, 4, 5, 2, 3]);
        assert_eq!(fair(&WINDOW, 1), [1, 2, 3, 4, 5]);
        assert!(fair(&[], 4).is_empty());
    }

    #[test]
    fn only_what_was_overtaken_again_and_again_gets_a_fair_turn() {
        let (one, other) = (MeshId(Ulid::from(1_u128)), MeshId(Ulid::from(2_u128)));
        let turns = Turns::default();
        for _ in 0..100 {
            assert!(!turns.next(one, false));
        }
        let fair = (0..24).filter(|_| {
            assert!(!turns.next(other, false), "the meshes do not share it");
            turns.next(one, true)
        });
        assert_eq!(fair.count(), 3);
        (0..7).for_each(|_| assert!(!turns.next(one, true)));
        turns.next(one, false);
        assert!(!turns.next(one, true), "nothing was overtaken before");
    }
}
