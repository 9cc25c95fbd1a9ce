//! The product as a process of its own: `heddle up` in a home of the run, asked over its socket.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::converse::Speaker;
use crate::error::{BenchError, Outcome, While as _};
use crate::http::{self, Http};
use crate::options::Options;
use crate::process::{self, Running};

const READY_WAIT_MAX: Duration = Duration::from_secs(20);
/// A little more than the daemon's own limit for stopping.
const STOP_WAIT_MAX: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Nothing listens on the discard port of a machine without inetd.
const UNREACHABLE: &str = "[broker]\nurl = \"ws://127.0.0.1:9/\"\n";
pub const TOPIC: &str = "bench";

/// Where the binary is.
pub fn binary(options: &Options) -> Outcome<PathBuf> {
    let path = match &options.heddle {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("heddle"),
    };
    if path.is_file() {
        Ok(path)
    } else {
        Err(BenchError::new(format!(
            "{} is missing: build it first with `cargo build --release -p heddle`",
            path.display()
        )))
    }
}

/// The program with nothing of the caller's environment but the home.
pub fn command(program: &Path, home: &Path) -> Command {
    seal(Command::new(program), home)
}

/// A daemon in that home, which does not outlive us.
fn up(binary: &Path, home: &Path) -> Outcome<Command> {
    let mut command = seal(process::bound(binary)?, home);
    command.arg("up");
    Ok(command)
}

/// The same behind a tracer, which is given what to run as its last arguments.
fn traced_up(tracer: &Command, binary: &Path, home: &Path) -> Outcome<Command> {
    let inner = up(binary, home)?;
    let mut command = seal(process::bound(tracer.get_program())?, home);
    command
        .args(tracer.get_args())
        .arg(inner.get_program())
        .args(inner.get_args());
    Ok(command)
}

/// Nothing of the caller's environment but the home.
pub fn seal(mut command: Command, home: &Path) -> Command {
    command
        .env_clear()
        .env("HEDDLE_HOME", home)
        .env("USER", "bench")
        .env("PATH", "/usr/bin:/bin");
    command
}

pub struct Product {
    running: Running,
    /// The daemon's own, which differs from the child's where a tracer stands between.
    pid: u32,
    home: PathBuf,
}

impl Product {
    pub async fn start(binary: &Path, home: &Path) -> Outcome<Self> {
        Self::start_as(up(binary, home)?, home).await
    }

    pub async fn start_traced(tracer: &Command, binary: &Path, home: &Path) -> Outcome<Self> {
        Self::start_as(traced_up(tracer, binary, home)?, home).await
    }

    async fn start_as(mut up: Command, home: &Path) -> Outcome<Self> {
        let log = home.with_extension("log");
        let mut running = Running::start(&mut up, &log)?;
        let start = Instant::now();
        loop {
            running.must_live()?;
            if let Ok(status) = ask(home, &http::get("/v1/status")).await
                && let Some(pid) = status["pid"].as_u64()
            {
                let pid = u32::try_from(pid).or_fail("process id")?;
                let home = home.to_owned();
                return Ok(Self { running, pid, home });
            }
            if start.elapsed() > READY_WAIT_MAX {
                return Err(BenchError::new("heddle up did not become ready"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn socket(&self) -> PathBuf {
        socket(&self.home)
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    pub async fn get(&self, path: &str) -> Outcome<Value> {
        ask(&self.home, &http::get(path)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Outcome<Value> {
        ask(&self.home, &http::post(path, &body.to_string())).await
    }

    /// One of the daemon's own counts.
    pub async fn metric(&self, name: &str) -> Outcome<f64> {
        let mut http = Http::connect(&self.socket()).await?;
        let reply = http.ask(&http::get("/v1/metrics")).await?;
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        let found = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = found.and_then(|value| value.parse().ok());
        value.ok_or_else(|| BenchError::new(format!("the daemon has no metric {name}")))
    }

    pub async fn register(&self, agent: &str) -> Outcome<()> {
        let body = json!({ "agent": agent });
        self.post("/v1/agent/register", &body).await.map(drop)
    }

    /// Connections that send the same request over and over.
    pub fn senders(&self, count: usize, request: &[u8]) -> Outcome<Vec<Sender>> {
        senders(&self.socket(), count, request)
    }

    /// Waits until nothing is left to send; the status that says so.
    pub async fn drained(&self, patience: Duration) -> Outcome<Value> {
        let start = Instant::now();
        loop {
            let status = self.get("/v1/status").await?;
            let outbox = &status["outbox"];
            if outbox["pending"] == 0 && outbox["inflight"] == 0 {
                return Ok(status);
            }
            if start.elapsed() > patience {
                return Err(BenchError::new(format!("not drained in time: {outbox}")));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Asks it to stop and waits for that; a daemon that does not is killed.
    pub async fn stop(mut self) -> Outcome<()> {
        let asked = self.post("/v1/shutdown", &json!({})).await;
        if asked.is_err() || !self.running.ended_within(STOP_WAIT_MAX).await? {
            process::kill(self.pid);
        }
        Ok(())
    }
}

fn socket(home: &Path) -> PathBuf {
    home.join("daemon.sock")
}

async fn ask(home: &Path, request: &[u8]) -> Outcome<Value> {
    let exchange = async {
        let mut http = Http::connect(&socket(home)).await?;
        http.ask(request).await?.json()
    };
    tokio::time::timeout(READY_WAIT_MAX, exchange).await?
}

/// One kept connection that sends, and is content with a `202` only.
pub struct Sender {
    stream: UnixStream,
    request: Vec<u8>,
}

impl Speaker for Sender {
    fn stream(&self) -> &UnixStream {
        &self.stream
    }

    fn question(&mut self, text: &mut Vec<u8>) {
        text.extend_from_slice(&self.request);
    }

    fn answer(&self, bytes: &[u8]) -> Outcome<Option<usize>> {
        http::whole(bytes, 202)
    }
}

pub fn senders(socket: &Path, count: usize, request: &[u8]) -> Outcome<Vec<Sender>> {
    let mut senders = Vec::with_capacity(count);
    for _ in 0..count {
        senders.push(Sender {
            stream: UnixStream::connect(socket)
                .or_fail(&format!("connecting to {}", socket.display()))?,
            request: request.to_vec(),
        });
    }
    Ok(senders)
}

/// A send without an id of the caller's, whose body has about 200 bytes.
pub fn send_request(to: &str) -> Vec<u8> {
    let message = "the build is green again; ".repeat(6);
    http::post(
        "/v1/send",
        &json!({ "to": to, "message": message }).to_string(),
    )
}

/// Makes a home whose broker is out of reach but whose roster knows the topic, so that sends to it
/// are accepted and stay pending. Returns the bytes of a stored payload.
pub async fn prepare_offline(binary: &Path, home: &Path) -> Outcome<usize> {
    let product = Product::start(binary, home).await?;
    product
        .post("/v1/topic/create", &json!({ "topic": TOPIC }))
        .await?;
    let mut http = Http::connect(&product.socket()).await?;
    http.ask_for(&send_request(&format!("#{TOPIC}")), 202)
        .await?;
    drop(http);
    product.drained(READY_WAIT_MAX).await?;
    product.stop().await?;
    std::fs::write(home.join("config.toml"), UNREACHABLE)?;
    let database = rusqlite::Connection::open(home.join("data.db"))?;
    let sql = "SELECT length(payload) FROM outbox LIMIT 1";
    let bytes: u32 = database.query_row(sql, [], |row| row.get(0))?;
    usize::try_from(bytes).or_fail("length of a payload")
}
