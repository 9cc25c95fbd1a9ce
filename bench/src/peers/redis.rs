//! Redis with a sync before every answer: a script that dedupes by id and appends to a stream.

use std::os::unix::net::UnixStream as PlainStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::net::UnixStream;

use super::next_id;
use crate::buffered::Buffered;
use crate::converse::Speaker;
use crate::error::{BenchError, Outcome, While as _};
use crate::process::{Running, bound, installed};
use crate::scratch::Scratch;

pub const HOW_TO_INSTALL: &str = "redis-server is not installed: apt-get install redis-server";
const READY_WAIT_MAX: Duration = Duration::from_secs(10);
const SCRIPT: &str = "if redis.call('SET', KEYS[1], '1', 'NX', 'EX', 86400) then \
    return redis.call('XADD', KEYS[2], '*', 'p', ARGV[1]) end return false";

pub struct Redis {
    _running: Running,
    socket: PathBuf,
    script: String,
    payload: String,
}

impl Redis {
    /// `None` where it is not installed.
    pub async fn start(scratch: &Scratch, payload_bytes: usize) -> Outcome<Option<Self>> {
        let Some(program) = installed("redis-server") else {
            return Ok(None);
        };
        let folder = scratch.folder("redis")?;
        let socket = scratch.file("redis.sock");
        let mut command = bound(program)?;
        command
            .args(["--port", "0", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(&folder)
            .args(["--appendonly", "yes", "--appendfsync", "always"])
            // No snapshots, and no rewriting of the log in the middle of a round.
            .args(["--save", "", "--auto-aof-rewrite-percentage", "0"])
            .args(["--daemonize", "no"]);
        let mut running = Running::start(&mut command, &scratch.file("redis.log"))?;
        let script = load_script(&mut running, &socket).await?;
        Ok(Some(Self {
            _running: running,
            socket,
            script,
            payload: "x".repeat(payload_bytes),
        }))
    }

    pub fn callers(&self, count: usize) -> Outcome<Vec<RedisCaller>> {
        let mut callers = Vec::with_capacity(count);
        for _ in 0..count {
            callers.push(RedisCaller {
                stream: PlainStream::connect(&self.socket).or_fail("connecting to Redis")?,
                script: self.script.clone(),
                payload: self.payload.clone(),
            });
        }
        Ok(callers)
    }
}

async fn connect(socket: &Path) -> Outcome<Buffered<UnixStream>> {
    let stream = UnixStream::connect(socket)
        .await
        .or_fail("connecting to Redis")?;
    Ok(Buffered::new(stream))
}

/// Waits until it listens, and leaves the script there.
async fn load_script(running: &mut Running, socket: &Path) -> Outcome<String> {
    let start = Instant::now();
    let mut wire = loop {
        running.must_live()?;
        match connect(socket).await {
            Ok(wire) => break wire,
            Err(error) if start.elapsed() > READY_WAIT_MAX => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    wire.write(&command(&["SCRIPT", "LOAD", SCRIPT])).await?;
    let digest = bulk(&mut wire).await?;
    String::from_utf8(digest).or_fail("digest of the script")
}

pub struct RedisCaller {
    stream: PlainStream,
    script: String,
    payload: String,
}

impl Speaker for RedisCaller {
    fn stream(&self) -> &PlainStream {
        &self.stream
    }

    fn question(&mut self, text: &mut Vec<u8>) {
        let key = next_id();
        let words = ["EVALSHA", &self.script, "2", &key, "bench", &self.payload];
        text.extend_from_slice(&command(&words));
    }

    /// A bulk string; everything else is a failure here, also "not found".
    fn answer(&self, bytes: &[u8]) -> Outcome<Option<usize>> {
        let Some(at) = bytes.iter().position(|byte| *byte == b'\n') else {
            return Ok(None);
        };
        let line = String::from_utf8_lossy(&bytes[..at]);
        let length = line.trim_end().strip_prefix('$');
        let length = length.and_then(|digits| digits.parse::<usize>().ok());
        let Some(length) = length else {
            return Err(BenchError::new(format!("Redis answered {line}")));
        };
        let end = at + 1 + length + 2;
        Ok((bytes.len() >= end).then_some(end))
    }
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A bulk string; everything else is a failure here, also "not found".
async fn bulk(wire: &mut Buffered<UnixStream>) -> Outcome<Vec<u8>> {
    let line = wire.line().await?;
    let text = String::from_utf8_lossy(line).into_owned();
    let length = text.strip_prefix('$').and_then(|n| n.parse::<usize>().ok());
    let Some(length) = length else {
        return Err(BenchError::new(format!("Redis answered {text}")));
    };
    let mut bytes = wire.take(length + 2).await?;
    bytes.truncate(length);
    Ok(bytes)
}
