//! A page of the log that is kept and applied in one transaction leaves what keeping and applying leave; and waits where
//! it is not its turn.

use std::time::Duration;

use heddle_core::ids::{ClientMessageId, HistoryId};
use heddle_core::limits::LAMPORT_AHEAD_MAX;
use heddle_core::sync::OpMove;
use heddle_store::{AppliedOps, NewOp, ReceivedOps};
use rusqlite::Connection;
use serde_json::json;

use crate::fixture::{NOW, at};
use crate::sync_home::{Home, foreign, op_of};

async fn take(home: &Home, ops: Vec<NewOp>) -> (ReceivedOps, Option<AppliedOps>) {
    let taken = home.store.take_page(home.mesh, home.member, 1, ops, NOW);
    taken.await.unwrap()
}

async fn dump(home: &Home) -> Vec<String> {
    let dump = home.store.dump(home.mesh, 0, usize::MAX).await.unwrap();
    dump.lines
}

/// Every row of the inbox of ops, as it is in the file.
fn inbox(home: &Home) -> Vec<String> {
    let file = Connection::open(home.folder.path().join("data.db")).unwrap();
    let sql = "SELECT epoch || '.' || seq || ' ' || sender || ' ' || op_id || ' ' || state || ' ' ||
        coalesce(reason, '-') || ' ' || received_at || ' ' || coalesce(applied_at, '-') || ' ' || hex(op)
        FROM op_inbox ORDER BY epoch, seq";
    let mut statement = file.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

fn changed(mut op: NewOp, from: &str, to: &str) -> NewOp {
    let text = String::from_utf8(op.op.unwrap()).unwrap();
    let new = text.replace(from, to);
    assert_ne!(new, text);
    op.op = Ok(new.into_bytes());
    op
}

/// The place before one of the first epoch.
fn before(seq: u64) -> HistoryId {
    match seq {
        1 => HistoryId::ZERO,
        _ => at(1, seq - 1),
    }
}

/// Good ones, a losing one, and every kind that is set aside.
fn mixed() -> Vec<NewOp> {
    let good = |seq: u64, lamport: u64, key: &str| {
        let number = u8::try_from(seq).unwrap();
        foreign(at(1, seq), before(seq), lamport, key, number)
    };
    let mut renamed = good(6, 3, "k6");
    renamed.client_message_id = ClientMessageId::parse("another").unwrap();
    let mut no_envelope = good(8, 3, "k8");
    no_envelope.op = Err("envelope refused".to_owned());
    vec![
        good(1, 9, "k1"),
        good(2, 3, "k1"),
        changed(good(3, 3, "k3"), "state.set", "state.dream"),
        changed(good(4, 3, "k4"), "\"v\":1", "\"v\":1,\"extra\":0"),
        changed(good(5, 3, "k5"), "/coder", "/other"),
        renamed,
        good(7, LAMPORT_AHEAD_MAX + 99, "k7"),
        no_envelope,
        good(9, 4, "k9"),
    ]
}

#[tokio::test]
async fn lf_14_lf_18_a_page_in_one_transaction_leaves_what_keeping_and_applying_leave() {
    let (one, two) = (Home::shared(1).await, Home::shared(1).await);
    for home in [&one, &two] {
        home.set("own", json!(1)).await;
    }
    let due = one.due().await.remove(0);
    assert_eq!(due, two.due().await.remove(0), "two homes of one seed");
    let own = NewOp {
        history_id: at(1, 10),
        previous: at(1, 9),
        sender: one.party(),
        client_message_id: due.client_message_id.clone(),
        op: Ok(op_of(&due).to_bytes().unwrap()),
    };
    let mut page = mixed();
    page.push(own);
    // It is told in disorder, and twice.
    page.swap(0, 8);
    page.push(page[1].clone());
    let kept = one.receive(page.clone()).await;
    let report = one.apply().await;
    let (taken, applied) = take(&two, page.clone()).await;
    assert_eq!(taken, kept);
    assert_eq!(applied, Some(report));
    assert_eq!((report.applied, report.quarantined), (2, 5));
    assert_eq!(inbox(&one), inbox(&two));
    assert_eq!(dump(&one).await, dump(&two).await);
    let clocks = [
        one.store.data_clock(one.mesh).await.unwrap(),
        two.store.data_clock(two.mesh).await.unwrap(),
    ];
    assert_eq!(clocks[0], clocks[1]);
    assert_eq!(two.due().await, [], "the own one confirmed its row");
    // All of it once more changes nothing.
    let before = inbox(&two);
    let (taken, applied) = take(&two, page).await;
    assert_eq!((taken.stored, taken.confirmed), (0, 0));
    assert_eq!(applied, Some(AppliedOps::default()));
    assert_eq!(inbox(&two), before);
    let clock = two.store.data_clock(two.mesh).await.unwrap();
    assert_eq!(clock, clocks[0]);
}

#[tokio::test]
async fn lf_15_a_page_with_a_gap_or_behind_others_that_wait_is_kept_and_waits() {
    let home = Home::shared(2).await;
    let op = |seq: u64, key: &str| {
        let number = u8::try_from(seq).unwrap();
        foreign(at(1, seq), before(seq), seq, key, number)
    };
    home.receive(vec![op(1, "k")]).await;
    let (received, applied) = take(&home, vec![op(2, "k")]).await;
    assert_eq!((received.stored, applied), (1, None), "one waits before it");
    assert_eq!(home.get("k").await, None);
    assert_eq!(home.apply().await.applied, 2);
    assert_eq!(home.get("k").await.as_deref(), Some("2"));
    let (received, applied) = take(&home, vec![op(3, "k"), op(5, "k")]).await;
    assert!(received.gap && applied.is_none(), "the fourth is missing");
    assert_eq!(home.get("k").await.as_deref(), Some("2"));
    assert!(home.head().await.needs_resync);
    home.store.reread_log(home.mesh).await.unwrap();
    let (received, applied) = take(&home, (1..=5).map(|seq| op(seq, "k")).collect()).await;
    assert_eq!((received.stored, received.gap, applied), (1, false, None));
    assert_eq!(home.apply().await.applied, 3);
    assert_eq!(home.get("k").await.as_deref(), Some("5"));
}

/// What a power cut, a refusal of the tables or a damaged row does to one op, it does not do to the page.
#[tokio::test]
async fn lf_18_a_page_with_an_op_that_the_tables_refuse_is_taken_the_careful_way() {
    let home = Home::shared(3).await;
    let file = Connection::open(home.folder.path().join("data.db")).unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON state_kv WHEN new.key = 'bad'
        BEGIN SELECT RAISE(ABORT, 'no'); END";
    file.execute_batch(refuse).unwrap();
    let page = vec![
        foreign(at(1, 1), HistoryId::ZERO, 5, "good", 1),
        foreign(at(1, 2), at(1, 1), 6, "bad", 2),
        foreign(at(1, 3), at(1, 2), 7, "better", 3),
    ];
    let before = home.store.data_clock(home.mesh).await.unwrap();
    let (received, applied) = take(&home, page).await;
    assert_eq!((received.stored, applied), (3, None));
    assert_eq!(home.store.data_clock(home.mesh).await.unwrap(), before);
    assert_eq!(dump(&home).await, Vec::<String>::new());
    let report = home.apply().await;
    assert_eq!((report.applied, report.quarantined), (2, 1));
    assert_eq!(home.get("better").await.as_deref(), Some("3"));
    assert_eq!(home.get("bad").await, None);
}

/// DR-01: what is on its way is not in the batch behind it.
#[tokio::test]
async fn dr_01_a_batch_behind_an_arrival_holds_none_of_those_before_it() {
    let home = Home::shared(6).await;
    for number in 0..5 {
        home.set("k", json!(number)).await;
    }
    let all = home.due().await;
    let behind = home
        .store
        .due_ops_behind(home.mesh, all[1].arrival, Duration::MAX, 2, 1 << 20);
    assert_eq!(behind.await.unwrap(), all[2..4]);
    let error = "no".to_owned();
    home.settle(&all[2], OpMove::Refused { error }).await;
    let rest = home
        .store
        .due_ops_behind(home.mesh, all[4].arrival, Duration::MAX, 2, 1 << 20);
    assert_eq!(rest.await.unwrap(), []);
}
