//! What one broker accepts, another pushes at once: a hint, and no poll.
#![allow(clippy::disallowed_methods, reason = "tests wait on the real clock")]

use crate::support;

use std::time::{Duration, Instant};

use serde_json::json;
use support::Home;
use support::broker_process::{BrokerProcess, RawLink};
use support::servers::Postgres;

const MESH: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
const SENDER: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAA";
const READER: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAB";
const MESSAGES: usize = 40;
/// What is promised between brokers.
const PUSHED_WITHIN: Duration = Duration::from_millis(100);
/// Without a hint a broker looks this often: whatever comes sooner came by one.
const POLL: Duration = Duration::from_secs(5);

fn enter(broker: &BrokerProcess, member: &str) -> RawLink {
    let mut link = RawLink::enter(broker, MESH, member);
    assert_eq!(link.next_of("welcome")["type"], "welcome");
    link
}

#[test]
fn what_one_broker_accepts_the_other_pushes_within_a_tenth_of_a_second() {
    let (house, database) = (Home::new(), Postgres::start());
    let folder = house.path().parent().unwrap().to_owned();
    let url = database.url();
    let brokers = ["one", "two"].map(|name| {
        BrokerProcess::start(
            &house,
            &folder.join(name),
            "127.0.0.1:0",
            &["--database", &url],
        )
    });
    let (mut reader, mut sender) = (enter(&brokers[1], READER), enter(&brokers[0], SENDER));
    let mut times = Vec::new();
    for n in 0..MESSAGES {
        let id = format!("m{n}");
        let envelope = json!({
            "v": 1, "kind": "message", "priority": "next", "body": id,
            "destination": {"kind": "dm", "ref": format!("{READER}/one")},
        });
        let item = json!({"agent": "one", "client_message_id": id, "envelope": envelope});
        sender.say(&json!({"type": "send", "batch": n, "items": [item]}));
        assert_eq!(sender.next_of("verdicts")["items"][0]["verdict"], "created");
        let accepted = Instant::now();
        let pushed = reader.next_of("deliver");
        times.push(accepted.elapsed());
        let item = &pushed["items"][0];
        assert_eq!(item["client_message_id"], id.as_str(), "{pushed}");
        let ack = json!({"history_id": item["history_id"], "agent": item["agent"]});
        reader.say(&json!({"type": "ack", "items": [ack]}));
    }
    times.sort_unstable();
    // A machine that is busy may stop any of them for a moment, and not most of them.
    assert!(times[MESSAGES * 3 / 4] < PUSHED_WITHIN, "{times:?}");
    assert!(times[MESSAGES - 1] < POLL, "{times:?}");
}
