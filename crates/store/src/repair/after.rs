//! Tables that must agree with one another agree again, whatever was lost of either.

use rusqlite::Connection;

use crate::backup::has_table;
use crate::carry::{begin_search_anew, index_memory_anew};
use crate::own_refused;
use crate::stamps;

/// Every live file names its blob, and a blob that none names is the sweep's (LF-26).
const COUNT_BLOBS: &str = "
    INSERT OR IGNORE INTO blob_refs (sha256, ref_count, bytes, here, pending_unlink)
        SELECT sha256, 1, max(size), 0, 0 FROM files WHERE storage = 'blob' GROUP BY sha256;
    UPDATE blob_refs SET
        ref_count = (SELECT count(*) FROM files
            WHERE files.storage = 'blob' AND files.sha256 = blob_refs.sha256),
        pending_unlink = NOT EXISTS (SELECT 1 FROM files
            WHERE files.storage = 'blob' AND files.sha256 = blob_refs.sha256);";

/// How many items each mesh gave, counted anew; a mesh whose cursor was lost goes on behind the newest item.
const COUNT_ITEMS: &str = "
    INSERT OR IGNORE INTO delivery (mesh_id, history_epoch, history_seq, item_count)
        SELECT mesh_id, history_epoch, max(history_seq), 0 FROM inbox AS newest
        WHERE history_epoch = (SELECT max(history_epoch) FROM inbox WHERE inbox.mesh_id = newest.mesh_id)
        GROUP BY mesh_id;
    UPDATE delivery SET item_count =
        (SELECT count(*) FROM inbox WHERE inbox.mesh_id = delivery.mesh_id);";

/// Rows of the outbox that were lost leave their places empty; what is done is counted by those.
const COUNT_MISSING: &str = "
    UPDATE store_state SET outbox_missing = (SELECT coalesce(max(arrival), 0) - count(*) FROM outbox);";

/// What waits in the outbox is what waits to be sent.
const QUEUE_OPS: &str = "
    DELETE FROM op_outbox WHERE NOT EXISTS (SELECT 1 FROM outbox
        WHERE outbox.arrival = op_outbox.arrival AND outbox.kind = 'op'
            AND (outbox.status = 'pending' OR outbox.status = 'inflight'));
    INSERT OR IGNORE INTO op_outbox (mesh_id, arrival) SELECT mesh_id, arrival FROM outbox
        WHERE kind = 'op' AND (status = 'pending' OR status = 'inflight');";

/// Ops whose effects may be lost are read and applied once more; those that are there change nothing.
const READ_AGAIN: &str = "
    DELETE FROM op_inbox WHERE state = 'applied';
    UPDATE mesh SET log_epoch = 0, log_seq = 0, needs_resync = 0 WHERE kind <> 'personal';";

/// Tables of which others can say again what was lost of them. Who ever sent must be there: what waits is found by it.
pub(super) const NAMED_ELSEWHERE: [&str; 2] = ["agent", "outbox_sender"];
const NAME_AGAIN: &str = "
    INSERT OR IGNORE INTO outbox_sender (mesh_id, member_id, agent)
        SELECT DISTINCT mesh_id, member_id, agent FROM outbox;
    INSERT OR IGNORE INTO agent (mesh_id, agent, registered_at)
        SELECT mesh_id, agent, min(enqueued_at) FROM outbox WHERE kind = 'message' GROUP BY mesh_id, agent;
    INSERT OR IGNORE INTO agent (mesh_id, agent, registered_at)
        SELECT mesh_id, agent, min(received_at) FROM inbox GROUP BY mesh_id, agent;";

/// Takes all triggers away and gives their words, to make them again.
pub(super) fn take_triggers(new: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement =
        new.prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let triggers: Vec<(String, String)> = rows.collect::<rusqlite::Result<_>>()?;
    for (name, _) in &triggers {
        new.execute_batch(&format!("DROP TRIGGER {name:?}"))?;
    }
    Ok(triggers.into_iter().map(|(_, sql)| sql).collect())
}

pub(super) fn name_again(new: &Connection) -> rusqlite::Result<()> {
    new.execute_batch(NAME_AGAIN)
}

pub(super) fn agree(new: &Connection, is_whole: bool) -> rusqlite::Result<()> {
    // An older schema gets the column, filled, by the step that brings it.
    if has_column(new, "store_state", "outbox_missing")? {
        new.execute_batch(COUNT_MISSING)?;
    }
    if has_table(new, "inbox")? {
        new.execute_batch(COUNT_ITEMS)?;
    }
    if has_table(new, "blob_refs")? {
        new.execute_batch(COUNT_BLOBS)?;
    }
    if has_table(new, "op_outbox")? {
        new.execute_batch(QUEUE_OPS)?;
        if !is_whole {
            new.execute_batch(READ_AGAIN)?;
        }
    }
    // No row is ahead of its mesh's clock.
    stamps::settle(new)?;
    // And nothing goes out that is.
    if has_table(new, "op_outbox")? && has_column(new, "lamport_clock", "log_value")? {
        own_refused::give_up(new)?;
    }
    Ok(())
}

pub(super) fn has_column(new: &Connection, table: &str, column: &str) -> rusqlite::Result<bool> {
    new.prepare("SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2")?
        .exists([table, column])
}

/// What is derived from rows is made anew from them.
pub(super) fn index(new: &Connection) -> rusqlite::Result<()> {
    begin_search_anew(new)?;
    index_memory_anew(new)
}
