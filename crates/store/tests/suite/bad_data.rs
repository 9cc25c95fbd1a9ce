//! Rows that cannot be right: an error that names table, row and column, never a panic.

use heddle_core::outbox_status::OutboxStatus::Done;
use heddle_store::{AckedItems, InboxFilter, OutboxFilter, StoreError};

use crate::fixture::{Fixture, at, open};

/// Changes row 1 of the table behind the back of every guard, and opens the store again.
fn vandalised(fixture: Fixture, table: &str, change: &str) -> Fixture {
    fixture.store.stop();
    fixture
        .raw()
        .execute_batch(&format!(
            "PRAGMA ignore_check_constraints = ON;
             DROP TRIGGER outbox_frozen; DROP TRIGGER outbox_moves; DROP TRIGGER outbox_successor;
             UPDATE {table} SET {change} WHERE arrival = 1;
             UPDATE store_state SET clean = 1"
        ))
        .unwrap();
    Fixture {
        store: open(&fixture.path()).unwrap(),
        ..fixture
    }
}

fn assert_corrupt<T: std::fmt::Debug>(result: Result<T, StoreError>, table: &str, change: &str) {
    let column = change.split(' ').next().unwrap();
    let place = format!("{table} row 1, column {column}: ");
    match result {
        Err(StoreError::Corrupt(text)) if text.starts_with(&place) => {}
        other => panic!("{change}: {other:?}"),
    }
}

#[tokio::test]
async fn a_bad_cell_in_the_outbox_is_named() {
    for change in [
        "row_id = x'00'",
        "mesh_id = zeroblob(15)",
        "member_id = x''",
        "agent = ''",
        "client_message_id = char(7)",
        "request_fingerprint = x'01'",
        "wire_fingerprint = zeroblob(33)",
        "kind = 'letter'",
        "mentions = '{'",
        "priority = 'soon'",
        "status = 'lost'",
        "attempts = -1",
        "broker_message_id = x'00'",
        "history_seq = NULL",
        "superseded_by = x'00'",
    ] {
        let fixture = Fixture::new();
        fixture.row_in(Done, "a").await;
        let fixture = vandalised(fixture, "outbox", change);
        let filter = OutboxFilter {
            status: None,
            mesh: None,
            before: None,
            limit: 10,
        };
        assert_corrupt(fixture.store.outbox_page(filter).await, "outbox", change);
    }
}

#[tokio::test]
async fn a_bad_cell_in_the_inbox_is_named() {
    for change in [
        "mesh_id = x'00'",
        "agent = '@'",
        "member_id = x'00'",
        "sender_agent = ''",
        "sender_name = ' '",
        "client_message_id = ''",
        "broker_message_id = x'00'",
        "topic = ''",
        "priority = ''",
    ] {
        let fixture = Fixture::new();
        let item = fixture.item("coder", "m", at(1, 1));
        fixture
            .store
            .receive(fixture.mesh, vec![item])
            .await
            .unwrap();
        let fixture = vandalised(fixture, "inbox", change);
        let filter = InboxFilter {
            mesh: None,
            agent: None,
            after: None,
            since: None,
            topic: None,
            from_member: None,
            from_agent: None,
            acked: AckedItems::All,
            limit: 10,
            bytes_max: usize::MAX,
        };
        assert_corrupt(fixture.store.inbox_page(filter).await, "inbox", change);
    }
}

#[tokio::test]
async fn a_bad_row_does_not_stop_the_writer() {
    let fixture = Fixture::new();
    fixture.accept("a").await;
    let fixture = vandalised(fixture, "outbox", "agent = ''");
    let key = fixture.key("a", 1);
    let accepted = fixture.store.accept::<()>(key, Ok(fixture.new_row())).await;
    assert!(
        matches!(accepted, Err(StoreError::Corrupt(_))),
        "{accepted:?}"
    );
    fixture.accept("b").await;
    assert_eq!(fixture.store.poisoned(), None);
}
