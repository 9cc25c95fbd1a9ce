//! What a hook may use, over the real binary: time, processes, output, input, places, environment.

use crate::support;

use serde_json::{Value, json};
use support::hooks::{WAIT, Yard, is_alive, received, send, set_mode};
use support::wait_until;

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
