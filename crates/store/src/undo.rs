//! The way back from a step of the schema: in place, in one transaction, and only while nothing needs the step.
//!
//! For somebody who goes back to the Heddle of before. Steps are undone from the newest on. A step whose tables hold
//! something, or that has no way back, stays: a backup from before it is the way then.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::backup::BackupError;
use crate::schema;

/// What became of a wish to undo a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undone {
    /// Nothing of it is in the file any more; the version that the file has now.
    Done { name: &'static str, version: u32 },
    /// Steps behind it are in the file, up to this one: they come first.
    NotTheLast { version: u32 },
    /// What it made is in use.
    InUse { name: &'static str },
    /// It changed rows of before, or too much builds on it.
    NoWayBack { name: &'static str },
}

/// How a step is undone: found by its name, because numbers say nothing.
struct WayBack {
    name: &'static str,
    /// True where the step is needed.
    needed: &'static str,
    sql: &'static str,
}

const WAYS_BACK: &[WayBack] = &[
    WayBack {
        name: "outbox_lost",
        needed: "SELECT EXISTS (SELECT 1 FROM outbox_lost)",
        sql: "DROP TABLE outbox_lost; DROP TABLE outbox_reach",
    },
    WayBack {
        name: "dead_is_done",
        needed: "SELECT 0",
        sql: "DROP TRIGGER outbox_moves;
            CREATE TRIGGER outbox_moves BEFORE UPDATE OF status ON outbox
            WHEN NOT (
                (OLD.status = 'pending'
                    AND (NEW.status = 'inflight' OR NEW.status = 'dead' OR NEW.status = 'aborted'))
                OR (OLD.status = 'inflight'
                    AND (NEW.status = 'pending' OR NEW.status = 'done' OR NEW.status = 'dead'))
                OR (OLD.status = 'dead' AND NEW.status = 'aborted')
            )
            BEGIN
                SELECT RAISE(ABORT, 'an outbox row may not move like this');
            END",
    },
    WayBack {
        name: "upload",
        needed: "SELECT EXISTS (SELECT 1 FROM mesh_publish WHERE is_upload = 1)",
        sql: "ALTER TABLE mesh_publish DROP COLUMN is_upload",
    },
    WayBack {
        name: "effects_used",
        needed: "SELECT EXISTS (SELECT 1 FROM store_state WHERE effects_used <> 0)",
        sql: "ALTER TABLE store_state DROP COLUMN effects_used",
    },
    WayBack {
        name: "outbox_missing",
        needed: "SELECT EXISTS (SELECT 1 FROM store_state WHERE outbox_missing <> 0)",
        sql: "ALTER TABLE store_state DROP COLUMN outbox_missing",
    },
    WayBack {
        name: "invite",
        needed: "SELECT EXISTS (SELECT 1 FROM invite_key)",
        sql: "DROP TABLE invite_key",
    },
    WayBack {
        name: "snapshot",
        needed: "SELECT EXISTS (SELECT 1 FROM mesh_publish WHERE snapshot <> 'none' AND snapshot <> 'committed')",
        sql: "ALTER TABLE mesh_publish DROP COLUMN sent_through;
            ALTER TABLE mesh_publish DROP COLUMN snapshot",
    },
    WayBack {
        name: "floor",
        needed: "SELECT EXISTS (SELECT 1 FROM data_floor)",
        sql: "DROP INDEX vector_deleted; DROP INDEX state_kv_deleted; DROP INDEX memory_deleted;
            DROP TABLE data_floor",
    },
    WayBack {
        name: "fetch",
        needed: "SELECT 0",
        sql: "DROP INDEX files_by_hash",
    },
];

/// Undoes a step of a file that nobody has open. A crash leaves it whole, or gone.
pub fn undo_step(data: &Path, number: u32) -> Result<Undone, BackupError> {
    heddle_sqlite::link_vectors()?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(data, flags)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version != number {
        return Ok(Undone::NotTheLast { version });
    }
    let mut steps = schema::MIGRATIONS.iter();
    let name = steps
        .find(|step| step.version == number)
        .map_or("", |step| step.name);
    let Some(way) = WAYS_BACK.iter().find(|way| way.name == name) else {
        return Ok(Undone::NoWayBack { name });
    };
    if transaction.query_row(way.needed, [], |row| row.get(0))? {
        return Ok(Undone::InUse { name });
    }
    transaction.execute_batch(way.sql)?;
    transaction.execute("DELETE FROM _migrations WHERE version = ?1", [number])?;
    let version = number - 1;
    transaction.pragma_update(None, "user_version", version)?;
    transaction.commit()?;
    Ok(Undone::Done { name, version })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file at a version, made by the steps themselves.
    fn at(folder: &Path, version: u32) -> std::path::PathBuf {
        heddle_sqlite::link_vectors().unwrap();
        let path = folder.join(format!("v{version}.db"));
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch(
                "CREATE TABLE _migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER)",
            )
            .unwrap();
        let steps = schema::MIGRATIONS.iter();
        for step in steps.filter(|step| step.version <= version) {
            connection.execute_batch(step.sql).unwrap();
            let row = (step.version, step.name);
            let noted = "INSERT INTO _migrations (version, name) VALUES (?1, ?2)";
            connection.execute(noted, row).unwrap();
        }
        connection
            .pragma_update(None, "user_version", version)
            .unwrap();
        path
    }

    /// Names, and columns with their types: the text of a statement may differ in blanks.
    fn shape(path: &Path) -> Vec<String> {
        let connection = Connection::open(path).unwrap();
        let mut statement = connection
            .prepare(
                "SELECT m.type || ' ' || m.name || ' ' || coalesce(
                    (SELECT group_concat(c.name || ':' || c.type || ':' || c.\"notnull\", ',')
                     FROM pragma_table_info(m.name) c), '')
                 FROM sqlite_master m ORDER BY 1",
            )
            .unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        let mut rows: Vec<String> = rows.map(Result::unwrap).collect();
        let noted = "SELECT count(*) || ' steps, version ' || (SELECT user_version FROM pragma_user_version) FROM _migrations";
        rows.push(connection.query_row(noted, [], |row| row.get(0)).unwrap());
        rows
    }

    #[test]
    fn lf_35_an_undone_step_leaves_the_file_as_it_was_before_it() {
        for way in WAYS_BACK {
            let folder = tempfile::tempdir().unwrap();
            let mut steps = schema::MIGRATIONS.iter();
            let step = steps.find(|step| step.name == way.name).unwrap();
            let path = at(folder.path(), step.version);
            let (name, version) = (step.name, step.version - 1);
            let undone = undo_step(&path, step.version).unwrap();
            assert_eq!(undone, Undone::Done { name, version });
            let before = at(folder.path(), version);
            assert_eq!(shape(&path), shape(&before), "{name}");
            // And on again, to where it was.
            let connection = Connection::open(&path).unwrap();
            connection.execute_batch(step.sql).unwrap();
        }
    }

    #[test]
    fn a_step_that_is_needed_has_none_or_is_not_the_last_stays() {
        let folder = tempfile::tempdir().unwrap();
        let newest = schema::newest();
        let path = at(folder.path(), newest);
        let other = undo_step(&path, newest - 1).unwrap();
        assert_eq!(other, Undone::NotTheLast { version: newest });
        let find = |name| schema::MIGRATIONS.iter().find(|step| step.name == name);
        let invite = find("invite").unwrap().version;
        let path = at(folder.path(), invite);
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch(
                "INSERT INTO invite_key (mesh_id, request_key, fingerprint, made_at, link)
                 VALUES (zeroblob(16), 'k', zeroblob(32), 1, 'l')",
            )
            .unwrap();
        drop(connection);
        let before = shape(&path);
        let kept = undo_step(&path, invite).unwrap();
        assert_eq!(kept, Undone::InUse { name: "invite" });
        assert_eq!(shape(&path), before);
        let path = at(folder.path(), 1);
        let none = undo_step(&path, 1).unwrap();
        assert_eq!(none, Undone::NoWayBack { name: "messages" });
    }
}
