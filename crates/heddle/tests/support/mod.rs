//! Drives the real binary in a sealed home: start, stop, kill, ask over HTTP and over the CLI.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "each suite uses its own part of it"
)]
#![allow(clippy::disallowed_methods, reason = "tests wait on the real clock")]

pub mod balancer;
pub mod broker_process;
pub mod cut_proxy;
pub mod data;
pub mod door;
pub mod effect_file;
pub mod effect_pair;
pub mod effect_proxy;
pub mod effect_side;
pub mod effect_verbs;
pub mod embedding_server;
pub mod files;
pub mod gate_proxy;
pub mod hooks;
pub mod http;
pub mod inbox;
pub mod ledger;
pub mod lossy_proxy;
pub mod mcp;
pub mod outbox;
pub mod pasted;
pub mod pushing_broker;
pub mod queue;
pub mod repository;
pub mod servers;
pub mod side;
pub mod small_disk;
pub mod sse;
pub mod stub_broker;
pub mod team_broker;
pub mod vectors;

use std::io::{BufRead, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub use http::{Answer, Http};

pub const BINARY: &str = env!("CARGO_BIN_EXE_heddle");

/// A home in a temporary folder. Nothing of the caller's environment reaches the binary.
pub struct Home {
    folder: TempDir,
}

impl Home {
    pub fn new() -> Self {
        Self {
            folder: tempfile::Builder::new().prefix("hdl").tempdir().unwrap(),
        }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub fn config(&self, text: &str) {
        std::fs::create_dir_all(self.path()).unwrap();
        std::fs::write(self.path().join("config.toml"), text).unwrap();
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command
            .args(args)
            .env_clear()
            .env("HEDDLE_HOME", self.path())
            .env("USER", "tester")
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null());
        command
    }

    /// Runs a verb to its end.
    pub fn cli(&self, args: &[&str]) -> Ran {
        Ran::from(self.command(args).output().unwrap())
    }

    /// The same with a line on standard input, as a careful person gives a link.
    pub fn cli_told(&self, args: &[&str], line: &str) -> Ran {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin, "{line}").unwrap();
        drop(stdin);
        Ran::from(child.wait_with_output().unwrap())
    }

    pub fn cli_as(&self, agent: &str, args: &[&str]) -> Ran {
        Ran::from(
            self.command(args)
                .env("HEDDLE_AGENT", agent)
                .output()
                .unwrap(),
        )
    }

    /// Starts `heddle up` and waits until it says that it is ready.
    pub fn up(&self) -> Daemon {
        self.try_up()
            .unwrap_or_else(|ran| panic!("up failed: {ran:?}"))
    }

    pub fn try_up(&self) -> Result<Daemon, Ran> {
        self.try_up_by(self.command(&["up", "--json"]))
    }

    /// The same by a command that becomes it.
    pub fn try_up_by(&self, mut command: Command) -> Result<Daemon, Ran> {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        match serde_json::from_str::<Value>(&line) {
            Ok(ready) if ready.get("pid").is_some() => {
                let stderr = child.stderr.take().unwrap();
                Ok(Daemon {
                    http: Http::new(&self.path()),
                    log: collect(stderr),
                    child,
                    ready,
                })
            }
            _ => {
                let mut stderr = String::new();
                let _ = child.stderr.take().unwrap().read_to_string(&mut stderr);
                let status = child.wait().unwrap();
                Err(Ran {
                    code: status.code().unwrap_or(-1),
                    stdout: line,
                    stderr,
                })
            }
        }
    }
}

/// A pipe that nobody reads would stop the daemon; keep what it says for failed tests.
fn collect(mut stderr: impl Read + Send + 'static) -> std::sync::Arc<std::sync::Mutex<String>> {
    let log = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let sink = std::sync::Arc::clone(&log);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read) = stderr.read(&mut buffer) {
            if read == 0 {
                break;
            }
            sink.lock()
                .unwrap()
                .push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    });
    log
}

/// A running daemon; killed, with its own process id, when dropped.
pub struct Daemon {
    pub child: Child,
    pub ready: Value,
    pub http: Http,
    log: std::sync::Arc<std::sync::Mutex<String>>,
}

impl Daemon {
    /// What it has said so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until it has said this.
    pub fn wait_log(&self, text: &str) {
        wait_until(&format!("the log to say {text:?}"), || {
            self.log().contains(text)
        });
    }

    /// SIGKILL, at once.
    /// Ends it as Ctrl-C does, and waits for that.
    pub fn stop(mut self) {
        self.terminate();
        assert_eq!(self.wait(Duration::from_secs(15)), Some(0));
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end; its exit code.
    pub fn wait(&mut self, at_most: Duration) -> Option<i32> {
        let mut code = None;
        wait_until_within(at_most, "the daemon to end", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        code.and_then(|status| status.code())
    }

    pub fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.child.try_wait().ok().flatten().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A verb that ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

#[track_caller]
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    wait_until_within(Duration::from_secs(20), what, condition);
}

#[track_caller]
pub fn wait_until_within(at_most: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < at_most, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn text_of(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}
