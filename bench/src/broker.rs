//! `heddle broker serve` as a process of its own, and connections to it that speak its frames by hand.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::buffered::Buffered;
use crate::error::{BenchError, Outcome, While as _};
use crate::load::Caller;
use crate::peers::next_id;
use crate::process::{self, Running};
use crate::product;

const READY_WAIT_MAX: Duration = Duration::from_secs(30);
const STOP_WAIT_MAX: Duration = Duration::from_secs(20);
pub const TOPIC: &str = "bench";
/// The mailbox that gets everything; nobody is connected for it.
pub const SINK: &str = "sink";

pub struct Broker {
    running: Running,
    data: PathBuf,
    listen: String,
}

impl Broker {
    /// On a database, or on a file in its own folder.
    pub async fn start(binary: &Path, data: &Path, database: Option<&str>) -> Outcome<Self> {
        let log = data.with_extension("log");
        let mut command = product::seal(process::bound(binary)?, &data.join("home"));
        command.args([
            "broker",
            "serve",
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--data",
        ]);
        command.arg(data);
        if let Some(url) = database {
            command.args(["--database", url]);
        }
        let mut running = Running::start(&mut command, &log)?;
        let start = Instant::now();
        let listen = loop {
            running.must_live()?;
            if let Some(listen) = listen_of(&log) {
                break listen;
            }
            if start.elapsed() > READY_WAIT_MAX {
                return Err(BenchError::new("heddle broker serve did not become ready"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        Ok(Self {
            running,
            data: data.to_owned(),
            listen,
        })
    }

    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    fn token(&self, name: &str) -> Outcome<String> {
        let text = std::fs::read_to_string(self.data.join(name)).or_fail(name)?;
        Ok(text.trim().to_owned())
    }

    /// Figures of its metrics, by their names; what is not there is 0.
    pub async fn figures<const N: usize>(&self, names: [&str; N]) -> Outcome<[f64; N]> {
        let stream = TcpStream::connect(&self.listen).await?;
        let mut wire = Buffered::new(stream);
        let request = format!(
            "GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
            self.token("admin_token")?
        );
        wire.write(request.as_bytes()).await?;
        let bytes = body_bytes(&mut wire).await?;
        let body = wire.take(bytes).await?;
        let text = String::from_utf8_lossy(&body).into_owned();
        let figure = |name: &str| {
            let wanted = format!("{name} ");
            let found = text.lines().find_map(|line| line.strip_prefix(&wanted));
            found
                .and_then(|value| value.parse::<f64>().ok())
                .unwrap_or(0.0)
        };
        Ok(names.map(figure))
    }

    /// A member of the mesh with one mailbox.
    pub async fn enter(&self, mesh: &str, member: &str, agent: &str) -> Outcome<Link> {
        let stream = TcpStream::connect(&self.listen)
            .await
            .or_fail("connecting to the broker")?;
        stream.set_nodelay(true)?;
        let mut link = Link {
            wire: Buffered::new(stream),
        };
        let upgrade = format!(
            "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
             authorization: Bearer {}\r\n\r\n",
            self.token("broker_token")?
        );
        link.wire.write(upgrade.as_bytes()).await?;
        body_bytes(&mut link.wire).await?;
        link.next("challenge").await?;
        let hello = json!({
            "type": "hello", "protocol": 1, "mesh": mesh, "member": member, "member_name": format!("m{member}"),
            "agents": [agent], "seen": "0.0",
        });
        link.say(&hello.to_string()).await?;
        link.next("welcome").await?;
        Ok(link)
    }

    /// Makes the mesh with its topic and the mailbox that has subscribed; the member of that mailbox.
    pub async fn furnish(&self, mesh: &str) -> Outcome<String> {
        let member = next_id();
        let mut link = self.enter(mesh, &member, SINK).await?;
        let subscribe = json!({
            "type": "request", "request": 1, "body": {"what": "subscribe", "topic": TOPIC, "agent": SINK},
        });
        link.say(&subscribe.to_string()).await?;
        link.next("reply").await?;
        Ok(member)
    }

    /// Members that send to the topic over and over, each from its own connection.
    pub async fn senders(&self, count: usize, meshes: &[Mesh]) -> Outcome<Vec<BrokerSender>> {
        let mut senders = Vec::with_capacity(count);
        for (number, mesh) in (0..count).zip(meshes.iter().cycle()) {
            let member = format!("{}{number:04}", &next_id()[4..]);
            let link = self.enter(&mesh.id, &member, "one").await?;
            senders.push(BrokerSender {
                link,
                envelope: envelope("topic", TOPIC, Some(&mesh.sink)),
            });
        }
        Ok(senders)
    }

    /// SIGTERM, and the end.
    pub async fn stop(mut self) -> Outcome<()> {
        process::terminate(self.running.pid());
        self.running.ended_within(STOP_WAIT_MAX).await.map(drop)
    }
}

/// A mesh with the member whose mailbox gets everything.
#[derive(Debug, Clone)]
pub struct Mesh {
    pub id: String,
    pub sink: String,
}

/// What a daemon would have frozen, with about 200 bytes of text; a mention makes the fifth row.
pub fn envelope(kind: &str, reference: &str, mention: Option<&str>) -> String {
    let mut envelope = json!({
        "v": 1, "kind": "message", "destination": {"kind": kind, "ref": reference}, "priority": "next",
        "body": "the build is green again; ".repeat(6),
    });
    if let Some(member) = mention {
        envelope["mentions"] = json!([format!("{member}/{SINK}")]);
    }
    envelope.to_string()
}

fn listen_of(log: &Path) -> Option<String> {
    let said = std::fs::read_to_string(log).ok()?;
    let ready = said
        .lines()
        .find_map(|line| serde_json::from_str::<Value>(line).ok())?;
    Some(ready.get("listen")?.as_str()?.to_owned())
}

/// Reads a head; how many bytes follow.
async fn body_bytes(wire: &mut Buffered<TcpStream>) -> Outcome<usize> {
    let status = String::from_utf8_lossy(wire.line().await?).into_owned();
    if !status.contains(" 200 ") && !status.contains(" 101 ") {
        return Err(BenchError::new(format!("the broker answered {status}")));
    }
    let mut bytes = 0;
    loop {
        let line = String::from_utf8_lossy(wire.line().await?).to_lowercase();
        if line.is_empty() {
            return Ok(bytes);
        }
        if let Some(length) = line.strip_prefix("content-length:") {
            bytes = length.trim().parse().or_fail("content-length")?;
        }
    }
}

/// One connection.
pub struct Link {
    wire: Buffered<TcpStream>,
}

impl Link {
    /// One text frame under the mask of zeros, which changes nothing.
    pub async fn say(&mut self, text: &str) -> Outcome<()> {
        self.frame(0x81, text.as_bytes()).await
    }

    async fn frame(&mut self, first: u8, payload: &[u8]) -> Outcome<()> {
        let mut bytes = Vec::with_capacity(payload.len() + 14);
        bytes.push(first);
        match payload.len() {
            length @ 0..126 => bytes.push(0x80 | u8::try_from(length).or_fail("length")?),
            length @ 126..65_536 => {
                bytes.push(0x80 | 0x7e);
                bytes.extend_from_slice(&u16::try_from(length).or_fail("length")?.to_be_bytes());
            }
            length => {
                bytes.push(0x80 | 0x7f);
                bytes.extend_from_slice(&u64::try_from(length).or_fail("length")?.to_be_bytes());
            }
        }
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(payload);
        self.wire.write(&bytes).await
    }

    /// The next text of this type; rosters and the like are passed over.
    pub async fn next(&mut self, kind: &str) -> Outcome<Vec<u8>> {
        let wanted = format!("{{\"type\":\"{kind}\"");
        loop {
            let head = self.wire.take(2).await?;
            let length = match head[1] {
                126 => {
                    let bytes = self.wire.take(2).await?;
                    usize::from(u16::from_be_bytes([bytes[0], bytes[1]]))
                }
                127 => {
                    let bytes = self.wire.take(8).await?;
                    let bytes: [u8; 8] = bytes.try_into().map_err(|_| BenchError::new("length"))?;
                    usize::try_from(u64::from_be_bytes(bytes)).or_fail("length")?
                }
                length => usize::from(length),
            };
            let body = self.wire.take(length).await?;
            match head[0] & 0x0f {
                0x1 if body.starts_with(wanted.as_bytes()) => return Ok(body),
                0x8 => {
                    let why =
                        String::from_utf8_lossy(body.get(2..).unwrap_or_default()).into_owned();
                    return Err(BenchError::new(format!("the broker closed: {why}")));
                }
                0x9 => self.frame(0x8a, &body).await?,
                _ => {}
            }
        }
    }

    /// Sends one message and waits until it is committed.
    pub async fn send(&mut self, envelope: &str) -> Outcome<()> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let batch = NEXT.fetch_add(1, Ordering::Relaxed);
        let id = next_id();
        self.say(&format!(
            "{{\"type\":\"send\",\"batch\":{batch},\"items\":[{{\"agent\":\"one\",\"client_message_id\":\"{id}\",\
             \"envelope\":{envelope}}}]}}"
        ))
        .await?;
        let verdicts = self.next("verdicts").await?;
        if verdicts.windows(9).any(|part| part == b"\"created\"") {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&verdicts).into_owned();
        Err(BenchError::new(format!("the broker answered {said}")))
    }

    /// The next delivery, acknowledged.
    pub async fn receive(&mut self) -> Outcome<()> {
        let frame: Value = serde_json::from_slice(&self.next("deliver").await?)?;
        let items = frame["items"].as_array().cloned().unwrap_or_default();
        let acks: Vec<Value> = items
            .iter()
            .map(|item| json!({"history_id": item["history_id"], "agent": item["agent"]}))
            .collect();
        self.say(&json!({"type": "ack", "items": acks}).to_string())
            .await
    }
}

pub struct BrokerSender {
    link: Link,
    envelope: String,
}

impl Caller for BrokerSender {
    async fn call(&mut self) -> Outcome<()> {
        self.link.send(&self.envelope).await
    }
}
