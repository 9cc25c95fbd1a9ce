//! The limiter at `rediss://`: a Redis that lets nobody in without TLS, and whose word it is believed by.

use crate::support;

use serde_json::Value;
use support::broker_process::BrokerProcess;
use support::servers::Redis;
use support::{Home, Ran, wait_until};

use super::wss::fixture;

fn try_start(house: &Home, name: &str, more: &[&str]) -> Result<BrokerProcess, Ran> {
    let data = house.path().parent().unwrap().join(name);
    BrokerProcess::try_start(house, &data, "127.0.0.1:0", more)
}

/// What the broker said at its start of a limiter that does not answer.
fn told(broker: &BrokerProcess) -> String {
    let warnings = broker.ready["warnings"].as_array().cloned();
    let warnings = warnings.unwrap_or_default();
    let mut found = warnings.iter().filter_map(Value::as_str);
    found
        .find(|one| one.contains("does not answer"))
        .unwrap_or_else(|| panic!("{:?}", broker.ready))
        .to_owned()
}

#[test]
fn rl_06_a_limiter_by_rediss_is_believed_by_its_authority_and_by_nobody_else() {
    let files = ["broker.pem", "broker.key", "ca.pem"].map(fixture);
    let redis = Redis::start_tls(files);
    let (url, ca) = (redis.url(), fixture("ca.pem"));
    let house = Home::new();
    let broker = try_start(&house, "one", &["--limiter", &url, "--limiter-ca", &ca]).unwrap();
    assert_eq!(broker.ready["limiter"], "redis");
    assert_eq!(broker.page("/readyz", None).0, 200);
    let home = Home::new();
    home.config(&broker.config());
    let up = home.up();
    let sent = |id: &str| home.cli(&["send", "@tester", "hello", "--id", id, "--wait"]);
    sent("A").ok();
    assert_eq!(redis.ask(&["dbsize"]), "2", "a counter and its ids");
    up.stop();
    assert_eq!(broker.terminate(), 0);

    // An authority that this machine does not know: it starts, says why it cannot count, and accepts nothing uncounted.
    let broker = try_start(&house, "two", &["--limiter", &url]).unwrap();
    let why = told(&broker);
    assert!(why.contains("--limiter-ca"), "{why}");
    let (code, page) = broker.page("/readyz", None);
    assert_eq!(code, 503);
    assert!(page.contains("limiter"), "{page}");
    home.config(&broker.config());
    let up = home.up();
    let body = serde_json::json!({"to": "@tester", "message": "B", "client_message_id": "B"});
    up.http.post("/v1/send", &body).expect(202);
    wait_until("the refusal", || {
        let row = up.http.get("/v1/outbox/B").expect(200);
        row.to_string().contains("limiter_unavailable")
    });
    // Nor in the clear to a server that speaks TLS.
    let plain = format!("redis://localhost:{}/", redis.port());
    let broker = try_start(&house, "three", &["--limiter", &plain]).unwrap();
    told(&broker);
    assert_eq!(broker.page("/readyz", None).0, 503);
}

#[test]
fn a_file_of_authorities_that_cannot_be_used_is_told_with_its_name() {
    let house = Home::new();
    let url = "rediss://localhost:1/";
    let (none, key, ca) = (
        fixture("nowhere.pem"),
        fixture("broker.key"),
        fixture("ca.pem"),
    );
    for (more, words) in [
        (vec!["--limiter", url, "--limiter-ca", &none], "nowhere.pem"),
        (
            vec!["--limiter", url, "--limiter-ca", &key],
            "no certificate",
        ),
        (
            vec!["--limiter", "redis://localhost:1/", "--limiter-ca", &ca],
            "rediss://",
        ),
        (vec!["--limiter-ca", &ca], "--limiter rediss://"),
    ] {
        let refused = try_start(&house, "bad", &more).err().unwrap();
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains(words), "{more:?}: {refused:?}");
    }
}
