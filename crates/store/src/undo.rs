//! The way back from a step of the schema: in place, in one transaction, and only while nothing needs the step.
//!
//! For somebody who goes back to the Heddle of before. Steps are undone from the newest on. A step stays whose tables
//! hold what the ones of before have no place for, and so does the first one, which is the file itself: then the copy
//! that was made before it (`data.db.before-migration-N`) is the way, or a backup.

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
    /// It is the file itself, or a step of another Heddle.
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
        name: "file_before",
        // Whoever is cut off meets no old bytes then, and loses nothing by it.
        needed: "SELECT 0",
        sql: "DROP TRIGGER file_before_is_kept; DROP TRIGGER file_before_is_over;
            DROP TRIGGER file_before_has_come; DROP TRIGGER file_before_is_gone;
            DROP TABLE file_before",
    },
    WayBack {
        name: "row_digest",
        // The Heddle of before compares nothing, and loses nothing by it.
        needed: "SELECT 0",
        sql: "ALTER TABLE memory DROP COLUMN digest;
            ALTER TABLE state_kv DROP COLUMN digest;
            ALTER TABLE files DROP COLUMN digest;
            ALTER TABLE vector_metadata DROP COLUMN digest;
            ALTER TABLE task_op DROP COLUMN digest;
            ALTER TABLE tasks DROP COLUMN digest;
            ALTER TABLE store_state DROP COLUMN rows_sealed;
            DROP TRIGGER memory_is_changed;
            CREATE TRIGGER memory_is_changed AFTER UPDATE ON memory BEGIN
                DELETE FROM memory_fts WHERE rowid = old.place;
                INSERT INTO memory_fts (rowid, key, words, tags)
                    SELECT place, key, words, tags FROM memory_words WHERE place = new.place;
            END;
            DROP TRIGGER files_is_changed;
            CREATE TRIGGER files_is_changed AFTER UPDATE ON files BEGIN
                INSERT INTO blob_refs (sha256, ref_count, bytes, pending_unlink)
                    SELECT new.sha256, 1, new.size, 0 WHERE new.storage = 'blob'
                    ON CONFLICT (sha256) DO UPDATE SET ref_count = ref_count + 1, pending_unlink = 0;
                UPDATE blob_refs SET ref_count = ref_count - 1, pending_unlink = (ref_count = 1)
                    WHERE old.storage = 'blob' AND sha256 = old.sha256;
            END",
    },
    WayBack {
        name: "vector_named",
        // The Heddle of before compares nothing, and loses nothing by it.
        needed: "SELECT 0",
        sql: "ALTER TABLE vector_digest DROP COLUMN named",
    },
    WayBack {
        name: "vector_digest",
        // The Heddle of before compares nothing, and loses nothing by it.
        needed: "SELECT 0",
        sql: "DROP TABLE vector_digest",
    },
    WayBack {
        name: "inbox_fingerprint",
        // The Heddle of before compares nothing, and loses nothing by it.
        needed: "SELECT 0",
        sql: "ALTER TABLE inbox DROP COLUMN wire_fingerprint",
    },
    WayBack {
        name: "outbox_urgent",
        needed: "SELECT 0",
        sql: "DROP INDEX outbox_urgent",
    },
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
    WayBack {
        name: "inbox_lost",
        needed: "SELECT EXISTS (SELECT 1 FROM inbox_lost)",
        sql: "DROP TABLE inbox_lost",
    },
    WayBack {
        name: "log_clock",
        // Taken again, the step would make it the value of the clock.
        needed: "SELECT EXISTS (SELECT 1 FROM lamport_clock WHERE log_value <> value)",
        sql: "ALTER TABLE lamport_clock DROP COLUMN log_value",
    },
    WayBack {
        name: "publish",
        needed: "SELECT EXISTS (SELECT 1 FROM mesh_publish)
            OR EXISTS (SELECT 1 FROM mesh_publish_cursor)",
        sql: "DROP TABLE mesh_publish_cursor; DROP TABLE mesh_publish",
    },
    WayBack {
        name: "vectors",
        needed: "SELECT EXISTS (SELECT 1 FROM vector_metadata)
            OR EXISTS (SELECT 1 FROM vector_models) OR EXISTS (SELECT 1 FROM vector_head)",
        sql: "DROP TABLE vector_metadata; DROP TABLE vector_models; DROP TABLE vector_head",
    },
    WayBack {
        name: "files",
        needed: "SELECT EXISTS (SELECT 1 FROM files) OR EXISTS (SELECT 1 FROM blob_refs)
            OR EXISTS (SELECT 1 FROM file_floor)",
        sql: "DROP TABLE files; DROP TABLE blob_refs; DROP TABLE file_floor",
    },
    WayBack {
        name: "sync",
        // A mesh that is as the step itself makes it says nothing that would be lost.
        needed: "SELECT EXISTS (SELECT 1 FROM op_outbox) OR EXISTS (SELECT 1 FROM op_inbox)
            OR EXISTS (SELECT 1 FROM mesh WHERE broker_epoch <> 0 OR replayed_epoch <> 0
                OR sync_paused <> 0 OR log_epoch <> 0 OR log_seq <> 0 OR needs_resync <> 0
                OR last_sync_at IS NOT NULL
                OR kind <> CASE WHEN broker_url IS NULL THEN 'personal' ELSE 'shared_guest' END)",
        sql: "DROP TABLE op_inbox; DROP TABLE op_outbox;
            ALTER TABLE mesh DROP COLUMN last_sync_at;
            ALTER TABLE mesh DROP COLUMN needs_resync;
            ALTER TABLE mesh DROP COLUMN log_seq;
            ALTER TABLE mesh DROP COLUMN log_epoch;
            ALTER TABLE mesh DROP COLUMN sync_paused;
            ALTER TABLE mesh DROP COLUMN replayed_epoch;
            ALTER TABLE mesh DROP COLUMN broker_epoch;
            ALTER TABLE mesh DROP COLUMN kind",
    },
    WayBack {
        name: "tasks",
        needed: "SELECT EXISTS (SELECT 1 FROM task_op) OR EXISTS (SELECT 1 FROM warning)",
        sql: "DROP TABLE warning; DROP TABLE task_lease; DROP TABLE task_claim_events;
            DROP TABLE task_blocker; DROP TABLE tasks; DROP TABLE task_op",
    },
    WayBack {
        name: "data",
        needed: "SELECT EXISTS (SELECT 1 FROM memory) OR EXISTS (SELECT 1 FROM state_kv)
            OR EXISTS (SELECT 1 FROM applied_request)
            OR EXISTS (SELECT 1 FROM lamport_clock WHERE value <> 0 OR incarnation <> 1)",
        sql: "DROP VIEW memory_words; DROP TABLE memory; DROP TABLE memory_fts;
            DROP TABLE applied_request; DROP TABLE state_kv; DROP TABLE lamport_clock",
    },
    WayBack {
        name: "inbox",
        // What the search index holds is made again from the inbox.
        needed:
            "SELECT EXISTS (SELECT 1 FROM inbox_past) OR EXISTS (SELECT 1 FROM inbox_session)
            OR EXISTS (SELECT 1 FROM inbox_receipt) OR EXISTS (SELECT 1 FROM inbox_hook)
            OR EXISTS (SELECT 1 FROM inbox WHERE shown_at IS NOT NULL)
            OR EXISTS (SELECT 1 FROM inbox_state
                WHERE pruned_through <> 0 OR prune_cutoff IS NOT NULL OR hooks_through IS NOT NULL)",
        sql: "DROP TABLE inbox_hook; DROP TABLE inbox_receipt; DROP TABLE inbox_session;
            DROP TABLE inbox_past; DROP TABLE inbox_fts; DROP TABLE inbox_state;
            ALTER TABLE inbox DROP COLUMN shown_at",
    },
    WayBack {
        name: "outbox_life",
        // How old a row is is known by the age clock alone.
        needed: "SELECT EXISTS (SELECT 1 FROM outbox_attempt) OR EXISTS (SELECT 1 FROM mesh_window)
            OR EXISTS (SELECT 1 FROM outbox)",
        sql: "DROP TABLE mesh_window; DROP TABLE outbox_birth; DROP TABLE age_clock;
            DROP TABLE outbox_attempt",
    },
];

/// Undoes a step of a file that nobody has open. A crash leaves it whole, or gone.
pub fn undo_step(data: &Path, number: u32) -> Result<Undone, BackupError> {
    heddle_sqlite::link_vectors()?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    heddle_sqlite::refuse_misplaced(data)?;
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
pub(crate) mod tests {
    use super::*;

    /// A file at a version, made by the steps themselves.
    pub(crate) fn at(folder: &Path, version: u32) -> std::path::PathBuf {
        heddle_sqlite::link_vectors().unwrap();
        let path = folder.join(format!("v{version}.db"));
        let connection = Connection::open(&path).unwrap();
        // Nothing of it has to outlive a power cut.
        connection
            .pragma_update(None, "synchronous", "OFF")
            .unwrap();
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

    /// The text of every statement that made something, but for blanks.
    fn shape(path: &Path) -> Vec<String> {
        let connection = Connection::open(path).unwrap();
        let all =
            "SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema ORDER BY 1";
        let mut statement = connection.prepare(all).unwrap();
        let rows = statement
            .query_map([], |row| row.get::<_, String>(0))
            .unwrap();
        let bare = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut rows: Vec<String> = rows.map(Result::unwrap).map(bare).collect();
        rows.retain(|row| !row.starts_with("table sqlite_sequence"));
        for row in &mut rows {
            *row = row.replace(" ,", ",").replace(" )", ")");
        }
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

    /// Every step but the first has a way back, so that a home in which nothing was done goes back step by step.
    #[test]
    fn lf_35_every_step_but_the_first_has_a_way_back_and_a_file_goes_all_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = at(folder.path(), schema::newest());
        for step in schema::MIGRATIONS.iter().skip(1).rev() {
            let undone = undo_step(&path, step.version).unwrap();
            let (name, version) = (step.name, step.version - 1);
            assert_eq!(undone, Undone::Done { name, version });
        }
        let first = at(&folder.path().join("."), 1);
        assert_eq!(shape(&path), shape(&first));
    }

    /// One row that only this step has a place for.
    const WITNESSES: &[(&str, &str)] = &[
        (
            "outbox_life",
            "INSERT INTO mesh_window VALUES (zeroblob(16), 1)",
        ),
        ("inbox", "UPDATE inbox_state SET pruned_through = 7"),
        (
            "data",
            "INSERT INTO lamport_clock (mesh_id, value) VALUES (zeroblob(16), 1)",
        ),
        (
            "tasks",
            "INSERT INTO task_op (mesh_id, task_id, op_id, body)
                VALUES (zeroblob(16), zeroblob(16), zeroblob(16), x'00')",
        ),
        (
            "sync",
            "INSERT INTO op_outbox (mesh_id, arrival) VALUES (zeroblob(16), 1)",
        ),
        (
            "files",
            "INSERT INTO file_floor VALUES (zeroblob(16), 'p', 1, zeroblob(16))",
        ),
        (
            "vectors",
            "INSERT INTO vector_head (mesh_id, model_id, changes) VALUES (zeroblob(16), 'm', 1)",
        ),
        (
            "publish",
            "INSERT INTO mesh_publish_cursor (mesh_id, table_name, through) VALUES (zeroblob(16), 't', x'')",
        ),
        (
            "log_clock",
            "INSERT INTO lamport_clock (mesh_id, value, log_value) VALUES (zeroblob(16), 2, 1)",
        ),
        (
            "inbox_lost",
            "INSERT INTO inbox_lost (mesh_id) VALUES (zeroblob(16))",
        ),
    ];

    #[test]
    fn lf_35_a_step_whose_rows_would_be_lost_is_not_undone() {
        let folder = tempfile::tempdir().unwrap();
        for (name, row) in WITNESSES {
            let mut steps = schema::MIGRATIONS.iter();
            let step = steps.find(|step| step.name == *name).unwrap();
            let path = at(folder.path(), step.version);
            let connection = Connection::open(&path).unwrap();
            connection.execute_batch(row).unwrap();
            drop(connection);
            let before = shape(&path);
            let name = step.name;
            let kept = undo_step(&path, step.version).unwrap();
            assert_eq!(kept, Undone::InUse { name });
            assert_eq!(shape(&path), before);
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
