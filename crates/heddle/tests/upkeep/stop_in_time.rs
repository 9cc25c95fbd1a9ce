//! A daemon that is asked to stop is gone within ten seconds, whoever holds on to it, and what it has answered is there afterwards.

use crate::support;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::json;
use support::{Home, wait_until};

/// What the spec says, and a moment for the test's own looks.
const STOP_MAX: Duration = Duration::from_millis(10_500);

fn told(home: &Home, text: &str) -> UnixStream {
    let mut stream = UnixStream::connect(home.path().join("daemon.sock")).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

#[test]
fn lf_38_a_stop_ends_within_ten_seconds_whatever_hangs() {
    let home = Home::new();
    // A provider of embeddings that does not want to end, and a broker that takes a connection and never says a word.
    std::fs::create_dir_all(home.path()).unwrap();
    let script = home.path().join("embed.sh");
    std::fs::write(
        &script,
        "#!/bin/sh\ntrap '' TERM\necho run >> runs\nsleep 300\n",
    )
    .unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let token = home.path().join("token");
    std::fs::write(&token, "x".repeat(43)).unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    home.config(&format!(
        "[vectors]\nprovider = 'command'\nmodel = 'sh'\ncommand = ['{}']\ntimeout_seconds = 100\n\
         [[mesh]]\nname = 'team'\nmember = 'ann'\nurl = 'ws://{}/'\ntoken_file = '{}'\n",
        script.display(),
        silent.local_addr().unwrap(),
        token.display(),
    ));
    let mut daemon = home.up();
    let body = json!({"key": "kept", "value": 1});
    daemon.http.post("/v1/state/set", &body).expect(200);
    // A stream of events, half a request, a connection without one, and a search that waits for the provider.
    let mut events = told(&home, "GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(events.read(&mut [0; 64]).unwrap() > 0);
    let head = "POST /v1/send HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
    let _half = told(&home, head);
    let _idle = told(&home, "");
    let search = r#"{"query":"x"}"#;
    let length = search.len();
    let _search = told(
        &home,
        &format!(
            "POST /v1/vector/search HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{search}"
        ),
    );
    wait_until("the provider to run", || home.path().join("runs").exists());
    daemon.terminate();
    assert_eq!(daemon.wait(STOP_MAX), Some(0), "{}", daemon.log());
    home.config("");
    let daemon = home.up();
    let kept = daemon.http.get("/v1/state/get?key=kept").expect(200);
    assert_eq!(kept["value"], 1);
}
