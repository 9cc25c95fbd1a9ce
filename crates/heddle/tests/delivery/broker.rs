//! The broker as a process of its own, and its jobs by hand, over the real binary.
#![allow(clippy::disallowed_methods, reason = "tests wait on the real clock")]

use crate::support;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::broker_jobs::orphan_check;
use serde_json::{Value, json};
use support::broker_process::{BrokerProcess, RawLink};
use support::door::port;
use support::http::tcp;
use support::stub_broker::{Script, StubBroker};
use support::{Daemon, Home, wait_until, wait_until_within};

const MESH: &str = "01HZX000000000000000000001";
const MEMBER: &str = "01HZX000000000000000000002";

/// A home and the data folder of a broker beside it.
fn world() -> (Home, std::path::PathBuf) {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    (home, data)
}

pub(crate) fn send(daemon: &Daemon, id: &str, to: &str) {
    let body = json!({"to": to, "message": id, "client_message_id": id});
    daemon.http.post("/v1/send", &body).expect(202);
}

fn status_of(daemon: &Daemon, id: &str) -> String {
    let row = daemon.http.get(&format!("/v1/outbox/{id}")).expect(200);
    let row = row.get("row").unwrap_or(&row);
    row["status"].as_str().unwrap_or_default().to_owned()
}

pub(crate) fn inbox(daemon: &Daemon, agent: &str) -> BTreeMap<String, usize> {
    let mut seen = BTreeMap::new();
    let page = daemon
        .http
        .get(&format!("/v1/inbox?agent={agent}&limit=500"));
    for item in page.expect(200)["items"].as_array().unwrap() {
        let id = item["client_message_id"].as_str().unwrap().to_owned();
        *seen.entry(id).or_insert(0) += 1;
    }
    seen
}

fn connected(daemon: &Daemon) {
    wait_until("the connection", || {
        daemon.http.get("/v1/status").expect(200)["connected"] == true
    });
}

fn register(daemon: &Daemon, agent: &str) {
    let body = json!({"agent": agent});
    daemon.http.post("/v1/agent/register", &body).expect(200);
}

#[test]
fn serve_says_where_it_is_and_holds_its_folder_and_drains_on_a_signal() {
    let (home, data) = world();
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]);
    let port = std::fs::read_to_string(data.join("broker.port")).unwrap();
    assert!(broker.listen().ends_with(&format!(":{port}")));
    assert_eq!(broker.ready["pid"], broker.child.id());
    let modes = [
        ("broker_token", 0o600),
        ("broker.db", 0o600),
        ("broker.port", 0o600),
    ];
    for (file, mode) in modes {
        let metadata = std::fs::metadata(data.join(file)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, mode, "{file}");
    }
    assert_eq!(broker.token().trim().len(), 43, "32 bytes in base64url");
    let second = BrokerProcess::try_start(&home, &data, "127.0.0.1:0", &[]);
    let second = second.err().unwrap();
    assert_eq!(second.code, 3, "{second:?}");
    assert!(second.stderr.contains("is held by process"), "{second:?}");
    let folder = data.to_str().unwrap();
    let up = home.cli(&["--home", folder, "up"]);
    assert_eq!(up.code, 3, "a home and a broker share no folder: {up:?}");
    // What only a daemon does is not there at zero, as if it were done here.
    let admin = std::fs::read_to_string(data.join("admin_token")).unwrap();
    let (code, figures) = broker.page("/metrics", Some(admin.trim()));
    assert_eq!(code, 200);
    assert!(figures.contains("heddle_broker_accept_total"), "{figures}");
    let series = figures.lines().filter(|line| line.starts_with("heddle_"));
    let brokers = ["heddle_broker_", "heddle_effect_", "heddle_log_"];
    let is_other = |line: &&str| !brokers.iter().any(|prefix| line.starts_with(prefix));
    let others: Vec<&str> = series.filter(is_other).collect();
    assert_eq!(others, [""; 0]);
    assert_eq!(broker.terminate(), 0);
    assert!(!data.join("broker.port").exists());
    BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]);
}

#[test]
fn serve_listens_on_this_machine_only() {
    let (home, data) = world();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:1"] {
        let refused = BrokerProcess::try_start(&home, &data, address, &[])
            .err()
            .unwrap();
        assert_eq!(refused.code, 6, "{refused:?}");
        assert!(refused.stderr.contains("invitations"), "{refused:?}");
    }
    assert!(!data.exists(), "refused before anything was made");
}

/// Whatever page it is, and whatever it presents: a browser names the page that opens a connection, a daemon never does.
#[test]
fn t_24_no_page_of_a_browser_opens_a_connection() {
    let (home, data) = world();
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]);
    let bearer = format!("authorization: Bearer {}", broker.token());
    let upgrade = |more: &[&str]| {
        let mut stream = std::net::TcpStream::connect(broker.listen()).unwrap();
        let more: String = more.iter().map(|line| format!("{line}\r\n")).collect();
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{more}\r\n",
            broker.listen()
        );
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        let mut answer = [0; 12];
        std::io::Read::read_exact(&mut stream, &mut answer).unwrap();
        String::from_utf8_lossy(&answer[9..]).into_owned()
    };
    let own = format!("origin: http://{}", broker.listen());
    let pages = [
        "Origin: http://evil.example",
        "ORIGIN: https://evil.example:8443",
        "origin: null",
        "origin: http://localhost",
        "origin: http://127.0.0.1",
        "origin: file://",
        "origin:",
        own.as_str(),
    ];
    for page in pages {
        assert_eq!(upgrade(&[page]), "403", "{page}");
        assert_eq!(upgrade(&[&bearer, page]), "403", "{page}, with the token");
        assert_eq!(
            upgrade(&[page, "origin: http://other"]),
            "403",
            "{page}, twice"
        );
    }
    assert_eq!(upgrade(&[&bearer]), "101", "a daemon");
}

#[test]
fn t_01_without_the_token_nobody_gets_past_the_upgrade_or_unsigned_past_the_hello() {
    let (home, data) = world();
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]);
    let token = broker.token();
    let wrong = [
        Some(("authorization", "Bearer ".to_owned())),
        Some(("authorization", format!("Bearer {}", &token[1..]))),
        Some(("authorization", format!("bearer {token}x"))),
        Some(("authorization", token.clone())),
    ];
    for header in wrong {
        let shown = format!("{header:?}");
        let refused = RawLink::open(&broker.listen(), header).err();
        assert_eq!(refused, Some(401), "{shown}");
    }
    let page = Some(("origin", "http://localhost".to_owned()));
    assert_eq!(RawLink::open(&broker.listen(), page).err(), Some(403));
    let mut stranger = RawLink::open(&broker.listen(), None).unwrap();
    assert_eq!(stranger.next()["type"], "challenge");
    stranger.say(&json!({
        "type": "hello", "protocol": 1, "mesh": MESH, "member": MEMBER, "member_name": "raw",
        "agents": ["one"], "seen": "0.0",
    }));
    let closed = json!({"closed": 4005, "reason": "signature_required"});
    assert_eq!(stranger.next(), closed);
    let mut link = RawLink::enter(&broker, MESH, MEMBER);
    assert_eq!(link.next_of("welcome")["type"], "welcome");
}

#[test]
fn a_daemon_with_the_wrong_token_keeps_what_it_accepts_and_says_what_to_do() {
    let (home, data) = world();
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]);
    let wrong = home.path().with_extension("token");
    std::fs::write(&wrong, "nonsense").unwrap();
    home.config(&format!(
        "[broker]\nurl = \"ws://{}/\"\ntoken_file = {wrong:?}\n",
        broker.listen()
    ));
    let daemon = home.up();
    send(&daemon, "A", "@tester");
    wait_until("the reason", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["degraded"].to_string().contains("token_file")
    });
    // Mended without a restart: the file is read at every connection.
    std::fs::write(&wrong, broker.token()).unwrap();
    wait_until("the message", || inbox(&daemon, "tester").len() == 1);
}

#[test]
fn duplicate_identities_end_as_the_policy_says() {
    let (home, data) = world();
    let start =
        |policy: &str| BrokerProcess::start(&home, &data, "127.0.0.1:0", &["--policy", policy]);
    let broker = start("prefer_newest");
    let mut old = RawLink::enter(&broker, MESH, MEMBER);
    assert_eq!(old.next_of("welcome")["generation"], 1);
    let mut new = RawLink::enter(&broker, MESH, MEMBER);
    let closed = old.next_of("nothing");
    assert_eq!(
        closed,
        json!({"closed": 4003, "reason": "replaced_by_newer"})
    );
    assert_eq!(new.next_of("welcome")["generation"], 2);
    broker.terminate();

    let broker = start("prefer-oldest");
    let mut old = RawLink::enter(&broker, MESH, MEMBER);
    assert_eq!(old.next_of("welcome")["type"], "welcome");
    let mut new = RawLink::enter(&broker, MESH, MEMBER);
    let closed = new.next_of("welcome");
    assert_eq!(
        closed,
        json!({"closed": 4004, "reason": "refused_for_older"})
    );
    broker.terminate();

    let broker = start("allow-concurrent");
    let mut links = [0, 1].map(|_| RawLink::enter(&broker, MESH, MEMBER));
    for link in &mut links {
        assert_eq!(link.next_of("welcome")["type"], "welcome");
        link.say(&json!({"type": "request", "request": 1, "body": {"what": "roster"}}));
        assert_eq!(link.next_of("reply")["result"], "roster");
    }
}

#[test]
fn br_19_a_memory_below_the_floor_ends_the_daemon_with_4012_and_its_json() {
    let (home, data) = world();
    std::fs::create_dir_all(&data).unwrap();
    let short = "[broker]\ndedupe_retention_days = 6\n";
    std::fs::write(data.join("config.toml"), short).unwrap();
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]);
    for config in [broker.config(), short.to_owned()] {
        let home = Home::new();
        home.config(&config);
        let (code, words) = match home.try_up() {
            Ok(mut daemon) => {
                let code = daemon.wait(Duration::from_secs(15)).unwrap();
                daemon.wait_log("feature_param_below_floor");
                (code, daemon.log())
            }
            Err(ran) => (ran.code, ran.stderr),
        };
        assert_ne!(code, 0);
        assert!(words.contains("4012"), "{words}");
        let json = r#"{"reason":"feature_param_below_floor","feature":"client_message_id_dedupe"}"#;
        let escaped = json.replace('"', "\\\"");
        assert!(words.contains(json) || words.contains(&escaped), "{words}");
    }
}

#[test]
fn v10_4_6_1_a_a_refusal_at_ipc_writes_no_row_and_consumes_no_id() {
    let home = Home::new();
    let daemon = home.up();
    let good = json!({"to": "@tester", "message": "x", "client_message_id": "A"});
    let with = |field: &str, value: Value| {
        let mut body = good.clone();
        body[field] = value;
        body
    };
    // Schema, size, a destination that nobody has.
    for (body, status) in [
        (with("priority", json!("at once")), 400),
        (with("colour", json!("red")), 400),
        (with("message", json!("x".repeat((1 << 20) + 1))), 413),
        (with("to", json!("@nobody")), 404),
    ] {
        daemon.http.post("/v1/send", &body).expect(status);
        daemon.http.get("/v1/outbox/A").expect(404);
    }
    // And who does not say who it is.
    let nobody = tcp(port(&daemon), "POST", "/v1/send", &[], &good.to_string());
    assert_eq!(nobody.unwrap().status, 401);
    daemon.http.get("/v1/outbox/A").expect(404);
    send(&daemon, "A", "@tester");
}

#[test]
fn v10_4_6_1_b_a_broker_that_is_away_leaves_the_row_pending_until_it_is_back() {
    let (home, data) = world();
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]);
    let listen = broker.listen();
    home.config(&broker.config());
    let daemon = home.up();
    connected(&daemon);
    broker.kill();
    send(&daemon, "A", "@tester");
    wait_until("the loss", || {
        daemon.http.get("/v1/status").expect(200)["connected"] == false
    });
    assert_eq!(status_of(&daemon, "A"), "pending");
    let _broker = BrokerProcess::start(&home, &data, &listen, &[]);
    wait_until_within(Duration::from_secs(60), "the drain", || {
        status_of(&daemon, "A") == "done"
    });
    wait_until("the message", || {
        inbox(&daemon, "tester").get("A") == Some(&1)
    });
}

#[test]
fn v10_4_6_1_c_a_permanent_refusal_of_the_broker_makes_the_row_dead_and_the_id_stays_taken() {
    let broker = StubBroker::start();
    broker.script(Script::Refuse {
        code: "unknown_recipient",
    });
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    send(&daemon, "A", "@tester");
    wait_until("the end", || status_of(&daemon, "A") == "dead");
    let body = json!({"to": "@tester", "message": "A", "client_message_id": "A"});
    let again = daemon.http.post("/v1/send", &body).expect(409);
    assert_eq!(again["conflict"], "outbox_dead_fingerprint_match");
}

#[test]
fn v10_4_6_1_d_a_requeue_retires_the_old_id_for_ever_and_mints_a_fresh_one() {
    let broker = StubBroker::start();
    broker.script(Script::Refuse {
        code: "unknown_recipient",
    });
    let home = Home::new();
    home.config(&broker.config());
    let daemon = home.up();
    send(&daemon, "A", "@tester");
    wait_until("the end", || status_of(&daemon, "A") == "dead");
    broker.script(Script::Commit);
    let requeue = json!({"new_client_id": "B"});
    daemon
        .http
        .post("/v1/outbox/A/requeue", &requeue)
        .expect(200);
    wait_until("the successor", || status_of(&daemon, "B") == "done");
    assert_eq!(status_of(&daemon, "A"), "aborted");
    let body = json!({"to": "@tester", "message": "A", "client_message_id": "A"});
    let again = daemon.http.post("/v1/send", &body).expect(409);
    assert_eq!(again["conflict"], "outbox_aborted_fingerprint_match");
}

#[test]
fn what_homes_are_told_to_call_a_mesh_is_the_name_that_was_given() {
    use std::io::{BufRead as _, BufReader};
    let (home, data) = world();
    for (named, expected) in [(Some("mb"), "mb"), (None, "team")] {
        let folder = data.join(expected);
        let folder = folder.to_str().unwrap();
        let mut args = vec![
            "broker",
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--data",
            folder,
        ];
        args.extend(named.iter().flat_map(|name| ["--mesh", name]));
        let mut child = home
            .command(&args)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let is_last = line.contains("Ctrl-C");
            said.push_str(&line);
            said.push('\n');
            if is_last {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(said.contains(&format!("name = \"{expected}\"")), "{said}");
        assert!(
            said.contains(&format!("heddle --mesh {expected} peers")),
            "{said}"
        );
        assert_eq!(said.contains("team"), named.is_none(), "{said}");
    }
}

/// Broker and daemon die apart, again and again; a ledger outside says what was accepted.
#[test]
fn br_02_in_01_killed_apart_again_and_again_nothing_accepted_is_lost_or_doubled() {
    const ROUNDS: usize = 8;
    const MESSAGES: usize = 20;
    let (home, data) = world();
    let mut broker = Some(BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]));
    let listen = broker.as_ref().unwrap().listen();
    home.config(&broker.as_ref().unwrap().config());
    let mut daemon = Some(home.up());
    register(daemon.as_ref().unwrap(), "reader");
    connected(daemon.as_ref().unwrap());
    let mut ledger = Vec::new();
    for round in 0..ROUNDS {
        for number in 0..MESSAGES {
            let id = format!("{round}-{number}");
            let priority = ["now", "next", "low"][number % 3];
            let body = json!({"to": "@reader", "message": id, "client_message_id": id, "priority": priority});
            daemon
                .as_ref()
                .unwrap()
                .http
                .post("/v1/send", &body)
                .expect(202);
            ledger.push(id);
        }
        if round % 2 == 0 {
            broker.take().unwrap().kill();
            broker = Some(BrokerProcess::start(&home, &data, &listen, &[]));
        } else {
            daemon.take().unwrap().kill();
            daemon = Some(home.up());
        }
    }
    let daemon = daemon.unwrap();
    wait_until_within(Duration::from_secs(120), "everything", || {
        inbox(&daemon, "reader").len() == ledger.len()
    });
    assert!(inbox(&daemon, "reader").values().all(|count| *count == 1));
    for id in &ledger {
        wait_until_within(Duration::from_secs(60), id, || {
            status_of(&daemon, id) == "done"
        });
    }
    let (code, answer) = orphan_check(&home, data.to_str().unwrap());
    assert_eq!((code, &answer["orphans"]), (0, &json!([])), "{answer}");
    assert_eq!(broker.unwrap().terminate(), 0);
}
