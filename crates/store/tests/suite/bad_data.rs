//! Rows that cannot be right: whoever decides gets an error that names table, row and column, whoever lists gets the row
//! with what is wrong about it; never a panic, and never the loss of a whole list.

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

#[tokio::test]
async fn a_bad_cell_in_the_outbox_is_named_and_the_other_rows_are_listed() {
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
        fixture.row_in(Done, "b").await;
        let fixture = vandalised(fixture, "outbox", change);
        let filter = OutboxFilter {
            status: None,
            mesh: None,
            before: None,
            limit: 10,
        };
        let page = fixture.store.outbox_page(filter).await.unwrap();
        let [whole, hurt] = page.rows.as_slice() else {
            panic!("{change}: {page:?}")
        };
        assert_eq!(
            (whole.client_message_id.as_str(), &whole.damaged),
            ("b", &None)
        );
        let column = change.split(' ').next().unwrap();
        let place = format!("outbox row 1, column {column}: ");
        let why = hurt.damaged.as_deref().unwrap_or_default();
        assert!(why.starts_with(&place), "{change}: {why}");
    }
}

#[tokio::test]
async fn a_bad_cell_in_the_inbox_makes_a_damaged_item_and_the_others_are_listed() {
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
        let items = vec![
            fixture.item("coder", "m", at(1, 1)),
            fixture.item("coder", "n", at(1, 2)),
        ];
        fixture.store.receive(fixture.mesh, items).await.unwrap();
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
        let page = fixture.store.inbox_page(filter).await.unwrap();
        let [hurt, whole] = page.as_slice() else {
            panic!("{change}: {page:?}")
        };
        assert_eq!(whole.client_message_id.as_str(), "n", "{change}");
        assert!(!whole.envelope.is_empty(), "{change}");
        // Nothing of it is shown as what somebody has written.
        assert!(hurt.envelope.is_empty(), "{change}: {hurt:?}");
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
