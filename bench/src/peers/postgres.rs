//! A private PostgreSQL with fsync on, and clients that speak its protocol as plainly as it can be spoken: one prepared
//! statement a round trip.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};

use crate::buffered::Buffered;
use crate::error::{BenchError, Outcome, While as _};
use crate::load::Caller;
use crate::process::{self, Running, bound};
use crate::scratch::Scratch;

pub const HOW_TO_INSTALL: &str = "PostgreSQL is not installed: apt-get install postgresql";
const READY_WAIT_MAX: Duration = Duration::from_secs(30);
const STOP_WAIT_MAX: Duration = Duration::from_secs(20);
const PROTOCOL: i32 = 196_608;
/// The user that Debian's package makes; the server refuses to run as root.
const USER: &str = "postgres";
const AS_USER: [&str; 3] = ["--reuid=postgres", "--regid=postgres", "--init-groups"];

pub struct Postgres {
    running: Running,
    port: u16,
    /// A folder of its own, which belongs to the server's user.
    _folder: Scratch,
}

impl Postgres {
    /// `None` where it is not installed.
    pub async fn start(parent: Option<&Path>, log: &Path) -> Outcome<Option<Self>> {
        let Some(programs) = programs() else {
            return Ok(None);
        };
        let folder = Scratch::new(parent)?;
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            let owned = Command::new("chown")
                .arg(USER)
                .arg(folder.path())
                .status()?;
            if !owned.success() {
                return Err(BenchError::new(format!("there is no user {USER}")));
            }
        }
        let data = folder.file("db");
        let as_user: &[&str] = if is_root { &AS_USER } else { &[] };
        make(&programs, &data, as_user)?;
        let port = TcpListener::bind(("127.0.0.1", 0))
            .await?
            .local_addr()?
            .port();
        let mut server = bound("setpriv")?;
        server.args(as_user);
        // A change of user takes the kernel's promise away that it ends with us; this renews it.
        server
            .args(["--pdeathsig", "KILL", "--"])
            .arg(programs.join("postgres"))
            .arg("-D")
            .arg(&data)
            .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"])
            .args(["-c", "max_connections=300", "-c"])
            .arg(format!(
                "unix_socket_directories={}",
                folder.path().display()
            ))
            .current_dir("/");
        let mut running = Running::start(&mut server, log)?;
        let start = Instant::now();
        while PgLink::open(port).await.is_err() {
            running.must_live()?;
            if start.elapsed() > READY_WAIT_MAX {
                return Err(BenchError::new("PostgreSQL did not become ready"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(Some(Self {
            running,
            port,
            _folder: folder,
        }))
    }

    pub fn url(&self) -> String {
        format!(
            "postgres://heddle@127.0.0.1:{}/postgres?sslmode=disable",
            self.port
        )
    }

    /// Processor time of the server and all of its processes.
    pub fn cpu_us(&self) -> Outcome<f64> {
        process::family_cpu_us(self.running.pid())
    }

    async fn link(&self) -> Outcome<PgLink> {
        PgLink::open(self.port).await
    }

    /// Tables like those of the broker, for those who write row by row.
    pub async fn copy_tables(&self) -> Outcome<()> {
        let tables = [
            "client_message_dedupe",
            "message",
            "message_history",
            "delivery_queue",
            "mention_index",
            "mesh",
        ];
        let copies: String = tables
            .iter()
            .map(|name| format!("CREATE TABLE plain.{name} (LIKE mesh.{name} INCLUDING ALL);"))
            .collect();
        let sql =
            format!("DROP SCHEMA IF EXISTS plain CASCADE; CREATE SCHEMA plain; {copies} {MESH}");
        self.link().await?.simple(&sql).await
    }

    /// Each with its own connection, all writing the five rows of an accept one after the other.
    pub async fn row_by_row(&self, count: usize, payload: &str) -> Outcome<Vec<RowByRow>> {
        let mut callers = Vec::with_capacity(count);
        for _ in 0..count {
            let mut link = self.link().await?;
            for (name, sql) in STATEMENTS {
                link.prepare(name, sql).await?;
            }
            let payload = payload.to_owned();
            callers.push(RowByRow {
                link,
                payload,
                is_in_order: false,
            });
        }
        Ok(callers)
    }

    /// The same with the row of the mesh locked until the commit, so that places are given out in the order of commits.
    pub async fn in_order(&self, count: usize, payload: &str) -> Outcome<Vec<RowByRow>> {
        let mut callers = self.row_by_row(count, payload).await?;
        for caller in &mut callers {
            caller.is_in_order = true;
        }
        Ok(callers)
    }

    /// Each with its own connection, writing one row a transaction.
    pub async fn one_row(&self, count: usize, payload: &str) -> Outcome<Vec<OneRow>> {
        let callers = self.row_by_row(count, payload).await?;
        Ok(callers.into_iter().map(OneRow).collect())
    }

    /// A fast shutdown, so that nothing of it is left in the system.
    pub async fn stop(mut self) -> Outcome<()> {
        process::interrupt(self.running.pid());
        self.running.ended_within(STOP_WAIT_MAX).await.map(drop)
    }
}

/// An empty database.
fn make(programs: &Path, data: &Path, as_user: &[&str]) -> Outcome<()> {
    let made = Command::new("setpriv")
        .args(as_user)
        .arg("--")
        .arg(programs.join("initdb"))
        .args([
            "-U",
            "heddle",
            "--auth=trust",
            "--no-locale",
            "--encoding=UTF8",
            "-D",
        ])
        .arg(data)
        .current_dir("/")
        .output()?;
    if made.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    Err(BenchError::new(format!("initdb: {said}")))
}

/// The folder of the newest server.
fn programs() -> Option<PathBuf> {
    let found = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let folders = found.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    let mut folders: Vec<PathBuf> = folders
        .filter(|one| one.join("postgres").exists())
        .collect();
    folders.sort();
    folders.pop()
}

/// The same rows as the broker writes, of the same widths: a mesh and a member of 16 bytes each, a digest as the key of an
/// id. Their places are given out without a lock, so commits need not wait for each other: kinder than the contract,
/// which has commit order = seq order; with "place" behind "begin" they wait as it demands.
const STATEMENTS: [(&str, &str); 8] = [
    ("begin", "BEGIN"),
    ("place", "UPDATE plain.mesh SET next_seq = next_seq + 1"),
    (
        "dedupe",
        "INSERT INTO plain.client_message_dedupe (mesh_id, epoch, id_key, sender_member, sender_agent, client_message_id,
            wire_fingerprint, broker_message_id, seq, destination_kind, destination_ref, first_seen_at, expires_at,
            limiter_window, limiter_counted)
         VALUES ('\\x00000000000000000000000000000000', 1, $4::bytea, '\\x00000000000000000000000000000001', 'one', $2::text,
            $1::bytea || $1, $1, $3::bigint, 'topic', 'bench', 1, 2, 1, 1) ON CONFLICT DO NOTHING",
    ),
    (
        "message",
        "INSERT INTO plain.message (mesh_id, broker_message_id, sender_member, sender_agent, sender_name,
            client_message_id, destination_kind, destination_ref, accepted_at, envelope)
         VALUES ('\\x00000000000000000000000000000000', $1::bytea, '\\x00000000000000000000000000000001', 'one', 'raw',
            $2::text, 'topic', 'bench', 1, $3::text)",
    ),
    (
        "history",
        "INSERT INTO plain.message_history (mesh_id, epoch, seq, broker_message_id)
         VALUES ('\\x00000000000000000000000000000000', 1, $2::bigint, $1::bytea)",
    ),
    (
        "delivery",
        "INSERT INTO plain.delivery_queue (mesh_id, member_id, epoch, seq, agent, priority, broker_message_id)
         VALUES ('\\x00000000000000000000000000000000', '\\x00000000000000000000000000000002', 1, $2::bigint, 'sink', 1,
            $1::bytea)",
    ),
    (
        "mention",
        "INSERT INTO plain.mention_index (mesh_id, epoch, member_id, agent, seq)
         VALUES ('\\x00000000000000000000000000000000', 1, '\\x00000000000000000000000000000002', 'sink', $1::bigint)",
    ),
    ("commit", "COMMIT"),
];

/// The one row of the mesh.
const MESH: &str =
    "INSERT INTO plain.mesh SELECT decode(repeat('00', 16), 'hex'), 'plain', 1, 1, 0";

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// As scattered as a digest is.
fn digest(number: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    for (part, salt) in bytes.chunks_exact_mut(8).zip(1_u64..) {
        let mut mixed = number.wrapping_add(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(factor);
        }
        part.copy_from_slice(&(mixed ^ (mixed >> 31)).to_be_bytes());
    }
    bytes
}

pub struct RowByRow {
    link: PgLink,
    payload: String,
    is_in_order: bool,
}

impl Caller for RowByRow {
    async fn call(&mut self) -> Outcome<()> {
        let number = next_number();
        let key = u128::from(number).to_be_bytes();
        let (id, place) = (format!("{number:026}"), number.to_be_bytes());
        let Self {
            link,
            payload,
            is_in_order,
        } = self;
        link.run("begin", &[]).await?;
        if *is_in_order {
            link.run("place", &[]).await?;
        }
        let id_key = digest(number);
        link.run("dedupe", &[&key, id.as_bytes(), &place, &id_key])
            .await?;
        link.run("message", &[&key, id.as_bytes(), payload.as_bytes()])
            .await?;
        link.run("history", &[&key, &place]).await?;
        link.run("delivery", &[&key, &place]).await?;
        link.run("mention", &[&place]).await?;
        link.run("commit", &[]).await
    }
}

pub struct OneRow(RowByRow);

impl Caller for OneRow {
    async fn call(&mut self) -> Outcome<()> {
        let number = next_number();
        let key = u128::from(number).to_be_bytes();
        let id = format!("{number:026}");
        let RowByRow { link, payload, .. } = &mut self.0;
        link.run("message", &[&key, id.as_bytes(), payload.as_bytes()])
            .await
    }
}

/// One connection.
pub struct PgLink {
    wire: Buffered<TcpStream>,
}

impl PgLink {
    async fn open(port: u16) -> Outcome<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))
            .await
            .or_fail("connecting to PostgreSQL")?;
        stream.set_nodelay(true)?;
        let mut link = Self {
            wire: Buffered::new(stream),
        };
        let words = b"user\0heddle\0database\0postgres\0\0";
        let mut hello = length(words.len() + 8)?.to_vec();
        hello.extend_from_slice(&PROTOCOL.to_be_bytes());
        hello.extend_from_slice(words);
        link.wire.write(&hello).await?;
        link.until_ready().await?;
        Ok(link)
    }

    /// Statements as they are.
    pub async fn simple(&mut self, sql: &str) -> Outcome<()> {
        let text = message(b'Q', &[sql.as_bytes(), b"\0"])?;
        self.wire.write(&text).await?;
        self.until_ready().await
    }

    async fn prepare(&mut self, name: &str, sql: &str) -> Outcome<()> {
        let parts: [&[u8]; 5] = [name.as_bytes(), b"\0", sql.as_bytes(), b"\0", &[0, 0]];
        let mut bytes = message(b'P', &parts)?;
        bytes.extend_from_slice(&message(b'S', &[])?);
        self.wire.write(&bytes).await?;
        self.until_ready().await
    }

    /// Bind, execute, sync: one round trip.
    async fn run(&mut self, name: &str, params: &[&[u8]]) -> Outcome<()> {
        let count = i16::try_from(params.len())
            .or_fail("parameters")?
            .to_be_bytes();
        // No portal's name; every parameter is binary.
        let mut parts: Vec<&[u8]> = vec![b"\0", name.as_bytes(), b"\0", &[0, 1, 0, 1], &count];
        let mut lengths = Vec::with_capacity(params.len());
        for param in params {
            lengths.push(
                i32::try_from(param.len())
                    .or_fail("a parameter")?
                    .to_be_bytes(),
            );
        }
        for (length, param) in lengths.iter().zip(params) {
            parts.push(length);
            parts.push(param);
        }
        parts.push(&[0, 0]);
        let mut bytes = message(b'B', &parts)?;
        bytes.extend_from_slice(&message(b'E', &[&[0; 5]])?);
        bytes.extend_from_slice(&message(b'S', &[])?);
        self.wire.write(&bytes).await?;
        self.until_ready().await
    }

    /// Reads until it is ready for more; an error is one.
    async fn until_ready(&mut self) -> Outcome<()> {
        let mut failed = None;
        loop {
            let head = self.wire.take(5).await?;
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let length = usize::try_from(length).or_fail("length of an answer")?;
            let body = self.wire.take(length.saturating_sub(4)).await?;
            match head[0] {
                b'E' => failed = Some(String::from_utf8_lossy(&body).replace('\0', " ")),
                b'Z' => break,
                _ => {}
            }
        }
        failed.map_or(Ok(()), |said| {
            Err(BenchError::new(format!("PostgreSQL answered {said}")))
        })
    }
}

fn length(bytes: usize) -> Outcome<[u8; 4]> {
    Ok(u32::try_from(bytes).or_fail("a message")?.to_be_bytes())
}

fn message(kind: u8, parts: &[&[u8]]) -> Outcome<Vec<u8>> {
    let body: usize = parts.iter().map(|part| part.len()).sum();
    let mut bytes = Vec::with_capacity(body + 5);
    bytes.push(kind);
    bytes.extend_from_slice(&length(body + 4)?);
    for part in parts {
        bytes.extend_from_slice(part);
    }
    Ok(bytes)
}
