//! What is said about effects is so: of a word that was not heard, a command that could not be started, a store that a
//! start refuses, a verifier without an end.

use crate::support;

use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use support::effect_pair::{pair, request, run};
use support::pasted::{commands, pasted};
use support::{Home, Ran, text_of, wait_until};

#[test]
fn a_word_that_nobody_has_heard_is_not_said_to_be_kept() {
    let mut pair = pair("");
    let asked = pair.bob(&request("k")).ok().json();
    let id = asked["request_id"].as_str().unwrap().to_owned();
    pair.up.0.take().unwrap().stop();
    wait_until("bob to notice", || {
        pair.bob(&["effect", "status", "k"]).code == 5
    });
    // Something waits; the word does not.
    assert_eq!(
        pair.bob(&request("later")).ok().json()["status"],
        "waiting_for_broker"
    );
    for word in ["deny", "approve"] {
        let said = pair.bob(&["effect", word, &id, "--json"]);
        assert_eq!(said.code, 5, "{said:?}");
        assert!(!said.stderr.contains("told by itself"), "{said:?}");
        assert!(said.stderr.contains("Nothing was recorded"), "{said:?}");
        assert_ne!(said.json()["waiting"], json!(["request"]), "{said:?}");
    }
}

#[test]
fn a_script_without_its_interpreter_is_seen_before_its_key_is_used() {
    let home = Home::new();
    let _daemon = home.up();
    let tool = home.path().with_file_name("tool");
    std::fs::write(&tool, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&tool, PermissionsExt::from_mode(0o755)).unwrap();
    let args = |command: &[&'static str]| -> Vec<String> {
        let words = ["effect", "run", "--json", "--key", "k", "--op", "deploy"];
        let words = words
            .iter()
            .chain(&["--target", "prod", "--"])
            .chain(command);
        words.map(|word| (*word).to_owned()).collect()
    };
    let ran = |command: &[&'static str]| {
        let mut words = args(command);
        if command.is_empty() {
            words.push(tool.to_str().unwrap().to_owned());
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        home.cli(&words)
    };
    let refused = ran(&[]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused.stderr.contains("/no/such/interpreter"),
        "{refused:?}"
    );
    assert_eq!(refused.json()["registered"], false);
    // The key is free: nobody has asked for it.
    assert_eq!(home.cli(&["effect", "status", "k"]).code, 4);
    // What only the kernel finds out is told as it is: the key stands for this effect, and nothing ran.
    std::fs::write(&tool, [0x7f, b'E', b'L', b'F', 9, 9, 9, 9]).unwrap();
    let late = ran(&[]);
    assert_eq!(late.code, 1, "{late:?}");
    assert_eq!(late.json()["registered"], true);
    assert!(!late.stderr.contains("not used up"), "{late:?}");
    let stands = home.cli(&["effect", "status", "k", "--json"]).ok().json();
    assert_eq!(stands["status"], "registered");
    ran(&["true"]).ok();
}

#[test]
fn rg_17_the_doctor_says_what_a_start_refuses() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&run("k", &[], "true")).ok();
    assert_eq!(home.cli(&["doctor"]).code, 0);
    daemon.stop();
    assert_eq!(home.cli(&["doctor"]).code, 0);
    let tables = rusqlite::Connection::open(home.path().join("effects.db")).unwrap();
    tables
        .execute_batch("DROP TRIGGER effect_step_once")
        .unwrap();
    drop(tables);
    let doctor = home.cli(&["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(doctor.stdout.contains("effect_step_once"), "{doctor:?}");
    let refused = home.try_up().err().expect("an unfit store");
    assert!(refused.stderr.contains("effect_step_once"), "{refused:?}");
    // A file that is gone while the locks lie there: the start refuses, and so does the doctor.
    for name in ["effects.db", "effects.db-wal", "effects.db-shm", "data.db"] {
        let _ = std::fs::remove_file(home.path().join(name));
    }
    assert_eq!(home.cli(&["doctor"]).code, 1);
}

#[test]
fn a_verifier_without_an_end_is_ended_and_nothing_is_said_to_be_verified() {
    let home = Home::new();
    let _daemon = home.up();
    let side = home.path().with_file_name("side");
    let script = format!("echo x >> {}", side.display());
    let hangs = [
        "--verify",
        "echo looking; sleep 1000",
        "--verify-timeout",
        "1s",
    ];
    for nth in 0..2 {
        let ran = home.cli(&run("k", &hangs, &script));
        assert_eq!(ran.code, 3, "{ran:?}");
        let told = ran.json();
        assert_eq!(
            (&told["status"], &told["verified"], &told["code"]),
            (&json!("finished"), &json!(null), &json!("verify_timeout"))
        );
        assert!(
            told["detail"].as_str().unwrap().contains("looking"),
            "{told}"
        );
        assert_eq!(told["duplicate"], nth > 0, "{told}");
        assert_eq!(text_of(&side), "x\n");
    }
    let later = home.cli(&[
        "effect",
        "verify",
        "k",
        "--command",
        "sleep 1000",
        "--timeout",
        "1s",
    ]);
    assert_eq!(later.code, 1, "{later:?}");
    assert!(later.stderr.contains("Nothing is recorded"), "{later:?}");
    let stands = home.cli(&["effect", "status", "k", "--json"]).ok().json();
    assert_eq!(
        (&stands["status"], &stands["verified"]),
        (&json!("finished"), &json!(null))
    );
    home.cli(&["effect", "verify", "k", "--command", "true"])
        .ok();
}

#[test]
fn what_is_said_to_be_done_next_can_be_pasted_whatever_the_key_is() {
    let home = Home::new();
    let _daemon = home.up();
    for key in ["it's $HOME; a key", "rel`1`x"] {
        printed_commands_work(&home, key);
    }
    // What looks like an option is a key all the same.
    let run = ["effect", "run", "--key=-dash", "--op", "deploy"];
    let run = [&run[..], &["--target", "prod", "--", "true"]].concat();
    home.cli(&run).ok();
    let status = home.cli(&["effect", "status", "-dash"]).ok();
    assert!(status.stdout.contains("closed"), "{status:?}");
    let closed = home.cli(&["effect", "compensate", "-dash", "--", "true"]);
    assert_eq!(closed.code, 3, "{closed:?}");
    pasted(&home, &commands(&closed.stderr)[0]).ok();
    // The usage names every way to give a verdict.
    let bare = home.cli(&["effect", "verify", "k"]);
    assert_eq!(bare.code, 2, "{bare:?}");
    assert!(bare.stderr.contains("--pass|--fail"), "{bare:?}");
}

fn printed_commands_work(home: &Home, key: &str) {
    let later = ["--verify-later"];
    home.cli(&run(key, &later, "echo done")).ok();
    let status = home.cli(&["effect", "status", key]).ok();
    let next = commands(&status.stdout);
    assert_eq!(next.len(), 2, "{status:?}");
    let failed = pasted(home, &next[1]);
    assert_eq!(failed.code, 1, "{next:?}: {failed:?}");
    assert!(
        failed.stderr.contains("the verification failed"),
        "{failed:?}"
    );
    // The retry of what failed names the way to make up for it.
    let again = home.cli(&run(key, &[], "echo done"));
    let next = commands(&again.stderr);
    assert_eq!(next.len(), 2, "{again:?}");
    let stands = pasted(home, &next[0]).ok();
    assert!(stands.stdout.contains("verify_failed"), "{stands:?}");
    pasted(home, &next[1].replace("COMMAND", "true")).ok();
    let stands = home.cli(&["effect", "status", key, "--json"]).ok().json();
    assert_eq!(stands["status"], "compensated");
    // A verdict where there is none to give: the refusal names the key itself.
    let refused = home.cli(&["effect", "verify", key, "--pass"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(!refused.stderr.contains("KEY"), "{refused:?}");
    pasted(home, &commands(&refused.stderr)[0]).ok();
}

#[test]
fn a_word_that_comes_too_late_gets_its_one_reason() {
    let home = Home::new();
    let _daemon = home.up();
    let ask = |key: &str| {
        let asked = home.cli_as("planner", &request(key)).ok().json();
        asked["request_id"].as_str().unwrap().to_owned()
    };
    let refusal = |words: &[&str]| {
        let said = home.cli(words);
        assert_eq!(said.code, 3, "{said:?}");
        said.stderr
    };
    let denied = ask("denied");
    home.cli(&["effect", "deny", &denied]).ok();
    let late = home.cli(&["effect", "approve", &denied]);
    assert!(
        late.stderr.contains("it was turned down; whoever"),
        "{late:?}"
    );
    assert!(!late.stderr.contains("used"), "{late:?}");
    let used = ask("used");
    let approved = home
        .cli(&["effect", "approve", &used, "--json"])
        .ok()
        .json();
    let nonce = approved["nonce"].as_str().unwrap();
    home.cli(&run("used", &["--nonce", nonce], "true")).ok();
    let late = refusal(&["effect", "approve", &used]);
    assert!(
        late.contains("the key used is used: its effect is closed"),
        "{late}"
    );
    assert!(!late.contains("turned down"), "{late}");
    let nothing = refusal(&["effect", "approve", &used, "--compensation"]);
    assert!(
        nothing.contains("nothing to make up for: the effect of used is closed"),
        "{nothing}"
    );
    let late = refusal(&["effect", "deny", &used]);
    assert!(late.contains("cannot be turned down"), "{late}");
}

#[test]
fn who_did_not_begin_a_run_is_told_whose_word_its_end_is() {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"key": "k", "op": "deploy", "target": "prod"});
    daemon.http.post("/v1/effect/register", &body).expect(200);
    let start = json!({"key": "k", "attempt_id": "mine"});
    daemon.http.post("/v1/effect/start", &start).expect(200);
    let end = json!({"key": "k", "attempt_id": "theirs", "exit_code": 0, "stdout": "", "stderr": "", "truncated": false});
    let problem = daemon.http.post("/v1/effect/finish", &end).expect(409);
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.contains("as attempt mine, and says how it ended"),
        "{problem}"
    );
    assert!(
        problem["next"]
            .as_str()
            .unwrap()
            .contains("`heddle effect status k`"),
        "{problem}"
    );
}

/// Follows what is printed for a person, as it is printed, to the last page.
fn pages(home: &Home, verb: &[&str]) -> Vec<String> {
    let (mut shown, mut words) = (
        Vec::new(),
        verb.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>(),
    );
    loop {
        let args: Vec<&str> = words.iter().map(String::as_str).collect();
        let told = home.cli(&args).ok().stdout;
        let is_more = |line: &&str| line.starts_with("there is more: ");
        shown.extend(told.lines().filter(|it| !is_more(it)).map(str::to_owned));
        let Some(more) = told.lines().find(is_more) else {
            return shown;
        };
        let more = more.trim_start_matches("there is more: heddle ");
        words = more.split(' ').map(str::to_owned).collect();
        assert!(shown.len() < 1000, "pages without an end: {more}");
    }
}

#[test]
fn a_list_and_a_log_are_shown_to_their_end_by_the_commands_that_they_print() {
    let home = Home::new();
    let daemon = home.up();
    for nth in 0..7 {
        let key = format!("k{nth}");
        home.cli(&run(&key, &[], "true")).ok();
        // Who comes again has a line of their own, which is in no store.
        home.cli(&run(&key, &[], "true")).ok();
    }
    for verb in ["list", "log"] {
        let many = home.cli(&["effect", verb, "--limit", "501"]);
        assert_eq!(many.code, 2, "{many:?}");
        let http = daemon.http.get(&format!("/v1/effect/{verb}?limit=501"));
        assert!(http.expect(400)["next"].to_string().contains("cursor"));
        let bad = daemon
            .http
            .get(&format!("/v1/effect/{verb}?cursor=nonsense"));
        assert!(bad.expect(400)["detail"].to_string().contains("cursor"));
        let whole = home.cli(&["effect", verb]).ok().stdout;
        assert!(!whole.contains("there is more"), "{whole}");
        let is_row = |line: &String| !line.starts_with("KEY");
        let words = |line: String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let whole: Vec<String> = whole
            .lines()
            .map(str::to_owned)
            .filter(is_row)
            .map(words)
            .collect();
        assert!(whole.len() >= 7, "{whole:?}");
        for limit in ["1", "3", "7", "100"] {
            let paged = pages(&home, &["effect", verb, "--limit", limit]);
            let paged: Vec<String> = paged.into_iter().filter(is_row).map(words).collect();
            assert_eq!(paged, whole, "{verb} in pages of {limit}");
        }
    }
    let of_one = pages(&home, &["effect", "log", "k3", "--limit", "1"]);
    assert!(
        of_one.len() >= 2 && of_one.iter().all(|line| line.contains("  k3  ")),
        "{of_one:?}"
    );
    let end = home.cli(&["effect", "list", "--json"]).ok().json();
    assert!(end["cursor"].is_null(), "{end}");
}

#[test]
fn an_attempt_that_is_too_long_is_no_key() {
    let home = Home::new();
    let _daemon = home.up();
    let long = "x".repeat(5_000);
    let refused = home.cli(&run("k3", &["--attempt", &long], "true"));
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused.stderr.contains("the attempt is longer than 256"),
        "{refused:?}"
    );
}

/// Each by its code (DESIGN §9), and with what helps, which can be pasted where it is printed.
#[test]
fn every_refusal_names_its_code_and_what_it_tells_to_do_can_be_done() {
    let home = Home::new();
    let _daemon = home.up();
    let run = |key: &str, target: &str, more: &[&str]| {
        let args = [
            "effect", "run", "--key", key, "--op", "deploy", "--target", target,
        ];
        let args = [&args[..], more, &["--", "echo", "done"]].concat();
        home.cli_as("planner", &args)
    };
    let asked = home.cli_as("planner", &request("a")).ok().json();
    let id = asked["request_id"].as_str().unwrap();
    let granted = home.cli(&["effect", "approve", id, "--json"]).ok().json();
    let nonce = granted["nonce"].as_str().unwrap();
    // What it says is done at once, where it is printed: it is about how things stand then.
    let is_refused = |code: &str, told: Ran| {
        assert!(told.stderr.contains(code), "{code}: {told:?}");
        assert_ne!(told.code, 0, "{told:?}");
        assert!(told.stderr.contains("  next: "), "{told:?}");
        for command in commands(&told.stderr) {
            let done = pasted(&home, &command);
            assert_eq!(done.code, 0, "{code}: {command}: {done:?}");
        }
    };
    is_refused("NONCE_UNBOUND", run("a", "prod", &["--nonce", "wrong"]));
    is_refused("NONCE_UNBOUND", run("b", "prod", &["--nonce", nonce]));
    is_refused("APPROVAL_NEEDED", run("c", "prod", &[]));
    run("a", "prod", &["--nonce", nonce]).ok();
    is_refused(
        "REPLAY_NONCE_CONSUMED",
        run("d", "prod", &["--nonce", nonce]),
    );
    is_refused("REPLAY_BINDING_MISMATCH", run("a", "staging", &[]));
    is_refused("EFFECT_STEP_REFUSED", home.cli(&["effect", "deny", id]));
    is_refused(
        "EFFECT_NOT_FOUND",
        home.cli(&["effect", "approve", "env_none"]),
    );
    for (code, more) in [
        ("REPLAY_DUPLICATE", &[][..]),
        ("REPLAY_ATTEMPT_NO_BYPASS", &["--attempt", "x"][..]),
    ] {
        let told = run("a", "prod", more).ok();
        assert!(told.stderr.contains(code), "{code}: {told:?}");
    }
}
