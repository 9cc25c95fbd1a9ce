//! Schema versions: forward only, whole or not at all, and hands off what a newer program wrote (LF-35).

use heddle_sqlite::{Database, Migration, OpenError, Options, copies_before_steps};
use rusqlite::Connection;
use sha2::{Digest, Sha256};

use crate::support::{Home, SCHEMA, bodies, insert};

const SECOND: Migration = Migration {
    version: 2,
    name: "tags",
    sql: "CREATE TABLE tags (tag TEXT PRIMARY KEY); INSERT INTO tags VALUES ('a');",
};

fn version_and_tables(home: &Home) -> (u32, Vec<String>) {
    let connection = Connection::open(home.path()).unwrap();
    let version = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    let tables = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<rusqlite::Result<_>>()
        .unwrap();
    (version, tables)
}

/// Of the file and, if there is one, its log.
fn digest(home: &Home) -> Vec<u8> {
    let mut digest = Sha256::new();
    digest.update(std::fs::read(home.path()).unwrap());
    digest.update(std::fs::read(home.folder.path().join("data.db-wal")).unwrap_or_default());
    digest.finalize().to_vec()
}

/// What a kill leaves on the disk.
fn left_behind(file: &[u8], log: &[u8]) -> Home {
    let left = Home::new();
    std::fs::write(left.path(), file).unwrap();
    std::fs::write(left.folder.path().join("data.db-wal"), log).unwrap();
    left
}

#[test]
fn an_upgrade_keeps_the_rows_and_records_each_step() {
    let home = Home::new();
    let database = home.open();
    assert_eq!(database.write_blocking(insert("kept")), Ok(()));
    database.stop();
    let database = Database::open(home.options(), &[SCHEMA[0], SECOND]).unwrap();
    assert_eq!(bodies(&database), ["kept"]);
    let steps = database.read_blocking(|connection| {
        connection
            .prepare("SELECT version, name FROM _migrations ORDER BY version")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<Vec<(u32, String)>>>()
    });
    assert_eq!(
        steps,
        Ok(vec![(1, "notes".to_owned()), (2, "tags".to_owned())])
    );
    database.stop();
    assert_eq!(version_and_tables(&home).0, 2);
}

#[test]
fn lf_35_a_failing_migration_leaves_the_version_before_it_whole() {
    let broken = [
        "CREATE TABLE tags (tag TEXT PRIMARY KEY); INSERT INTO nowhere VALUES (1);",
        "CREATE TABLE tags (tag TEXT PRIMARY KEY); this is not SQL",
        "CREATE TABLE tags (tag TEXT PRIMARY KEY); ROLLBACK;",
    ];
    for sql in broken {
        let home = Home::new();
        home.open().stop();
        let before = version_and_tables(&home);
        assert_eq!(before.0, 1);
        let failed = Database::open(home.options(), &[SCHEMA[0], Migration { sql, ..SECOND }]);
        assert!(
            matches!(failed, Err(OpenError::Migration { version: 2, .. })),
            "{sql}"
        );
        assert_eq!(version_and_tables(&home), before, "{sql}");
        Database::open(home.options(), &[SCHEMA[0], SECOND]).unwrap();
    }
}

#[test]
fn lf_35_a_migration_killed_at_any_write_leaves_one_version_with_its_own_tables() {
    let home = Home::new();
    home.open().stop();
    let before = version_and_tables(&home);
    let file = std::fs::read(home.path()).unwrap();
    let database = Database::open(home.options(), &[SCHEMA[0], SECOND]).unwrap();
    // What the migration wrote stands in the log only, as long as the file is open.
    let log = std::fs::read(home.folder.path().join("data.db-wal")).unwrap();
    database.stop();
    let after = version_and_tables(&home);
    assert_eq!((before.0, after.0), (1, 2));
    let mut seen = Vec::new();
    for end in (0..log.len()).step_by(512).chain([log.len()]) {
        let left = left_behind(&file, &log[..end]);
        let found = version_and_tables(&left);
        assert!(found == before || found == after, "{end}: {found:?}");
        seen.push(found.0);
        // The next start finishes it.
        let opened = Database::open(left.options(), &[SCHEMA[0], SECOND]).unwrap();
        opened.stop();
        assert_eq!(version_and_tables(&left), after, "{end}");
    }
    assert_eq!((seen.first(), seen.last()), (Some(&1), Some(&2)));
}

#[test]
fn lf_35_a_newer_schema_is_refused_and_not_a_byte_is_changed() {
    let home = Home::new();
    Database::open(home.options(), &[SCHEMA[0], SECOND])
        .unwrap()
        .stop();
    let before = digest(&home);
    let refused = Database::open(home.options(), SCHEMA);
    assert!(matches!(
        refused,
        Err(OpenError::NewerSchema { found: 2, known: 1 })
    ));
    assert_eq!(digest(&home), before);
}

#[test]
fn a_newer_schema_is_not_even_switched_to_another_journal_mode() {
    let home = Home::new();
    let newer = Connection::open(home.path()).unwrap();
    newer
        .execute_batch("PRAGMA journal_mode = DELETE; CREATE TABLE t (x); PRAGMA user_version = 9")
        .unwrap();
    newer.close().unwrap();
    let before = digest(&home);
    let refused = Database::open(home.options(), SCHEMA);
    assert!(matches!(
        refused,
        Err(OpenError::NewerSchema { found: 9, known: 1 })
    ));
    assert_eq!(digest(&home), before);
}

#[test]
fn a_newer_schema_that_is_still_in_the_log_is_refused_too() {
    let home = Home::new();
    let newer = Database::open(home.options(), &[SCHEMA[0], SECOND]).unwrap();
    // Copied while open, as a crash would leave it: the second version is in the log only.
    let left = Home::new();
    for companion in ["", "-wal"] {
        let name = format!("data.db{companion}");
        std::fs::copy(
            home.folder.path().join(&name),
            left.folder.path().join(&name),
        )
        .unwrap();
    }
    newer.stop();
    let before = digest(&left);
    let refused = Database::open(left.options(), SCHEMA);
    assert!(matches!(
        refused,
        Err(OpenError::NewerSchema { found: 2, known: 1 })
    ));
    assert_eq!(digest(&left), before);
}

#[test]
fn two_programs_that_open_a_new_file_at_once_migrate_it_once() {
    let home = Home::new();
    let opened: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| Database::open(home.options(), &[SCHEMA[0], SECOND])))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    for database in opened {
        database.unwrap().stop();
    }
    assert_eq!(version_and_tables(&home).0, 2);
}

#[test]
fn a_failed_step_is_told_without_its_sql() {
    let folder = tempfile::tempdir().unwrap();
    let step = Migration {
        version: 1,
        name: "broken",
        sql: "CREATE TABLE secret_shape (x INTEGER PRIMARY KEY) STRICT; CREATE TABLE secret_shape (y TEXT, WRONG WRONG);",
    };
    let error = Database::open(Options::new(folder.path().join("x.db")), &[step]).err();
    let said = error.unwrap().to_string();
    assert!(said.starts_with("migration 1 (broken) failed: "), "{said}");
    assert!(
        !said.contains("CREATE") && !said.contains("INTEGER PRIMARY"),
        "{said}"
    );
}

const THIRD: Migration = Migration {
    version: 3,
    name: "labels",
    sql: "CREATE TABLE labels (label TEXT PRIMARY KEY)",
};

fn keeping(home: &Home) -> Options {
    let mut options = home.options();
    options.keeps_copy_before_steps = true;
    options
}

fn copies(home: &Home) -> Vec<u32> {
    let copies = copies_before_steps(&home.path());
    copies.into_iter().map(|(next, _)| next).collect()
}

/// What the words of the start say: the program of before still reads the file, however many steps went well.
#[test]
fn lf_35_a_later_step_that_fails_takes_the_whole_start_back_and_leaves_no_copy() {
    let home = Home::new();
    home.open().stop();
    let in_the_way = Connection::open(home.path()).unwrap();
    in_the_way.execute_batch("CREATE TABLE labels (x)").unwrap();
    drop(in_the_way);
    let before = version_and_tables(&home);
    assert_eq!(before.0, 1);
    for _ in 0..2 {
        let failed = Database::open(keeping(&home), &[SCHEMA[0], SECOND, THIRD]);
        let failed = failed.err().unwrap();
        assert!(
            matches!(
                failed,
                OpenError::Migration {
                    version: 3,
                    found: 1,
                    ..
                }
            ),
            "{failed}"
        );
        assert_eq!(version_and_tables(&home), before);
        // The file is its own copy; another one would hold the room that a retry needs.
        assert_eq!(copies(&home), []);
    }
    Database::open(home.options(), SCHEMA).unwrap().stop();
}

#[test]
fn lf_35_a_start_of_several_steps_keeps_one_copy_of_the_version_it_found() {
    let home = Home::new();
    let database = home.open();
    assert_eq!(database.write_blocking(insert("kept")), Ok(()));
    database.stop();
    let database = Database::open(keeping(&home), &[SCHEMA[0], SECOND, THIRD]).unwrap();
    let taken = database.steps_taken().cloned().unwrap();
    database.stop();
    assert_eq!((taken.from, taken.to), (1, 3));
    assert_eq!(copies(&home), [2]);
    let copy = Home::new();
    std::fs::copy(taken.copy.unwrap(), copy.path()).unwrap();
    assert_eq!(version_and_tables(&copy).0, 1);
    let old = copy.open();
    assert_eq!(bodies(&old), ["kept"]);
    old.stop();
    let again = Database::open(keeping(&home), &[SCHEMA[0], SECOND, THIRD]).unwrap();
    assert_eq!(again.steps_taken(), None);
    again.stop();
}

#[test]
fn lf_35_steps_killed_at_any_write_leave_the_version_found_or_the_newest_one() {
    let steps = [SCHEMA[0], SECOND, THIRD];
    let home = Home::new();
    home.open().stop();
    let before = version_and_tables(&home);
    let file = std::fs::read(home.path()).unwrap();
    let database = Database::open(home.options(), &steps).unwrap();
    let log = std::fs::read(home.folder.path().join("data.db-wal")).unwrap();
    database.stop();
    let after = version_and_tables(&home);
    let mut seen = Vec::new();
    for end in (0..log.len()).step_by(512).chain([log.len()]) {
        let left = left_behind(&file, &log[..end]);
        let found = version_and_tables(&left);
        assert!(found == before || found == after, "{end}: {found:?}");
        seen.push(found.0);
    }
    assert_eq!((seen.first(), seen.last()), (Some(&1), Some(&3)));
}

/// A step that is undone and taken again makes a copy each time; the one that somebody goes back to is not theirs to take.
#[test]
fn retries_do_not_push_out_the_copy_of_the_version_that_somebody_came_from() {
    const HOUR: u64 = 3600;
    let check = |made: &[(u32, u64)], kept: &[u32]| {
        let home = Home::new();
        let start = std::time::UNIX_EPOCH + std::time::Duration::from_secs(400_000 * HOUR);
        for (from, hours) in made {
            let steps = (2..=*from + 1).map(|version| Migration {
                version,
                name: "empty",
                sql: "",
            });
            let steps: Vec<_> = SCHEMA.iter().copied().chain(steps).collect();
            let _ = std::fs::remove_file(home.path());
            let at = usize::try_from(*from).unwrap();
            Database::open(home.options(), &steps[..at]).unwrap().stop();
            Database::open(keeping(&home), &steps).unwrap().stop();
            let (_, copy) = copies_before_steps(&home.path())
                .into_iter()
                .find(|(next, _)| *next == from + 1)
                .expect("the copy of this start is there");
            let copy = std::fs::File::options().write(true).open(copy).unwrap();
            copy.set_modified(start + std::time::Duration::from_secs(hours * HOUR))
                .unwrap();
        }
        assert_eq!(copies(&home), kept, "{made:?}");
    };
    // Upgrades, months apart: the latest three.
    check(&[(1, 0), (3, 2000), (5, 4000), (7, 6000)], &[4, 6, 8]);
    // One upgrade, and steps of it undone and taken again within the hour.
    check(&[(1, 0), (9, 1), (8, 2), (7, 3), (6, 4)], &[2, 7, 10]);
    check(&[(1, 0), (6, 1), (7, 2), (8, 3), (9, 4)], &[2, 7, 10]);
    check(&[(1, 0), (3, 2000), (9, 2001), (8, 2002)], &[2, 4, 9]);
}
