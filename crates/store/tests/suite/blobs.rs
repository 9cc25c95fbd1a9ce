//! The blob folder on a real disk: whole or not at all, private, and never through a link.

use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use heddle_core::file::ContentHash;
use heddle_store::{BlobError, Blobs, Incoming, Landed};
use tempfile::TempDir;

const LARGE: usize = 200_000;

pub(crate) fn bytes_of(seed: u8) -> Vec<u8> {
    (0..LARGE)
        .map(|n| u8::try_from(n % 251).unwrap() ^ seed)
        .collect()
}

pub(crate) fn landed(blobs: &Blobs, bytes: &[u8]) -> Landed {
    match blobs.take_in(&mut &bytes[..]).unwrap() {
        Incoming::Blob(landing) => landing.land().unwrap(),
        Incoming::Inline { hash, .. } => panic!("{hash} is too short for a blob"),
    }
}

pub(crate) fn place(root: &Path, hash: ContentHash) -> PathBuf {
    let name = hash.to_string();
    root.join(&name[..2]).join(name)
}

fn folder() -> (TempDir, PathBuf, Blobs) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("blobs");
    let blobs = Blobs::open(&root).unwrap();
    (folder, root, blobs)
}

/// Every file below, with its mode; folders, too.
pub(crate) fn tree(root: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = vec![(root.to_owned(), mode(root))];
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() {
            found.extend(tree(&path));
        } else {
            let mode = mode(&path);
            found.push((path, mode));
        }
    }
    found
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o777
}

pub(crate) fn files(root: &Path) -> Vec<PathBuf> {
    let all = tree(root).into_iter().map(|(path, _)| path);
    all.filter(|path| !path.is_dir()).collect()
}

fn read(blobs: &Blobs, bytes: &[u8]) -> Result<Vec<u8>, BlobError> {
    let mut reader = blobs.read(ContentHash::of(bytes), bytes.len() as u64)?;
    let (mut whole, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        match reader.next(&mut piece) {
            Ok(0) => return Ok(whole),
            Ok(read) => whole.extend_from_slice(&piece[..read]),
            Err(error) => {
                assert!(whole.len() < bytes.len(), "all of a wrong file came out");
                return Err(error);
            }
        }
    }
}

#[test]
fn c10_a_blob_has_its_name_only_when_it_is_whole_and_comes_back_as_it_was() {
    let (_folder, root, blobs) = folder();
    let bytes = bytes_of(0);
    let landing = match blobs.take_in(&mut &bytes[..]).unwrap() {
        Incoming::Blob(landing) => landing,
        Incoming::Inline { hash, .. } => panic!("{hash} is too short for a blob"),
    };
    assert_eq!(
        (landing.hash, landing.size),
        (ContentHash::of(&bytes), LARGE as u64)
    );
    assert_eq!(files(&root), [root.join("tmp/0000000000000000")]);
    let landed = landing.land().unwrap();
    assert_eq!(files(&root), [place(&root, landed.hash)]);
    assert_eq!(read(&blobs, &bytes).unwrap(), bytes);
    let mut reader = blobs.read(landed.hash, landed.size).unwrap();
    reader.verify(&mut [0; 1000]).unwrap();
    let mut first = [0; 10];
    assert_eq!(reader.next(&mut first).unwrap(), 10);
    assert_eq!(first, bytes[..10], "verifying rewinds");
}

#[test]
fn what_is_short_stays_out_of_the_folder() {
    let (_folder, root, blobs) = folder();
    for size in [0, 1, (64 << 10) - 1] {
        let bytes = vec![7; size];
        match blobs.take_in(&mut &bytes[..]).unwrap() {
            Incoming::Inline { hash, bytes: kept } => {
                assert_eq!((hash, kept), (ContentHash::of(&bytes), bytes));
            }
            Incoming::Blob(landing) => panic!("{landing:?} is too long for a row"),
        }
    }
    assert_eq!(files(&root), [] as [PathBuf; 0]);
    let bytes = vec![7; 64 << 10];
    assert!(matches!(
        blobs.take_in(&mut &bytes[..]),
        Ok(Incoming::Blob(_))
    ));
}

#[test]
fn a_source_that_breaks_and_a_landing_that_is_dropped_leave_nothing() {
    struct Broken(usize);
    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = buffer.len().min(self.0);
            self.0 -= most;
            match most {
                0 => Err(io::Error::other("broken")),
                most => Ok(most),
            }
        }
    }
    let (_folder, root, blobs) = folder();
    let error = blobs.take_in(&mut Broken(LARGE)).unwrap_err();
    assert!(matches!(error, BlobError::Source(_)), "{error:?}");
    assert_eq!(files(&root), [] as [PathBuf; 0]);
    drop(blobs.take_in(&mut &bytes_of(1)[..]).unwrap());
    assert_eq!(files(&root), [] as [PathBuf; 0]);
}

#[test]
fn what_a_crash_left_half_written_is_gone_at_the_next_start_and_whole_blobs_stay() {
    let (_folder, root, blobs) = folder();
    let bytes = bytes_of(0);
    let kept = landed(&blobs, &bytes);
    let landing = blobs.take_in(&mut &bytes_of(1)[..]).unwrap();
    std::mem::forget(landing);
    assert_eq!(files(&root).len(), 2);
    let blobs = Blobs::open(&root).unwrap();
    assert_eq!(files(&root), [place(&root, kept.hash)]);
    assert_eq!(read(&blobs, &bytes).unwrap(), bytes);
}

#[test]
fn lf_37_everything_is_private_and_drift_is_repaired() {
    let (_folder, root, blobs) = folder();
    let bytes = bytes_of(0);
    let waiting = blobs.take_in(&mut &bytes_of(1)[..]).unwrap();
    let kept = landed(&blobs, &bytes);
    for (path, mode) in tree(&root) {
        let right = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, right, "{path:?}");
    }
    drop(waiting);
    let file = place(&root, kept.hash);
    for (path, mode) in [
        (&file, 0o644),
        (&file.parent().unwrap().to_owned(), 0o755),
        (&root, 0o777),
    ] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    let blobs = Blobs::open(&root).unwrap();
    drop(landed(&blobs, &bytes));
    read(&blobs, &bytes).unwrap();
    for (path, mode) in tree(&root) {
        let right = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, right, "{path:?}");
    }
}

#[test]
fn c10_damaged_bytes_never_come_out_whole_and_sharing_again_heals_them() {
    let (_folder, root, blobs) = folder();
    let bytes = bytes_of(0);
    let hash = landed(&blobs, &bytes).hash;
    let file = place(&root, hash);
    let flipped = |at: usize| {
        let mut other = bytes.clone();
        other[at] ^= 1;
        other
    };
    let longer = [&bytes[..], b"x"].concat();
    for damage in [
        flipped(0),
        flipped(LARGE / 2),
        flipped(LARGE - 1),
        bytes[..LARGE - 1].to_vec(),
        longer,
        Vec::new(),
    ] {
        std::fs::write(&file, damage).unwrap();
        let error = read(&blobs, &bytes).unwrap_err();
        assert!(matches!(error, BlobError::Damaged { .. }), "{error:?}");
        let verified = blobs.read(hash, LARGE as u64).and_then(|mut reader| {
            reader.verify(&mut [0; 4096])?;
            Ok(())
        });
        assert!(verified.is_err());
        drop(landed(&blobs, &bytes));
        assert_eq!(read(&blobs, &bytes).unwrap(), bytes, "healed");
    }
    std::fs::remove_file(&file).unwrap();
    let error = read(&blobs, &bytes).unwrap_err();
    assert!(matches!(error, BlobError::Missing { .. }), "{error:?}");
}

#[test]
fn t_16_a_planted_link_is_neither_read_nor_written_through() {
    let (folder, root, blobs) = folder();
    let bytes = bytes_of(0);
    let outside = folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let target = outside.join("target");
    std::fs::write(&target, &bytes).unwrap();
    let hash = landed(&blobs, &bytes).hash;
    let file = place(&root, hash);
    let foreign = |blobs: &Blobs| {
        let error = read(blobs, &bytes).unwrap_err();
        assert!(matches!(error, BlobError::Foreign { .. }), "{error:?}");
    };
    // In the place of the file: not read, and replaced by the next share, its target untouched.
    std::fs::remove_file(&file).unwrap();
    symlink(&target, &file).unwrap();
    foreign(&blobs);
    drop(landed(&blobs, &bytes));
    assert!(file.symlink_metadata().unwrap().is_file());
    assert_eq!(std::fs::read(&target).unwrap(), bytes);
    // A folder in its place.
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    foreign(&blobs);
    // In the place of its folder: refused both ways, and nothing lands outside.
    std::fs::remove_dir(&file).unwrap();
    let above = file.parent().unwrap();
    std::fs::remove_dir(above).unwrap();
    symlink(&outside, above).unwrap();
    foreign(&blobs);
    let landing = match blobs.take_in(&mut &bytes[..]).unwrap() {
        Incoming::Blob(landing) => landing,
        Incoming::Inline { hash, .. } => panic!("{hash} is too short for a blob"),
    };
    assert!(matches!(landing.land(), Err(BlobError::Foreign { .. })));
    assert_eq!(files(&outside), [target]);
    // In the place of the whole.
    let root = folder.path().join("link");
    symlink(&outside, &root).unwrap();
    assert!(matches!(Blobs::open(&root), Err(BlobError::Foreign { .. })));
}
