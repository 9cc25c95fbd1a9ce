//! Pages, look-ups and figures of the outbox.

use heddle_core::clock::Ids;
use heddle_core::ids::{MeshId, RowId};
use heddle_core::outbox_status::OutboxStatus::{self, Aborted, Dead, Done, Inflight, Pending};
use heddle_store::{AcceptKey, OutboxFilter, OutboxFind};

use crate::fixture::{Fixture, agent, client_id};

/// Three rows of each state, mixed, and three waiting successors of the aborted ones.
async fn mixed() -> Fixture {
    let fixture = Fixture::new();
    for round in 0..3 {
        for status in OutboxStatus::ALL {
            let id = format!("{}-{round}", status.as_str());
            fixture.row_in(status, &id).await;
        }
    }
    fixture
}

#[tokio::test]
async fn pages_go_through_every_row_once_newest_first() {
    let fixture = mixed().await;
    for (status, expected) in [
        (None, 18),
        (Some(Pending), 6),
        (Some(Inflight), 3),
        (Some(Done), 3),
        (Some(Dead), 3),
        (Some(Aborted), 3),
    ] {
        for limit in [1, 2, 5, 18, 100] {
            let mut arrivals = Vec::new();
            let mut before = None;
            loop {
                let filter = OutboxFilter {
                    status,
                    mesh: Some(fixture.mesh),
                    before,
                    limit,
                };
                let page = fixture.store.outbox_page(filter).await.unwrap();
                assert!(page.rows.iter().all(|row| row.payload.is_empty()));
                assert!(
                    page.rows
                        .iter()
                        .all(|row| status.is_none_or(|s| s == row.status))
                );
                arrivals.extend(page.rows.iter().map(|row| row.arrival));
                before = page.next;
                if before.is_none() {
                    break;
                }
            }
            assert_eq!(arrivals.len(), expected, "{status:?} {limit}");
            assert!(arrivals.is_sorted_by(|a, b| a > b));
        }
    }
}

#[tokio::test]
async fn a_page_of_another_mesh_is_empty() {
    let fixture = mixed().await;
    for status in [None, Some(Pending), Some(Dead), Some(Done)] {
        let filter = OutboxFilter {
            status,
            mesh: Some(MeshId(fixture.ids.ulid())),
            before: None,
            limit: 10,
        };
        let page = fixture.store.outbox_page(filter).await.unwrap();
        assert_eq!((page.rows.len(), page.next), (0, None));
    }
}

#[tokio::test]
async fn a_client_id_finds_the_rows_of_all_senders_and_is_narrowed_by_mesh_and_agent() {
    let fixture = Fixture::new();
    let other_mesh = MeshId(fixture.ids.ulid());
    for (mesh, name) in [
        (fixture.mesh, "planner"),
        (fixture.mesh, "coder"),
        (other_mesh, "planner"),
    ] {
        let mut key = AcceptKey {
            mesh,
            ..fixture.key("deploy-42", 1)
        };
        key.sender.agent = agent(name);
        let accepted = fixture.store.accept::<()>(key, Ok(fixture.new_row())).await;
        accepted.unwrap();
    }
    for (mesh, name, expected) in [
        (None, None, vec![1, 2, 3]),
        (Some(fixture.mesh), None, vec![1, 2]),
        (None, Some("planner"), vec![1, 3]),
        (Some(other_mesh), Some("planner"), vec![3]),
        (Some(other_mesh), Some("coder"), vec![]),
    ] {
        let find = OutboxFind::ClientMessageId {
            id: client_id("deploy-42"),
            mesh,
            agent: name.map(agent),
        };
        let found = fixture.store.outbox_find(find).await.unwrap();
        let arrivals: Vec<i64> = found.iter().map(|row| row.arrival).collect();
        assert_eq!(arrivals, expected);
        assert!(found.iter().all(|row| row.payload == b"hello"));
    }
    let unknown = OutboxFind::Row(RowId(fixture.ids.ulid()));
    assert!(fixture.store.outbox_find(unknown).await.unwrap().is_empty());
}

#[tokio::test]
async fn figures_derived_without_a_scan_equal_a_count_of_every_row() {
    let fixture = mixed().await;
    let figures = fixture.store.figures().await.unwrap();
    let raw = fixture.raw();
    for (status, figure) in [
        (Pending, figures.pending),
        (Inflight, figures.inflight),
        (Done, figures.done),
        (Dead, figures.dead),
        (Aborted, figures.aborted),
    ] {
        let counted: i64 = raw
            .query_row(
                "SELECT count(*) FROM outbox NOT INDEXED WHERE status = ?1",
                [status.as_str()],
                |row| row.get(0),
            )
            .unwrap();
        assert_eq!(figure, counted.cast_unsigned(), "{status:?}");
    }
}

#[tokio::test]
async fn a_failed_insert_leaves_no_gap_that_would_be_counted_as_done() {
    let fixture = Fixture::new();
    let row = fixture.accept("a").await;
    let mut twice = fixture.new_row();
    twice.row = row;
    let key = fixture.key("b", 1);
    assert!(fixture.store.accept::<()>(key, Ok(twice)).await.is_err());
    fixture.accept("c").await;
    let figures = fixture.store.figures().await.unwrap();
    assert_eq!((figures.pending, figures.done), (2, 0));
}
