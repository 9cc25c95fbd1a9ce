//! Blobs that come from another home: gathered beside the others, whole or not there at all.

use heddle_core::file::{ContentHash, FileContent};
use heddle_core::limits::SWEEP_GRACE;
use heddle_store::{BlobError, Blobs, FileBytes, FileFind, Store};

use crate::blobs::{bytes_of, place, tree};
use crate::files::{op, path, stamp};
use crate::fixture::{Fixture, NOW};

const PART: usize = 60_000;

/// A file that another home has.
async fn named(fixture: &Fixture, seed: u8) -> ContentHash {
    let bytes = bytes_of(seed);
    let hash = ContentHash::of(&bytes);
    let content = FileContent::blob(hash, bytes.len() as u64, None).ok();
    let share = op(
        stamp(u64::from(seed) + 1, "m/other", u128::from(seed)),
        &format!("f{seed}"),
        content,
    );
    fixture.store.take_in(fixture.mesh, share).await.unwrap();
    hash
}

async fn is_here(fixture: &Fixture, seed: u8) -> bool {
    let find = FileFind::Path(
        heddle_core::lamport::PeerId::new("m/other"),
        path(&format!("f{seed}")),
    );
    let row = fixture.store.find_file(fixture.mesh, find).await.unwrap();
    row.unwrap().bytes == FileBytes::Blob
}

#[tokio::test]
async fn lf_27_a_fetched_blob_is_there_when_its_last_byte_is_right_and_not_before() {
    let fixture = Fixture::new();
    let root = fixture.folder.path().join("blobs");
    let hash = named(&fixture, 3).await;
    let bytes = bytes_of(3);
    let size = bytes.len() as u64;
    let missing = fixture.store.missing_blobs(fixture.mesh, None, 10);
    let missing = missing.await.unwrap();
    assert_eq!(missing.len(), 1);
    assert_eq!((missing[0].hash, missing[0].size), (hash, size));
    assert_eq!(missing[0].owner.as_str(), "m/other");
    {
        let blobs = fixture.blobs();
        let mut partial = blobs.partial(hash).unwrap().unwrap();
        assert!(blobs.partial(hash).unwrap().is_none(), "one at a time");
        partial.append(&bytes[..PART]).unwrap();
    }
    // A process later: it goes on where the last one was.
    let blobs = Blobs::open(&root).unwrap();
    let mut partial = blobs.partial(hash).unwrap().unwrap();
    assert_eq!(partial.have(), PART as u64);
    assert!(!place(&root, hash).exists() && !is_here(&fixture, 3).await);
    partial.append(&bytes[PART..]).unwrap();
    let landed = partial.finish(size).unwrap();
    // Died between the name and the row: the blob is found where it lies.
    drop(landed);
    assert!(!is_here(&fixture, 3).await);
    let found = Store::found_blob(&blobs, hash, size).unwrap();
    assert!(fixture.store.blob_arrived(found).await.unwrap());
    assert!(is_here(&fixture, 3).await);
    assert!(tree(&root.join("part")).len() == 1, "no part is left over");
    let missing = fixture.store.missing_blobs(fixture.mesh, None, 10);
    assert_eq!(missing.await.unwrap(), []);
    // Others of the mesh may have it, and nobody else.
    let other = heddle_core::ids::MeshId(ulid::Ulid(99));
    let store = &fixture.store;
    let given = store.blob_shared_in(fixture.mesh, hash).await.unwrap();
    assert_eq!(given, Some(size));
    assert_eq!(store.blob_shared_in(other, hash).await.unwrap(), None);
    for (offset, length) in [(0, 7), (199_990, 100), (200_000, 5), (1 << 40, 5)] {
        let part = blobs.read_part(hash, size, offset, length).unwrap();
        let from = usize::try_from(offset).unwrap().min(bytes.len());
        let to = (from + length as usize).min(bytes.len());
        assert_eq!(part, bytes[from..to], "{offset}");
    }
}

#[tokio::test]
async fn bytes_with_another_hash_are_forgotten_and_never_named() {
    let fixture = Fixture::new();
    let (blobs, root) = (fixture.blobs(), fixture.folder.path().join("blobs"));
    let hash = named(&fixture, 4).await;
    let bytes = bytes_of(4);
    let mut flipped = bytes.clone();
    flipped[1234] ^= 1;
    let mut longer = bytes.clone();
    longer.push(0);
    for (lie, size) in [
        (&flipped[..], bytes.len()),
        (&bytes[..bytes.len() - 1], bytes.len()),
        (&longer[..], bytes.len()),
        (&longer[..], longer.len()),
        (&[][..], bytes.len()),
    ] {
        let mut partial = blobs.partial(hash).unwrap().unwrap();
        assert_eq!(partial.have(), 0, "a lie leaves nothing");
        partial.append(lie).unwrap();
        let refused = partial.finish(size as u64).unwrap_err();
        assert!(matches!(refused, BlobError::Damaged { .. }), "{refused}");
        assert!(!place(&root, hash).exists());
    }
    assert!(!is_here(&fixture, 4).await);
    let mut partial = blobs.partial(hash).unwrap().unwrap();
    partial.append(&bytes).unwrap();
    let landed = partial.finish(bytes.len() as u64).unwrap();
    assert!(fixture.store.blob_arrived(landed).await.unwrap());
    assert!(is_here(&fixture, 4).await);
}

#[tokio::test]
async fn what_came_of_a_file_that_nobody_wants_any_more_is_swept() {
    let fixture = Fixture::new();
    let (blobs, root) = (fixture.blobs(), fixture.folder.path().join("blobs"));
    let wanted = named(&fixture, 5).await;
    let gone = ContentHash::of(b"nobody's");
    let busy = ContentHash::of(b"being fetched");
    for hash in [wanted, gone] {
        let mut partial = blobs.partial(hash).unwrap().unwrap();
        partial.append(b"something").unwrap();
    }
    let _fetching = blobs.partial(busy).unwrap().unwrap();
    let swept = fixture
        .store
        .sweep_files(&blobs, NOW, SWEEP_GRACE, &|| false);
    swept.await.unwrap();
    let part = |hash: ContentHash| root.join("part").join(hash.to_string()).exists();
    assert!(part(wanted) && part(busy) && !part(gone));
}

#[test]
fn lf_37_t_16_a_part_is_private_and_no_link_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("blobs");
    let blobs = Blobs::open(&root).unwrap();
    let hash = ContentHash::of(b"x");
    drop(blobs.partial(hash).unwrap().unwrap());
    for (path, mode) in tree(&root) {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode & 0o777, expected, "{}", path.display());
    }
    let outside = folder.path().join("outside");
    std::fs::write(&outside, "of somebody").unwrap();
    let place = root.join("part").join(hash.to_string());
    std::fs::remove_file(&place).unwrap();
    std::os::unix::fs::symlink(&outside, &place).unwrap();
    assert!(blobs.partial(hash).is_err());
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "of somebody");
    std::fs::remove_file(&place).unwrap();
    assert!(
        blobs.partial(hash).unwrap().is_some(),
        "a refusal leaves no lock"
    );
}
