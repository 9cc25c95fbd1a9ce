//! One HTTP/1.1 exchange over a Unix socket: connect, write, read the head.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use heddle_core::limits::RESPONSE_BYTES_MAX;

use rustix::net::sockopt::Timeout;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::body::Body;
use super::error::ClientError;

/// A response head larger than this is not from our daemon.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// How long the line before the daemon's door may be full.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Header fields that we look at, and some room.
const HEADERS_MAX: usize = 32;

/// What to ask for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    method: &'static str,
    target: &'a str,
    idempotency_key: Option<&'a str>,
    last_event_id: Option<&'a str>,
}

impl<'a> Head<'a> {
    pub(super) fn get(target: &'a str) -> Self {
        Self {
            method: "GET",
            target,
            idempotency_key: None,
            last_event_id: None,
        }
    }

    pub(super) fn post(target: &'a str, idempotency_key: Option<&'a str>) -> Self {
        Self {
            method: "POST",
            target,
            idempotency_key,
            last_event_id: None,
        }
    }

    pub(super) fn last_event_id(self, id: Option<&'a str>) -> Self {
        Self {
            last_event_id: id,
            ..self
        }
    }

    fn render(&self, body_bytes: usize) -> Result<String, ClientError> {
        let mut text = format!(
            "{} {} HTTP/1.1\r\nhost: localhost\r\n",
            self.method, self.target
        );
        let fields = [
            ("idempotency-key", self.idempotency_key),
            ("last-event-id", self.last_event_id),
        ];
        for (name, value) in fields {
            let Some(value) = value else { continue };
            // A line break would begin another header.
            if value.chars().any(char::is_control) {
                return Err(ClientError::Protocol(format!(
                    "{name} holds a control character"
                )));
            }
            let _ = write!(text, "{name}: {value}\r\n");
        }
        if self.method == "POST" {
            let _ = write!(
                text,
                "content-type: application/json\r\ncontent-length: {body_bytes}\r\n"
            );
        }
        text.push_str("connection: close\r\n\r\n");
        Ok(text)
    }
}

/// A response whose body has not been read yet.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Body<BufReader<UnixStream>>,
}

impl Reply {
    pub(super) fn read_all(&mut self) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::new();
        // Twice the page limit: the daemon never sends more, and a liar is cut off.
        let bytes_max = 2 * RESPONSE_BYTES_MAX as u64;
        (&mut self.body).take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

pub(super) fn exchange(
    socket: &Path,
    head: &Head<'_>,
    body: &[u8],
    timeout: Duration,
) -> Result<Reply, ClientError> {
    let text = head.render(body.len())?;
    let mut stream = connect(socket)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let mut request = text.into_bytes();
    request.extend_from_slice(body);
    if let Err(error) = stream.write_all(&request) {
        // The daemon may refuse a large body before it has read it: its answer is worth more
        // than our broken pipe.
        if error.kind() != ErrorKind::BrokenPipe && error.kind() != ErrorKind::ConnectionReset {
            return Err(error.into());
        }
    }
    read_head(BufReader::new(stream))
}

/// Connects, but only to a socket of this same user (T-11): anybody could have put one there.
fn connect(socket: &Path) -> Result<UnixStream, ClientError> {
    let not_running = || ClientError::NotRunning {
        socket: socket.to_owned(),
    };
    let metadata = std::fs::symlink_metadata(socket).map_err(|_| not_running())?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(ClientError::Foreign {
            socket: socket.to_owned(),
        });
    }
    match connect_in_time(socket) {
        Ok(stream) => Ok(stream),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::ConnectionRefused | ErrorKind::NotFound
            ) =>
        {
            Err(not_running())
        }
        Err(error) => Err(error.into()),
    }
}

/// The kernel lets a caller in at once, or makes it wait while the line before the door is full. A
/// stopped daemon never takes anybody from that line, so the wait has an end.
fn connect_in_time(socket: &Path) -> std::io::Result<UnixStream> {
    let address = SocketAddrUnix::new(socket)?;
    let fd = net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    net::sockopt::set_socket_timeout(&fd, Timeout::Send, Some(CONNECT_TIMEOUT))?;
    net::connect(&fd, &address)?;
    Ok(UnixStream::from(fd))
}

fn read_head(mut reader: BufReader<UnixStream>) -> Result<Reply, ClientError> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let before = head.len();
        let room = (HEAD_BYTES_MAX + 1 - before) as u64;
        (&mut reader).take(room).read_until(b'\n', &mut head)?;
        if head.len() == before {
            let eof = std::io::Error::from(ErrorKind::UnexpectedEof);
            return Err(ClientError::Broken(eof));
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err(ClientError::Protocol(
                "the response head is too long".to_owned(),
            ));
        }
    }
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    response
        .parse(&head)
        .map_err(|error| ClientError::Protocol(error.to_string()))?;
    let status = response.code.unwrap_or_default();
    let field = |name: &str| {
        response
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name))
            .and_then(|header| std::str::from_utf8(header.value).ok())
    };
    let chunked = field("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked"));
    let length = field("content-length").and_then(|v| v.parse().ok());
    let body = match (chunked, length) {
        (true, _) => Body::chunked(reader),
        (false, Some(length)) => Body::sized(reader, length),
        (false, None) => Body::sized(reader, 0),
    };
    Ok(Reply { status, body })
}
