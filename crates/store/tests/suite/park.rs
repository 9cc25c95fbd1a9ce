//! A damaged inbox is parked, a damaged outbox is refused (DR-16), and no crash in between loses either.

use std::fs;
use std::path::{Path, PathBuf};

use heddle_core::clock::WallMs;
use heddle_core::outbox_status::OutboxStatus;
use heddle_sqlite::OpenError;
use heddle_store::{
    AckedItems, Durability, InboxFilter, Received, SearchQuery, Store, StoreError, StoreOptions,
};
use rusqlite::Connection;

use crate::fixture::{Fixture, NOW, agent, at};

const PAGE_BYTES: usize = 4096;

pub(crate) fn open_or_park(path: &Path) -> Result<(Store, Option<PathBuf>), StoreError> {
    let options = StoreOptions {
        path: path.to_owned(),
        durability: Durability::Normal,
        vfs: None,
    };
    Store::open_or_park(options, NOW)
}

fn everything() -> InboxFilter {
    InboxFilter {
        mesh: None,
        agent: Some(agent("coder")),
        after: None,
        since: None,
        topic: None,
        from_member: None,
        from_agent: None,
        acked: AckedItems::All,
        limit: 1000,
        bytes_max: usize::MAX,
    }
}

/// A store with rows in every table, closed in order but marked as if it had not been.
pub(crate) async fn worn() -> Fixture {
    let fixture = Fixture::new();
    for status in OutboxStatus::ALL {
        fixture.row_in(status, status.as_str()).await;
    }
    for n in 1..=200 {
        let item = fixture.item("coder", &format!("m{n}"), at(1, n));
        fixture
            .store
            .receive(fixture.mesh, vec![item])
            .await
            .unwrap();
    }
    let body_of = |_: &[u8]| Some("some words".to_owned());
    while fixture.store.inbox_index_chunk(body_of).await.unwrap() > 0 {}
    fixture
        .store
        .inbox_shown(vec![1, 2], None, NOW)
        .await
        .unwrap();
    fixture.store.stop();
    let unclean = "UPDATE store_state SET clean = 0";
    fixture.raw().execute(unclean, []).unwrap();
    fixture
}

/// Overwrites the beginning of a page of this table or index.
pub(crate) fn damage(path: &Path, name: &str) {
    let raw = Connection::open(path).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let page: i64 = raw.query_row(sql, [name], |row| row.get(0)).unwrap();
    raw.pragma_update(None, "journal_mode", "DELETE").unwrap();
    drop(raw);
    let mut bytes = fs::read(path).unwrap();
    let start = usize::try_from(page - 1).unwrap() * PAGE_BYTES;
    bytes[start..start + 64].fill(0xff);
    fs::write(path, bytes).unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

const OUTSIDE: [&str; 5] = ["outbox", "outbox_sender", "mesh", "agent", "roster"];

#[tokio::test]
async fn dr_16_a_damaged_inbox_is_parked_and_everything_else_comes_over() {
    for broken in [
        "inbox",
        "inbox_mailbox",
        "inbox_unread",
        "delivery",
        "sqlite_autoindex_inbox_1",
    ] {
        let fixture = worn().await;
        let before: Vec<_> = OUTSIDE.iter().map(|table| fixture.dump(table)).collect();
        damage(&fixture.path(), broken);
        let damaged = fs::read(fixture.path()).unwrap();
        let (store, parked) = open_or_park(&fixture.path()).unwrap();
        let parked = parked.unwrap_or_else(|| panic!("{broken}"));
        assert_eq!(
            parked,
            fixture
                .folder
                .path()
                .join("data.db.parked-2026-11-06T212000000Z")
        );
        assert_eq!(fs::read(&parked).unwrap(), damaged, "{broken}");
        assert_eq!(Store::parked_files(&fixture.path()), [parked]);
        let fixture = Fixture { store, ..fixture };
        let after: Vec<_> = OUTSIDE.iter().map(|table| fixture.dump(table)).collect();
        assert_eq!(after, before, "{broken}");
        assert!(
            fixture
                .store
                .inbox_page(everything())
                .await
                .unwrap()
                .is_empty()
        );
        let cursor = fixture.store.delivery_cursor(fixture.mesh).await.unwrap();
        assert_eq!(
            cursor,
            at(0, 0),
            "the broker shall send again what it holds"
        );
        // Places that were given stay given; what the broker sends again is stored once.
        let again = vec![fixture.item("coder", "m7", at(1, 7)); 2];
        let received = fixture.store.receive(fixture.mesh, again).await.unwrap();
        assert!(
            matches!(received[0], Received::Stored(place) if place > 200),
            "{received:?}"
        );
        assert_eq!(received[1], Received::Duplicate);
        // The guards of the outbox came along.
        let sql = "UPDATE outbox SET status = 'pending' WHERE status = 'done'";
        assert!(fixture.raw().execute(sql, []).is_err());
        fixture.store.stop();
        assert!(open_or_park(&fixture.path()).unwrap().1.is_none(), "once");
    }
}

#[tokio::test]
async fn xc_09_a_damaged_search_index_costs_no_message() {
    for broken in ["inbox_fts_data", "inbox_fts_idx", "inbox_fts_docsize"] {
        let fixture = worn().await;
        let before = fixture.dump("inbox");
        damage(&fixture.path(), broken);
        let (store, parked) = open_or_park(&fixture.path()).unwrap();
        assert!(parked.is_some(), "{broken}");
        let fixture = Fixture { store, ..fixture };
        assert_eq!(fixture.dump("inbox"), before);
        assert_eq!(
            fixture.store.delivery_cursor(fixture.mesh).await.unwrap(),
            at(1, 200)
        );
        let body_of = |_: &[u8]| Some("other words".to_owned());
        while fixture.store.inbox_index_chunk(body_of).await.unwrap() > 0 {}
        let query = SearchQuery::parse("other").unwrap();
        let found = fixture.store.inbox_search(query, None, everything()).await;
        assert_eq!(found.unwrap().rows.len(), 200, "{broken}");
    }
}

#[tokio::test]
async fn dr_16_a_damaged_outbox_is_refused_and_no_byte_of_the_folder_changes() {
    for broken in [
        "outbox",
        "outbox_due",
        "outbox_sender",
        "mesh",
        "sqlite_autoindex_outbox_2",
    ] {
        for also in [None, Some("inbox")] {
            let fixture = worn().await;
            damage(&fixture.path(), broken);
            if let Some(also) = also {
                damage_raw(&fixture, also);
            }
            let before = fs::read(fixture.path()).unwrap();
            let error = open_or_park(&fixture.path()).err().unwrap();
            assert!(
                matches!(error, StoreError::Open(OpenError::Damaged(_))),
                "{broken}: {error:?}"
            );
            assert!(error.to_string().contains("heddle doctor --repair"));
            assert_eq!(fs::read(fixture.path()).unwrap(), before);
            assert_eq!(names(fixture.folder.path()), ["data.db"], "{broken}");
        }
    }
}

/// The schema may not be readable by now: the page was looked up in a whole file of the same shape.
fn damage_raw(fixture: &Fixture, name: &str) {
    let whole = Fixture::new();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let page: i64 = whole
        .raw()
        .query_row(sql, [name], |row| row.get(0))
        .unwrap();
    let mut bytes = fs::read(fixture.path()).unwrap();
    let start = usize::try_from(page - 1).unwrap() * PAGE_BYTES;
    bytes[start..start + 64].fill(0xff);
    fs::write(fixture.path(), bytes).unwrap();
}

/// Every state of the folder that a crash between two steps of the exchange can leave.
#[tokio::test]
async fn dr_16_a_crash_in_the_middle_of_parking_leaves_the_old_state_or_the_new_one() {
    let fixture = worn().await;
    let outbox = fixture.dump("outbox");
    damage(&fixture.path(), "inbox");
    let damaged = fs::read(fixture.path()).unwrap();
    let (store, _) = open_or_park(&fixture.path()).unwrap();
    store.stop();
    let whole = fs::read(fixture.path()).unwrap();
    let stale_log = vec![0x37; 4096];

    let states: [&[(&str, &[u8])]; 6] = [
        // A draft that was never decided on.
        &[
            ("data.db", &damaged),
            ("data.db-wal", &stale_log),
            ("data.db.rebuild", &whole[..5000]),
        ],
        // Decided; nothing moved yet.
        &[
            ("data.db", &damaged),
            ("data.db-wal", &stale_log),
            ("data.db.next-T", &whole),
        ],
        // The log is parked.
        &[
            ("data.db", &damaged),
            ("data.db.parked-T-wal", &stale_log),
            ("data.db.next-T", &whole),
        ],
        // The file is parked, too: for a moment there is none.
        &[
            ("data.db.parked-T", &damaged),
            ("data.db.parked-T-wal", &stale_log),
            ("data.db.next-T", &whole),
        ],
        &[("data.db.parked-T", &damaged), ("data.db.next-T", &whole)],
        // All is done.
        &[("data.db", &whole), ("data.db.parked-T", &damaged)],
    ];
    for (number, files) in states.iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in *files {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        let path = folder.path().join("data.db");
        let (store, _) = open_or_park(&path).unwrap();
        assert_eq!(Store::parked_files(&path).len(), 1, "state {number}");
        assert_eq!(store.last_arrival().await.unwrap(), 200, "state {number}");
        store.stop();
        let found = Fixture {
            folder,
            store,
            ..Fixture::new()
        };
        assert_eq!(found.dump("outbox"), outbox, "state {number}");
        let left = names(found.folder.path());
        let is_temporary = |name: &String| name.contains("rebuild") || name.contains("next");
        assert!(!left.iter().any(is_temporary), "state {number}: {left:?}");
        let parked = &Store::parked_files(&found.path())[0];
        assert_eq!(fs::read(parked).unwrap(), damaged, "state {number}");
    }
}

#[tokio::test]
async fn what_was_only_in_the_log_is_carried_over_too() {
    let fixture = worn().await;
    damage(&fixture.path(), "inbox_mailbox");
    // Committed behind the damage, in the log, and never moved into the file.
    let raw = fixture.raw();
    raw.pragma_update(None, "journal_mode", "WAL").unwrap();
    raw.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
    let sql = "INSERT INTO agent (mesh_id, agent, registered_at) VALUES (zeroblob(16), 'late', 1)";
    raw.execute(sql, []).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for name in ["data.db", "data.db-wal"] {
        fs::copy(fixture.folder.path().join(name), folder.path().join(name)).unwrap();
    }
    drop(raw);
    let (store, parked) = open_or_park(&folder.path().join("data.db")).unwrap();
    assert!(parked.is_some());
    let copied = Fixture {
        folder,
        store,
        ..Fixture::new()
    };
    assert_eq!(copied.dump("agent").len(), 1);
    let log = names(copied.folder.path());
    assert!(
        log.contains(&"data.db.parked-2026-11-06T212000000Z-wal".to_owned()),
        "{log:?}"
    );
}

#[tokio::test]
async fn a_whole_file_is_opened_as_it_is_clean_or_not() {
    let fixture = worn().await;
    let (store, parked) = open_or_park(&fixture.path()).unwrap();
    assert!(parked.is_none());
    assert_eq!(store.figures().await.unwrap().inbox, 200);
    assert!(Store::parked_files(&fixture.path()).is_empty());
    let later = WallMs(NOW.0 + 1);
    assert!(store.inbox_shown(vec![3], None, later).await.is_ok());
}

#[tokio::test]
async fn a_damaged_counter_of_arrivals_never_gives_a_place_twice() {
    let fixture = worn().await;
    let sql = "DELETE FROM inbox WHERE arrival > 150";
    fixture.raw().execute(sql, []).unwrap();
    damage(&fixture.path(), "sqlite_sequence");
    let (store, parked) = open_or_park(&fixture.path()).unwrap();
    assert!(parked.is_some());
    let fixture = Fixture { store, ..fixture };
    let page = fixture.store.inbox_page(everything()).await.unwrap();
    assert_eq!(page.len(), 150, "the rows were whole");
    let next = vec![fixture.item("coder", "next", at(1, 201))];
    let received = fixture.store.receive(fixture.mesh, next).await.unwrap();
    assert!(
        matches!(received[0], Received::Stored(place) if place > 200),
        "{received:?}"
    );
}
