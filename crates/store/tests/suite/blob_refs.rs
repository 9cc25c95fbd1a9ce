//! What is counted of blobs is derived from the rows of files: a disk that changes a count takes no bytes away.

use std::path::Path;
use std::time::Duration;

use heddle_core::file::ContentHash;
use heddle_core::names::{MemberName, MeshName};
use heddle_store::{
    Blobs, Checkup, FileBytes, RepairHints, Store, Swept, check_up, repair, want_lost_blobs,
};

use crate::blobs::{bytes_of, landed, place};
use crate::data::fresh;
use crate::fixture::{Fixture, NOW, open};

const LIE: &str = "PRAGMA ignore_check_constraints = ON;";

async fn swept(store: &Store, blobs: &Blobs) -> Swept {
    let swept = store.sweep_files(blobs, NOW, Duration::ZERO, &|| false);
    swept.await.unwrap()
}

fn looked(fixture: &Fixture, root: &Path) -> Checkup {
    check_up(&fixture.path(), root, |_, _| true, false).unwrap()
}

/// What a bit does to the note about a blob.
const CHANGES: [&str; 7] = [
    "UPDATE blob_refs SET ref_count = 0",
    "UPDATE blob_refs SET ref_count = 0, pending_unlink = 1",
    "UPDATE blob_refs SET ref_count = 0, pending_unlink = 1, here = 0",
    "UPDATE blob_refs SET sha256 = zeroblob(32)",
    "UPDATE blob_refs SET bytes = bytes + 4096",
    "UPDATE blob_refs SET here = 0",
    "DELETE FROM blob_refs",
];

#[tokio::test]
async fn lf_26_a_changed_count_takes_no_bytes_away_and_is_named_and_put_right() {
    for change in CHANGES {
        let fixture = Fixture::new();
        let (blobs, root) = (fixture.blobs(), fixture.folder.path().join("blobs"));
        fixture.share_blob(&blobs, "a", "f", 0).await;
        let hash = ContentHash::of(&bytes_of(0));
        assert_eq!(looked(&fixture, &root).senseless, [] as [String; 0]);
        let changed = format!("{LIE} {change}");
        fixture.raw().execute_batch(&changed).unwrap();
        let said = looked(&fixture, &root);
        assert_eq!(said.blobs_orphaned, 0, "{change}");
        assert_eq!((said.blobs_missing, said.blobs_damaged), (0, 0), "{change}");
        let senseless = said.senseless.join("; ");
        assert!(senseless.contains("blob_refs: "), "{change}: {senseless}");
        assert_eq!(fixture.store.sweep_deleted(&blobs).await.unwrap().blobs, 0);
        assert_eq!(swept(&fixture.store, &blobs).await.blobs, 0, "{change}");
        assert!(place(&root, hash).exists(), "{change}");
        let row = fixture.file("f").await.unwrap();
        assert_eq!(row.bytes, FileBytes::Blob, "{change}");
        let noted = fixture.refs();
        assert!(noted.contains(&(hash, 1, true, false)), "{change}");
        // And what is nobody's is still taken away.
        fresh(fixture.unshare("d", "f").await);
        assert_eq!(swept(&fixture.store, &blobs).await.blobs, 1, "{change}");
    }
}

#[tokio::test]
async fn a_repair_counts_by_the_rows_and_finds_the_bytes_where_they_lie() {
    for change in CHANGES {
        let mut fixture = Fixture::new().with_mesh().await;
        let blobs = fixture.blobs();
        fixture.share_blob(&blobs, "a", "f", 0).await;
        fixture.store.stop();
        let changed = format!("{LIE} {change}");
        fixture.raw().execute_batch(&changed).unwrap();
        let hints = RepairHints {
            elsewhere: Vec::new(),
            home: MeshName::parse("home").unwrap(),
            person: MemberName::parse("tester").unwrap(),
            models: Vec::new(),
        };
        repair(&fixture.path(), &blobs, &hints, NOW).unwrap();
        let wanted = want_lost_blobs(&fixture.path(), &blobs).unwrap();
        assert_eq!(wanted, [] as [String; 0], "{change}");
        let root = fixture.folder.path().join("blobs");
        assert_eq!(
            looked(&fixture, &root).senseless,
            [] as [String; 0],
            "{change}"
        );
        fixture.store = open(&fixture.path()).unwrap();
        let row = fixture.file("f").await.unwrap();
        assert_eq!(row.bytes, FileBytes::Blob, "{change}");
        swept(&fixture.store, &blobs).await;
        assert!(blobs.read(row.hash, row.size).is_ok(), "{change}");
    }
}

#[tokio::test]
async fn while_a_file_is_not_what_was_written_blobs_that_it_may_have_named_stay() {
    let fixture = Fixture::new();
    let blobs = fixture.blobs();
    fixture.share_blob(&blobs, "a", "f", 0).await;
    drop(landed(&blobs, &bytes_of(1)));
    let raw = fixture.raw();
    let renamed = |from: &str, to: &str| {
        raw.execute("UPDATE files SET path = ?2 WHERE path = ?1", [from, to])
            .unwrap();
    };
    renamed("f", "g");
    assert_eq!(swept(&fixture.store, &blobs).await.blobs, 0);
    renamed("g", "f");
    assert_eq!(swept(&fixture.store, &blobs).await.blobs, 1);
    assert!(fixture.file("f").await.is_some());
}
