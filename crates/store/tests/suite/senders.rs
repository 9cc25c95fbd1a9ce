//! One changed bit in a row of the outbox that says whose it is: told by the doctor, put back by a repair as its key proves it, and
//! the home starts as who it was.

use heddle_core::names::MeshName;
use heddle_core::outbox_status::OutboxStatus;
use heddle_store::{Repaired, repair};
use rusqlite::Connection;
use serde_json::json;

use crate::fixture::{Fixture, NOW, agent, open};
use crate::mended::{hints, senseless};

fn home() -> MeshName {
    MeshName::parse("home").unwrap()
}

/// A shared mesh from which six messages and three changes went out.
async fn sent() -> Fixture {
    let fixture = Fixture::new().with_mesh().await;
    let mailbox = fixture
        .store
        .register_agent(fixture.mesh, agent("planner"), NOW);
    mailbox.await.unwrap();
    fixture
        .store
        .begin_publish(fixture.mesh, NOW)
        .await
        .unwrap();
    for number in 0..6 {
        fixture
            .row_in(OutboxStatus::Done, &format!("m{number}"))
            .await;
    }
    for key in ["a", "b", "c"] {
        fixture.set(key, key, &json!(1)).await;
    }
    fixture.store.stop();
    fixture
}

/// With the guards of the table away for a moment.
fn change(raw: &Connection, sql: &str) {
    let text = |sql: &str| {
        raw.query_row(sql, [], |row| row.get::<_, String>(0))
            .unwrap()
    };
    let all = "FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'outbox'";
    let drop = text(&format!(
        "SELECT group_concat('DROP TRIGGER ' || name, ';') {all}"
    ));
    let make = text(&format!("SELECT group_concat(sql, ';') {all}"));
    raw.execute_batch(&format!(
        "PRAGMA ignore_check_constraints = ON; {drop}; {sql}; {make}"
    ))
    .unwrap();
}

fn mend(fixture: &Fixture) -> Option<Repaired> {
    repair(&fixture.path(), &fixture.blobs(), &hints(), NOW).unwrap()
}

/// Every column, at this byte and bit, and how a cell with it looks.
fn flip(raw: &Connection, arrival: i64, column: &str, (byte, bit): (usize, u32)) {
    let cell = format!("SELECT CAST({column} AS BLOB) FROM outbox WHERE arrival = {arrival}");
    let mut cell: Vec<u8> = raw.query_row(&cell, [], |row| row.get(0)).unwrap();
    let at = byte % cell.len();
    cell[at] ^= 1 << bit;
    let hex: String = cell.iter().map(|byte| format!("{byte:02x}")).collect();
    let cell = match column {
        "agent" | "client_message_id" => format!("CAST(x'{hex}' AS TEXT)"),
        _ => format!("x'{hex}'"),
    };
    let sql = format!("UPDATE outbox SET {column} = {cell} WHERE arrival = {arrival}");
    change(raw, &sql);
}

#[tokio::test]
async fn lf_38_a_changed_bit_of_whose_a_row_is_is_told_and_put_back_as_its_key_proves_it() {
    let columns = [
        "mesh_id",
        "member_id",
        "agent",
        "client_message_id",
        "id_key",
    ];
    for (column, arrival) in columns
        .into_iter()
        .flat_map(|column| [(column, 3), (column, 8)])
    {
        for (bit, with_another) in [((5, 2), false), ((0, 7), false), ((1, 5), true)] {
            check(column, arrival, bit, with_another).await;
        }
    }
    for bit in [(8, 2), (15, 0), (1, 1)] {
        check("row_id", 8, bit, false).await;
    }
}

async fn check(column: &str, arrival: i64, bit: (usize, u32), with_another: bool) {
    let what = format!("{column} of {arrival}, {bit:?}, {with_another}");
    let fixture = sent().await;
    let before = (fixture.dump("outbox"), fixture.dump("outbox_sender"));
    let mesh = fixture.dump("mesh");
    flip(&fixture.raw(), arrival, column, bit);
    if with_another {
        let value = "UPDATE state_kv SET value = '2' WHERE key = 'b'";
        fixture.raw().execute_batch(value).unwrap();
    }
    let told = senseless(&fixture, true);
    assert!(told.contains("outbox"), "{what}: {told}");
    let mended = mend(&fixture).unwrap();
    assert_eq!(mended.unmended, Vec::<String>::new(), "{what}");
    let named: Vec<&String> = mended.tables.iter().flat_map(|kept| &kept.mended).collect();
    assert!(
        named.iter().any(|name| name.contains(column)),
        "{what}: {named:?}"
    );
    assert_eq!(
        (fixture.dump("outbox"), fixture.dump("outbox_sender")),
        before,
        "{what}"
    );
    assert_eq!(fixture.dump("mesh").len(), mesh.len(), "{what}");
    let store = open(&fixture.path()).unwrap();
    store.refuse_lost_mesh(home()).await.unwrap();
    store.refuse_spoilt().await.unwrap();
    store.stop();
    assert_eq!(senseless(&fixture, true), "", "{what}");
    assert_eq!(mend(&fixture), None, "{what}");
}

/// As an earlier repair left it: who ever sent was said by the changed row.
#[tokio::test]
async fn lf_38_a_home_that_an_earlier_repair_has_locked_out_starts_again() {
    let fixture = sent().await;
    let raw = fixture.raw();
    flip(&raw, 3, "member_id", (5, 2));
    let named = "INSERT INTO outbox_sender SELECT DISTINCT mesh_id, member_id, agent FROM outbox
        WHERE arrival = 3";
    raw.execute_batch(named).unwrap();
    drop(raw);
    let store = open(&fixture.path()).unwrap();
    assert!(store.refuse_lost_mesh(home()).await.is_err());
    store.stop();
    let mended = mend(&fixture).unwrap();
    assert_eq!(mended.unmended, Vec::<String>::new());
    let store = open(&fixture.path()).unwrap();
    store.refuse_lost_mesh(home()).await.unwrap();
}

/// Most rows, and the list of who sent, name another one: none of them fits its key.
#[tokio::test]
async fn lf_38_who_we_are_goes_by_keys_and_not_by_the_most_rows() {
    let fixture = sent().await;
    let before = fixture.dump("mesh");
    let raw = fixture.raw();
    change(
        &raw,
        "UPDATE outbox SET member_id = zeroblob(16) WHERE arrival > 1",
    );
    raw.execute_batch("UPDATE outbox_sender SET member_id = zeroblob(16)")
        .unwrap();
    drop(raw);
    let mended = mend(&fixture).unwrap();
    assert_eq!(mended.unmended, Vec::<String>::new());
    let member = |line: &String| line.contains(&format!("{:?}", fixture.member)).to_string();
    assert_eq!(
        fixture.dump("mesh").iter().map(member).collect::<Vec<_>>(),
        before.iter().map(member).collect::<Vec<_>>()
    );
    let wrong = "SELECT count(*) FROM outbox WHERE member_id = zeroblob(16)";
    let wrong: i64 = fixture
        .raw()
        .query_row(wrong, [], |row| row.get(0))
        .unwrap();
    assert_eq!(wrong, 0);
    assert_eq!(mend(&fixture), None);
}

/// Nobody knows any more whose it was: it is named, not sent, keeps its id, and is told no second time.
#[tokio::test]
async fn ob_06_a_row_that_nothing_proves_is_named_and_its_key_stays_taken() {
    let fixture = sent().await;
    let raw = fixture.raw();
    let change_both = "UPDATE outbox SET member_id = randomblob(16), client_message_id = 'other'
        WHERE arrival = 3";
    let key = "SELECT hex(id_key) FROM outbox WHERE arrival = 3";
    let key = |raw: &Connection| {
        raw.query_row(key, [], |row| row.get::<_, String>(0))
            .unwrap()
    };
    let before = key(&raw);
    change(&raw, change_both);
    drop(raw);
    assert!(senseless(&fixture, true).contains("outbox other"));
    let mended = mend(&fixture).unwrap();
    assert_eq!(mended.unmended, Vec::<String>::new());
    assert_eq!(key(&fixture.raw()), before);
    assert_eq!(senseless(&fixture, true), "");
    assert_eq!(mend(&fixture), None);
    let store = open(&fixture.path()).unwrap();
    store.refuse_lost_mesh(home()).await.unwrap();
}
