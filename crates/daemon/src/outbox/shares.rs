//! What of the outbox's budget is kept for each mesh: one whose broker is away fills what is left over, and never the
//! part of the others.
//!
//! Half of the budget is kept, in equal parts. A message is refused when what is held, with the parts that other meshes
//! have not used, comes to the step at which sends are refused; so the budget as a whole is never overrun either. A
//! home with one mesh keeps nothing back.

use std::collections::BTreeMap;
use std::sync::Mutex;

use heddle_core::ids::MeshId;
use heddle_core::pressure::{Measured, Pressure, pressure};

use crate::shared::lock;

/// Of the budget, one in so many is kept for the meshes together.
const KEPT: u64 = 2;

/// Bytes of one mesh's payloads.
#[derive(Debug, Default)]
struct Share {
    name: String,
    /// What the last look found, less what had been settled by then.
    base: u64,
    /// Counted from the start of the process: asked for by accepts, and of those in the store, or never coming.
    reserved: u64,
    settled: u64,
}

impl Share {
    fn held(&self) -> u64 {
        self.base.wrapping_add(self.reserved)
    }
}

#[derive(Debug, Default)]
pub(super) struct Shares(Mutex<BTreeMap<MeshId, Share>>);

/// The part that is kept for each of them.
fn part(budget: u64, meshes: usize) -> u64 {
    let meshes = u64::try_from(meshes).unwrap_or(u64::MAX).max(1);
    budget / KEPT / meshes
}

fn kept_for_others(shares: &BTreeMap<MeshId, Share>, mesh: MeshId, budget: u64) -> u64 {
    let part = part(budget, shares.len());
    let others = shares.iter().filter(|(id, _)| **id != mesh);
    others
        .map(|(_, share)| part.saturating_sub(share.held()))
        .fold(0, u64::saturating_add)
}

impl Shares {
    /// What other meshes have not used of the parts that are kept for them; and counts these bytes for this one.
    pub(super) fn add(&self, mesh: MeshId, bytes: u64, budget: u64) -> u64 {
        let mut shares = lock(&self.0);
        let kept = kept_for_others(&shares, mesh, budget);
        let share = shares.entry(mesh).or_default();
        share.reserved = share.reserved.wrapping_add(bytes);
        kept
    }

    pub(super) fn settle(&self, mesh: MeshId, bytes: u64) {
        let mut shares = lock(&self.0);
        let share = shares.entry(mesh).or_default();
        share.settled = share.settled.wrapping_add(bytes);
    }

    pub(super) fn give_back(&self, mesh: MeshId, bytes: u64) {
        let mut shares = lock(&self.0);
        let share = shares.entry(mesh).or_default();
        share.reserved = share.reserved.wrapping_sub(bytes);
    }

    /// What is in the store by now; to be read before the look.
    pub(super) fn settled(&self) -> BTreeMap<MeshId, u64> {
        let shares = lock(&self.0);
        shares
            .iter()
            .map(|(id, share)| (*id, share.settled))
            .collect()
    }

    /// The look is over: every mesh, its name, and what its payloads hold.
    pub(super) fn looked(
        &self,
        settled: &BTreeMap<MeshId, u64>,
        found: impl Iterator<Item = (MeshId, String, u64)>,
    ) {
        let mut shares = lock(&self.0);
        for (mesh, name, used) in found {
            let share = shares.entry(mesh).or_default();
            share.name = name;
            let settled = settled.get(&mesh).copied().unwrap_or(0);
            share.base = used.wrapping_sub(settled);
        }
    }

    /// The mesh that has least room left, and how little that is; `None` where no mesh has another beside it.
    pub(super) fn tightest(&self, held: u64, budget: u64) -> Option<(String, Pressure)> {
        let shares = lock(&self.0);
        if shares.len() < 2 {
            return None;
        }
        let of = |(id, share): (&MeshId, &Share)| {
            let used = held.saturating_add(kept_for_others(&shares, *id, budget));
            let level = pressure(Measured { used, free: None }, Some(budget));
            (share.held(), share.name.clone(), level)
        };
        // Of those that are alike, the one that holds most.
        let all = shares.iter().map(of);
        let tightest = all.max_by_key(|(held, _, level)| (*level, *held));
        tightest.map(|(_, name, level)| (name, level))
    }
}

#[cfg(test)]
mod tests {
    use heddle_core::pressure::has_room;
    use ulid::Ulid;

    use super::*;

    fn mesh(number: u128) -> MeshId {
        MeshId(Ulid::from(number))
    }

    /// Fills the budget from one mesh in pieces; how much was taken.
    fn fill(shares: &Shares, id: MeshId, held: &mut u64, budget: u64) -> u64 {
        let mut taken = 0;
        loop {
            let kept = shares.add(id, 1, budget);
            if !has_room(held.saturating_add(kept), 1, budget) {
                shares.give_back(id, 1);
                return taken;
            }
            shares.settle(id, 1);
            *held += 1;
            taken += 1;
        }
    }

    #[test]
    fn a_mesh_that_fills_the_budget_leaves_the_others_their_part_and_the_whole_is_never_overrun() {
        for count in 1..6_u128 {
            let (shares, budget) = (Shares::default(), 1_000);
            let meshes = (1..=count).map(|n| (mesh(n), n.to_string(), 0));
            shares.looked(&BTreeMap::new(), meshes);
            let mut held = 0;
            let first = fill(&shares, mesh(1), &mut held, budget);
            let part = part(budget, usize::try_from(count).unwrap());
            let others = u64::try_from(count).unwrap() - 1;
            assert_eq!(first, 950 - others * part, "{count}");
            for other in 2..=count {
                let taken = fill(&shares, mesh(other), &mut held, budget);
                assert_eq!(taken, part, "{other} of {count}");
            }
            assert!(held <= budget);
        }
    }

    #[test]
    fn the_tightest_mesh_is_the_one_that_is_told() {
        let shares = Shares::default();
        let found = [
            (mesh(1), "home".to_owned(), 0),
            (mesh(2), "away".to_owned(), 700),
        ];
        assert_eq!(shares.tightest(0, 1_000), None);
        shares.looked(&BTreeMap::new(), found.into_iter());
        let told = shares.tightest(700, 1_000);
        assert_eq!(told, Some(("away".to_owned(), Pressure::Refusing)));
        // What is on its way counts until a look has seen it.
        shares.add(mesh(1), 250, 1_000);
        let told = shares.tightest(950, 1_000);
        assert_eq!(told, Some(("away".to_owned(), Pressure::Refusing)));
        shares.settle(mesh(1), 250);
        let settled = shares.settled();
        let found = [
            (mesh(1), "home".to_owned(), 0),
            (mesh(2), "away".to_owned(), 0),
        ];
        shares.looked(&settled, found.into_iter());
        assert_eq!(shares.tightest(0, 1_000).unwrap().1, Pressure::Fine);
    }
}
