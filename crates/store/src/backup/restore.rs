//! Putting a backup back. The present file is set aside, never deleted; the copy gets a new incarnation
//! before anybody can use it, so that no stamp of the time since is ever issued again (C39, LF-36).
//!
//! A crash anywhere leaves the old store or the restored one: the copy is prepared as a draft, and its
//! rename is the decision (see `park`).

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use heddle_core::clock::WallMs;
use heddle_sqlite::{Database, Options};
use rusqlite::{Connection, params};

use super::{BackupError, Named, copy, has_table, keep, named, not_here, problem_of};
use crate::blobs::{BlobError, Blobs};
use crate::data::begin_life_above;
use crate::park::{self, BLOBS, Exchange, open_old, with_suffix};
use crate::schema;

/// Between the highest place of arrival that a backup knows and the first new one, where the file of
/// the time since cannot be asked: a place is never given twice.
const ARRIVAL_LEAP: i64 = 1_000_000;

/// What was put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Where the file lies that was there before.
    pub before: Option<PathBuf>,
    /// Of every mesh from now on.
    pub incarnation: u64,
    pub blobs: u64,
    /// Blobs that rows name and that neither the home nor the backup has.
    pub missing: u64,
}

/// What may have been issued since the backup was made, as far as the files beside it tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Issued {
    incarnation: u64,
    /// Negative where nobody knows.
    arrival: i64,
}

/// Puts the backup at `from` in the place of `data`. Blocks; nobody else may use the home.
pub fn restore(
    from: &Path,
    data: &Path,
    blobs: &Blobs,
    now: WallMs,
) -> Result<Restored, BackupError> {
    let from = std::path::absolute(from).map_err(BackupError::io("named", from))?;
    let data = std::path::absolute(data).map_err(BackupError::io("named", data))?;
    heddle_sqlite::link_vectors()?;
    park::finish(&data).map_err(BackupError::io("exchanged", &data))?;
    let source = checked(&from)?;
    let draft = park::new_draft(&data).map_err(BackupError::io("prepared", &data))?;
    let new = copy(&source, &draft)?;
    let (mut count, mut missing) = (0, 0);
    let kept = named(&new)?;
    for one in &kept {
        if blobs.read(one.hash, one.bytes).is_ok() {
            continue;
        }
        if keep(blobs, blob_of(&from, *one), *one)? {
            count += 1;
        } else {
            missing += 1;
            not_here(&new, *one)?;
        }
    }
    new.close().map_err(|(_, error)| error)?;
    let incarnation = begin_new_life(&draft, issued(&data, now))?;
    let stamp = park::stamp(&data, Exchange::Restored, now);
    let before = park::old_of(&data, Exchange::Restored, &stamp);
    keep_blobs_of(&data, &before, blobs, &kept)?;
    let had_file = data.exists();
    park::decide(&data, Exchange::Restored, &stamp).map_err(BackupError::io("exchanged", &data))?;
    Ok(Restored {
        before: had_file.then_some(before),
        incarnation,
        blobs: count,
        missing,
    })
}

/// Whether a backup can be put back; reads only.
pub fn check_backup(from: &Path) -> Result<(), BackupError> {
    let from = std::path::absolute(from).map_err(BackupError::io("named", from))?;
    heddle_sqlite::link_vectors()?;
    checked(&from).map(drop)
}

/// The backup, if it is one, whole, and not of a newer program. Reads only.
fn checked(from: &Path) -> Result<Connection, BackupError> {
    fs::metadata(from).map_err(BackupError::io("read", from))?;
    let path = || from.to_owned();
    let is_no_store = |_| BackupError::NotAStore { path: path() };
    let source = open_old(from).map_err(is_no_store)?;
    let version = source.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0));
    let found = version.map_err(is_no_store)?;
    let is_store = has_table(&source, "store_state").and_then(|there| {
        let mesh = has_table(&source, "mesh")?;
        Ok(there && mesh && found > 0)
    });
    if !is_store.map_err(is_no_store)? {
        return Err(BackupError::NotAStore { path: path() });
    }
    let known = schema::newest();
    if found > known {
        let path = path();
        return Err(BackupError::Newer { path, found, known });
    }
    match problem_of(&source)? {
        Some(problem) => Err(BackupError::Damaged {
            path: path(),
            problem,
        }),
        None => Ok(source),
    }
}

fn blob_of(from: &Path, one: Named) -> Result<File, BlobError> {
    let name = one.hash.to_string();
    let path = with_suffix(from, BLOBS).join(&name[..2]).join(&name);
    heddle_sqlite::open_plain(&path).map_err(BlobError::Source)
}

/// The highest of what was issued since. Where the present file cannot tell, the clock on the wall gives
/// an incarnation that no counting by one has reached.
pub(crate) fn issued(data: &Path, now: WallMs) -> Issued {
    let present = issued_by(data);
    let older = park::all_old(data);
    let mut highest = older.iter().filter_map(|path| issued_by(path)).fold(
        present.unwrap_or(Issued {
            incarnation: u64::try_from(now.0 / 1000).unwrap_or(0),
            arrival: -1,
        }),
        |highest, one| Issued {
            incarnation: highest.incarnation.max(one.incarnation),
            arrival: highest.arrival.max(one.arrival),
        },
    );
    if present.is_none() {
        highest.arrival = -1;
    }
    highest
}

fn issued_by(path: &Path) -> Option<Issued> {
    if !path.exists() {
        return None;
    }
    let connection = open_old(path).ok()?;
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, Option<i64>>(0));
    let incarnation = number("SELECT max(incarnation) FROM lamport_clock").ok()?;
    let arrival = number("SELECT max(seq) FROM sqlite_sequence WHERE name = 'inbox'").ok()?;
    Some(Issued {
        incarnation: u64::try_from(incarnation.unwrap_or(0)).unwrap_or(0),
        arrival: arrival.unwrap_or(0),
    })
}

/// Brings the draft to this program's version and gives it its new life, in one transaction.
pub(crate) fn begin_new_life(draft: &Path, issued: Issued) -> Result<u64, BackupError> {
    let database = Database::open(Options::new(draft), schema::MIGRATIONS)?;
    let raised = database.write_blocking(move |connection| raise(connection, issued));
    database.stop();
    drop(database);
    let log = with_suffix(draft, "-wal");
    if fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
        return Err(BackupError::Prepare("its log was not taken in".to_owned()));
    }
    for end in ["-wal", "-shm"] {
        let _ = fs::remove_file(with_suffix(draft, end));
    }
    raised.map_err(|error| BackupError::Prepare(error.to_string()))
}

pub(crate) fn raise(connection: &Connection, issued: Issued) -> rusqlite::Result<u64> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, Option<i64>>(0));
    let next = begin_life_above(connection, issued.incarnation)?;
    let known = number("SELECT max(seq) FROM sqlite_sequence WHERE name = 'inbox'")?.unwrap_or(0);
    let arrival = match issued.arrival {
        arrival if arrival >= 0 => arrival.max(known),
        _ => known.saturating_add(ARRIVAL_LEAP),
    };
    let set = "UPDATE sqlite_sequence SET seq = ?1 WHERE name = 'inbox'";
    if connection.execute(set, [arrival])? == 0 && arrival > 0 {
        let insert = "INSERT INTO sqlite_sequence (name, seq) VALUES ('inbox', ?1)";
        connection.execute(insert, params![arrival])?;
    }
    // The first start looks at all of it.
    connection.execute("UPDATE store_state SET clean = 0", [])?;
    Ok(next)
}

/// What only the file of before names would be swept away as nobody's: a second name keeps it.
pub(crate) fn keep_blobs_of(
    data: &Path,
    before: &Path,
    blobs: &Blobs,
    kept: &[Named],
) -> Result<(), BackupError> {
    // A damaged file names what it can.
    let Ok(theirs) = open_old(data).and_then(|old| named(&old)) else {
        return Ok(());
    };
    let kept: BTreeSet<[u8; 32]> = kept.iter().map(|one| one.hash.0).collect();
    let only_theirs = theirs
        .iter()
        .filter(|one| !kept.contains(&one.hash.0) && blobs.read(one.hash, one.bytes).is_ok());
    let folder = with_suffix(before, BLOBS);
    let home = data.parent().unwrap_or(Path::new("/")).join("blobs");
    for one in only_theirs {
        let name = one.hash.to_string();
        let make = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder);
        make.map_err(BackupError::io("made", &folder))?;
        let (from, to) = (home.join(&name[..2]).join(&name), folder.join(&name));
        match fs::hard_link(&from, &to) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(BackupError::io("kept", &to)(error));
            }
            _ => {}
        }
    }
    Ok(())
}
