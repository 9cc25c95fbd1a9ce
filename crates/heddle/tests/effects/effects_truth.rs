//! What is said about an effect is true: compensations that failed, verdicts that stand, waits that were too short, output
//! that was cut, a store that lacks something.

use crate::support;

use std::process::Stdio;

use support::effect_verbs::{failed, plain, request, run, status, text};
use support::{Home, wait_until};

#[test]
fn rg_13_a_compensation_that_failed_is_not_done_and_waits_for_a_persons_word() {
    let home = Home::new();
    let _daemon = home.up();
    failed(&home, "k");
    let make_up = |word: &'static str| {
        let script = "echo half >&2; exit 7";
        let mut args = vec!["effect", "compensate", "k", "--json"];
        args.extend(Some(word).filter(|word| !word.is_empty()));
        args.extend(["--", "/bin/sh", "-c", script]);
        home.cli(&args)
    };
    let first = make_up("");
    assert_eq!(first.code, 1, "{first:?}");
    let view = status(&home, "k").ok().json();
    assert_eq!(
        (text(&view, "state"), text(&view, "status")),
        ("S3", "compensation_failed")
    );
    let made = &view["compensation"];
    assert_eq!(
        (made["done"].as_bool(), made["exit_code"].as_i64()),
        (Some(false), Some(7))
    );
    assert_eq!(text(made, "stderr"), "half\n");
    // Asked again it is not done either, and nothing runs without a word.
    let again = make_up("");
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.stderr.contains("--resolve=again"), "{again:?}");
    // Whoever asks for the effect itself is told the same: a command that the registrar takes, and no other one.
    for words in [run("k", &[], "true"), plain(run("k", &[], "true"))] {
        let retry = home.cli(&words);
        assert_eq!(retry.code, 1, "{retry:?}");
        assert!(retry.stderr.contains("not made up for"), "{retry:?}");
        for word in [
            "--resolve=done --agent tester`",
            "--resolve=again --agent tester -- COMMAND`",
        ] {
            assert!(retry.stderr.contains(word), "{retry:?}");
        }
        assert!(
            !retry.stderr.contains("compensate k -- COMMAND"),
            "{retry:?}"
        );
    }
    let shown = home.cli(&["effect", "status", "k"]).ok().stdout;
    assert!(shown.contains("--resolve=again"), "{shown}");
    assert!(shown.contains("-- COMMAND`"), "{shown}");
    let agent = home.cli_as("planner", &["effect", "compensate", "k", "--resolve=done"]);
    assert_eq!(agent.code, 6, "{agent:?}");
    assert_eq!(make_up("--resolve=again").code, 1);
    assert_eq!(
        status(&home, "k").json()["compensation"]["exit_code"],
        7,
        "the last one is told"
    );
    let done = home
        .cli(&["effect", "compensate", "k", "--resolve=done", "--json"])
        .ok();
    assert_eq!(text(&done.json(), "status"), "compensated");
    assert_eq!(done.json()["compensation"]["done"], true);
}

/// Nothing is made up for by a command that was not given; and what a person has mended by hand has no exit code.
#[test]
fn rg_13_a_compensation_without_a_command_is_a_persons_word_and_nothing_else() {
    let home = Home::new();
    let _daemon = home.up();
    failed(&home, "k");
    for bare in [
        &["effect", "compensate", "k"][..],
        &["effect", "compensate", "k", "--resolve=again"],
    ] {
        let refused = home.cli(bare);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains("-- COMMAND"), "{refused:?}");
    }
    let stands = status(&home, "k").ok().json();
    assert_eq!(text(&stands, "status"), "verify_failed");
    let by_hand = ["effect", "compensate", "k", "--resolve=done", "--json"];
    let agent = home.cli_as("planner", &by_hand);
    assert_eq!(agent.code, 6, "{agent:?}");
    let done = home.cli(&by_hand).ok().json();
    assert_eq!(text(&done, "status"), "compensated");
    assert_eq!(
        (
            &done["compensation"]["done"],
            &done["compensation"]["exit_code"]
        ),
        (&serde_json::json!(true), &serde_json::Value::Null)
    );
    let story = home.cli(&["explain", "effect:k"]).ok().stdout;
    assert!(story.contains("a person says that it"), "{story}");
    // Who comes with a command afterwards is told that it was not run.
    let side = home.path().with_file_name("side");
    let script = format!("echo x > {}", side.display());
    let late = home.cli(&["effect", "compensate", "k", "--", "/bin/sh", "-c", &script]);
    assert!(late.stderr.contains("nothing was run"), "{late:?}");
    assert!(!side.exists());
}

#[test]
fn who_may_not_compensate_is_told_whose_word_is_missing() {
    let home = Home::new();
    let _daemon = home.up();
    let asked = request(&home, "k");
    let granted = home
        .cli(&["effect", "approve", text(&asked, "request_id"), "--json"])
        .ok()
        .json();
    let options = ["--verify", "false", "--nonce", text(&granted, "nonce")];
    let ran = home.cli_as("planner", &run("k", &options, "true"));
    assert_eq!(text(&ran.json(), "status"), "verify_failed");
    let bare = ["effect", "compensate", "k", "--json", "--", "true"];
    let agent = home.cli_as("planner", &bare);
    assert_eq!(
        (agent.code, text(&agent.json(), "code")),
        (6, "APPROVAL_NEEDED")
    );
    let id = status(&home, "k").json();
    let command = format!(
        "heddle effect approve {} --compensation",
        text(&id, "request_id")
    );
    assert!(agent.stderr.contains(&command), "{agent:?}");
    assert!(!agent.stderr.contains("the key is still free"), "{agent:?}");
    let nonce = home
        .cli(&[
            "effect",
            "approve",
            text(&id, "request_id"),
            "--compensation",
            "--json",
        ])
        .ok()
        .json();
    let nonce = text(&nonce, "nonce");
    let make_up = ["effect", "compensate", "k", "--nonce", nonce, "--json"];
    let make_up = [&make_up[..], &["--", "true"]].concat();
    // RP-04: it is good for whose effect it is, and says so to everybody else.
    let stolen = home.cli_as("worker", &make_up);
    assert_eq!(
        (stolen.code, text(&stolen.json(), "code")),
        (6, "NONCE_UNBOUND")
    );
    assert!(stolen.stderr.contains("planner"), "{stolen:?}");
    // That it is mended is the word of who may approve; a refusal uses up nothing.
    let mended = [
        "effect",
        "compensate",
        "k",
        "--nonce",
        nonce,
        "--resolve=done",
    ];
    let refused = home.cli_as("planner", &mended);
    assert_eq!(refused.code, 6, "{refused:?}");
    let stands = status(&home, "k").json();
    assert_eq!(text(&stands, "status"), "verify_failed");
    home.cli_as("planner", &make_up).ok();
}

#[test]
fn a_verdict_stands_and_another_one_is_refused() {
    let home = Home::new();
    let _daemon = home.up();
    home.cli(&run("k", &[], "true")).ok();
    let late = home.cli(&["effect", "verify", "k", "--fail", "--json"]);
    assert_eq!(
        (late.code, text(&late.json(), "code")),
        (3, "EFFECT_STEP_REFUSED"),
        "{late:?}"
    );
    assert!(late.stderr.contains("closed"), "{late:?}");
    home.cli(&["effect", "verify", "k", "--pass", "--json"])
        .ok();
    failed(&home, "bad");
    let pass = home.cli(&["effect", "verify", "bad", "--pass", "--json"]);
    assert_eq!(pass.code, 3, "{pass:?}");
    // What was never registered has nothing to verify, and no verifier is run for it.
    let side = home.path().with_file_name("side");
    let touch = format!("touch {}", side.display());
    request(&home, "asked");
    let early = home.cli(&["effect", "verify", "asked", "--command", &touch, "--json"]);
    assert_eq!((early.code, side.exists()), (4, false), "{early:?}");
}

#[test]
fn what_was_registered_with_a_verifier_is_not_closed_without_one() {
    let home = Home::new();
    let daemon = home.up();
    // Killed before its verdict: registered with a verifier, run, and told of by hand.
    let body = serde_json::json!({"key": "k", "op": "migrate", "target": "prod",
        "verify": {"command": "grep ok /page", "url": null, "later": false}});
    let registered = daemon.http.post("/v1/effect/register", &body).expect(200);
    let attempt = text(&registered, "attempt_id");
    for (verb, end) in [("start", false), ("finish", true)] {
        let mut body = serde_json::json!({"key": "k", "attempt_id": attempt});
        if end {
            body["exit_code"] = 0.into();
        }
        let target = format!("/v1/effect/{verb}");
        daemon.http.post(&target, &body).expect(200);
    }
    let retried = home.cli(&run("k", &[], "true"));
    assert_eq!(
        (retried.code, text(&retried.json(), "status")),
        (3, "finished"),
        "{retried:?}"
    );
    assert!(retried.stderr.contains("grep ok /page"), "{retried:?}");
    assert!(retried.json()["verified"].is_null());
    // Nor with another one than its own; a person's verdict is another matter.
    let other = home.cli(&run("k", &["--verify", "true"], "true"));
    assert_eq!(
        (other.code, text(&other.json(), "status")),
        (3, "finished"),
        "{other:?}"
    );
    assert!(other.stderr.contains("grep ok /page"), "{other:?}");
    let verdict = home
        .cli(&["effect", "verify", "k", "--pass", "--json"])
        .ok();
    assert_eq!(text(&verdict.json(), "status"), "closed");
    // The same of one that left its verdict to somebody.
    home.cli(&run("later", &["--verify-later"], "true")).ok();
    let retried = home.cli(&run("later", &[], "true")).ok();
    assert_eq!(text(&retried.json(), "status"), "finished", "{retried:?}");
}

#[test]
fn who_waited_in_vain_is_told_so_with_a_conflict() {
    let home = Home::new();
    let _daemon = home.up();
    let (begun, end) = (home.path().join("begun"), home.path().join("end"));
    let script = format!(
        "touch {}; for i in $(seq 600); do [ -e {} ] && break; sleep 0.05; done",
        begun.display(),
        end.display()
    );
    let args = run("k", &[], &script);
    let mut first = home.command(&args).stdout(Stdio::null()).spawn().unwrap();
    wait_until("it runs", || begun.exists());
    let waited = home.cli(&run("k", &["--wait", "1s"], &script));
    assert_eq!(
        (waited.code, text(&waited.json(), "status")),
        (3, "running"),
        "{waited:?}"
    );
    std::fs::write(&end, "").unwrap();
    assert!(first.wait().unwrap().success());
}

#[test]
fn a_retry_shows_both_streams_and_what_was_cut() {
    let home = Home::new();
    let _daemon = home.up();
    let script = "echo out; echo warned >&2";
    home.cli(&plain(run("k", &[], script))).ok();
    let again = home.cli(&plain(run("k", &[], script))).ok();
    assert!(again.stdout.contains("out\n"), "{again:?}");
    assert!(again.stderr.contains("warned\n"), "{again:?}");
    let shown = home.cli(&["effect", "status", "k"]).ok();
    assert!(shown.stdout.contains("warned\n"), "{shown:?}");
    assert!(!shown.stdout.contains("cut after"), "{shown:?}");
    let flood = "head -c 100000 /dev/zero | tr '\\0' x";
    for told in [
        home.cli(&plain(run("flood", &[], flood))).ok(),
        home.cli(&plain(run("flood", &[], flood))).ok(),
    ] {
        assert!(
            told.stderr.contains("cut after 65536 bytes"),
            "{}",
            told.stderr
        );
    }
    let shown = home.cli(&["effect", "status", "flood"]).ok();
    assert!(shown.stdout.contains("cut after 65536 bytes"));
}

#[test]
fn rg_17_every_trigger_and_index_that_is_missing_is_named() {
    let home = Home::new();
    let daemon = home.up();
    let connection = rusqlite::Connection::open(home.path().join("effects.db")).unwrap();
    let made: Vec<[String; 3]> = connection
        .prepare(
            "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND type <> 'table'",
        )
        .unwrap()
        .query_map([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(
        made.iter()
            .any(|[_, name, _]| name == "effect_consume_once")
    );
    for [kind, name, sql] in &made {
        let drop = format!("DROP {kind} {name}");
        connection.execute(&drop, []).unwrap();
        let checked = home.cli(&["effect", "surface-check"]);
        assert_eq!(checked.code, 1, "{name}: {checked:?}");
        assert!(checked.stderr.contains(name), "{name}: {checked:?}");
        connection.execute(sql, []).unwrap();
    }
    home.cli(&["effect", "surface-check"]).ok();
    // One of the same name that does nothing is not it.
    connection
        .execute_batch(
            "DROP TRIGGER effect_consume_once;
             CREATE TRIGGER effect_consume_once BEFORE INSERT ON effect_consume BEGIN SELECT 1; END",
        )
        .unwrap();
    daemon.stop();
    let unfit = home.try_up().err().expect("an unfit store");
    assert!(unfit.stderr.contains("effect_consume_once"), "{unfit:?}");
}
