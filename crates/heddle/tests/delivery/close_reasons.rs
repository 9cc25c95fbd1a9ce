//! Close frames as they cross the wire: code and JSON reason, from the real daemon, from the real broker, and what the
//! daemon makes of one that comes to it (v6 §15.5).

use crate::support;

use std::time::Duration;

use serde_json::{Value, json};
use support::broker_process::{BrokerProcess, RawLink};
use support::ledger::connected;
use support::stub_broker::{StubBroker, features, good_features};
use support::{Home, wait_until};

const MESH: &str = "01HZX000000000000000000001";
const MEMBER: &str = "01HZX000000000000000000002";
const DEDUPE: &str = "client_message_id_dedupe";
const POLICY: &str = "concurrent_connection_policy";

/// The three codes of the table.
const CODES: [(u16, &str); 3] = [
    (4010, "feature_unavailable"),
    (4011, "feature_param_invalid"),
    (4012, "feature_param_below_floor"),
];

/// A home before this broker: it ends, not with 0; what it said.
fn ends(broker: &StubBroker, reason: &str) -> String {
    let home = Home::new();
    home.config(&broker.config());
    let (code, words) = match home.try_up() {
        Ok(mut daemon) => {
            let code = daemon.wait(Duration::from_secs(20)).unwrap();
            daemon.wait_log(reason);
            (code, daemon.log())
        }
        Err(ran) => (ran.code, ran.stderr),
    };
    assert_ne!(code, 0, "{words}");
    assert_eq!(broker.send_count(), 0);
    words
}

/// The close frame of a real daemon before a broker that advertises this.
#[track_caller]
fn daemon_closes(advertised: &Value, code: u16, feature: &str) {
    let (_, reason) = CODES.iter().find(|(number, _)| *number == code).unwrap();
    let broker = StubBroker::start();
    broker.features(advertised.clone());
    let words = ends(&broker, reason);
    wait_until("the close frame", || !broker.close_codes().is_empty());
    assert_eq!(broker.close_codes(), [code], "{advertised}");
    let text = broker.close_reasons().remove(0);
    assert!(text.len() <= 123, "too long for a close frame: {text}");
    let said: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(said, json!({"reason": reason, "feature": feature}));
    // The operator reads the same words.
    let escaped = text.replace('"', "\\\"");
    assert!(words.contains(&text) || words.contains(&escaped), "{words}");
}

fn with_version(feature: &str, version: u32) -> Value {
    let mut advertised = good_features();
    advertised[feature]["version"] = json!(version);
    advertised
}

#[test]
fn v6_15_5_4010_the_close_frame_says_in_json_which_feature_is_missing() {
    for missing in [DEDUPE, POLICY] {
        let mut advertised = good_features();
        advertised.as_object_mut().unwrap().remove(missing);
        daemon_closes(&advertised, 4010, missing);
    }
    // v6 §15.1: a broker that compares no fingerprints is one without the feature.
    daemon_closes(&with_version(DEDUPE, 1), 4010, DEDUPE);
}

#[test]
fn v6_15_5_4011_the_close_frame_says_in_json_whose_version_or_parameters_are_unknown() {
    daemon_closes(&with_version(DEDUPE, 3), 4011, DEDUPE);
    daemon_closes(&with_version(POLICY, 2), 4011, POLICY);
    let unfit = features(json!({"mode": "permanent", "request_fingerprint": false}));
    daemon_closes(&unfit, 4011, DEDUPE);
}

#[test]
fn v6_15_5_4012_the_close_frame_says_in_json_which_feature_is_below_the_floor() {
    let low = json!({"mode": "retention_scoped", "dedupe_retention_days": 6, "request_fingerprint": true});
    daemon_closes(&features(low), 4012, DEDUPE);
}

/// The other way round: a broker that closes with one of them is as unfit as one that is closed on.
#[test]
fn v6_15_5_a_broker_that_closes_with_4010_4011_or_4012_ends_the_daemon_with_its_words() {
    for (code, reason) in CODES {
        let broker = StubBroker::start();
        let text = json!({"reason": reason, "feature": DEDUPE}).to_string();
        broker.closes_with(code, &text);
        let words = ends(&broker, reason);
        assert!(words.contains(&code.to_string()), "{words}");
    }
}

/// Our own broker offers everything, so it is the daemon that closes with these; the broker answers with the same frame,
/// as RFC 6455 §5.5.1 has it, lets the member go, and serves the others.
#[test]
fn v6_15_5_the_real_broker_answers_a_close_of_4010_4011_and_4012_with_the_same_code_and_json() {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]);
    for (code, reason) in CODES {
        let mut link = RawLink::enter(&broker, MESH, MEMBER);
        let welcome = link.next_of("welcome");
        for feature in [DEDUPE, POLICY] {
            assert!(welcome["features"][feature].is_object(), "{welcome}");
        }
        let text = json!({"reason": reason, "feature": DEDUPE}).to_string();
        assert_eq!(link.close(code, &text), (code, text));
    }
    home.config(&broker.config());
    connected(&home.up());
}

/// What our own broker closes with: each a JSON object with one reason.
#[test]
fn v6_15_the_real_brokers_own_close_frames_carry_their_reason_as_json() {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &["--policy", "prefer-newest"]);
    let bearer = format!("Bearer {}", broker.token());
    let enter = |hello: &Value| {
        let header = Some(("authorization", bearer.clone()));
        let mut link = RawLink::open(&broker.listen(), header).unwrap();
        assert_eq!(link.next()["type"], "challenge");
        link.say(hello);
        link
    };
    let hello = |protocol: u32| {
        json!({
            "type": "hello", "protocol": protocol, "mesh": MESH, "member": MEMBER, "member_name": "raw",
            "agents": [], "seen": "0.0",
        })
    };
    let json_of = |(code, text): (u16, String)| -> (u16, Value) {
        (code, serde_json::from_str(&text).unwrap())
    };
    let mut other = enter(&hello(9999));
    let expected = (4001, json!({"reason": "protocol_mismatch"}));
    assert_eq!(json_of(other.closed()), expected);
    let mut older = enter(&hello(1));
    assert_eq!(older.next_of("welcome")["type"], "welcome");
    let _newer = enter(&hello(1));
    let expected = (4003, json!({"reason": "replaced_by_newer"}));
    assert_eq!(json_of(older.closed()), expected);
    assert_eq!(broker.terminate(), 0);
}
