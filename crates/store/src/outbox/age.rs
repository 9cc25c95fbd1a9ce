//! The age clock as it is kept, and the rows that it says are over age.
//!
//! An accept writes nothing here: a row's birth is the first mark that was made after it. Whoever takes rows to send them
//! makes one in the same transaction, so that what was sent is never younger to a next process than its sending.

use std::time::Duration;

use heddle_core::age::{AgeMark, BIRTH_GRAIN};
use heddle_core::clock::BootTime;
use heddle_core::ids::{MeshId, RowId};
use heddle_core::limits::LOST_AGE_MAX;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::cells::Cells;
use crate::error::StoreError;
use crate::store::Store;

pub(crate) const READ_MARK: &str = "SELECT age_ms, wall_ms, boot_id, boot_ms FROM age_clock";

const READ_AGE: &str = "SELECT age_ms FROM age_clock";

pub(crate) const WRITE_MARK: &str = "
    INSERT INTO age_clock (only_row, age_ms, wall_ms, boot_id, boot_ms) VALUES (1, ?1, ?2, ?3, ?4)
    ON CONFLICT (only_row) DO UPDATE SET age_ms = excluded.age_ms, wall_ms = excluded.wall_ms,
        boot_id = excluded.boot_id, boot_ms = excluded.boot_ms";

pub(crate) const NEWEST_BIRTHS: &str =
    "SELECT arrival_max, age_ms FROM outbox_birth ORDER BY arrival_max DESC LIMIT 2";

pub(crate) const NEWEST_ROW: &str = "SELECT max(arrival) FROM outbox";

pub(crate) const MARK_BIRTH: &str =
    "INSERT INTO outbox_birth (arrival_max, age_ms) VALUES (?1, ?2) ON CONFLICT DO NOTHING";

pub(crate) const MOVE_BIRTH: &str =
    "UPDATE outbox_birth SET arrival_max = ?1, age_ms = ?2 WHERE arrival_max = ?3";

// Marks that no waiting row needs any more, nor one that its broker may have lost: of those before ?1 the last one
// stays. The first look goes over what waits, and nothing else.
pub(crate) const FORGET_BIRTHS: &str = "
    DELETE FROM outbox_birth WHERE arrival_max < min(
        coalesce(
            (SELECT min(arrival) FROM outbox INDEXED BY outbox_due WHERE status = 'pending'),
            (SELECT max(arrival_max) FROM outbox_birth)),
        coalesce((SELECT max(arrival_max) FROM outbox_birth WHERE age_ms <= ?1), 0))";

// Ages rise with arrivals, so the marks up to an age are the first ones.
pub(crate) const BORN_BY: &str = "
    SELECT arrival_max FROM outbox_birth WHERE age_ms <= ?1 ORDER BY arrival_max DESC LIMIT 1";

// Neither rows that are parked nor ops die of age.
pub(crate) const OVER_AGE: &str = "
    SELECT row_id FROM outbox WHERE arrival IN (
        SELECT arrival FROM outbox INDEXED BY outbox_due
        WHERE mesh_id = ?1 AND status = 'pending' AND due_mono_ms < 9223372036854775806
            AND arrival <= ?2
        LIMIT ?3)
    ORDER BY arrival";

fn born_by(connection: &Connection, born: Duration) -> Result<i64, StoreError> {
    let arrival: Option<i64> = connection
        .prepare_cached(BORN_BY)?
        .query_row([whole_ms(born)], |row| row.get(0))
        .optional()?;
    Ok(arrival.unwrap_or(0))
}

impl Store {
    /// What the last process knew; `None` for a new home.
    pub async fn age_mark(&self) -> Result<Option<AgeMark>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(READ_MARK)?;
            let mut rows = statement.query([])?;
            let Some(row) = rows.next()? else {
                return Ok(None);
            };
            let mut cells = Cells::of("age_clock", row);
            let age = ms(cells.get()?);
            let wall = cells.wall()?;
            let boot: Option<[u8; 16]> = cells.get()?;
            let since: Option<i64> = cells.get()?;
            Ok(Some(AgeMark {
                age,
                wall,
                boot: boot.zip(since).map(|(boot, since)| BootTime {
                    boot: u128::from_be_bytes(boot),
                    since: ms(since),
                }),
            }))
        })
        .await
    }

    /// Writes the age clock down, and that every row so far was born by now. A power cut may take the
    /// last marks along; then rows look younger than they are, and are kept longer.
    pub async fn mark_age(&self, mark: AgeMark) -> Result<(), StoreError> {
        self.write_relaxed(move |connection| {
            let boot = mark.boot;
            connection.prepare_cached(WRITE_MARK)?.execute(params![
                whole_ms(mark.age),
                mark.wall.0,
                boot.map(|boot| boot.boot.to_be_bytes()),
                boot.map(|boot| whole_ms(boot.since)),
            ])?;
            mark_birth(connection, mark.age)
        })
        .await
    }

    /// The last row that is certainly older than this, as the age clock tells; 0 if none is.
    pub async fn older_than(&self, age: Duration) -> Result<i64, StoreError> {
        self.read(move |connection| {
            let now: Option<i64> = connection
                .prepare_cached(READ_AGE)?
                .query_row([], |row| row.get(0))
                .optional()?;
            let Some(born) = now.and_then(|now| ms(now).checked_sub(age)) else {
                return Ok(0);
            };
            born_by(connection, born)
        })
        .await
    }

    /// The last row that was born when the age clock showed `born`, or before; 0 if none was.
    pub async fn born_by(&self, born: Duration) -> Result<i64, StoreError> {
        self.read_few(move |connection| born_by(connection, born))
            .await
    }

    /// Drops the marks that no waiting row needs. To be called now and then.
    pub async fn forget_births(&self) -> Result<(), StoreError> {
        self.write_relaxed(|connection| {
            let age: Option<i64> = connection
                .prepare_cached(READ_AGE)?
                .query_row([], |row| row.get(0))
                .optional()?;
            let before = age.unwrap_or(0).saturating_sub(whole_ms(LOST_AGE_MAX));
            connection
                .prepare_cached(FORGET_BIRTHS)?
                .execute([before])?;
            Ok(())
        })
        .await
    }

    /// Rows of the mesh that wait and were born when the age clock showed `born`, or before; oldest first.
    pub async fn over_age(
        &self,
        mesh: MeshId,
        born: Duration,
        limit: usize,
    ) -> Result<Vec<RowId>, StoreError> {
        self.read(move |connection| {
            let arrival_max = born_by(connection, born)?;
            if arrival_max == 0 {
                return Ok(Vec::new());
            }
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let mut statement = connection.prepare_cached(OVER_AGE)?;
            let mut rows = statement.query(params![mesh.0.to_bytes(), arrival_max, limit])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.push(RowId(Cells::of("outbox", row).ulid()?));
            }
            Ok(found)
        })
        .await
    }

    /// The age at which rows of the mesh die, as it was last agreed with its broker.
    pub async fn max_age_hours(&self, mesh: MeshId) -> Result<Option<u32>, StoreError> {
        self.read(move |connection| {
            let mut statement = connection
                .prepare_cached("SELECT max_age_hours FROM mesh_window WHERE mesh_id = ?1")?;
            let hours = statement.query_row([mesh.0.to_bytes()], |row| row.get(0));
            Ok(hours.optional()?)
        })
        .await
    }

    pub async fn set_max_age_hours(&self, mesh: MeshId, hours: u32) -> Result<(), StoreError> {
        self.write_relaxed(move |connection| {
            connection
                .prepare_cached(
                    "INSERT INTO mesh_window (mesh_id, max_age_hours) VALUES (?1, ?2)
                     ON CONFLICT (mesh_id) DO UPDATE SET max_age_hours = excluded.max_age_hours",
                )?
                .execute(params![mesh.0.to_bytes(), hours])?;
            Ok(())
        })
        .await
    }
}

/// All rows so far were born by now. One mark serves for all that arrives within [`BIRTH_GRAIN`] of the mark before it: it
/// moves on, and they look younger by as much. A mark that is older than that stays, whatever comes: it may be all that is known of
/// rows that a process left which was killed.
pub(crate) fn mark_birth(connection: &Connection, age: Duration) -> Result<(), StoreError> {
    let newest: Option<i64> = connection
        .prepare_cached(NEWEST_ROW)?
        .query_row([], |row| row.get(0))?;
    let Some(newest) = newest else {
        return Ok(());
    };
    let mut statement = connection.prepare_cached(NEWEST_BIRTHS)?;
    let marks = statement.query_map([], |row| Ok((row.get(0)?, ms(row.get(1)?))))?;
    let marks = marks.collect::<Result<Vec<(i64, Duration)>, _>>()?;
    let last = marks.first().copied();
    if last.is_some_and(|(arrival, _)| newest <= arrival) {
        return Ok(());
    }
    // Ages rise with arrivals, also where a start knew less of the time than the process before it.
    let age = last.map_or(age, |(_, marked)| age.max(marked));
    match (last, marks.get(1)) {
        (Some((arrival, _)), Some((_, before))) if age <= before.saturating_add(BIRTH_GRAIN) => {
            connection.prepare_cached(MOVE_BIRTH)?.execute(params![
                newest,
                whole_ms(age),
                arrival
            ])?;
        }
        _ => {
            connection
                .prepare_cached(MARK_BIRTH)?
                .execute(params![newest, whole_ms(age)])?;
        }
    }
    Ok(())
}

fn ms(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

fn whole_ms(age: Duration) -> i64 {
    i64::try_from(age.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_file() {
        assert_eq!(
            ms(whole_ms(Duration::from_millis(7))),
            Duration::from_millis(7)
        );
        assert_eq!(whole_ms(Duration::MAX), i64::MAX);
        assert_eq!(ms(-1), Duration::ZERO);
    }
}
