//! The verbs of one effect in one home, as the suites about its words say them.

use serde_json::Value;

use super::{Home, Ran};

pub fn run<'a>(key: &'a str, options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let mut args = vec![
        "effect", "run", "--json", "--key", key, "--op", "migrate", "--target", "prod",
    ];
    args.extend(options);
    args.extend(["--", "/bin/sh", "-c", script]);
    args
}

pub fn plain(mut args: Vec<&str>) -> Vec<&str> {
    args.retain(|word| *word != "--json");
    args
}

pub fn request(home: &Home, key: &str) -> Value {
    let args = [
        "effect", "request", "--json", "--key", key, "--op", "migrate", "--target", "prod",
    ];
    home.cli_as("planner", &args).ok().json()
}

pub fn status(home: &Home, key: &str) -> Ran {
    home.cli(&["effect", "status", key, "--json"])
}

pub fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// To a failed verification.
pub fn failed(home: &Home, key: &str) {
    let ran = home.cli(&run(key, &["--verify", "false"], "true"));
    assert_eq!(text(&ran.json(), "status"), "verify_failed");
}
