//! A salvage of files that are cut and overwritten anywhere: it ends, and brings what can be read.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;
use crate::park::open_old;

const PAGE: usize = 4096;
const ROWS: u64 = 1_200;
const MADE: &str = "
    CREATE TABLE many (n INTEGER PRIMARY KEY, t TEXT NOT NULL) STRICT;
    CREATE TABLE keyed (k BLOB NOT NULL, t TEXT NOT NULL, PRIMARY KEY (k)) STRICT, WITHOUT ROWID;";
const FILLED: &str = "
    WITH RECURSIVE up (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < 1200)
    INSERT INTO many SELECT n, hex(randomblob(60)) FROM up;
    INSERT INTO keyed SELECT randomblob(16), t FROM many;";

fn filled(folder: &Path) -> (PathBuf, Vec<u8>) {
    let path = folder.join("x.db");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(MADE).unwrap();
    connection.execute_batch(FILLED).unwrap();
    drop(connection);
    let bytes = fs::read(&path).unwrap();
    (path, bytes)
}

/// Carries what can be read of both tables; what was kept of each, and how often the file was asked.
fn saved(path: &Path, bytes: &[u8]) -> Vec<(Kept, u64)> {
    fs::write(path, bytes).unwrap();
    let new = Connection::open_in_memory().unwrap();
    new.execute_batch(MADE).unwrap();
    let old = open_old(path).unwrap();
    old.pragma_update(None, "cell_size_check", true).unwrap();
    let tables = tables(&new).unwrap();
    let one = |table| carry_counted(&old, &new, table).unwrap();
    tables.iter().map(one).collect()
}

/// A row of the file is asked for once, and behind it every step is taken at most once.
fn assert_bounded(found: &[(Kept, u64)]) {
    for (kept, looks) in found {
        assert!(kept.rows <= ROWS, "{kept:?}");
        let most = 2 * ROWS + STEPS_TOTAL + 51 * 51 * (kept.gaps + 1);
        assert!(*looks <= most, "{looks} of {most} for {kept:?}");
    }
}

/// Says that the file has as many pages as it has: SQLite reads nothing of one that is too short.
fn shortened(bytes: &[u8], pages: usize) -> Vec<u8> {
    let mut bytes = bytes[..pages * PAGE].to_vec();
    let count = u32::try_from(pages).unwrap();
    bytes[28..32].copy_from_slice(&count.to_be_bytes());
    bytes
}

#[test]
fn lf_39_a_page_that_leads_back_gives_its_rows_once() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes) = filled(folder.path());
    let inner = |kind: u8| {
        let is_inner = |page: &usize| bytes[page * PAGE] == kind;
        (1..bytes.len() / PAGE).find(is_inner).unwrap()
    };
    for (kind, table) in [(0x05_u8, 0), (0x02, 1)] {
        let page = inner(kind);
        let mut changed = bytes.clone();
        let at = page * PAGE;
        let cells = usize::from(u16::from_be_bytes([changed[at + 3], changed[at + 4]]));
        let own = u32::try_from(page + 1).unwrap().to_be_bytes();
        // Every second child of the root is its first child again.
        let cell = |bytes: &[u8], n: usize| {
            let place = at + 12 + 2 * n;
            at + usize::from(u16::from_be_bytes([bytes[place], bytes[place + 1]]))
        };
        let first = cell(&changed, 0);
        let first: [u8; 4] = changed[first..first + 4].try_into().unwrap();
        for n in (1..cells).step_by(2) {
            let place = cell(&changed, n);
            changed[place..place + 4].copy_from_slice(&first);
        }
        let found = saved(&path, &changed);
        assert_bounded(&found);
        assert!(found[table].0.rows > 0, "{found:?}");
        // And a root that is its own child.
        for n in 1..cells {
            let place = cell(&changed, n);
            changed[place..place + 4].copy_from_slice(&own);
        }
        let found = saved(&path, &changed);
        assert_bounded(&found);
        assert!(found[table].0.rows > 0, "{found:?}");
    }
}

#[test]
fn lf_39_numbers_only_ever_rise() {
    let mut climb = Climb::new();
    assert!(climb.reach(7));
    assert!(!climb.reach(7) && !climb.reach(3));
    let mut steps = 0_u64;
    while climb.step() {
        let before = climb.from;
        // A tree that always gives a number from before.
        assert!(!climb.reach(3) && climb.from == before);
        steps += 1;
    }
    assert!(steps < u64::from(STEPS_MAX) + 64, "{steps}");
}

/// Far behind a hole the rows go on, and none of them is lost.
#[test]
fn lf_39_a_wide_hole_costs_only_what_stood_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(MADE).unwrap();
    let far = "WITH RECURSIVE up (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < 600)
        INSERT INTO many SELECT n + 5000000 * (n > 200), 'row ' || n || '.' || hex(zeroblob(300)) FROM up;";
    connection.execute_batch(far).unwrap();
    drop(connection);
    let mut bytes = fs::read(&path).unwrap();
    let text = b"row 200.";
    let at = bytes.windows(8).position(|found| found == text).unwrap();
    bytes[at / PAGE * PAGE..][..PAGE].fill(0xa5);
    let (kept, looks) = &saved(&path, &bytes)[0];
    // A page has six of these rows.
    assert!(kept.rows >= 594 && kept.gaps == 1, "{kept:?}");
    assert!(*looks < 12_000, "{looks}");
}

/// Two pages of a keyed table are gone: what stands between them is not.
#[test]
fn lf_39_what_stands_between_two_holes_of_a_keyed_table_is_saved() {
    for make in [
        // Scattered, and the same in every run: by chance a chosen row may stand in an inner page.
        "INSERT INTO keyed SELECT CAST(printf('%016x', n * 2654435761 % 4294967296) AS BLOB),
             'row ' || n || '.' || hex(zeroblob(150)) FROM up",
        // As the ops of one mesh: a long common beginning, then a number.
        "INSERT INTO keyed SELECT CAST('one mesh, sixteen' || printf('%08d', n) AS BLOB),
             'row ' || n || '.' || hex(zeroblob(150)) FROM up",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(MADE).unwrap();
        let all =
            "WITH RECURSIVE up (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < 1200)";
        connection.execute_batch(&format!("{all} {make}")).unwrap();
        let at = |share: u32| -> String {
            let sql = "SELECT t FROM keyed ORDER BY k LIMIT 1 OFFSET ?1";
            let text: String = connection
                .query_row(sql, [share], |row| row.get(0))
                .unwrap();
            text.split('.').next().unwrap().to_owned() + "."
        };
        let marks = [at(300), at(600), at(900)];
        drop(connection);
        let mut bytes = fs::read(&path).unwrap();
        let mut inner = 0;
        for mark in [&marks[0], &marks[2]] {
            let mark = mark.as_bytes();
            let places = bytes.windows(mark.len()).enumerate();
            let found: Vec<usize> = places
                .filter_map(|(at, part)| (part == mark).then_some(at / PAGE * PAGE))
                .collect();
            // Leaves only: a row of a keyed table can stand in an inner page as well.
            let leaves = found.iter().filter(|page| bytes[**page] == 0x0a);
            let leaves: Vec<usize> = leaves.copied().collect();
            inner += usize::from(leaves.is_empty());
            for page in leaves {
                bytes[page..page + PAGE].fill(0xa5);
            }
        }
        assert_eq!(inner, 0, "the rows that were chosen stand in leaves");
        let (kept, looks) = &saved(&path, &bytes)[1];
        // A page has a dozen of these rows; two are gone.
        assert!(kept.rows >= 1200 - 2 * 14 && kept.rows < 1200, "{kept:?}");
        assert!(kept.gaps >= 2, "{kept:?}");
        assert!(*looks < 50_000, "{looks}");
    }
}

#[test]
fn lf_39_a_key_in_the_middle_is_always_in_the_middle() {
    use Value::{Blob, Integer, Text};
    let text = |text: &str| Text(text.to_owned());
    for (low, high) in [
        (vec![Integer(1)], vec![Integer(3)]),
        (vec![Integer(i64::MIN)], vec![Integer(i64::MAX)]),
        (
            vec![Blob(vec![1]), Integer(5)],
            vec![Blob(vec![1]), Integer(900)],
        ),
        (
            vec![Integer(1), Integer(500)],
            vec![Integer(2), Integer(300)],
        ),
        (vec![text("a")], vec![text("b")]),
        (vec![text("key-0001")], vec![text("key-0900")]),
        (vec![Blob(vec![0; 16])], vec![Blob(vec![255; 16])]),
    ] {
        let middle = between::middle(&low, &high).unwrap();
        assert!(order_of(&low, &middle).is_lt(), "{low:?} {middle:?}");
        assert!(order_of(&middle, &high).is_lt(), "{middle:?} {high:?}");
        assert_eq!(middle.len(), low.len());
    }
    for (low, high) in [
        (vec![Integer(1)], vec![Integer(2)]),
        (vec![Integer(1)], vec![Integer(1)]),
        (vec![Integer(1)], vec![text("x")]),
    ] {
        assert_eq!(between::middle(&low, &high), None, "{low:?} {high:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn lf_39_whatever_is_cut_or_overwritten_saving_the_rest_ends(
        cut in 0.1_f64..1.0,
        pages in prop::collection::vec((0_usize..10_000, 0_usize..PAGE, any::<u64>()), 0..6),
        swaps in prop::collection::vec((0_usize..10_000, 0_usize..10_000), 0..4),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (path, bytes) = filled(folder.path());
        let all = bytes.len() / PAGE;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a share of a small count")]
        let left = ((all as f64 * cut) as usize).max(4);
        let mut bytes = shortened(&bytes, left);
        for (page, from, noise) in pages {
            let start = PAGE * (1 + page % (left - 1));
            let noise = noise.to_be_bytes();
            for at in from..(from + 64).min(PAGE) {
                bytes[start + at] = noise[at % 8];
            }
        }
        for (one, other) in swaps {
            let (one, other) = (PAGE * (1 + one % (left - 1)), PAGE * (1 + other % (left - 1)));
            let copy = bytes[one..one + PAGE].to_vec();
            bytes[other..other + PAGE].copy_from_slice(&copy);
        }
        assert_bounded(&saved(&path, &bytes));
    }
}
