//! Hooks over the real binary: what runs and what does not, limits, crashes, tokens.
#![cfg(test)]

mod support;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::http::tcp;
use support::pushing_broker::PushingBroker;
use support::{Daemon, Home, wait_until};

/// A home with these hooks and their policy; scripts write into the folder `out` of the home.
struct Yard {
    home: Home,
}

impl Yard {
    fn new(policy: &str) -> Self {
        let yard = Self { home: Home::new() };
        std::fs::create_dir_all(yard.hooks()).unwrap();
        std::fs::create_dir_all(yard.out("")).unwrap();
        std::fs::write(yard.home.path().join("hooks.toml"), policy).unwrap();
        set_mode(&yard.home.path().join("hooks.toml"), 0o600);
        set_mode(&yard.hooks(), 0o700);
        yard
    }

    fn hooks(&self) -> PathBuf {
        self.home.path().join("hooks")
    }

    fn out(&self, name: &str) -> PathBuf {
        self.home.path().join("out").join(name)
    }

    /// `OUT` in the script is the folder that it writes to.
    fn script(&self, hook: &str, script: &str) -> PathBuf {
        let path = self.hooks().join(hook);
        let out = self.home.path().join("out");
        let script = script.replace("OUT", out.to_str().unwrap());
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        set_mode(&path, 0o700);
        path
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.out(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn audit(&self) -> Vec<Value> {
        let path = self.home.path().join("logs/hooks.jsonl");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let whole = text.split_inclusive('\n').filter(|l| l.ends_with('\n'));
        whole.map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    #[track_caller]
    fn wait_audit(&self, count: usize) -> Vec<Value> {
        wait_until(&format!("{count} lines of audit"), || {
            self.audit().len() >= count
        });
        self.audit()
    }

    /// Waits until so many runs are paid in the table: a line of audit comes a moment earlier.
    #[track_caller]
    fn wait_paid(&self, count: i64) {
        let home = rusqlite::Connection::open(self.home.path().join("data.db")).unwrap();
        let sql = "SELECT count(*) FROM inbox_hook WHERE state = 'done' OR state = 'failed'";
        wait_until(&format!("{count} paid runs"), || {
            home.query_row(sql, [], |row| row.get::<_, i64>(0))
                .is_ok_and(|paid| paid == count)
        });
    }

    /// Waits until the run for the first message has ended.
    #[track_caller]
    fn wait_first_ended(&self) {
        wait_until("the end of the first run", || {
            self.audit().iter().any(|line| line["event_id"] == "1")
        });
    }

    fn release(&self) {
        std::fs::write(self.out("go"), "").unwrap();
    }
}

/// Waits in a script until the test says `release`.
const WAIT: &str = "while [ -d OUT ] && [ ! -e OUT/go ]; do sleep 0.02; done";

/// Notes in a script for which message it runs. Not the arrival: a delivery that comes again after a
/// crash may use one up.
const NOTE: &str = r#"sed 's/.*"client_message_id":"\([^"]*\)".*/\1/' >> OUT/ran; echo >> OUT/ran"#;

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn send(daemon: &Daemon, id: &str, text: &str) {
    let body = json!({"to": "@tester", "message": text, "client_message_id": id});
    daemon.http.post("/v1/send", &body).expect(202);
}

fn received(daemon: &Daemon, count: usize) {
    wait_until("the messages", || {
        let page = daemon.http.get("/v1/inbox?all=true").expect(200);
        page["items"].as_array().unwrap().len() == count
    });
}

fn ids(daemon: &Daemon) -> Vec<String> {
    let page = daemon.http.get("/v1/inbox?all=true").expect(200);
    let items = page["items"].as_array().unwrap();
    let id = |item: &Value| item["id"].as_str().unwrap().to_owned();
    items.iter().map(id).collect()
}

fn post_with_token(daemon: &Daemon, token: &str, target: &str, body: &Value) -> (u16, String) {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let answer = daemon.http.post_with(target, &headers, &body.to_string());
    let code = answer.json()["code"].as_str().unwrap_or("").to_owned();
    (answer.status, code)
}

fn is_alive(pid: &str) -> bool {
    // A zombie has ended.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().starts_with(" Z"))
}

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

// --- limits --------------------------------------------------------------------------------------

#[test]
fn a_timeout_ends_the_whole_process_group_even_if_it_will_not_hear() {
    let yard = Yard::new("[hook.on-dm]\nenabled = true\ntimeout_seconds = 1\n");
    yard.script(
        "on-dm",
        "trap '' TERM\n(trap '' TERM; while :; do sleep 0.1; done) &\necho $$ $! > OUT/pids\nwhile :; do sleep 0.1; done",
    );
    let daemon = yard.home.up();
    send(&daemon, "a", "one");
    let audit = yard.wait_audit(1);
    assert_eq!(audit[0]["outcome"], "timed_out");
    assert_eq!(audit[0]["signal"], 9);
    let pids = yard.lines("pids").join(" ");
    for pid in pids.split(' ') {
        wait_until("the end of the group", || !is_alive(pid));
    }
}

#[test]
fn what_a_hook_leaves_in_the_background_ends_with_it() {
    let yard = Yard::new("[hook.on-dm]\nenabled = true\n");
    yard.script(
        "on-dm",
        "(while :; do sleep 0.1; done) &\necho $! > OUT/pid",
    );
    let daemon = yard.home.up();
    send(&daemon, "a", "one");
    let audit = yard.wait_audit(1);
    assert_eq!(audit[0]["outcome"], "ok", "{audit:?}");
    let pid = yard.lines("pid").remove(0);
    wait_until("the end of the rest", || !is_alive(&pid));
}

#[test]
fn a_flood_of_output_is_read_and_dropped_and_input_need_not_be_read() {
    let yard = Yard::new("[hook.on-dm]\nenabled = true\n");
    yard.script(
        "on-dm",
        "head -c 5000000 /dev/zero; head -c 1000 /dev/zero >&2",
    );
    let daemon = yard.home.up();
    // Longer than a pipe holds.
    send(&daemon, "a", &"y".repeat(200_000));
    let audit = yard.wait_audit(1);
    assert_eq!(audit[0]["outcome"], "ok", "{audit:?}");
    assert_eq!(audit[0]["output_bytes"], 5_001_000);
    assert_eq!(audit[0]["output_truncated"], true);
    assert_eq!(audit[0]["input_truncated"], false);
}

#[test]
fn a_long_event_is_cut_and_says_so() {
    let yard = Yard::new("[hook.on-dm]\nenabled = true\n");
    yard.script("on-dm", "cat > OUT/event");
    let daemon = yard.home.up();
    send(&daemon, "a", &"é".repeat(200_000));
    let audit = yard.wait_audit(1);
    assert_eq!(audit[0]["input_truncated"], true);
    let text = std::fs::read(yard.out("event")).unwrap();
    assert!(text.len() <= 256 << 10, "{}", text.len());
    let event: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(event["_truncated"], true);
    assert!(event["body"].as_str().unwrap().starts_with("éé"));
}

#[test]
fn eight_run_at_once_and_the_rest_waits() {
    let yard = Yard::new("[hook.on-dm]\nenabled = true\n");
    yard.script(
        "on-dm",
        &format!("echo $HEDDLE_EVENT_ID >> OUT/begun; {WAIT}; echo $HEDDLE_EVENT_ID >> OUT/ended"),
    );
    let daemon = yard.home.up();
    for n in 0..12 {
        send(&daemon, &format!("m{n}"), "text");
    }
    received(&daemon, 12);
    wait_until("eight", || yard.lines("begun").len() == 8);
    // A later message has been received and looked at by now, and still nothing else began.
    send(&daemon, "last", "text");
    received(&daemon, 13);
    assert_eq!(yard.lines("begun").len(), 8);
    assert!(!yard.out("ended").exists());
    yard.release();
    yard.wait_audit(13);
    assert_eq!(yard.lines("ended").len(), 13);
}

#[test]
fn the_environment_is_empty_but_for_what_is_named() {
    let yard = Yard::new("[hook.on-dm]\nenabled = true\n");
    // Not through a shell, which adds variables of its own.
    let program = yard.hooks().join("on-dm");
    std::fs::write(&program, "#!/usr/bin/python3 -IS\nimport os, sys\nopen('../out/env', 'w').write('\\n'.join(sorted(os.environ)))\nopen('../out/path', 'w').write(os.environ['PATH'])\nopen('../out/cwd', 'w').write(os.getcwd())\nopen('../out/fds', 'w').write('\\n'.join(os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{n}')))\n").unwrap();
    set_mode(&program, 0o700);
    let daemon = yard.home.up();
    send(&daemon, "a", "one");
    let audit = yard.wait_audit(1);
    assert_eq!(audit[0]["outcome"], "ok", "{audit:?}\n{}", daemon.log());
    let names = yard.lines("env");
    let expected = [
        "HEDDLE_EVENT_ID",
        "HEDDLE_HOME",
        "HEDDLE_HOOK_TOKEN",
        "HEDDLE_SOCKET",
        "PATH",
    ];
    let known: Vec<&String> = names.iter().filter(|name| *name != "LC_CTYPE").collect();
    assert_eq!(known, expected);
    assert_eq!(yard.lines("path"), ["/usr/bin:/bin"]);
    let hooks = yard.hooks().canonicalize().unwrap();
    assert_eq!(yard.lines("cwd"), [hooks.to_str().unwrap()]);
    // No file of the home is open in it but what the script itself opened.
    let home = yard.home.path().canonicalize().unwrap();
    for file in yard.lines("fds") {
        let is_ours = file.starts_with(home.to_str().unwrap());
        assert!(
            !is_ours || file.contains("/out/") || file.contains("/hooks/"),
            "{file}"
        );
    }
}

#[test]
fn what_the_policy_redacts_does_not_reach_the_hook() {
    let yard = Yard::new("[hook.on-dm]\nenabled = true\nredact = [\"meta.secret\", \"body\"]\n");
    yard.script("on-dm", "cat > OUT/event");
    let daemon = yard.home.up();
    let body = json!({"to": "@tester", "message": "hush", "meta": {"secret": {"k": "tell-nobody"}, "ticket": 7}});
    daemon.http.post("/v1/send", &body).expect(202);
    yard.wait_audit(1);
    let text = std::fs::read_to_string(yard.out("event")).unwrap();
    assert!(
        !text.contains("tell-nobody") && !text.contains("hush"),
        "{text}"
    );
    let event: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(event["meta"], json!({"secret": "[redacted]", "ticket": 7}));
}

// --- tokens --------------------------------------------------------------------------------------

fn yard_with_token(scopes: &str) -> (Yard, Daemon, String, Value) {
    let yard = Yard::new(&format!(
        "[hook.on-dm]\nenabled = true\nscopes = {scopes}\n"
    ));
    yard.script(
        "on-dm",
        &format!("[ -e OUT/event ] && exit 0\ncat > OUT/event; printf %s $HEDDLE_HOOK_TOKEN > OUT/token.new; mv OUT/token.new OUT/token; {WAIT}"),
    );
    let daemon = yard.home.up();
    for agent in ["planner", "eve"] {
        daemon
            .http
            .post("/v1/agent/register", &json!({"agent": agent}))
            .expect(200);
    }
    for topic in ["ops", "dev"] {
        daemon
            .http
            .post("/v1/topic/create", &json!({"topic": topic}))
            .expect(200);
    }
    let body = json!({"to": "@tester", "message": "do it", "agent": "planner", "client_message_id": "ask-1"});
    daemon.http.post("/v1/send", &body).expect(202);
    wait_until("the hook", || yard.out("token").exists());
    let token = yard.lines("token").remove(0);
    let event = serde_json::from_slice(&std::fs::read(yard.out("event")).unwrap()).unwrap();
    (yard, daemon, token, event)
}

#[test]
fn in_07_a_token_does_what_its_scopes_say_and_stops_with_its_process() {
    let (yard, daemon, token, event) = yard_with_token("[\"reply:event\", \"topic:ops:post\"]");
    let post = |target: &str, body: Value| post_with_token(&daemon, &token, target, &body);
    let forbidden = (403, "forbidden_scope".to_owned());
    let good =
        json!({"to": event["from"], "message": "done", "reply_to_id": event["client_message_id"]});
    assert_eq!(post("/v1/send", good.clone()).0, 202);
    let topic = json!({"topic": "ops", "message": "done"});
    assert_eq!(post("/v1/topic/post", topic.clone()).0, 202);
    for body in [
        json!({"to": "@planner", "message": "not an answer"}),
        json!({"to": "@planner", "message": "x", "reply_to_id": "another"}),
        json!({"to": "@eve", "message": "x", "reply_to_id": "ask-1"}),
        json!({"to": "@planner", "message": "x", "reply_to_id": "ask-1", "agent": "eve"}),
        json!({"to": "@planner", "message": "x", "reply_to_id": "ask-1", "mentions": ["@eve"]}),
        json!({"to": "#dev", "message": "x", "reply_to_id": "ask-1"}),
        json!({"to": "@nobody", "message": "x", "reply_to_id": "ask-1"}),
    ] {
        assert_eq!(post("/v1/send", body.clone()), forbidden, "{body}");
    }
    assert_eq!(
        post("/v1/topic/post", json!({"topic": "dev", "message": "x"})),
        forbidden
    );
    assert_eq!(
        post("/v1/agent/register", json!({"agent": "mallory"})),
        forbidden
    );
    assert_eq!(post("/v1/shutdown", json!({})), forbidden);
    let bearer = format!("Bearer {token}");
    let read = daemon
        .http
        .request("GET", "/v1/inbox", &[("authorization", &bearer)], "");
    assert_eq!(read.unwrap().status, 403);
    // The answer speaks for the mailbox that was asked.
    wait_until("the answer", || {
        let page = daemon.http.get("/v1/inbox?agent=planner").expect(200);
        page["items"][0]["from"] == "@tester/tester"
    });
    // Without a token the socket's owner may do what he may always do.
    send(&daemon, "own", "mine");

    yard.release();
    yard.wait_first_ended();
    let (status, code) = post("/v1/send", good);
    assert_eq!((status, code.as_str()), (401, "unauthorized"));
    assert_eq!(post("/v1/topic/post", topic).0, 401);
    assert_eq!(
        post_with_token(&daemon, "hhk_guess", "/v1/send", &json!({})).0,
        401
    );
    let log = daemon.log();
    assert!(!log.contains(&token), "the token is in the log");
    let audit = std::fs::read_to_string(yard.home.path().join("logs/hooks.jsonl")).unwrap();
    assert!(!audit.contains(&token), "the token is in the audit");
}

#[test]
fn in_07_over_tcp_a_token_is_as_good_and_no_better() {
    let (yard, daemon, token, event) = yard_with_token("[\"dm:send:<sender>\"]");
    let url = daemon.ready["http"].as_str().unwrap();
    let port: u16 = url.rsplit(':').next().unwrap().parse().unwrap();
    let bearer = format!("Bearer {token}");
    let ask = |method: &str, target: &str, extra: &[(&str, &str)], body: &Value| {
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend_from_slice(extra);
        tcp(port, method, target, &headers, &body.to_string())
            .unwrap()
            .status
    };
    let good = json!({"to": event["from"], "message": "x"});
    let bad = json!({"to": "@eve", "message": "x"});
    assert_eq!(ask("POST", "/v1/send", &[], &good), 202);
    assert_eq!(ask("POST", "/v1/send", &[], &bad), 403);
    assert_eq!(ask("GET", "/v1/status", &[], &json!({})), 403);
    assert_eq!(
        ask(
            "POST",
            "/v1/send",
            &[("origin", "http://evil.example")],
            &good
        ),
        403
    );
    assert_eq!(
        ask("POST", "/v1/send", &[("host", "evil.example")], &good),
        403
    );
    // In a URL it is refused, also when it is right.
    let leaked = daemon.http.get(&format!("/v1/inbox?since={token}"));
    assert_eq!(leaked.status, 400);
    assert!(!leaked.body.contains(&token), "{leaked:?}");
    yard.release();
    yard.wait_first_ended();
    assert_eq!(ask("POST", "/v1/send", &[], &good), 401);
}

#[test]
fn in_07_a_hook_without_scopes_may_send_nothing() {
    let (yard, daemon, token, event) = yard_with_token("[]");
    let body = json!({"to": event["from"], "message": "x", "reply_to_id": "ask-1"});
    assert_eq!(post_with_token(&daemon, &token, "/v1/send", &body).0, 403);
    yard.release();
    yard.wait_first_ended();
}

#[test]
fn the_example_of_the_page_answers_each_message_once() {
    let page = include_str!("../../../docs/HOOKS.md");
    let block = |begin: &str| {
        let behind = page.split(begin).nth(1).unwrap();
        behind.split("```").next().unwrap().to_owned()
    };
    let yard = Yard::new(&block("```toml\n"));
    let program = yard.hooks().join("on-dm");
    std::fs::write(&program, block("```python\n")).unwrap();
    set_mode(&program, 0o700);
    let daemon = yard.home.up();
    let register = json!({"agent": "planner"});
    daemon
        .http
        .post("/v1/agent/register", &register)
        .expect(200);
    let body = json!({"to": "@tester", "message": "do it", "agent": "planner", "client_message_id": "ask-1"});
    daemon.http.post("/v1/send", &body).expect(202);
    // The message, and then the answer to it, which is not answered.
    let audit = yard.wait_audit(2);
    assert!(
        audit.iter().all(|line| line["outcome"] == "ok"),
        "{audit:?}\n{}",
        daemon.log()
    );
    let page = daemon.http.get("/v1/inbox?agent=planner").expect(200);
    let items = page["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{page}");
    assert_eq!(items[0]["reply_to_id"], "ask-1");
    assert_eq!(items[0]["from"], "@tester/tester");
    received(&daemon, 1);
}
