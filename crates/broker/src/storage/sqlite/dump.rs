//! Every row of the tables as a line of text, in the form of the oracle's dump.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use ulid::Ulid;

use super::SqliteStorage;

/// A table's name in the dump, and its columns. Ids are joined by `/` to parties and by `.` to places.
#[rustfmt::skip]
const TABLES: [(&str, &str); 19] = [
    ("mesh", "SELECT mesh_id, ' ', name, ' ', epoch, ' ', next_seq, ' ', lease_ms FROM mesh"),
    ("member", "SELECT mesh_id, ' ', member_id, ' ', name, ' ', generation, ' ', coalesce(seen_at, -1)
        FROM member"),
    ("session", "SELECT mesh_id, ' ', member_id, ' ', generation, ' ', since, ' ', leased_until FROM member_session"),
    ("agent", "SELECT mesh_id, ' ', member_id, '/', agent FROM agent"),
    ("topic", "SELECT mesh_id, ' ', topic FROM topic"),
    ("subscription", "SELECT mesh_id, ' ', topic, ' ', member_id, '/', agent FROM topic_subscription"),
    ("dedupe", "SELECT mesh_id, ' ', sender_member, '/', sender_agent, ' ', client_message_id, ' ',
        lower(hex(wire_fingerprint)), ' ', broker_message_id, ' ', epoch, '.', seq, ' ', destination_kind, ' ',
        destination_ref, ' ', first_seen_at, ' ', coalesce(expires_at, -1), ' ', history_available, ' ',
        coalesce(limiter_window, -1), ' ', coalesce(limiter_counted, -1) FROM client_message_dedupe"),
    ("message", "SELECT mesh_id, ' ', broker_message_id, ' ', sender_member, '/', sender_agent, ' ', sender_name, ' ',
        client_message_id, ' ', destination_kind, ' ', destination_ref, ' ', accepted_at, ' ', envelope FROM message"),
    ("history", "SELECT mesh_id, ' ', epoch, '.', seq, ' ', broker_message_id, ' ', is_expired FROM message_history"),
    ("log", "SELECT mesh_id, ' ', epoch, '.', seq, ' ', previous_epoch, '.', previous_seq FROM log_row"),
    ("delivery", "SELECT mesh_id, ' ', member_id, '/', agent, ' ', epoch, '.', seq, ' ', priority, ' ',
        broker_message_id, ' ', coalesce(delivered_at, -1), ' ', coalesce(shown_at, -1), ' ', coalesce(acked_at, -1)
        FROM delivery_queue"),
    ("queue", "SELECT mesh_id, ' ', queue, ' ', fence FROM queue"),
    ("work", "SELECT mesh_id, ' ', queue, ' ', epoch, '.', seq, ' ', priority, ' ', fence, ' ', delivery_count, ' ',
        coalesce(holder_member, '-'), CASE WHEN holder_member IS NULL THEN '' ELSE '/' END, coalesce(holder_agent, ''), ' ',
        coalesce(leased_until, -1), ' ', coalesce(acked_at, -1), ' ', coalesce(taken_at, -1) FROM queue_item"),
    ("standing", "SELECT mesh_id, ' ', member_id, ' ', role, ' ', enrolled_at, ' ', coalesce(invite_id, '-'), ' ',
        coalesce(revoked_at, -1), ' ', coalesce(blocked_at, -1) FROM member_standing"),
    ("key", "SELECT mesh_id, ' ', lower(hex(public_key)), ' ', member_id, ' ', added_at, ' ', coalesce(retired_at, -1)
        FROM member_key"),
    ("invite", "SELECT mesh_id, ' ', invite_id, ' ', lower(hex(digest)), ' ', inviter, ' ', role, ' ', uses_max, ' ',
        used, ' ', created_at, ' ', expires_at FROM invite"),
    ("grant", "SELECT mesh_id, ' ', peer_id, ' ', member_id, ' ', may_dm, ' ', may_topic FROM member_grant"),
    ("withheld", "SELECT mesh_id, ' ', epoch, '.', seq, ' ', member_id FROM delivery_withheld"),
    ("mention", "SELECT mesh_id, ' ', member_id, '/', agent, ' ', epoch, '.', seq FROM mention_index"),
];

impl SqliteStorage {
    pub(crate) async fn dump(&self) -> Vec<String> {
        self.database.read(lines).await.unwrap()
    }

    /// Runs statements as they are, for tests that break something.
    pub(crate) async fn batch(&self, sql: String) {
        let written = self.database.write(move |c| c.execute_batch(&sql));
        written.await.unwrap();
    }
}

fn lines(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut lines = Vec::new();
    for (table, sql) in TABLES {
        let mut statement = connection.prepare(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            lines.push(format!("{table} {}", line(row, columns)?));
        }
    }
    lines.sort_unstable();
    Ok(lines)
}

fn line(row: &Row<'_>, columns: usize) -> rusqlite::Result<String> {
    let mut line = String::new();
    for index in 0..columns {
        match row.get_ref(index)? {
            ValueRef::Integer(number) => line.push_str(&number.to_string()),
            ValueRef::Text(text) => line.push_str(&String::from_utf8_lossy(text)),
            ValueRef::Blob(id) => {
                let bytes = id.try_into().unwrap();
                line.push_str(&Ulid::from_bytes(bytes).to_string());
            }
            other => panic!("{other:?} in a dump"),
        }
    }
    Ok(line)
}
