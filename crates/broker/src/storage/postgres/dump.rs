//! Every row of the tables as a line of text, in the form of the oracle's dump.

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use ulid::Ulid;

use super::PostgresStorage;

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
        encode(wire_fingerprint, 'hex'), ' ', broker_message_id, ' ', epoch, '.', seq, ' ', destination_kind, ' ',
        destination_ref, ' ', first_seen_at, ' ', coalesce(expires_at, -1), ' ', history_available::int, ' ',
        coalesce(limiter_window, -1), ' ', coalesce(limiter_counted, -1) FROM client_message_dedupe"),
    ("message", "SELECT mesh_id, ' ', broker_message_id, ' ', sender_member, '/', sender_agent, ' ', sender_name, ' ',
        client_message_id, ' ', destination_kind, ' ', destination_ref, ' ', accepted_at, ' ', envelope FROM message"),
    ("history", "SELECT mesh_id, ' ', epoch, '.', seq, ' ', broker_message_id, ' ', is_expired::int FROM message_history"),
    ("log", "SELECT mesh_id, ' ', epoch, '.', seq, ' ', previous_epoch, '.', previous_seq FROM log_row"),
    ("delivery", "SELECT mesh_id, ' ', member_id, '/', agent, ' ', epoch, '.', seq, ' ', priority, ' ',
        broker_message_id, ' ', coalesce(delivered_at, -1), ' ', coalesce(shown_at, -1), ' ', coalesce(acked_at, -1)
        FROM delivery_queue"),
    ("queue", "SELECT mesh_id, ' ', queue, ' ', fence FROM queue"),
    ("work", "SELECT mesh_id, ' ', queue, ' ', epoch, '.', seq, ' ', priority, ' ', fence, ' ', delivery_count, ' ',
        holder_member, CASE WHEN holder_member IS NULL THEN '-' ELSE '/' END, coalesce(holder_agent, ''), ' ',
        coalesce(leased_until, -1), ' ', coalesce(acked_at, -1), ' ', coalesce(taken_at, -1) FROM queue_item"),
    ("standing", "SELECT mesh_id, ' ', member_id, ' ', role, ' ', enrolled_at, ' ', invite_id, CASE WHEN invite_id IS NULL THEN '-' ELSE '' END, ' ',
        coalesce(revoked_at, -1), ' ', coalesce(blocked_at, -1) FROM member_standing"),
    ("key", "SELECT mesh_id, ' ', encode(public_key, 'hex'), ' ', member_id, ' ', added_at, ' ', coalesce(retired_at, -1)
        FROM member_key"),
    ("invite", "SELECT mesh_id, ' ', invite_id, ' ', encode(digest, 'hex'), ' ', inviter, ' ', role, ' ', uses_max, ' ',
        used, ' ', created_at, ' ', expires_at FROM invite"),
    ("grant", "SELECT mesh_id, ' ', peer_id, ' ', member_id, ' ', may_dm::int::bigint, ' ', may_topic::int::bigint FROM member_grant"),
    ("withheld", "SELECT mesh_id, ' ', epoch, '.', seq, ' ', member_id FROM delivery_withheld"),
    ("mention", "SELECT mesh_id, ' ', member_id, '/', agent, ' ', epoch, '.', seq FROM mention_index"),
];

impl PostgresStorage {
    pub(crate) async fn dump(&self) -> Vec<String> {
        let client = self.reader().await.unwrap();
        let mut lines = Vec::new();
        for (table, sql) in TABLES {
            for row in client.query(sql, &[]).await.unwrap() {
                lines.push(format!("{table} {}", line(&row)));
            }
        }
        lines.sort_unstable();
        lines
    }

    /// Rows of a table that is no part of the dump.
    pub(crate) async fn count_of(&self, table: &str) -> i64 {
        let client = self.writer().await.unwrap();
        let sql = format!("SELECT count(*) FROM {table}");
        client.query_one(&sql, &[]).await.unwrap().get(0)
    }

    /// Runs statements as they are, for tests that break something.
    pub(crate) async fn batch(&self, sql: &str) {
        let client = self.writer().await.unwrap();
        client.batch_execute(sql).await.unwrap();
    }
}

fn line(row: &Row) -> String {
    let mut line = String::new();
    for (index, column) in row.columns().iter().enumerate() {
        match *column.type_() {
            Type::INT8 => line.push_str(&row.get::<_, i64>(index).to_string()),
            Type::INT4 => line.push_str(&row.get::<_, i32>(index).to_string()),
            Type::INT2 => line.push_str(&row.get::<_, i16>(index).to_string()),
            Type::BYTEA => {
                if let Some(id) = row.get::<_, Option<&[u8]>>(index) {
                    line.push_str(&Ulid::from_bytes(id.try_into().unwrap()).to_string());
                }
            }
            _ => line.push_str(row.get(index)),
        }
    }
    line
}
