//! The judge: what a disk must hold after a crash, by the ledger and not by the code.

use std::collections::BTreeSet;

use heddle_sqlite::{Database, Durability};
use sim::crash_vfs::{CrashDisk, Damage, Op, Replay};

use crate::workload::{body, open};

/// What callers asked for and what they were told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) attempted: BTreeSet<u32>,
    pub(crate) acknowledged: BTreeSet<u32>,
}

impl Ledger {
    pub(crate) fn of<'m>(markers: impl Iterator<Item = &'m str>) -> Ledger {
        let mut ledger = Ledger::default();
        for marker in markers {
            let (word, id) = marker.split_once(' ').unwrap();
            let id = id.parse().unwrap();
            match word {
                "try" => ledger.attempted.insert(id),
                "ok" => ledger.acknowledged.insert(id),
                _ => false,
            };
        }
        ledger
    }

    pub(crate) fn and(mut self, later: Ledger) -> Ledger {
        self.attempted.extend(later.attempted);
        self.acknowledged.extend(later.acknowledged);
        self
    }

    pub(crate) fn of_log(log: &[Op]) -> Ledger {
        Ledger::of(log.iter().filter_map(Op::as_marker))
    }

    /// Opens the disk and compares: acknowledged ⊆ present ⊆ attempted, and the file is whole.
    pub(crate) fn check(&self, disk: &CrashDisk) -> Result<(), String> {
        let database =
            open(disk, Durability::Full).map_err(|error| format!("does not open: {error}"))?;
        let verdict = self.check_open(&database);
        database.stop();
        verdict
    }

    pub(crate) fn check_open(&self, database: &Database) -> Result<(), String> {
        database
            .integrity_check()
            .map_err(|error| error.to_string())?;
        let present = present(database)?;
        let lost: Vec<_> = self.acknowledged.difference(&present).collect();
        if !lost.is_empty() {
            return Err(format!("acknowledged and lost: {lost:?}"));
        }
        let invented: Vec<_> = present.difference(&self.attempted).collect();
        if !invented.is_empty() {
            return Err(format!("present and never asked for: {invented:?}"));
        }
        Ok(())
    }
}

/// The ids of all whole notes.
pub(crate) fn present(database: &Database) -> Result<BTreeSet<u32>, String> {
    let read = database.read_blocking(|connection| {
        let notes = connection
            .prepare("SELECT id, body FROM notes")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<Vec<(u32, Vec<u8>)>>>()?;
        let twins = connection
            .prepare("SELECT id FROM twins")?
            .query_map([], |row| row.get(0))?
            .collect::<rusqlite::Result<BTreeSet<u32>>>()?;
        Ok::<_, rusqlite::Error>((notes, twins))
    });
    let (notes, twins) = read.map_err(|error| error.to_string())?;
    if let Some((id, _)) = notes.iter().find(|(id, found)| found != &body(*id)) {
        return Err(format!("note {id} has another body"));
    }
    let ids: BTreeSet<u32> = notes.into_iter().map(|(id, _)| id).collect();
    if ids != twins {
        return Err(format!("half a write: notes {ids:?}, twins {twins:?}"));
    }
    Ok(ids)
}

/// Cuts the power at every index from `first` on, with the given kinds of damage. `before` is what
/// callers were told before this log began. Returns how many cuts were judged, or the first that broke
/// a promise.
pub(crate) fn cut_everywhere(
    mut replay: Replay,
    first: usize,
    before: &Ledger,
    kinds: &[Damage],
) -> Result<usize, String> {
    let mut cuts = 0;
    for index in first..=replay.len() {
        replay.advance_to(index);
        let ledger = before.clone().and(Ledger::of(replay.markers()));
        for &damage in kinds {
            let image = replay.image(damage, cuts as u64);
            ledger
                .check(&image)
                .map_err(|broken| format!("cut at {index}, {damage:?}, seed {cuts}: {broken}"))?;
            cuts += 1;
        }
    }
    Ok(cuts)
}
