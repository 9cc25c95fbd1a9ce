//! FP-04: an independent implementation in another language agrees on every digest.

use crate::support;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use support::BINARY;

/// Random metas compared in one run. The twin writes them, so neither side chooses its own cases.
const REQUESTS: &str = "1000000";

fn twin(mode: &str) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/twin/fingerprint_twin.py");
    let mut command = Command::new("python3");
    command.arg(script).arg(mode).arg(REQUESTS);
    command
}

#[test]
fn fp_04_python_and_rust_agree_on_a_million_random_requests() {
    // The twin prints a request a line; both sides hash the very same bytes.
    let mut requests = twin("generate").stdout(Stdio::piped()).spawn().unwrap();
    let ours = Command::new(BINARY)
        .args(["advanced", "fingerprint", "--lines"])
        .env_clear()
        .env("HEDDLE_HOME", "/nonexistent")
        .stdin(requests.stdout.take().unwrap())
        .output()
        .unwrap();
    assert!(requests.wait().unwrap().success());
    assert!(
        ours.status.success(),
        "{}",
        String::from_utf8_lossy(&ours.stderr)
    );
    let mut check = twin("check")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = check.stdin.take().unwrap();
    let feed = std::thread::spawn(move || stdin.write_all(&ours.stdout).unwrap());
    let verdict = check.wait_with_output().unwrap();
    feed.join().unwrap();
    let text = String::from_utf8_lossy(&verdict.stdout);
    assert!(verdict.status.success(), "{text}");
    assert!(text.contains(&format!("{REQUESTS} agree")), "{text}");
}
