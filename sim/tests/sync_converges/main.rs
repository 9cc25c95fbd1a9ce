//! Replicas that sync through a real broker's gate and log, badly: LF-02, LF-08, LF-09, LF-13 to LF-16.
//!
//! Real stores on SQLite files, the real B0–B3 over the memory storage; the harness plays network, power
//! and operators from a seed. Partitions, lost acks, ops sent twice, pages that come again, late or in
//! disorder, restarts, new epochs, and a replica that is put back from an old copy of its file. The judge
//! keeps its own model: the acknowledged changes, and a last-writer-wins map that shares no code with the
//! store. Tasks are folded, not overwritten: of them it asks that all replicas say the same.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod dice;
mod judge;
mod network;
mod nouns;
mod world;

use std::path::Path;

use world::World;

/// On a file system in memory where there is one: no power is cut here.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let built = tempfile::Builder::new()
        .prefix("heddle-sync")
        .tempdir_in(memory);
    built.or_else(|_| tempfile::tempdir()).unwrap()
}

fn storm(seed: u64, replicas: usize, ops: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let folder = folder();
        let mut world = World::new(seed, replicas, folder.path()).await;
        while world.attempted.len() < ops {
            world.step().await;
        }
        world.heal().await;
        world.judge().await;
        let faults = &world.faults;
        for (name, count) in [
            ("partitions", faults.partitions),
            ("lost acks", faults.lost_acks),
            ("sent twice", faults.sent_twice),
            ("repeated pages", faults.repeated_pages),
            ("late pages", faults.late_pages),
            ("disordered pages", faults.disordered_pages),
            ("pages at once", faults.pages_at_once),
            ("restarts", faults.restarts),
            ("crashes", faults.crashes),
            ("epochs", faults.epochs),
            ("mismatches", faults.mismatches),
            ("restores", faults.restores),
        ] {
            assert!(count > 0, "XC-04: no {name} in this run: {faults:?}");
        }
        for replica in &world.replicas {
            replica.store.stop();
        }
    });
}

/// Ten seeds, a hundred thousand ops in all: several small storms are as wild as a big one, and use every
/// core. A seed that ever failed stays in this list.
macro_rules! storms {
    ($($name:ident: seed $seed:literal, $replicas:literal replicas;)*) => {
        $(#[test]
        fn $name() {
            storm($seed, $replicas, OPS);
        })*
    };
}

const OPS: usize = 10_000;

storms! {
    lf_08_lf_09_replicas_converge_seed_1: seed 1, 3 replicas;
    lf_08_lf_09_replicas_converge_seed_2: seed 2, 3 replicas;
    lf_08_lf_09_replicas_converge_seed_3: seed 3, 3 replicas;
    lf_08_lf_09_replicas_converge_seed_4: seed 4, 3 replicas;
    lf_08_lf_09_replicas_converge_seed_5: seed 5, 4 replicas;
    lf_08_lf_09_replicas_converge_seed_6: seed 6, 4 replicas;
    lf_08_lf_09_replicas_converge_seed_7: seed 7, 4 replicas;
    lf_08_lf_09_replicas_converge_seed_8: seed 8, 5 replicas;
    lf_08_lf_09_replicas_converge_seed_9: seed 9, 5 replicas;
    lf_08_lf_09_replicas_converge_seed_10: seed 10, 5 replicas;
}
