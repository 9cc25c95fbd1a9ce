//! The doctor's word of a store, and the store as it goes on behind a repair.

use heddle_core::names::{MemberName, MeshName};
use heddle_store::{Kept, RepairHints, Repaired, check_up, repair};

use crate::fixture::{Fixture, NOW, open};

pub(crate) fn hints() -> RepairHints {
    RepairHints {
        elsewhere: Vec::new(),
        home: MeshName::parse("home").unwrap(),
        person: MemberName::parse("tester").unwrap(),
        models: Vec::new(),
    }
}

/// The doctor's word, as far as rows are concerned. `alone`: nobody has the store open.
pub(crate) fn senseless(fixture: &Fixture, alone: bool) -> String {
    let blobs = fixture.folder.path().join("blobs");
    let looked = check_up(&fixture.path(), &blobs, |_, _| true, alone).unwrap();
    looked.senseless.join("; ")
}

/// Stops the store, repairs it, and opens it again.
pub(crate) fn mend(mut fixture: Fixture) -> (Fixture, Repaired) {
    fixture.store.stop();
    let mended = repair(&fixture.path(), &fixture.blobs(), &hints(), NOW).unwrap();
    fixture.store = open(&fixture.path()).unwrap();
    (fixture, mended.unwrap())
}

/// The same, and every row came along.
pub(crate) fn mend_wholly(fixture: Fixture) -> Fixture {
    let (fixture, mended) = mend(fixture);
    assert!(mended.tables.iter().all(Kept::is_whole), "{mended:?}");
    fixture
}
