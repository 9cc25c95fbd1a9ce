//! What fresh eyes found: full disks under the log, lost files, stopped processes, odd requests.
#![allow(clippy::disallowed_methods, reason = "tests read the real clock")]

use crate::support;

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use support::{Daemon, Home, wait_until, wait_until_within};

fn send(daemon: &Daemon, id: &str) {
    let body = json!({"to": "@tester", "message": id, "client_message_id": id});
    daemon.http.post("/v1/send", &body).expect(202);
}

fn bodies(daemon: &Daemon) -> Vec<String> {
    let page = daemon.http.get("/v1/inbox?limit=500").expect(200);
    let items = page["items"].as_array().unwrap().iter();
    items
        .map(|item| item["body"].as_str().unwrap().to_owned())
        .collect()
}

fn stop(mut daemon: Daemon) {
    daemon.terminate();
    assert_eq!(daemon.wait(Duration::from_secs(12)), Some(0));
}

#[test]
fn lf_16_nothing_is_lost_when_the_brokers_file_is_gone_or_older() {
    let home = Home::new();
    let daemon = home.up();
    send(&daemon, "old-1");
    wait_until("the first message", || bodies(&daemon).len() == 1);
    stop(daemon);
    let broker = home.path().join("broker.db");
    let backup = std::fs::read(&broker).unwrap();
    let daemon = home.up();
    for n in 2..=5 {
        send(&daemon, &format!("old-{n}"));
    }
    wait_until("five messages", || bodies(&daemon).len() == 5);
    stop(daemon);

    std::fs::write(&broker, backup).unwrap();
    let daemon = home.up();
    for n in 0..6 {
        send(&daemon, &format!("restored-{n}"));
    }
    wait_until("those behind the restored file", || {
        bodies(&daemon).len() == 11
    });
    stop(daemon);

    std::fs::remove_file(&broker).unwrap();
    let daemon = home.up();
    for n in 0..7 {
        send(&daemon, &format!("fresh-{n}"));
    }
    wait_until("those behind the lost file", || bodies(&daemon).len() == 18);
    let mut all = bodies(&daemon);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 18);
}

#[test]
fn a_store_that_was_lost_is_not_taken_for_a_new_home() {
    let home = Home::new();
    let daemon = home.up();
    send(&daemon, "one");
    stop(daemon);
    std::fs::write(home.path().join("data.db"), b"").unwrap();
    let ran = home.cli(&["up"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.stderr.contains("data.db is missing or empty"),
        "{ran:?}"
    );
}

#[test]
fn a_young_store_whose_log_was_lost_is_not_taken_for_a_new_home() {
    let home = Home::new();
    let daemon = home.up();
    send(&daemon, "one");
    daemon.kill();
    // Nothing was moved out of the log yet: the file itself has no table.
    for name in ["data.db-wal", "data.db-shm"] {
        std::fs::remove_file(home.path().join(name)).unwrap();
    }
    let ran = home.cli(&["up"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.stderr.contains("data.db is missing or empty"),
        "{ran:?}"
    );
}

#[test]
fn after_down_every_log_is_in_its_file() {
    for _ in 0..5 {
        let home = Home::new();
        home.cli(&["up", "--detach"]).ok();
        home.cli(&["send", "@tester", "hello"]);
        home.cli(&["down"]).ok();
        for file in std::fs::read_dir(home.path()).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            assert!(!name.ends_with("-wal"), "{name} is still there");
        }
    }
}

#[test]
fn l_27_a_log_that_cannot_be_written_takes_nothing_along() {
    let home = Home::new();
    // /dev/full refuses every byte, as a full disk does.
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut child = home
        .command(&["up"])
        .env("HEDDLE_LOG", "trace")
        .stdout(std::process::Stdio::null())
        .stderr(full)
        .spawn()
        .unwrap();
    wait_until("the daemon", || {
        home.cli(&["status", "--json"]).json()["connected"] == true
    });
    home.cli(&["send", "@tester", "hello", "--wait"]).ok();
    wait_until("the message", || {
        home.cli(&["inbox", "--json"]).ok().json()["items"][0]["body"] == "hello"
    });
    home.cli(&["down"]).ok();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_large_float_in_meta_travels_unchanged() {
    let home = Home::new();
    let daemon = home.up();
    for number in [
        "1e16",
        "1e20",
        "9007199254740992.0",
        "1e21",
        "-1e300",
        "0.1",
    ] {
        let body = format!(
            r#"{{"to":"@tester","message":"{number}","client_message_id":"n{number}","meta":{{"n":{number}}}}}"#
        );
        daemon.http.post_with("/v1/send", &[], &body).expect(202);
        wait_until(number, || {
            let row: Value = daemon
                .http
                .get(&format!("/v1/outbox/n{number}"))
                .expect(200);
            assert_ne!(row["status"], "dead", "{row}");
            row["status"] == "done"
        });
        daemon.http.post_with("/v1/send", &[], &body).expect(200);
    }
    wait_until("all of them", || bodies(&daemon).len() == 6);
    let page = daemon.http.get("/v1/inbox").expect(200);
    for item in page["items"].as_array().unwrap() {
        let sent: f64 = item["body"].as_str().unwrap().parse().unwrap();
        let got = item["meta"]["n"].as_f64().unwrap();
        assert!((sent - got).abs() <= 0.0, "{item}");
    }
}

#[test]
fn an_array_is_no_request() {
    let home = Home::new();
    let daemon = home.up();
    for (path, body) in [
        ("/v1/send", r#"["@tester","m"]"#),
        ("/v1/topic/create", r#"["t"]"#),
        ("/v1/agent/register", r#"["a"]"#),
        ("/v1/inbox/ack", r#"[["1"],null]"#),
        ("/v1/send", "null"),
    ] {
        let answer = daemon.http.post_with(path, &[], body);
        assert_eq!(answer.expect(400)["code"], "invalid_request", "{path}");
    }
}

#[test]
fn l_19_a_stopped_daemon_is_reported_in_time_and_goes_on_when_woken() {
    let home = Home::new();
    let daemon = home.up();
    let pid = Pid::from_child(&daemon.child);
    kill_process(pid, Signal::STOP).unwrap();
    let start = Instant::now();
    let ran = home.cli(&["status"]);
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(
        ran.stderr.contains("does not answer") && ran.stderr.contains("next:"),
        "{ran:?}"
    );
    assert!(start.elapsed() < Duration::from_secs(10));
    home.cli(&["send", "@tester", "m", "--wait"]).ok();
}

/// The kernel releases the lock of a killed process a moment after its death. Here the test holds
/// the lock, and lets go when the starting process has been seen to try.
#[test]
fn up_works_right_after_a_kill() {
    for args in [&["up", "--json"][..], &["up", "--detach", "--json"]] {
        let home = Home::new();
        std::fs::create_dir_all(home.path()).unwrap();
        let path = home.path().join("heddle.lock");
        std::fs::write(&path, r#"{"pid":1,"since":"then"}"#).unwrap();
        let lock = std::fs::File::open(&path).unwrap();
        lock.lock().unwrap();
        let opens = Opens::of(&path);
        let child = home
            .command(args)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // In the foreground it keeps the file open and asks again and again; detached it opens it
        // for every look, and the third is one that only a patient process makes.
        let tries = if args.contains(&"--detach") { 3 } else { 1 };
        let mut child = Killed(child);
        wait_until("the process to try", || {
            let ended = child.0.try_wait().unwrap();
            assert!(ended.is_none(), "{args:?} gave up at once: {ended:?}");
            opens.count() >= tries && is_asking(&child.0, &path, args)
        });
        lock.unlock().unwrap();
        wait_until("the daemon", || {
            home.cli(&["status", "--json"]).json()["running"] == true
        });
        home.cli(&["down"]).ok();
    }
}

/// A process in the foreground that has not given up still has the file open.
fn is_asking(child: &std::process::Child, path: &std::path::Path, args: &[&str]) -> bool {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", child.id()));
    let mut open = descriptors.into_iter().flatten().flatten();
    args.contains(&"--detach")
        || open.any(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == path))
}

/// Counts how often a file is opened.
struct Opens {
    inotify: rustix::fd::OwnedFd,
    seen: std::cell::Cell<usize>,
}

impl Opens {
    fn of(path: &std::path::Path) -> Self {
        use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
        let inotify = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        add_watch(&inotify, path, WatchFlags::OPEN).unwrap();
        Self {
            inotify,
            seen: std::cell::Cell::new(0),
        }
    }

    fn count(&self) -> usize {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = rustix::fs::inotify::Reader::new(&self.inotify, &mut buffer);
        while reader.next().is_ok() {
            self.seen.set(self.seen.get() + 1);
        }
        self.seen.get()
    }
}

/// A child that does not outlive its test.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// With few descriptors, idle callers wait before the door; the daemon keeps enough for itself and
/// never runs into the system's limit.
#[test]
fn l_14_idle_connections_cannot_lock_everybody_out() {
    let home = Home::new();
    let mut command = std::process::Command::new("/bin/sh");
    command
        .args(["-c", "ulimit -n 64; exec \"$0\" up"])
        .arg(support::BINARY)
        .env_clear()
        .env("HEDDLE_HOME", home.path())
        .env("USER", "tester")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let child = Killed(command.spawn().unwrap());
    wait_until("the daemon", || {
        home.cli(&["status", "--json"]).json()["running"] == true
    });
    let descriptors = || {
        let folder = format!("/proc/{}/fd", child.0.id());
        std::fs::read_dir(folder).unwrap().count()
    };
    let before = descriptors();
    let socket = home.path().join("daemon.sock");
    // With what the daemon itself holds more than there are descriptors, and few enough that whoever comes after them waits for
    // two rounds of time-outs.
    let idle: Vec<_> = (0..14)
        .map(|_| std::os::unix::net::UnixStream::connect(&socket).unwrap())
        .collect();
    wait_until("the door to be full", || descriptors() > before + 4);
    let mut most = 0;
    wait_until_within(
        Duration::from_secs(40),
        "an answer among idle connections",
        || {
            most = most.max(descriptors());
            home.cli(&["status"]).code == 0
        },
    );
    assert!(most < 60, "{most} of 64 descriptors were in use");
    drop(idle);
    home.cli(&["send", "@tester", "m", "--wait"]).ok();
    let page = support::Http::new(&home.path()).get("/v1/metrics").body;
    assert!(
        page.contains("\nheddle_ipc_accept_errors_total 0\n"),
        "the daemon ran out of descriptors: {page}"
    );
    home.cli(&["down"]).ok();
}

/// A stop ends open streams by itself, cleanly, instead of waiting for them and then cutting them off.
#[test]
fn l_29_open_event_streams_do_not_hold_up_a_stop() {
    use std::io::{Read, Write};
    let home = Home::new();
    let mut daemon = home.up();
    let streams: Vec<_> = (0..32)
        .map(|_| {
            let mut stream = std::os::unix::net::UnixStream::connect(daemon.http.socket()).unwrap();
            stream
                .write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
                .unwrap();
            let mut head = [0; 12];
            stream.read_exact(&mut head).unwrap();
            stream
        })
        .collect();
    daemon.terminate();
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    for mut stream in streams {
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert!(rest.ends_with("0\r\n\r\n"), "cut off: {rest:?}");
    }
    let words = home.cli(&["logs"]).ok().stdout;
    assert!(!words.contains("not everything ended in time"), "{words}");
}

#[test]
fn t_41_ids_and_folders_do_not_drive_the_terminal_either() {
    let home = Home::new();
    let _daemon = home.up();
    let ran = home
        .cli(&["send", "@tester", "x", "--id", "\u{202e}\u{2066}\u{2028}id"])
        .ok();
    assert!(
        !ran.stdout.contains(['\u{202e}', '\u{2066}', '\u{2028}']),
        "{ran:?}"
    );
    let ran = home.cli(&["--home", "/tmp/\u{1b}[31mred", "status"]).ok();
    assert!(!ran.stdout.contains('\u{1b}'), "{ran:?}");
}
