//! NATS JetStream with dedupe by message id, every message on disk before its acknowledgement.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use super::next_id;
use crate::buffered::Buffered;
use crate::error::{BenchError, Outcome, While as _};
use crate::load::Caller;
use crate::process::{Running, bound, installed};
use crate::scratch::Scratch;

pub const HOW_TO_INSTALL: &str = "nats-server is not installed: apt-get install nats-server";
const READY_WAIT_MAX: Duration = Duration::from_secs(10);
const DEDUPE_WINDOW_NS: u64 = 120_000_000_000;

/// How a message gets to the disk before its acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    /// The server's own `sync_interval: always`.
    SyncAlways,
    /// Older than that setting: the files carry the attribute that makes each write synchronous.
    SyncAttribute,
    /// Neither worked: it acknowledges before the disk has it.
    No,
}

impl Durable {
    pub fn text(self) -> &'static str {
        match self {
            Self::SyncAlways => "sync_interval: always",
            Self::SyncAttribute => "chattr +S, as this version has no sync_interval",
            Self::No => "not durable",
        }
    }
}

pub struct Nats {
    _running: Running,
    port: u16,
    pub durable: Durable,
    payload: Vec<u8>,
}

impl Nats {
    /// `None` where it is not installed.
    pub async fn start(scratch: &Scratch, payload_bytes: usize) -> Outcome<Option<Self>> {
        let Some(program) = installed("nats-server") else {
            return Ok(None);
        };
        let port = free_port().await?;
        let config = scratch.file("nats.conf");
        let durable = configure(&program, &config, scratch, port)?;
        let mut running = Running::start(
            bound(&program)?.arg("-c").arg(&config),
            &scratch.file("nats.log"),
        )?;
        create_stream(&mut running, port).await?;
        Ok(Some(Self {
            _running: running,
            port,
            durable,
            payload: vec![b'x'; payload_bytes],
        }))
    }

    pub async fn callers(&self, count: usize) -> Outcome<Vec<NatsCaller>> {
        let mut callers = Vec::with_capacity(count);
        for _ in 0..count {
            let link = Link::open(self.port).await?;
            let payload = self.payload.clone();
            callers.push(NatsCaller { link, payload });
        }
        Ok(callers)
    }
}

async fn free_port() -> Outcome<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    Ok(listener.local_addr()?.port())
}

/// Writes the configuration with the strongest durability that this server can be given.
fn configure(program: &Path, config: &Path, scratch: &Scratch, port: u16) -> Outcome<Durable> {
    let store = scratch.folder("nats")?;
    let write = |setting: &str| {
        let store = store.display();
        let text =
            format!("listen: 127.0.0.1:{port}\njetstream {{ store_dir: \"{store}\"{setting} }}\n");
        std::fs::write(config, text)
    };
    write(", sync_interval: always")?;
    let tried = Command::new(program)
        .arg("-t")
        .arg("-c")
        .arg(config)
        .output()?;
    if tried.status.success() {
        return Ok(Durable::SyncAlways);
    }
    write("")?;
    // New files inherit the attribute from their folder.
    let marked = Command::new("chattr").arg("+S").arg(&store).output();
    Ok(match marked {
        Ok(marked) if marked.status.success() => Durable::SyncAttribute,
        _ => Durable::No,
    })
}

async fn create_stream(running: &mut Running, port: u16) -> Outcome<()> {
    let start = Instant::now();
    let mut link = loop {
        running.must_live()?;
        match Link::open(port).await {
            Ok(link) => break link,
            Err(error) if start.elapsed() > READY_WAIT_MAX => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let stream = json!({
        "name": "BENCH", "subjects": ["bench"], "storage": "file", "retention": "limits",
        "num_replicas": 1, "duplicate_window": DEDUPE_WINDOW_NS,
    })
    .to_string();
    let publish = format!(
        "PUB $JS.API.STREAM.CREATE.BENCH {} {}\r\n{stream}\r\n",
        link.inbox,
        stream.len()
    );
    link.ask(publish.as_bytes()).await.map(drop)
}

/// One connection with its own inbox for answers.
struct Link {
    wire: Buffered<TcpStream>,
    inbox: String,
}

impl Link {
    async fn open(port: u16) -> Outcome<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))
            .await
            .or_fail("connecting to NATS")?;
        stream.set_nodelay(true)?;
        let mut wire = Buffered::new(stream);
        wire.line().await?;
        let inbox = format!("_INBOX.{}", next_id());
        let hello = format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}}\r\n\
             SUB {inbox} 1\r\n"
        );
        wire.write(hello.as_bytes()).await?;
        Ok(Self { wire, inbox })
    }

    /// Publishes, and waits for an answer that names no error.
    async fn ask(&mut self, publish: &[u8]) -> Outcome<Vec<u8>> {
        self.wire.write(publish).await?;
        loop {
            let line = String::from_utf8_lossy(self.wire.line().await?).into_owned();
            if line.starts_with("MSG ") {
                let length = line.rsplit(' ').next().unwrap_or_default();
                let length: usize = length.parse().or_fail("length of a NATS message")?;
                let mut answer = self.wire.take(length + 2).await?;
                answer.truncate(length);
                if answer.windows(7).any(|part| part == b"\"error\"") {
                    let text = String::from_utf8_lossy(&answer);
                    return Err(BenchError::new(format!("NATS answered {text}")));
                }
                return Ok(answer);
            }
            match line.as_str() {
                "PING" => self.wire.write(b"PONG\r\n").await?,
                "PONG" | "+OK" => {}
                other if other.starts_with("INFO") => {}
                other => return Err(BenchError::new(format!("NATS answered {other}"))),
            }
        }
    }
}

pub struct NatsCaller {
    link: Link,
    payload: Vec<u8>,
}

impl Caller for NatsCaller {
    async fn call(&mut self) -> Outcome<()> {
        let head = format!("NATS/1.0\r\nNats-Msg-Id: {}\r\n\r\n", next_id());
        let mut publish = format!(
            "HPUB bench {} {} {}\r\n{head}",
            self.link.inbox,
            head.len(),
            head.len() + self.payload.len()
        )
        .into_bytes();
        publish.extend_from_slice(&self.payload);
        publish.extend_from_slice(b"\r\n");
        self.link.ask(&publish).await.map(drop)
    }
}
