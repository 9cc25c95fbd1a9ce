//! The row of a mesh that is lost, and rows that name a mesh which is none: told before anything is begun, and put back.

use heddle_core::clock::Ids as _;
use heddle_core::ids::MeshId;
use heddle_core::names::MeshName;
use heddle_store::{Checkup, DueOp, Repaired, StoreError, check_up, lost_mesh_in, repair};
use rusqlite::Connection;
use serde_json::json;
use ulid::Ulid;

use crate::fixture::{Fixture, NOW, agent, open};
use crate::mended::hints;
use crate::meshes::new_mesh;
use crate::sync_home::Home;

fn home() -> MeshName {
    MeshName::parse("home").unwrap()
}

/// A home with a mesh of its own, a message and a task.
async fn begun() -> Fixture {
    let fixture = Fixture::new().with_mesh().await;
    let mailbox = fixture
        .store
        .register_agent(fixture.mesh, agent("planner"), NOW);
    mailbox.await.unwrap();
    fixture.accept("m1").await;
    fixture.add("a task", &[]).await;
    fixture
}

fn check(fixture: &Fixture) -> Checkup {
    let blobs = fixture.folder.path().join("blobs");
    check_up(&fixture.path(), &blobs, |_, _| true, true).unwrap()
}

fn mend(fixture: &Fixture) -> Option<Repaired> {
    repair(&fixture.path(), &fixture.blobs(), &hints(), NOW).unwrap()
}

fn row(fixture: &Fixture, name: &str) -> (MeshId, String) {
    let sql = "SELECT mesh_id, hex(member_id) FROM mesh WHERE name = ?1";
    let id = |bytes: [u8; 16]| MeshId(Ulid::from_bytes(bytes));
    fixture
        .raw()
        .query_row(sql, [name], |row| Ok((id(row.get(0)?), row.get(1)?)))
        .unwrap()
}

fn count(raw: &Connection, sql: &str) -> i64 {
    raw.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn lf_38_nothing_is_begun_over_a_home_whose_own_mesh_is_not_in_the_list() {
    for sql in [
        "DELETE FROM mesh",
        "UPDATE mesh SET mesh_id = zeroblob(16)",
        "UPDATE mesh SET name = 'hole'",
    ] {
        let fixture = begun().await;
        let before = row(&fixture, "home");
        fixture.store.refuse_lost_mesh(home()).await.unwrap();
        assert_eq!(
            fixture.store.lost_meshes(home(), true).await.unwrap(),
            [""; 0]
        );
        assert_eq!(check(&fixture).meshless, []);
        fixture.raw().execute_batch(sql).unwrap();
        let refused = fixture.store.refuse_lost_mesh(home()).await;
        assert!(matches!(refused, Err(StoreError::Corrupt(_))), "{sql}");
        let told = fixture.store.lost_meshes(home(), false).await.unwrap();
        assert_eq!(told.len(), 1, "{sql}: {told:?}");
        fixture.store.stop();
        let told = lost_mesh_in(&fixture.path(), &home());
        assert!(told.is_some(), "{sql}");
        mend(&fixture).unwrap();
        assert_eq!(row(&fixture, "home"), before, "{sql}");
        assert_eq!(lost_mesh_in(&fixture.path(), &home()), None, "{sql}");
        assert_eq!(mend(&fixture), None, "{sql}");
    }
}

#[tokio::test]
async fn lf_38_a_mesh_that_was_begun_over_the_lost_one_makes_way_only_while_nobody_has_used_it() {
    for is_used in [false, true] {
        let fixture = begun().await;
        let before = row(&fixture, "home");
        fixture.raw().execute_batch("DELETE FROM mesh").unwrap();
        let mut new = new_mesh(&fixture, "home");
        new.broker_url = None;
        let new = fixture.store.ensure_mesh(new).await.unwrap().mesh;
        let mailbox = fixture.store.register_agent(new, agent("planner"), NOW);
        mailbox.await.unwrap();
        if is_used {
            let used = "INSERT INTO applied_request SELECT mesh_id, 'planner', 'k', zeroblob(32), 1, '{}' FROM mesh";
            fixture.raw().execute_batch(used).unwrap();
        }
        assert_eq!(check(&fixture).meshless.len(), 1);
        fixture.store.stop();
        let repaired = mend(&fixture).unwrap();
        assert_eq!((repaired.meshes_made, &repaired.meshes_left), (1, &vec![]));
        if is_used {
            assert_eq!(row(&fixture, "home").0, new);
            let other = format!("mesh.{}", before.0).to_lowercase();
            assert_eq!(row(&fixture, &other), before);
        } else {
            assert_eq!(row(&fixture, "home"), before);
            assert_eq!(count(&fixture.raw(), "SELECT count(*) FROM mesh"), 1);
        }
        assert_eq!(mend(&fixture), None);
    }
}

#[tokio::test]
async fn lf_38_a_row_whose_mesh_was_changed_is_told_and_goes_back_and_no_id_is_free_again() {
    for (table, bad) in [
        ("outbox", "zeroblob(16)"),
        ("outbox", "X'01010101010101010101010101010101'"),
        ("applied_request", "zeroblob(16)"),
        ("agent", "zeroblob(16)"),
    ] {
        let fixture = begun().await;
        let mut second = new_mesh(&fixture, "second");
        second.mesh = MeshId(fixture.ids.ulid());
        second.broker_url = None;
        fixture.store.ensure_mesh(second).await.unwrap();
        let raw = fixture.raw();
        let mine = format!(
            "SELECT count(*) FROM {table} WHERE mesh_id = (SELECT mesh_id FROM mesh WHERE name = 'home')"
        );
        let before = count(&raw, &mine);
        assert!(before > 0, "{table}");
        let triggers = "SELECT group_concat('DROP TRIGGER ' || name, ';') FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'outbox'";
        let saved = "SELECT group_concat(sql, ';') FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'outbox'";
        let text = |sql: &str| {
            raw.query_row(sql, [], |row| row.get::<_, String>(0))
                .unwrap()
        };
        let (drop, make) = (text(triggers), text(saved));
        raw.execute_batch(&format!("{drop};UPDATE {table} SET mesh_id = {bad};{make}"))
            .unwrap();
        drop_and_check(fixture, table, bad, &mine, before);
    }
}

fn drop_and_check(fixture: Fixture, table: &str, bad: &str, mine: &str, before: i64) {
    let told = check(&fixture).meshless;
    assert_eq!(told.len(), 1, "{table} {bad}: {told:?}");
    assert_eq!(told[0].tables[0].0, table);
    fixture.store.stop();
    mend(&fixture).unwrap();
    let store = open(&fixture.path()).unwrap();
    store.stop();
    assert_eq!(check(&fixture).meshless, [], "{table} {bad}");
    if table != "agent" {
        assert_eq!(count(&fixture.raw(), mine), before, "{table} {bad}");
    }
    assert_eq!(mend(&fixture), None, "{table} {bad}");
}

#[tokio::test]
async fn lf_38_a_home_goes_on_as_nobody_else_where_a_member_was_changed() {
    for sql in [
        "UPDATE mesh SET member_id = zeroblob(16)",
        "UPDATE outbox_sender SET member_id = zeroblob(16)",
    ] {
        let fixture = begun().await;
        fixture.accept("m2").await;
        let before = row(&fixture, "home");
        fixture.raw().execute_batch(sql).unwrap();
        let refused = fixture.store.refuse_lost_mesh(home()).await;
        assert!(matches!(refused, Err(StoreError::Corrupt(_))), "{sql}");
        let told = check(&fixture).senseless.join("; ");
        assert!(told.contains("another member"), "{sql}: {told}");
        fixture.store.stop();
        mend(&fixture).unwrap();
        assert_eq!(row(&fixture, "home"), before, "{sql}");
        let senders = "SELECT count(*) FROM outbox_sender JOIN mesh USING (mesh_id, member_id)";
        assert_eq!(count(&fixture.raw(), senders), 1, "{sql}");
        assert_eq!(mend(&fixture), None, "{sql}");
    }
}

#[tokio::test]
async fn lf_38_a_kind_of_a_mesh_that_nobody_knows_is_told_before_a_start_stops_at_it() {
    let fixture = begun().await;
    let change = "PRAGMA ignore_check_constraints = ON; UPDATE mesh SET kind = 'personaz'";
    fixture.raw().execute_batch(change).unwrap();
    let told = check(&fixture).senseless.join("; ");
    assert!(told.contains("column kind"), "{told}");
    fixture.store.stop();
    mend(&fixture).unwrap();
    let kind = "SELECT count(*) FROM mesh WHERE kind = 'personal'";
    assert_eq!(count(&fixture.raw(), kind), 1);
    assert_eq!(mend(&fixture), None);
}

#[tokio::test]
async fn lf_02_a_change_whose_note_of_waiting_was_lost_or_moved_is_sent_after_the_next_start() {
    for sql in [
        "DELETE FROM op_outbox",
        "UPDATE op_outbox SET arrival = arrival + 7",
        "UPDATE op_outbox SET mesh_id = zeroblob(16)",
    ] {
        let home = Home::shared(3).await;
        home.set("a", json!(1)).await;
        home.set("b", json!(2)).await;
        let arrivals = |due: Vec<DueOp>| due.iter().map(|op| op.arrival).collect::<Vec<_>>();
        let before = arrivals(home.due().await);
        assert_eq!(before.len(), 2);
        let raw = Connection::open(home.folder.path().join("data.db")).unwrap();
        raw.execute_batch(sql).unwrap();
        home.store.recover(NOW).await.unwrap();
        assert_eq!(arrivals(home.due().await), before, "{sql}");
        let noted = count(&raw, "SELECT count(*) FROM op_outbox");
        assert_eq!(noted, 2, "{sql}");
    }
}
