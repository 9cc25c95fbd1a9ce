//! Sync of data ops: one outbox row for each change, one effect for each place of the log, nothing lost.

use std::time::Duration;

use heddle_core::clock::Ids;
use heddle_core::ids::{BrokerMessageId, ClientMessageId, HistoryId};
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::limits::{LAMPORT_AHEAD_MAX, OP_REFUSALS_MAX};
use heddle_core::op::DataOp;
use heddle_core::outbox_status::OutboxStatus;
use heddle_core::sync::{OpMove, WaitFor};
use heddle_store::{AppliedOps, Dropped, MeshKind, NewOp, Retried};
use serde_json::json;

use crate::fixture::{NOW, at, open};
use crate::sync_home::{Home, foreign, op_of};

#[tokio::test]
async fn lf_12_lf_02_every_change_of_a_shared_mesh_has_one_op_and_their_stamps_rise() {
    let home = Home::shared(1).await;
    let mut stamps = Vec::new();
    for number in 0..20 {
        stamps.push(home.set("k", json!(number)).await.stamp);
    }
    let due = home.due().await;
    let ops: Vec<DataOp> = due.iter().map(op_of).collect();
    let sent: Vec<Stamp> = ops.iter().map(|op| op.stamp.clone()).collect();
    assert_eq!(sent, stamps, "one op for each change, in outbox order");
    assert!(stamps.is_sorted_by(|a, b| a.lamport < b.lamport));
    let ids: Vec<String> = due
        .iter()
        .map(|op| op.client_message_id.to_string())
        .collect();
    let stamped: Vec<String> = stamps.iter().map(|stamp| stamp.op.to_string()).collect();
    assert_eq!(ids, stamped, "the op's id is the message's");
    // Neither the drain of messages nor age looks at ops.
    let taken = home.store.take_due(home.mesh, Duration::MAX, 100, 1 << 20);
    assert_eq!(taken.await.unwrap(), []);
    assert_eq!(home.store.next_due(home.mesh).await.unwrap(), None);
    home.store.recover(NOW).await.unwrap();
    assert_eq!(home.store.next_due(home.mesh).await.unwrap(), None);
    assert_eq!(home.due().await.len(), 20);
}

#[tokio::test]
async fn lf_12_a_personal_mesh_writes_no_ops_until_it_is_shared() {
    let home = Home::new(2, None).await;
    assert_eq!(home.head().await.kind, MeshKind::Personal);
    home.set("k", json!(1)).await;
    assert_eq!(home.due().await, []);
    assert_eq!(home.store.figures().await.unwrap().pending, 0);
    let kind = MeshKind::SharedOwner;
    home.store.set_mesh_kind(home.mesh, kind).await.unwrap();
    home.set("k", json!(2)).await;
    assert_eq!(home.due().await.len(), 1);
}

#[tokio::test]
async fn lf_13_own_ops_that_come_back_confirm_their_rows_once() {
    let home = Home::shared(3).await;
    home.set("k", json!(1)).await;
    let due = home.due().await.remove(0);
    let id = due.client_message_id.to_string();
    let back = NewOp {
        history_id: at(1, 4),
        previous: HistoryId::ZERO,
        sender: home.party(),
        client_message_id: due.client_message_id.clone(),
        op: Ok(op_of(&due).to_bytes().unwrap()),
    };
    // Its ack was lost; the log brings the news.
    assert_eq!(home.receive(vec![back.clone()]).await.confirmed, 1);
    assert_eq!(home.due().await, []);
    let (status, attempts, place) = home.status(&id).await;
    assert_eq!((status, attempts), (OutboxStatus::Done, 0));
    assert_eq!(place, Some(at(1, 4)));
    assert_eq!(home.receive(vec![back]).await.confirmed, 0);
    assert_eq!(home.apply().await.applied, 0, "it is here already");
    // The late ack changes nothing.
    let late = OpMove::Done {
        broker_message_id: BrokerMessageId(home.ids.ulid()),
        history_id: at(1, 4),
    };
    home.settle(&due, late).await;
    assert_eq!(home.status(&id).await.2, Some(at(1, 4)));
}

/// An older data.db was put in the place of the present one: the log brings what the present one had made.
#[tokio::test]
async fn lf_02_c39_stamps_that_the_file_forgot_are_never_issued_again() {
    let home = Home::shared(3).await;
    let own = |number: u8, incarnation: u64| {
        let mut op = foreign(
            at(1, number.into()),
            at(1, u64::from(number) - 1),
            5,
            "k",
            number,
        );
        let mut made = DataOp::parse(op.op.as_ref().unwrap()).unwrap();
        op.sender = home.party();
        made.stamp.peer = PeerId::new(&op.sender.to_string());
        made.incarnation = incarnation;
        op.op = Ok(made.to_bytes().unwrap());
        op
    };
    assert_eq!(home.set("k", json!(0)).await.incarnation, 1);
    let received = home.receive(vec![own(1, 1), own(2, 1)]).await;
    assert_eq!((received.forgotten, received.incarnation), (2, Some(2)));
    let next = home.set("k", json!(9)).await;
    assert_eq!(
        (next.incarnation, next.stamp.lamport),
        (2, 2),
        "before anything is applied"
    );
    // They are of the life before this one; nothing has to begin for them again.
    assert_eq!(
        home.receive(vec![own(1, 1), own(3, 1)]).await.incarnation,
        None
    );
    assert_eq!(home.set("k", json!(9)).await.incarnation, 2);
    // Another copy of this home lives on: above that one, too.
    assert_eq!(home.receive(vec![own(4, 7)]).await.incarnation, Some(8));
    assert_eq!(home.set("k", json!(9)).await.incarnation, 8);
    // What nobody lives long enough for, and what others made, begins nothing.
    let lie = vec![own(5, 1 << 60), foreign(at(1, 6), at(1, 5), 5, "l", 6)];
    assert_eq!(home.receive(lie).await.incarnation, None);
    home.apply().await;
    assert_eq!(home.set("k", json!(9)).await.incarnation, 8);
}

#[tokio::test]
async fn lf_14_c9_an_op_has_one_effect_under_however_many_places_it_comes() {
    let home = Home::shared(4).await;
    let first = foreign(at(1, 1), HistoryId::ZERO, 3, "k", 1);
    let again = NewOp {
        history_id: at(2, 9),
        previous: at(1, 1),
        ..first.clone()
    };
    assert_eq!(
        home.receive(vec![first.clone(), first.clone()])
            .await
            .stored,
        1
    );
    assert_eq!(home.apply().await.applied, 1);
    let clock = home.store.data_clock(home.mesh).await.unwrap();
    for _ in 0..2 {
        let received = home.receive(vec![again.clone(), first.clone()]).await;
        assert_eq!((received.stored, received.duplicates), (0, 2));
        assert_eq!(home.apply().await, AppliedOps::default());
    }
    assert_eq!(home.store.data_clock(home.mesh).await.unwrap(), clock);
    assert_eq!(home.get("k").await.as_deref(), Some("1"));
    assert_eq!(home.head().await.log, at(2, 9));
}

#[tokio::test]
async fn lf_15_ops_are_applied_in_the_order_of_the_log_and_a_gap_is_flagged() {
    let home = Home::shared(5).await;
    let second = foreign(at(1, 3), at(1, 1), 4, "k", 2);
    let first = foreign(at(1, 1), HistoryId::ZERO, 4, "k", 1);
    let received = home.receive(vec![second, first]).await;
    assert!(!received.gap, "a page in disorder has no gap");
    assert_eq!(
        home.store
            .apply_ops(home.mesh, 1, NOW)
            .await
            .unwrap()
            .applied,
        1
    );
    assert_eq!(
        home.get("k").await.as_deref(),
        Some("1"),
        "the first place first"
    );
    home.apply().await;
    assert_eq!(home.get("k").await.as_deref(), Some("2"));
    assert!(
        home.receive(vec![foreign(at(1, 9), at(1, 7), 5, "l", 3)])
            .await
            .gap
    );
    assert!(home.head().await.needs_resync);
    // What is there is applied all the same, and reading it all again mends the flag.
    home.apply().await;
    assert_eq!(home.get("l").await.as_deref(), Some("3"));
    home.store.reread_log(home.mesh).await.unwrap();
    let all = vec![
        foreign(at(1, 1), HistoryId::ZERO, 4, "k", 1),
        foreign(at(1, 3), at(1, 1), 4, "k", 2),
        foreign(at(1, 7), at(1, 3), 4, "m", 4),
        foreign(at(1, 9), at(1, 7), 5, "l", 3),
    ];
    assert_eq!(home.receive(all).await.stored, 1);
    assert!(!home.head().await.needs_resync);
}

#[tokio::test]
async fn lf_16_the_recorded_epoch_never_falls() {
    let home = Home::shared(6).await;
    for (heard, kept) in [(1, 1), (4, 4), (2, 4), (5, 5), (0, 5)] {
        let head = home.store.hear_epoch(home.mesh, heard).await.unwrap();
        assert_eq!(head.broker_epoch, kept);
        assert_eq!(home.head().await.broker_epoch, kept);
    }
    // An old answer is taken, and its epoch is not.
    home.receive(vec![foreign(at(1, 1), HistoryId::ZERO, 1, "k", 1)])
        .await;
    assert_eq!(home.head().await.broker_epoch, 5);
}

#[tokio::test]
async fn lf_17_c40_only_refusals_count_and_ten_of_them_pause_the_mesh() {
    let home = Home::shared(7).await;
    home.set("bad", json!(1)).await;
    let bad = home.due().await.remove(0);
    let id = bad.client_message_id.to_string();
    for why in [WaitFor::Network, WaitFor::Broker, WaitFor::Epoch] {
        for _ in 0..20 {
            let error = "nobody's fault".to_owned();
            assert!(!home.settle(&bad, OpMove::Wait { error, why }).await);
        }
    }
    assert_eq!(home.status(&id).await.1, 0);
    for number in 1..=OP_REFUSALS_MAX {
        let bad = home.due().await.remove(0);
        let error = "invalid_request: no".to_owned();
        let paused = home.settle(&bad, OpMove::Refused { error }).await;
        assert_eq!(paused, number == OP_REFUSALS_MAX, "{number}");
    }
    assert!(home.head().await.paused);
    assert_eq!(home.due().await, [], "nothing goes out");
    // Everything goes on here.
    home.set("good", json!(2)).await;
    home.receive(vec![foreign(at(1, 1), HistoryId::ZERO, 1, "k", 1)])
        .await;
    assert_eq!(home.apply().await.applied, 1);
    assert_eq!(
        home.status(&id).await.0,
        OutboxStatus::Pending,
        "never dead"
    );
    let refused = home.store.refused_ops(home.mesh, 9).await.unwrap();
    assert_eq!(
        refused,
        [(
            id.clone(),
            OP_REFUSALS_MAX,
            "invalid_request: no".to_owned()
        )]
    );
    assert!(home.store.resume_sync(home.mesh).await.unwrap());
    assert!(!home.store.resume_sync(home.mesh).await.unwrap());
    assert_eq!(home.due().await.len(), 2);
    let retried = home.store.retry_op(home.mesh, id.clone()).await.unwrap();
    assert_eq!(retried, Retried::Outgoing);
    assert_eq!(home.status(&id).await.1, 0);
    let dropped = home
        .store
        .drop_op(home.mesh, id.clone(), NOW)
        .await
        .unwrap();
    assert_eq!(dropped, Dropped::Outgoing);
    assert_eq!(home.status(&id).await.0, OutboxStatus::Aborted);
    assert_eq!(home.due().await.len(), 1);
    let unknown = home.store.retry_op(home.mesh, id).await.unwrap();
    assert_eq!(unknown, Retried::Unknown);
}

#[tokio::test]
async fn lf_18_c38_a_bad_op_is_set_aside_with_its_reason_and_the_others_go_on() {
    let home = Home::shared(8).await;
    let good = |seq: u64, number: u8| {
        foreign(at(1, seq), at(1, seq - 1), 2, &format!("k{number}"), number)
    };
    let bytes = |op: &NewOp, from: &str, to: &str| {
        let text = String::from_utf8(op.op.clone().unwrap()).unwrap();
        let changed = text.replace(from, to);
        assert_ne!(changed, text);
        Ok(changed.into_bytes())
    };
    let mut younger = good(2, 2);
    younger.op = bytes(&younger, "state.set", "state.dream");
    let mut broken = good(3, 3);
    broken.op = bytes(&broken, "\"v\":1", "\"v\":1,\"extra\":0");
    let mut forged = good(4, 4);
    forged.op = bytes(&forged, "/coder", "/other");
    let mut renamed = good(5, 5);
    renamed.client_message_id = ClientMessageId::parse("another").unwrap();
    let ahead = foreign(at(1, 6), at(1, 5), LAMPORT_AHEAD_MAX + 9, "k6", 6);
    let mut no_envelope = good(7, 7);
    no_envelope.op = Err("envelope refused".to_owned());
    let ops = vec![
        good(1, 1),
        younger,
        broken,
        forged,
        renamed,
        ahead,
        no_envelope,
        good(8, 8),
    ];
    assert_eq!(home.receive(ops).await.stored, 8);
    let report = home.apply().await;
    assert_eq!((report.applied, report.quarantined), (2, 5));
    for (key, value) in [("k1", Some("1")), ("k8", Some("8")), ("k6", None)] {
        assert_eq!(home.get(key).await.as_deref(), value, "{key}");
    }
    let aside = home.store.set_aside_ops(home.mesh, 99).await.unwrap();
    let reasons: Vec<&str> = aside.iter().map(|op| op.reason.as_str()).collect();
    for (reason, words) in reasons.iter().zip([
        "not known to this build",
        "unknown field",
        "did not send it",
        "not the one that it was sent under",
        "too far ahead",
        "envelope refused",
    ]) {
        assert!(reason.contains(words), "{reason}");
    }
    let figures = home.store.sync_figures(home.mesh).await.unwrap();
    assert_eq!((figures.in_quarantined, figures.in_waiting), (6, 0));
    let clock = home.store.data_clock(home.mesh).await.unwrap();
    assert!(clock.value < 100, "the poisoned stamp moved nothing");
    // A younger build would look again; this one sets them aside again. One is given up by hand.
    assert_eq!(home.store.retry_quarantined(home.mesh).await.unwrap(), 4);
    assert_eq!(home.apply().await.quarantined, 4);
    let id = aside[0].op_id.clone();
    let retried = home.store.retry_op(home.mesh, id.clone()).await.unwrap();
    assert_eq!(retried, Retried::Incoming);
    home.apply().await;
    let dropped = home.store.drop_op(home.mesh, id, NOW).await.unwrap();
    assert_eq!(dropped, Dropped::Incoming);
    let figures = home.store.sync_figures(home.mesh).await.unwrap();
    assert_eq!(figures.in_quarantined, 5);
}

#[tokio::test]
async fn c38_a_retry_by_hand_answers_also_for_an_op_of_which_only_the_reason_was_kept() {
    let home = Home::shared(19).await;
    let good = foreign(at(1, 1), HistoryId::ZERO, 2, "k1", 1);
    let ahead = foreign(at(1, 2), at(1, 1), LAMPORT_AHEAD_MAX + 9, "k2", 2);
    let known = foreign(at(1, 3), at(1, 2), 3, "k3", 3);
    let no_envelope = NewOp {
        op: Err("envelope refused".to_owned()),
        ..known.clone()
    };
    home.receive(vec![good, ahead, no_envelope]).await;
    home.apply().await;
    let aside = home.store.set_aside_ops(home.mesh, 9).await.unwrap();
    assert_eq!(aside.len(), 2, "{aside:?}");
    for (op, answer) in aside.iter().zip([Retried::ForGood, Retried::ReadAgain]) {
        let retried = home.store.retry_op(home.mesh, op.op_id.clone());
        assert_eq!(retried.await.unwrap(), answer, "{}", op.reason);
        let is_read_again = home.head().await.log == HistoryId::ZERO;
        assert_eq!(is_read_again, answer == Retried::ReadAgain);
    }
    // A younger build opens the envelope.
    home.receive(vec![known]).await;
    assert_eq!(home.apply().await.applied, 1);
    assert_eq!(home.get("k3").await.as_deref(), Some("3"));
    assert_eq!(
        home.store.set_aside_ops(home.mesh, 9).await.unwrap().len(),
        1
    );
}

#[tokio::test]
async fn c38_an_op_of_a_younger_build_waits_and_is_taken_after_the_upgrade() {
    let home = Home::shared(18).await;
    let known = foreign(at(1, 1), HistoryId::ZERO, 2, "k", 7);
    let bytes = known.op.clone().unwrap();
    let text = String::from_utf8(bytes.clone()).unwrap();
    // As a build would send it that has a verb which this one does not know.
    let younger = NewOp {
        op: Ok(text.replace("state.set", "state.dream").into_bytes()),
        ..known
    };
    let op_id = younger.client_message_id.to_string();
    let later = foreign(at(1, 2), at(1, 1), 3, "other", 8);
    assert_eq!(home.receive(vec![younger, later]).await.stored, 2);
    let report = home.apply().await;
    assert_eq!((report.applied, report.quarantined), (1, 1));
    assert_eq!(home.get("k").await, None);
    assert_eq!(
        home.get("other").await.as_deref(),
        Some("8"),
        "nobody waits for it"
    );
    let aside = home.store.set_aside_ops(home.mesh, 9).await.unwrap();
    assert_eq!(aside[0].op_id, op_id);
    assert!(aside[0].reason.contains("not known to this build"));
    // The upgrade: the same bytes mean something now. Every start looks at them again.
    let upgrade = "UPDATE op_inbox SET op = ?1 WHERE op_id = ?2";
    let raw = rusqlite::Connection::open(home.folder.path().join("data.db")).unwrap();
    assert_eq!(
        raw.execute(upgrade, rusqlite::params![bytes, op_id])
            .unwrap(),
        1
    );
    assert_eq!(home.store.retry_quarantined(home.mesh).await.unwrap(), 1);
    let report = home.apply().await;
    assert_eq!((report.applied, report.quarantined), (1, 0));
    assert_eq!(home.get("k").await.as_deref(), Some("7"));
    assert_eq!(home.store.set_aside_ops(home.mesh, 9).await.unwrap(), []);
}

#[tokio::test]
async fn ops_that_a_broker_has_lost_are_found_by_their_places() {
    let home = Home::shared(9).await;
    for number in 0..3_u64 {
        home.set("k", json!(number)).await;
        let due = home.due().await.remove(0);
        let next = OpMove::Done {
            broker_message_id: BrokerMessageId(home.ids.ulid()),
            history_id: at(1, number + 1),
        };
        home.settle(&due, next).await;
    }
    let look = home
        .store
        .lost_ops(home.mesh, 0, |place| place.seq > 1)
        .await;
    let look = look.unwrap();
    let places: Vec<HistoryId> = look.rows.iter().map(|row| row.place).collect();
    assert_eq!(places, [at(1, 2), at(1, 3)]);
    assert!(look.rows.iter().all(|row| !row.payload.is_empty()));
    let id = BrokerMessageId(home.ids.ulid());
    let moved = vec![(look.rows[0].arrival, id, at(2, 1))];
    home.store.moved_ops(moved).await.unwrap();
    let look = home
        .store
        .lost_ops(home.mesh, 0, |place| place.epoch == 2)
        .await;
    assert_eq!(look.unwrap().rows.len(), 1);
}

/// What a crash leaves is what was committed: rows, op and cursor go together.
#[tokio::test]
async fn everything_of_a_sync_is_there_after_a_restart() {
    let home = Home::shared(10).await;
    home.set("k", json!(1)).await;
    home.receive(vec![foreign(at(1, 1), HistoryId::ZERO, 7, "l", 1)])
        .await;
    home.apply().await;
    let before = home.store.dump(home.mesh, 0, 1 << 20).await.unwrap();
    assert_eq!(before.lines.len(), 2);
    let (head, due) = (home.head().await, home.due().await);
    home.store.stop();
    let again = Home {
        store: open(&home.folder.path().join("data.db")).unwrap(),
        ..home
    };
    again.store.recover(NOW).await.unwrap();
    assert_eq!(again.head().await, head);
    assert_eq!(again.due().await, due);
    let after = again.store.dump(again.mesh, 0, 1 << 20).await.unwrap();
    assert_eq!(after, before);
    // In pages it is the same.
    let first = again.store.dump(again.mesh, 0, 1).await.unwrap();
    assert!(first.more && first.lines.len() == 1);
    let second = again.store.dump(again.mesh, 1, 1).await.unwrap();
    assert!(!second.more);
    assert_eq!([first.lines, second.lines].concat(), before.lines);
}
