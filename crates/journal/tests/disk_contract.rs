//! What the journal believes about a disk, asked of the real one and of the one in memory.
#![cfg(test)]

use std::io::ErrorKind;
use std::path::Path;

use heddle_journal::disk::{Disk, Looked, MemDisk, RealDisk, replace};

/// Blank room is written into by one at a time, and nothing but newlines is ever written over.
fn room(disk: &dyn Disk, file: &Path) {
    disk.write_new(file, b"one\n\n\n\n\n").unwrap();
    let again = disk.write_new(file, b"other").unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    let mut first = disk.open_room(file, 4).unwrap();
    let second = disk.open_room(file, 4).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::WouldBlock);
    assert_eq!(first.append(b"two").unwrap(), 3);
    first.sync().unwrap();
    drop(first);
    // One that came past the lock, with an older look at the end.
    let mut late = disk.open_room(file, 4).unwrap();
    let over = late.append(b"xxx").unwrap_err();
    assert_eq!(over.kind(), ErrorKind::AlreadyExists);
    drop(late);
    let mut longer = disk.open_room(file, 7).unwrap();
    assert_eq!(longer.append(b"three").unwrap(), 5);
    assert_eq!(disk.read(file, 100).unwrap(), b"one\ntwothree");
    drop(longer);
    disk.remove(file).unwrap();
}

/// Of a plain file whoever searches is told the same, and of a folder of such names.
fn looks(disk: &dyn Disk, dir: &Path, file: &Path) {
    let whole = Looked::File(b"one two three".to_vec());
    assert_eq!(disk.look(file, 100).unwrap(), whole);
    for (path, limit, kind) in [
        (dir.join("absent"), 100, ErrorKind::NotFound),
        (file.to_owned(), 12, ErrorKind::FileTooLarge),
    ] {
        assert_eq!(disk.look(&path, limit).unwrap_err().kind(), kind);
        assert_eq!(disk.read(&path, limit).unwrap_err().kind(), kind);
    }
    assert_eq!(disk.list_all(dir).unwrap(), [("f".into(), false)]);
    assert_eq!(disk.list_all(&dir.join("absent")).unwrap(), []);
}

/// Runs the cases in a folder that exists.
fn contract(disk: &dyn Disk, root: &Path) {
    let dir = root.join("a/b");
    disk.create_dir(&dir).unwrap();
    disk.create_dir(&dir).unwrap();
    let file = dir.join("f");
    assert_eq!(disk.len(&file).unwrap(), None);
    assert_eq!(
        disk.read(&file, 10).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        disk.open_append(&file).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        disk.rename(&file, &dir.join("g")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(disk.remove(&file).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(
        disk.write(&root.join("no/x"), b"").unwrap_err().kind(),
        ErrorKind::NotFound
    );
    disk.create(&file).unwrap();
    assert_eq!(
        disk.create(&file).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    let mut first = disk.open_append(&file).unwrap();
    let mut second = disk.open_append(&file).unwrap();
    assert_eq!(first.append(b"one ").unwrap(), 4);
    assert_eq!(second.append(b"two ").unwrap(), 4);
    assert_eq!(first.append(b"three").unwrap(), 5);
    first.sync().unwrap();
    assert_eq!(disk.read(&file, 100).unwrap(), b"one two three");
    looks(disk, &dir, &file);
    assert_eq!(disk.read_at(&file, 4, 3).unwrap(), b"two");
    assert_eq!(disk.read_at(&file, 8, 100).unwrap(), b"three");
    assert_eq!(disk.read_at(&file, 99, 5).unwrap(), b"");
    assert_eq!(disk.open_read(&file).unwrap().length().unwrap(), 13);
    let piece = disk.open_read(&file).unwrap().read_at(8, 100);
    assert_eq!(piece.unwrap(), b"three");
    room(disk, &dir.join("room"));
    disk.write_at(&file, 4, b"TWO").unwrap();
    assert_eq!(disk.len(&file).unwrap(), Some(13));
    disk.write(&file, b"new").unwrap();
    assert_eq!(disk.read(&file, 100).unwrap(), b"new");
    for must_survive in [false, true] {
        replace(disk, &file, b"whole", must_survive).unwrap();
        assert_eq!(disk.read(&file, 100).unwrap(), b"whole");
        assert_eq!(disk.len(&dir.join(".f.tmp")).unwrap(), None);
    }
    disk.rename(&file, &dir.join("g")).unwrap();
    let names = |dir: &Path| {
        disk.list(dir)
            .unwrap()
            .into_iter()
            .map(|e| (e.name, e.is_dir))
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&dir), [("g".to_owned(), false)]);
    assert_eq!(names(&root.join("a")), [("b".to_owned(), true)]);
    assert!(names(&root.join("absent")).is_empty());
    disk.sync_dir(&dir).unwrap();
    disk.sync_all(root).unwrap();
    locks(disk, &dir.join("lock"));
    disk.remove(&dir.join("g")).unwrap();
    assert_eq!(disk.len(&dir.join("g")).unwrap(), None);
}

fn locks(disk: &dyn Disk, lock: &Path) {
    let held = disk.try_lock(lock).unwrap().expect("free");
    assert!(
        disk.try_lock(lock).unwrap().is_none(),
        "held by another handle of this process"
    );
    drop(held);
    let mut again = disk.try_lock(lock).unwrap().expect("given back");
    for text in ["somebody", "somebody else", "me", "me"] {
        again.sign(text).unwrap();
        assert_eq!(again.signed().unwrap(), text.as_bytes());
        assert_eq!(disk.read(lock, 99).unwrap(), text.as_bytes());
    }
    drop(again);
    let kept = disk.try_lock(lock).unwrap().expect("given back");
    assert_eq!(kept.signed().unwrap(), b"me", "what is signed stays");
}

#[test]
fn the_real_disk_keeps_the_contract_with_modes_for_the_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    contract(&RealDisk, folder.path());
    let mode = |path: &str| {
        std::fs::metadata(folder.path().join(path))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(
        (mode("a"), mode("a/b"), mode("a/b/lock")),
        (0o700, 0o700, 0o600)
    );
}

#[test]
fn the_disk_in_memory_keeps_the_contract() {
    let disk = MemDisk::new();
    disk.create_dir(Path::new("/root")).unwrap();
    contract(&disk, Path::new("/root"));
}
