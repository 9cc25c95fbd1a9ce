//! Somebody else's file is shared anew and its new bytes are not here: the old ones stay, as what it was, until they come (seed
//! §14, `read_peer_file`).

use std::time::Duration;

use heddle_core::file::{ContentHash, FileContent};
use heddle_core::ids::OpId;
use heddle_core::lamport::PeerId;
use heddle_store::{FileBefore, FileBytes, FileFind, FileRow};

use crate::blobs::{bytes_of, landed, place};
use crate::files::{op, path, stamp};
use crate::fixture::{Fixture, NOW};
use crate::mended::mend;

const PEER: &str = "m/other";

fn blob(seed: u8) -> FileContent {
    let bytes = bytes_of(seed);
    FileContent::blob(ContentHash::of(&bytes), bytes.len() as u64, None).unwrap()
}

impl Fixture {
    /// As the log brings it: `nth` counts the ops of this file.
    async fn shared(&self, nth: u8, content: Option<FileContent>) {
        let change = op(stamp(u64::from(nth), PEER, u128::from(nth)), "doc", content);
        self.store.take_in(self.mesh, change).await.unwrap();
    }

    async fn arrives(&self, seed: u8) {
        let came = landed(&self.blobs(), &bytes_of(seed));
        assert!(self.store.blob_arrived(came).await.unwrap());
    }

    async fn doc(&self) -> FileRow {
        let find = FileFind::Path(PeerId::new(PEER), path("doc"));
        let found = self.store.find_file(self.mesh, find).await.unwrap();
        found.unwrap()
    }

    async fn before(&self) -> Option<FileBefore> {
        let now = self.doc().await;
        self.store.file_before(self.mesh, &now).await.unwrap()
    }

    async fn swept(&self) {
        let blobs = self.blobs();
        self.store.sweep_deleted(&blobs).await.unwrap();
        let swept = self
            .store
            .sweep_files(&blobs, NOW, Duration::ZERO, &|| false);
        swept.await.unwrap();
    }
}

#[tokio::test]
async fn the_last_bytes_of_anothers_file_stay_until_its_new_ones_are_here() {
    let fixture = Fixture::new().with_mesh().await;
    let root = fixture.folder.path().join("blobs");
    fixture.shared(1, Some(blob(1))).await;
    fixture.arrives(1).await;
    assert_eq!(fixture.before().await, None);
    // Two that never come in between: the last that was here counts.
    fixture.shared(2, Some(blob(2))).await;
    fixture.shared(3, Some(blob(3))).await;
    assert_eq!(fixture.doc().await.bytes, FileBytes::Elsewhere);
    fixture.swept().await;
    let (fixture, mended) = {
        // And a repair takes it along.
        let spoil = "UPDATE vector_head SET changes = 0; UPDATE store_state SET clean = 0;
            INSERT INTO blob_refs (sha256, ref_count, bytes, pending_unlink) VALUES (zeroblob(32), 7, 1, 0)";
        fixture.raw().execute_batch(spoil).unwrap();
        mend(fixture)
    };
    assert!(
        mended.tables.iter().all(heddle_store::Kept::is_whole),
        "{mended:?}"
    );
    fixture.swept().await;
    let before = fixture.before().await.unwrap();
    assert_eq!(before.row.hash, ContentHash::of(&bytes_of(1)));
    assert_eq!((before.row.bytes, before.content), (FileBytes::Blob, None));
    assert_eq!(before.newer, OpId::from_bytes(3_u128.to_be_bytes()));
    assert!(place(&root, before.row.hash).exists());
    let by_id = fixture
        .store
        .file_before_by_id(fixture.mesh, before.row.id());
    assert_eq!(by_id.await.unwrap().unwrap().row, before.row);
    fixture.counts_are_right();

    fixture.arrives(3).await;
    assert_eq!(fixture.before().await, None);
    fixture.swept().await;
    assert!(!place(&root, before.row.hash).exists());
    assert!(place(&root, ContentHash::of(&bytes_of(3))).exists());
    fixture.counts_are_right();
}

#[tokio::test]
async fn what_a_file_was_goes_with_the_file_and_when_nothing_is_missing() {
    let fixture = Fixture::new().with_mesh().await;
    let root = fixture.folder.path().join("blobs");
    let few = FileContent::inline(b"few".to_vec(), None).unwrap();
    fixture.shared(1, Some(few.clone())).await;
    fixture.shared(2, Some(blob(2))).await;
    let before = fixture.before().await.unwrap();
    assert_eq!(before.content.as_deref(), Some(&b"few"[..]));
    // Few again: they are here with their row.
    fixture.shared(3, Some(few)).await;
    assert_eq!(fixture.before().await, None);
    let kept = || -> i64 {
        let count = "SELECT count(*) FROM file_before";
        fixture
            .raw()
            .query_row(count, [], |row| row.get(0))
            .unwrap()
    };
    assert_eq!(kept(), 0);
    // Deleted by its owner: nobody reads what it was.
    fixture.shared(4, Some(blob(4))).await;
    fixture.arrives(4).await;
    fixture.shared(5, Some(blob(5))).await;
    assert_eq!(kept(), 1);
    fixture.shared(6, None).await;
    assert_eq!(kept(), 0);
    fixture.swept().await;
    assert!(!place(&root, ContentHash::of(&bytes_of(4))).exists());
    // One's own new bytes are here before they are named.
    let blobs = fixture.blobs();
    fixture.share_blob(&blobs, "a", "own", 7).await;
    fixture.share_blob(&blobs, "b", "own", 8).await;
    assert_eq!(kept(), 0);
    // The same bytes again are no other ones.
    fixture.shared(7, Some(blob(9))).await;
    fixture.shared(8, Some(blob(9))).await;
    assert_eq!(kept(), 0);
    // Few bytes that a disk has changed are none that were shared.
    fixture
        .shared(9, Some(FileContent::inline(b"few".to_vec(), None).unwrap()))
        .await;
    fixture.shared(10, Some(blob(10))).await;
    fixture
        .raw()
        .execute("UPDATE file_before SET content = CAST('fox' AS BLOB)", [])
        .unwrap();
    assert_eq!(fixture.before().await, None);
}
