//! Effects over the real binary: approval, refusals, races, policy, and stores that are not fit.

use crate::support;

use serde_json::{Value, json};
use support::{Daemon, Home, Ran};

fn run<'a>(key: &'a str, options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let mut args = vec![
        "effect", "run", "--json", "--key", key, "--op", "migrate", "--target", "prod",
    ];
    args.extend(options);
    args.extend(["--", "/bin/sh", "-c", script]);
    args
}

fn request(home: &Home, key: &str) -> Value {
    let args = [
        "effect", "request", "--json", "--key", key, "--op", "migrate", "--target", "prod",
    ];
    home.cli_as("planner", &args).ok().json()
}

fn post(daemon: &Daemon, verb: &str, body: &Value) -> support::Answer {
    daemon.http.post(&format!("/v1/effect/{verb}"), body)
}

fn code(ran: &Ran) -> String {
    ran.json()["code"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn an_agent_asks_a_person_approves_and_the_effect_happens_once() {
    let home = Home::new();
    let _daemon = home.up();
    let side = home.path().with_file_name("side");
    let script = format!("echo x >> {}; echo migrated", side.display());
    let without = home.cli_as("planner", &run("m-1", &[], &script));
    assert_eq!(
        (without.code, code(&without).as_str()),
        (6, "APPROVAL_NEEDED")
    );
    let asked = request(&home, "m-1");
    assert_eq!(asked["status"], "awaiting_approval");
    assert_eq!(request(&home, "m-1")["request_id"], asked["request_id"]);
    let id = asked["request_id"].as_str().unwrap();
    let own = home.cli_as("planner", &["effect", "approve", id, "--json"]);
    assert_eq!((own.code, code(&own).as_str()), (6, "APPROVAL_REFUSED"));
    let approved = home
        .cli(&["effect", "approve", id, "--window", "5m", "--json"])
        .ok()
        .json();
    let nonce = approved["nonce"].as_str().unwrap();
    assert!(approved["expires_at"].is_string());
    let wrong = home.cli_as("planner", &run("m-1", &["--nonce", "hn_0"], &script));
    assert_eq!((wrong.code, code(&wrong).as_str()), (6, "NONCE_UNBOUND"));
    let ran = home
        .cli_as("planner", &run("m-1", &["--nonce", nonce], &script))
        .ok();
    assert_eq!(ran.json()["status"], "closed");
    assert_eq!(
        (
            ran.json()["exit_code"].as_i64(),
            ran.json()["duplicate"].as_bool()
        ),
        (Some(0), Some(false))
    );
    assert_eq!(
        ran.json()["registration"]["replay_key"],
        asked["replay_key"]
    );
    // Another agent, without a nonce: the first result, and no second run.
    let again = home.cli_as("worker", &run("m-1", &[], &script)).ok();
    assert_eq!(
        (again.json()["duplicate"].as_bool(), code(&again).as_str()),
        (Some(true), "REPLAY_DUPLICATE")
    );
    assert_eq!(again.json()["stdout"], "migrated\n");
    assert_eq!(again.json()["registration"], ran.json()["registration"]);
    let other_attempt = home.cli(&run("m-1", &["--attempt", "a2"], &script)).ok();
    assert_eq!(code(&other_attempt), "REPLAY_ATTEMPT_NO_BYPASS");
    let stolen = home.cli_as("worker", &run("m-2", &["--nonce", nonce], &script));
    assert_eq!(code(&stolen), "REPLAY_NONCE_CONSUMED");
    let other_run = home.cli(&run("m-1", &["--run", "r2"], &script));
    assert_eq!(
        (other_run.code, code(&other_run).as_str()),
        (3, "REPLAY_BINDING_MISMATCH")
    );
    assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n");
    let log = home.cli(&["effect", "log", "--json"]).ok();
    assert!(!log.stdout.contains(nonce), "a nonce is shown once");
    assert!(log.stdout.contains("REPLAY_NONCE_CONSUMED"));
}

#[test]
fn rg_14_64_runs_at_once_make_one_effect_and_one_answer() {
    let home = Home::new();
    let _daemon = home.up();
    let side = home.path().with_file_name("side");
    let script = format!("echo x >> {}; echo $HEDDLE_EFFECT_ATTEMPT", side.display());
    let ran: Vec<Ran> = std::thread::scope(|scope| {
        let racing: Vec<_> = (0..64)
            .map(|_| scope.spawn(|| home.cli(&run("race", &[], &script))))
            .collect();
        racing.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n");
    let first = ran[0].json();
    let mut won = 0;
    for one in &ran {
        assert_eq!(one.code, 0, "{one:?}");
        let answer = one.json();
        assert_eq!(answer["stdout"], first["stdout"]);
        assert_eq!(answer["registration"], first["registration"]);
        won += usize::from(answer["duplicate"] == false);
    }
    assert_eq!(won, 1);
}

#[test]
fn s3_what_fails_its_verification_is_made_up_for_and_never_run_again() {
    let home = Home::new();
    let _daemon = home.up();
    let failed = home.cli(&run(
        "k",
        &["--verify", "echo the page is down; false"],
        "echo out",
    ));
    assert_eq!(
        (failed.code, failed.json()["status"].as_str()),
        (1, Some("verify_failed"))
    );
    assert_eq!(failed.json()["state"], "S3");
    let again = home.cli(&run("k", &["--verify", "true"], "echo out"));
    assert_eq!(
        (again.code, again.json()["duplicate"].as_bool()),
        (1, Some(true))
    );
    let late = home.cli(&["effect", "verify", "k", "--pass", "--json"]);
    assert_eq!(
        (late.code, code(&late).as_str()),
        (3, "EFFECT_STEP_REFUSED")
    );
    let make_up = ["effect", "compensate", "k", "--json", "--", "true"];
    let agent = home.cli_as("planner", &make_up);
    assert_eq!((agent.code, code(&agent).as_str()), (6, "APPROVAL_NEEDED"));
    let done = home
        .cli(&[
            "effect",
            "compensate",
            "k",
            "--json",
            "--",
            "echo",
            "undone",
        ])
        .ok();
    assert_eq!(done.json()["status"], "compensated");
    assert_eq!(done.json()["compensation"]["stdout"], "undone\n");
    let twice = home
        .cli(&["effect", "compensate", "k", "--json", "--", "false"])
        .ok();
    assert_eq!(twice.json()["duplicate"], true);
}

#[test]
fn the_verdict_can_be_left_to_somebody_else() {
    let home = Home::new();
    let _daemon = home.up();
    let ran = home.cli(&run("k", &["--verify-later"], "echo out")).ok();
    assert_eq!(ran.json()["status"], "finished");
    let verified = home
        .cli(&["effect", "verify", "k", "--command", "true", "--json"])
        .ok();
    assert_eq!(verified.json()["status"], "closed");
}

#[test]
fn status_list_and_surface_check_say_what_is() {
    let home = Home::new();
    let daemon = home.up();
    let never = home.cli(&["effect", "status", "never", "--json"]);
    assert_eq!((never.code, code(&never).as_str()), (4, "EFFECT_NOT_FOUND"));
    request(&home, "asked");
    let waiting = home.cli(&["effect", "status", "asked", "--json"]);
    assert_eq!(
        (waiting.code, waiting.json()["status"].as_str()),
        (4, Some("awaiting_approval"))
    );
    home.cli(&run("done", &[], "true")).ok();
    let status = home
        .cli(&["effect", "status", "done", "--json"])
        .ok()
        .json();
    assert_eq!(
        (status["state"].as_str(), status["status"].as_str()),
        (Some("S2"), Some("closed"))
    );
    assert!(status["registration"].is_object() && status["compensation"].is_null());
    assert_eq!(status["attempts"][0]["state"], "S2");
    let words = home.cli(&["effect", "status", "done"]).ok().stdout;
    for said in ["state: S2, committed", "S2, it registered the effect"] {
        assert!(words.contains(said), "{said}: {words}");
    }
    let words = home.cli(&["effect", "status", "asked"]).stdout;
    assert!(words.contains("state: S0, issued"), "{words}");
    let list = home.cli(&["effect", "list", "--json"]).ok().json();
    assert_eq!(list["effects"].as_array().unwrap().len(), 2);
    let surface = home.cli(&["effect", "surface-check", "--json"]).ok().json();
    assert_eq!(
        (
            surface["fit"].as_bool(),
            surface["criteria"].as_array().unwrap().len()
        ),
        (Some(true), 8)
    );
    for verb in ["status", "list", "log", "surface-check"] {
        let words = if verb == "status" {
            vec!["effect", verb, "done"]
        } else {
            vec!["effect", verb]
        };
        assert!(!home.cli(&words).ok().stdout.is_empty(), "{verb}");
    }
    drop(daemon);
}

#[test]
fn what_is_denied_or_revoked_authorises_nothing() {
    let home = Home::new();
    let _daemon = home.up();
    let denied = request(&home, "denied");
    let id = denied["request_id"].as_str().unwrap();
    let answer = home.cli(&["effect", "deny", id, "--json"]).ok();
    assert_eq!(answer.json()["status"], "denied");
    assert_eq!(
        code(&home.cli(&["effect", "approve", id, "--json"])),
        "APPROVAL_REFUSED"
    );
    let revoked = request(&home, "revoked");
    let id = revoked["request_id"].as_str().unwrap();
    let nonce = home.cli(&["effect", "approve", id, "--json"]).ok().json();
    let nonce = nonce["nonce"].as_str().unwrap();
    home.cli(&["effect", "deny", id, "--json"]).ok();
    let late = home.cli_as("planner", &run("revoked", &["--nonce", nonce], "true"));
    assert_eq!((late.code, code(&late).as_str()), (6, "NONCE_UNBOUND"));
}

#[test]
fn the_policy_of_the_home_decides_who_is_asked() {
    let home = Home::new();
    std::fs::create_dir_all(home.path()).unwrap();
    let policy = "[[rule]]\noperation = \"migrate\"\ntarget = \"staging*\"\napproval = \"auto\"\n\
        [[rule]]\noperation = \"pay\"\napproval = \"never\"\n\
        [[rule]]\noperation = \"*\"\napproval = \"always\"\n";
    std::fs::write(home.path().join("effects.toml"), policy).unwrap();
    let daemon = home.up();
    let body = |key: &str, op: &str, target: &str| json!({"key": key, "op": op, "target": target, "agent": "planner"});
    let auto = post(&daemon, "register", &body("a", "migrate", "staging-1")).expect(200);
    assert_eq!(auto["status"], "registered");
    let never = post(&daemon, "request", &body("b", "pay", "bob")).expect(403);
    assert_eq!(never["code"], "APPROVAL_REFUSED");
    let always = home.cli(&run("c", &[], "true"));
    assert_eq!(
        (always.code, code(&always).as_str()),
        (6, "APPROVAL_NEEDED")
    );
    daemon.stop();
    std::fs::write(
        home.path().join("effects.toml"),
        "[[rule]]\noperation = 1\n",
    )
    .unwrap();
    let refused = home.try_up().err().expect("a policy that cannot be read");
    assert!(refused.stderr.contains("effects.toml"), "{refused:?}");
}

#[test]
fn rp_10_rg_17_a_lost_or_unfit_store_ends_the_start() {
    let home = Home::new();
    home.up().stop();
    let file = home.path().join("effects.db");
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection
        .execute("DROP TRIGGER effect_consume_keep", [])
        .unwrap();
    drop(connection);
    let unfit = home.try_up().err().expect("an unfit store");
    assert!(unfit.stderr.contains("REPLAY_SURFACE_NOT_FIT"), "{unfit:?}");
    for name in ["effects.db", "effects.db-wal", "effects.db-shm"] {
        let _ = std::fs::remove_file(home.path().join(name));
    }
    let lost = home.try_up().err().expect("a lost store");
    assert!(lost.stderr.contains("effects.db is missing"), "{lost:?}");
}

#[test]
fn rg_17_an_index_that_forgot_a_run_ends_the_start_and_nothing_runs_twice() {
    let home = Home::new();
    let daemon = home.up();
    let side = home.path().join("side");
    let script = format!("echo once >> {}", side.display());
    let auto = "[[rule]]\noperation = \"*\"\napproval = \"auto\"\n";
    daemon.stop();
    std::fs::write(home.path().join("effects.toml"), auto).unwrap();
    let daemon = home.up();
    home.cli(&run("deploy-1", &[], &script)).ok();
    daemon.stop();
    let file = home.path().join("effects.db");
    let connection = rusqlite::Connection::open(&file).unwrap();
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let page =
        number("SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_effect_step_1'");
    let end = page.unwrap() * number("PRAGMA page_size").unwrap();
    let end = usize::try_from(end).unwrap();
    drop(connection);
    let mut bytes = std::fs::read(&file).unwrap();
    let key = b"deploy-1";
    let index = &bytes[end - 4096..end];
    let at = index
        .windows(key.len())
        .position(|part| part == key)
        .unwrap();
    bytes[end - 4096 + at] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let refused = home.try_up().err().expect("a file that is not whole");
    assert!(refused.stderr.contains("effects.db"), "{refused:?}");
    assert!(refused.stderr.contains("damaged"), "{refused:?}");
    assert!(
        refused.stderr.contains("from the newest copy of the home"),
        "{refused:?}"
    );
    assert_eq!(std::fs::read_to_string(side).unwrap(), "once\n");
}

#[test]
fn hostile_bodies_change_nothing() {
    let home = Home::new();
    let daemon = home.up();
    let good = json!({"key": "k", "op": "deploy", "target": "prod"});
    for (field, value) in [
        ("key", json!("")),
        ("key", json!("a\u{0}b")),
        ("key", json!("x".repeat(300))),
        ("op", json!(" deploy")),
        ("artifact_hash", json!("../../etc/passwd")),
        ("surprise", json!(1)),
        ("mesh", json!("nowhere")),
    ] {
        let mut body = good.clone();
        body[field] = value;
        let answer = post(&daemon, "register", &body);
        assert!(
            (400..500).contains(&answer.status),
            "{field}: {}",
            answer.status
        );
    }
    let long = json!({"key": "k", "attempt_id": "a", "exit_code": 0, "stdout": "x".repeat(70_000)});
    post(&daemon, "finish", &long).expect(400);
    assert_eq!(home.cli(&["effect", "status", "k"]).code, 4);
}
