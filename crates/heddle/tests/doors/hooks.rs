//! Hooks over the real binary: what runs, once per durable row, and what does not.

use crate::support;

use serde_json::{Value, json};
use support::hooks::{NOTE, WAIT, Yard, ids, is_alive, received, send, set_mode};
use support::pushing_broker::PushingBroker;
use support::wait_until;

// --- once per durable row ------------------------------------------------------------------------

#[test]
fn in_04_a_hook_runs_for_a_durable_row_and_never_for_a_duplicate_delivery() {
    let broker = PushingBroker::start();
    let yard = Yard::new("[hook.on-message]\nenabled = true\n[hook.on-dm]\nenabled = true\n");
    yard.home.config(&broker.config());
    // The row is there, for every reader of the file, when its hook runs.
    yard.script(
        "on-message",
        "echo $HEDDLE_EVENT_ID >> OUT/message\nexec python3 -c \"
import os, sqlite3
home = sqlite3.connect('file:../data.db?mode=ro', uri=True)
rows = home.execute('SELECT count(*) FROM inbox WHERE arrival = ?', [os.environ['HEDDLE_EVENT_ID']])
open('OUT/seen', 'a').write(str(rows.fetchone()[0]) + chr(10))\"",
    );
    yard.script("on-dm", "cat >> OUT/dm; echo >> OUT/dm");
    let daemon = yard.home.up();
    broker.deliver("1.1", "a", "tester", "first");
    yard.wait_audit(2);
    // Pushed again under the same and under another place of the history: one message.
    broker.deliver("1.1", "a", "tester", "first");
    broker.deliver("1.2", "a", "tester", "first");
    broker.deliver("1.3", "b", "tester", "second");
    let audit = yard.wait_audit(4);
    assert_eq!(yard.lines("message"), ids(&daemon));
    assert_eq!(yard.lines("message").len(), 2);
    let dms: Vec<Value> = yard
        .lines("dm")
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(dms.len(), 2);
    assert_eq!(dms[0]["body"], "first");
    assert_eq!(dms[0]["event"], "message");
    assert_eq!(dms[0]["hook"], "on-dm");
    assert_eq!(dms[0]["attempt"], 1);
    assert!(
        audit.iter().all(|line| line["outcome"] == "ok"),
        "{audit:?}"
    );
    assert_eq!(yard.lines("seen"), ["1", "1"]);
    // Nor after a restart.
    yard.wait_paid(4);
    drop(daemon);
    let daemon = yard.home.up();
    broker.deliver("1.4", "c", "tester", "third");
    yard.wait_audit(6);
    assert_eq!(yard.lines("message"), ids(&daemon));
    assert_eq!(yard.lines("message").len(), 3);
}

#[test]
fn c45_a_hook_that_was_running_at_a_crash_runs_again_with_the_same_event_id() {
    let yard = Yard::new("[hook.on-dm]\nenabled = true\n");
    yard.script(
        "on-dm",
        &format!(
            "echo $HEDDLE_EVENT_ID $(sed 's/.*\"attempt\":\\([0-9]*\\).*/\\1/') >> OUT/ran; {WAIT}"
        ),
    );
    let daemon = yard.home.up();
    send(&daemon, "a", "one");
    wait_until("the first run", || yard.lines("ran").len() == 1);
    daemon.kill();
    let daemon = yard.home.up();
    wait_until("the second run", || yard.lines("ran").len() == 2);
    yard.release();
    yard.wait_audit(1);
    assert_eq!(yard.lines("ran"), ["1 1", "1 2"]);
    // Paid: a further crash does not bring it back.
    yard.wait_paid(1);
    daemon.kill();
    let daemon = yard.home.up();
    send(&daemon, "b", "two");
    let audit = yard.wait_audit(2);
    let ran = yard.lines("ran");
    assert_eq!(ran[..2], ["1 1", "1 2"]);
    assert!(ran.len() == 3 && ran[2].ends_with(" 1"), "{ran:?}");
    assert_eq!(audit[0]["attempt"], 2);
    assert_eq!(audit[1]["attempt"], 1);
    assert_ne!(audit[1]["event_id"], "1");
}

#[test]
fn c45_what_arrived_before_a_crash_and_was_not_planned_yet_is_not_forgotten() {
    let yard = Yard::new("[hook.on-dm]\nenabled = true\n");
    // All places are taken, so the rest is owed when the crash comes.
    yard.script(
        "on-dm",
        &format!("echo $HEDDLE_EVENT_ID >> OUT/ran; {WAIT}"),
    );
    let daemon = yard.home.up();
    for n in 0..20 {
        send(&daemon, &format!("m{n}"), "text");
    }
    received(&daemon, 20);
    daemon.kill();
    yard.release();
    let daemon = yard.home.up();
    wait_until("all of them", || {
        let ran: std::collections::BTreeSet<String> = yard.lines("ran").into_iter().collect();
        ran.len() == 20
    });
    drop(daemon);
}

#[test]
fn c45_a_stop_ends_a_running_hook_and_leaves_it_owed() {
    let yard = Yard::new("[hook.on-dm]\nenabled = true\n");
    yard.script("on-dm", &format!("echo $$ >> OUT/pid; {WAIT}"));
    let mut daemon = yard.home.up();
    send(&daemon, "a", "one");
    wait_until("the run", || yard.lines("pid").len() == 1);
    daemon.terminate();
    assert_eq!(daemon.wait(std::time::Duration::from_secs(20)), Some(0));
    assert!(!is_alive(&yard.lines("pid")[0]), "it outlived the daemon");
    assert_eq!(yard.wait_audit(1)[0]["outcome"], "stopped");
    yard.release();
    let _daemon = yard.home.up();
    let audit = yard.wait_audit(2);
    assert_eq!(audit[1]["outcome"], "ok");
    assert_eq!(audit[1]["attempt"], 2);
}

#[test]
fn c45_a_hook_that_says_no_is_not_asked_again() {
    let yard = Yard::new("[hook.on-dm]\nenabled = true\n");
    yard.script("on-dm", "echo x >> OUT/ran; echo the reason >&2; exit 3");
    let daemon = yard.home.up();
    send(&daemon, "a", "one");
    let audit = yard.wait_audit(1);
    assert_eq!(audit[0]["outcome"], "failed");
    assert_eq!(audit[0]["exit"], 3);
    daemon.wait_log("the reason");
    yard.wait_paid(1);
    drop(daemon);
    let daemon = yard.home.up();
    send(&daemon, "b", "two");
    yard.wait_audit(2);
    assert_eq!(yard.lines("ran").len(), 2);
    let metrics = daemon.http.get("/v1/metrics").body;
    assert!(
        metrics.contains("heddle_hook_runs_total{outcome=\"failed\"} 1"),
        "{metrics}"
    );
}

#[test]
fn c45_a_hook_that_cannot_be_started_is_given_up_after_three_tries() {
    let yard = Yard::new("[hook.on-dm]\nenabled = true\n");
    let program = yard.script("on-dm", "");
    std::fs::write(&program, "#!/nowhere/interpreter\n").unwrap();
    let daemon = yard.home.up();
    send(&daemon, "a", "one");
    let audit = yard.wait_audit(1);
    assert_eq!(audit[0]["outcome"], "not_started");
    daemon.wait_log("a hook could not be started");
    yard.wait_paid(1);
    drop(daemon);
    yard.script("on-dm", NOTE);
    let daemon = yard.home.up();
    send(&daemon, "b", "two");
    yard.wait_audit(2);
    assert_eq!(yard.lines("ran"), ["b"]);
}

// --- which run -----------------------------------------------------------------------------------

#[test]
fn nothing_runs_without_a_policy_and_old_mail_stays_quiet_when_there_is_one() {
    let yard = Yard::new("");
    std::fs::remove_file(yard.home.path().join("hooks.toml")).unwrap();
    let policy = |text| std::fs::write(yard.home.path().join("hooks.toml"), text).unwrap();
    yard.script("on-message", NOTE);
    let daemon = yard.home.up();
    send(&daemon, "a", "one");
    received(&daemon, 1);
    drop(daemon);
    policy("[hook.on-message]\nenabled = false\n");
    let daemon = yard.home.up();
    send(&daemon, "b", "two");
    received(&daemon, 2);
    drop(daemon);
    policy("[hook.on-message]\nenabled = true\n");
    set_mode(&yard.home.path().join("hooks.toml"), 0o600);
    let daemon = yard.home.up();
    send(&daemon, "c", "three");
    yard.wait_audit(1);
    assert_eq!(yard.lines("ran"), ["c"]);
    // Off and on again: what came meanwhile is old mail, too.
    yard.wait_paid(1);
    drop(daemon);
    std::fs::remove_file(yard.home.path().join("hooks.toml")).unwrap();
    let daemon = yard.home.up();
    send(&daemon, "d", "four");
    received(&daemon, 4);
    drop(daemon);
    policy("[hook.on-message]\nenabled = true\n");
    set_mode(&yard.home.path().join("hooks.toml"), 0o600);
    let daemon = yard.home.up();
    send(&daemon, "e", "five");
    yard.wait_audit(2);
    assert_eq!(yard.lines("ran"), ["c", "e"]);
}

#[test]
fn hooks_are_off_in_ci_and_what_is_owed_waits() {
    let yard = Yard::new("[hook.on-message]\nenabled = true\n[hook.on-startup]\nenabled = true\n");
    yard.script("on-message", NOTE);
    yard.script("on-startup", "cat >> OUT/started; echo >> OUT/started");
    let daemon = yard.home.up();
    wait_until("the first start", || !yard.lines("started").is_empty());
    drop(daemon);
    let mut ci = yard.home.command(&["up", "--json"]);
    let mut child = ci
        .env("CI", "true")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let http = support::Http::new(&yard.home.path());
    wait_until("the daemon", || {
        http.request("GET", "/v1/health", &[], "")
            .is_some_and(|answer| answer.status == 200)
    });
    let before = yard.lines("started").len();
    let body = json!({"to": "@tester", "message": "x", "client_message_id": "a"});
    http.post("/v1/send", &body).expect(202);
    wait_until("the message", || {
        let page = http.get("/v1/inbox").expect(200);
        page["items"].as_array().unwrap().len() == 1
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(yard.lines("ran"), [""; 0]);
    assert_eq!(yard.lines("started").len(), before);
    let _daemon = yard.home.up();
    wait_until("the owed run", || yard.lines("ran") == ["a"]);
    wait_until("the start", || yard.lines("started").len() > before);
}

#[test]
fn a_policy_that_is_not_understood_or_not_private_ends_the_start_in_words() {
    let yard = Yard::new("[hook.on-dm]\nenabled = true\nretry = 3\n");
    let ran = yard.home.try_up().map(drop).unwrap_err();
    assert_eq!(ran.code, 2, "{ran:?}");
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(said.contains("unknown field `retry`"), "{said}");
    assert!(said.contains("Correct hooks.toml"), "{said}");
    std::fs::write(
        yard.home.path().join("hooks.toml"),
        "[hook.on-dm]\nenabled = true\n",
    )
    .unwrap();
    set_mode(&yard.home.path().join("hooks.toml"), 0o666);
    let ran = yard.home.try_up().map(drop).unwrap_err();
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(said.contains("chmod go-w"), "{said}");
    set_mode(&yard.home.path().join("hooks.toml"), 0o600);
    drop(yard.home.up());
}

#[test]
fn a_hook_that_others_can_write_or_that_is_a_link_is_skipped_with_a_warning() {
    let yard = Yard::new("[hook.on-message]\nenabled = true\n[hook.on-dm]\nenabled = true\n");
    let open = yard.script("on-message", "echo x >> OUT/ran");
    set_mode(&open, 0o777);
    let target = yard.script("elsewhere", "echo x >> OUT/ran");
    std::os::unix::fs::symlink(&target, yard.hooks().join("on-dm")).unwrap();
    let daemon = yard.home.up();
    daemon.wait_log("a hook is skipped");
    send(&daemon, "a", "one");
    let audit = yard.wait_audit(2);
    assert!(
        audit.iter().all(|line| line["outcome"] == "refused"),
        "{audit:?}"
    );
    assert!(!yard.out("ran").exists());
    daemon.wait_log("chmod go-w");
    daemon.wait_log("a link is none");
}

#[test]
fn each_event_has_its_own_hook() {
    let broker = PushingBroker::start();
    let names = [
        "on-dm",
        "on-mention",
        "on-topic-ops",
        "on-topic-dev",
        "on-startup",
        "on-disconnect",
        "on-reconnect",
    ];
    let policy: String = names
        .iter()
        .map(|name| format!("[hook.{name}]\nenabled = true\n"))
        .collect();
    let yard = Yard::new(&policy);
    for name in names {
        yard.script(name, "echo ${0##*/} >> OUT/ran");
    }
    let daemon = yard.home.up();
    wait_until("the start", || yard.lines("ran") == ["on-startup"]);
    for topic in ["ops", "quiet"] {
        let body = json!({"topic": topic});
        daemon.http.post("/v1/topic/subscribe", &body).expect(200);
    }
    let post = |topic: &str, mentions: Value| {
        let body = json!({"topic": topic, "message": "x", "mentions": mentions});
        daemon.http.post("/v1/topic/post", &body).expect(202);
    };
    post("quiet", json!([]));
    post("ops", json!([]));
    wait_until("the post", || yard.lines("ran").len() == 2);
    post("quiet", json!(["@tester"]));
    wait_until("the mention", || yard.lines("ran").len() == 3);
    send(&daemon, "a", "one");
    wait_until("the dm", || yard.lines("ran").len() == 4);
    let expected = ["on-startup", "on-topic-ops", "on-mention", "on-dm"];
    assert_eq!(yard.lines("ran"), expected);
    drop(daemon);

    // With a broker that goes away and comes back.
    let yard = Yard::new(&policy);
    for name in names {
        yard.script(name, "echo ${0##*/} >> OUT/ran");
    }
    yard.home.config(&broker.config());
    let _daemon = yard.home.up();
    wait_until("the start", || yard.lines("ran") == ["on-startup"]);
    broker.away(true);
    wait_until("the loss", || yard.lines("ran").len() == 2);
    broker.away(false);
    wait_until("the return", || yard.lines("ran").len() == 3);
    assert_eq!(
        yard.lines("ran"),
        ["on-startup", "on-disconnect", "on-reconnect"]
    );
}
