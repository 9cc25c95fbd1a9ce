//! What an operator is told about an effect is whole: the command to paste, the reason of a refusal, whose word is waited
//! for, what the policy says now, who came and was refused or answered with what stands.

use crate::support;

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use support::effect_pair::{pair, request, run};
use support::pasted::{commands, pasted_by};
use support::{Home, Ran};

const NEVER: &str = "[[rule]]\noperation = \"deploy\"\napproval = \"never\"\n";

fn ask(home: &Home, agent: &str, key: &str) -> String {
    let asked = home.cli_as(agent, &request(key)).ok().json();
    asked["request_id"].as_str().unwrap().to_owned()
}

fn approve(home: &Home, id: &str) -> String {
    let granted = home.cli(&["effect", "approve", id, "--json"]).ok().json();
    granted["nonce"].as_str().unwrap().to_owned()
}

fn policy(home: &Home, text: &str) {
    let file = home.path().join("effects.toml");
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
}

fn status(home: &Home, key: &str) -> Value {
    home.cli(&["effect", "status", key, "--json"]).json()
}

#[test]
fn who_has_another_file_is_told_the_whole_command_that_asks_for_it() {
    let home = Home::new();
    let _daemon = home.up();
    let file = |name: &str| {
        let path = home.path().with_file_name(name);
        std::fs::write(&path, name).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (seen, other) = (file("seen.sql"), file("it's another.sql"));
    let named = |verb: &'static str, file: &str, more: &[&str]| -> Ran {
        let words = ["effect", verb, "--key", "k", "--op", "migrate"];
        let words = [&words[..], &["--target", "prod", "--artifact", file], more].concat();
        home.cli_as("planner", &words)
    };
    named("request", &seen, &[]).ok();
    for refused in [
        named("run", &other, &["--agent", "planner", "--", "true"]),
        named("request", &other, &["--agent", "planner"]),
    ] {
        let next = commands(&refused.stderr);
        let asks = next
            .iter()
            .find(|it| it.starts_with("heddle effect request"));
        let asks = asks.unwrap_or_else(|| panic!("{refused:?}"));
        assert!(asks.contains("--op migrate --target prod"), "{asks}");
        let asked = pasted_by(&home, Some("planner"), &format!("{asks} --json")).ok();
        assert_eq!(asked.json()["status"], "awaiting_approval", "{asked:?}");
    }
    // Both name the same new key, so it was asked for once.
    let list = home.cli(&["effect", "list", "--json"]).ok().json();
    assert_eq!(list["effects"].as_array().unwrap().len(), 2, "{list}");
}

#[test]
fn of_a_page_that_says_no_one_short_line_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/health", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            use std::io::{Read as _, Write as _};
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let page = "<html>\n<body>a line of the page</body>\n".repeat(20);
            let answer = format!("HTTP/1.1 503 Not yet\r\nConnection: close\r\n\r\n{page}");
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let home = Home::new();
    let _daemon = home.up();
    let checks = ["--verify-url", &url, "--verify-timeout", "1s"];
    let ran = home.cli(&run("k", &checks, "echo x"));
    assert_eq!(ran.code, 1, "{ran:?}");
    let told = ran.json()["verify_detail"].as_str().unwrap().to_owned();
    assert_eq!(told, "the URL answered 503: Not yet (tried for 1 s)");
}

#[test]
fn explain_says_why_a_nonce_was_no_good() {
    let home = Home::new();
    let _daemon = home.up();
    let (id, nonce) = {
        let id = ask(&home, "planner", "k");
        let nonce = approve(&home, &id);
        (id, nonce)
    };
    let go = |agent: &str, nonce: &str| home.cli_as(agent, &run("k", &["--nonce", nonce], "true"));
    let unbound = |ran: &Ran| assert_eq!(ran.json()["code"], "NONCE_UNBOUND", "{ran:?}");
    unbound(&go("planner", "made-up"));
    unbound(&go("mallory", &nonce));
    let elsewhere = ["effect", "run", "--json", "--key", "k", "--op", "deploy"];
    let more = ["--target", "eu", "--nonce", &nonce, "--", "true"];
    unbound(&home.cli_as("planner", &[&elsewhere[..], &more].concat()));
    home.cli(&["effect", "deny", &id]).ok();
    unbound(&go("planner", &nonce));
    let words = home.cli(&["explain", "k"]).ok().stdout;
    let why: Vec<&str> = words
        .lines()
        .filter_map(|line| Some(line.split_once("NONCE_UNBOUND ")?.1))
        .collect();
    assert_eq!(
        why,
        [
            "there is no good nonce: it is missing, or nobody has granted it",
            "the approval was given to planner, and mallory is somebody else",
            "the approval is for something else: its target is prod, and not eu",
            "the approval was taken back",
        ],
        "{words}"
    );
}

#[test]
fn who_asks_is_told_whose_word_is_waited_for_and_how_they_say_it() {
    let home = Home::new();
    let _daemon = home.up();
    let asked = |key: &str| {
        let mut words = request(key);
        words.retain(|word| *word != "--json");
        home.cli_as("planner", &words).ok().stdout
    };
    let approves = |text: &str| {
        let next = text.split("next: ").nth(1).unwrap().trim().to_owned();
        // Also in the shell of the agent that is told.
        pasted_by(&home, Some("planner"), &format!("{next} --json")).ok();
    };
    let text = asked("k");
    assert!(
        text.contains("a person who may approve it (tester)"),
        "{text}"
    );
    approves(&text);
    policy(
        &home,
        "[[rule]]\noperation = \"deploy\"\napproval = \"person\"\napprovers = [\"@bob\", \"carol\"]\n",
    );
    let text = asked("k2");
    assert!(text.contains("(@bob or carol)"), "{text}");
    approves(&text);
    let waits = asked("k3");
    let told = home.cli_as("planner", &["effect", "status", "k3"]).stdout;
    assert!(
        waits.contains("env_") && told.contains("(@bob or carol)"),
        "{told}"
    );
    pasted_by(&home, Some("planner"), &commands(&told)[0]).ok();
}

#[test]
fn in_a_shared_mesh_who_may_approve_is_called_as_the_home_of_the_asker_calls_them() {
    let both = "[[rule]]\noperation = \"deploy\"\napproval = \"person\"\napprovers = [\"alice\", \"@bob\"]\n";
    let pair = pair("");
    let words = ["--mesh", "alice-home", "--agent", "planner"];
    let asked = |key: &'static str| {
        let mut request = request(key);
        request.retain(|word| *word != "--json");
        pair.bob.cli(&[&words[..], &request].concat()).ok().stdout
    };
    let text = asked("k");
    assert!(text.contains("who may approve it (@alice)"), "{text}");
    // What the mesh is called in her home nobody knows here; its id is a name for it everywhere.
    let next = text.split("in the home of @alice: ").nth(1).unwrap().trim();
    assert!(!next.contains("alice-home"), "{next}");
    pasted_by(&pair.alice, None, next).ok();
    assert!(
        text.contains("next, in the home of @alice: heddle effect approve"),
        "{text}"
    );
    assert!(
        !text.contains("planner") && !text.contains("PERSON"),
        "{text}"
    );
    policy(&pair.alice, both);
    let text = asked("k2");
    assert!(text.contains("(@alice or bob)"), "{text}");
    let next = text.split("next: ").nth(1).unwrap().trim();
    pasted_by(&pair.bob, Some("planner"), next).ok();
    // The refusal of a run, as the authority says it.
    let refused = pair.bob.cli(&[&words[..], &run("k", &[], "true")].concat());
    let next = refused.json()["next"].as_str().unwrap().to_owned();
    assert!(
        next.contains("(@alice or @bob)") && !next.contains("PERSON"),
        "{next}"
    );
    // As it is, in whichever of the two homes.
    let approve = commands(&next)[0].clone();
    for home in [&pair.alice, &pair.bob] {
        pasted_by(home, None, &approve).ok();
    }
}

#[test]
fn an_approval_that_the_policy_forbids_since_is_told_as_such() {
    let home = Home::new();
    let _daemon = home.up();
    let id = ask(&home, "planner", "k");
    approve(&home, &id);
    assert_eq!(status(&home, "k")["blocked"], Value::Null);
    policy(&home, NEVER);
    let now = status(&home, "k");
    assert_eq!(now["status"], "approved");
    let blocked = now["blocked"].as_str().unwrap();
    assert!(blocked.starts_with("effects.toml says never now"), "{now}");
    let words = home.cli(&["effect", "status", "k"]).stdout;
    assert!(
        words.contains("now: effects.toml says never now"),
        "{words}"
    );
    assert!(!words.contains("heddle effect run"), "{words}");
    let list = home.cli(&["effect", "list"]).ok().stdout;
    assert!(list.contains("approved, effects.toml forbids it"), "{list}");
    let story = home.cli(&["explain", "k"]).ok().stdout;
    assert!(story.contains("effects.toml says never now"), "{story}");
    policy(&home, "surprise = 1\n");
    let unread = status(&home, "k")["blocked"].to_string();
    assert!(unread.contains("until it is mended"), "{unread}");
    // What has happened is not undone by a rule.
    policy(&home, "");
    home.cli(&run("done", &[], "true")).ok();
    policy(&home, NEVER);
    assert_eq!(status(&home, "done")["blocked"], Value::Null);
}

#[test]
fn the_list_shows_with_a_request_what_was_said_to_it_and_not_to_another_one() {
    let home = Home::new();
    let _daemon = home.up();
    let old = ask(&home, "planner", "k");
    home.cli(&["effect", "deny", &old]).ok();
    let new = ask(&home, "planner", "k");
    let list = home.cli(&["effect", "list"]).ok().stdout;
    let line = list.lines().find(|line| line.starts_with("k ")).unwrap();
    assert!(line.contains(&new) && !line.contains("denied"), "{list}");
    let words = home.cli(&["effect", "status", "k"]).stdout;
    let other = format!("denied by tester (another request, {old})");
    assert!(words.contains(&other), "{words}");
}

#[test]
fn every_try_is_told_the_refused_ones_and_those_that_were_answered_with_what_stands() {
    let home = Home::new();
    let _daemon = home.up();
    let id = ask(&home, "planner", "k");
    let go = |more: &[&str], script: &str| home.cli_as("planner", &run("k", more, script));
    assert_eq!(
        go(&["--attempt", "early"], "true").json()["code"],
        "APPROVAL_NEEDED"
    );
    let nonce = approve(&home, &id);
    go(&["--nonce", &nonce, "--attempt", "first"], "true").ok();
    let tries = |list: &Value| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        let one = |it: &Value| format!("{} {} {}", it["attempt_id"], it["state"], it["code"]);
        list.map(|it| one(it).replace('"', "")).collect()
    };
    let told = status(&home, "k");
    assert_eq!(
        tries(&told["attempts"]),
        ["first S2 ", "early S1 APPROVAL_NEEDED"]
    );
    let other = ["effect", "run", "--json", "--key", "k", "--op", "pay"];
    let more = ["--target", "prod", "--attempt", "other", "--", "true"];
    let other = home.cli_as("planner", &[&other[..], &more].concat());
    assert_eq!(other.code, 3, "{other:?}");
    for _ in 0..12 {
        go(&["--attempt", "first"], "true").ok();
    }
    go(&["--attempt", "second"], "true").ok();
    let told = status(&home, "k");
    assert_eq!(
        tries(&told["attempts"]),
        [
            "other S1 REPLAY_BINDING_MISMATCH",
            "first S2 ",
            "early S1 APPROVAL_NEEDED"
        ]
    );
    let retries = &told["retries"];
    assert_eq!(
        (&retries["count"], &retries["by"], &retries["code"]),
        (
            &json!(13),
            &json!("planner"),
            &json!("REPLAY_ATTEMPT_NO_BYPASS")
        ),
        "{told}"
    );
    // One line, however many came; nothing is written for them (RG-03).
    let log = home.cli(&["effect", "log", "k"]).ok().stdout;
    assert_eq!(log.matches("retry register by planner").count(), 1, "{log}");
    assert!(log.contains("13 times since"), "{log}");
    let words = home.cli(&["explain", "k"]).ok().stdout;
    assert!(words.contains("13 times since"), "{words}");
    let story = home.cli(&["explain", "k", "--json"]).ok().json();
    assert_eq!(story["effect"]["attempts"], told["attempts"]);
    let words = home.cli(&["effect", "status", "k"]).ok().stdout;
    assert!(
        words.contains("attempt early by planner: S1, refused (APPROVAL_NEEDED)"),
        "{words}"
    );
    assert!(
        words.contains("answered with what stands (REPLAY_ATTEMPT_NO_BYPASS)"),
        "{words}"
    );
}

#[test]
fn the_doctor_names_a_policy_that_cannot_be_read_once() {
    let home = Home::new();
    let daemon = home.up();
    policy(&home, "surprise = 1\n");
    let once = || {
        let doctor = home.cli(&["doctor", "--json"]);
        assert_eq!(doctor.code, 1, "{doctor:?}");
        let found = doctor.json()["findings"].clone();
        let found = found.as_array().unwrap().iter();
        let wrong: Vec<&Value> = found.filter(|finding| finding["ok"] == false).collect();
        let about = wrong
            .iter()
            .filter(|one| one.to_string().contains("surprise"));
        assert_eq!(about.count(), 1, "{wrong:?}");
        assert_eq!(wrong[0]["check"], json!("effects.toml"), "{wrong:?}");
        let words = home.cli(&["doctor"]).stdout;
        assert_eq!(words.matches("effects.toml").count(), 1, "{words}");
    };
    once();
    let status = home.cli(&["status"]).stdout;
    assert_eq!(status.matches("effects.toml").count(), 1, "{status}");
    daemon.stop();
    once();
}
