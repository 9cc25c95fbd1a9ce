//! Reservations: one holder of a path at a time, decided under the lock; an end by time or by word.
#![cfg(test)]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::{Clock, ManualClock, ManualIds, WallMs};
use heddle_journal::disk::MemDisk;
use heddle_journal::{Glob, Journal, Reserved, Who, World};
use support::*;

const HOUR: Duration = Duration::from_secs(3600);

fn agent(disk: &MemDisk, clock: &Arc<ManualClock>, name: &str, seed: u64) -> Journal {
    let world = World {
        disk: Arc::new(disk.clone()),
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        ids: Arc::new(ManualIds::seeded(seed)),
    };
    let who = Who {
        agent: name.to_owned(),
        ..Who::default()
    };
    Journal::open(world, Path::new(ROOT), who)
        .unwrap()
        .with_settings(quick())
}

fn glob(text: &str) -> Glob {
    Glob::parse(text).unwrap()
}

fn is_granted(told: &Reserved) -> bool {
    matches!(told, Reserved::Granted(_))
}

#[test]
fn a_path_has_one_holder_until_it_is_released_or_its_time_is_over() {
    let disk = MemDisk::new();
    init(&disk);
    let clock = Arc::new(ManualClock::at(WallMs(1_794_000_000_000)));
    let (ann, bob) = (
        agent(&disk, &clock, "ann", 3),
        agent(&disk, &clock, "bob", 4),
    );
    assert!(is_granted(
        &ann.reserve(&glob("src/parser/**"), HOUR).unwrap()
    ));
    let Reserved::Held(held) = bob.reserve(&glob("src/**"), HOUR).unwrap() else {
        panic!("two holders");
    };
    assert_eq!(
        (held.owner.as_str(), held.glob.as_str()),
        ("ann", "src/parser/**")
    );
    assert!(is_granted(&bob.reserve(&glob("docs"), HOUR).unwrap()));
    let paths = ["src/parser/a.rs".to_owned(), "docs/x.md".to_owned()];
    assert_eq!(bob.blocked(&paths).unwrap().len(), 1);
    assert_eq!(ann.blocked(&paths).unwrap()[0].0, "docs/x.md");
    // Longer: the same holder, no new record.
    let before = seqs(&ann).len();
    clock.advance(HOUR / 2);
    assert!(is_granted(
        &ann.reserve(&glob("src/parser/**"), HOUR).unwrap()
    ));
    assert_eq!(seqs(&ann).len(), before, "JN-29");
    clock.advance(HOUR * 3 / 4);
    assert_eq!(bob.blocked(&paths).unwrap().len(), 1, "it was made longer");
    // By word: only the holder's own, and once.
    assert_eq!(bob.release(&glob("src/parser/**")).unwrap(), None);
    assert!(ann.release(&glob("src/parser/**")).unwrap().is_some());
    assert_eq!(ann.release(&glob("src/parser/**")).unwrap(), None);
    assert!(is_granted(&bob.reserve(&glob("src/**"), HOUR).unwrap()));
    // By time.
    clock.advance(HOUR * 2);
    assert!(ann.reservations().unwrap().is_empty());
    assert!(is_granted(
        &ann.reserve(&glob("src/parser/**"), HOUR).unwrap()
    ));
    assert!(ann.verify().unwrap().ok);
    assert!(ann.reserve(&glob("x"), Duration::ZERO).is_err());
}
