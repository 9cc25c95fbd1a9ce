//! Whether the last run ended in order, and the check of the file: all of it when it did not, and as
//! much as a quick start allows when it did.
//!
//! The check reads only, and runs before the writer opens the file: opening moves the old log into
//! it, and a damaged file must be refused with its bytes unchanged (DR-16).

use std::path::{Path, PathBuf};

use heddle_core::clock::WallMs;
use heddle_sqlite::{Condition, Depth, Kind, Look, OpenError, Subject, examine};
use rusqlite::{Connection, OptionalExtension as _};

use crate::error::StoreError;
use crate::store::{Store, StoreOptions};
use crate::{park, schema};

/// A file that was closed in order is read as a whole up to this size; that takes a few milliseconds.
/// Of a larger one only the first row of each table is read: the rest is checked by the start after the
/// one whose work met the damage.
const CHECKED_BYTES_MAX: u64 = 4 << 20;

/// The row of the state of a file that has lost it, with what is safe: an end that was none, every digest to be made that is
/// missing, and what the outbox lacks counted anew.
const PUT_BACK: &str = "
    INSERT INTO store_state (only_row, clean, outbox_missing)
    SELECT 1, 0, (SELECT coalesce(max(arrival), 0) - count(*) FROM outbox)
    WHERE NOT EXISTS (SELECT 1 FROM store_state)";

/// Whether the last run ended in order.
pub(crate) fn mark_open(connection: &Connection) -> Result<bool, StoreError> {
    if connection.execute(PUT_BACK, [])? > 0 {
        tracing::warn!("the row of store_state was lost; it was put back");
    }
    let was_clean = was_clean(connection)?;
    mark(connection, false)?;
    Ok(was_clean)
}

pub(crate) fn mark_stopped(connection: &Connection) -> Result<(), StoreError> {
    mark(connection, true)
}

fn mark(connection: &Connection, clean: bool) -> Result<(), StoreError> {
    connection.execute(
        "UPDATE store_state SET clean = ?1 WHERE clean <> ?1",
        [clean],
    )?;
    Ok(())
}

/// Refuses a file that must not be written to. What cannot be looked at is left for the writer to refuse by its
/// proper name.
pub(crate) fn check(options: &StoreOptions, how: Look) -> Result<(), OpenError> {
    mend_log(options)?;
    // Whoever opens the store has not opened it yet.
    match condition(options, how, true).refusal() {
        Some(refusal) => Err(refusal),
        None => Ok(()),
    }
}

/// The simulator's disk has no log that another process has left.
fn mend_log(options: &StoreOptions) -> Result<(), OpenError> {
    if options.vfs.is_some() {
        return Ok(());
    }
    let path = options.path.as_path();
    let failed = |source| OpenError::Io {
        path: path.to_owned(),
        source,
    };
    heddle_sqlite::mend_log(path).map_err(failed)?;
    // Nothing is written anew over it.
    match heddle_sqlite::lost_log(path) {
        Some(why) => Err(OpenError::Damaged(why)),
        None => Ok(()),
    }
}

/// What the file of a store is. `alone`: nobody in this process has it open.
fn condition(options: &StoreOptions, how: Look, alone: bool) -> Condition {
    let subject = Subject {
        kind: Kind::Store,
        path: &options.path,
        vfs: options.vfs.as_deref(),
        known: schema::newest(),
        alone,
    };
    examine(&subject, |connection| how.depth(|| as_needed(connection)))
}

/// What a start, or a close look, makes of the store of a home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlook {
    pub condition: Condition,
    /// A start that meets it writes the file anew by itself, with everything that counts.
    pub heals: Option<Heals>,
}

/// What a start mends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heals {
    /// The inbox is damaged and nothing else: it is set aside.
    Inbox,
    /// Only what can be made again is damaged: the list of free pages, an index for searching. Nothing is lost.
    Everything,
}

/// What the file at `path` is, for whoever is about to repair it.
pub(crate) fn condition_of(path: &Path) -> Condition {
    outlook_of(path, Look::Wholly, true)
}

/// Looks without changing a byte. `alone`: nobody in this process has the file open.
pub fn outlook(path: &Path, how: Look, alone: bool) -> Outlook {
    let condition = outlook_of(path, how, alone);
    let heals = match condition {
        Condition::Damaged(_) if alone && heddle_sqlite::log_heals(path) => Some(Heals::Everything),
        Condition::Damaged(_) if alone && heddle_sqlite::lost_log(path).is_some() => None,
        Condition::Damaged(_) => park::can_park(path),
        _ => None,
    };
    Outlook { condition, heals }
}

fn outlook_of(path: &Path, how: Look, alone: bool) -> Condition {
    let options = StoreOptions {
        path: path.to_owned(),
        durability: heddle_sqlite::Durability::Full,
        vfs: None,
    };
    match heddle_sqlite::link_vectors() {
        Ok(()) => condition(&options, how, alone),
        Err(error) => Condition::Unseen(error.to_string()),
    }
}

/// The same, but a damaged inbox is set aside, and what is damaged where nothing is kept is written anew; where the old
/// file lies then.
pub(crate) fn check_or_park(
    options: &StoreOptions,
    now: WallMs,
    how: Look,
) -> Result<Option<PathBuf>, StoreError> {
    // The simulator's disk knows no second name for a file.
    if options.vfs.is_none() {
        Store::finish_parking(&options.path)?;
    }
    mend_log(options)?;
    let found = condition(options, how, true);
    let problem = match (found.refusal(), found) {
        (None, _) => return Ok(None),
        // A header that cannot be right stands before every table: not the inbox alone is damaged.
        (Some(_), Condition::Damaged(problem)) if options.vfs.is_none() => problem,
        (Some(refusal), _) => return Err(refusal.into()),
    };
    match park::park(&options.path, now) {
        Ok(Some((parked, Heals::Inbox))) => {
            tracing::error!(problem, parked = %parked.display(),
                "the inbox was damaged: it begins anew, the old file was set aside, the outbox is whole");
            Ok(Some(parked))
        }
        Ok(Some((old, Heals::Everything))) => {
            tracing::warn!(problem, old = %old.display(),
                "data.db was damaged where nothing is kept: it was written anew, and every message came along");
            Ok(Some(old))
        }
        Ok(None) => Err(OpenError::Damaged(problem).into()),
        Err(error) => Err(OpenError::Damaged(format!(
            "{problem}; saving what is whole failed as well: {error}"
        ))
        .into()),
    }
}

/// A file that was closed in order and is large is not read as a whole.
fn as_needed(connection: &Connection) -> rusqlite::Result<Depth> {
    // Young enough to have no such mark yet.
    let has_mark = crate::backup::has_table(connection, "store_state")?;
    let is_large = bytes(connection)? > CHECKED_BYTES_MAX;
    Ok(if has_mark && is_large && was_clean(connection)? {
        Depth::Beginnings
    } else {
        Depth::Pages
    })
}

/// A file without a single table: one whose log was lost before its first checkpoint. What cannot be read is not bare;
/// others say what it is.
pub fn is_bare(path: &Path) -> bool {
    let Ok(path) = std::path::absolute(path) else {
        return false;
    };
    let looked = park::open_old(&path).and_then(|connection| {
        let sql =
            "SELECT (SELECT count(*) FROM sqlite_schema), user_version FROM pragma_user_version";
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
    });
    looked == Ok((0, 0))
}

fn bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, u32>(0));
    Ok(u64::from(number("page_count")?) * u64::from(number("page_size")?))
}

fn was_clean(connection: &Connection) -> rusqlite::Result<bool> {
    let clean = connection.query_row("SELECT clean FROM store_state", [], |row| row.get(0));
    Ok(clean.optional()?.unwrap_or(false))
}
