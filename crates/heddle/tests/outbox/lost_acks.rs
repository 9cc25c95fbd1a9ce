//! Every ack of the broker is lost once, on its way over a real connection to a real daemon.

use crate::support;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use support::broker_process::BrokerProcess;
use support::ledger::{connected, inbox, metric, no_orphans, outbox, register, status};
use support::lossy_proxy::LossyProxy;
use support::{Daemon, Home, wait_until, wait_until_within};

const WAVES: usize = 4;
const WAVE_MESSAGES: usize = 50;
const MESSAGES: usize = WAVES * WAVE_MESSAGES;
/// Lost acks are asked for again after a second and more, and the wait grows.
const PATIENCE: Duration = Duration::from_secs(80);

fn send(daemon: &Daemon, id: &str) {
    let body = json!({"to": "@reader", "message": id, "client_message_id": id});
    daemon.http.post("/v1/send", &body).expect(202);
}

#[test]
fn br_04_rl_03_dr_17_every_ack_lost_once_and_still_one_message_each_and_one_unit_of_budget() {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    std::fs::create_dir_all(&data).unwrap();
    // The budget of the hour is what the messages need and not one unit more.
    let budget = format!("[broker]\nrate_limit = {MESSAGES}\nrate_window_seconds = 3600\n");
    std::fs::write(data.join("config.toml"), budget).unwrap();
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]);
    let proxy = LossyProxy::start(broker.listen());
    home.config(&broker.config().replace(&broker.listen(), &proxy.listen));
    let daemon = home.up();
    register(&daemon, "reader");
    connected(&daemon);

    let mut sent = BTreeSet::new();
    for wave in 0..WAVES {
        let cuts = proxy.cuts();
        for number in 0..WAVE_MESSAGES {
            let id = format!("{wave}-{number}");
            send(&daemon, &id);
            sent.insert(id);
        }
        // So that every wave has an ack to lose. Every second one meets rows that are asked for again.
        wait_until_within(PATIENCE, "an ack to be lost", || proxy.cuts() > cuts);
        wait_until_within(PATIENCE, "every row so far", || {
            wave % 2 == 0 || status(&daemon)["outbox"]["done"] == sent.len()
        });
    }

    assert!(proxy.cuts() >= WAVES);
    let swallowed: BTreeSet<String> = proxy.swallowed().into_keys().collect();
    assert_eq!(swallowed, sent, "an id whose ack was never lost");
    assert_eq!(proxy.passed(), sent);
    let rows = outbox(&daemon);
    assert_eq!(rows.len(), MESSAGES);
    assert!(rows.values().all(|states| *states == ["done"]), "{rows:?}");
    wait_until("the messages", || {
        inbox(&daemon, "reader").len() == MESSAGES
    });
    let seen = inbox(&daemon, "reader");
    assert!(
        seen.iter()
            .all(|(id, times)| sent.contains(id) && *times == 1),
        "{seen:?}"
    );
    // All of them came twice at least, and the second time cost nothing: the hour's budget is used up by
    // the messages exactly, so there was room for each, and there is none for one more.
    assert!(metric(&daemon, "heddle_daemon_duplicates_total") >= MESSAGES);
    send(&daemon, "one-more");
    wait_until("the refusal", || {
        let row = daemon.http.get("/v1/outbox/one-more").expect(200);
        // The first answer was lost, as ever.
        row["attempts_log"][1]["outcome"] == "rate_limited"
    });
    let row = daemon.http.get("/v1/outbox/one-more").expect(200);
    assert_eq!(row["status"], "pending", "{row}");
    drop(daemon);
    assert_eq!(broker.terminate(), 0);
    no_orphans(&home, &data);
}
