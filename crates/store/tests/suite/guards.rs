//! What the file itself refuses, whoever writes: OB-07 to OB-10, DR-13, C31.

use heddle_core::outbox_status::OutboxStatus;
use rusqlite::{Connection, params};

use crate::fixture::Fixture;

/// Runs the statement as the vandal would and gives SQLite's refusal.
fn refusal(raw: &Connection, sql: &str) -> String {
    match raw.execute(sql, []) {
        Ok(_) => panic!("{sql} was allowed"),
        Err(error) => error.to_string(),
    }
}

/// Puts row 1 into any state, past the trigger, which is there again afterwards.
fn force_status(raw: &Connection, status: OutboxStatus) {
    let trigger: String = raw
        .query_row(
            "SELECT sql FROM sqlite_schema WHERE name = 'outbox_moves'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    raw.execute_batch("DROP TRIGGER outbox_moves").unwrap();
    let sql = "UPDATE outbox SET status = ?1 WHERE arrival = 1";
    raw.execute(sql, [status.as_str()]).unwrap();
    raw.execute_batch(&trigger).unwrap();
}

#[tokio::test]
async fn ob_09_the_trigger_allows_exactly_the_moves_of_the_function_in_all_25_pairs() {
    let fixture = Fixture::new();
    fixture.accept("a").await;
    let raw = fixture.raw();
    for from in OutboxStatus::ALL {
        for to in OutboxStatus::ALL {
            force_status(&raw, from);
            let sql = "UPDATE outbox SET status = ?1 WHERE arrival = 1";
            let moved = raw.execute(sql, [to.as_str()]).is_ok();
            assert_eq!(moved, from.may_become(to), "{from:?} to {to:?}");
        }
    }
}

#[tokio::test]
async fn ob_08_c31_a_status_is_one_of_five_and_never_null() {
    let fixture = Fixture::new();
    fixture.accept("a").await;
    let raw = fixture.raw();
    for from in OutboxStatus::ALL {
        force_status(&raw, from);
        for bad in ["NULL", "''", "'lost'", "'PENDING'", "x'00'"] {
            refusal(&raw, &format!("UPDATE outbox SET status = {bad}"));
        }
    }
    // The column itself refuses too: without the trigger NULL must not slip through a CHECK.
    raw.execute_batch("DROP TRIGGER outbox_moves").unwrap();
    let reason = refusal(&raw, "UPDATE outbox SET status = NULL");
    assert!(reason.contains("NOT NULL"), "{reason}");
    let reason = refusal(&raw, "UPDATE outbox SET status = 'lost'");
    assert!(reason.contains("CHECK"), "{reason}");
}

#[tokio::test]
async fn ob_09_a_row_begins_as_pending_and_nowhere_else() {
    let fixture = Fixture::new();
    let raw = fixture.raw();
    for status in OutboxStatus::ALL {
        let inserted = raw.execute(
            "INSERT INTO outbox (row_id, id_key, mesh_id, member_id, agent, client_message_id,
                 request_fingerprint, wire_fingerprint, status, kind, to_address, mentions,
                 priority, enqueued_at, payload)
             VALUES (randomblob(16), randomblob(24), zeroblob(16), zeroblob(16), 'a', 'c',
                 zeroblob(32), zeroblob(32), ?1, 'message', '#ops', '[]', 'next', 1, x'')",
            params![status.as_str()],
        );
        let pending = status == OutboxStatus::Pending;
        assert_eq!(inserted.is_ok(), pending, "{status:?} {inserted:?}");
    }
}

#[tokio::test]
async fn ob_07_what_a_row_was_accepted_with_cannot_be_changed() {
    let fixture = Fixture::new();
    fixture.accept("a").await;
    let raw = fixture.raw();
    for change in [
        "arrival = 9",
        "row_id = randomblob(16)",
        "id_key = randomblob(24)",
        "mesh_id = randomblob(16)",
        "member_id = randomblob(16)",
        "agent = 'other'",
        "client_message_id = 'other'",
        "request_fingerprint = randomblob(32)",
        "wire_fingerprint = randomblob(32)",
        "kind = 'op'",
        "to_address = '#other'",
        "mentions = '[]'",
        "priority = 'low'",
        "enqueued_at = enqueued_at + 1",
        "payload = x'00'",
    ] {
        let reason = refusal(&raw, &format!("UPDATE outbox SET {change}"));
        assert!(reason.contains("never changes"), "{change}: {reason}");
    }
}

#[tokio::test]
async fn ob_07_c33_a_payload_may_be_emptied_and_stays_empty() {
    let fixture = Fixture::new();
    let row = fixture.accept("a").await;
    let raw = fixture.raw();
    raw.execute("UPDATE outbox SET payload = x''", []).unwrap();
    assert!(fixture.find(row).await.payload.is_empty());
    refusal(&raw, "UPDATE outbox SET payload = x'01'");
}

#[tokio::test]
async fn ob_10_no_row_can_be_deleted_in_any_state() {
    let fixture = Fixture::new();
    fixture.accept("a").await;
    let raw = fixture.raw();
    for status in OutboxStatus::ALL {
        force_status(&raw, status);
        let reason = refusal(&raw, "DELETE FROM outbox");
        assert!(reason.contains("never deleted"), "{reason}");
    }
}

#[tokio::test]
async fn dr_13_a_successor_must_exist_be_younger_and_be_named_once() {
    let fixture = Fixture::new();
    for id in ["a", "b", "c"] {
        fixture.accept(id).await;
    }
    let raw = fixture.raw();
    let name = |row: i64, successor: &str| {
        format!("UPDATE outbox SET superseded_by = ({successor}) WHERE arrival = {row}")
    };
    let row = |arrival: i64| format!("SELECT row_id FROM outbox WHERE arrival = {arrival}");
    refusal(&raw, &name(1, "randomblob(16)"));
    refusal(&raw, &name(1, &row(1)));
    refusal(&raw, &name(2, &row(1)));
    raw.execute(&name(1, &row(2)), []).unwrap();
    refusal(&raw, &name(1, &row(3)));
    refusal(&raw, &name(1, "NULL"));
}
