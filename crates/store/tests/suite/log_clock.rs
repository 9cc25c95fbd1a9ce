//! Stamps that want to poison the clocks: judged by the log alone, so alike in every home (LF-06, C39).

use heddle_core::ids::HistoryId;
use heddle_core::lamport::LogClock;
use heddle_core::limits::LAMPORT_AHEAD_MAX;
use heddle_store::NewOp;
use serde_json::json;

use crate::fixture::at;
use crate::sync_home::{Home, foreign, op_of};

/// The ops of a log as every home gets them.
fn log(stamps: &[u64]) -> Vec<NewOp> {
    let mut previous = HistoryId::ZERO;
    let mut ops = Vec::new();
    for (number, stamp) in (1_u8..).zip(stamps) {
        let place = at(1, u64::from(number));
        ops.push(foreign(
            place,
            previous,
            *stamp,
            &format!("k{number}"),
            number,
        ));
        previous = place;
    }
    ops
}

/// Which keys arrived.
async fn arrived(home: &Home, count: usize) -> Vec<bool> {
    let mut found = Vec::new();
    for number in 1..=count {
        found.push(home.get(&format!("k{number}")).await.is_some());
    }
    found
}

#[tokio::test]
async fn lf_06_every_home_gives_the_same_verdict_on_a_stamp_whatever_its_own_clock_says() {
    let (quiet, busy) = (Home::shared(1).await, Home::shared(2).await);
    for number in 0..60 {
        busy.set("own", json!(number)).await;
    }
    // Between the limits that the two homes' own clocks would set; then an honest one.
    let stamps = [5, 5 + LAMPORT_AHEAD_MAX + 30, 70, 5 + LAMPORT_AHEAD_MAX];
    for home in [&quiet, &busy] {
        home.receive(log(&stamps)).await;
        assert_eq!(home.apply().await.quarantined, 1);
        assert_eq!(arrived(home, 4).await, [true, false, true, true]);
        let clock = home.store.data_clock(home.mesh).await.unwrap();
        assert_eq!(clock.log, LogClock(5 + LAMPORT_AHEAD_MAX));
    }
}

#[tokio::test]
async fn lf_06_what_was_refused_for_its_stamp_is_not_taken_later_by_those_who_look_again() {
    let home = Home::shared(3).await;
    let step = LAMPORT_AHEAD_MAX;
    home.receive(log(&[1, step + 5, 9])).await;
    assert_eq!(home.apply().await.quarantined, 1);
    // The log has gone on since, so that its stamp would be near enough by now.
    let later = NewOp {
        previous: at(1, 3),
        ..foreign(at(1, 4), at(1, 3), step, "k4", 4)
    };
    home.receive(vec![later]).await;
    assert_eq!(home.apply().await.applied, 1);
    assert_eq!(home.store.retry_quarantined(home.mesh).await.unwrap(), 0);
    home.apply().await;
    assert_eq!(arrived(&home, 4).await, [true, false, true, true]);
    let aside = home.store.set_aside_ops(home.mesh, 9).await.unwrap();
    assert!(aside[0].reason.contains("too far ahead"), "{aside:?}");
}

#[tokio::test]
async fn lf_06_own_ops_move_the_clock_of_the_log_when_they_come_back() {
    let home = Home::shared(4).await;
    for number in 0..60 {
        home.set("own", json!(number)).await;
    }
    let last = home.due().await.pop().unwrap();
    let back = NewOp {
        history_id: at(1, 1),
        previous: HistoryId::ZERO,
        sender: home.party(),
        client_message_id: last.client_message_id.clone(),
        op: Ok(op_of(&last).to_bytes().unwrap()),
    };
    let before = home.store.data_clock(home.mesh).await.unwrap();
    assert_eq!(before.log, LogClock(0));
    home.receive(vec![back]).await;
    home.apply().await;
    let after = home.store.data_clock(home.mesh).await.unwrap();
    assert_eq!((after.log, after.value), (LogClock(60), before.value));
}
