//! A home with hooks: their scripts and policy, their audit, and what they were told.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Daemon, Home, wait_until};

/// A home with these hooks and their policy; scripts write into the folder `out` of the home.
pub struct Yard {
    pub home: Home,
}

impl Yard {
    pub fn new(policy: &str) -> Self {
        let yard = Self { home: Home::new() };
        std::fs::create_dir_all(yard.hooks()).unwrap();
        std::fs::create_dir_all(yard.out("")).unwrap();
        std::fs::write(yard.home.path().join("hooks.toml"), policy).unwrap();
        set_mode(&yard.home.path().join("hooks.toml"), 0o600);
        set_mode(&yard.hooks(), 0o700);
        yard
    }

    pub fn hooks(&self) -> PathBuf {
        self.home.path().join("hooks")
    }

    pub fn out(&self, name: &str) -> PathBuf {
        self.home.path().join("out").join(name)
    }

    /// `OUT` in the script is the folder that it writes to.
    pub fn script(&self, hook: &str, script: &str) -> PathBuf {
        let path = self.hooks().join(hook);
        let out = self.home.path().join("out");
        let script = script.replace("OUT", out.to_str().unwrap());
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        set_mode(&path, 0o700);
        path
    }

    pub fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.out(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub fn audit(&self) -> Vec<Value> {
        let path = self.home.path().join("logs/hooks.jsonl");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let whole = text.split_inclusive('\n').filter(|l| l.ends_with('\n'));
        whole.map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    #[track_caller]
    pub fn wait_audit(&self, count: usize) -> Vec<Value> {
        wait_until(&format!("{count} lines of audit"), || {
            self.audit().len() >= count
        });
        self.audit()
    }

    /// Waits until so many runs are paid in the table: a line of audit comes a moment earlier.
    #[track_caller]
    pub fn wait_paid(&self, count: i64) {
        let home = rusqlite::Connection::open(self.home.path().join("data.db")).unwrap();
        let sql = "SELECT count(*) FROM inbox_hook WHERE state = 'done' OR state = 'failed'";
        wait_until(&format!("{count} paid runs"), || {
            home.query_row(sql, [], |row| row.get::<_, i64>(0))
                .is_ok_and(|paid| paid == count)
        });
    }

    /// Waits until the run for the first message has ended.
    #[track_caller]
    pub fn wait_first_ended(&self) {
        wait_until("the end of the first run", || {
            self.audit().iter().any(|line| line["event_id"] == "1")
        });
    }

    pub fn release(&self) {
        std::fs::write(self.out("go"), "").unwrap();
    }
}

/// Waits in a script until the test says `release`.
pub const WAIT: &str = "while [ -d OUT ] && [ ! -e OUT/go ]; do sleep 0.02; done";

/// Notes in a script for which message it runs. Not the arrival: a delivery that comes again after a
/// crash may use one up.
pub const NOTE: &str =
    r#"sed 's/.*"client_message_id":"\([^"]*\)".*/\1/' >> OUT/ran; echo >> OUT/ran"#;

pub fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

pub fn send(daemon: &Daemon, id: &str, text: &str) {
    let body = json!({"to": "@tester", "message": text, "client_message_id": id});
    daemon.http.post("/v1/send", &body).expect(202);
}

pub fn received(daemon: &Daemon, count: usize) {
    wait_until("the messages", || {
        let page = daemon.http.get("/v1/inbox?all=true").expect(200);
        page["items"].as_array().unwrap().len() == count
    });
}

pub fn ids(daemon: &Daemon) -> Vec<String> {
    let page = daemon.http.get("/v1/inbox?all=true").expect(200);
    let items = page["items"].as_array().unwrap();
    let id = |item: &Value| item["id"].as_str().unwrap().to_owned();
    items.iter().map(id).collect()
}

pub fn is_alive(pid: &str) -> bool {
    // A zombie has ended.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().starts_with(" Z"))
}
