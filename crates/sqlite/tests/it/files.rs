//! Who may read the file, what may stand in its place, and which names are only names.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use heddle_sqlite::{Database, OpenError, Options};

use crate::support::{Home, SCHEMA, insert};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn nobody_else_can_read_the_file_its_log_or_a_folder_made_for_it() {
    let home = Home::new();
    let folder = home.folder.path().join("made/for/it");
    let database = Database::open(Options::new(folder.join("data.db")), SCHEMA).unwrap();
    assert_eq!(database.write_blocking(insert("secret")), Ok(()));
    for name in ["data.db", "data.db-wal", "data.db-shm"] {
        assert_eq!(mode(&folder.join(name)), 0o600, "{name}");
    }
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(folder.parent().unwrap()), 0o700);
}

#[test]
fn a_file_that_became_readable_for_others_is_made_private_again() {
    let home = Home::new();
    home.open().stop();
    fs::set_permissions(home.path(), Permissions::from_mode(0o644)).unwrap();
    let log = home.folder.path().join("data.db-wal");
    fs::write(&log, b"").unwrap();
    fs::set_permissions(&log, Permissions::from_mode(0o666)).unwrap();
    let database = home.open();
    assert_eq!(mode(&home.path()), 0o600);
    assert_eq!(database.write_blocking(insert("x")), Ok(()));
    assert_eq!(mode(&log), 0o600);
}

#[test]
fn a_symbolic_link_cannot_send_the_database_elsewhere() {
    let home = Home::new();
    let elsewhere = home.folder.path().join("elsewhere");
    symlink(&elsewhere, home.path()).unwrap();
    let dangling = Database::open(home.options(), SCHEMA);
    assert!(matches!(dangling, Err(OpenError::Symlink { .. })));
    assert!(!elsewhere.exists());

    fs::write(&elsewhere, b"precious").unwrap();
    let standing = Database::open(home.options(), SCHEMA);
    assert!(matches!(standing, Err(OpenError::Symlink { .. })));
    assert_eq!(fs::read(&elsewhere).unwrap(), b"precious");

    fs::remove_file(home.path()).unwrap();
    symlink(&elsewhere, home.folder.path().join("data.db-wal")).unwrap();
    let log = Database::open(home.options(), SCHEMA);
    assert!(matches!(log, Err(OpenError::Symlink { .. })));
    assert_eq!(fs::read(&elsewhere).unwrap(), b"precious");
}

#[test]
fn a_folder_in_the_place_of_the_file_is_refused() {
    let home = Home::new();
    fs::create_dir(home.path()).unwrap();
    let opened = Database::open(home.options(), SCHEMA);
    assert!(matches!(opened, Err(OpenError::NotAFile { .. })));
}

#[test]
fn a_name_that_looks_like_a_uri_is_still_a_name() {
    let home = Home::new();
    let path = home.folder.path().join("file:data.db?mode=memory&vfs=none");
    let database = Database::open(Options::new(&path), SCHEMA).unwrap();
    assert_eq!(database.write_blocking(insert("x")), Ok(()));
    database.stop();
    assert!(fs::metadata(&path).unwrap().len() > 0);
}
