//! What is said of a file beforehand is what opening it does, for every byte of its header and for every page.

use std::fs;

use heddle_store::{Condition, Heals, Look, outlook};

use crate::park::{open_or_park, worn};

/// What became of an opening.
#[derive(Debug, PartialEq, Eq)]
enum Opened {
    AsItIs,
    Parked,
    Refused,
}

#[tokio::test]
async fn lf_39_the_outlook_is_what_an_opening_does_whatever_byte_was_flipped() {
    let fixture = worn().await;
    let whole = fs::read(fixture.path()).unwrap();
    let header = (0..100).flat_map(|at| [(at, 0xff), (at, 0x01)]);
    // The kind of every page, and how many cells it says it has.
    let pages = (1..whole.len() / 4096).flat_map(|page| {
        let start = page * 4096;
        [(start, 0xff), (start + 4, 0xff)]
    });
    let mut seen = [0; 3];
    for (at, mask) in header.chain(pages) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.db");
        let mut bytes = whole.clone();
        bytes[at] ^= mask;
        fs::write(&path, &bytes).unwrap();
        let said = outlook(&path, Look::AsNeeded, true);
        assert_eq!(fs::read(&path).unwrap(), bytes, "byte {at}: a look wrote");
        let opened = match open_or_park(&path) {
            Ok((_, None)) => Opened::AsItIs,
            Ok((_, Some(_))) => Opened::Parked,
            Err(_) => Opened::Refused,
        };
        let expected = match (&said.condition, said.heals) {
            (_, Some(Heals::Inbox | Heals::Everything)) => Opened::Parked,
            (Condition::New | Condition::Fit, None) => Opened::AsItIs,
            _ => Opened::Refused,
        };
        assert_eq!(opened, expected, "byte {at} ^ {mask:#x}: {said:?}");
        if opened == Opened::Refused {
            assert_eq!(
                fs::read(&path).unwrap(),
                bytes,
                "byte {at}: a refusal wrote"
            );
        }
        seen[opened as usize] += 1;
    }
    assert!(seen.iter().all(|count| *count > 5), "{seen:?}");
}
