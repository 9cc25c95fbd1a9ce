//! What we say to people, over the real binary: every hint names a step that works.

use crate::support;

use serde_json::{Value, json};
use support::broker_process::{BrokerProcess, RawLink};
use support::sse::SseReader;
use support::{Daemon, Home, text_of, wait_until};

fn send(daemon: &Daemon, id: &str) {
    let body = json!({"to": "@tester", "message": id, "client_message_id": id});
    daemon.http.post("/v1/send", &body).expect(202);
}

fn broker_of(home: &Home, more: &[&str]) -> BrokerProcess {
    let data = home.path().parent().unwrap().join("broker");
    BrokerProcess::start(home, &data, "127.0.0.1:0", more)
}

#[test]
fn a_broker_gives_each_mesh_a_name_of_its_own() {
    let home = Home::new();
    let broker = broker_of(&home, &["--mesh", "team"]);
    for last in 1..=3 {
        let mesh = format!("01HZX00000000000000000000{last}");
        let member = format!("01HZX00000000000000000010{last}");
        let mut link = RawLink::enter(&broker, &mesh, &member);
        assert_eq!(link.next_of("welcome")["type"], "welcome");
    }
    let data = broker.data.to_str().unwrap().to_owned();
    let swept = home.cli(&["broker", "sweep", "--json", "--data", &data]);
    let names: Vec<String> = swept.json()["meshes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mesh| mesh["mesh"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["team", "team-2", "team-3"]);
}

#[test]
fn the_hint_of_broker_serve_is_a_config_that_works() {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    let mut child = home
        .command(&["broker", "serve", "--data", data.to_str().unwrap()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    while !said.contains("Ctrl-C stops it.") {
        assert!(std::io::BufRead::read_line(&mut out, &mut said).unwrap() > 0);
    }
    let config: String = said
        .lines()
        .skip_while(|line| !line.contains("[[mesh]]"))
        .take_while(|line| !line.is_empty())
        .map(|line| format!("{}\n", line.trim()))
        .collect();
    let home = Home::new();
    home.config(&config.replace("YOUR NAME", "alice"));
    let daemon = home.up();
    wait_until("the mesh of the hint", || {
        let peers = daemon.http.get("/v1/peers?mesh=team").expect(200);
        peers["stale"] == false && peers["peers"][0]["member"] == "alice"
    });
    // The verb that the hint names.
    let ran = home.cli(&["--mesh", "team", "peers"]).ok();
    assert!(ran.stdout.contains("@alice/"), "{ran:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_broker_refuses_to_listen_to_the_world_and_says_how_to_go_on() {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    let Err(ran) = BrokerProcess::try_start(&home, &data, "0.0.0.0:0", &[]) else {
        panic!("it listens to the world");
    };
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.stderr.contains("--listen 127.0.0.1:0"), "{ran:?}");
}

#[test]
fn t_05_the_advice_after_a_token_in_a_url_gives_a_new_token() {
    let home = Home::new();
    let daemon = home.up();
    let old = text_of(&home.path().join("local_token"));
    let refused = daemon.http.get(&format!("/v1/health?token={old}"));
    let next = refused.expect(400)["next"].as_str().unwrap().to_owned();
    assert!(next.contains("Authorization header"), "{next}");
    assert!(next.contains("delete local_token"), "{next}");
    daemon.stop();
    std::fs::remove_file(home.path().join("local_token")).unwrap();
    let _daemon = home.up();
    assert_ne!(text_of(&home.path().join("local_token")), old);
}

#[test]
fn a_token_file_of_any_bytes_is_replaced_and_the_log_says_so() {
    let home = Home::new();
    home.up().stop();
    let path = home.path().join("local_token");
    std::fs::write(&path, b"\xff\xfe\x80\0").unwrap();
    let daemon = home.up();
    daemon.wait_log("a token was damaged");
    assert_eq!(text_of(&path).trim().len(), 43);
}

#[test]
fn the_paging_hint_leads_through_the_inbox_without_a_gap() {
    let home = Home::new();
    let daemon = home.up();
    for n in 0..5 {
        send(&daemon, &format!("m{n}"));
    }
    wait_until("five messages", || {
        let page = daemon.http.get("/v1/inbox?agent=tester").expect(200);
        page["items"].as_array().unwrap().len() == 5
    });
    let mut seen = Vec::new();
    let mut since: Vec<String> = Vec::new();
    for _ in 0..5 {
        let mut args = vec!["inbox", "--limit", "2"];
        args.extend(since.iter().map(String::as_str));
        let said = home.cli(&args).ok().stdout;
        seen.extend(
            (0..5)
                .map(|n| format!("m{n}"))
                .filter(|id| said.contains(id)),
        );
        let hint = said.split("there is more: heddle inbox --limit 2 ").nth(1);
        let Some(hint) = hint else { break };
        since = hint.split_whitespace().map(str::to_owned).collect();
    }
    assert_eq!(seen, ["m0", "m1", "m2", "m3", "m4"]);
    let refused = daemon
        .http
        .get("/v1/inbox?agent=tester&limit=0")
        .expect(400);
    let next = refused["next"].as_str().unwrap();
    assert!(next.contains("cursor"), "{next}");
}

#[test]
fn retention_and_rate_limits_that_mean_nothing_stop_the_start_with_the_file_and_the_bound() {
    for (line, says) in [
        ("rate_limit = 0", "at least 1"),
        ("rate_limit = -1", "a whole number from 0 to"),
        ("rate_window_seconds = 0", "at least 1"),
        ("dedupe_retention_days = 4000000000", "at most"),
        ("dedupe_retention_days = \"soon\"", "permanent"),
        ("message_retention_days = 0", "a whole number from 1 to"),
    ] {
        let home = Home::new();
        home.config(&format!("[broker]\n{line}\n"));
        let Err(ran) = home.try_up() else {
            panic!("{line} was taken");
        };
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("config.toml"), "{ran:?}");
        assert!(ran.stderr.contains(says), "{line}: {ran:?}");
        assert!(ran.stderr.contains("next: Correct the file"), "{ran:?}");
    }
}

#[test]
fn house_routes_refuse_parameters_that_they_do_not_have() {
    let home = Home::new();
    let daemon = home.up();
    for route in [
        "status",
        "health",
        "version",
        "compat",
        "openapi.json",
        "metrics",
    ] {
        let answer = daemon.http.get(&format!("/v1/{route}?unknown=1"));
        let problem = answer.expect(400);
        assert_eq!(problem["code"], "invalid_request", "{route}");
        assert!(problem["next"].as_str().unwrap().contains("openapi.json"));
        assert_eq!(daemon.http.get(&format!("/v1/{route}")).status, 200);
    }
    let stop = daemon.http.post("/v1/shutdown?now=1", &json!({}));
    assert_eq!(stop.status, 400);
    daemon.http.get("/v1/health").expect(200);
}

#[test]
fn in_05_a_negative_place_is_no_gap_but_a_mistake() {
    let home = Home::new();
    let daemon = home.up();
    for bad in ["-1", "-9223372036854775808", "x", "1.5", ""] {
        let answer = daemon
            .http
            .request("GET", "/v1/events", &[("last-event-id", bad)], "");
        assert_eq!(answer.unwrap().status, 400, "{bad:?}");
    }
    send(&daemon, "one");
    let mut stream = SseReader::open(&daemon.http, "/v1/events", Some("0"));
    let first = stream.next().unwrap();
    assert_eq!(first.event, "message", "{:?}", first.data);
}

#[test]
fn c29_peers_are_as_of_now_in_both_forms_while_the_broker_is_there() {
    let home = Home::new();
    let broker = broker_of(&home, &[]);
    home.config(&broker.config());
    let daemon = home.up();
    wait_until("the connection", || {
        daemon.http.get("/v1/peers").expect(200)["stale"] == false
    });
    let as_of = |peers: &Value| peers["as_of"].as_str().unwrap().to_owned();
    let first = as_of(&home.cli(&["peers", "--json"]).ok().json());
    let mut later = first.clone();
    wait_until("a later look to be of a later time", || {
        later = as_of(&home.cli(&["peers", "--json"]).ok().json());
        later > first
    });
    assert!(home.cli(&["peers"]).ok().stdout.contains("as of now"));
    broker.kill();
    let mut stale = Value::Null;
    wait_until("the loss", || {
        stale = home.cli(&["peers", "--json"]).ok().json();
        stale["stale"] == true
    });
    let said = home.cli(&["peers"]).ok().stdout;
    assert!(said.contains(&format!("as of {}", as_of(&stale))), "{said}");
    assert!(as_of(&stale) >= later);
}

#[test]
fn refusals_are_sentences_said_once() {
    let home = Home::new();
    let daemon = home.up();
    let ran = home.cli(&["agent", "register", ""]);
    assert!(ran.stderr.contains("an agent name is empty"), "{ran:?}");
    // One object for programs, one sentence for people.
    let ran = home.cli(&["up", "--detach", "--json"]);
    assert_eq!(ran.code, 3);
    assert_eq!(ran.stdout.lines().count(), 1, "{ran:?}");
    assert_eq!(ran.stderr.matches("error: ").count(), 1, "{ran:?}");
    assert_eq!(ran.json()["code"], "conflict");
    daemon.stop();
    std::fs::write(
        home.path().join("data.db"),
        b"not a database, but long enough",
    )
    .unwrap();
    let Err(ran) = home.try_up() else {
        panic!("it started on a file that is no database");
    };
    assert_eq!(ran.stderr.matches("cannot be opened").count(), 1, "{ran:?}");
}
