//! What can be read of a damaged file is carried over into a fresh one; the damaged one is kept.
//!
//! The fresh file has this program's own schema, so nothing of the damaged one is trusted but its rows,
//! and each of those is checked by the tables that take it. What was lost is counted by table. It begins
//! a new incarnation, because what it issued last may be among what was lost (C39), and reads the log of
//! shared meshes from its beginning, because what it lost may still be there.

mod after;
mod blobs;
mod header;
mod mend;
mod meshes;
mod pages;
mod relist;
mod salvage;
mod senders;
mod strays;
mod tasks;
mod told;
mod vectors;

use std::collections::BTreeSet;
use std::io;
use std::ops::Deref;
use std::path::Path;

use heddle_core::clock::WallMs;
use heddle_core::names::MeshName;
use heddle_sqlite::{Condition, Database, GivenUp, Migration, Options};
use rusqlite::{Connection, OpenFlags};

use crate::backup::{
    BackupError, begin_new_life, has_table, issued, keep_blobs_of, named, problem_of,
};
use crate::blobs::Blobs;
use crate::changed_ops;
use crate::error::StoreError;
use crate::figures::outbox_gone;
use crate::inbox::mark_all;
use crate::meaning::spoilt_at_start;
use crate::meshless::{Meshless, at_start, is_without_home, meshless, without_home};
use crate::missing;
use crate::park::{self, Exchange, open_old};
use crate::schema;
use crate::senseless::senseless;
use crate::stamps;
use crate::unclean::condition_of;
use crate::unreadable::{Unreadable, all_unreadable, is_there, take_out};
use crate::unsent;
use crate::waiting::refused_step;

pub use blobs::want_lost_blobs;
pub use header::mend_header;
pub use meshes::{MeshHint, RepairHints};
pub use tasks::RepairedTasks;
pub use told::{Kept, Repaired, RepairedRows};

/// Repairs the file at `data`; `None` where nothing is wrong with it. Blocks; nobody else may use it.
pub fn repair(
    data: &Path,
    blobs: &Blobs,
    hints: &RepairHints,
    now: WallMs,
) -> Result<Option<Repaired>, BackupError> {
    let data = std::path::absolute(data).map_err(BackupError::io("named", data))?;
    heddle_sqlite::link_vectors()?;
    park::finish(&data).map_err(BackupError::io("exchanged", &data))?;
    clear_leftovers(&data).map_err(BackupError::io("prepared", &data))?;
    data.symlink_metadata()
        .map_err(BackupError::io("read", &data))?;
    heddle_sqlite::mend_log(&data).map_err(BackupError::io("prepared", &data))?;
    let log = given_up(&data)?;
    let log_lost = log.as_ref().map(|log| log.lost.clone());
    let repaired = repair_without(&data, blobs, hints, log_lost, now);
    match (repaired, log) {
        (Err(error), Some(log)) => {
            log.undo().map_err(BackupError::io("put back", &data))?;
            Err(error)
        }
        (repaired, _) => repaired,
    }
}

fn repair_without(
    data: &Path,
    blobs: &Blobs,
    hints: &RepairHints,
    log_lost: Option<String>,
    now: WallMs,
) -> Result<Option<Repaired>, BackupError> {
    let data = data.to_owned();
    let lost = || log_lost.clone().map(Problem::File);
    let Some(problem) = problem_to_mend(&data, hints)?.or_else(lost) else {
        return Ok(None);
    };
    let old = readable(&data)?;
    let (named_before, outbox_gone) = known_before(&old, &problem);
    let (Problem::Rows(problem) | Problem::File(problem)) = problem;
    let draft = park::new_draft(&data).map_err(BackupError::io("prepared", &data))?;
    let steps = steps_of(&old, &data)?;
    let empty = Database::open(Options::new(&draft), steps)?;
    empty.stop();
    drop(empty);
    let mut new = Connection::open_with_flags(&draft, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    new.pragma_update(None, "journal_mode", "DELETE")?;
    new.pragma_update(None, "synchronous", "FULL")?;
    let relisted = if relist::is_listed(&old, &new)? {
        None
    } else {
        Some(relist::relist(&data, &new)?)
    };
    let from: &Connection = relisted.as_ref().map_or(&old, |copy| &copy.connection);
    let filled = fill(from, &mut new, hints, now)?;
    let unreadable = taken_out(&new, &named_before, filled.unreadable)?;
    let was_relisted = relisted.is_some();
    drop(relisted);
    if !meshes::has_home(&new, hints)? {
        return Err(BackupError::NothingLeft { path: data });
    }
    if let Some(problem) = problem_of(&new)? {
        return Err(BackupError::Prepare(problem));
    }
    let mut unmended = before_start(&new, &hints.home)?;
    let kept_blobs = named(&new)?;
    new.close().map_err(|(_, error)| error)?;
    drop(old);
    let (step_refused, still) = step_in_the_way(&data, &draft, &problem)?;
    unmended.extend(still);
    let incarnation = begin_new_life(&draft, issued(&data, now))?;
    let stamp = park::stamp(&data, Exchange::Repaired, now);
    let damaged = park::old_of(&data, Exchange::Repaired, &stamp);
    keep_blobs_of(&data, &damaged, blobs, &kept_blobs)?;
    park::decide(&data, Exchange::Repaired, &stamp).map_err(BackupError::io("exchanged", &data))?;
    Ok(Some(Repaired {
        damaged,
        problem,
        step_refused,
        tables: filled.tables,
        incarnation,
        relisted: was_relisted,
        meshes_made: filled.again.made,
        meshes_left: filled.again.left,
        tasks: filled.tasks,
        log_lost,
        rows: RepairedRows {
            outbox_gone,
            ..filled.rows
        },
        unreadable,
        nameless_models: filled.nameless,
        unmended,
    }))
}

/// Where SQLite finds the file whole, its rows can be called by their names, and those of the outbox counted; elsewhere nobody
/// knows what they were.
fn known_before(old: &Connection, problem: &Problem) -> (Vec<Unreadable>, u64) {
    match problem {
        Problem::Rows(_) => (
            all_unreadable(old).unwrap_or_default(),
            outbox_gone(old).unwrap_or(0),
        ),
        Problem::File(_) => (Vec::new(), 0),
    }
}

/// Goes on without what another database of the home has lost with its log; what that is, in words.
pub fn give_up_lost_log(database: &Path) -> Result<Option<String>, BackupError> {
    Ok(given_up(database)?.map(|log| log.lost))
}

fn given_up(database: &Path) -> Result<Option<GivenUp>, BackupError> {
    heddle_sqlite::give_up_lost_log(database).map_err(BackupError::io("prepared", database))
}

/// The rows that the new file is without, by name. Who was mended on the way is not among them: a vector can be read
/// again as soon as its model can.
fn taken_out(
    new: &Connection,
    before: &[Unreadable],
    refused: Vec<String>,
) -> Result<Vec<String>, BackupError> {
    let mut all: BTreeSet<String> = refused.into_iter().collect();
    for row in before {
        if !is_there(new, row).map_err(|error| BackupError::Prepare(error.to_string()))? {
            // Said as it was found: what is wrong with it is another matter once the clock is mended.
            let called = row.called();
            all.retain(|said| !said.starts_with(&called));
            all.insert(row.to_string());
        }
    }
    Ok(all.into_iter().collect())
}

/// Whether a step that is refused is all that is wrong with the file, and why one still would be.
fn step_in_the_way(
    data: &Path,
    draft: &Path,
    problem: &str,
) -> Result<(bool, Option<String>), BackupError> {
    let is_all = refused_step(data).is_some_and(|why| why == problem);
    match refused_step(draft) {
        // Rows that came over are in its way: another file would be no better.
        Some(why) if is_all => {
            let path = data.to_owned();
            Err(BackupError::StepRefused { path, why })
        }
        still => Ok((is_all, still)),
    }
}

/// What the next start would refuse the file for.
fn before_start(new: &Connection, home: &MeshName) -> rusqlite::Result<Vec<String>> {
    let mut found = at_start(new, home)?;
    found.extend(spoilt_at_start(new)?.iter().map(ToString::to_string));
    Ok(found)
}

/// What a repair that was killed has left. A journal among it would be played back into the next copy of that name.
fn clear_leftovers(data: &Path) -> io::Result<()> {
    let draft = park::draft_of(data);
    park::clear_draft(&draft)?;
    for copy in relist::COPIES {
        park::clear_draft(&park::with_suffix(&draft, copy))?;
    }
    Ok(())
}

/// What is wrong, in words.
enum Problem {
    /// With rows of a file that SQLite finds nothing wrong with.
    Rows(String),
    File(String),
}

/// What is wrong with the file; `None` where nothing is. What a newer program has written is not ours to mend.
fn problem_to_mend(data: &Path, hints: &RepairHints) -> Result<Option<Problem>, BackupError> {
    match condition_of(data) {
        // A home with such a file is not started, and not begun anew by itself.
        Condition::New => Err(BackupError::Empty {
            path: data.to_owned(),
        }),
        Condition::Fit => {
            let connection = open_old(data)?;
            // The fresh file has none of what is in the way of a step.
            let mut found: Vec<String> = refused_step(data).into_iter().collect();
            found.extend(senseless(&connection)?);
            found.extend(meshless(&connection)?.iter().map(Meshless::in_words));
            if is_without_home(&connection, &hints.home)? {
                found.push(without_home(&hints.home));
            }
            Ok((!found.is_empty()).then(|| Problem::Rows(found.join("; "))))
        }
        Condition::Newer { found, known } => Err(BackupError::Newer {
            path: data.to_owned(),
            found,
            known,
        }),
        Condition::BadHeader(problem) | Condition::Damaged(problem) => {
            Ok(Some(Problem::File(problem)))
        }
        Condition::NotAFile(why) => Err(misplaced(data, why)),
        Condition::Foreign { found, wanted } => {
            let why = format!("it is {}, not {}", found.says(), wanted.says());
            Err(misplaced(data, why))
        }
        Condition::Unseen(why) => Err(BackupError::Unseen {
            path: data.to_owned(),
            why,
        }),
    }
}

fn misplaced(path: &Path, why: String) -> BackupError {
    let path = path.to_owned();
    BackupError::Misplaced { path, why }
}

/// The file itself or a copy of it.
enum Readable {
    Itself(Connection),
    Copy(relist::Relisted),
}

impl Deref for Readable {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        match self {
            Self::Itself(connection) => connection,
            Self::Copy(copy) => &copy.connection,
        }
    }
}

/// The damaged file, or a copy of it under a header that can be right where its own cannot.
fn readable(data: &Path) -> Result<Readable, BackupError> {
    let old = open_old(data)?;
    // Cells that point out of their page are damage, not rows.
    let is_listed = old
        .pragma_update(None, "cell_size_check", true)
        .and_then(|()| has_table(&old, "_migrations"));
    // Negative where a bit was changed: its own list of steps says more.
    let version = old.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    if is_listed.is_ok() && version.is_ok() {
        return Ok(Readable::Itself(old));
    }
    drop(old);
    Ok(Readable::Copy(relist::under_a_plain_header(data)?))
}

/// The steps to the version that the damaged file says it has; what migrations do to rows comes after. Its own list of
/// them counts more than the number in its header.
fn steps_of(old: &Connection, data: &Path) -> Result<&'static [Migration], BackupError> {
    let listed = old.query_row("SELECT max(version) FROM _migrations", [], |row| row.get(0));
    let version = match listed {
        Ok(listed) => Ok(listed),
        Err(_) => old
            .pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))
            .map(|version| u32::try_from(version).unwrap_or(0)),
    };
    // A first page that is not one of SQLite's says nothing.
    let (found, known) = (version.unwrap_or(0), schema::newest());
    let count = usize::try_from(found).unwrap_or(usize::MAX);
    match schema::MIGRATIONS.get(..count) {
        Some([]) => Ok(schema::MIGRATIONS),
        Some(steps) => Ok(steps),
        None => Err(BackupError::Newer {
            path: data.to_owned(),
            found,
            known,
        }),
    }
}

struct Filled {
    tables: Vec<Kept>,
    again: meshes::Again,
    tasks: RepairedTasks,
    unreadable: Vec<String>,
    rows: RepairedRows,
    nameless: Vec<String>,
}

/// In one transaction, with the triggers away: a row that was `done` comes over as it is.
fn fill(
    old: &Connection,
    new: &mut Connection,
    hints: &RepairHints,
    now: WallMs,
) -> Result<Filled, BackupError> {
    let transaction = new.transaction()?;
    let triggers = after::take_triggers(&transaction)?;
    let mut kept = Vec::new();
    for table in salvage::tables(&transaction)? {
        kept.push(salvage::carry(old, &transaction, &table)?);
    }
    let nameless = vectors::carry((old, &transaction), &mut kept, hints, now)?;
    let has_lost_meshes = kept
        .iter()
        .any(|kept| kept.table == "mesh" && !kept.is_whole());
    senders::settle(&transaction, &mut kept)?;
    let again = meshes::make_again(&transaction, hints, has_lost_meshes, now)?;
    strays::settle(&transaction, hints, &mut kept)?;
    mend::settle(&transaction, hints)?;
    // First: which rows are ahead of a clock that is right.
    stamps::settle(&transaction)?;
    let missing = missing_before(&transaction)?;
    let mut unreadable = take_out_unreadable(&transaction, &mut kept)?;
    let (tasks, gone) = tasks::fold(&transaction, &mut kept, now)?;
    unreadable.extend(gone);
    if after::has_column(&transaction, "memory", "digest")? {
        let said = changed_ops::say_again(&transaction, now);
        said.map_err(|error| BackupError::Prepare(error.to_string()))?;
    }
    let rows = settle_gone(&transaction, missing.as_deref(), now)?;
    let is_whole = kept.iter().all(Kept::is_whole) && tasks.behind == 0;
    after::agree(&transaction, is_whole)?;
    if kept
        .iter()
        .any(|kept| after::NAMED_ELSEWHERE.contains(&kept.table.as_str()) && !kept.is_whole())
    {
        after::name_again(&transaction)?;
    }
    // What of it the brokers still hold comes back.
    if kept
        .iter()
        .any(|kept| kept.table == "inbox" && !kept.is_whole())
    {
        mark_all(&transaction)?;
    }
    for sql in triggers {
        transaction.execute_batch(&sql)?;
    }
    after::index(&transaction)?;
    transaction.commit()?;
    Ok(Filled {
        tables: kept,
        again,
        tasks,
        unreadable,
        rows,
        nameless,
    })
}

/// What is gone of a file of the newest schema; a file of before is brought up to date by the next start.
fn missing_before(new: &Connection) -> Result<Option<Vec<missing::Missing>>, BackupError> {
    let version: u32 = new.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version != schema::newest() {
        return Ok(None);
    }
    let found = missing::all(new);
    found
        .map(Some)
        .map_err(|error| BackupError::Prepare(error.to_string()))
}

/// What was never sent goes out, and what is gone comes back from where something of it is.
fn settle_gone(
    new: &Connection,
    before: Option<&[missing::Missing]>,
    now: WallMs,
) -> Result<RepairedRows, BackupError> {
    let Some(before) = before else {
        return Ok(RepairedRows::default());
    };
    let prepare = |error: StoreError| BackupError::Prepare(error.to_string());
    let sent = unsent::send(new, now).map_err(prepare)?;
    let settled = missing::settle(new, before).map_err(prepare)?;
    Ok(RepairedRows { sent, ..settled })
}

/// What the tables take and nobody can read is not carried on: the file that is kept has it, and what of it a log holds
/// comes again.
fn take_out_unreadable(new: &Connection, kept: &mut [Kept]) -> Result<Vec<String>, BackupError> {
    let prepare = |error: StoreError| BackupError::Prepare(error.to_string());
    let found = all_unreadable(new).map_err(prepare)?;
    take_out(new, &found).map_err(prepare)?;
    for row in &found {
        if let Some(table) = kept.iter_mut().find(|kept| kept.table == row.table) {
            table.rows = table.rows.saturating_sub(1);
            table.refused += 1;
        }
    }
    Ok(found.iter().map(ToString::to_string).collect())
}
