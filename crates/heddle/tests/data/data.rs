//! Memory and state over the real binary: round trips, the gate, crashes, the verbs.

use crate::support;

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};
use support::data::{encoded, get, recalled, under};
use support::{Home, Ran, wait_until};

// --- round trips ---------------------------------------------------------------------------------

#[test]
fn every_kind_of_value_comes_back_as_it_was_and_with_its_stamp() {
    let home = Home::new();
    let daemon = home.up();
    let values = [
        json!(null),
        json!(true),
        json!(-7),
        json!(0.1),
        json!("text\n\u{0}\u{1b}[31m ünï"),
        json!([]),
        json!({"b": {"a": [1, null, "x"]}, "": 1}),
        json!("x".repeat((256 << 10) - 2)),
    ];
    for (n, value) in (1_u64..).zip(&values) {
        let body = json!({"key": "k", "value": value, "tags": ["b", "a", "b"]});
        let kept = daemon.http.post("/v1/memory/remember", &body).expect(200);
        assert_eq!(kept["stamp"]["lamport"], 2 * n - 1);
        assert_eq!(kept["durability"], "local");
        assert_eq!(kept["duplicate"], false);
        let item = recalled(&daemon, "key=k").remove(0);
        assert_eq!(&item["value"], value);
        assert_eq!(item["tags"], json!(["a", "b"]));
        assert_eq!(item["stamp"], kept["stamp"]);
        assert_eq!(item["peer"], "@tester/tester");
        let body = json!({"key": "k", "value": value});
        let set = daemon.http.post("/v1/state/set", &body).expect(200);
        let got = get(&daemon, "k").expect(200);
        assert_eq!(&got["value"], value);
        assert_eq!(got["stamp"], set["stamp"]);
    }
}

#[test]
fn memory_is_each_agents_own_and_state_is_shared() {
    let home = Home::new();
    let daemon = home.up();
    for agent in ["planner", "coder"] {
        let body = json!({"key": "plan", "value": agent, "agent": agent});
        daemon.http.post("/v1/memory/remember", &body).expect(200);
        let body = json!({"key": "phase", "value": agent, "agent": agent});
        daemon.http.post("/v1/state/set", &body).expect(200);
    }
    let values = |query: &str| -> Vec<Value> {
        let items = recalled(&daemon, query);
        items.iter().map(|item| item["value"].clone()).collect()
    };
    assert_eq!(values("key=plan&agent=planner"), ["planner"]);
    assert_eq!(values("key=plan&agent=planner&scope=self"), ["planner"]);
    assert_eq!(values("key=plan&agent=planner&scope=coder"), ["coder"]);
    assert_eq!(values("key=plan&scope=@tester/planner"), ["planner"]);
    assert_eq!(
        values("key=plan&scope=all"),
        ["coder", "planner"],
        "youngest first"
    );
    assert_eq!(values("search=cod*&scope=all"), ["coder"]);
    assert_eq!(values("key=nothing&scope=all"), [] as [Value; 0]);
    let got = get(&daemon, "phase").expect(200);
    assert_eq!(
        (&got["value"], &got["updated_by"]),
        (&json!("coder"), &json!("@tester/coder"))
    );
    let nobody = daemon.http.get("/v1/memory/recall?key=plan").expect(404);
    assert_eq!(nobody["code"], "unknown_key");
    let nobody = daemon
        .http
        .get("/v1/memory/recall?key=plan&scope=nobody")
        .expect(404);
    assert_eq!(nobody["code"], "unknown_recipient");
    // One agent forgets; the other's memory stays.
    let body = json!({"key": "plan", "agent": "coder"});
    daemon.http.post("/v1/memory/forget", &body).expect(200);
    assert_eq!(values("key=plan&scope=all"), ["planner"]);
    assert_eq!(
        daemon.http.post("/v1/memory/forget", &body).expect(404)["code"],
        "unknown_key"
    );
}

#[test]
fn lists_are_paged_to_their_end_and_prefixes_are_taken_literally() {
    let home = Home::new();
    let daemon = home.up();
    for n in 0..7 {
        let body = json!({"key": format!("p%_{n}"), "value": n});
        daemon.http.post("/v1/state/set", &body).expect(200);
        daemon.http.post("/v1/memory/remember", &body).expect(200);
    }
    let body = json!({"key": "pxy", "value": 0});
    daemon.http.post("/v1/state/set", &body).expect(200);
    for (list, expected) in [
        ("/v1/state/list?limit=2&prefix=p%25_", 7),
        ("/v1/state/list?limit=3", 8),
        ("/v1/memory/recall?limit=3", 7),
    ] {
        let mut page = daemon.http.get(list).expect(200);
        let mut keys: Vec<String> = Vec::new();
        loop {
            let items = page["items"].as_array().unwrap();
            keys.extend(
                items
                    .iter()
                    .map(|item| item["key"].as_str().unwrap().to_owned()),
            );
            let Some(cursor) = page["cursor"].as_str() else {
                break;
            };
            let next = format!("{list}&cursor={}", encoded(cursor));
            page = daemon.http.get(&next).expect(200);
        }
        assert!(keys.is_sorted(), "{keys:?}");
        assert_eq!(keys.len(), expected, "{list}");
    }
}

// --- crashes -------------------------------------------------------------------------------------

#[test]
fn what_was_answered_survives_kill_9_and_its_id_stays_consumed() {
    let home = Home::new();
    let body = |n: u64| json!({"key": format!("k{n}"), "value": format!("kept {n}")});
    for n in 0..5 {
        let daemon = home.up();
        for before in 0..n {
            let id = format!("id-{before}");
            let again = under(&daemon, &id, "/v1/memory/remember", &body(before)).expect(200);
            assert_eq!(again["duplicate"], true);
            assert_eq!(again["stamp"]["lamport"], before + 1);
        }
        let first = under(&daemon, &format!("id-{n}"), "/v1/memory/remember", &body(n));
        assert_eq!(first.expect(200)["stamp"]["lamport"], n + 1);
        daemon.kill();
    }
    let daemon = home.up();
    assert_eq!(recalled(&daemon, "").len(), 5);
    assert_eq!(
        recalled(&daemon, "search=kept").len(),
        5,
        "the index is there, too"
    );
}

#[test]
fn everything_works_without_a_broker_and_beside_an_outbox_that_is_full() {
    let home = Home::new();
    // Nobody listens there.
    home.config("[broker]\nurl = \"ws://127.0.0.1:1/\"\n[outbox]\ndisk_budget_mb = 1\n");
    let daemon = home.up();
    let body = json!({"key": "k", "value": 1, "agent": "fresh"});
    under(&daemon, "first", "/v1/memory/remember", &body).expect(200);
    let large = "x".repeat(60_000);
    let mut kept = 0;
    let set = json!({"key": "k0", "value": 1});
    daemon.http.post("/v1/state/set", &set).expect(200);
    // What waits in the outbox fills the budget.
    wait_until("507", || {
        let body = json!({"to": "@tester", "message": large});
        let answer = daemon.http.post("/v1/send", &body);
        if answer.status == 507 {
            assert_eq!(answer.json()["code"], "insufficient_storage");
            return true;
        }
        answer.expect(202);
        kept += 1;
        false
    });
    assert!(kept > 10, "{kept}");
    let again = under(&daemon, "first", "/v1/memory/remember", &body).expect(200);
    assert_eq!(again["duplicate"], true);
    // A budget is for what waits to be sent. The data of a mesh that is this home's alone does not: far more than the budget.
    for number in 0..30 {
        let id = format!("second-{number}");
        let body = json!({"key": id, "value": large, "agent": "fresh"});
        under(&daemon, &id, "/v1/memory/remember", &body).expect(200);
    }
    let body = json!({"to": "@tester", "message": large});
    daemon.http.post("/v1/send", &body).expect(507);
    // Taking away is always possible, and reading.
    let forget = json!({"key": "k", "agent": "fresh"});
    under(&daemon, "third", "/v1/memory/forget", &forget).expect(200);
    get(&daemon, "k0").expect(200);
}

// --- the command line ----------------------------------------------------------------------------

#[test]
fn the_verbs_work_for_people_and_for_scripts() {
    let home = Home::new();
    let _daemon = home.up();
    let kept = home
        .cli(&[
            "remember",
            "plan",
            "build the parser",
            "--tag",
            "todo",
            "--id",
            "r1",
        ])
        .ok();
    assert_eq!(kept.stdout, "remembered plan, safe on disk (r1)\n");
    let again = home
        .cli(&[
            "remember",
            "plan",
            "build the parser",
            "--tag",
            "todo",
            "--id",
            "r1",
        ])
        .ok();
    assert_eq!(again.stdout, "already remembered plan (r1)\n");
    let other = home.cli(&["remember", "plan", "else", "--id", "r1"]);
    assert_eq!(other.code, 3, "{other:?}");
    assert_eq!(
        home.cli(&["recall", "plan"]).ok().stdout,
        "build the parser\n"
    );
    home.cli(&["remember", "port", "5432"]).ok();
    home.cli(&["remember", "low", "-5"]).ok();
    let port = home.cli(&["recall", "port", "--json"]).ok().json();
    assert_eq!(port["items"][0]["value"], 5432);
    assert_eq!(home.cli(&["recall", "low"]).ok().stdout, "-5\n");
    let list = home.cli(&["recall"]).ok().stdout;
    assert!(
        list.starts_with("KEY") && list.lines().count() == 4,
        "{list}"
    );
    let found = home.cli(&["recall", "--search", "pars*"]).ok().stdout;
    assert!(
        found.contains("build the parser") && !found.contains("5432"),
        "{found}"
    );
}

#[test]
fn an_absent_key_is_exit_4_with_a_next_step_and_a_mistake_is_exit_2() {
    let home = Home::new();
    let _daemon = home.up();
    home.cli(&["remember", "plan", "build"]).ok();
    for absent in [
        &["recall", "nothing"][..],
        &["recall", "nothing", "--scope", "all"],
        &["forget", "nothing"],
        &["state", "get", "nothing"],
        &["state", "delete", "nothing"],
        &["recall", "plan", "--scope", "@nobody"],
    ] {
        let ran = home.cli(absent);
        assert_eq!(ran.code, 4, "{absent:?} {ran:?}");
        assert!(ran.stderr.contains("next: "), "{ran:?}");
    }
    assert_eq!(
        home.cli(&["forget", "plan", "--id", "f"]).ok().stdout,
        "forgot plan, safe on disk (f)\n"
    );
    assert_eq!(home.cli(&["recall", "plan"]).code, 4);
    for bad in [
        &["remember", "k", "{\"a\":1,\"a\":2}"][..],
        &["remember", "", "x"],
        &["recall", "k", "--search", "x"],
    ] {
        assert_eq!(home.cli(bad).code, 2, "{bad:?}");
    }
}

#[test]
fn state_verbs_share_and_a_value_may_come_from_standard_input() {
    let home = Home::new();
    let _daemon = home.up();
    assert!(
        home.cli(&["state", "list"])
            .ok()
            .stdout
            .starts_with("nothing is set")
    );
    let mut child = home
        .command(&["state", "set", "doc", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"{\"b\": 1, \"a\": \"\\u001b[31m\"}")
        .unwrap();
    Ran::from(child.wait_with_output().unwrap()).ok();
    let got = home
        .cli_as("coder", &["state", "get", "doc", "--json"])
        .ok()
        .json();
    assert_eq!(got["value"], json!({"a": "\u{1b}[31m", "b": 1}));
    home.cli_as("coder", &["state", "set", "red", "\u{1b}[31mtext"])
        .ok();
    // To a program it is the value itself; only a terminal is shown it spelled out (see `ui::value`).
    let piped = home.cli(&["state", "get", "red"]).ok().stdout;
    assert_eq!(piped, "\u{1b}[31mtext\n");
    let list = home.cli(&["state", "list"]).ok().stdout;
    assert!(
        list.contains("@tester/coder") && !list.contains('\u{1b}'),
        "{list}"
    );
    assert_eq!(
        home.cli(&["state", "delete", "red", "--id", "d"])
            .ok()
            .stdout,
        "deleted red, safe on disk (d)\n"
    );
    assert_eq!(
        home.cli(&["state", "delete", "red", "--id", "d"])
            .ok()
            .stdout,
        "already deleted red (d)\n"
    );
}
