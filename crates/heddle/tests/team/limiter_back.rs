//! A Redis that does not let the broker in, because its password is another one for a while: asked again, like one that was
//! away, as soon as it does (RL-06).

use crate::support;

use support::broker_process::BrokerProcess;
use support::servers::Redis;
use support::{Home, wait_until};

#[test]
fn rl_06_a_limiter_that_once_refused_the_broker_is_asked_again() {
    let redis = Redis::start();
    let url = format!("redis://:letmein@127.0.0.1:{}/", redis.port());
    let house = Home::new();
    let data = house.path().parent().unwrap().join("one");
    // Redis without a password takes none.
    let more = ["--limiter", &url];
    let broker = BrokerProcess::try_start(&house, &data, "127.0.0.1:0", &more).unwrap();
    let ready = || broker.page("/readyz", None).0;
    for _ in 0..3 {
        assert_eq!(ready(), 503);
    }
    redis.ask(&["config", "set", "requirepass", "letmein"]);
    wait_until("the limiter to be asked with its password", || {
        ready() == 200
    });

    let by = |password: &str, words: &[&str]| {
        redis.ask(&[&["--no-auth-warning", "-a", password], words].concat())
    };
    let cut_off = ["client", "kill", "type", "normal", "skipme", "yes"];
    by("letmein", &["config", "set", "requirepass", "another"]);
    by("another", &cut_off);
    wait_until("the refusal", || ready() == 503);
    by("another", &["config", "set", "requirepass", "letmein"]);
    wait_until("the limiter to be back", || ready() == 200);

    // What is counted once more is what everybody sends.
    let home = Home::new();
    home.config(&broker.config());
    let up = home.up();
    home.cli(&["send", "@tester", "hello", "--id", "A", "--wait"])
        .ok();
    up.stop();
    assert_eq!(broker.terminate(), 0);
}
